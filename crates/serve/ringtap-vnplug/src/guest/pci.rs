// SPDX-License-Identifier: MIT OR Apache-2.0
//! Finds and maps the PCI devices behind which the host's memory lies, by sysfs.
#![forbid(unsafe_code)]

use std::fs::{self, File, OpenOptions};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use ringtap_ipc::mapping::{Access, Mapping};

use crate::ctrl::message::AnnouncedDevice;
use crate::device::{DeviceKind, HEADER_BYTES, KnownDevice, MappingKind};

const DEVICES: &str = "/sys/bus/pci/devices";
/// Vendor and device number of QEMU's ivshmem devices.
const IVSHMEM: (&str, &str) = ("0x1af4", "0x1110");
/// The index of the BAR that holds the memory.
pub(super) const MEMORY_BAR: u32 = 2;
/// Only from here on does `/dev/mem` map a BAR cached as ordinary memory.
const FOUR_GIB: u64 = 1 << 32;

/// A PCI device with the memory of a shared device.
pub(super) struct PciDevice {
    /// Its folder in sysfs.
    pub(super) folder: PathBuf,
    pub(super) known: KnownDevice,
}

impl PciDevice {
    /// The PCI device with the memory of an announced device, except for those in `used` folders.
    pub(super) fn find(device: &AnnouncedDevice, used: &[PathBuf]) -> io::Result<Option<Self>> {
        for entry in fs::read_dir(DEVICES)? {
            let folder = entry?.path();
            if !is_ivshmem(&folder) || used.contains(&folder) {
                continue;
            }
            // A device that is being unplugged fails in any of the steps.
            let Ok(mapping) = first_page(&folder) else {
                continue;
            };
            if let Some(known) = KnownDevice::find(device, &mapping) {
                return Ok(Some(PciDevice { folder, known }));
            }
        }
        Ok(None)
    }

    /// Bytes to map: header and memory, in whole pages.
    pub(super) fn mapped_bytes(&self) -> io::Result<usize> {
        let (start, end) = self.bar()?;
        let before = ringtap_pool::number::to_u64(self.known.start());
        let whole = self.known.header.bytes.checked_add(before);
        let bytes = whole.and_then(|bytes| bytes.checked_next_multiple_of(4096));
        let bytes = bytes.filter(|bytes| *bytes <= end.saturating_sub(start).saturating_add(1));
        bytes
            .and_then(|bytes| usize::try_from(bytes).ok())
            .ok_or_else(|| io::Error::other("the header says more than the device has"))
    }

    pub(super) fn access(&self) -> Access {
        match self.known.header.kind {
            DeviceKind::Bulk => Access::Read,
            DeviceKind::Control { .. } => Access::ReadWrite,
        }
    }

    /// Maps the memory without vfio, the fastest way that works.
    pub(super) fn map(&self) -> io::Result<(Arc<Mapping>, MappingKind)> {
        let bytes = self.mapped_bytes()?;
        let (start, _) = self.bar()?;
        let (file_of, access) = (|name: &str| self.folder.join(name), self.access());
        let mut ways = vec![
            (file_of("resource2_wc"), 0, MappingKind::WriteCombining),
            (file_of("resource2"), 0, MappingKind::Uncached),
        ];
        if start >= FOUR_GIB {
            let memory = (PathBuf::from("/dev/mem"), start, MappingKind::WriteBack);
            ways.insert(0, memory);
        }
        let mut failure = io::Error::from(io::ErrorKind::NotFound);
        for (path, offset, kind) in ways {
            let mapped = open(&path, access).and_then(|f| Mapping::at(f, offset, bytes, access));
            match mapped.map(Arc::new) {
                Ok(mapping) if self.known.is_at(&mapping) => return Ok((mapping, kind)),
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

    /// First and last address of the memory's BAR.
    fn bar(&self) -> io::Result<(u64, u64)> {
        let lines = fs::read_to_string(self.folder.join("resource"))?;
        let mut numbers = lines.lines().nth(2).unwrap_or_default().split_whitespace();
        let mut next = || {
            let digits = numbers.next()?.strip_prefix("0x")?;
            u64::from_str_radix(digits, 16).ok()
        };
        let bar = next().zip(next());
        bar.filter(|(start, _)| *start > 0).ok_or_else(|| {
            io::Error::other("the guest's kernel has found no address for the device")
        })
    }
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
    let file = open(&folder.join("resource2"), Access::Read)?;
    Mapping::new(file, HEADER_BYTES, Access::Read).map(Arc::new)
}

fn open(path: &Path, access: Access) -> io::Result<File> {
    let is_writable = access == Access::ReadWrite;
    OpenOptions::new().read(true).write(is_writable).open(path)
}
