// SPDX-License-Identifier: MIT OR Apache-2.0
//! Ringtap's bridge: packets that arrive at one interface leave by the other.
//!
//! The kernel forwards: each side is a tap whose program redirects packets. If an inline reader decides, packets of
//! flows without a verdict wait for it in user space.
//!
//! Invariants
//! - Every packet that arrived is sent, filtered, blocked or counted as lost, in both directions.
//! - The bridge refuses at its start interfaces between which it cannot forward unchanged (different
//!   frame sizes, merged packets).
//! - The work for a packet is bounded: no filter loops.

mod error;
mod inline;
mod kernel;
mod options;

use std::sync::Arc;

use ringtap_ipc::subscription::Subscription;
use ringtap_ipc::verdict::VerdictChannel;
use ringtap_net::interface::Interface;
use ringtap_pool::counters::Counters;
use ringtap_pool::source::Source;

pub use error::BridgeError;
use inline::InlineBridge;
pub use inline::InlineReport;
use kernel::KernelCounters;
pub use options::{BridgeOptions, InlineOptions, Moment};
pub use ringtap_capture::tap::{DecidedFlow, FlowFate, InlineState, Passing};

/// A bridge that forwards until its sources are stopped.
pub struct Bridge {
    interfaces: [String; 2],
    /// Sources that no hub has yet.
    sources: Vec<Source>,
    counters: KernelCounters,
    inline: Option<InlineBridge>,
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
        let inline = options.inline.as_ref().map(InlineBridge::new);
        let mut inline = inline.transpose()?;
        let (sources, counters) = kernel::open(options, &interfaces, inline.as_mut())?;
        Ok(Bridge {
            interfaces: options.interfaces.clone(),
            sources,
            counters,
            inline,
        })
    }

    /// Sources of the packets that arrive at each side, for a hub. Stopping a source ends the forwarding.
    pub fn take_sources(&mut self) -> Vec<Source> {
        std::mem::take(&mut self.sources)
    }

    /// Lets the inline reader decide. The bridge reads the waiting packets by `subscription`, at the hub that has its
    /// two sources and nothing else; the subscription has every packet, and ends after [`Bridge::stop`].
    ///
    /// # Errors
    ///
    /// The system's; or the bridge has no inline reader, or the hub has other sources.
    pub fn begin_inline(&mut self, subscription: Subscription) -> Result<(), BridgeError> {
        let missing = || std::io::Error::other("the bridge has no inline reader");
        let begun = self.inline.as_mut().ok_or_else(missing);
        let begun = begun.and_then(|inline| inline.begin(subscription));
        begun.map_err(BridgeError::system(
            "reading packets that wait for verdicts",
        ))
    }

    /// Channel for the inline reader's verdicts, for the hub's server.
    #[must_use]
    pub fn verdict_channel(&self) -> Option<Arc<VerdictChannel>> {
        Some(Arc::clone(&self.inline.as_ref()?.channel))
    }

    /// State of the inline reader; `None` if the bridge has none.
    #[must_use]
    pub fn inline(&self) -> Option<InlineReport> {
        let inline = self.inline.as_ref()?;
        let mut report = inline.report();
        for from in [0, 1] {
            let counts = self.counters.forwarded[from].counts();
            let waited = inline.counts(from).no_verdict_passed;
            report.passed[from] = counts.no_verdict_passed + waited;
            report.flow_passed[from] = counts.passed;
        }
        Some(report)
    }

    /// Flows about which the inline reader decided and that have ended, with their counts, since the last call; all
    /// that there were after [`Bridge::stop`].
    #[must_use]
    pub fn take_ended_flows(&self) -> Vec<DecidedFlow> {
        self.inline
            .as_ref()
            .map(InlineBridge::take_ended)
            .unwrap_or_default()
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
        // Outcomes first, so that they are never ahead of the arrivals.
        let waited = self.inline.as_ref().map(|inline| inline.counts(from));
        self.counters
            .of_side(from, &waited.unwrap_or_default(), moment)
    }

    /// Settles the packets that wait for an inline reader; call it once the sources are asked to stop.
    pub fn stop(&mut self) {
        if let Some(inline) = &mut self.inline {
            inline.stop();
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
