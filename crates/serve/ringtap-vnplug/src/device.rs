// SPDX-License-Identifier: MIT OR Apache-2.0
//! Dev: what host and guest agree on about the memory of a device.
//!
//! The first page of each device is a header, so that a guest recognizes the device by its content:
//! PCI addresses differ between host and guest. The application's memory follows.
#![forbid(unsafe_code)]

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use ringtap_ipc::mapping::Mapping;
use ringtap_pool::memory::{Region, Words};
use ringtap_pool::number::to_usize;

use crate::ctrl::message::ApplicationId;

/// Bytes of the header, before the application's memory.
pub const HEADER_BYTES: usize = 4096;
/// Most events of a device in each direction: one bit each in a word of pending signals.
pub const MAX_VECTORS: u16 = 64;
/// Version of the header.
pub const HEADER_VERSION: u64 = 1;

/// "VNPLUG01" in memory.
const MAGIC: u64 = u64::from_le_bytes(*b"VNPLUG01");

/// Number of the host among the peers of a doorbell.
pub(crate) const HOST_PEER: u16 = 0;
/// Number of the guest among the peers of a doorbell.
pub(crate) const GUEST_PEER: u16 = 1;

/// The store by which a guest signals the host on a vector: place in the doorbell's registers, value.
pub(crate) fn doorbell_store(vector: u16) -> (u64, u32) {
    (12, u32::from(HOST_PEER) << 16 | u32::from(vector))
}

/// Number of a shared device, random and never used again: a device that is plugged later in the same
/// place has another one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct SharedId(pub u64);

/// Purpose of a device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DeviceKind {
    /// Memory that the guest can only read, for bulk data.
    Bulk,
    /// Memory that host and guest write, and this many events in each direction (at least one).
    Control {
        /// Events in each direction.
        vectors: u16,
    },
}

impl DeviceKind {
    /// Events in each direction.
    #[must_use]
    pub fn vectors(self) -> u16 {
        match self {
            DeviceKind::Bulk => 0,
            DeviceKind::Control { vectors } => vectors,
        }
    }
}

/// How the guest maps the memory of a device, the fastest first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum MappingKind {
    /// `/dev/mem`, cached as ordinary memory.
    WriteBack = 1,
    /// sysfs, with write-combining.
    WriteCombining = 2,
    /// sysfs, uncached unless the hypervisor overrides it.
    Uncached = 3,
    /// vfio, uncached unless the hypervisor overrides it; the device can interrupt.
    Vfio = 4,
}

impl MappingKind {
    /// The kind with this number in messages.
    #[must_use]
    pub fn from_number(number: u8) -> Option<Self> {
        let kinds = [
            MappingKind::WriteBack,
            MappingKind::WriteCombining,
            MappingKind::Uncached,
            MappingKind::Vfio,
        ];
        kinds.into_iter().find(|kind| *kind as u8 == number)
    }
}

/// The header of a device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DeviceHeader {
    /// The device's number.
    pub device: SharedId,
    /// The application that the memory is for.
    pub application: ApplicationId,
    /// Purpose of the device.
    pub kind: DeviceKind,
    /// Bytes of the application's memory.
    pub bytes: u64,
}

impl DeviceHeader {
    /// Writes the header into a device's memory; `None` if that is too small.
    pub(crate) fn write(&self, mapping: &Arc<Mapping>) -> Option<()> {
        let values = [
            MAGIC,
            HEADER_VERSION,
            self.device.0,
            u64::from(self.application),
            u64::from(self.kind.vectors()),
            self.bytes,
        ];
        let words: Words<AtomicU64> = mapping.words(0, values.len())?;
        for (word, value) in words.iter().zip(values) {
            word.store(value.to_le(), Relaxed);
        }
        Some(())
    }

    /// The header in a device's memory; `None` for the memory of anything else.
    pub(crate) fn read(mapping: &Arc<Mapping>) -> Option<Self> {
        let mut values = [0; 6];
        let words: Words<AtomicU64> = mapping.words(0, values.len())?;
        for (value, word) in values.iter_mut().zip(words.iter()) {
            *value = u64::from_le(word.load(Relaxed));
        }
        let [magic, version, device, application, vectors, bytes] = values;
        if magic != MAGIC || version != HEADER_VERSION {
            return None;
        }
        let vectors = u16::try_from(vectors).ok()?;
        Some(DeviceHeader {
            device: SharedId(device),
            application: ApplicationId::try_from(application).ok()?,
            kind: match vectors {
                0 => DeviceKind::Bulk,
                1..=MAX_VECTORS => DeviceKind::Control { vectors },
                _ => return None,
            },
            bytes,
        })
    }

    /// Whether the mapped memory is that of the device.
    pub(crate) fn is_at(&self, mapping: &Arc<Mapping>) -> bool {
        DeviceHeader::read(mapping) == Some(*self)
    }
}

/// The application's memory of a device, mapped in this process.
#[derive(Clone, Debug)]
pub struct ApplicationMemory {
    mapping: Arc<Mapping>,
    header: DeviceHeader,
}

impl ApplicationMemory {
    /// The memory of a mapped device.
    pub(crate) fn new(mapping: Arc<Mapping>, header: DeviceHeader) -> Self {
        ApplicationMemory { mapping, header }
    }

    /// The header of the device.
    #[must_use]
    pub fn header(&self) -> &DeviceHeader {
        &self.header
    }

    /// Bytes of it.
    #[must_use]
    pub fn bytes(&self) -> usize {
        to_usize(self.header.bytes)
    }

    /// `count` values of `T`, a struct or word of atomics, from byte `at` on; `None` if they lie outside
    /// the memory or are not aligned. A guest must not store into the memory of a
    /// [`DeviceKind::Bulk`]: it is mapped read-only.
    #[must_use]
    pub fn words<T>(&self, at: usize, count: usize) -> Option<Words<T>> {
        let end = count.checked_mul(size_of::<T>())?.checked_add(at)?;
        if end > self.bytes() {
            return None;
        }
        self.mapping.words(HEADER_BYTES + at, count)
    }

    /// The `bytes` bytes from `at`, a multiple of 8, as a region; `None` if they are not all inside. As
    /// with [`ApplicationMemory::words`], a guest must not store into the memory of a
    /// [`DeviceKind::Bulk`].
    #[must_use]
    pub fn part(&self, at: usize, bytes: usize) -> Option<Region> {
        if at.checked_add(bytes)? <= self.bytes() {
            self.mapping.part(HEADER_BYTES + at, bytes)
        } else {
            None
        }
    }

    /// Number of the device that is plugged now. The memory of an unplugged device reads as zeros or
    /// ones, and that of a device plugged later in its place has another number.
    #[must_use]
    pub fn device(&self) -> Option<SharedId> {
        let is_there = self.header.is_at(&self.mapping);
        is_there.then_some(self.header.device)
    }
}
