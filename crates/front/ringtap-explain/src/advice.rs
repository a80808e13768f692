// SPDX-License-Identifier: MIT OR Apache-2.0
//! Remedies for each reason of a loss, the most likely remedy first.

use ringtap_device::{DeviceSpec, Kind};
use ringtap_filter::Balance;
use ringtap_ipc::protocol::{Delivery, Division, GroupStatus, ReaderStatus, SourceStatus};

use crate::change::account;
use crate::finding::{Finding, name_of};
use crate::sentences::pauses;
use crate::text::{bytes, grouped, percent, share};

/// For counters that do not add up.
const REPORT: &str = "This is a fault of Ringtap. Please report it with the output of \
    `ringtap status` and the name of the driver (`ethtool -i`).";

/// For losses because the hub's thread did not run in time.
const LATE_HUB: &str = "Give the hub a CPU that other programs do not use (`--cpu` of \
    `ringtap hub`), or a higher priority (`chrt`, `nice`).";

/// Waits in milliseconds from which on the hub's thread may be the reason of a full pool.
const LATE_MS: u64 = 10;

impl Finding {
    /// Remedies, the most likely first.
    pub fn advice(&self) -> Vec<String> {
        let one = |advice: &str| vec![advice.to_owned()];
        match self {
            Finding::Lost {
                source,
                term,
                furthest_behind,
                ..
            } => match self.kind() {
                "nic" => nic(source),
                "kernel" => kernel(source),
                "pool_full" => pool_full(source, furthest_behind.as_ref()),
                _ => one(term.help),
            },
            Finding::Failed { .. } => one("Remove the cause, then start the hub again."),
            Finding::Detached { .. } => one(
                "Find the program that does so: a script with `bpftool link detach`, a manager of network \
                 interfaces.",
            ),
            Finding::Unbalanced { .. } => one(REPORT),
            Finding::Bridge { reason, .. } => one(match *reason {
                "nic" => {
                    "Give the interface a longer receive ring (`ethtool -G`) or more queues (`ethtool -L`)."
                }
                "kernel" => {
                    "The other interface is slower, down, or its transmit ring is too short (`ethtool -G`)."
                }
                _ => {
                    "Start the inline reader, make it faster, or let packets without a verdict pass \
                     (`--no-verdict pass`)."
                }
            }),
            Finding::Overrun {
                reader,
                group,
                is_stopped,
                hub_late_ms,
                ..
            } => {
                let hub = hub_late_ms.map(|_| LATE_HUB.to_owned());
                let own = overrun(reader, group.as_deref(), *is_stopped);
                hub.into_iter().chain(own).collect()
            }
            Finding::Corrupt { reader } | Finding::Impossible { reader } => {
                vec![format!("End process {} and start it again.", reader.pid)]
            }
            Finding::Waiting { .. } => one(
                "create the interface or set it up; or remove its [[source]] from the file, then `ringtap hub \
                 reload`",
            ),
            Finding::Offloaded { group, .. } if group.buddies.disordered_packets > 0 => one(
                "If its readers need flows in order: `balance = \"flow\"` divides whole flows instead of chunks.",
            ),
            Finding::Ended { .. }
            | Finding::NotInSource { .. }
            | Finding::Departed { .. }
            | Finding::Shunted { .. }
            | Finding::Offloaded { .. } => Vec::new(),
        }
    }
}

/// For losses of the network card because its ring was full.
fn nic(source: &SourceStatus) -> Vec<String> {
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
fn kernel(source: &SourceStatus) -> Vec<String> {
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

/// For losses because readers hold all chunks.
fn pool_full(
    source: &SourceStatus,
    furthest_behind: Option<&(Box<ReaderStatus>, bool)>,
) -> Vec<String> {
    let mut advice = Vec::new();
    if source.longest_wait_ms >= LATE_MS {
        advice.push(format!(
            "The hub's thread, which returns chunks to the pool, came up to {} ms late. {LATE_HUB}",
            grouped(source.longest_wait_ms)
        ));
    }
    if let Some((last, is_stopped)) = furthest_behind {
        let stopped = if *is_stopped {
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
        let marks = source
            .congestion
            .map(pauses)
            .map(|marks| format!(": {marks} (`congestion`)"));
        advice.push(format!(
            "Capture is paused now, until readers have caught up{}.",
            marks.unwrap_or_default()
        ));
    }
    let lost = account(source).dropped.pool_full;
    let most = source
        .lanes
        .iter()
        .map(|lane| lane.counters.dropped.pool_full)
        .max();
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
fn overrun(reader: &ReaderStatus, group: Option<&GroupStatus>, is_stopped: bool) -> Vec<String> {
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
        reader.counters.filtered,
        reader
            .counters
            .delivered
            .saturating_add(reader.counters.filtered),
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
