// SPDX-License-Identifier: MIT OR Apache-2.0
//! Capture files: reading pcap and pcapng, at top speed or paced.
//!
//! [`Reader`] yields packets that borrow from its buffer; [`Pace`] holds each one back until
//! it is due. Writing lives in the `ringtap` crate, with the recorder that needs it.

mod bytes;
mod damage;
mod describe;
mod interface;
mod options;
mod pace;
mod pcap;
mod pcapng;
mod reader;
mod window;

pub use bytes::ByteOrder;
pub use damage::{Damage, ReadError};
pub use interface::{Interface, Resolution, Statistics};
pub use pace::{Pace, Schedule, Turn};
pub use reader::{Direction, Format, RawPacket, Reader};

#[cfg(test)]
mod tests;
