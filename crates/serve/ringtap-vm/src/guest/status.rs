// SPDX-License-Identifier: MIT OR Apache-2.0
//! The agent's description of itself, a file for `ringtap guest --status`, and a sign that the agent runs.

use std::fmt::Write as _;
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixDatagram;
use std::path::Path;

use ringtap_ipc::folder::{Folder, SocketFile};
use ringtap_vnplug::device::{DeviceKind, MappingKind};
use ringtap_vnplug::guest::{GuestDevice, can_share_devices};
use rustix::net::{AddressFamily, Shutdown, SocketFlags, SocketType, shutdown, socket_with};

use super::agent::HostProcess;
use super::group::HostGroup;

/// Name of the file in the agent's folder.
pub const STATUS_FILE: &str = "status";
/// Name of the agent's socket, to which nobody can send.
const PRESENCE: &str = "agent";

/// A socket that shows that the agent runs: it ends with the process, also by `kill -9`.
pub(super) struct AgentPresence {
    _socket: OwnedFd,
    _file: SocketFile,
}

impl AgentPresence {
    /// Takes the place of an agent that has ended.
    pub(super) fn new(folder: &Path) -> io::Result<Self> {
        let folder = Folder::open(folder)?;
        let _absent = folder.remove(PRESENCE);
        let (family, flags) = (AddressFamily::UNIX, SocketFlags::CLOEXEC);
        let socket = socket_with(family, SocketType::DGRAM, flags, None)?;
        shutdown(&socket, Shutdown::Read)?;
        // Every user may see whether the agent runs.
        let file = SocketFile::bind(folder, PRESENCE.as_ref(), &socket, 0o666, None)?;
        Ok(AgentPresence {
            _socket: socket,
            _file: file,
        })
    }
}

/// Whether an agent serves this folder.
#[must_use]
pub fn is_agent_running(folder: &Path) -> bool {
    let socket = UnixDatagram::unbound();
    socket.is_ok_and(|socket| socket.connect(folder.join(PRESENCE)).is_ok())
}

/// Writes the description into the agent's folder.
pub(super) fn write_status<'a>(
    folder: &Path,
    host: Option<&HostProcess>,
    groups: impl Iterator<Item = &'a HostGroup>,
) -> io::Result<()> {
    let mut text = String::from(match host {
        Some(host) if host.is_welcome => "host: attached\n",
        _ => "host: not attached: on the host, `ringtap vm attach`\n",
    });
    for device in host.iter().flat_map(|host| host.devices.values()) {
        text += &describe(device);
    }
    for group in groups {
        let (name, devices) = (&group.granted.name, group.granted.devices.join(", "));
        let state = match (group.trouble(), group.is_subscribed()) {
            (Some(reason), _) => &format!("read, but no packets come: {reason}"),
            (None, true) => "read",
            (None, false) => "not read",
        };
        // Writing to a string does not fail.
        let _ok = writeln!(text, "host:{name}: {devices}: {state}");
    }
    Folder::open(folder)?.replace(STATUS_FILE, text.as_bytes())
}

fn describe(device: &GuestDevice) -> String {
    let mapping = match device.mapping {
        MappingKind::WriteBack => "cached (/dev/mem), and copied for readers",
        MappingKind::WriteCombining if can_share_devices() => "resource2_wc, as readers map it",
        MappingKind::Uncached if can_share_devices() => "resource2, as readers map it",
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
