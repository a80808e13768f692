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

use crate::ctrl::message::ApplicationId;

/// Bytes of the header, before the application's memory.
pub const HEADER_BYTES: usize = 4096;
/// Most events of a device in each direction: one bit each in a word of pending signals.
pub const MOST_VECTORS: u16 = 64;
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

/// What a device is for.
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
    pub fn of(number: u8) -> Option<Self> {
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
    /// What the device is for.
    pub kind: DeviceKind,
    /// Bytes of the application's memory.
    pub bytes: u64,
}

impl DeviceHeader {
    pub(crate) fn write(&self, words: &Words<AtomicU64>) {
        let values = [
            MAGIC,
            HEADER_VERSION,
            self.device.0,
            u64::from(self.application),
            u64::from(self.kind.vectors()),
            self.bytes,
        ];
        for (word, value) in words.iter().zip(values) {
            word.store(value.to_le(), Relaxed);
        }
    }

    /// The header in a device's first words; `None` for the memory of anything else.
    pub(crate) fn read(words: &Words<AtomicU64>) -> Option<Self> {
        let word = |at: usize| Some(u64::from_le(words.get(at)?.load(Relaxed)));
        if word(0)? != MAGIC || word(1)? != HEADER_VERSION {
            return None;
        }
        let vectors = u16::try_from(word(4)?).ok()?;
        Some(DeviceHeader {
            device: SharedId(word(2)?),
            application: ApplicationId::try_from(word(3)?).ok()?,
            kind: match vectors {
                0 => DeviceKind::Bulk,
                1..=MOST_VECTORS => DeviceKind::Control { vectors },
                _ => return None,
            },
            bytes: word(5)?,
        })
    }
}

/// Memory of another process that a device shows as it is, without a header: the guest recognizes it by
/// its first bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ForeignMemory {
    /// Bytes of it.
    pub bytes: u64,
    /// The first bytes, as words of the memory.
    pub first: [u64; FIRST_WORDS],
}

/// Words by which a guest recognizes [`ForeignMemory`].
pub const FIRST_WORDS: usize = 8;

/// How the memory of a device is recognized.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Recognition {
    /// By this header, behind which the application's memory lies.
    Header(DeviceHeader),
    /// By the first words of the application's memory, which is the whole device.
    Foreign(DeviceHeader, ForeignMemory),
}

impl Recognition {
    /// What is known of the device.
    pub(crate) fn header(&self) -> DeviceHeader {
        match self {
            Recognition::Header(header) | Recognition::Foreign(header, _) => *header,
        }
    }

    /// Where the application's memory begins.
    pub(crate) fn start(&self) -> usize {
        match self {
            Recognition::Header(_) => HEADER_BYTES,
            Recognition::Foreign(..) => 0,
        }
    }

    /// Whether the mapped memory is that of the device.
    pub(crate) fn is_at(&self, mapping: &Arc<Mapping>) -> bool {
        match self {
            Recognition::Header(header) => {
                let words = header_words(mapping);
                words.and_then(|words| DeviceHeader::read(&words)) == Some(*header)
            }
            Recognition::Foreign(_, memory) => {
                ForeignMemory::first_of(mapping) == Some(memory.first)
            }
        }
    }
}

impl ForeignMemory {
    /// The first words of a mapping.
    pub(crate) fn first_of(mapping: &Arc<Mapping>) -> Option<[u64; FIRST_WORDS]> {
        let words: Words<AtomicU64> = mapping.words(0, FIRST_WORDS)?;
        let mut first = [0; FIRST_WORDS];
        for (value, word) in first.iter_mut().zip(words.iter()) {
            *value = u64::from_le(word.load(Relaxed));
        }
        Some(first)
    }
}

/// The application's memory of a device, mapped in this process.
#[derive(Clone, Debug)]
pub struct ApplicationMemory {
    mapping: Arc<Mapping>,
    device: Recognition,
    bytes: usize,
}

impl ApplicationMemory {
    /// The memory of a mapped device.
    pub(crate) fn new(mapping: Arc<Mapping>, device: Recognition, bytes: usize) -> Self {
        ApplicationMemory {
            mapping,
            device,
            bytes,
        }
    }

    /// Bytes of it.
    #[must_use]
    pub fn bytes(&self) -> usize {
        self.bytes
    }

    /// `count` values of `T`, a struct or word of atomics, from byte `at` on; `None` if they lie outside
    /// the memory or are not aligned. A guest must not store into the memory of a
    /// [`DeviceKind::Bulk`]: it is mapped read-only.
    #[must_use]
    pub fn words<T>(&self, at: usize, count: usize) -> Option<Words<T>> {
        let end = count.checked_mul(size_of::<T>())?.checked_add(at)?;
        if end > self.bytes {
            return None;
        }
        self.mapping.words(self.device.start() + at, count)
    }

    /// The `bytes` bytes from `at`, a multiple of 8, as a region; `None` if they are not all inside. As
    /// with [`ApplicationMemory::words`], a guest must not store into the memory of a
    /// [`DeviceKind::Bulk`].
    #[must_use]
    pub fn part(&self, at: usize, bytes: usize) -> Option<Region> {
        match at.checked_add(bytes)? <= self.bytes {
            true => self.mapping.part(self.device.start() + at, bytes),
            false => None,
        }
    }

    /// Number of the device that is plugged now. The memory of an unplugged device reads as zeros or
    /// ones, and that of a device plugged later in its place has another number.
    #[must_use]
    pub fn device(&self) -> Option<SharedId> {
        let is_there = self.device.is_at(&self.mapping);
        is_there.then_some(self.device.header().device)
    }
}

/// The words of the header of a mapped device.
pub(crate) fn header_words(mapping: &Arc<Mapping>) -> Option<Words<AtomicU64>> {
    mapping.words(0, 6)
}
