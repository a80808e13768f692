// SPDX-License-Identifier: MIT OR Apache-2.0
//! Forwarding in the kernel: each side is a tap whose program redirects packets.
//!
//! The program captures the packets that readers want, forwarded or not.

mod counters;

use ringtap_bpf::BpfError;
use ringtap_bpf::attach::require_rights;
use ringtap_capture::nic::NicLosses;
use ringtap_capture::tap::{Checksums, DecidedFlows, Forward, Tap, TapOptions};
use ringtap_device::Mode;
use ringtap_filter::Rules;
use ringtap_net::interface::Interface;
use ringtap_net::kernel::{self, Feature};
use ringtap_net::netlink::xdp_features;
use ringtap_net::rights::Purpose;
use ringtap_pool::source::Source;

use crate::inline::{InlineBridge, SideInputs};
use crate::{BridgeError, BridgeOptions};
pub(crate) use counters::KernelCounters;
use counters::Redirected;

/// Pool size of a tap without readers, in bytes for each CPU.
const MIN_POOL_BYTES: u64 = 1 << 20;
/// Bytes that XDP adds to the MTU of the destination interface: Ethernet header and one tag.
const HEADER_AND_TAG: u32 = 14 + 4;
/// Largest frame that fits into one buffer with any driver, in bytes.
const ONE_BUFFER: u32 = 3000;

/// Starts to forward. Returns the taps of both sides, which capture nothing until a reader subscribes.
pub(crate) fn open(
    options: &BridgeOptions,
    interfaces: &[Interface; 2],
    inline: Option<&mut InlineBridge>,
) -> Result<(Vec<Source>, KernelCounters), BridgeError> {
    kernel::require(Feature::Tcx).map_err(|reason| BpfError::TooOld {
        interface: "bridge".into(),
        reason,
    })?;
    if options.mode == Mode::Native {
        interfaces.iter().try_for_each(require_redirects)?;
    }
    // Before the tracepoints, whose errors do not mention missing capabilities.
    require_rights(&interfaces[0].name, Purpose::Tap)?;
    let redirected = Redirected::watch([interfaces[0].index, interfaces[1].index])?;
    let nics = [
        NicLosses::for_interface(&interfaces[0])?,
        NicLosses::for_interface(&interfaces[1])?,
    ];
    let decided = inline.as_ref().map(|inline| inline.flows.clone());
    let attach = |from: usize| -> Result<Tap, BridgeError> {
        let (from, to) = (&interfaces[from], &interfaces[1 - from]);
        Ok(Tap::attach(&side(options, from, to, decided.clone()))?)
    };
    let mut sides = [attach(0)?, attach(1)?];
    let parts = |at: usize, tap: &Tap| {
        let (inline, forwarded) = (tap.inline.clone(), tap.forwarded.clone());
        SideInputs::new(inline, forwarded, &interfaces[at], &interfaces[1 - at])
    };
    if let Some(inline) = inline {
        inline.set_sides([parts(0, &sides[0])?, parts(1, &sides[1])?]);
    }
    for tap in &mut sides {
        // Forwarding begins with the first rules, which select no packet.
        let wants_nothing = tap.rules.classify(&Rules::default());
        wants_nothing.map_err(|reason| BridgeError::Rules {
            reason: reason.to_string(),
        })?;
    }
    let counters = KernelCounters {
        forwarded: [sides[0].forwarded.clone(), sides[1].forwarded.clone()],
        redirected,
        nics,
    };
    let sources = sides.map(|tap| tap.source);
    Ok((sources.into(), counters))
}

/// Options for the tap of one side.
fn side(
    options: &BridgeOptions,
    from: &Interface,
    to: &Interface,
    decided: Option<DecidedFlows>,
) -> TapOptions {
    let decides = decided.is_some();
    let mut forward = Forward {
        interface: to.index,
        largest_frame: to.mtu_bytes.saturating_add(HEADER_AND_TAG),
        checksums: if from.is_virtual() {
            Checksums::MayBeMissing
        } else {
            Checksums::Complete
        },
        passing: options.passing.clone(),
        decided,
    };
    let mut side = TapOptions::new(&from.name);
    side.on.mode = options.mode;
    side.on.pool.bytes = Some(options.mirror_bytes.unwrap_or_else(min_pool_bytes));
    if options.mode == Mode::Auto
        && let Some(why) = why_not_xdp(to)
    {
        let note = format!("{} {why}; falling back to traffic control (tcx)", to.name);
        if decides {
            // XDP sees each packet before the host merges it with others.
            forward.largest_frame = 0;
        } else {
            side.on.mode = Mode::Tc;
        }
        side.on.notes.push(format!(
            "{note}: packets from {} go through the host's buffers, which is slower",
            from.name
        ));
    }
    side.forward = Some(forward);
    side
}

/// The reason why an interface cannot send packets that XDP redirects; `None` if it can.
fn why_not_xdp(to: &Interface) -> Option<String> {
    // If the kernel does not report the features, try.
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

/// Refuses an interface that would drop packets that native XDP redirects.
fn require_redirects(to: &Interface) -> Result<(), BridgeError> {
    match why_not_xdp(to) {
        None => Ok(()),
        Some(reason) => Err(BridgeError::NoRedirects {
            interface: to.name.clone(),
            reason,
        }),
    }
}

fn min_pool_bytes() -> u64 {
    let cpus = std::thread::available_parallelism().map_or(1, usize::from);
    MIN_POOL_BYTES * u64::try_from(cpus).unwrap_or(1)
}
