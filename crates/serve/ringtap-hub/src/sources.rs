// SPDX-License-Identifier: MIT OR Apache-2.0
//! A source on the control thread: everything but its chunks.

use std::io;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::sync::mpsc::{self, Receiver, Sender, TryRecvError};
use std::thread::JoinHandle;

use ringtap_filter::{FilterLocation, Rule, Rules};
use ringtap_ipc::pool_memory::PoolMemory;
use ringtap_ipc::thread::join;
use ringtap_pool::source::{
    Facts, FlowRules, LossUpdate, RuleLoader, Source, SourceError, Unclassified,
};
use ringtap_pool::view::Pool;
use ringtap_pool::wake::Signal;

use crate::background;

/// A source, its loader of rules, and what readers of other processes need of it.
pub(crate) struct SourceHandle {
    pub(crate) facts: Facts,
    pub(crate) pool: Pool,
    pool_file: Option<OwnedFd>,
    /// The memory in which the pool lies now, if it is not that of `pool_file`.
    memory: Option<PoolMemory>,
    /// The source's own signal, on which readers sleep in addition to their doorbells.
    pub(crate) readers_wake: Option<Arc<OwnedFd>>,
    update_losses: Option<LossUpdate>,
    loader: LoaderThread,
    /// The source has no rules yet: every packet has every bit.
    gives_everything: bool,
    /// The table of flows, once the rules in force have one.
    pub(crate) flows: Option<Arc<dyn FlowRules>>,
    /// Outcome of the last rules.
    outcome: Option<Outcome>,
    /// The hub has warned that a reader has less than a full guarantee.
    is_scarce: bool,
}

impl SourceHandle {
    /// The handle of a source; `done` is signalled after each set of rules.
    ///
    /// # Errors
    ///
    /// The system's, when no thread can start.
    pub(crate) fn new(source: &mut Source, done: Arc<dyn Signal>) -> io::Result<Self> {
        let rules = std::mem::replace(&mut source.rules, Box::new(Unclassified));
        Ok(SourceHandle {
            facts: source.facts.clone(),
            pool: source.pool.clone(),
            pool_file: source.pool_file.take(),
            memory: None,
            readers_wake: source.readers_wake.clone(),
            update_losses: source.update_losses.take(),
            gives_everything: rules.gives_everything(),
            loader: LoaderThread::start(rules, done)?,
            flows: None,
            outcome: None,
            is_scarce: false,
        })
    }

    /// Descriptor by which another process maps the pool, and where in it the pool begins.
    pub(crate) fn pool_file(&self) -> Option<(OwnedFd, u64)> {
        match &self.memory {
            Some(PoolMemory { file, .. }) => Some((file.0.try_clone().ok()?, file.1)),
            None => Some((self.pool_file.as_ref()?.try_clone().ok()?, 0)),
        }
    }

    /// The memory in which the pool lies since it was changed.
    pub(crate) fn memory(&self) -> Option<&PoolMemory> {
        self.memory.as_ref()
    }

    pub(crate) fn set_memory(&mut self, memory: PoolMemory) {
        self.memory = Some(memory);
    }

    /// Asks the interface for its losses, which later counters contain.
    pub(crate) fn update_losses(&mut self) {
        if let Some(update) = &mut self.update_losses {
            update();
        }
    }

    /// Starts to load these rules; [`SourceHandle::has_outcome`] tells when the loading is over.
    ///
    /// A source without rules gives every packet to every reader. The hub loads no rules while all of
    /// them want every packet, which saves a tap the loading of programs.
    pub(crate) fn load(&mut self, rules: &Rules) {
        let each = &rules.each;
        let wants_all = !each.is_empty() && each.iter().all(Rule::takes_everything);
        if wants_all && self.gives_everything && rules.flows.is_none() {
            self.outcome = Some(Ok(vec![FilterLocation::Source; each.len()]));
            return;
        }
        self.gives_everything = false;
        self.loader.load(rules);
    }

    /// Whether the source has put the rules in force or refused them.
    pub(crate) fn has_outcome(&mut self) -> bool {
        if self.outcome.is_none()
            && let Some((outcome, flows)) = self.loader.outcome()
        {
            self.outcome = Some(outcome);
            self.flows = flows;
        }
        self.outcome.is_some()
    }

    /// Where each rule's filter runs, or why the rules are refused; `None` before the outcome is known.
    pub(crate) fn take_outcome(&mut self) -> Option<Outcome> {
        self.outcome.take()
    }

    /// Warns once when a new reader is guaranteed `chunks` chunks of a lane instead of `full`.
    pub(crate) fn warn_if_scarce(&mut self, guarantees: Option<[u32; 2]>) {
        if let Some([chunks, full]) = guarantees.filter(|_| !self.is_scarce) {
            self.is_scarce = true;
            tracing::warn!(
                device = self.facts.device,
                "a further reader is guaranteed {chunks} chunks of a lane instead of {full}: slow \
                 readers together can make it lose packets; for more readers with a full share \
                 raise guaranteed_readers in [limits], and ask for a larger pool="
            );
        }
    }
}

/// Where each rule's filter runs, or why the rules are not in force.
pub(crate) type Outcome = Result<Vec<FilterLocation>, SourceError>;

/// An outcome, and the table of flows in force.
type OutcomeAndFlows = (Outcome, Option<Arc<dyn FlowRules>>);

/// Thread that puts the source's rules in force, so that the hub's thread need not wait; ends when this is
/// dropped.
struct LoaderThread {
    rules: Option<Sender<Rules>>,
    outcomes: Receiver<OutcomeAndFlows>,
    thread: Option<JoinHandle<()>>,
}

impl LoaderThread {
    /// Starts the thread, which signals `done` after each set of rules.
    ///
    /// # Errors
    ///
    /// The system's, when no thread can start.
    fn start(mut loader: Box<dyn RuleLoader>, done: Arc<dyn Signal>) -> io::Result<Self> {
        let (rules, inbox) = mpsc::channel::<Rules>();
        let (outbox, outcomes) = mpsc::channel();
        let thread = background::spawn("rules", move || {
            for rules in inbox {
                let outcome = loader.classify(&rules);
                if outbox.send((outcome, loader.flow_rules())).is_err() {
                    return;
                }
                done.signal();
            }
        })?;
        Ok(LoaderThread {
            rules: Some(rules),
            outcomes,
            thread: Some(thread),
        })
    }

    /// Queues a set of rules; each set has one outcome.
    fn load(&self, rules: &Rules) {
        // `outcome` reports a thread that has ended.
        let _gone = self.rules.as_ref().map(|to| to.send(rules.clone()));
    }

    /// Outcome of the oldest set of rules without one; `None` while the thread loads that set.
    fn outcome(&self) -> Option<OutcomeAndFlows> {
        match self.outcomes.try_recv() {
            Ok(outcome) => Some(outcome),
            Err(TryRecvError::Empty) => None,
            Err(TryRecvError::Disconnected) => {
                Some((Err("its rules can no longer change".into()), None))
            }
        }
    }
}

impl Drop for LoaderThread {
    fn drop(&mut self) {
        self.rules = None;
        if let Some(thread) = self.thread.take() {
            join(thread);
        }
    }
}
