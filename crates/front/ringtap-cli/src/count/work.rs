// SPDX-License-Identifier: MIT OR Apache-2.0
//! Load per packet: compression, several runs of a filter, or reading its headers.

use std::hint::black_box;
use std::str::FromStr;

use flate2::{Compress, Compression, FlushCompress};
use ringtap_filter::Program;
use serde_json::json;

use crate::UsageError;
use crate::reading::Extra;

/// The kind of load.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum WorkKind {
    /// Compress every packet at this level.
    Zlib(u32),
    /// Run the filter this many times over every packet.
    Bpf(u32),
    /// Read the headers of every packet.
    Headers,
}

impl FromStr for WorkKind {
    type Err = UsageError;

    fn from_str(text: &str) -> Result<Self, UsageError> {
        let wanted = || {
            UsageError(format!(
                "\"{text}\": expected headers, zlib:0 to zlib:9, or bpf:TIMES"
            ))
        };
        if text == "headers" {
            return Ok(WorkKind::Headers);
        }
        let (kind, number) = text.split_once(':').ok_or_else(wanted)?;
        let number: u32 = number.parse().map_err(|_| wanted())?;
        match kind {
            "zlib" if number <= 9 => Ok(WorkKind::Zlib(number)),
            "bpf" => Ok(WorkKind::Bpf(number)),
            _ => Err(wanted()),
        }
    }
}

/// The work on each packet, with its result so far.
pub(crate) enum Work {
    /// A compressor, its output buffer, bytes of output.
    Zlib(Box<Compress>, Vec<u8>, u64),
    /// A filter, runs per packet, runs that matched.
    Bpf(Program, u32, u64),
    /// The sum over all headers.
    Headers(u64),
}

/// Sum of the type, the IPv4 addresses and the ports of a packet; 0 if it is shorter.
#[inline]
fn headers(data: &[u8]) -> u64 {
    let Some(head) = data.first_chunk::<38>() else {
        return 0;
    };
    let word = |from: usize| {
        head[from..]
            .first_chunk()
            .map_or(0, |word| u32::from_be_bytes(*word))
    };
    // `word(12)` is the type, followed by the first two bytes of the IPv4 header.
    let [kind, source, target, ports] = [word(12) >> 16, word(26), word(30), word(34)];
    (u64::from(source) << 32 | u64::from(target))
        .wrapping_add(u64::from(kind))
        .wrapping_add(u64::from(ports))
}

impl Work {
    /// Work of this kind; calls `filter` only for work that needs a filter.
    pub(crate) fn new(
        kind: WorkKind,
        filter: impl FnOnce() -> anyhow::Result<Program>,
    ) -> anyhow::Result<Self> {
        Ok(match kind {
            WorkKind::Zlib(level) => {
                let compress = Compress::new(Compression::new(level), true);
                Work::Zlib(Box::new(compress), Vec::new(), 0)
            }
            WorkKind::Bpf(times) => Work::Bpf(filter()?, times, 0),
            WorkKind::Headers => Work::Headers(0),
        })
    }

    /// Does the work on the captured part of one packet.
    #[inline]
    pub(crate) fn packet(&mut self, data: &[u8], wire_bytes: u32) {
        match self {
            Work::Zlib(compress, output, bytes) => {
                compress.reset();
                output.clear();
                // Deflate adds at most 5 bytes per 16 KiB, zlib 6 more.
                output.reserve(data.len() + data.len() / 1000 + 64);
                let done = compress.compress_vec(data, output, FlushCompress::Finish);
                debug_assert!(done.is_ok());
                *bytes += compress.total_out();
            }
            Work::Headers(sum) => *sum = sum.wrapping_add(headers(data)),
            Work::Bpf(filter, times, taken) => {
                for _ in 0..*times {
                    *taken += u64::from(filter.matches(black_box(data), wire_bytes));
                }
            }
        }
    }

    pub(crate) fn result(&self) -> Extra {
        let (text, result) = match self {
            Work::Zlib(_, _, bytes) => (format!("zlib made {bytes} bytes"), bytes),
            Work::Headers(sum) => (format!("headers sum {sum}"), sum),
            Work::Bpf(_, times, taken) => {
                (format!("{times} filter runs a packet took {taken}"), taken)
            }
        };
        Extra::new("work", text, json!({ "result": result }))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn work_is_read_as_users_write_it() {
        for (text, kind) in [
            ("zlib:9", WorkKind::Zlib(9)),
            ("bpf:300", WorkKind::Bpf(300)),
            ("headers", WorkKind::Headers),
        ] {
            assert_eq!(text.parse::<WorkKind>().unwrap(), kind);
        }
        for bad in ["headers:1", "zlib:10", "zlib", "bpf:-1", "md5:1"] {
            assert!(bad.parse::<WorkKind>().is_err(), "{bad}");
        }
    }

    #[test]
    fn every_field_of_the_headers_counts() {
        let mut packet = vec![0_u8; 60];
        assert_eq!(headers(&packet), 0);
        (packet[12], packet[33], packet[37]) = (8, 1, 9);
        assert_eq!(headers(&packet), 0x0800 + 1 + 9);
        assert_eq!(headers(&packet[..37]), 0, "no whole header");
    }
}
