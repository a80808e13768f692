// SPDX-License-Identifier: MIT OR Apache-2.0
//! Interfaces of a capture file.

use ringtap_filter::LinkType;
use ringtap_pool::number::to_u64;

/// The unit of an interface's times.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Resolution {
    /// 10^-n seconds.
    Decimal(u8),
    /// 2^-n seconds.
    Binary(u8),
}

impl Resolution {
    /// Microseconds, the default of both formats.
    pub const MICROSECONDS: Self = Self::Decimal(6);
    /// Nanoseconds.
    pub const NANOSECONDS: Self = Self::Decimal(9);

    /// From pcapng's `if_tsresol`: the top bit chooses base 2.
    pub(super) fn from_option(value: u8) -> Self {
        match value & 0x80 {
            0 => Self::Decimal(value),
            _ => Self::Binary(value & 0x7f),
        }
    }

    /// `ticks` in nanoseconds.
    #[inline]
    pub(super) fn nanoseconds(self, ticks: u64) -> u128 {
        match self {
            Self::NANOSECONDS => ticks.into(),
            Self::MICROSECONDS => u128::from(ticks) * 1000,
            _ => self.unusual_nanoseconds(ticks),
        }
    }

    #[cold]
    fn unusual_nanoseconds(self, ticks: u64) -> u128 {
        match self {
            Self::Decimal(digits) if digits <= 9 => {
                u128::from(ticks) * 10_u128.pow(9 - u32::from(digits))
            }
            Self::Decimal(digits) => 10_u128
                .checked_pow(u32::from(digits) - 9)
                .map_or(0, |divisor| u128::from(ticks) / divisor),
            Self::Binary(bits) => (u128::from(ticks) * 1_000_000_000) >> bits,
        }
    }
}

/// A time of a file as nanoseconds since 1970 in 64 bits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct FileTime {
    /// The time, or the nearest one that 64 bits hold: 1970, or the year 2554.
    pub(super) nearest_ns: u64,
    /// False for times before 1970 and after the year 2554.
    pub(super) fits: bool,
}

impl FileTime {
    /// A packet without time.
    pub(super) const NONE: FileTime = FileTime {
        nearest_ns: 0,
        fits: true,
    };
}

/// One interface of a capture file.
///
/// A pcap file has exactly one, without name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FileInterface {
    /// Number of the pcapng section, from 0.
    pub section: u32,
    /// Type of the header that packets begin with.
    pub link_type: LinkType,
    /// Bytes kept of each packet; 0: no limit.
    pub snap_length: u32,
    /// The unit of its times in the file.
    pub resolution: Resolution,
    /// Seconds to add to its times in the file.
    pub offset_s: i64,
    /// Its name, e.g. `eth0`.
    pub name: Option<String>,
    /// A comment for the user.
    pub comment: Option<String>,
    /// The capture filter in pcap-filter syntax.
    pub filter: Option<String>,
    /// The last statistics block read so far.
    pub statistics: Option<Statistics>,
}

impl FileInterface {
    /// An interface without name, filter and statistics, with times in microseconds.
    pub fn new(section: u32, link_type: LinkType, snap_length: u32) -> Self {
        Self {
            section,
            link_type,
            snap_length,
            resolution: Resolution::MICROSECONDS,
            offset_s: 0,
            name: None,
            comment: None,
            filter: None,
            statistics: None,
        }
    }

    /// The memory that this description needs, in bytes.
    pub(super) fn memory_bytes(&self) -> usize {
        let statistics = self.statistics.as_ref();
        let texts = [
            &self.name,
            &self.comment,
            &self.filter,
            statistics.map_or(&None, |statistics| &statistics.comment),
        ];
        let texts = texts.into_iter().flatten().map(String::len);
        size_of::<Self>() + texts.sum::<usize>()
    }

    /// A time of this interface.
    #[inline]
    pub(super) fn time(&self, ticks: u64) -> FileTime {
        let unshifted_ns = self.resolution.nanoseconds(ticks).cast_signed();
        let time_ns = unshifted_ns + i128::from(self.offset_s) * 1_000_000_000;
        FileTime {
            nearest_ns: to_u64(time_ns.max(0)),
            fits: u64::try_from(time_ns).is_ok(),
        }
    }
}

/// The values of a pcapng interface statistics block; `None`: the block lacks the value.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Statistics {
    /// Time of the values, in nanoseconds since 1970.
    pub time_ns: u64,
    /// Start of the capture.
    pub start_ns: Option<u64>,
    /// End of the capture.
    pub end_ns: Option<u64>,
    /// Packets that the interface received.
    pub received: Option<u64>,
    /// Packets that the interface dropped because it lacked resources.
    pub dropped: Option<u64>,
    /// Packets that passed the filter.
    pub filter_accepted: Option<u64>,
    /// Packets that the operating system dropped.
    pub os_dropped: Option<u64>,
    /// Packets that were delivered to the user.
    pub delivered: Option<u64>,
    /// Free text.
    pub comment: Option<String>,
}
