// SPDX-License-Identifier: MIT OR Apache-2.0
//! What arrives at one side of a bridge in user space, as a source: readers see it where it was
//! received, while it is being forwarded.
//!
//! Invariants
//! - Whatever readers do, forwarding goes on: a packet that the mirror has no chunk for is counted
//!   as `pool_full` here, and forwarded.
#![forbid(unsafe_code)]

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::thread::sleep;
use std::time::Duration;

use ringtap_filter::{LinkType, Place, Rules};
use ringtap_ipc::event::Event;
use ringtap_pool::distributor::{LaneEnds, Policy};
use ringtap_pool::source::{Counts, Facts, Source, SourceError, Status};
use ringtap_pool::view::Pool;

use super::shared::Shared;
use crate::classifier::LaneRules;
use crate::xdp::let_pass;
use crate::xdp::ring::RingWatch;
use crate::xdp::statistics::LaneStatistics;
use ringtap_net::netlink::Losses;

const NAP: Duration = Duration::from_millis(1);

/// One queue's part.
pub(super) struct Lane {
    pub(super) statistics: Arc<LaneStatistics>,
    pub(super) rulebook: Arc<LaneRules>,
    pub(super) ring: RingWatch,
}

/// What a mirror is made of.
pub(super) struct Parts {
    pub(super) side: usize,
    pub(super) interface: String,
    pub(super) hook: &'static str,
    pub(super) pool: Pool,
    pub(super) file: Arc<OwnedFd>,
    pub(super) lanes: Vec<Lane>,
    pub(super) ends: Vec<LaneEnds>,
    pub(super) event: Event,
    pub(super) losses: Losses,
    pub(super) shared: Arc<Shared>,
}

/// What arrives at one side of a bridge, for readers.
pub struct Mirror {
    facts: Facts,
    parts: Parts,
    lost_before: u64,
    /// The interface's losses, as last told.
    nic: u64,
    has_ended: bool,
}

impl Mirror {
    pub(super) fn new(parts: Parts) -> Self {
        let facts = Facts {
            device: format!("xdp:{}", parts.interface),
            interface: Some(parts.interface.clone()),
            link_type: LinkType::ETHERNET.0,
            snap_length: parts.pool.geometry().snap_length,
            policy: Policy::DropNewest,
            notes: Vec::new(),
            offered_from: format!(
                "the packets that the program in front of the bridge's sockets saw ({}) and the \
                 interface's missed packets",
                parts.hook
            ),
        };
        Mirror {
            facts,
            lost_before: parts.losses.now().unwrap_or(0),
            nic: 0,
            has_ended: false,
            parts,
        }
    }

    /// Whether the bridge has ended, or stopped noting.
    fn is_over(&self) -> bool {
        self.has_ended || self.parts.shared.is_mirror_closed(self.parts.side)
    }
}

impl Source for Mirror {
    fn facts(&self) -> &Facts {
        &self.facts
    }

    fn pool(&self) -> Pool {
        self.parts.pool.clone()
    }

    fn pool_file(&self) -> Option<BorrowedFd<'_>> {
        Some(self.parts.file.as_fd())
    }

    fn take_lanes(&mut self) -> Vec<LaneEnds> {
        std::mem::take(&mut self.parts.ends)
    }

    fn counts(&mut self) -> Counts {
        if !self.has_ended
            && let Some(lost) = self.parts.losses.now()
        {
            self.nic = lost.saturating_sub(self.lost_before);
        }
        let lanes = self.parts.lanes.iter();
        Counts {
            lanes: lanes.map(|lane| lane.statistics.counts()).collect(),
            nic: self.nic,
            kernel: 0,
        }
    }

    fn classify(&mut self, rules: &Rules) -> Result<Vec<Place>, SourceError> {
        let mut places = Vec::new();
        for lane in &self.parts.lanes {
            let set = lane
                .rulebook
                .set(rules, &self.facts.device, LinkType::ETHERNET);
            places = set?;
        }
        let_pass(self.parts.lanes.iter().map(|lane| &lane.ring));
        Ok(places)
    }

    fn status(&mut self) -> Status {
        match self.is_over() {
            true => Status::Ended,
            false => Status::Running,
        }
    }

    fn wake_fd(&self) -> BorrowedFd<'_> {
        self.parts.event.as_fd()
    }

    fn clear_wake(&mut self) {
        self.parts.event.clear();
    }

    /// The bridge goes on without this mirror.
    fn stop(&mut self) {
        if self.has_ended {
            return;
        }
        let (side, shared) = (self.parts.side, &self.parts.shared);
        shared.close_mirror(side);
        // The thread closes it in its next round, or has ended.
        while !shared.is_mirror_closed(side) {
            sleep(NAP);
        }
        for lane in &self.parts.lanes {
            lane.statistics.close();
        }
        self.counts();
        self.has_ended = true;
    }
}

impl Drop for Mirror {
    fn drop(&mut self) {
        self.stop();
    }
}
