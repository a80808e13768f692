// SPDX-License-Identifier: MIT OR Apache-2.0
//! What to change, for each reason of a loss; the most likely first.
#![forbid(unsafe_code)]

use ringtap_device::{DeviceSpec, Kind};
use ringtap_ipc::protocol::{CongestionStatus, GroupStatus, ReaderStatus, SourceStatus};

use super::explain::{name_of, sum};
use super::words::{bytes, percent, share};

/// Counters that does not balance is our fault.
pub(super) const REPORT: &str = "This is a fault of Ringtap. Please report it, with the output of \
    `ringtap status` and the name of the driver (`ethtool -i`).";

/// Losses of the network card: it is not emptied fast enough.
pub(super) fn nic(source: &SourceStatus) -> Vec<String> {
    let Some((_, name)) = interface(source) else {
        return Vec::new();
    };
    vec![
        format!(
            "Give {name} a longer receive ring: `ethtool -g {name}` shows the most, `ethtool -G {name} rx N` sets it."
        ),
        format!(
            "Spread packets over more receive queues, each with a CPU that is not busy: `ethtool -L {name} combined N`; /proc/interrupts shows which CPUs serve them."
        ),
        format!(
            "`ethtool -S {name}` names the counter that grows: errors of the cable are not mended by rings."
        ),
    ]
}

/// Losses of the kernel, before or within capture.
pub(super) fn kernel(source: &SourceStatus) -> Vec<String> {
    match interface(source) {
        Some((Kind::Packet, name)) => vec![
            format!(
                "Capture with the tap instead, which has no ring of its own that could overflow: tap:{name}."
            ),
            "Keep the CPU that the hub's packet thread runs on free of other work.".to_owned(),
        ],
        Some((_, name)) => vec![
            format!(
                "The tap's program could not read these packets, or came to run within itself: look for other XDP or tc programs on {name} (`bpftool net`)."
            ),
            REPORT.replace("This is", "If there are none, this is"),
        ],
        None => vec![REPORT.to_owned()],
    }
}

/// Who had no chunk: `the pool was full and`, with the lanes if not all are concerned.
pub(super) fn where_full(source: &SourceStatus) -> String {
    let full = source.lanes.iter().filter(|lane| lane.pool_full > 0);
    let most = full.clone().max_by_key(|lane| lane.pool_full);
    match (source.lanes.len(), full.count(), most) {
        (lanes, 1, Some(lane)) if lanes > 1 => {
            format!("lane {} found no free chunk and", lane.lane)
        }
        (lanes, some, Some(lane)) if some < lanes => format!(
            "{some} of {lanes} lanes (most of all lane {}) found no free chunk and",
            lane.lane
        ),
        _ => match source.congestion {
            Some(marks) => format!(
                "the pool had no free chunk, or capture was paused ({}), and it",
                pauses(marks)
            ),
            None => "the pool had no free chunk, and it".to_owned(),
        },
    }
}

/// When capture of a lane pauses.
fn pauses(marks: CongestionStatus) -> String {
    let CongestionStatus {
        low_percent,
        high_percent,
    } = marks;
    format!(
        "a lane pauses while less than {low_percent} % of its chunks are free, until \
         {high_percent} % are"
    )
}

/// Losses because readers hold all chunks.
pub(super) fn pool_full(
    source: &SourceStatus,
    readers: &[ReaderStatus],
    is_stopped: &dyn Fn(i32) -> bool,
) -> Vec<String> {
    let mut advice = Vec::new();
    if let Some(holder) = readers.iter().max_by_key(|reader| reader.lag_chunks)
        && holder.lag_chunks > 0
    {
        let stopped = if is_stopped(holder.pid) {
            "; its process is stopped"
        } else {
            ""
        };
        advice.push(format!(
            "{} is furthest behind now, with {} chunks{stopped}: make it faster, or let it have a smaller credit, so that it loses packets itself instead of everybody.",
            name_of(holder),
            holder.lag_chunks
        ));
    }
    advice.push(format!(
        "Give the pool more memory for bursts; it has {}: {}.",
        bytes(source.pool_bytes),
        pool_option(source)
    ));
    if source.lanes.iter().any(|lane| lane.paused) {
        let marks = source.congestion.map(pauses);
        let marks = marks.map(|marks| format!(": {marks} (`congestion`)"));
        advice.push(format!(
            "Capture is paused now, until readers have caught up{}.",
            marks.unwrap_or_default()
        ));
    }
    let lost = sum(source, |lane| lane.pool_full);
    let most = source.lanes.iter().map(|lane| lane.pool_full).max();
    if source.lanes.len() > 1 && most.is_some_and(|most| share(most, lost) > 0.8) {
        advice.push("Nearly all of it was on one lane, which has only its own chunks: spread packets over more receive queues (RSS), so that other lanes take their part.".to_owned());
    }
    advice.push("Filter more narrowly: packets that no group wants take no chunk where the filter runs in the source.".to_owned());
    advice
}

fn pool_option(source: &SourceStatus) -> String {
    let twice = bytes(source.pool_bytes.next_power_of_two() * 2).replace(' ', "");
    let plain = source.device.split('?').next().unwrap_or_default();
    format!("`{plain}?pool={twice}` doubles it")
}

/// Losses of one reader.
pub(super) fn overrun(
    reader: &ReaderStatus,
    group: Option<&GroupStatus>,
    is_stopped: bool,
) -> Vec<String> {
    if is_stopped {
        let pid = reader.pid;
        return vec![format!(
            "Process {pid} is stopped: continue it with `kill -CONT {pid}`, or end it."
        )];
    }
    let mut advice: Vec<_> = group.map(more_members).into_iter().collect();
    advice.push(match reader.delivery.as_str() {
        "private" => format!(
            "Give the private pools of group {} more memory, for bursts: `private_pool`.",
            reader.group
        ),
        _ => format!(
            "Give it more credit (`credit` of the group, at most what the pool allows), or the \
             source a larger pool, for bursts; it may now hold {} chunks of a lane.",
            reader.credit_chunks
        ),
    });
    let filtered = share(reader.filtered, reader.delivered + reader.filtered);
    let narrower = match reader.not_in_source {
        Some(_) if filtered > 0.5 => format!(
            "{} of what it is given does not pass its filter, which runs in the reader: make it the `filter` of the group.",
            percent(filtered)
        ),
        _ => "Give it a narrower filter, if it can do with fewer packets.".to_owned(),
    };
    advice.push(narrower);
    advice.push("If part of the traffic is enough: let the group sample packets, or cut them short, when a reader is late (`policy = \"sample:10\"`, `\"cut:96\"`).".to_owned());
    advice
}

fn more_members(group: &GroupStatus) -> String {
    let GroupStatus {
        name,
        balance,
        members,
        most_members,
        ..
    } = group;
    match balance.as_str() {
        "broadcast" => format!(
            "Group {name} gives every packet to each member: a group that divides packets (`balance = \"flow\"`, for one) lets several readers share the work."
        ),
        _ if members < most_members => format!(
            "Start more readers in group {name}, which divides packets by {balance}: it has {members} of at most {most_members}."
        ),
        _ => format!(
            "Allow more `members` in group {name}, which divides packets by {balance}, and start them: it has all {most_members} that it may."
        ),
    }
}

/// The interface that a source captures from, if any.
fn interface(source: &SourceStatus) -> Option<(Kind, String)> {
    let device: DeviceSpec = source.device.parse().ok()?;
    let found = device.kind.names_an_interface();
    found.then_some((device.kind, device.name))
}
