// SPDX-License-Identifier: MIT OR Apache-2.0
//! Sentences about groups: their policy, and chunks that members took for each other.

use std::cmp::Reverse;

use ringtap_ipc::protocol::{GroupStatus, ReaderStatus};
use ringtap_pool::distributor::Policy;

use super::explain::Finding;
use super::words::a_second;
use crate::report::{grouped, packets};
use crate::seeing::change::StatusChange;

/// Most members named in one sentence.
const MAX_NAMED: usize = 3;

/// Explains a policy for a reader with this credit: `drop: past 56 chunks of a lane ...`.
pub(super) fn policy(policy: Policy, credit_chunks: u32) -> String {
    let (all, half) = (
        format!("past {credit_chunks} chunks of a lane"),
        format!("from half of {credit_chunks} chunks of a lane on"),
    );
    let what = match policy {
        Policy::DropNewest => format!("{all} the newest packets are lost"),
        Policy::Block => format!("{all} a source that can wait waits"),
        Policy::Sample { one_in } => format!("{half} one chunk in {one_in} is kept"),
        Policy::Cut { snap_bytes } => {
            format!("{half} {snap_bytes} bytes of each packet are kept, and {all} none")
        }
    };
    format!("{policy}: {what}")
}

/// One finding for each group whose members took chunks for others.
pub(super) fn helped(change: StatusChange<'_>) -> Vec<Finding> {
    let groups = change.now.groups.iter();
    groups.filter_map(|group| of_group(change, group)).collect()
}

fn of_group(change: StatusChange<'_>, group: &GroupStatus) -> Option<Finding> {
    let percent = group.offload_percent?;
    if group.offloaded_chunks == 0 {
        return None;
    }
    let name = &group.name;
    let before = change.group(name).map(|before| before.offloaded_chunks);
    let rate = match change.per_second(before, group.offloaded_chunks) {
        Some(rate) if rate > 0.0 => format!(" ({} now)", a_second(rate)),
        _ => String::new(),
    };
    let mut advice = Vec::new();
    let disorder = match group.disordered_packets {
        0 => String::new(),
        disordered => {
            advice.push(
                "If its readers need flows in order: `balance = \"flow\"` divides whole flows \
                 instead of chunks."
                    .to_owned(),
            );
            let packets = packets(disordered);
            format!(" {packets} may have been read before earlier ones of their flow.")
        }
    };
    let sentence = format!(
        "Group {name} offloads above {percent} percent of a lane's chunks: {} chunks ({}) went to \
         a member other than their lane's owner{rate}{}.{disorder}",
        grouped(group.offloaded_chunks),
        packets(group.offloaded_packets),
        members(change, name, "took", |reader| reader.helped_chunks),
    );
    let finding = Finding::hint("offloaded", &format!("group {name}"), sentence);
    Some(Finding { advice, ..finding })
}

/// `: reader 2 "b" took 700, reader 3 "c" took 34`, for the members with the most chunks.
fn members(
    change: StatusChange<'_>,
    group: &str,
    verb: &str,
    part: fn(&ReaderStatus) -> u64,
) -> String {
    let readers = change.now.readers.iter();
    let mut readers: Vec<_> = readers
        .filter(|reader| reader.group == group && part(reader) > 0)
        .collect();
    readers.sort_by_key(|reader| (Reverse(part(reader)), reader.reader));
    let named = readers.iter().take(MAX_NAMED).map(|reader| {
        let (number, name, part) = (reader.reader, &reader.name, grouped(part(reader)));
        format!("reader {number} \"{name}\" {verb} {part}")
    });
    let mut named: Vec<_> = named.collect();
    match readers.len().saturating_sub(MAX_NAMED) {
        0 => {}
        1 => named.push("one other the rest".to_owned()),
        others => named.push(format!("{others} others the rest")),
    }
    if named.is_empty() {
        String::new()
    } else {
        format!(": {}", named.join(", "))
    }
}
