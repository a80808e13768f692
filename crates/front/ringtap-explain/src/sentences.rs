// SPDX-License-Identifier: MIT OR Apache-2.0
//! The sentence of each finding.

use std::fmt;

use ringtap_ipc::protocol::{Delivery, GroupStatus, ReaderStatus, SourceStatus};
use ringtap_pool::congestion::Congestion;
use ringtap_pool::distributor::Policy;

use crate::change::sum;
use crate::finding::{Finding, Loss};
use crate::text::{a_second, ago, grouped, packets, percent, share, size};

/// Most members named in one sentence.
const MAX_NAMED: usize = 3;
const HUB_STARTED: &str = "the hub started";

impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let place = self.place();
        match self {
            Finding::Lost {
                source, term, loss, ..
            } => {
                let who = match self.kind() {
                    "nic" => "the network card or its driver lost".to_owned(),
                    "kernel" => "the kernel lost".to_owned(),
                    "pool_full" => format!("{} lost", where_full(source)),
                    _ => format!("the source lost ({})", term.meaning),
                };
                lost(f, &format!("{place}: {who}"), loss, HUB_STARTED)
            }
            Finding::Failed { reason, .. } => write!(f, "{place}: capture failed: {reason}."),
            Finding::Ended { .. } => write!(f, "{place} has ended and gives no more packets."),
            Finding::Detached { source } => write!(
                f,
                "{place}: another program detached the capture program ({} since the hub started); \
                 packets that passed until it was attached again were not captured.",
                match source.detached_count {
                    1 => "once".to_owned(),
                    count => format!("{} times", grouped(count)),
                }
            ),
            Finding::Unbalanced { .. } => write!(
                f,
                "{place}: the counters do not add up: some packets were counted twice, or not at all."
            ),
            Finding::Bridge { reason, loss, .. } => {
                let what = match *reason {
                    "nic" => "the network card or its driver, on arrival,",
                    "kernel" => "the other interface had no room, and it",
                    _ => "no inline reader was connected, or it was late: the bridge",
                };
                let begin = format!("Bridge {place}: {what} lost");
                lost(f, &begin, loss, "the bridge started")
            }
            Finding::Overrun {
                reader,
                group,
                hub_late_ms,
                loss,
                ..
            } => {
                let begin = match hub_late_ms {
                    Some(late_ms) => format!(
                        "{place} was not slow: more chunks came at once than it may hold, because the hub's \
                         thread came late (by up to {} ms since the hub started). The reader lost",
                        grouped(*late_ms)
                    ),
                    None => {
                        let how = overrun(reader, group.as_deref());
                        format!("{place} could not keep up: {how}")
                    }
                };
                lost(f, &begin, loss, "it attached")?;
                match loss.noticed_ns {
                    Some(last) if loss.per_second == Some(0.0) => {
                        let ago = ago(last, loss.now_ns);
                        write!(f, " The hub last noticed a loss {ago}.")
                    }
                    _ => Ok(()),
                }
            }
            Finding::Corrupt { .. } => write!(
                f,
                "{place} wrote values that no reader may write, and the hub cut it off: the program is broken \
                 or hostile."
            ),
            Finding::Impossible { .. } => write!(
                f,
                "{place} reported more packets than its sources captured: the program is broken or hostile. Its \
                 numbers are reduced to what is possible."
            ),
            Finding::NotInSource { reader, reason } => {
                let all = sum([reader.counters.delivered, reader.counters.filtered]);
                let part = percent(share(reader.counters.filtered, all));
                write!(
                    f,
                    "{place} runs its filter itself, because the source cannot: {reason}. {part} of the packets \
                     that it receives do not pass."
                )
            }
            Finding::Shunted { reader, per_second } => {
                let (shunted, bytes) = (reader.counters.shunted, reader.shunted_bytes);
                let (packets, bytes) = (packets(shunted), size(bytes));
                write!(
                    f,
                    "{place}: flow rules withheld {packets} ({bytes}) from it, as asked"
                )?;
                match per_second {
                    Some(rate) if *rate > 0.0 => write!(f, ": now {}.", a_second(*rate)),
                    _ => f.write_str("."),
                }
            }
            Finding::Departed { readers, loss } => {
                let begin = match readers.as_deref() {
                    None => "Other readers that have left lost".to_owned(),
                    Some(one) => {
                        let (name, group) = (&one.name, &one.group);
                        let left = ago(one.left_ns, loss.now_ns);
                        match one.readers {
                            1 => format!(
                                "Reader \"{name}\" (group {group}), which left {left}, lost"
                            ),
                            many => format!(
                                "{many} readers \"{name}\" (group {group}), of which the last left {left}, lost"
                            ),
                        }
                    }
                };
                lost(f, &begin, loss, HUB_STARTED)
            }
            Finding::Waiting { reason } => write!(
                f,
                "The hub captures nothing yet, and has no readers. It waits: {reason}."
            ),
            Finding::Offloaded {
                group,
                chunks_per_second,
                helpers,
            } => offloaded(f, group, *chunks_per_second, helpers),
        }
    }
}

/// The sentence of a loss since this event: `begin` has its subject and verb.
fn lost(f: &mut fmt::Formatter<'_>, begin: &str, loss: &Loss, event: &str) -> fmt::Result {
    write!(f, "{begin} {}", packets(loss.packets))?;
    if loss.of > 0 {
        write!(f, ", {} of {},", percent(loss.share()), grouped(loss.of))?;
    }
    write!(f, " since {event} {}.", ago(loss.since_ns, loss.now_ns))?;
    match loss.per_second {
        Some(rate) if rate > 0.0 => write!(f, " It goes on: {}.", a_second(rate)),
        Some(_) => write!(f, " No loss in the last {:.0} s.", loss.watched_s),
        None => Ok(()),
    }
}

/// Subject of a sentence about a full pool; names the lanes if only some had no free chunk.
fn where_full(source: &SourceStatus) -> String {
    let full = source
        .lanes
        .iter()
        .filter(|lane| lane.counters.dropped.pool_full > 0);
    let worst = full
        .clone()
        .max_by_key(|lane| lane.counters.dropped.pool_full);
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
pub(crate) fn pauses(marks: Congestion) -> String {
    let (low, high) = (marks.low_percent, marks.high_percent);
    format!("a lane pauses when less than {low} % of its chunks are free, until {high} % are")
}

/// How a reader past its credit lost packets.
fn overrun(reader: &ReaderStatus, group: Option<&GroupStatus>) -> String {
    match (reader.delivery, group) {
        (Delivery::Private, _) => "its own pool was full, and it lost".to_owned(),
        (Delivery::Shared, Some(group)) => {
            let policy = policy(group.policy, reader.credit_chunks);
            format!("it used up its credit and, by its group's policy ({policy}), lost")
        }
        (Delivery::Shared, None) => "it used up its credit and lost".to_owned(),
    }
}

/// Explains a policy for a reader with this credit: `drop: past 56 chunks of a lane ...`.
fn policy(policy: Policy, credit_chunks: u32) -> String {
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

fn offloaded(
    f: &mut fmt::Formatter<'_>,
    group: &GroupStatus,
    chunks_per_second: Option<f64>,
    helpers: &[ReaderStatus],
) -> fmt::Result {
    write!(
        f,
        "Group {} offloads above {} percent of a lane's chunks: {} chunks ({}) went to a member other than \
         their lane's owner",
        group.name,
        group.offload_percent.unwrap_or_default(),
        grouped(group.buddies.offloaded_chunks),
        packets(group.buddies.offloaded_packets),
    )?;
    if let Some(rate) = chunks_per_second.filter(|rate| *rate > 0.0) {
        write!(f, " ({} now)", a_second(rate))?;
    }
    let named = helpers.iter().take(MAX_NAMED).map(|reader| {
        let (number, name) = (reader.reader, &reader.name);
        let chunks = grouped(reader.helped_chunks);
        format!("reader {number} \"{name}\" took {chunks}")
    });
    let mut named: Vec<_> = named.collect();
    match helpers.len().saturating_sub(MAX_NAMED) {
        0 => {}
        1 => named.push("one other the rest".to_owned()),
        others => named.push(format!("{others} others the rest")),
    }
    if !named.is_empty() {
        write!(f, ": {}", named.join(", "))?;
    }
    f.write_str(".")?;
    match group.buddies.disordered_packets {
        0 => Ok(()),
        disordered => {
            let packets = packets(disordered);
            write!(
                f,
                " {packets} may have been read before earlier ones of their flow."
            )
        }
    }
}
