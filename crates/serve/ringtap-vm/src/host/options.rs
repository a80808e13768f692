// SPDX-License-Identifier: MIT OR Apache-2.0
//! The groups that a virtual machine is to get, and their memory.
#![forbid(unsafe_code)]

use std::io;
use std::path::PathBuf;

use ringtap_client::{ConnectError, Connection, ControlError};
use ringtap_pool::number::to_u64;
use ringtap_vnplug::device::HEADER_BYTES;
use ringtap_vnplug::host::{Monitor, VmError};

use super::granted_memory::GroupBytes;

/// Groups for a virtual machine.
#[derive(Clone, Debug)]
pub struct GroupOptions {
    /// Name of the virtual machine.
    pub vm: String,
    /// Where its QEMU takes commands.
    pub monitor: Monitor,
    /// Socket of the hub.
    pub socket: PathBuf,
    /// Groups that the guest may read.
    pub groups: Vec<String>,
    /// Bytes of the pool device, a power of two.
    pub memory_bytes: u64,
}

/// Why groups cannot be given to a guest.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum HostError {
    /// The hub cannot be asked.
    #[error(transparent)]
    Connect(#[from] ConnectError),
    /// The hub gives no status.
    #[error(transparent)]
    Control(#[from] ControlError),
    /// The hub has no such group.
    #[error("the hub has no group {group}: it has {}", .there.join(", "))]
    NoGroup {
        /// The group.
        group: String,
        /// The hub's groups.
        there: Vec<String>,
    },
    /// The memory has a size that no device has.
    #[error(
        "--memory {}: the size must be a power of two: use {} or {}",
        size(*bytes), size(below(*bytes)), size(below(*bytes) * 2)
    )]
    NoPowerOfTwo {
        /// The size asked for.
        bytes: u64,
    },
    /// The memory is too small for the groups.
    #[error(
        "{bytes} bytes of memory are too few for {groups} groups: use a larger --memory, a power of two"
    )]
    Memory {
        /// The size asked for.
        bytes: u64,
        /// Number of groups.
        groups: usize,
    },
    /// The virtual machine refuses.
    #[error(transparent)]
    Vm(#[from] VmError),
    /// A system call failed.
    #[error(transparent)]
    Io(#[from] io::Error),
}

impl GroupOptions {
    /// Checks what can be checked without the virtual machine.
    ///
    /// # Errors
    ///
    /// [`HostError::NoGroup`], [`HostError::Memory`], [`HostError::Connect`].
    pub fn check(&self) -> Result<(), HostError> {
        self.group_bytes()?;
        let status = Connection::open(&self.socket, &self.vm)?.status()?;
        let there: Vec<_> = status.groups.into_iter().map(|one| one.name).collect();
        match self.groups.iter().find(|group| !there.contains(group)) {
            None => Ok(()),
            Some(group) => Err(HostError::NoGroup {
                group: group.clone(),
                there,
            }),
        }
    }

    pub(super) fn count(&self) -> u64 {
        to_u64(self.groups.len())
    }

    /// Bytes for the application in the pool device.
    pub(super) fn pool_bytes(&self) -> u64 {
        self.memory_bytes.saturating_sub(to_u64(HEADER_BYTES))
    }

    pub(super) fn group_bytes(&self) -> Result<GroupBytes, HostError> {
        let bytes = self.memory_bytes;
        if !bytes.is_power_of_two() {
            return Err(HostError::NoPowerOfTwo { bytes });
        }
        let bytes_of_groups = GroupBytes::for_groups(self.pool_bytes(), self.count());
        bytes_of_groups.ok_or(HostError::Memory {
            bytes,
            groups: self.groups.len(),
        })
    }
}

/// The largest power of two below a size, at most half of the largest number.
fn below(bytes: u64) -> u64 {
    1 << bytes.max(1).ilog2().min(62)
}

/// A size as options have it.
fn size(bytes: u64) -> String {
    let units = [("GiB", 1 << 30), ("MiB", 1 << 20), ("KiB", 1 << 10)];
    let fits = |(_, unit): &(&str, u64)| bytes > 0 && bytes.is_multiple_of(*unit);
    let found = units.into_iter().find(fits);
    found.map_or_else(
        || bytes.to_string(),
        |(name, unit)| format!("{}{name}", bytes / unit),
    )
}
