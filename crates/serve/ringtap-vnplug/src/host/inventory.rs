// SPDX-License-Identifier: MIT OR Apache-2.0
//! Hot-plug ports of a virtual machine, and devices that an earlier host process left plugged.
#![forbid(unsafe_code)]

use std::time::{Duration, Instant};

use serde_json::{Value, json};

use super::owner::{self, CharacterDevices, HotPlugTurn, ObjectNames, Removal, Removed};
use super::qmp::{Qmp, QmpError};
use super::vm::VmError;

/// The oldest QEMU that was tried: older ones are refused.
const OLDEST_QEMU: (u64, u64) = (7, 2);
/// Bytes that a guest's firmware reserves behind a hot-plug port whose `pref64-reserve` is not set.
const RESERVED_BY_DEFAULT: u64 = 2 * 1024 * 1024;
/// Interval between two looks for the end of an unplug.
const LOOK: Duration = Duration::from_millis(50);
/// Interval after which an unplug that the guest did not carry out is asked for again. Each request can make the
/// guest's kernel eject what is in the slot, also what is plugged there later: so there is one request at a time.
pub(super) const ASK_AGAIN: Duration = Duration::from_secs(5);

const PERIPHERAL: &str = "/machine/peripheral";

/// Names and types of the objects below a path.
fn list(qmp: &mut Qmp, path: &str) -> Result<Vec<(String, String)>, QmpError> {
    let found = qmp.run("qom-list", json!({ "path": path }))?;
    let text = |one: &Value, key| one.get(key).and_then(Value::as_str).map(str::to_owned);
    let pairs = found.as_array().into_iter().flatten();
    Ok(pairs
        .filter_map(|one| Some((text(one, "name")?, text(one, "type")?)))
        .collect())
}

/// Names of the devices that were plugged.
pub(super) fn devices(qmp: &mut Qmp) -> Result<Vec<String>, QmpError> {
    let all = list(qmp, PERIPHERAL)?;
    Ok(all.into_iter().map(|(name, _)| name).collect())
}

/// Refuses a QEMU that might end on what this crate asks.
pub(super) fn check_version(qmp: &Qmp) -> Result<(), VmError> {
    if qmp.version < OLDEST_QEMU {
        Err(VmError::TooOld(qmp.version.0, qmp.version.1))
    } else {
        Ok(())
    }
}

/// Refuses a machine in which a device cannot be plugged at all.
pub(super) fn check(qmp: &mut Qmp) -> Result<(), VmError> {
    check_version(qmp)?;
    match state(qmp)? {
        state if state == "running" => Ok(()),
        state => Err(VmError::NotRunning(state)),
    }
}

/// Whether KVM runs the machine, so that the kernel relays interrupts.
pub(super) fn has_kvm(qmp: &mut Qmp) -> Result<bool, QmpError> {
    let kvm = qmp.run("query-kvm", json!({}))?;
    Ok(kvm.get("enabled").and_then(Value::as_bool) == Some(true))
}

/// The state of the machine, in QEMU's words.
pub(super) fn state(qmp: &mut Qmp) -> Result<String, QmpError> {
    let status = qmp.run("query-status", json!({}))?;
    let state = status.get("status").and_then(Value::as_str);
    Ok(state.unwrap_or("unknown").to_owned())
}

/// The name of the free root port with the smallest window that holds `bytes`.
pub(super) fn free_port(qmp: &mut Qmp, bytes: u64) -> Result<String, VmError> {
    let mut free = Vec::new();
    for (name, kind) in list(qmp, PERIPHERAL)? {
        if kind != "child<pcie-root-port>" {
            continue;
        }
        let path = format!("{PERIPHERAL}/{name}");
        let devices = list(qmp, &format!("{path}/{name}"))?;
        if devices.iter().any(|(name, _)| name.starts_with("child[")) {
            continue;
        }
        let property = |qmp: &mut Qmp, property| {
            let arguments = json!({ "path": path, "property": property });
            qmp.run("qom-get", arguments)
        };
        if property(qmp, "hotplug")?.as_bool() == Some(false) {
            continue;
        }
        let reserve = property(qmp, "pref64-reserve")?.as_u64();
        // Not set: all bits are set.
        let window = reserve.filter(|bytes| *bytes < u64::MAX);
        free.push((window.unwrap_or(RESERVED_BY_DEFAULT), name));
    }
    free.sort();
    let largest = free.last().map(|(window, _)| *window);
    let fits = free.into_iter().find(|(window, _)| *window >= bytes);
    match (fits, largest) {
        (Some((_, name)), _) => Ok(name),
        (None, Some(largest)) => Err(VmError::NoWindow { bytes, largest }),
        (None, None) => Err(VmError::NoPort),
    }
}

/// Asks QEMU to unplug a device; returns `false` if it is gone already.
pub(super) fn unplug(qmp: &mut Qmp, name: &str) -> Result<bool, QmpError> {
    match qmp.run("device_del", json!({ "id": name })) {
        Ok(_) => Ok(true),
        // It is gone, or was asked for before.
        Err(QmpError::Refused { .. }) => Ok(devices(qmp)?.iter().any(|one| one == name)),
        Err(error) => Err(error),
    }
}

/// Waits until the guest uses no device of ended processes of the application, at most for `limit`. Memory that is
/// taken away under a program in the guest reads as zeros.
pub(super) fn wait_for_release(
    qmp: &mut Qmp,
    names: &ObjectNames,
    limit: Duration,
) -> Result<(), QmpError> {
    let deadline = Instant::now() + limit;
    while CharacterDevices::list(qmp)?.has_agent_of_ended(names) && Instant::now() < deadline {
        std::thread::sleep(LOOK);
    }
    Ok(())
}

/// Unplugs what processes of the application left, one device after the other, so that its memory and its ports are
/// free again. Only for the owner of the application.
///
/// # Errors
///
/// [`VmError::Held`] names what the guest has not let go within `limit`.
pub(super) fn remove_all(
    qmp: &mut Qmp,
    names: &ObjectNames,
    turn: &mut HotPlugTurn,
    what: Removed,
    limit: Duration,
) -> Result<(), VmError> {
    let is_removed = |name: &str| {
        if names.is_own(name) {
            what == Removed::All
        } else {
            names.is_of_application(name)
        }
    };
    let deadline = Instant::now() + limit;
    let mut asked: Option<(String, Instant)> = None;
    loop {
        let mut left = devices(qmp)?;
        left.retain(|name| is_removed(name));
        left.sort();
        let is_asked =
            |(of, at): &(String, Instant)| left.first() == Some(of) && at.elapsed() < ASK_AGAIN;
        if !asked.as_ref().is_some_and(is_asked) {
            turn.end(qmp, names)?;
            asked = None;
        }
        let Some(name) = left.first() else {
            break;
        };
        if Instant::now() > deadline {
            turn.end(qmp, names)?;
            return Err(VmError::Held(left.join(", ")));
        }
        if asked.is_none() {
            turn.wait(qmp, names)?;
            unplug(qmp, name)?;
            asked = Some((name.clone(), Instant::now()));
        }
        std::thread::sleep(LOOK);
    }
    let objects = list(qmp, "/objects")?;
    for (name, _) in objects.iter().filter(|(name, _)| is_removed(name)) {
        qmp.run("object-del", json!({ "id": name }))?;
    }
    let sockets = CharacterDevices::list(qmp)?;
    for name in sockets.removed(names, what) {
        remove_socket(qmp, name, deadline)?;
    }
    Ok(())
}

/// Removes the socket behind a device that is unplugged. QEMU may use it for a moment longer than it lists the device.
fn remove_socket(qmp: &mut Qmp, name: &str, deadline: Instant) -> Result<(), QmpError> {
    loop {
        match owner::remove(qmp, name)? {
            Removal::InUse if Instant::now() < deadline => std::thread::sleep(LOOK),
            Removal::InUse | Removal::Gone => return Ok(()),
        }
    }
}
