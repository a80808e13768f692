// SPDX-License-Identifier: MIT OR Apache-2.0
//! Loads the tap's programs and attaches them.
//!
//! Invariants
//! - Pool, clock and free-chunk stacks are ready before a program is attached.

use std::fs;
use std::io;

use ringtap_pool::format::MIN_CHUNK_SIZE;

use super::object::Loaded;
use super::options::{DEFAULT_POOL_BYTES, Taking, TapOptions};
use super::plan::TapPlan;
use super::programs::{AttachedProgram, LinkSet, TapProgram};
use crate::fallback::first_accepted;
use crate::{CaptureError, queues};
use ringtap_bpf::BpfError;
use ringtap_bpf::attach::{self, Binding, Variants};
use ringtap_bpf::conflict::{self, Effect};
use ringtap_bpf::link::Hook;
use ringtap_device::{Direction, Queues, StampClock};
use ringtap_net::interface::Interface;

/// Limit for the chunks of a pool; no machine has the memory for more.
const MAX_CHUNKS: u64 = 1 << 28;

/// Loaded programs, attached.
pub(super) struct AttachedTap {
    pub(super) links: LinkSet,
    pub(super) loaded: Loaded,
    /// Where packets are captured, for messages.
    pub(super) hook: &'static str,
    /// Messages for the user, one per line.
    pub(super) notes: Vec<String>,
}

/// Computes the sizes of the maps for `options` on this machine.
pub(super) fn plan(options: &TapOptions, interface: &Interface) -> Result<TapPlan, CaptureError> {
    let (name, asked) = (&interface.name, &options.on.pool);
    let pool_bytes = asked.bytes.unwrap_or(DEFAULT_POOL_BYTES);
    let least = asked.chunk_bytes.unwrap_or(0).max(MIN_CHUNK_SIZE);
    if pool_bytes / u64::from(least) > MAX_CHUNKS {
        let interface = name.clone();
        return Err(BpfError::NoMemory {
            interface,
            pool_bytes,
        }
        .into());
    }
    let queues = match &options.on.queues {
        Queues::All => Vec::new(),
        chosen => queues::selected(chosen, interface)?,
    };
    let possible = libbpf_rs::num_possible_cpus().map_err(io::Error::other);
    let possible = possible.and_then(|cpus| u32::try_from(cpus).map_err(io::Error::other));
    let possible = possible.map_err(CaptureError::system(name, "counting CPUs"))?;
    let lanes = online_cpus().unwrap_or(possible).min(possible);
    let plan = TapPlan::new(options, interface.largest_frame_bytes(), lanes, possible);
    let plan = plan.map_err(|reason| CaptureError::Sizes {
        device: name.clone(),
        reason,
    })?;
    Ok(TapPlan { queues, ..plan })
}

/// Number of the highest online CPU, plus one.
pub(crate) fn online_cpus() -> Option<u32> {
    let list = fs::read_to_string("/sys/devices/system/cpu/online").ok()?;
    let last = list.trim().rsplit([',', '-']).next()?;
    last.parse::<u32>().ok()?.checked_add(1)
}

/// Loads and attaches the programs for `options`.
pub(super) fn attach(
    options: &TapOptions,
    interface: &Interface,
    plan: &TapPlan,
) -> Result<AttachedTap, CaptureError> {
    let mut notes = options.on.notes.clone();
    let direction = direction(options, interface, &mut notes);
    if !direction.arriving() {
        let loaded = Loaded::new(options, plan, interface.index, &[TapProgram::TcTx])?;
        return Ok(AttachedTap {
            links: LinkSet {
                capturing: vec![put(&loaded, TapProgram::TcTx, Hook::Tc, interface)?],
                forwarding: None,
                interface: interface.index,
            },
            loaded,
            hook: Hook::Tc.words(),
            notes,
        });
    }
    let binding = match options.on.stamps {
        StampClock::Nic => Binding::Required,
        StampClock::Host => Binding::ToInterface,
    };
    let variants = Variants::XdpAndTc;
    let mut hooks = attach::hooks(options.on.mode, variants, binding, interface, &mut notes);
    if options.forward.is_some() {
        // The kernel does not count the packets that generic XDP redirects.
        hooks.retain(|hook| *hook != Hook::Generic);
    }
    let effect = effect(options);
    conflict::refuse_another_ringtap(interface, effect, &[])?;
    if hooks.first().is_some_and(|hook| hook.is_xdp()) {
        conflict::wait_for_another(interface, conflict::is_ours)?;
    }
    let attached = first_accepted(&hooks, &mut notes, |hook, _| {
        attach_at(hook, direction, options, interface, plan)
    });
    let attached = AttachedTap { notes, ..attached? };
    // Again, for another one that attached meanwhile; both may be refused then.
    let action = "asking for the programs' ids";
    let own = attached.links.program_ids();
    let own = own.map_err(CaptureError::system(&interface.name, action))?;
    conflict::refuse_another_ringtap(interface, effect, &own)?;
    Ok(attached)
}

fn effect(options: &TapOptions) -> Effect {
    match (options.taking, &options.forward) {
        (Taking::Pass, None) => Effect::Looks,
        _ => Effect::Takes,
    }
}

/// Loads the programs for one hook and attaches them.
fn attach_at(
    hook: Hook,
    direction: Direction,
    options: &TapOptions,
    interface: &Interface,
    plan: &TapPlan,
) -> Result<AttachedTap, CaptureError> {
    let mut programs = vec![TapProgram::at(hook)];
    programs.extend(direction.leaving().then_some(TapProgram::TcTx));
    let needs_help = options.forward.is_some() && hook.is_xdp();
    programs.extend(needs_help.then_some(TapProgram::TcForward));
    let loaded = Loaded::new(options, plan, interface.index, &programs)?;
    let put = |program, hook| put(&loaded, program, hook, interface);
    let mut capturing = vec![put(TapProgram::at(hook), hook)?];
    if direction.leaving() {
        capturing.push(put(TapProgram::TcTx, Hook::Tc)?);
    }
    let forwarding = needs_help.then(|| put(TapProgram::TcForward, Hook::Tc));
    let links = LinkSet {
        capturing,
        forwarding: forwarding.transpose()?,
        interface: interface.index,
    };
    Ok(AttachedTap {
        links,
        loaded,
        hook: hook.words(),
        notes: Vec::new(),
    })
}

/// A loopback interface receives all that it sends: capturing both directions would duplicate packets.
fn direction(options: &TapOptions, interface: &Interface, notes: &mut Vec<String>) -> Direction {
    if interface.is_loopback && options.on.direction == Direction::InOut {
        notes.push(format!(
            "{}: every sent packet arrives again: only received packets are captured",
            interface.name
        ));
        return Direction::In;
    }
    options.on.direction
}

/// Attaches one of the loaded programs.
fn put(
    loaded: &Loaded,
    program: TapProgram,
    hook: Hook,
    interface: &Interface,
) -> Result<AttachedProgram, CaptureError> {
    let action = "finding the loaded program";
    let copy = loaded.copy(program, interface.index);
    let copy = copy.map_err(CaptureError::system(&interface.name, action))?;
    Ok(AttachedProgram::new(program, hook, copy, interface)?)
}
