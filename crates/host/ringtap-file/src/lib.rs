// SPDX-License-Identifier: MIT OR Apache-2.0
//! Capture files: reading pcap and pcapng at full speed or paced, also compressed, and writing both.
//!
//! [`FileReader`] yields packets that borrow from its buffer. [`Pace`] delays each packet until it is
//! due. [`write`] appends pcapng blocks to a buffer, [`write::classic`] packets of
//! a pcap file.
#![forbid(unsafe_code)]

mod bytes;
mod damage;
mod input;
mod interface;
mod options;
mod pace;
mod pcap;
mod pcapng;
mod reader;
mod window;
pub mod write;

pub use bytes::ByteOrder;
pub use damage::{Damage, ReadError};
pub use input::Packing;
pub use interface::{FileInterface, Resolution, Statistics};
pub use pace::{Pace, PaceTurn, Schedule};
pub use reader::{FileReader, Format, PacketDirection, RawPacket, SplitPoint};

#[cfg(test)]
mod tests;
