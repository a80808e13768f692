// SPDX-License-Identifier: MIT OR Apache-2.0
//! What can be wrong with a capture file, and where.
#![forbid(unsafe_code)]

use std::io;

/// Why a capture file gives no (more) packets.
///
/// Every packet before `offset` was yielded.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ReadError {
    /// The file cannot be opened.
    #[error("{file}: cannot be opened: {cause}")]
    Open {
        /// The file as the user named it.
        file: String,
        /// What the system said.
        cause: io::Error,
    },
    /// The system failed to read the file.
    #[error("{file}: reading failed at byte {offset}: {cause}")]
    Read {
        /// The file as the user named it.
        file: String,
        /// The first byte that could not be read.
        offset: u64,
        /// What the system said.
        cause: io::Error,
    },
    /// The file is compressed.
    #[error("{file}: is compressed: unpack it with `{unpack}` and read the result with -r -")]
    Compressed {
        /// The file as the user named it.
        file: String,
        /// The command that unpacks it to standard output.
        unpack: &'static str,
    },
    /// The first bytes belong to no capture format.
    #[error("{file}: is neither pcap nor pcapng (it starts with {start:02x?})")]
    NotACapture {
        /// The file as the user named it.
        file: String,
        /// The first four bytes.
        start: [u8; 4],
    },
    /// A pcap or pcapng version that nobody defined, or a patched variant.
    #[error(
        "{file}: at byte {offset}: {variant} is not supported: \
         convert it with `editcap -F pcapng {file} new.pcapng`"
    )]
    Unsupported {
        /// The file as the user named it.
        file: String,
        /// Where the header is.
        offset: u64,
        /// What it is, e.g. `pcap version 2.2`.
        variant: String,
    },
    /// The file ends inside a header, a packet or a block.
    #[error(
        "{file}: cut off: the {what} at byte {offset} needs {needed} bytes, \
         only {found} are there; every packet before it was read"
    )]
    Truncated {
        /// The file as the user named it.
        file: String,
        /// Where the incomplete item begins.
        offset: u64,
        /// The item.
        what: &'static str,
        /// Bytes that the item needs (the least that is known when it was cut).
        needed: u64,
        /// Bytes of it that are there.
        found: u64,
    },
    /// An impossible value in the file.
    #[error("{file}: damaged at byte {offset}: {damage}; every packet before it was read")]
    Corrupt {
        /// The file as the user named it.
        file: String,
        /// Where the damaged item begins.
        offset: u64,
        /// What is impossible about it.
        damage: Damage,
    },
}

/// The impossible value that ended the reading.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Damage {
    /// A packet larger than any snap length allows.
    #[error("a packet of {claimed} bytes (at most {limit} are possible)")]
    PacketLength {
        /// What the file says.
        claimed: u32,
        /// The largest that is accepted for this interface.
        limit: u32,
    },
    /// A packet that does not fit into its block.
    #[error("a packet of {claimed} bytes in a block with room for {room}")]
    PacketOutsideBlock {
        /// What the file says.
        claimed: u32,
        /// Bytes in the block after its fixed part.
        room: u32,
    },
    /// A block length that is too small, too large or not a multiple of four.
    #[error("a block of type {block_type:#010x} with an impossible length of {claimed} bytes")]
    BlockLength {
        /// The type of the block.
        block_type: u32,
        /// What the file says.
        claimed: u32,
    },
    /// The two lengths that enclose a block differ.
    #[error("a block that begins with length {head} and ends with length {tail}")]
    BlockEnd {
        /// Length before the body.
        head: u32,
        /// Length after the body.
        tail: u32,
    },
    /// A packet or statistics of an interface that was not described before.
    #[error("interface {claimed} is not described ({known} are)")]
    NoSuchInterface {
        /// What the file says.
        claimed: u32,
        /// Interfaces described so far in this section.
        known: usize,
    },
    /// A section without a valid byte order mark.
    #[error("a section header without byte order mark (found {found:#010x})")]
    ByteOrderMark {
        /// What stands there, read as little-endian.
        found: u32,
    },
    /// An option that reaches past its block.
    #[error("option {code} of {claimed} bytes in a block with room for {room}")]
    OptionLength {
        /// The option's code.
        code: u16,
        /// What the file says.
        claimed: u16,
        /// Bytes left in the block.
        room: usize,
    },
}
