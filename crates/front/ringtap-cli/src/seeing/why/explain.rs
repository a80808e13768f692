// SPDX-License-Identifier: MIT OR Apache-2.0
//! From two looks at a hub's counters to what went wrong. Pure: no clock, no files.
//!
//! Invariants
//! - Every counter of a loss that is not 0 has its finding.
//! - A share is of what was meant for the one who lost it, not of all packets.
#![forbid(unsafe_code)]

use ringtap_ipc::protocol::{
    GroupStatus, HubStatus, LaneStatus, ReaderStatus, SourceState, SourceStatus,
};
use serde::Serialize;

use super::words::{a_second, ago, packets, percent, share};
use super::{advice, groups};
use crate::report::grouped;
use crate::seeing::change::Change;

/// One thing that a user should know.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Finding {
    /// Its sort: a reason of the counters, or what else is wrong.
    pub(crate) kind: &'static str,
    /// A source or a reader.
    pub(crate) place: String,
    /// Packets lost there, for this reason.
    pub(crate) lost_packets: u64,
    /// Their part of what was meant for that place, from 0 to 1.
    pub(crate) lost_share: f64,
    /// How fast it goes on; absent if that place was not there at the first look.
    pub(crate) lost_per_second: Option<f64>,
    /// All of this in words.
    pub(crate) sentence: String,
    /// What to change, the most likely first.
    pub(crate) advice: Vec<String>,
    /// Packets were lost, or will be.
    pub(crate) bad: bool,
}

/// What went wrong, and what was checked.
#[derive(Debug)]
pub(crate) struct Answer {
    verdict: String,
    /// The worst first.
    pub(crate) findings: Vec<Finding>,
    /// A sentence a source: its equation, with its numbers.
    pub(crate) checked: Vec<String>,
}

/// Explains the losses of a hub by two looks at it.
pub(crate) fn explain(
    before: &HubStatus,
    now: &HubStatus,
    is_stopped: &dyn Fn(i32) -> bool,
) -> Answer {
    let case = Case {
        change: Change::between(Some(before), now),
        now,
        is_stopped,
    };
    let sources = now.sources.iter().enumerate();
    let mut findings: Vec<_> = sources.flat_map(|(at, one)| case.source(at, one)).collect();
    findings.extend(now.readers.iter().flat_map(|reader| case.reader(reader)));
    findings.extend(case.departed());
    findings.extend(groups::helped(case.change));
    findings.sort_by_key(|one| (!one.bad, std::cmp::Reverse(one.lost_packets)));
    Answer {
        verdict: verdict(now, &findings),
        findings,
        checked: now.sources.iter().map(equation).collect(),
    }
}

impl Answer {
    /// Whether packets were lost, or something else is wrong.
    pub(crate) fn is_bad(&self) -> bool {
        self.findings.iter().any(|finding| finding.bad)
    }

    /// The whole answer; an item is a line or a paragraph.
    pub(crate) fn sentences(&self) -> Vec<String> {
        let mut lines = vec![self.verdict.clone()];
        for finding in &self.findings {
            lines.push(String::new());
            lines.push(finding.sentence.clone());
            lines.extend(finding.advice.iter().map(|advice| format!("  - {advice}")));
        }
        lines.push(String::new());
        lines.extend(self.checked.iter().cloned());
        lines
    }
}

struct Case<'a> {
    change: Change<'a>,
    now: &'a HubStatus,
    is_stopped: &'a dyn Fn(i32) -> bool,
}

impl Case<'_> {
    fn source(&self, at: usize, source: &SourceStatus) -> Vec<Finding> {
        let before = self.change.source(at);
        let seen = sum(source, |lane| lane.seen);
        let kernel = |source: &SourceStatus| source.kernel + sum(source, |lane| lane.kernel);
        let pool_full = |source: &SourceStatus| sum(source, |lane| lane.pool_full);
        let lost = |kind, what: &str, (then, now): (Option<u64>, u64), whole, advice| {
            let begin = format!("{}: {what}", source.device);
            let since = format!("since the hub started {}", self.started());
            self.loss(
                kind,
                &source.device,
                begin,
                (then, now),
                whole,
                &since,
                advice,
            )
        };
        let nic = lost(
            "nic",
            "the network card or its driver lost",
            (before.map(|source| source.nic), source.nic),
            seen + source.nic,
            advice::nic(source),
        );
        let kernel = lost(
            "kernel",
            "the kernel lost",
            (before.map(kernel), kernel(source)),
            seen.max(kernel(source)),
            advice::kernel(source),
        );
        let full = lost(
            "pool_full",
            &format!("{} lost", advice::where_full(source)),
            (before.map(pool_full), pool_full(source)),
            seen,
            advice::pool_full(source, &self.now.readers, self.is_stopped),
        );
        let mut findings: Vec<_> = [nic, kernel, full].into_iter().flatten().collect();
        findings.extend(self.ended(source));
        if !source.balanced {
            let sentence = format!(
                "{}: the counters does not balance: some packets are counted twice, or not at all.",
                source.device
            );
            let advice = vec![advice::REPORT.to_owned()];
            findings.push(wrong("unbalanced", &source.device, sentence, advice));
        }
        findings
    }

    fn ended(&self, source: &SourceStatus) -> Option<Finding> {
        if let Some(failure) = &source.failure {
            let sentence = format!("{}: capture failed: {failure}.", source.device);
            let advice = vec!["Mend the cause, then start the hub again.".to_owned()];
            return Some(wrong("failed", &source.device, sentence, advice));
        }
        (source.state == SourceState::Ended).then(|| {
            let sentence = format!("{} has ended: no more packets come from it.", source.device);
            hint("ended", &source.device, sentence)
        })
    }

    fn reader(&self, reader: &ReaderStatus) -> Vec<Finding> {
        let group = self
            .now
            .groups
            .iter()
            .find(|group| group.name == reader.group);
        let place = name_of(reader);
        let mut findings = Vec::new();
        findings.extend(self.slow(reader, group, &place));
        if reader.corrupt {
            let sentence = format!(
                "{place} wrote what no reader may write, and gets nothing any more: it is broken or hostile."
            );
            let advice = vec![format!("End process {}, and start it anew.", reader.pid)];
            findings.push(wrong("corrupt", &place, sentence, advice));
        }
        if let Some(why) = &reader.not_in_source {
            let all = reader.delivered + reader.filtered;
            let sentence = format!(
                "{place} runs its filter itself, not the source: {why}. {} of what it is given does not pass.",
                percent(share(reader.filtered, all))
            );
            findings.push(hint("not_in_source", &place, sentence));
        }
        findings
    }

    fn slow(
        &self,
        reader: &ReaderStatus,
        group: Option<&GroupStatus>,
        place: &str,
    ) -> Option<Finding> {
        let then = self.change.reader(reader.reader).map(|then| then.overrun);
        let whole = reader.delivered + reader.filtered + reader.overrun;
        let policy = group.and_then(|group| groups::policy(&group.policy, reader.credit_chunks));
        let how = match (reader.delivery.as_str(), policy) {
            ("private", _) => "could not keep up, its own pool was full, and it lost".to_owned(),
            (_, Some(policy)) => format!(
                "could not keep up, held all the chunks that it may, and by the policy of its \
                 group ({policy}) lost"
            ),
            (_, None) => "could not keep up, held all the chunks that it may, and lost".to_owned(),
        };
        let since = format!("since it attached {}", self.ago(reader.attached_ns));
        let advice = advice::overrun(reader, group, (self.is_stopped)(reader.pid));
        let begin = format!("{place} {how}");
        let lost = (then, reader.overrun);
        let mut finding = self.loss("overrun", place, begin, lost, whole, &since, advice)?;
        if finding.lost_per_second == Some(0.0)
            && let Some(last) = self.last_noticed(reader)
        {
            finding.sentence += &format!(" The last one was noticed {last}.");
        }
        Some(finding)
    }

    /// When the hub last noticed a loss; unknown if it noticed all of them at our first look.
    fn last_noticed(&self, reader: &ReaderStatus) -> Option<String> {
        let last = reader.last_loss_ns;
        let known = last > 0 && last < self.change.before_ns()?;
        known.then(|| self.ago(last))
    }

    fn departed(&self) -> Option<Finding> {
        let lost = (self.change.departed(), self.now.departed_overrun);
        let begin = "Readers that have left could not keep up, and lost".to_owned();
        let since = format!("since the hub started {}", self.started());
        // How many they took is no longer known, so there is no share.
        self.loss(
            "overrun",
            "departed readers",
            begin,
            lost,
            0,
            &since,
            Vec::new(),
        )
    }

    /// A loss with its sentence, if there was one.
    #[expect(
        clippy::too_many_arguments,
        reason = "the parts of one sentence, in its order"
    )]
    fn loss(
        &self,
        kind: &'static str,
        place: &str,
        begin: String,
        (then, lost_packets): (Option<u64>, u64),
        whole: u64,
        since: &str,
        advice: Vec<String>,
    ) -> Option<Finding> {
        if lost_packets == 0 {
            return None;
        }
        let lost_share = share(lost_packets, whole);
        let lost_per_second = self.change.per_second(then, lost_packets);
        let mut sentence = format!("{begin} {}", packets(lost_packets));
        if whole > 0 {
            sentence += &format!(", {} of its {},", percent(lost_share), grouped(whole));
        }
        sentence += &format!(" {since}.{}", self.still(lost_per_second));
        Some(Finding {
            kind,
            place: place.to_owned(),
            lost_packets,
            lost_share,
            lost_per_second,
            sentence,
            advice,
            bad: true,
        })
    }

    fn still(&self, rate: Option<f64>) -> String {
        let watched = self.change.seconds().unwrap_or_default();
        match rate {
            Some(rate) if rate > 0.0 => format!(" It still happens: {}.", a_second(rate)),
            Some(_) => format!(" None of them in the last {watched:.0} s."),
            None => String::new(),
        }
    }

    fn started(&self) -> String {
        self.ago(self.now.started_ns)
    }

    fn ago(&self, then_ns: u64) -> String {
        ago(then_ns, self.now.time_ns)
    }
}

fn verdict(now: &HubStatus, findings: &[Finding]) -> String {
    let since = ago(now.started_ns, now.time_ns);
    let bad = findings.iter().filter(|finding| finding.bad);
    let lost = bad
        .clone()
        .filter(|finding| finding.lost_packets > 0)
        .count();
    match (lost, bad.count()) {
        (0, 0) => format!("Nothing was lost since the hub started {since}."),
        (0, _) => {
            format!("No loss was counted since the hub started {since}, but not all is well.")
        }
        (1, _) => "Packets were lost in one place.".to_owned(),
        (places, _) => format!("Packets were lost in {places} places, the worst first."),
    }
}

/// Which equation was checked, with its numbers.
fn equation(source: &SourceStatus) -> String {
    let lanes = match source.lanes.len() {
        1 => "one lane".to_owned(),
        lanes => format!("each of {lanes} lanes"),
    };
    let [seen, captured, unwanted, pool_full, kernel] = [
        sum(source, |lane| lane.seen),
        sum(source, |lane| lane.captured),
        sum(source, |lane| lane.unwanted),
        sum(source, |lane| lane.pool_full),
        sum(source, |lane| lane.kernel),
    ]
    .map(grouped);
    let holds = if source.balanced {
        "holds"
    } else {
        "DOES NOT HOLD"
    };
    format!(
        "Checked for {}, on {lanes}: seen = captured + unwanted + pool_full + kernel {holds}: \
         {seen} = {captured} + {unwanted} + {pool_full} + {kernel}; before that the card lost {}{}.",
        source.device,
        grouped(source.nic),
        match source.kernel {
            0 => String::new(),
            kernel => format!(" and the kernel {}", grouped(kernel)),
        }
    )
}

/// A sum over a source's lanes.
pub(super) fn sum(source: &SourceStatus, counter: impl Fn(&LaneStatus) -> u64) -> u64 {
    source.lanes.iter().map(counter).sum()
}

/// `Reader 3 "ids" (group web, process 4711)`.
pub(super) fn name_of(reader: &ReaderStatus) -> String {
    format!(
        "Reader {} \"{}\" (group {}, process {})",
        reader.reader, reader.name, reader.group, reader.pid
    )
}

fn wrong(kind: &'static str, place: &str, sentence: String, advice: Vec<String>) -> Finding {
    Finding {
        advice,
        bad: true,
        ..hint(kind, place, sentence)
    }
}

pub(super) fn hint(kind: &'static str, place: &str, sentence: String) -> Finding {
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
