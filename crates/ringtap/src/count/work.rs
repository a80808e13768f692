// SPDX-License-Identifier: MIT OR Apache-2.0
//! Load per packet: compress it, or run a filter over it again and again.
#![forbid(unsafe_code)]

use std::hint::black_box;
use std::str::FromStr;

use flate2::{Compress, Compression, FlushCompress};
use ringtap_capture::filter::Filter;
use ringtap_pool::reader::Packet;

/// What `--work` asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum WorkKind {
    /// Compress every packet at this level.
    Zlib(u32),
    /// Run the filter this many times over every packet.
    Bpf(u32),
}

impl FromStr for WorkKind {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let wanted = || format!("\"{text}\": want zlib:0 to zlib:9, or bpf:TIMES");
        let (kind, number) = text.split_once(':').ok_or_else(wanted)?;
        let number: u32 = number.parse().map_err(|_| wanted())?;
        match kind {
            "zlib" if number <= 9 => Ok(WorkKind::Zlib(number)),
            "bpf" => Ok(WorkKind::Bpf(number)),
            _ => Err(wanted()),
        }
    }
}

/// Work to be done on each packet, and what it made.
pub(crate) enum Work {
    /// A compressor, its output place, bytes that came out.
    Zlib(Box<Compress>, Vec<u8>, u64),
    /// A filter, how often, how many runs took the packet.
    Bpf(Filter, u32, u64),
}

impl Work {
    pub(crate) fn new(kind: WorkKind, filter: Filter) -> Self {
        match kind {
            WorkKind::Zlib(level) => {
                let compress = Compress::new(Compression::new(level), true);
                Work::Zlib(Box::new(compress), Vec::new(), 0)
            }
            WorkKind::Bpf(times) => Work::Bpf(filter, times, 0),
        }
    }

    /// Does the work on one packet.
    pub(crate) fn packet(&mut self, packet: &Packet<'_>) {
        match self {
            Work::Zlib(compress, output, bytes) => {
                compress.reset();
                output.clear();
                // Deflate needs at most 5 bytes more for each 16 KiB, zlib 6 more.
                output.reserve(packet.data.len() + packet.data.len() / 1000 + 64);
                let done = compress.compress_vec(packet.data, output, FlushCompress::Finish);
                debug_assert!(done.is_ok());
                *bytes += compress.total_out();
            }
            Work::Bpf(filter, times, taken) => {
                for _ in 0..*times {
                    let data = black_box(packet.data);
                    *taken += u64::from(filter.matches(data, packet.slot.wire_length));
                }
            }
        }
    }

    /// What came of it, in words.
    pub(crate) fn summary(&self) -> String {
        match self {
            Work::Zlib(_, _, bytes) => format!("zlib made {bytes} bytes"),
            Work::Bpf(_, times, taken) => format!("{times} filter runs a packet took {taken}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn work_is_read_as_users_write_it() {
        assert_eq!("zlib:9".parse(), Ok(WorkKind::Zlib(9)));
        assert_eq!("bpf:300".parse(), Ok(WorkKind::Bpf(300)));
        for bad in ["zlib:10", "zlib", "bpf:-1", "md5:1"] {
            assert!(bad.parse::<WorkKind>().is_err(), "{bad}");
        }
    }
}
