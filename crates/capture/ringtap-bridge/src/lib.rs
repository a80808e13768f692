// SPDX-License-Identifier: MIT OR Apache-2.0
//! Ringtap's bridge: packets that arrive at one interface leave by the other.
//!
//! The kernel forwards: each side is a tap whose program redirects packets. A thread forwards
//! through AF_XDP sockets if a filter does not fit into the kernel or an inline reader decides.
//!
//! Invariants
//! - Every packet that arrived is sent, filtered or counted as lost, in both directions.
//! - The bridge refuses at its start interfaces between which it cannot forward unchanged (different
//!   frame sizes, merged packets).
//! - The work for a packet is bounded: no filter loops.

mod error;
mod kernel;
mod options;
mod user;

use std::sync::Arc;

use ringtap_capture::CaptureError;
use ringtap_ipc::verdict::VerdictChannel;
use ringtap_net::interface::Interface;
use ringtap_pool::counters::Counters;
use ringtap_pool::source::Source;

pub use error::BridgeError;
use kernel::KernelCounters;
pub use options::{BridgeMode, BridgeOptions, InlineOptions, Moment};
pub use ringtap_capture::tap::Passing;
use user::UserBridge;
pub use user::{InlineReport, InlineState};

enum BridgeKind {
    Kernel(Box<KernelCounters>),
    User(Box<UserBridge>),
}

/// A bridge that forwards until it, or a source of a kernel bridge, is stopped.
pub struct Bridge {
    interfaces: [String; 2],
    /// Sources that no hub has yet.
    sources: Vec<Source>,
    kind: BridgeKind,
}

impl Bridge {
    /// Starts to forward.
    ///
    /// # Errors
    ///
    /// Every [`BridgeError`]; nothing is attached then.
    pub fn open(options: &BridgeOptions) -> Result<Self, BridgeError> {
        let [one, other] = &options.interfaces;
        if one == other {
            return Err(BridgeError::Same {
                interface: one.clone(),
            });
        }
        if let Passing::Matching(filter) | Passing::Others(filter) = &options.passing
            && filter.loops()
        {
            return Err(BridgeError::Loops);
        }
        let interfaces = [Interface::find(one)?, Interface::find(other)?];
        check(&interfaces)?;
        let (sources, kind) = match options.mode {
            BridgeMode::Kernel(mode) => {
                let (sources, counters) = kernel::open(options, mode, &interfaces)?;
                (sources, BridgeKind::Kernel(Box::new(counters)))
            }
            BridgeMode::User => {
                let (sources, bridge) = UserBridge::open(options, &interfaces)?;
                (sources, BridgeKind::User(Box::new(bridge)))
            }
        };
        Ok(Bridge {
            interfaces: options.interfaces.clone(),
            sources,
            kind,
        })
    }

    fn user(&self) -> Option<&UserBridge> {
        match &self.kind {
            BridgeKind::Kernel(_) => None,
            BridgeKind::User(bridge) => Some(bridge),
        }
    }

    /// Sources of the packets that arrive at each side, for a hub. Stopping a source of a kernel bridge
    /// ends the forwarding. Empty for a user-space bridge without readers.
    pub fn take_sources(&mut self) -> Vec<Source> {
        std::mem::take(&mut self.sources)
    }

    /// Channel for the inline reader's verdicts, for the hub's server.
    #[must_use]
    pub fn verdict_channel(&self) -> Option<Arc<VerdictChannel>> {
        self.user()?.channel.clone()
    }

    /// State of the inline reader; `None` if the bridge has none.
    #[must_use]
    pub fn inline(&self) -> Option<InlineReport> {
        self.user()?.inline()
    }

    /// Name of the direction from side 0 or 1 to the other, as in `eth0>eth1`.
    #[must_use]
    pub fn way(&self, from: usize) -> String {
        let [one, other] = [from & 1, 1 - (from & 1)].map(|side| &self.interfaces[side]);
        format!("{one}>{other}")
    }

    /// Counters of the packets that arrived at side 0 or 1.
    #[must_use]
    pub fn counters(&mut self, from: usize, moment: Moment) -> Counters {
        match &mut self.kind {
            BridgeKind::Kernel(counters) => counters.of(from, moment),
            BridgeKind::User(bridge) => bridge.counters(from, moment),
        }
    }

    /// The error that ends the bridge, once, if one of its interfaces was removed. The sources of a
    /// kernel bridge report it themselves.
    #[must_use]
    pub fn failure(&self) -> Option<CaptureError> {
        self.user()?.failure()
    }

    /// Messages for the user since the last call: fall-backs, and the start and the end of an outage.
    /// The sources of a kernel bridge report them themselves.
    #[must_use]
    pub fn take_notes(&mut self) -> Vec<String> {
        match &mut self.kind {
            BridgeKind::Kernel(_) => Vec::new(),
            BridgeKind::User(bridge) => bridge.take_notes(),
        }
    }

    /// Stops a user-space bridge; a kernel bridge ends with its sources.
    pub fn stop(&mut self) {
        if let BridgeKind::User(bridge) = &mut self.kind {
            bridge.stop();
        }
    }
}

/// Refuses interfaces that cannot be bridged.
fn check(interfaces: &[Interface; 2]) -> Result<(), BridgeError> {
    for interface in interfaces {
        interface.require_up()?;
        if !interface.link_type.is_ethernet() || interface.is_loopback {
            return Err(BridgeError::NotEthernet {
                interface: interface.name.clone(),
            });
        }
        if interface.offloads.lro == Some(true) {
            return Err(BridgeError::Lro {
                interface: interface.name.clone(),
            });
        }
    }
    let [one, other] = interfaces;
    if one.mtu_bytes != other.mtu_bytes {
        let (small, large) = if one.mtu_bytes < other.mtu_bytes {
            (one, other)
        } else {
            (other, one)
        };
        return Err(BridgeError::Mtu {
            small: small.name.clone(),
            small_bytes: small.mtu_bytes,
            large: large.name.clone(),
            large_bytes: large.mtu_bytes,
        });
    }
    Ok(())
}

#[cfg(test)]
mod tests;
