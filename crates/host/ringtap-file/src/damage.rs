// SPDX-License-Identifier: MIT OR Apache-2.0
//! Errors of reading capture files, with their positions.

use std::io;

/// Reason why the reader returns no (more) packets.
///
/// The reader has returned every packet before `offset`.
#[expect(missing_docs, reason = "messages show what each field means")]
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ReadError {
    /// The file cannot be opened.
    #[error("{file}: cannot be opened: {cause}")]
    Open { file: String, cause: io::Error },
    /// The system failed to read the file.
    #[error("{file}: reading failed at byte {offset}: {cause}")]
    Read {
        file: String,
        offset: u64,
        cause: io::Error,
    },
    /// A pipe or a format of compression that the reader does not decompress.
    #[error("{file}: is compressed: unpack it with `{unpack}` and read the result with -r -")]
    Compressed { file: String, unpack: &'static str },
    /// The first bytes belong to no capture format.
    #[error(
        "{file}: is neither pcap nor pcapng (its first bytes are {})",
        hexadecimal(start)
    )]
    NotACapture { file: String, start: [u8; 4] },
    /// An unknown version, or the format of a patched libpcap.
    #[error(
        "{file}: at byte {offset}: {variant} is not supported: \
         convert it with `editcap -F pcapng {file} new.pcapng`"
    )]
    Unsupported {
        file: String,
        offset: u64,
        variant: String,
    },
    /// The file ends inside a header, a packet or a block.
    #[error("{file}: {}", cut_off(what, *offset, *needed, *found))]
    Truncated {
        file: String,
        offset: u64,
        what: &'static str,
        needed: u64,
        found: u64,
    },
    /// An impossible value in the file.
    #[error("{file}: damaged at byte {offset}: {damage}; every packet before it was read")]
    Corrupt {
        file: String,
        offset: u64,
        damage: Damage,
    },
}

/// Bytes as a hex dump has them.
fn hexadecimal(bytes: &[u8]) -> String {
    let bytes: Vec<_> = bytes.iter().map(|byte| format!("{byte:02x}")).collect();
    bytes.join(" ")
}

fn cut_off(what: &str, offset: u64, needed: u64, found: u64) -> String {
    match offset + found {
        0 => "is empty: a capture file has at least a header".to_owned(),
        _ => format!(
            "cut off: the {what} at byte {offset} needs {needed} bytes, only {found} are there; \
             every packet before it was read"
        ),
    }
}

/// The impossible value that ended the reading.
#[expect(missing_docs, reason = "messages show what each field means")]
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Damage {
    /// A packet larger than any snap length allows.
    #[error("a packet of {claimed} bytes (at most {limit} are possible)")]
    PacketLength { claimed: u32, limit: u32 },
    /// A packet that does not fit into its block.
    #[error("a packet of {claimed} bytes in a block with room for {room}")]
    PacketOutsideBlock { claimed: u32, room: u32 },
    /// A block length that is too small, too large or not a multiple of four.
    #[error("a block of type {block_type:#010x} with an impossible length of {claimed} bytes")]
    BlockLength { block_type: u32, claimed: u32 },
    /// The two lengths that enclose a block differ.
    #[error("a block that begins with length {head} and ends with length {tail}")]
    BlockEnd { head: u32, tail: u32 },
    /// A packet or statistics of an interface that was not described before.
    #[error("interface {claimed} is not described ({known} are)")]
    NoSuchInterface { claimed: u32, known: usize },
    /// The interfaces of the file need more memory than the reader gives them.
    #[error("so many or so long descriptions of interfaces that they need more than {} MiB of memory", limit >> 20)]
    Interfaces { limit: usize },
    /// A section without a valid byte order mark.
    #[error("a section header without byte order mark (found {found:#010x})")]
    ByteOrderMark { found: u32 },
    /// An option that reaches past its block.
    #[error("option {code} of {claimed} bytes in a block with room for {room}")]
    OptionLength {
        code: u16,
        claimed: u16,
        room: usize,
    },
}
