// SPDX-License-Identifier: MIT OR Apache-2.0
//! Flow rules of a reader: sets, removes and lists them, and takes the ends of flows.

use std::time::{Duration, Instant};

use ringtap_filter::FlowSelector;
use ringtap_filter::flow::FlowRule;
use ringtap_ipc::protocol::{FlowEvent, MAX_RULES_OF_REQUEST, Refused, Reply, Request, RuleStatus};

use crate::control::{Control, ControlError};

/// Pause between two looks for events; the hub itself looks every 100 ms.
const LOOK: Duration = Duration::from_millis(50);

/// The flow rules of one reader.
#[derive(Clone, Copy)]
pub struct ReaderRules<'a> {
    control: &'a dyn Control,
    reader: Option<u64>,
}

/// Ends of flows since the last call.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct FlowEvents {
    /// In the order in which the hub learned of them.
    pub events: Vec<FlowEvent>,
    /// Ends that the hub could not keep for this reader.
    pub lost: u64,
}

impl<'a> ReaderRules<'a> {
    /// The rules of the reader whose commands these are.
    #[must_use]
    pub fn new(control: &'a dyn Control) -> Self {
        ReaderRules {
            control,
            reader: None,
        }
    }

    /// The rules of the reader with this number, which must be of the same user.
    #[must_use]
    pub fn of_reader(control: &'a dyn Control, number: u64) -> Self {
        ReaderRules {
            control,
            reader: Some(number),
        }
    }

    /// Sets rules for flows or for patterns, each in place of the reader's rule for the same.
    ///
    /// # Errors
    ///
    /// Every [`ControlError`]; the rules before the refused one are set.
    pub fn set<R>(&self, rules: &[R]) -> Result<(), ControlError>
    where
        R: Into<FlowRule<FlowSelector>> + Copy,
    {
        let rules: Vec<FlowRule<FlowSelector>> = rules.iter().map(|rule| (*rule).into()).collect();
        // A request has rules of one kind.
        let are_alike = |one: &FlowRule<_>, other: &FlowRule<_>| {
            is_pattern(&one.flow) == is_pattern(&other.flow)
        };
        for rules in rules.chunk_by(are_alike) {
            for rules in rules.chunks(MAX_RULES_OF_REQUEST) {
                self.done(Request::SetRules {
                    reader: self.reader,
                    rules: rules.to_vec(),
                })?;
            }
        }
        Ok(())
    }

    /// Removes the reader's own rules for these flows or patterns; returns the number of those that it had.
    ///
    /// # Errors
    ///
    /// Every [`ControlError`].
    pub fn remove<S: Into<FlowSelector> + Copy>(&self, flows: &[S]) -> Result<u64, ControlError> {
        let flows: Vec<FlowSelector> = flows.iter().map(|flow| (*flow).into()).collect();
        let mut removed = 0;
        for flows in flows.chunk_by(|one, other| is_pattern(one) == is_pattern(other)) {
            for flows in flows.chunks(MAX_RULES_OF_REQUEST) {
                removed += self.done(Request::RemoveRules {
                    reader: self.reader,
                    flows: flows.to_vec(),
                })?;
            }
        }
        Ok(removed)
    }

    fn done(&self, request: Request) -> Result<u64, ControlError> {
        match self.ask(request)? {
            Reply::RulesDone {
                refused: Some(refused),
                ..
            } => Err(refused.into()),
            Reply::RulesDone { done, .. } => Ok(done),
            _ => Err(ControlError::Gone("it did not answer for the rules".into())),
        }
    }

    /// The rules in force, those for patterns first, then in the order of their flows; of a reader in a balanced group, those of the group.
    ///
    /// # Errors
    ///
    /// Every [`ControlError`].
    pub fn list(&self) -> Result<Vec<RuleStatus>, ControlError> {
        let mut all: Vec<RuleStatus> = Vec::new();
        loop {
            let after = all.last().map(|last| last.rule.flow);
            let request = Request::Rules {
                reader: self.reader,
                after,
            };
            let Reply::Rules { rules, more } = self.ask(request)? else {
                return Err(ControlError::Gone("it listed no rules".into()));
            };
            // Otherwise a faulty hub could send pages for ever.
            let mut flows = rules.iter().map(|one| one.rule.flow);
            let goes_on = flows
                .next()
                .is_some_and(|first| after.is_none_or(|last| first > last));
            all.extend(rules);
            if !more || !goes_on {
                return Ok(all);
            }
        }
    }

    /// The ends of flows since the last call; waits for the first one, at most for `timeout`.
    ///
    /// # Errors
    ///
    /// Every [`ControlError`].
    pub fn events(&self, timeout: Duration) -> Result<FlowEvents, ControlError> {
        let deadline = Instant::now() + timeout;
        loop {
            let request = Request::FlowEvents {
                reader: self.reader,
            };
            let Reply::FlowEvents { events, lost, .. } = self.ask(request)? else {
                return Err(ControlError::Gone("it gave no events".into()));
            };
            let left = deadline.saturating_duration_since(Instant::now());
            if !events.is_empty() || lost > 0 || left.is_zero() {
                return Ok(FlowEvents { events, lost });
            }
            std::thread::sleep(LOOK.min(left));
        }
    }

    fn ask(&self, request: Request) -> Result<Reply, ControlError> {
        match self.control.flow_request(request)? {
            Reply::Refused(Refused { code, message }) => Err(Refused { code, message }.into()),
            reply => Ok(reply),
        }
    }
}

fn is_pattern(flow: &FlowSelector) -> bool {
    matches!(flow, FlowSelector::Pattern(_))
}
