// SPDX-License-Identifier: MIT OR Apache-2.0
//! The host's end of a device: its memory and its signals to the guest.
//!
//! Invariants
//! - No process can change the size of a device's memory. No process, QEMU included, can map the memory
//!   of a [`DeviceKind::Bulk`] writable, except for the mapping made here.
#![forbid(unsafe_code)]

use std::io;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Acquire, Ordering::Relaxed, Ordering::Release};

use ringtap_ipc::event::Event;
use ringtap_ipc::mapping::{Access, Mapping};
use ringtap_pool::wake::Signal as _;
use rustix::fs::{MemfdFlags, SealFlags, fcntl_add_seals, ftruncate, memfd_create};

use crate::ctrl::message::ApplicationId;
use crate::device::{
    ApplicationMemory, DeviceHeader, DeviceKind, HEADER_BYTES, MAX_VECTORS, SharedId,
};

use super::VmError;

/// The host's end of a plugged device; clones are the same device.
#[derive(Clone)]
pub struct HostDevice {
    memory: ApplicationMemory,
    /// Bit per vector that the guest is to be signalled on.
    pending: Arc<AtomicU64>,
    wake: Event,
}

impl HostDevice {
    /// The device's number.
    #[must_use]
    pub fn id(&self) -> SharedId {
        self.memory.header().device
    }

    /// The application that the device is for.
    #[must_use]
    pub fn application(&self) -> ApplicationId {
        self.memory.header().application
    }

    /// Purpose of the device.
    #[must_use]
    pub fn kind(&self) -> DeviceKind {
        self.memory.header().kind
    }

    /// The application's memory, which the host may write.
    #[must_use]
    pub fn memory(&self) -> &ApplicationMemory {
        &self.memory
    }

    /// Signals the guest, from any thread and without waiting. Signals on one vector that the guest has
    /// not noticed yet become one. A signal before the guest has mapped the device arrives after that.
    pub fn signal(&self, vector: u16) {
        if vector < self.kind().vectors() {
            // Pairs with the load in `take_pending`: what was stored before is visible to that thread.
            let before = self.pending.fetch_or(1 << vector, Release);
            if before == 0 {
                self.wake.signal();
            }
        }
    }

    /// The vectors to signal now, as bits.
    pub(super) fn take_pending(&self) -> u64 {
        // Pairs with the change in `signal`.
        self.pending.swap(0, Acquire)
    }

    /// Returns a vector that could not be signalled.
    pub(super) fn keep_pending(&self, bits: u64) {
        self.pending.fetch_or(bits, Relaxed);
    }
}

/// The size of the memory for a device with `bytes` bytes for an application: a power of two, as QEMU
/// aborts on any other size.
pub(super) fn size_of(kind: DeviceKind, bytes: u64) -> Result<u64, VmError> {
    if let DeviceKind::Control { vectors } = kind
        && !(1..=MAX_VECTORS).contains(&vectors)
    {
        return Err(VmError::Vectors(vectors));
    }
    let whole = bytes
        .checked_add(HEADER_BYTES as u64)
        .and_then(u64::checked_next_power_of_two);
    whole.filter(|_| bytes > 0).ok_or(VmError::Size(bytes))
}

/// Makes a device's memory of `size` bytes; returns the descriptor for QEMU as well.
pub(super) fn make(
    header: DeviceHeader,
    size: u64,
    wake: Event,
) -> io::Result<(HostDevice, OwnedFd)> {
    let bytes = usize::try_from(size).map_err(|_| io::ErrorKind::OutOfMemory)?;
    let flags = MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING;
    let file = memfd_create("ringtap-vnplug", flags)?;
    ftruncate(&file, size)?;
    let mapping = Arc::new(Mapping::new(&file, bytes, Access::ReadWrite)?);
    header.write(&mapping).ok_or(io::ErrorKind::InvalidInput)?;
    let mut seals = SealFlags::GROW | SealFlags::SHRINK | SealFlags::SEAL;
    if header.kind == DeviceKind::Bulk {
        seals |= SealFlags::FUTURE_WRITE;
    }
    fcntl_add_seals(&file, seals)?;
    let device = HostDevice {
        memory: ApplicationMemory::new(mapping, header),
        pending: Arc::default(),
        wake,
    };
    Ok((device, file))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn device(kind: DeviceKind) -> (HostDevice, OwnedFd) {
        let header = DeviceHeader {
            device: SharedId(7),
            application: 3,
            kind,
            bytes: 4096,
        };
        make(header, 8192, Event::new().unwrap()).unwrap()
    }

    #[test]
    fn every_size_is_a_power_of_two_and_others_are_refused() {
        let bulk = DeviceKind::Bulk;
        for bytes in [1, 4096, 4097, 100_000, (1 << 20) - 4096] {
            let size = size_of(bulk, bytes).unwrap();
            assert!(size.is_power_of_two() && size >= bytes + 4096, "{bytes}");
        }
        for bytes in [0, u64::MAX - 4096, u64::MAX] {
            let refused = size_of(bulk, bytes);
            assert!(matches!(refused, Err(VmError::Size(_))), "{bytes}");
        }
        for vectors in [0, 65] {
            let refused = size_of(DeviceKind::Control { vectors }, 1);
            assert!(matches!(refused, Err(VmError::Vectors(_))));
        }
    }

    #[test]
    fn nobody_else_can_write_bulk_memory_or_cut_any() {
        let (bulk, file) = device(DeviceKind::Bulk);
        assert!(Mapping::new(&file, 8192, Access::ReadWrite).is_err());
        assert!(Mapping::new(&file, 8192, Access::Read).is_ok());
        assert!(rustix::io::pwrite(&file, &[1], 4096).is_err());
        assert!(ftruncate(&file, 4096).is_err());
        bulk.memory().words::<AtomicU64>(0, 1).unwrap()[0].store(9, Relaxed);
        assert_eq!(bulk.memory().device(), Some(SharedId(7)));
        let (_control, file) = device(DeviceKind::Control { vectors: 2 });
        assert!(Mapping::new(&file, 8192, Access::ReadWrite).is_ok());
        assert!(ftruncate(&file, 4096).is_err());
    }

    #[test]
    fn the_applications_memory_excludes_the_header_and_the_rest_of_the_device() {
        let (device, _file) = device(DeviceKind::Bulk);
        let has = |at, count| device.memory().words::<AtomicU64>(at, count).is_some();
        assert!(has(0, 512) && has(4088, 1));
        let part = |at, bytes| device.memory().part(at, bytes).is_some();
        assert!(part(0, 4096) && part(4088, 8));
        assert!(!part(4088, 16) && !part(4, 8) && !part(usize::MAX - 7, 16));
        assert!(!has(4088, 2) && !has(4, 1) && !has(usize::MAX - 7, 1) && !has(0, usize::MAX / 4));
    }

    #[test]
    fn signals_are_kept_once_per_vector_until_they_are_taken() {
        let (device, _file) = device(DeviceKind::Control { vectors: 3 });
        for vector in [0, 2, 2, 3, 64] {
            device.signal(vector);
        }
        assert_eq!(device.take_pending(), 0b101);
        assert_eq!(device.take_pending(), 0);
    }
}
