// SPDX-License-Identifier: MIT OR Apache-2.0
//! Attaches capture programs: selects hooks, falls back, and explains refusals.
//!
//! Invariants
//! - The next hook is tried only where the kernel refuses one, and a note says why.

use std::io;
use std::os::fd::{BorrowedFd, OwnedFd};

use libbpf_rs::ErrorKind;
use ringtap_device::Mode;
use ringtap_net::interface::Interface;
use ringtap_net::kernel::{self, Feature};
use ringtap_net::netlink::{XdpFeatures, xdp_features};
use ringtap_net::rights::{Purpose, Rights};

use crate::BpfError;
use crate::conflict::another_program;
use crate::link::Hook;
use crate::object::LoadFailure;
use crate::refusal::Refusals;

/// Whether a program has a variant for traffic control.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Variants {
    /// For XDP and traffic control.
    XdpAndTc,
    /// For XDP only.
    Xdp,
}

/// Whether a program may be bound to its interface, which lets it read what the NIC knows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Binding {
    /// It may.
    ToInterface,
    /// It must be: it reads the NIC's time stamps.
    Required,
    /// It must also attach to the interface that replaces this one.
    Free,
}

/// Hooks to try on an interface, best first; appends messages for the user to `notes`.
pub fn hooks(
    mode: Mode,
    variants: Variants,
    binding: Binding,
    interface: &Interface,
    notes: &mut Vec<String>,
) -> Vec<Hook> {
    let name = &interface.name;
    let features = xdp_features(interface.index);
    let tells_vlan = binding != Binding::Free && features.is_some_and(XdpFeatures::tells_vlan);
    let native = if tells_vlan || binding == Binding::Required {
        Hook::NativeBound
    } else {
        Hook::Native
    };
    // A veth passes a tag beside the packet, whatever `rxvlan` says.
    let is_veth = interface.kind.as_deref() == Some("veth");
    let strips = interface.offloads.rx_vlan == Some(true) || is_veth;
    let advice = if is_veth {
        "mode=tc".to_owned()
    } else {
        format!("`ethtool -K {name} rxvlan off`, then start again")
    };
    let mut fallbacks = match variants {
        Variants::XdpAndTc => vec![Hook::Tc, Hook::Generic],
        Variants::Xdp => vec![Hook::Generic],
    };
    let next = fallbacks[0].words();
    let hooks = match mode {
        _ if binding == Binding::Required => vec![native],
        Mode::Native => vec![native],
        Mode::Generic => vec![Hook::Generic],
        Mode::Tc => vec![Hook::Tc],
        Mode::Auto if features.is_some_and(|features| !features.native()) => {
            notes.push(format!(
                "{name}: the driver has no native XDP; falling back to {next}"
            ));
            fallbacks
        }
        Mode::Auto if strips && !tells_vlan && variants == Variants::XdpAndTc => {
            let faster = if is_veth {
                String::new()
            } else {
                format!(" (faster: {advice})")
            };
            notes.push(format!(
                "{name}: VLAN tags are beside the packets, where this program cannot read them; \
                 falling back to {next}{faster}"
            ));
            fallbacks.insert(1, native);
            fallbacks
        }
        Mode::Auto => {
            fallbacks.insert(0, native);
            fallbacks
        }
    };
    let reads_tags = match hooks[0] {
        Hook::NativeBound => tells_vlan,
        hook => hook == Hook::Tc,
    };
    if strips && !reads_tags {
        notes.push(format!(
            "{name}: VLAN tags are stripped before {} can see them; to see them: {advice}",
            hooks[0].words()
        ));
    }
    hooks
}

/// Attaches a loaded program to arriving packets.
///
/// # Errors
///
/// - [`BpfError::AnotherProgram`], [`BpfError::TooOld`], [`BpfError::Interface`]
/// - [`BpfError::Refused`] with the kernel's own words, where it has some.
pub fn attach(
    program: BorrowedFd<'_>,
    hook: Hook,
    interface: &Interface,
) -> Result<OwnedFd, BpfError> {
    let attach = || hook.attach(program, interface.index);
    let error = match attach() {
        Ok(link) => return Ok(link),
        Err(error) => error,
    };
    if !hook.is_xdp() {
        return Err(refused(&error, hook, None, interface));
    }
    if matches!(error.raw_os_error(), Some(libc::EBUSY | libc::EEXIST))
        && let Some(error) = another_program(interface)
    {
        return Err(error);
    }
    // Repeat the call and record the reason.
    let refusals = Refusals::record();
    attach().map_err(|error| {
        let reason = refusals.and_then(|refusals| refusals.last());
        refused(&error, hook, reason, interface)
    })
}

/// Checks that this process has the capabilities for a purpose.
pub fn require_rights(interface: &str, purpose: Purpose) -> Result<(), BpfError> {
    let rights = Rights::current().require(purpose);
    rights.map_err(|reason| BpfError::NoRights {
        interface: interface.to_owned(),
        reason,
    })
}

/// The error for a program that was not attached.
pub fn refused(
    error: &io::Error,
    hook: Hook,
    reason: Option<String>,
    interface: &Interface,
) -> BpfError {
    let name = interface.name.clone();
    if error.raw_os_error() == Some(libc::ENODEV) {
        return interface.removed().into();
    }
    match kernel::require(Feature::Tcx) {
        Err(reason) if hook == Hook::Tc => BpfError::TooOld {
            interface: name,
            reason,
        },
        _ => BpfError::Refused {
            interface: name,
            mode: hook.words(),
            reason: reason.unwrap_or_else(|| too_few_queues(error, hook, &interface.name)),
        },
    }
}

/// The system's words for an error, with an explanation where a driver ran out of queues. The driver's own words are
/// better, but a container that cannot read the kernel's tracing does not get them.
fn too_few_queues(error: &io::Error, hook: Hook, interface: &str) -> String {
    let of_driver = matches!(hook, Hook::Native | Hook::NativeBound);
    if of_driver && error.raw_os_error() == Some(libc::ENOSPC) {
        return format!(
            "{error}: the driver has too few queues; a veth needs as many receive queues as its peer has to send \
             (ethtool -L {interface} rx NUMBER)"
        );
    }
    error.to_string()
}

/// The error for an object that was not loaded; `pool_bytes` is the size of its maps.
pub fn not_loaded(
    failure: &LoadFailure,
    interface: &str,
    purpose: Purpose,
    pool_bytes: u64,
) -> BpfError {
    let interface = interface.to_owned();
    match failure.error.kind() {
        ErrorKind::OutOfMemory => {
            return BpfError::NoMemory {
                interface,
                pool_bytes,
            };
        }
        ErrorKind::PermissionDenied => {
            if let Err(error) = require_rights(&interface, purpose) {
                return error;
            }
        }
        _ => {}
    }
    let needs = [
        Feature::MappedMaps,
        Feature::XdpMultiBuffer,
        Feature::TaiClock,
    ];
    match needs.into_iter().try_for_each(kernel::require) {
        Err(reason) => BpfError::TooOld { interface, reason },
        Ok(()) => BpfError::Load {
            interface,
            log: failure.to_string(),
        },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_driver_without_queues_is_told_apart_from_a_full_disk() {
        let full = io::Error::from_raw_os_error(libc::ENOSPC);
        let native = too_few_queues(&full, Hook::Native, "vb");
        assert!(native.ends_with("(ethtool -L vb rx NUMBER)"), "{native}");
        assert!(!too_few_queues(&full, Hook::Generic, "vb").contains("ethtool"));
        let other = io::Error::from_raw_os_error(libc::EOPNOTSUPP);
        assert_eq!(
            too_few_queues(&other, Hook::Native, "vb"),
            other.to_string()
        );
    }
}
