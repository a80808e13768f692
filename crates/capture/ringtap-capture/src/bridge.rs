// SPDX-License-Identifier: MIT OR Apache-2.0
//! A bridge of two interfaces: what arrives at one leaves by the other, inside the kernel.
//!
//! Each side is a tap that forwards: its program redirects packets, and captures them first where
//! readers want them.
//!
//! Invariants
//! - Both ways are accounted: what arrived was sent, filtered, or counted as lost.
//! - What cannot be forwarded right (frames that do not fit, merged packets) is refused at the
//!   start, with the reason; nothing is forwarded wrong.
#![forbid(unsafe_code)]

mod account;
mod error;
mod redirected;

use ringtap_filter::Rules;
use ringtap_pool::source::Source;

pub use account::{Account, Moment};
pub use error::BridgeError;
use redirected::Redirected;

use crate::CaptureError;
use crate::tap::{Checksums, Forward, Passing, Tap, TapOptions};
use ringtap_device::{Direction, Mode};
use ringtap_net::interface::Interface;
use ringtap_net::kernel::{self, Feature};
use ringtap_net::netlink::{Losses, xdp_features};
use ringtap_net::rights::{Purpose, Rights};

/// Memory of a tap that nobody reads, in bytes for each CPU.
const LEAST_POOL_BYTES: u64 = 1 << 20;
/// What XDP adds to the MTU of the interface that it redirects to: header and one tag.
const HEADER_AND_TAG: u32 = 14 + 4;
/// Largest frame that lies in one buffer, whatever the driver.
const ONE_BUFFER: u32 = 3000;
/// What a caller asks of a bridge.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BridgeOptions {
    /// The two interfaces.
    pub interfaces: [String; 2],
    /// Which packets pass, either way.
    pub passing: Passing,
    /// Where packets are redirected.
    pub mode: Mode,
    /// Memory for packets that are mirrored to readers, for each side; `None` if none are.
    pub mirror_bytes: Option<u64>,
}

/// A bridge that forwards.
pub struct Bridge {
    /// The sides, as sources of what arrives there; nothing is captured before somebody wants it.
    pub sides: [Tap; 2],
    /// What becomes of packets.
    pub account: Account,
}

impl Bridge {
    /// Forwards from now on, until both taps are stopped or dropped.
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
        let interfaces = [Interface::find(one)?, Interface::find(other)?];
        check(&interfaces)?;
        if options.mode == Mode::Native {
            interfaces.iter().try_for_each(require_redirects)?;
        }
        // Before the tracepoints, which would refuse without a word about rights.
        let rights = Rights::of_this_process().require(Purpose::Tap);
        rights.map_err(|reason| CaptureError::NoRights {
            interface: one.clone(),
            reason,
        })?;
        let redirected = Redirected::watch([interfaces[0].index, interfaces[1].index])?;
        let losses = |interface: &Interface| {
            Losses::of(interface.index).map_err(BridgeError::system("opening a netlink socket"))
        };
        let losses = [losses(&interfaces[0])?, losses(&interfaces[1])?];
        let attach = |from: usize| -> Result<Tap, BridgeError> {
            let side = side(options, &interfaces[from], &interfaces[1 - from]);
            Ok(Tap::attach(&side)?)
        };
        let mut sides = [attach(0)?, attach(1)?];
        let account = Account::new(
            options.interfaces.clone(),
            [sides[0].forwarded(), sides[1].forwarded()],
            redirected,
            losses,
        );
        for tap in &mut sides {
            // With the first rules, which want nothing, forwarding begins.
            let wants_nothing = tap.classify(&Rules::default());
            wants_nothing.map_err(|reason| BridgeError::Rules {
                reason: reason.to_string(),
            })?;
        }
        Ok(Bridge { sides, account })
    }
}

/// Refuses what cannot be bridged.
///
/// # Errors
///
/// Those of [`BridgeError`] that tell of the two interfaces.
pub fn check(interfaces: &[Interface; 2]) -> Result<(), BridgeError> {
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
        let (small, large) = match one.mtu_bytes < other.mtu_bytes {
            true => (one, other),
            false => (other, one),
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

/// The tap of one side.
fn side(options: &BridgeOptions, from: &Interface, to: &Interface) -> TapOptions {
    let mut side = TapOptions {
        direction: Direction::In,
        mode: options.mode,
        pool_bytes: options.mirror_bytes.unwrap_or_else(least_pool_bytes),
        forward: Some(Forward {
            interface: to.index,
            largest_frame: to.mtu_bytes.saturating_add(HEADER_AND_TAG),
            checksums: match from.is_virtual() {
                true => Checksums::MayBeMissing,
                false => Checksums::Complete,
            },
            passing: options.passing.clone(),
        }),
        ..TapOptions::new(&from.name)
    };
    if options.mode == Mode::Auto
        && let Some(why) = why_not_xdp(to)
    {
        side.mode = Mode::Tc;
        side.notes.push(format!(
            "{} {why}; falling back to traffic control (tcx): packets from {} go through the \
             host's buffers, which is slower",
            to.name, from.name
        ));
    }
    side
}

/// Why an interface cannot send what XDP redirects to it, if it cannot.
fn why_not_xdp(to: &Interface) -> Option<String> {
    // Where the kernel does not say, it is tried.
    let features = xdp_features(to.index)?;
    let peer = match to.kind.as_deref() {
        Some("veth") => "; a veth does while its other end has GRO (`ethtool -K PEER gro on`)",
        _ => "",
    };
    if !features.takes_redirected() {
        return Some(format!("takes no packets from XDP{peer}"));
    }
    let has_pieces = to.largest_frame_bytes() > ONE_BUFFER;
    (has_pieces && !features.takes_redirected_pieces())
        .then(|| format!("takes no frames of several buffers from XDP{peer}"))
}

/// Refuses an interface that would drop whatever native XDP redirects to it.
fn require_redirects(to: &Interface) -> Result<(), BridgeError> {
    match why_not_xdp(to) {
        None => Ok(()),
        Some(reason) => Err(BridgeError::NoRedirects {
            interface: to.name.clone(),
            reason,
        }),
    }
}

fn least_pool_bytes() -> u64 {
    let cpus = std::thread::available_parallelism().map_or(1, usize::from);
    LEAST_POOL_BYTES * u64::try_from(cpus).unwrap_or(1)
}

/// Whether this kernel can bridge at all.
///
/// # Errors
///
/// What it lacks.
pub fn require_kernel() -> Result<(), BridgeError> {
    kernel::require(Feature::Tcx).map_err(|reason| {
        BridgeError::Capture(CaptureError::TooOld {
            interface: "bridge".into(),
            reason,
        })
    })
}

#[cfg(test)]
mod tests;
