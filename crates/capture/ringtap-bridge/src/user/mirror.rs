// SPDX-License-Identifier: MIT OR Apache-2.0
//! A mirror: the packets that arrive at one side of a bridge, as a source. Readers see them in
//! place while the bridge forwards them.
//!
//! Invariants
//! - Forwarding does not depend on readers: without a free chunk a packet counts as `pool_full`
//!   in the mirror, and is forwarded.

use std::sync::Arc;
use std::sync::atomic::Ordering::Acquire;
use std::thread::sleep;
use std::time::Duration;

use ringtap_bpf::link::Hook;
use ringtap_capture::nic::SharedLosses;
use ringtap_capture::source::{RulesHook, ThreadedDriver};
use ringtap_capture::xdp::{QueueLane, queue_counts, wait_for_received};
use ringtap_filter::LinkType;
use ringtap_pool::distributor::Policy;
use ringtap_pool::source::{Counts, Facts, LossUpdate};

use super::shared::BridgeState;

const PAUSE: Duration = Duration::from_millis(1);

/// The bridge's part of a mirror.
pub(super) struct MirrorDriver {
    pub(super) side: usize,
    pub(super) lanes: Arc<[QueueLane]>,
    pub(super) nic: SharedLosses,
    pub(super) shared: Arc<BridgeState>,
}

impl ThreadedDriver for MirrorDriver {
    fn counts(&mut self) -> Counts {
        queue_counts(&self.lanes, &self.nic)
    }

    fn loss_update(&self) -> Option<LossUpdate> {
        Some(self.nic.update())
    }

    fn rules_hook(&self) -> Option<RulesHook> {
        let lanes = Arc::clone(&self.lanes);
        Some(Box::new(move |_rules| wait_for_received(&lanes)))
    }

    /// Ends the mirror only; the bridge continues.
    fn stop(&mut self) {
        self.shared.close_mirror(self.side);
        // The thread closes the mirror in its next round, or when it ends.
        while !self.shared.mirrors[self.side & 1].closed.load(Acquire) {
            sleep(PAUSE);
        }
    }

    fn finish(&mut self) {
        for lane in &*self.lanes {
            lane.statistics.close();
        }
        self.nic.finish();
    }
}

/// Describes the mirror of an interface.
pub(super) fn facts(interface: &str, hook: Hook, snap_length: u32) -> Facts {
    Facts {
        device: format!("xdp:{interface}"),
        interface: Some(interface.to_owned()),
        link_type: LinkType::ETHERNET.0,
        snap_length,
        policy: Policy::DropNewest,
        offered_from: format!(
            "the packets that the program of the bridge's sockets saw ({}) and the interface's \
             missed packets",
            hook.words()
        ),
        ..Facts::default()
    }
}
