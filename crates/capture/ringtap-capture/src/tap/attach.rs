// SPDX-License-Identifier: MIT OR Apache-2.0
//! From what the caller asks to an attached tap: which hook, which programs, what went wrong.
//!
//! Invariants
//! - A hook is left for the next one only where the kernel refuses it, and a note says why.
//! - Everything that packets need (pool, clock, stacks) is in place before a program is attached.
#![forbid(unsafe_code)]

use std::fs;
use std::io;
use std::os::fd::{AsFd, OwnedFd};

use ringtap_pool::format::MIN_CHUNK_SIZE;

use super::error::TapError;
use super::holder::{self, Refusals};
use super::hook::{self, Fitted, Hook, Program};
use super::object::Loaded;
use super::options::TapOptions;
use super::plan::Plan;
use ringtap_device::{Direction, Mode};
use ringtap_net::interface::Interface;
use ringtap_net::kernel::{self, Feature};
use ringtap_net::netlink::{XdpFeatures, xdp_features};

/// Chunks of a pool that no machine has the memory for.
const MOST_CHUNKS: u64 = 1 << 28;

/// Loaded programs, attached.
pub(super) struct Attached {
    pub(super) links: Vec<Fitted>,
    pub(super) loaded: Loaded,
    /// The program that forwards what XDP leaves to it.
    pub(super) forward_link: Option<OwnedFd>,
    /// Where packets are captured, in words.
    pub(super) hook: &'static str,
    /// What the user should know, a line each.
    pub(super) notes: Vec<String>,
}

/// Sizes for what `options` ask, on this machine.
///
/// # Errors
///
/// [`TapError::Queue`], [`TapError::NoMemory`], [`TapError::Sizes`], [`TapError::System`].
pub(super) fn plan(options: &TapOptions, largest_frame: u32) -> Result<Plan, TapError> {
    let interface = || options.interface.clone();
    if let Some(queue) = options.queues.iter().copied().find(|queue| *queue > 255) {
        return Err(TapError::Queue {
            interface: interface(),
            queue,
        });
    }
    if options.pool_bytes / u64::from(options.chunk_size.max(MIN_CHUNK_SIZE)) > MOST_CHUNKS {
        return Err(TapError::NoMemory {
            interface: interface(),
            pool_bytes: options.pool_bytes,
        });
    }
    let possible = libbpf_rs::num_possible_cpus().map_err(io::Error::other);
    let possible = possible.and_then(|cpus| u32::try_from(cpus).map_err(io::Error::other));
    let possible = possible.map_err(|source| TapError::System {
        interface: interface(),
        action: "counting CPUs",
        reason: source,
    })?;
    let lanes = online_cpus().unwrap_or(possible).min(possible);
    let plan = Plan::new(options, largest_frame, lanes, possible);
    plan.map_err(|source| TapError::Sizes {
        interface: interface(),
        reason: source,
    })
}

/// One more than the highest CPU that is online.
fn online_cpus() -> Option<u32> {
    let list = fs::read_to_string("/sys/devices/system/cpu/online").ok()?;
    let last = list.trim().rsplit([',', '-']).next()?;
    last.parse::<u32>().ok()?.checked_add(1)
}

/// Loads and attaches the programs for what `options` ask.
///
/// # Errors
///
/// Those of [`Loaded::new`], [`TapError::AnotherProgram`], [`TapError::Refused`],
/// [`TapError::TooOld`], [`TapError::Interface`].
pub(super) fn attach(
    options: &TapOptions,
    interface: &Interface,
    plan: &Plan,
) -> Result<Attached, TapError> {
    let mut notes = options.notes.clone();
    let direction = direction(options, interface, &mut notes);
    if !direction.arriving() {
        let loaded = Loaded::new(options, plan, interface.index, &[Program::TcTx])?;
        let links = vec![egress(&loaded, interface)?];
        return Ok(Attached {
            links,
            loaded,
            forward_link: None,
            hook: Hook::Tc.words(),
            notes,
        });
    }
    let hooks = hooks(
        options.mode,
        interface,
        xdp_features(interface.index),
        &mut notes,
    );
    // What generic XDP redirects nobody counts.
    let is_bridge = options.forward.is_some();
    let hooks: Vec<_> = hooks
        .into_iter()
        .filter(|hook| !is_bridge || *hook != Hook::Generic)
        .collect();
    if hooks.first().is_some_and(|hook| hook.is_xdp()) {
        holder::wait_for_another(interface, holder::is_ours)?;
    }
    for (at, hook) in hooks.iter().enumerate() {
        let mut programs = vec![hook.program()];
        programs.extend(direction.leaving().then_some(Program::TcTx));
        let needs_help = options.forward.is_some() && hook.is_xdp();
        programs.extend(needs_help.then_some(Program::TcForward));
        let loaded = Loaded::new(options, plan, interface.index, &programs)?;
        let link = match (ingress(*hook, &loaded, interface), hooks.get(at + 1)) {
            (Ok(link), _) => link,
            (Err(error), Some(next)) if next_may_do(&error) => {
                notes.push(format!("{error}; falling back to {}", next.words()));
                continue;
            }
            (Err(error), _) => return Err(error),
        };
        let mut links = vec![link];
        if direction.leaving() {
            links.push(egress(&loaded, interface)?);
        }
        let forward_link = match needs_help {
            true => Some(forwarding(&loaded, interface)?),
            false => None,
        };
        return Ok(Attached {
            links,
            loaded,
            forward_link,
            hook: hook.words(),
            notes,
        });
    }
    let reason = "there is no hook to try".to_owned();
    Err(TapError::Refused {
        interface: interface.name.clone(),
        mode: "any",
        reason,
    })
}

/// A loopback interface receives all that it sends: capturing both would show each packet twice.
fn direction(options: &TapOptions, interface: &Interface, notes: &mut Vec<String>) -> Direction {
    if interface.is_loopback && options.direction == Direction::InOut {
        notes.push(format!(
            "{}: every packet sent arrives again, so only arriving packets are captured",
            interface.name
        ));
        return Direction::In;
    }
    options.direction
}

/// The hooks to try, best first.
fn hooks(
    mode: Mode,
    interface: &Interface,
    features: Option<XdpFeatures>,
    notes: &mut Vec<String>,
) -> Vec<Hook> {
    let name = &interface.name;
    let tells_vlan = features.is_some_and(XdpFeatures::tells_vlan);
    let native = if tells_vlan {
        Hook::NativeVlan
    } else {
        Hook::Native
    };
    let strips = interface.offloads.rx_vlan == Some(true);
    let advice = format!("`ethtool -K {name} rxvlan off`, then start again");
    let forced = match mode {
        Mode::Auto => None,
        Mode::Native => Some(native),
        Mode::Generic => Some(Hook::Generic),
        Mode::Tc => Some(Hook::Tc),
    };
    if let Some(hook) = forced {
        if strips && matches!(hook, Hook::Native | Hook::Generic) {
            notes.push(format!(
                "{name}: VLAN tags are stripped before {} can see them; to see them: {advice}",
                hook.words()
            ));
        }
        return vec![hook];
    }
    let mut hooks = vec![Hook::Tc, Hook::Generic];
    if features.is_some_and(|features| !features.native()) {
        let next = Hook::Tc.words();
        notes.push(format!(
            "{name}: the driver has no native XDP; falling back to {next}"
        ));
    } else if strips && !tells_vlan {
        hooks.insert(1, native);
        notes.push(format!(
            "{name}: the NIC strips VLAN tags and cannot tell XDP which; falling back to {} \
             (faster: {advice})",
            Hook::Tc.words()
        ));
    } else {
        hooks.insert(0, native);
    }
    hooks
}

fn next_may_do(error: &TapError) -> bool {
    matches!(error, TapError::Refused { .. } | TapError::TooOld { .. })
}

fn ingress(hook: Hook, loaded: &Loaded, interface: &Interface) -> Result<Fitted, TapError> {
    let program = program(loaded, hook.program(), interface)?;
    let attach = || {
        let link = hook.attach(program.as_fd(), interface.index)?;
        Ok(Fitted {
            program: hook.program(),
            link,
            attached: program.try_clone()?,
        })
    };
    let error = match attach() {
        Ok(link) => return Ok(link),
        Err(error) => error,
    };
    if !hook.is_xdp() {
        return Err(refusal(&error, hook, None, interface));
    }
    if matches!(error.raw_os_error(), Some(libc::EBUSY | libc::EEXIST))
        && let Some(error) = holder::another_program(interface)
    {
        return Err(error);
    }
    // Once more, listening for the reason.
    let refusals = Refusals::listen();
    let error = match attach() {
        Ok(link) => return Ok(link),
        Err(error) => error,
    };
    let reason = refusals.and_then(|refusals| refusals.last());
    Err(refusal(&error, hook, reason, interface))
}

fn egress(loaded: &Loaded, interface: &Interface) -> Result<Fitted, TapError> {
    let program = program(loaded, Program::TcTx, interface)?;
    let link = hook::attach_egress(program.as_fd(), interface.index)
        .map_err(|error| refusal(&error, Hook::Tc, None, interface))?;
    Ok(Fitted {
        program: Program::TcTx,
        link,
        attached: program,
    })
}

fn forwarding(loaded: &Loaded, interface: &Interface) -> Result<OwnedFd, TapError> {
    let program = program(loaded, Program::TcForward, interface)?;
    Hook::Tc
        .attach(program.as_fd(), interface.index)
        .map_err(|error| refusal(&error, Hook::Tc, None, interface))
}

fn program(loaded: &Loaded, program: Program, interface: &Interface) -> Result<OwnedFd, TapError> {
    loaded.program(program).map_err(|source| TapError::System {
        interface: interface.name.clone(),
        action: "finding the loaded program",
        reason: source,
    })
}

fn refusal(
    error: &io::Error,
    hook: Hook,
    reason: Option<String>,
    interface: &Interface,
) -> TapError {
    let name = interface.name.clone();
    if error.raw_os_error() == Some(libc::ENODEV) {
        return interface.removed().into();
    }
    match kernel::require(Feature::Tcx) {
        Err(source) if hook == Hook::Tc => TapError::TooOld {
            interface: name,
            reason: source,
        },
        _ => TapError::Refused {
            interface: name,
            mode: hook.words(),
            reason: reason.unwrap_or_else(|| error.to_string()),
        },
    }
}
