// SPDX-License-Identifier: MIT OR Apache-2.0
//! The account of packets, which always balances.
//!
//! `offered` is the sum of [`TERMS`], per source and lane, and again per reader.

use std::fmt;
use std::ops::AddAssign;
use std::ptr;

use serde::{Deserialize, Serialize};

/// Packets that were offered and not delivered, by reason.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Dropped {
    /// Lost by the NIC or its driver before capture saw them.
    pub nic: u64,
    /// Lost by the kernel before capture saw them (AF_PACKET ring full, copy failed).
    pub kernel: u64,
    /// Seen, but no chunk was free.
    pub pool_full: u64,
    /// Captured, but this reader was past its credit.
    pub overrun: u64,
    /// Read, but the recorder's disk or pipe failed.
    pub not_written: u64,
    /// Held by a bridge, but the inline reader did not answer in time.
    pub no_verdict: u64,
}

/// The account of a source's lane, of a reader, or of a bridge's direction.
///
/// C programs read these fields in this order.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Counters {
    /// Packets that were there to be captured, by counters that do not depend on the reader.
    pub offered: u64,
    /// Packets handed to the reader that pass its filter; of a lane: packets put into the pool.
    pub delivered: u64,
    /// Packets that do not pass the filter.
    pub filtered: u64,
    /// Packets that a flow rule of the reader withheld.
    pub shunted: u64,
    /// Packets that went to other members of the reader's balanced group.
    pub other_members: u64,
    /// Bytes on the wire of the delivered packets.
    pub bytes: u64,
    /// Packets lost, by reason.
    pub dropped: Dropped,
}

/// Kind of object that has an account.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Scope {
    /// A source, before its lanes.
    Source,
    /// A lane of a source.
    Lane,
    /// A reader, from the pool on.
    Reader,
    /// A recorder, behind its reader.
    Recorder,
    /// A direction of a bridge.
    Bridge,
}

/// One term of the sum: what can become of a packet. Text, checks, metrics and the documents' table follow from
/// [`TERMS`].
#[derive(Debug)]
pub struct Term {
    /// Its name in text and JSON.
    pub name: &'static str,
    /// Outcome of the packets, in words.
    pub meaning: &'static str,
    /// Remedy, if the term is a loss.
    pub help: &'static str,
    /// Accounts that have the term.
    pub scopes: &'static [Scope],
    /// Whether text shows it also while it is 0.
    pub is_usual: bool,
    field: fn(&mut Counters) -> &mut u64,
}

use Scope::{Bridge, Lane, Reader, Recorder, Source};

/// Every term; losses are last.
pub static TERMS: [Term; 10] = [
    Term {
        name: "delivered",
        meaning: "taken by the reader",
        help: "",
        scopes: &[Lane, Reader, Bridge],
        is_usual: true,
        field: |of| &mut of.delivered,
    },
    Term {
        name: "filtered",
        meaning: "did not pass the filter",
        help: "",
        scopes: &[Lane, Reader, Bridge],
        is_usual: true,
        field: |of| &mut of.filtered,
    },
    Term {
        name: "shunted",
        meaning: "withheld by a flow rule",
        help: "",
        scopes: &[Lane, Reader],
        is_usual: false,
        field: |of| &mut of.shunted,
    },
    Term {
        name: "other_members",
        meaning: "went to other members of the group",
        help: "",
        scopes: &[Reader],
        is_usual: false,
        field: |of| &mut of.other_members,
    },
    Term {
        name: "dropped.nic",
        meaning: "lost by the interface or its driver",
        help: "more receive queues (`ethtool -L`), larger receive ring (`ethtool -G`), `--cpu irq=1`",
        scopes: &[Source, Bridge],
        is_usual: true,
        field: |of| &mut of.dropped.nic,
    },
    Term {
        name: "dropped.kernel",
        meaning: "lost by the kernel before capture",
        help: "`tap` instead of `packet`, `--cpu auto`",
        scopes: &[Source, Lane, Bridge],
        is_usual: true,
        field: |of| &mut of.dropped.kernel,
    },
    Term {
        name: "dropped.pool_full",
        meaning: "the pool was full",
        help: "larger pool (`-B`), faster readers, narrower filter",
        scopes: &[Lane],
        is_usual: true,
        field: |of| &mut of.dropped.pool_full,
    },
    Term {
        name: "dropped.overrun",
        meaning: "this reader was too slow",
        help: "more members, larger pool, narrower filter, `policy = \"cut:128\"`",
        scopes: &[Reader],
        is_usual: true,
        field: |of| &mut of.dropped.overrun,
    },
    Term {
        name: "dropped.not_written",
        meaning: "read, but not written to the file",
        help: "free disk space, faster disk",
        scopes: &[Recorder],
        is_usual: false,
        field: |of| &mut of.dropped.not_written,
    },
    Term {
        name: "dropped.no_verdict",
        meaning: "the inline reader did not answer",
        help: "faster inline reader",
        scopes: &[Bridge],
        is_usual: false,
        field: |of| &mut of.dropped.no_verdict,
    },
];

impl PartialEq for Term {
    fn eq(&self, other: &Self) -> bool {
        self.name == other.name
    }
}

impl Term {
    /// The term's packets.
    #[must_use]
    pub fn count(&self, counters: &Counters) -> u64 {
        *(self.field)(&mut { *counters })
    }

    /// The reason of a loss: the name after `dropped.`.
    #[must_use]
    pub fn reason(&self) -> Option<&'static str> {
        self.name.strip_prefix("dropped.")
    }

    /// Where the term is in [`Counters`], in bytes.
    #[must_use]
    pub fn offset(&self) -> usize {
        let mut counters = Counters::default();
        let start = ptr::from_ref(&counters).addr();
        ptr::from_ref((self.field)(&mut counters)).addr() - start
    }

    /// The losses that can happen in one of these.
    pub fn losses_of(scopes: &[Scope]) -> impl Iterator<Item = &'static Term> {
        let is_here = |term: &&Term| term.scopes.iter().any(|scope| scopes.contains(scope));
        let losses = TERMS.iter().filter(|term| term.reason().is_some());
        losses.filter(is_here)
    }
}

impl Dropped {
    /// The sum of all reasons.
    #[must_use]
    pub fn total(&self) -> u64 {
        self.account().accounted()
    }

    fn account(self) -> Counters {
        Counters {
            dropped: self,
            ..Counters::default()
        }
    }

    /// Losses since `before`.
    #[must_use]
    pub fn since(self, before: Self) -> Self {
        self.account().since(&before.account()).dropped
    }
}

/// Both sides of the equation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CounterBalance {
    /// Packets offered.
    pub offered: u64,
    /// Packets in the other terms.
    pub accounted: u64,
}

impl Counters {
    /// Packets of which it is known what became of them: the sum of [`TERMS`].
    #[must_use]
    pub fn accounted(&self) -> u64 {
        let terms = TERMS.iter().map(|term| term.count(self));
        terms.fold(0, u64::saturating_add)
    }

    /// Both sides of the equation.
    #[must_use]
    pub fn balance(&self) -> CounterBalance {
        CounterBalance {
            offered: self.offered,
            accounted: self.accounted(),
        }
    }

    /// Packets counted since `before`.
    #[must_use]
    pub fn since(mut self, before: &Self) -> Self {
        self.combine(before, u64::saturating_sub);
        self
    }

    fn combine(&mut self, other: &Self, with: fn(u64, u64) -> u64) {
        self.offered = with(self.offered, other.offered);
        self.bytes = with(self.bytes, other.bytes);
        for term in &TERMS {
            let field = (term.field)(self);
            *field = with(*field, term.count(other));
        }
    }
}

impl AddAssign for Dropped {
    fn add_assign(&mut self, other: Self) {
        let mut sum = self.account();
        sum += other.account();
        *self = sum.dropped;
    }
}

impl AddAssign for Counters {
    fn add_assign(&mut self, other: Self) {
        self.combine(&other, u64::saturating_add);
    }
}

impl CounterBalance {
    /// Whether both sides are equal.
    pub fn holds(&self) -> bool {
        self.offered == self.accounted
    }

    /// Both sides in words, with numbers in this form.
    pub fn text(&self, form: impl Fn(u64) -> String) -> String {
        let (offered, accounted) = (form(self.offered), form(self.accounted));
        let sides = format!("{offered} offered, {accounted} accounted for");
        if self.holds() {
            return format!("balanced: {sides}");
        }
        let difference = form(self.offered.abs_diff(self.accounted));
        let side = if self.offered > self.accounted {
            "missing"
        } else {
            "too many"
        };
        format!("NOT balanced: {sides}, {difference} {side}")
    }
}

impl fmt::Display for CounterBalance {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text(|number| number.to_string()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn even() -> Counters {
        Counters {
            offered: 29,
            delivered: 5,
            filtered: 4,
            shunted: 7,
            other_members: 2,
            bytes: 320,
            dropped: Dropped {
                nic: 3,
                kernel: 1,
                pool_full: 2,
                not_written: 1,
                no_verdict: 4,
                ..Dropped::default()
            },
        }
    }

    #[test]
    fn a_counters_with_every_packet_in_one_place_balances() {
        assert!(even().balance().holds());
        let mut sum = even();
        sum += even();
        assert!(sum.balance().holds());
    }

    #[test]
    fn a_counters_with_a_packet_missing_does_not_balance() {
        let mut counters = even();
        counters.delivered -= 1;
        assert!(!counters.balance().holds());
        assert!(counters.balance().to_string().contains("1 missing"));
        counters.dropped.overrun += 2;
        assert!(counters.balance().to_string().contains("1 too many"));
    }

    #[test]
    fn every_field_is_a_term_or_one_of_two_others() {
        let fields = size_of::<Counters>() / size_of::<u64>();
        assert_eq!(fields, TERMS.len() + 2, "all but offered and bytes");
        let names: Vec<_> = TERMS
            .iter()
            .map(|term| term.name.replace('.', "/"))
            .collect();
        for (at, term) in TERMS.iter().enumerate() {
            let mut one = Counters::default();
            *(term.field)(&mut one) = 1;
            assert_eq!(one.accounted(), 1, "{}", term.name);
            let json = serde_json::to_value(one).unwrap();
            let field = json.pointer(&format!("/{}", names[at]));
            assert_eq!(field, Some(&1.into()), "{}: its name in JSON", term.name);
        }
        let twice = {
            let mut sum = even();
            sum += even();
            sum
        };
        assert_eq!(twice.since(&even()), even());
    }

    #[test]
    fn the_documents_have_the_table() {
        let page = include_str!("../../../../docs/counters.md");
        for term in &TERMS {
            let row = match term.help {
                "" => format!("| `{}` | {} | – |", term.name, term.meaning),
                help => format!("| `{}` | {} | {help} |", term.name, term.meaning),
            };
            assert!(page.contains(&row), "docs/counters.md lacks the row: {row}");
            assert!(page.contains(term.name), "the equation lacks {}", term.name);
        }
    }
}
