// SPDX-License-Identifier: MIT OR Apache-2.0
//! The answer of `ringtap why`: a verdict, all findings, and the equations that were checked.

use std::fs;
use std::thread;
use std::time::Duration;

use ringtap_client::{Connection, Control as _, ControlError};
use ringtap_ipc::protocol::{HubStatus, SourceStatus};
use rustix::net::sockopt::socket_peercred;
use serde::Serialize;

use crate::change::{lane_terms, lanes_of};
use crate::explain::explain;
use crate::finding::Finding;
use crate::text::{ago, grouped};

/// All findings about a hub, and the checked equations; as JSON, the answer of `why --json`.
#[derive(Debug, Serialize)]
pub struct Explanation {
    #[serde(rename = "type")]
    kind: &'static str,
    time_ns: u64,
    /// Packets were lost, or there is a fault.
    #[serde(rename = "lost")]
    pub is_bad: bool,
    #[serde(skip)]
    verdict: String,
    /// The worst finding first.
    pub findings: Vec<Finding>,
    /// One sentence per source: its equation with the numbers.
    pub checked: Vec<String>,
    /// Which groups the answer is about, if the user may not see all.
    #[serde(skip_serializing_if = "Option::is_none")]
    partial: Option<String>,
}

/// Asks a hub twice for its status, this far apart, and explains its losses. Any status may be partial: a user
/// sees only the groups that this user may join.
///
/// # Errors
///
/// Every [`ControlError`].
pub fn explain_hub(
    connection: &Connection,
    interval: Duration,
) -> Result<Explanation, ControlError> {
    let before = connection.status()?;
    thread::sleep(interval);
    let now = connection.status()?;
    let is_here = is_here(connection, now.pid);
    let is_stopped = |pid| is_here && is_stopped(pid);
    Ok(Explanation::new(Some(&before), &now, &is_stopped))
}

/// Whether the hub's process ids are valid here: the hub has the id that it reports.
fn is_here(connection: &Connection, pid: i32) -> bool {
    let peer = connection.connection().map(socket_peercred);
    peer.is_some_and(|peer| peer.is_ok_and(|peer| peer.pid.as_raw_nonzero().get() == pid))
}

/// Whether this process is stopped, as after Ctrl-Z in a shell.
fn is_stopped(pid: i32) -> bool {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    // The state follows the name, which may contain brackets and spaces.
    let state = stat.rsplit_once(") ").map(|(_, rest)| rest);
    state.is_some_and(|state| state.starts_with(['T', 't']))
}

impl Explanation {
    /// The answer for two statuses of a hub, with the arguments of [`explain`].
    pub fn new(
        before: Option<&HubStatus>,
        now: &HubStatus,
        is_stopped: &dyn Fn(i32) -> bool,
    ) -> Self {
        let findings = explain(before, now, is_stopped);
        let is_bad = findings.iter().any(Finding::is_bad);
        Explanation {
            kind: "why",
            time_ns: now.time_ns,
            is_bad,
            verdict: verdict(now, &findings, is_bad),
            findings,
            checked: now.sources.iter().map(equation).collect(),
            partial: now.partial.then(|| part_of(now)),
        }
    }

    /// The whole answer; each item is a line or a paragraph.
    pub fn sentences(&self) -> Vec<String> {
        let mut lines = vec![self.verdict.clone()];
        for finding in &self.findings {
            lines.push(String::new());
            lines.push(finding.to_string());
            let advice = finding.advice();
            lines.extend(advice.iter().map(|advice| format!("  - {advice}")));
        }
        lines.push(String::new());
        lines.extend(self.checked.iter().cloned());
        lines.extend(self.partial.clone());
        lines
    }
}

/// Names the groups of a partial status.
fn part_of(now: &HubStatus) -> String {
    let names: Vec<_> = now.groups.iter().map(|group| &*group.name).collect();
    format!(
        "Only the groups that this user may join are shown: {}. Root, the hub's own user and the UNIX group \
         `ringtap` see all.",
        names.join(", ")
    )
}

fn verdict(now: &HubStatus, findings: &[Finding], is_bad: bool) -> String {
    let since = ago(now.started_ns, now.time_ns);
    let lost = findings.iter().filter(|finding| finding.loss().is_some());
    let detached = |finding: &Finding| matches!(finding, Finding::Detached { .. });
    match (lost.count(), is_bad) {
        (0, _) if findings.iter().any(detached) => {
            format!("No loss was counted since the hub started {since}, but packets passed unseen.")
        }
        (0, false) => format!("Nothing was lost since the hub started {since}."),
        (0, true) => {
            format!("Nothing was lost since the hub started {since}, but there is a fault.")
        }
        (1, _) => "Packets were lost in one place.".to_owned(),
        (places, _) => format!("Packets were lost in {places} places, the worst first."),
    }
}

/// The checked equation with its numbers.
fn equation(source: &SourceStatus) -> String {
    let lanes = match source.lanes.len() {
        1 => "one lane".to_owned(),
        lanes => format!("each of {lanes} lanes"),
    };
    let sum = lanes_of(source);
    let terms = lane_terms(&sum).map(|(name, count)| (name, grouped(count)));
    let (names, numbers): (Vec<_>, Vec<_>) = terms.unzip();
    let holds = if source.balanced {
        "holds"
    } else {
        "DOES NOT HOLD"
    };
    format!(
        "Checked for {}, on {lanes}: offered = {} {holds}: {} = {}; before that the card lost {}{}.",
        source.device,
        names.join(" + "),
        grouped(sum.offered),
        numbers.join(" + "),
        grouped(source.dropped.nic),
        match source.dropped.kernel {
            0 => String::new(),
            kernel => format!(" and the kernel {}", grouped(kernel)),
        }
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn this_process_is_not_stopped() {
        let own = i32::try_from(std::process::id()).unwrap();
        assert!(!is_stopped(own));
    }
}
