// SPDX-License-Identifier: MIT OR Apache-2.0
//! Finds losses and faults of a hub by two snapshots of its counters. Reads no clock and no files.
//!
//! Invariants
//! - Every loss counter that is not 0 has a finding.
//! - A share is the part of the packets meant for a place, not of all packets.

use ringtap_ipc::protocol::{
    BridgeStatus, Delivery, HubStatus, ReaderStatus, SourceState, SourceStatus,
};
use serde::Serialize;

use super::words::{a_second, ago, percent, share};
use super::{advice, groups};
use crate::report::{grouped, packets};
use crate::seeing::change::{BRIDGE_LOSSES, LossCounter, SOURCE_LOSSES, StatusChange, sum, total};

/// Kind of the finding that packets passed while a program was detached.
const DETACHED: &str = "detached";

/// One fact that the user should know.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Finding {
    /// The reason of a loss, as in the counters, or the name of another fault.
    pub(crate) kind: &'static str,
    /// A source, a reader or a group.
    pub(crate) place: String,
    /// Packets lost at this place for this reason.
    pub(crate) lost_packets: u64,
    /// Lost part of the packets meant for this place, from 0 to 1.
    pub(crate) lost_share: f64,
    /// Present rate of losses; absent if the first snapshot lacks this place.
    pub(crate) lost_per_second: Option<f64>,
    /// The finding in words.
    pub(crate) sentence: String,
    /// What to change, the most likely remedy first.
    pub(crate) advice: Vec<String>,
    /// Packets were lost, or will be.
    pub(crate) bad: bool,
}

impl Finding {
    /// A finding that is not a fault.
    pub(super) fn hint(kind: &'static str, place: &str, sentence: String) -> Self {
        Finding {
            kind,
            place: place.to_owned(),
            lost_packets: 0,
            lost_share: 0.0,
            lost_per_second: None,
            sentence,
            advice: Vec::new(),
            bad: false,
        }
    }

    /// A fault without lost packets.
    fn fault(kind: &'static str, place: &str, sentence: String, advice: &str) -> Self {
        Finding {
            advice: vec![advice.to_owned()],
            bad: true,
            ..Finding::hint(kind, place, sentence)
        }
    }
}

/// All findings, and the checked equations; as JSON, the answer of `why --json`.
#[derive(Debug, Serialize)]
pub(crate) struct Explanation {
    #[serde(rename = "type")]
    kind: &'static str,
    time_ns: u64,
    /// Packets were lost, or there is a fault.
    #[serde(rename = "lost")]
    pub(crate) is_bad: bool,
    #[serde(skip)]
    verdict: String,
    /// The worst finding first.
    pub(crate) findings: Vec<Finding>,
    /// One sentence per source: its equation with the numbers.
    pub(crate) checked: Vec<String>,
    /// Which groups the answer is about, if the user may not see all.
    #[serde(skip_serializing_if = "Option::is_none")]
    partial: Option<String>,
}

/// Explains a hub's losses by two snapshots of its counters.
pub(crate) fn explain(
    before: &HubStatus,
    now: &HubStatus,
    is_stopped: &dyn Fn(i32) -> bool,
) -> Explanation {
    let case = Case {
        change: StatusChange::between(Some(before), now),
        is_stopped,
    };
    let sources = now.sources.iter().enumerate();
    let mut findings: Vec<_> = sources.flat_map(|(at, one)| case.source(at, one)).collect();
    findings.extend(now.readers.iter().flat_map(|reader| case.reader(reader)));
    findings.extend(now.bridges.iter().flat_map(|bridge| case.bridge(bridge)));
    findings.extend(case.departed());
    findings.extend(now.awaits.iter().map(|reason| awaited(reason)));
    findings.extend(groups::helped(case.change));
    findings.sort_by_key(|one| (!one.bad, std::cmp::Reverse(one.lost_packets)));
    let is_bad = findings.iter().any(|finding| finding.bad);
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

impl Explanation {
    /// The whole answer; each item is a line or a paragraph.
    pub(crate) fn sentences(&self) -> Vec<String> {
        let mut lines = vec![self.verdict.clone()];
        for finding in &self.findings {
            lines.push(String::new());
            lines.push(finding.sentence.clone());
            lines.extend(finding.advice.iter().map(|advice| format!("  - {advice}")));
        }
        lines.push(String::new());
        lines.extend(self.checked.iter().cloned());
        lines.extend(self.partial.clone());
        lines
    }
}

/// The fault that an interface is missing.
fn awaited(reason: &str) -> Finding {
    let sentence = format!("The hub captures nothing yet, and has no readers. It waits: {reason}.");
    let advice = "create the interface or set it up; or remove its [[source]] from the file, then `ringtap hub reload`";
    Finding::fault("waiting", "hub", sentence, advice)
}

/// Parts of a loss and of its sentence.
struct Loss<'a> {
    kind: &'static str,
    place: &'a str,
    /// Subject and verb of the sentence.
    begin: String,
    /// The counter in the first snapshot and now.
    counter: (Option<u64>, u64),
    /// Packets meant for this place, or 0 if unknown.
    whole: u64,
    /// The event at which the counter started, and its time.
    since: (&'static str, u64),
    advice: Vec<String>,
}

struct Case<'a> {
    change: StatusChange<'a>,
    is_stopped: &'a dyn Fn(i32) -> bool,
}

impl Case<'_> {
    fn source(&self, at: usize, source: &SourceStatus) -> Vec<Finding> {
        let before = self.change.source(at);
        let offered = total(source).counts.offered;
        let device = &source.device;
        let loss = |(kind, counter): (_, LossCounter<_>), what: &str, whole, advice| Loss {
            kind,
            place: device,
            begin: format!("{device}: {what} lost"),
            counter: (before.map(counter), counter(source)),
            whole,
            since: ("the hub started", self.change.now.started_ns),
            advice,
        };
        let [nic, kernel, pool_full] = SOURCE_LOSSES;
        let losses = [
            loss(
                nic,
                "the network card or its driver",
                offered.saturating_add(source.nic),
                advice::nic(source),
            ),
            loss(
                kernel,
                "the kernel",
                offered.max(kernel.1(source)),
                advice::kernel(source),
            ),
            loss(
                pool_full,
                &advice::where_full(source),
                offered,
                advice::pool_full(source, &self.change.now.readers, self.is_stopped),
            ),
        ];
        let losses = losses.into_iter();
        let mut findings: Vec<_> = losses.filter_map(|loss| self.loss(loss)).collect();
        if let Some(failure) = &source.failure {
            let sentence = format!("{device}: capture failed: {failure}.");
            let advice = "Remove the cause, then start the hub again.";
            findings.push(Finding::fault("failed", device, sentence, advice));
        } else if source.state == SourceState::Ended {
            let sentence = format!("{device} has ended and gives no more packets.");
            findings.push(Finding::hint("ended", device, sentence));
        }
        if source.detached_count > 0 {
            let sentence = format!(
                "{device}: another program detached the capture program ({} since the hub started); \
                 packets that passed until it was attached again were not captured.",
                match source.detached_count {
                    1 => "once".to_owned(),
                    count => format!("{} times", grouped(count)),
                }
            );
            let advice = "Find the program that does so: a script with `bpftool link detach`, a \
                          manager of network interfaces.";
            findings.push(Finding::fault(DETACHED, device, sentence, advice));
        }
        if !source.balanced {
            let sentence = format!(
                "{device}: the counters do not add up: some packets were counted twice, or not \
                 at all."
            );
            findings.push(Finding::fault(
                "unbalanced",
                device,
                sentence,
                advice::REPORT,
            ));
        }
        findings
    }

    /// Losses of one way of a bridge.
    fn bridge(&self, bridge: &BridgeStatus) -> Vec<Finding> {
        let (way, before) = (&bridge.way, self.change.bridge(&bridge.way));
        let words = [
            (
                "the network card or its driver, on arrival,",
                "Give the interface a longer receive ring (`ethtool -G`) or more queues (`ethtool -L`).",
            ),
            (
                "the other interface had no room, and it",
                "The other interface is slower, down, or its transmit ring is too short (`ethtool -G`).",
            ),
            (
                "no inline reader was connected, or it was late: the bridge",
                "Start the inline reader, make it faster, or let packets without a verdict pass \
                 (`--no-verdict pass`).",
            ),
        ];
        let loss = |((kind, counter), (what, advice)): ((_, LossCounter<_>), (_, &str))| Loss {
            kind,
            place: way,
            begin: format!("Bridge {way}: {what} lost"),
            counter: (before.map(counter), counter(bridge)),
            whole: bridge.offered,
            since: ("the bridge started", self.change.now.started_ns),
            advice: vec![advice.to_owned()],
        };
        let losses = BRIDGE_LOSSES.into_iter().zip(words).map(loss);
        losses.filter_map(|loss| self.loss(loss)).collect()
    }

    fn reader(&self, reader: &ReaderStatus) -> Vec<Finding> {
        let place = name_of(reader);
        let mut findings: Vec<_> = self.slow(reader, &place).into_iter().collect();
        if reader.corrupt {
            let sentence = format!(
                "{place} wrote values that no reader may write, and the hub cut it off: the \
                 program is broken or hostile."
            );
            let advice = format!("End process {} and start it again.", reader.pid);
            findings.push(Finding::fault("corrupt", &place, sentence, &advice));
        }
        if reader.impossible {
            let sentence = format!(
                "{place} reported more packets than its sources captured: the program is broken or hostile. Its \
                 numbers are reduced to what is possible."
            );
            let advice = format!("End process {} and start it again.", reader.pid);
            findings.push(Finding::fault("impossible", &place, sentence, &advice));
        }
        if let Some(why) = &reader.not_in_source {
            let all = sum([reader.delivered, reader.filtered]);
            let sentence = format!(
                "{place} runs its filter itself, because the source cannot: {why}. {} of the \
                 packets that it receives do not pass.",
                percent(share(reader.filtered, all))
            );
            findings.push(Finding::hint("not_in_source", &place, sentence));
        }
        findings
    }

    fn slow(&self, reader: &ReaderStatus, place: &str) -> Option<Finding> {
        let before = self.change.reader(reader.reader);
        let mut groups = self.change.now.groups.iter();
        let group = groups.find(|group| group.name == reader.group);
        let policy = group.map(|group| groups::policy(group.policy, reader.credit_chunks));
        let how = match (reader.delivery, policy) {
            (Delivery::Private, _) => "its own pool was full, and it lost".to_owned(),
            (_, Some(policy)) => {
                format!("it used up its credit and, by its group's policy ({policy}), lost")
            }
            (_, None) => "it used up its credit and lost".to_owned(),
        };
        let is_stopped = (self.is_stopped)(reader.pid);
        let mut advice = advice::overrun(reader, group, is_stopped);
        let begin = if !is_stopped && reader.overrun_in_bursts > reader.overrun / 2 {
            let sources = self.change.now.sources.iter();
            let longest = sources.map(|source| source.longest_wait_ms).max();
            advice.insert(0, advice::LATE_HUB.to_owned());
            format!(
                "{place} was not slow: more chunks came at once than it may hold, because the hub's \
                     thread came late (by up to {} ms since the hub started). The reader lost",
                grouped(longest.unwrap_or(0))
            )
        } else {
            format!("{place} could not keep up: {how}")
        };
        let mut finding = self.loss(Loss {
            kind: "overrun",
            place,
            begin,
            counter: (before.map(|before| before.overrun), reader.overrun),
            whole: sum([reader.delivered, reader.filtered, reader.overrun]),
            since: ("it attached", reader.attached_ns),
            advice,
        })?;
        // The hub checks for losses when a client asks, so the first client's time is meaningless.
        let last = reader.last_loss_ns;
        let is_known = last > 0
            && self
                .change
                .before
                .is_some_and(|before| last < before.time_ns);
        if finding.lost_per_second == Some(0.0) && is_known {
            finding.sentence += &format!(" The hub last noticed a loss {}.", self.ago(last));
        }
        Some(finding)
    }

    /// One finding for each name of readers that have left, and one for the names that the hub forgot.
    fn departed(&self) -> Vec<Finding> {
        let named = self.change.now.departed.iter().filter_map(|one| {
            let (name, group, left) = (&one.name, &one.group, self.ago(one.left_ns));
            let place = format!(
                "departed reader \"{name}\" (group {group}, user {})",
                one.uid
            );
            let begin = match one.readers {
                1 => format!("Reader \"{name}\" (group {group}), which left {left}, lost"),
                many => format!(
                    "{many} readers \"{name}\" (group {group}), of which the last left {left}, lost"
                ),
            };
            let before = self.change.departed_reader(one);
            let whole = sum([one.delivered, one.filtered, one.overrun]);
            self.loss(self.departed_loss(&place, begin, (before, one.overrun), whole))
        });
        let forgotten = |hub: &HubStatus| {
            let named = hub.departed.iter().map(|one| one.overrun);
            hub.departed_overrun.saturating_sub(sum(named))
        };
        let begin = "Other readers that have left lost".to_owned();
        let before = self.change.before.map(forgotten);
        let counter = (before, forgotten(self.change.now));
        let others = self.departed_loss("departed readers", begin, counter, 0);
        named.chain(self.loss(others)).collect()
    }

    fn departed_loss<'a>(
        &self,
        place: &'a str,
        begin: String,
        counter: (Option<u64>, u64),
        whole: u64,
    ) -> Loss<'a> {
        Loss {
            kind: "overrun",
            place,
            begin,
            counter,
            whole,
            since: ("the hub started", self.change.now.started_ns),
            advice: Vec::new(),
        }
    }

    /// The finding about a loss, if packets were lost.
    fn loss(&self, loss: Loss<'_>) -> Option<Finding> {
        let (before, lost_packets) = loss.counter;
        if lost_packets == 0 {
            return None;
        }
        let lost_share = share(lost_packets, loss.whole);
        let lost_per_second = self.change.per_second(before, lost_packets);
        let part = match loss.whole {
            0 => String::new(),
            whole => format!(", {} of {},", percent(lost_share), grouped(whole)),
        };
        let now = match lost_per_second {
            Some(rate) if rate > 0.0 => format!(" It goes on: {}.", a_second(rate)),
            Some(_) => {
                let watched = self.change.seconds().unwrap_or_default();
                format!(" No loss in the last {watched:.0} s.")
            }
            None => String::new(),
        };
        let (event, since_ns) = loss.since;
        let (begin, lost, ago) = (&loss.begin, packets(lost_packets), self.ago(since_ns));
        Some(Finding {
            lost_packets,
            lost_share,
            lost_per_second,
            advice: loss.advice,
            bad: true,
            ..Finding::hint(
                loss.kind,
                loss.place,
                format!("{begin} {lost}{part} since {event} {ago}.{now}"),
            )
        })
    }

    fn ago(&self, then_ns: u64) -> String {
        ago(then_ns, self.change.now.time_ns)
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
    let lost = findings.iter().filter(|finding| finding.lost_packets > 0);
    let passed_unseen = findings.iter().any(|finding| finding.kind == DETACHED);
    match (lost.count(), is_bad) {
        (0, _) if passed_unseen => {
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
    let sum = total(source).counts;
    let numbers = [
        sum.offered,
        sum.captured,
        sum.filtered,
        sum.pool_full,
        sum.kernel,
    ];
    let [offered, captured, filtered, pool_full, kernel] = numbers.map(grouped);
    let holds = if source.balanced {
        "holds"
    } else {
        "DOES NOT HOLD"
    };
    format!(
        "Checked for {}, on {lanes}: offered = captured + filtered + pool_full + kernel {holds}: \
         {offered} = {captured} + {filtered} + {pool_full} + {kernel}; before that the card lost {}{}.",
        source.device,
        grouped(source.nic),
        match source.kernel {
            0 => String::new(),
            kernel => format!(" and the kernel {}", grouped(kernel)),
        }
    )
}

/// `Reader 3 "ids" (group web, process 4711)`.
pub(super) fn name_of(reader: &ReaderStatus) -> String {
    format!(
        "Reader {} \"{}\" (group {}, process {})",
        reader.reader, reader.name, reader.group, reader.pid
    )
}
