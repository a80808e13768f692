// SPDX-License-Identifier: MIT OR Apache-2.0
//! The counters of a hub in lines: so far, and at its end.

use std::process::ExitCode;

use anyhow::Result;
use ringtap_explain::change::{lane_terms, lanes_of};
use ringtap_explain::text::{grouped, packets};
use ringtap_ipc::protocol::{HubStatus, SourceStatus};

use crate::{print, statuses};

/// The counters of a source on one line.
fn source_line(source: &SourceStatus) -> String {
    let sum = lanes_of(source);
    let is_balanced = if source.balanced {
        "balanced"
    } else {
        "NOT balanced"
    };
    let terms = lane_terms(&sum).map(|(name, count)| format!("{} {name}", grouped(count)));
    let mut line = format!(
        "{}: {} offered = {}: {is_balanced}",
        source.device,
        packets(sum.offered),
        terms.collect::<Vec<_>>().join(" + "),
    );
    for (lost, place) in [
        (source.dropped.nic, "by the NIC"),
        (source.dropped.kernel, "while detached"),
    ] {
        if lost > 0 {
            line.push_str(&format!("; before that lost {place}: {}", grouped(lost)));
        }
    }
    line
}

/// The counters of sources and readers until now.
pub(super) fn so_far(status: &HubStatus) -> impl Iterator<Item = String> {
    let readers = status.readers.iter().map(|reader| {
        format!(
            "{} of group {}: {} delivered, {} lost: past its credit",
            reader.name,
            reader.group,
            packets(reader.counters.delivered),
            grouped(reader.counters.dropped.overrun)
        )
    });
    status.sources.iter().map(source_line).chain(readers)
}

/// Prints each source's counters; returns the exit status.
pub(super) fn report(status: &HubStatus) -> Result<ExitCode> {
    for source in &status.sources {
        print::line(source_line(source))?;
        if let Some(failure) = &source.failure {
            print::note(format_args!("ringtap: {failure}"));
        }
    }
    let failed = status.sources.iter().filter(|one| one.failure.is_some());
    let removed: Vec<_> = failed.map(|one| one.is_removed).collect();
    let is_balanced = status.sources.iter().all(|one| one.balanced);
    Ok(match removed.as_slice() {
        [] if is_balanced => ExitCode::SUCCESS,
        [] => ExitCode::FAILURE,
        all if all.iter().all(|is_removed| *is_removed) => {
            ExitCode::from(statuses::INTERFACE_REMOVED)
        }
        _ => ExitCode::FAILURE,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_hub_whose_counters_do_not_balance_ends_with_a_failure() {
        let of = |balanced| {
            let source = SourceStatus {
                balanced,
                ..SourceStatus::default()
            };
            let status = HubStatus {
                sources: vec![source],
                ..HubStatus::default()
            };
            format!("{:?}", report(&status).expect("it is printed"))
        };
        assert_eq!(of(true), format!("{:?}", ExitCode::SUCCESS));
        assert_eq!(of(false), format!("{:?}", ExitCode::FAILURE));
    }
}
