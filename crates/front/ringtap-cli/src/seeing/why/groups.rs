// SPDX-License-Identifier: MIT OR Apache-2.0
//! What groups do with packets on the way to readers: their policy, and help between members.
#![forbid(unsafe_code)]

use ringtap_ipc::protocol::{GroupStatus, ReaderStatus};

use super::explain::{Finding, hint};
use super::words::{a_second, packets};
use crate::report::grouped;
use crate::seeing::change::Change;

/// Members that are named, at most.
const MOST_NAMED: usize = 3;

/// What a policy does to a reader of this credit: `drop: past 56 chunks of a lane ...`.
pub(super) fn policy(policy: &str, credit_chunks: u32) -> Option<String> {
    let what = match policy.split_once(':') {
        None if policy == "drop" => {
            format!("past {credit_chunks} chunks of a lane the newest packets are lost")
        }
        None if policy == "block" => {
            format!("past {credit_chunks} chunks of a lane a source that can wait waits")
        }
        Some(("sample", one_in)) => format!(
            "from half of {credit_chunks} chunks of a lane on one chunk in {one_in} is kept"
        ),
        Some(("cut", bytes)) => format!(
            "from half of {credit_chunks} chunks of a lane on {bytes} bytes of a packet are kept, \
             past them none"
        ),
        _ => return None,
    };
    Some(format!("{policy}: {what}"))
}

/// What groups did to help busy members, one finding each.
pub(super) fn helped(change: Change<'_>) -> Vec<Finding> {
    let groups = change.now.groups.iter();
    groups.filter_map(|group| of_group(change, group)).collect()
}

fn of_group(change: Change<'_>, group: &GroupStatus) -> Option<Finding> {
    let percent = group.offload_percent?;
    let name = &group.name;
    let place = format!("group {name}");
    if group.offloaded_chunks > 0 {
        let before = change.group(name).map(|before| before.offloaded_chunks);
        let sentence = format!(
            "Group {name} offloads above {percent} percent of a lane's chunks: {} chunks ({}) went \
             to another member than their lane's owner{}{}.{}",
            grouped(group.offloaded_chunks),
            packets(group.offloaded_packets),
            now(change.per_second(before, group.offloaded_chunks)),
            members(change, name, |reader| reader.helped_chunks, "took"),
            disorder(group)
        );
        let mut finding = hint("offloaded", &place, sentence);
        if group.disordered_packets > 0 {
            finding.advice.push(
                "If its readers need flows in order: `balance = \"flow\"` with the same `offload` \
                 moves whole flows instead."
                    .to_owned(),
            );
        }
        return Some(finding);
    }
    (group.moved_buckets > 0).then(|| {
        let before = change.group(name).map(|before| before.moved_buckets);
        let sentence = format!(
            "Group {name} moves flows above {percent} percent of a lane's chunks: {} buckets of \
             256 went from a busy member to an idle one{}{}.{}",
            grouped(group.moved_buckets),
            now(change.per_second(before, group.moved_buckets)),
            members(change, name, |reader| reader.buckets.into(), "has now"),
            match group.unordered_moves {
                0 => String::new(),
                times => format!(
                    " {} times the new owner did not wait until the former one was done: flows \
                     may be out of order there.",
                    grouped(times)
                ),
            }
        );
        hint("offloaded", &place, sentence)
    })
}

fn now(rate: Option<f64>) -> String {
    match rate {
        Some(rate) if rate > 0.0 => format!(" ({} now)", a_second(rate)),
        _ => String::new(),
    }
}

/// `: reader 2 "b" took 700, reader 3 "c" took 34`; those with most of it.
fn members(
    change: Change<'_>,
    group: &str,
    part: impl Fn(&ReaderStatus) -> u64,
    verb: &str,
) -> String {
    let readers = change.now.readers.iter();
    let mut parts: Vec<_> = readers
        .filter(|reader| reader.group == group && part(reader) > 0)
        .map(|reader| (part(reader), reader))
        .collect();
    parts.sort_by_key(|(part, reader)| (std::cmp::Reverse(*part), reader.reader));
    let named = parts.iter().take(MOST_NAMED).map(|(part, reader)| {
        let (number, name) = (reader.reader, &reader.name);
        format!("reader {number} \"{name}\" {verb} {}", grouped(*part))
    });
    let mut named: Vec<_> = named.collect();
    if let Some(others) = parts.len().checked_sub(MOST_NAMED).filter(|more| *more > 0) {
        named.push(match others {
            1 => "another the rest".to_owned(),
            others => format!("{others} others the rest"),
        });
    }
    match named.is_empty() {
        true => String::new(),
        false => format!(": {}", named.join(", ")),
    }
}

fn disorder(group: &GroupStatus) -> String {
    match group.disordered_packets {
        0 => String::new(),
        disordered => format!(
            " {} may have been read before earlier ones of their flow.",
            packets(disordered)
        ),
    }
}
