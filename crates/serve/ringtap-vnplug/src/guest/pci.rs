// SPDX-License-Identifier: MIT OR Apache-2.0
//! Finds and maps the PCI devices behind which the host's memory lies, by sysfs.
#![forbid(unsafe_code)]

use std::fs::{self, File, OpenOptions};
use std::io;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use ringtap_ipc::mapping::{Access, Mapping};
use ringtap_pool::number::to_u64;
use rustix::fs::{FlockOperation, flock};
use rustix::io::Errno;

use super::processor::can_share_devices;
use crate::device::{DeviceHeader, DeviceKind, HEADER_BYTES, MappingKind, SharedId};

const DEVICES: &str = "/sys/bus/pci/devices";
/// Makes the kernel look for a device's driver; only root may write it.
pub(super) const BINDER: &str = "/sys/bus/pci/drivers_probe";
/// Vendor and device number of QEMU's ivshmem devices.
const IVSHMEM: (&str, &str) = ("0x1af4", "0x1110");
/// The index of the BAR that holds the memory.
pub(super) const MEMORY_BAR: u32 = 2;
/// All memory of the machine.
const MEMORY: &str = "/dev/mem";
/// Only from here on does `/dev/mem` map a BAR cached as ordinary memory.
const FOUR_GIB: u64 = 1 << 32;

/// Lets one agent at a time look at the devices: it takes devices from drivers, also one that another agent gives to
/// vfio at that moment.
pub(super) struct DeviceLock {
    /// Absent: this user may not write the file, and so takes no device from a driver.
    _binder: Option<File>,
}

impl DeviceLock {
    /// `None` while another agent has it. Only root, or a user of root's choice, can take it.
    pub(super) fn take() -> Option<Self> {
        match OpenOptions::new().write(true).open(BINDER) {
            Ok(file) => {
                let taken = flock(&file, FlockOperation::NonBlockingLockExclusive);
                let _binder = Some(file);
                taken.is_ok().then_some(DeviceLock { _binder })
            }
            Err(_) => Some(DeviceLock { _binder: None }),
        }
    }
}

/// A PCI device with the memory of a shared device.
pub(super) struct PciDevice {
    /// Its folder in sysfs.
    pub(super) folder: PathBuf,
    pub(super) header: DeviceHeader,
}

impl PciDevice {
    /// The PCI device with the memory of a shared device. Devices that a process uses by vfio, of this or another
    /// application, stay with that process.
    pub(super) fn find(device: SharedId, _lock: &DeviceLock) -> io::Result<Option<Self>> {
        for entry in fs::read_dir(DEVICES)? {
            let folder = entry?.path();
            if !is_ivshmem(&folder) || is_used_by_vfio(&folder) {
                continue;
            }
            // A device that is being unplugged fails in any of the steps.
            let Ok(mapping) = first_page(&folder) else {
                continue;
            };
            let header = DeviceHeader::read(&mapping);
            if let Some(header) = header.filter(|header| header.device == device) {
                return Ok(Some(PciDevice { folder, header }));
            }
        }
        Ok(None)
    }

    /// Bytes to map: header and memory, in whole pages.
    pub(super) fn mapped_bytes(&self) -> io::Result<usize> {
        let (start, end) = bar(&self.folder)?;
        let whole = self.header.bytes.checked_add(to_u64(HEADER_BYTES));
        let bytes = whole.and_then(|bytes| bytes.checked_next_multiple_of(4096));
        let bytes = bytes.filter(|bytes| *bytes <= end.saturating_sub(start).saturating_add(1));
        bytes
            .and_then(|bytes| usize::try_from(bytes).ok())
            .ok_or_else(|| io::Error::other("the header says more than the device has"))
    }

    pub(super) fn access(&self) -> Access {
        match self.header.kind {
            DeviceKind::Bulk => Access::Read,
            DeviceKind::Control { .. } => Access::ReadWrite,
        }
    }

    /// Maps the memory without vfio, the fastest way that works; with the file, and the offset of the application's
    /// memory in it.
    pub(super) fn map(&self) -> io::Result<(Arc<Mapping>, MappingKind, (OwnedFd, u64))> {
        let bytes = self.mapped_bytes()?;
        let (start, _) = bar(&self.folder)?;
        let (file_of, access) = (|name: &str| self.folder.join(name), self.access());
        let mut ways = vec![
            (file_of("resource2_wc"), 0, MappingKind::WriteCombining),
            (file_of("resource2"), 0, MappingKind::Uncached),
        ];
        if start >= FOUR_GIB {
            let memory = (PathBuf::from(MEMORY), start, MappingKind::WriteBack);
            // One cached mapping makes the kernel refuse all others.
            let at = if can_share_devices() { ways.len() } else { 0 };
            ways.insert(at, memory);
        }
        let mut failure = io::Error::from(io::ErrorKind::NotFound);
        for (path, offset, kind) in ways {
            let mapped = open(&path, access).and_then(|file| {
                let mapping = Mapping::at(&file, offset, bytes, access)?;
                Ok((Arc::new(mapping), OwnedFd::from(file)))
            });
            match mapped {
                Ok((mapping, file)) if self.header.is_at(&mapping) => {
                    let offset = offset + to_u64(HEADER_BYTES);
                    return Ok((mapping, kind, (file, offset)));
                }
                Ok(_) => {}
                Err(error) => failure = error,
            }
        }
        Err(failure)
    }

    /// Maps the registers of the doorbell without vfio.
    pub(super) fn map_registers(&self) -> io::Result<Arc<Mapping>> {
        let file = open(&self.folder.join("resource0"), Access::ReadWrite)?;
        Mapping::new(file, 4096, Access::ReadWrite).map(Arc::new)
    }
}

/// First and last address of the BAR with a device's memory.
fn bar(folder: &Path) -> io::Result<(u64, u64)> {
    let lines = fs::read_to_string(folder.join("resource"))?;
    let mut numbers = lines.lines().nth(2).unwrap_or_default().split_whitespace();
    let mut next = || {
        let digits = numbers.next()?.strip_prefix("0x")?;
        u64::from_str_radix(digits, 16).ok()
    };
    let bar = next().zip(next());
    bar.filter(|(start, _)| *start > 0)
        .ok_or_else(|| io::Error::other("the guest's kernel has found no address for the device"))
}

/// Whether a process has the device's vfio group open, which only one can.
fn is_used_by_vfio(folder: &Path) -> bool {
    let group = fs::read_link(folder.join("iommu_group"));
    let name = group
        .ok()
        .and_then(|group| Some(group.file_name()?.to_owned()));
    let opened = name.map(|name| open(&Path::new("/dev/vfio").join(name), Access::ReadWrite));
    opened.is_some_and(|opened| {
        opened.is_err_and(|error| error.raw_os_error() == Some(Errno::BUSY.raw_os_error()))
    })
}

fn is_ivshmem(folder: &Path) -> bool {
    let has = |name: &str, value: &str| {
        fs::read_to_string(folder.join(name)).is_ok_and(|text| text.trim() == value)
    };
    has("vendor", IVSHMEM.0) && has("device", IVSHMEM.1)
}

/// Maps the first page, for which no driver may have the device: vfio keeps it from an agent that ended.
fn first_page(folder: &Path) -> io::Result<Arc<Mapping>> {
    let address = folder.file_name().unwrap_or_default().as_encoded_bytes();
    if folder.join("driver").exists() {
        fs::write(folder.join("driver_override"), "\n")?;
        fs::write(folder.join("driver/unbind"), address)?;
    }
    fs::write(folder.join("enable"), "1")?;
    let map =
        |path: &Path, at| Mapping::at(open(path, Access::Read)?, at, HEADER_BYTES, Access::Read);
    let (start, _) = bar(folder)?;
    // As an agent has it mapped that uses it: the kernel refuses, and logs, another kind of mapping beside a cached one.
    let cached = if start >= FOUR_GIB && !can_share_devices() {
        map(Path::new(MEMORY), start)
    } else {
        Err(io::ErrorKind::Unsupported.into())
    };
    let mapping = cached.or_else(|_| map(&folder.join("resource2"), 0))?;
    Ok(Arc::new(mapping))
}

fn open(path: &Path, access: Access) -> io::Result<File> {
    let is_writable = access == Access::ReadWrite;
    OpenOptions::new().read(true).write(is_writable).open(path)
}
