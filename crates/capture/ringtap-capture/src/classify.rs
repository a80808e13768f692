// SPDX-License-Identifier: MIT OR Apache-2.0
//! Rules in user space: handed over to the thread that captures, without loss or waiting.
//!
//! The thread takes the rules at the beginning of a *batch* of packets, and ends the batch when
//! they are published. Whoever changes the rules waits until no batch is under the old ones.
//!
//! Invariants
//! - All packets of a batch are judged by the same rules.
//! - When `Rulebook::set` has returned, no packet is published that the old rules judged.
//! - A batch never waits for anything, so `set` returns soon.
#![forbid(unsafe_code)]

use std::{
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{
            AtomicU64,
            Ordering::{Relaxed, SeqCst},
        },
    },
    time::Duration,
};

use ringtap_filter::{
    Program, ProgramError,
    classifier::{self, Classifier, TooManyRules, Turns, Verdict},
    hash,
};
use ringtap_pool::{
    classify::{Balance, Headers, Place, Rule, Rules},
    source::SourceError,
};

use ringtap_filter::LinkType;

/// Why rules cannot be used; those before are still in force.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ClassifyError {
    /// Too many at once.
    #[error(transparent)]
    TooMany(#[from] TooManyRules),
    /// A filter that was not checked.
    #[error("the filter of rule {rule} cannot run: {error}")]
    Program {
        /// Which rule, from 0.
        rule: usize,
        /// What is wrong with it.
        error: ProgramError,
    },
    /// A user's program, which runs in the kernel only.
    #[error(
        "{device} captures in user space, where {program} cannot run: use a tap: device, \
         or balance by flow, address, vlan or round-robin"
    )]
    NeedsEbpf {
        /// The device.
        device: String,
        /// The program's file.
        program: String,
    },
    /// Packets in which no addresses can be found.
    #[error(
        "{device} has packets of link type \"{link_type}\", in which no addresses are known: \
         balance round-robin, or not at all"
    )]
    NoAddresses {
        /// The device.
        device: String,
        /// Its link type.
        link_type: LinkType,
    },
}

/// How often `set` looks whether a batch has ended.
const NAP: Duration = Duration::from_micros(50);

/// The rules in force, shared with the thread that captures.
#[derive(Debug, Default)]
pub(crate) struct Rulebook {
    /// `None` until rules are given.
    rules: Mutex<Option<Arc<Classifier>>>,
    /// How often the rules were changed.
    edition: AtomicU64,
    /// Odd while a batch is under way.
    batches: AtomicU64,
    unwanted: AtomicU64,
}

/// The capturing thread's side of a [`Rulebook`].
#[derive(Debug)]
pub(crate) struct Judge {
    book: Arc<Rulebook>,
    rules: Option<Arc<Classifier>>,
    edition: u64,
    turns: Turns,
    /// What [`Rulebook::unwanted`] will be after this batch.
    unwanted: u64,
    /// A batch has begun.
    is_busy: bool,
}

impl Rulebook {
    /// Packets that no rule wanted.
    pub(crate) fn unwanted(&self) -> u64 {
        self.unwanted.load(Relaxed)
    }

    /// Puts rules in force; gives where each one's filter runs.
    pub(crate) fn set(
        &self,
        rules: &Rules,
        device: &str,
        link_type: LinkType,
    ) -> Result<Vec<Place>, SourceError> {
        let classifier = classifier(rules, device, link_type)?;
        *self.rules.lock().unwrap_or_else(PoisonError::into_inner) = Some(Arc::new(classifier));
        // With the order in `Judge::begin`: a batch either sees this edition, or is seen here.
        self.edition.fetch_add(1, SeqCst);
        let before = self.batches.load(SeqCst);
        while before % 2 == 1 && self.batches.load(SeqCst) == before {
            std::thread::sleep(NAP);
        }
        Ok(vec![Place::Source; rules.0.len()])
    }
}

impl Judge {
    pub(crate) fn new(book: Arc<Rulebook>) -> Self {
        Self {
            book,
            rules: None,
            edition: 0,
            turns: Turns::default(),
            unwanted: 0,
            is_busy: false,
        }
    }

    /// Begins a batch, unless one is under way.
    #[inline]
    pub(crate) fn begin(&mut self) {
        if self.is_busy {
            return;
        }
        self.is_busy = true;
        self.book.batches.fetch_add(1, SeqCst);
        let edition = self.book.edition.load(SeqCst);
        if edition != self.edition {
            let rules = self.book.rules.lock();
            self.rules
                .clone_from(&rules.unwrap_or_else(PoisonError::into_inner));
            self.edition = edition;
        }
    }

    /// Changes when the rules have changed since the batch before.
    pub(crate) fn edition(&self) -> u64 {
        self.edition
    }

    /// Whether there are rules to judge by.
    #[inline]
    pub(crate) fn has_rules(&self) -> bool {
        self.rules.is_some()
    }

    /// Who wants a packet of which `data` will be captured; `None`, and counted, if nobody does.
    #[inline]
    pub(crate) fn judge(&mut self, data: &[u8], wire_length: u32) -> Option<Verdict> {
        let Some(rules) = &self.rules else {
            return Some(Verdict {
                mask: u64::MAX,
                hash: None,
            });
        };
        let verdict = rules.judge(data, wire_length, &mut self.turns);
        if verdict.mask == 0 {
            self.unwanted += 1;
            return None;
        }
        Some(verdict)
    }

    /// Packets that this judge let nobody have.
    pub(crate) fn unwanted(&self) -> u64 {
        self.unwanted
    }

    /// Ends a batch, all of whose packets are published.
    #[inline]
    pub(crate) fn end(&mut self) {
        if self.is_busy {
            self.is_busy = false;
            self.book.unwanted.store(self.unwanted, Relaxed);
            self.book.batches.fetch_add(1, SeqCst);
        }
    }
}

impl Drop for Judge {
    fn drop(&mut self) {
        self.end();
    }
}

fn classifier(
    rules: &Rules,
    device: &str,
    link_type: LinkType,
) -> Result<Classifier, ClassifyError> {
    let link = link(link_type);
    let numbered = rules.0.iter().enumerate();
    let rules = numbered
        .map(|(number, rule)| {
            let balance = balance(rule, device)?;
            if link.is_none() && needs_addresses(balance) {
                let device = device.to_owned();
                return Err(ClassifyError::NoAddresses { device, link_type });
            }
            let filter = Program::from_entries(&rule.filter);
            Ok(classifier::Rule {
                filter: filter.map_err(|error| ClassifyError::Program {
                    rule: number,
                    error,
                })?,
                balance,
                members: Arc::clone(&rule.members),
            })
        })
        .collect::<Result<Vec<_>, _>>()?;
    Ok(Classifier::new(rules, link.unwrap_or_default())?)
}

fn balance(rule: &Rule, device: &str) -> Result<classifier::Balance, ClassifyError> {
    Ok(match &rule.balance {
        Balance::Everyone => classifier::Balance::Everyone,
        Balance::Flow(which) => classifier::Balance::Flow(headers(*which)),
        Balance::Address(which) => classifier::Balance::Address(headers(*which)),
        Balance::Vlan => classifier::Balance::Vlan,
        Balance::RoundRobin => classifier::Balance::RoundRobin,
        Balance::Program(file) => {
            return Err(ClassifyError::NeedsEbpf {
                device: device.to_owned(),
                program: file.display().to_string(),
            });
        }
    })
}

fn headers(which: Headers) -> hash::Headers {
    match which {
        Headers::Outer => hash::Headers::Outer,
        Headers::Inner => hash::Headers::Inner,
    }
}

fn needs_addresses(balance: classifier::Balance) -> bool {
    use classifier::Balance::{Address, Flow, Vlan};
    matches!(balance, Flow(_) | Address(_) | Vlan)
}

/// What packets of a link type begin with, if addresses can be found there.
fn link(link_type: LinkType) -> Option<hash::Link> {
    /// `LINKTYPE_IPV4` and `LINKTYPE_IPV6`.
    const ONE_VERSION: [u16; 2] = [228, 229];
    match link_type {
        LinkType::ETHERNET => Some(hash::Link::Ethernet),
        LinkType::RAW_IP => Some(hash::Link::Ip),
        LinkType(number) if ONE_VERSION.contains(&number) => Some(hash::Link::Ip),
        _ => None,
    }
}

#[cfg(test)]
mod tests;
