// SPDX-License-Identifier: MIT OR Apache-2.0
//! Sequence numbers of one direction of a TCP connection: which bytes of its stream are new.
//!
//! Invariants
//! - SYN and FIN take a number each, and neither counts as a byte.
//! - A SYN with another number begins the stream anew; a reset adds at most [`MAX_JUMP`] bytes.

use crate::packet::{FIN, RST, SYN, TcpHeader};
use crate::record::TcpEnd;

/// Bytes by which a reset may be ahead of the stream. Beyond it, its number is wrong, as Zeek takes it.
const MAX_JUMP: u32 = 1 << 20;

/// Sequence numbers of the segments that one end sent.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Sequence {
    /// Number of the SYN; without one, the number before the first segment.
    first: u32,
    /// Number after the segment that is the farthest.
    expected: u32,
    /// False until the first segment.
    is_known: bool,
}

/// Effect of a segment on its stream.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Added {
    /// New bytes, gaps included; -1 for a FIN whose number already counted as a byte.
    pub(super) bytes: i64,
    /// True if the segment repeats numbers, and is no keep-alive.
    pub(super) is_repeated: bool,
}

impl Sequence {
    /// The number of the first segment's SYN, if a segment was seen.
    pub(super) fn first(&self) -> Option<u32> {
        self.is_known.then_some(self.first)
    }

    /// Takes a segment with this payload, sent by an end in this state. `has_fin`: a FIN was seen before.
    pub(super) fn add(
        &mut self,
        tcp: TcpHeader,
        payload_bytes: u32,
        end: TcpEnd,
        has_fin: bool,
    ) -> Added {
        let [syn, fin, rst] = [SYN, FIN, RST].map(|flag| tcp.flags & flag != 0);
        // The payload of a reset is not part of the stream.
        let data = if rst { 0 } else { payload_bytes };
        let controls = u32::from(syn) + u32::from(fin);
        let length = data.wrapping_add(controls);
        let after = tcp.sequence.wrapping_add(length);
        let is_open = !matches!(end, TcpEnd::Closed) && !end.is_reset();
        if !self.is_known || (syn && is_open && tcp.sequence != self.first) {
            *self = Sequence {
                first: tcp.sequence.wrapping_sub(u32::from(!syn)),
                expected: after,
                is_known: true,
            };
            return Added {
                bytes: data.into(),
                is_repeated: false,
            };
        }
        let ahead = after.wrapping_sub(self.expected).cast_signed();
        // A SYN here repeats the first one, or comes after the end of the stream.
        let is_wrong = syn || (rst && ahead.unsigned_abs() > MAX_JUMP);
        if ahead > 0 && !is_wrong {
            self.expected = after;
        }
        let bytes = match ahead {
            // An end that was reset sends nothing more.
            _ if is_wrong || end.is_reset() => 0,
            1.. => i64::from(ahead) - i64::from(fin && !has_fin),
            _ => -i64::from(fin && !has_fin),
        };
        let is_keep_alive = data <= 1 && ahead == 0;
        Added {
            bytes,
            is_repeated: ahead <= 0 && length > 0 && !is_keep_alive,
        }
    }

    /// Moves on to the number after the latest segment of the kernel's counts.
    pub(super) fn move_to(&mut self, expected: u32) {
        if !self.is_known || self.distance(expected) > 0 {
            (self.expected, self.is_known) = (expected, true);
        }
    }

    /// How far a number is ahead of the stream.
    pub(super) fn distance(&self, number: u32) -> i32 {
        number.wrapping_sub(self.expected).cast_signed()
    }
}
