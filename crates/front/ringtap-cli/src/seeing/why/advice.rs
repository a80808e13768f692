// SPDX-License-Identifier: MIT OR Apache-2.0
//! Remedies for each reason of a loss, the most likely remedy first.

use ringtap_device::{DeviceSpec, Kind};
use ringtap_filter::Balance;
use ringtap_ipc::protocol::{Delivery, Division, GroupStatus, ReaderStatus, SourceStatus};
use ringtap_pool::congestion::Congestion;

use super::explain::name_of;
use super::words::{bytes, percent, share};
use crate::report::grouped;
use crate::seeing::change::total;

/// For counters that do not add up.
pub(super) const REPORT: &str = "This is a fault of Ringtap. Please report it with the output of \
    `ringtap status` and the name of the driver (`ethtool -i`).";

/// For losses because the hub's thread did not run in time.
pub(super) const LATE_HUB: &str = "Give the hub a CPU that other programs do not use (`--cpu` of \
    `ringtap hub`), or a higher priority (`chrt`, `nice`).";

/// Waits in milliseconds from which on the hub's thread may be the reason of a full pool.
const LATE_MS: u64 = 10;

/// For losses of the network card because its ring was full.
pub(super) fn nic(source: &SourceStatus) -> Vec<String> {
    let Some((_, name)) = interface(source) else {
        return Vec::new();
    };
    vec![
        format!(
            "Give {name} a longer receive ring: `ethtool -g {name}` shows the maximum, `ethtool \
             -G {name} rx N` sets it."
        ),
        format!(
            "Spread packets over more receive queues, each with a CPU that is not busy: `ethtool \
             -L {name} combined N`; /proc/interrupts shows which CPUs serve them."
        ),
        format!(
            "`ethtool -S {name}` shows which counter grows: a longer ring does not help against \
             transmission errors."
        ),
    ]
}

/// For losses of the kernel, before or during capture.
pub(super) fn kernel(source: &SourceStatus) -> Vec<String> {
    let Some((kind, name)) = interface(source) else {
        return vec![REPORT.to_owned()];
    };
    let advice = kind.kernel_losses.iter();
    let mut advice: Vec<_> = advice.map(|one| one.replace("{name}", &name)).collect();
    if !kind.hooks.is_empty() {
        advice.push(REPORT.replace("This is", "If there are none, this is"));
    }
    advice
}

/// Subject of a sentence about a full pool; names the lanes if only some had no free chunk.
pub(super) fn where_full(source: &SourceStatus) -> String {
    let full = source.lanes.iter().filter(|lane| lane.counts.pool_full > 0);
    let worst = full.clone().max_by_key(|lane| lane.counts.pool_full);
    match (source.lanes.len(), full.count(), worst) {
        (lanes, 1, Some(lane)) if lanes > 1 => {
            format!("lane {} had no free chunk and", lane.lane)
        }
        (lanes, some, Some(worst)) if some < lanes => {
            let worst = worst.lane;
            format!("{some} of {lanes} lanes (lane {worst} most often) had no free chunk and")
        }
        _ => match source.congestion {
            Some(marks) => {
                let pauses = pauses(marks);
                format!("the pool had no free chunk, or capture was paused ({pauses}), and it")
            }
            None => "the pool had no free chunk, and it".to_owned(),
        },
    }
}

/// The congestion limits in words.
fn pauses(marks: Congestion) -> String {
    let (low, high) = (marks.low_percent, marks.high_percent);
    format!("a lane pauses when less than {low} % of its chunks are free, until {high} % are")
}

/// For losses because readers hold all chunks.
pub(super) fn pool_full(
    source: &SourceStatus,
    readers: &[ReaderStatus],
    is_stopped: &dyn Fn(i32) -> bool,
) -> Vec<String> {
    let mut advice = Vec::new();
    if source.longest_wait_ms >= LATE_MS {
        advice.push(format!(
            "The hub's thread, which returns chunks to the pool, came up to {} ms late. {LATE_HUB}",
            grouped(source.longest_wait_ms)
        ));
    }
    let last = readers.iter().max_by_key(|reader| reader.lag_chunks);
    // Guaranteed shares keep readers from holding every chunk.
    let can_fill = |last: &&ReaderStatus| last.lag_chunks > 0 && last.guaranteed_chunks == 0;
    if let Some(last) = last.filter(can_fill) {
        let stopped = if is_stopped(last.pid) {
            "; its process is stopped"
        } else {
            ""
        };
        advice.push(format!(
            "{} is furthest behind now, with {} chunks{stopped}: make it faster, or reduce its \
             credit, so that it loses packets itself instead of all readers.",
            name_of(last),
            last.lag_chunks
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
    let lost = total(source).counts.pool_full;
    let most = source.lanes.iter().map(|lane| lane.counts.pool_full).max();
    if source.lanes.len() > 1 && most.is_some_and(|most| share(most, lost) > 0.8) {
        advice.push(
            "One lane, which has only its own chunks, lost nearly all of them: spread packets \
             over more receive queues (RSS), so that other lanes take their part."
                .to_owned(),
        );
    }
    advice.push(
        "Use a narrower filter: packets that no group wants take no chunk if the filter runs in \
         the source."
            .to_owned(),
    );
    advice
}

fn pool_option(source: &SourceStatus) -> String {
    let twice = bytes(source.pool_bytes.next_power_of_two() * 2).replace(' ', "");
    let plain = source.device.split('?').next().unwrap_or_default();
    format!("`{plain}?pool={twice}` doubles it")
}

/// For losses of one reader.
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
    advice.push(match reader.delivery {
        Delivery::Private => format!(
            "Give the private pools of group {} more memory for bursts: `private_pool`.",
            reader.group
        ),
        Delivery::Shared => match reader.guaranteed_chunks {
            0 => format!(
                "Give it more credit for bursts (`credit` of the group, as far as the pool \
                 allows), or the source a larger pool; it may now hold {} chunks of a lane.",
                reader.credit_chunks
            ),
            guaranteed => format!(
                "Give the source a larger pool for bursts; the reader may now hold up to {} \
                 chunks of a lane, and {guaranteed} of them whatever other readers do (`credit` of \
                 the group and `guaranteed_readers` of the hub divide the pool).",
                reader.credit_chunks
            ),
        },
    });
    let filtered = share(
        reader.filtered,
        reader.delivered.saturating_add(reader.filtered),
    );
    advice.push(match reader.not_in_source {
        Some(_) if filtered > 0.5 => format!(
            "{} of the packets that it receives do not pass its filter, which runs in the reader: \
             make it the `filter` of the group.",
            percent(filtered)
        ),
        _ => "Give it a narrower filter if it needs fewer packets.".to_owned(),
    });
    advice.push(
        "If a part of the traffic is enough: let the group sample or cut packets when a reader \
         is late (`policy = \"sample:10\"`, `\"cut:96\"`)."
            .to_owned(),
    );
    advice
}

fn more_members(group: &GroupStatus) -> String {
    let GroupStatus {
        name,
        division,
        members,
        max_members,
        ..
    } = group;
    match division {
        Division::Packets(Balance::Everyone) => format!(
            "Group {name} gives every packet to each member: a group that divides packets (for \
             instance `balance = \"flow\"`) shares the work between several readers."
        ),
        _ if members < max_members => format!(
            "Start more readers in group {name}, which divides packets by {division}: it has \
             {members} of at most {max_members}."
        ),
        _ => format!(
            "Allow more `members` in group {name}, which divides packets by {division}, and start \
             them: it has all {max_members} that it may have."
        ),
    }
}

/// The interface of a source, if it has one.
fn interface(source: &SourceStatus) -> Option<(&'static Kind, String)> {
    let device: DeviceSpec = source.device.parse().ok()?;
    let found = device.kind.names_an_interface();
    found.then_some((device.kind, device.name))
}
