// SPDX-License-Identifier: MIT OR Apache-2.0
//! Flow rules of a capture: withholds packets of flows before they are copied.

use std::time::Duration;

use ringtap_client::{FlowEvents, ReaderRules};
use ringtap_filter::FlowSelector;
use ringtap_filter::flow::FlowRule;

use crate::{Capture, Error};

impl Capture {
    /// Sets a rule for a flow, or for all flows that match a pattern, in place of this reader's earlier one for the
    /// same. Other readers get the packets that it withholds; in a balanced group, the rule is that of all members.
    /// Withheld packets count as `shunted`. Of the rules that match a flow, the one for the flow itself decides, then
    /// the one with the longest prefix. A source has 64 rules for patterns, and each change makes it load programs.
    ///
    /// # Examples
    ///
    /// ```no_run
    /// use ringtap::{FlowAction, FlowId, FlowPattern, FlowRule};
    ///
    /// let capture = ringtap::open("hub:ids")?;
    /// let flow: FlowId = "tcp 10.0.0.1:80 10.0.0.2:5000".parse()?;
    /// capture.flow_rule(FlowRule {
    ///     flow,
    ///     action: FlowAction::Ignore,
    ///     lasts_ns: None,
    /// })?;
    /// let pattern: FlowPattern = "tcp net 10.0.0.0/8 port 8000-8999".parse()?;
    /// capture.flow_rule(FlowRule {
    ///     flow: pattern,
    ///     action: FlowAction::Sample { one_in: 100 },
    ///     lasts_ns: None,
    /// })?;
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    ///
    /// [`Error::Control`]: the source has no table of flows, the table is full, or a limit is reached.
    pub fn flow_rule(&self, rule: impl Into<FlowRule<FlowSelector>>) -> Result<(), Error> {
        Ok(self.rules().set(&[rule.into()])?)
    }

    /// Removes this reader's rule for a flow, or for a pattern; `false` if it has none.
    ///
    /// # Examples
    ///
    /// ```no_run
    /// use ringtap::FlowId;
    ///
    /// let capture = ringtap::open("hub:ids")?;
    /// let flow: FlowId = "tcp 10.0.0.1:80 10.0.0.2:5000".parse()?;
    /// let had_one = capture.remove_flow_rule(flow)?;
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    ///
    /// [`Error::Control`].
    pub fn remove_flow_rule(&self, flow: impl Into<FlowSelector>) -> Result<bool, Error> {
        Ok(self.rules().remove(&[flow.into()])? > 0)
    }

    /// The ends of flows since the last call: of those for which this reader has rules, and of all if it has a
    /// [cut-off](crate::OpenOptions::cutoff). Waits for the first one, at most for `timeout`.
    ///
    /// # Examples
    ///
    /// ```no_run
    /// use std::time::Duration;
    ///
    /// let capture = ringtap::open("hub:ids")?;
    /// for event in capture.flow_events(Duration::from_secs(1))?.events {
    ///     println!("{} {}", event.flow, event.why.word());
    /// }
    /// # Ok::<(), ringtap::Error>(())
    /// ```
    ///
    /// # Errors
    ///
    /// [`Error::Control`].
    pub fn flow_events(&self, timeout: Duration) -> Result<FlowEvents, Error> {
        Ok(self.rules().events(timeout)?)
    }

    /// All commands for the flow rules of this capture: many rules at once, and the list of those in force.
    pub fn rules(&self) -> ReaderRules<'_> {
        ReaderRules::new(&**self.control())
    }
}
