// SPDX-License-Identifier: MIT OR Apache-2.0
//! Findings about a hub as data; as JSON, an entry of `findings` of `why --json`.

use ringtap_ipc::protocol::{
    BridgeStatus, DepartedStatus, GroupStatus, ReaderStatus, SourceStatus,
};
use ringtap_pool::counters::Term;
use serde::{Serialize, Serializer};

use crate::text::share;

/// One fact that the user of a hub should know. Its text is a sentence; [`advice`](Finding::advice) has remedies.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
#[expect(
    missing_docs,
    reason = "the fields are statuses and losses of what the variant names"
)]
pub enum Finding {
    /// Packets were lost before capture, or found no free chunk.
    Lost {
        source: Box<SourceStatus>,
        /// Where they were lost.
        term: &'static Term,
        /// The reader that is furthest behind now, if one can fill the pool, and whether its process is stopped.
        furthest_behind: Option<(Box<ReaderStatus>, bool)>,
        loss: Loss,
    },
    /// A source failed.
    Failed {
        source: Box<SourceStatus>,
        reason: String,
    },
    /// A source has ended.
    Ended { source: Box<SourceStatus> },
    /// Another program detached the capture program, and packets passed meanwhile.
    Detached { source: Box<SourceStatus> },
    /// A source's counters do not add up.
    Unbalanced { source: Box<SourceStatus> },
    /// A way of a bridge lost packets.
    Bridge {
        bridge: Box<BridgeStatus>,
        /// As in the counters: `nic`, `kernel` or `no_verdict`.
        reason: &'static str,
        loss: Loss,
    },
    /// A reader was past its credit.
    Overrun {
        reader: Box<ReaderStatus>,
        group: Option<Box<GroupStatus>>,
        is_stopped: bool,
        /// Longest wait of a chunk for the hub's thread, if this and not the reader caused most of the loss.
        hub_late_ms: Option<u64>,
        loss: Loss,
    },
    /// A reader wrote invalid values, and the hub cut it off.
    Corrupt { reader: Box<ReaderStatus> },
    /// A reader reported more packets than its sources captured.
    Impossible { reader: Box<ReaderStatus> },
    /// A reader runs its filter itself.
    NotInSource {
        reader: Box<ReaderStatus>,
        reason: String,
    },
    /// Flow rules of a reader withheld packets.
    Shunted {
        reader: Box<ReaderStatus>,
        per_second: Option<f64>,
    },
    /// Readers of one name that have left had lost packets; without a name, those that the hub forgot.
    Departed {
        readers: Option<Box<DepartedStatus>>,
        loss: Loss,
    },
    /// The hub waits for an interface.
    Waiting { reason: String },
    /// Members of a group took chunks for others.
    Offloaded {
        group: Box<GroupStatus>,
        chunks_per_second: Option<f64>,
        /// The members that took chunks, the one with the most first.
        helpers: Vec<ReaderStatus>,
    },
}

/// A loss of packets in one place for one reason.
#[derive(Clone, Debug, PartialEq)]
pub struct Loss {
    /// Packets lost since `since_ns`.
    pub packets: u64,
    /// Packets meant for this place; 0 if unknown.
    pub of: u64,
    /// Present rate; absent if the first status lacks this place.
    pub per_second: Option<f64>,
    /// Seconds between the two statuses, in which `per_second` was measured.
    pub watched_s: f64,
    /// Start of the counter, in nanoseconds since 1970.
    pub since_ns: u64,
    /// Last time when the hub noticed a loss, if known.
    pub noticed_ns: Option<u64>,
    /// Time of the second status.
    pub now_ns: u64,
}

impl Loss {
    /// Lost part of the packets meant for this place, from 0 to 1.
    pub fn share(&self) -> f64 {
        share(self.packets, self.of)
    }
}

impl Finding {
    /// The reason of a loss, as in the counters, or the name of another fault.
    pub fn kind(&self) -> &'static str {
        match self {
            Finding::Lost { term, .. } => term.reason().unwrap_or(term.name),
            Finding::Failed { .. } => "failed",
            Finding::Ended { .. } => "ended",
            Finding::Detached { .. } => "detached",
            Finding::Unbalanced { .. } => "unbalanced",
            Finding::Bridge { reason, .. } => reason,
            Finding::Overrun { .. } | Finding::Departed { .. } => "overrun",
            Finding::Corrupt { .. } => "corrupt",
            Finding::Impossible { .. } => "impossible",
            Finding::NotInSource { .. } => "not_in_source",
            Finding::Shunted { .. } => "shunted",
            Finding::Waiting { .. } => "waiting",
            Finding::Offloaded { .. } => "offloaded",
        }
    }

    /// The source, way of a bridge, reader or group in words.
    pub fn place(&self) -> String {
        match self {
            Finding::Lost { source, .. }
            | Finding::Failed { source, .. }
            | Finding::Ended { source }
            | Finding::Detached { source }
            | Finding::Unbalanced { source } => source.device.clone(),
            Finding::Bridge { bridge, .. } => bridge.way.clone(),
            Finding::Overrun { reader, .. }
            | Finding::Corrupt { reader }
            | Finding::Impossible { reader }
            | Finding::NotInSource { reader, .. }
            | Finding::Shunted { reader, .. } => name_of(reader),
            Finding::Departed {
                readers: Some(one), ..
            } => format!(
                "departed reader \"{}\" (group {}, user {})",
                one.name, one.group, one.uid
            ),
            Finding::Departed { readers: None, .. } => "departed readers".to_owned(),
            Finding::Waiting { .. } => "hub".to_owned(),
            Finding::Offloaded { group, .. } => format!("group {}", group.name),
        }
    }

    /// The lost packets, if the finding is a loss.
    pub fn loss(&self) -> Option<&Loss> {
        match self {
            Finding::Lost { loss, .. }
            | Finding::Bridge { loss, .. }
            | Finding::Overrun { loss, .. }
            | Finding::Departed { loss, .. } => Some(loss),
            _ => None,
        }
    }

    /// Number of lost packets.
    pub fn lost_packets(&self) -> u64 {
        self.loss().map_or(0, |loss| loss.packets)
    }

    /// Whether packets were lost, or will be.
    pub fn is_bad(&self) -> bool {
        !matches!(
            self,
            Finding::Ended { .. }
                | Finding::NotInSource { .. }
                | Finding::Shunted { .. }
                | Finding::Offloaded { .. }
        )
    }
}

impl Serialize for Finding {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        #[derive(Serialize)]
        struct Fields {
            kind: &'static str,
            place: String,
            lost_packets: u64,
            lost_share: f64,
            lost_per_second: Option<f64>,
            sentence: String,
            advice: Vec<String>,
            bad: bool,
        }
        let fields = Fields {
            kind: self.kind(),
            place: self.place(),
            lost_packets: self.lost_packets(),
            lost_share: self.loss().map_or(0.0, Loss::share),
            lost_per_second: self.loss().and_then(|loss| loss.per_second),
            sentence: self.to_string(),
            advice: self.advice(),
            bad: self.is_bad(),
        };
        fields.serialize(serializer)
    }
}

/// `Reader 3 "ids" (group web, process 4711)`.
pub(crate) fn name_of(reader: &ReaderStatus) -> String {
    format!(
        "Reader {} \"{}\" (group {}, process {})",
        reader.reader, reader.name, reader.group, reader.pid
    )
}
