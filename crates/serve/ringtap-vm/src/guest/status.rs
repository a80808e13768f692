// SPDX-License-Identifier: MIT OR Apache-2.0
//! The agent's description of itself, a file for `ringtap guest --status`.

use std::fmt::Write as _;
use std::io;
use std::path::Path;

use ringtap_ipc::folder::Folder;
use ringtap_vnplug::device::{DeviceKind, MappingKind};
use ringtap_vnplug::guest::GuestDevice;

use super::agent::HostProcess;
use super::group::HostGroup;

/// Name of the file in the agent's folder.
pub const STATUS_FILE: &str = "status";

/// Writes the description into the agent's folder.
pub(super) fn write_status<'a>(
    folder: &Path,
    host: Option<&HostProcess>,
    groups: impl Iterator<Item = &'a HostGroup>,
) -> io::Result<()> {
    let mut text = String::from(match host {
        Some(_) => "host: attached\n",
        None => "host: not attached: on the host, `ringtap vm attach`\n",
    });
    for device in host.iter().flat_map(|host| host.devices.values()) {
        text += &describe(device);
    }
    for group in groups {
        let (name, devices) = (&group.granted.name, group.granted.devices.join(", "));
        let state = match group.is_subscribed() {
            true => "read",
            false => "not read",
        };
        // Writing to a string does not fail.
        let _ok = writeln!(text, "host:{name}: {devices}: {state}");
    }
    Folder::open(folder)?.replace(STATUS_FILE, text.as_bytes())
}

fn describe(device: &GuestDevice) -> String {
    let mapping = match device.mapping {
        MappingKind::WriteBack => "cached (/dev/mem)",
        MappingKind::WriteCombining => {
            "write-combining, which is slow to read; faster: a pcie-root-port with pref64-reserve=4G \
             puts the device above 4 GiB"
        }
        MappingKind::Uncached => "uncached, unless the hypervisor caches it",
        MappingKind::Vfio => "vfio",
    };
    let header = device.memory.header();
    let bytes = header.bytes;
    match header.kind {
        DeviceKind::Bulk => format!("packets: {bytes} bytes, mapped {mapping}\n"),
        DeviceKind::Control { .. } => match &device.no_interrupts {
            None => format!("control: {bytes} bytes, mapped {mapping}, with interrupts\n"),
            Some(reason) => {
                format!("control: {bytes} bytes, mapped {mapping}, signals as messages: {reason}\n")
            }
        },
    }
}
