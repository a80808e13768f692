// SPDX-License-Identifier: MIT OR Apache-2.0
//! Completes TCP and UDP checksums that the sender left to a NIC (checksum offload).
//!
//! Invariants
//! - A packet is changed only if its checksum field equals the sum of the pseudo header. If a
//!   complete checksum has this value by chance, the result is the same checksum.

use ringtap_filter::Headers;
use ringtap_filter::hash::{self, Link};
use ringtap_packet::checksum::{finish, sum};

const TCP: u8 = 6;
const UDP: u8 = 17;

/// The missing checksum of an Ethernet frame, and its offset.
pub(super) fn completion(frame: &[u8]) -> Option<(usize, [u8; 2])> {
    let ip = hash::ip(frame, Link::Ethernet, Headers::Outer)?;
    let field = match (ip.fragment, ip.protocol) {
        (None, TCP) => 16,
        (None, UDP) => 6,
        _ => return None,
    };
    // What follows the packet is padding of the frame.
    let length = ip.length.checked_sub(ip.header_length)?;
    let segment = ip.payload.get(..length)?;
    let pseudo = sum(ip.source)
        + sum(ip.destination)
        + u32::from(ip.protocol)
        + u32::try_from(length).ok()?;
    let found = u16::from_be_bytes(*segment.get(field..)?.first_chunk()?);
    if found != !finish(pseudo) {
        return None;
    }
    // Over the segment including the pseudo header's sum in the field, as the NIC would.
    let value = match finish(sum(segment)) {
        // In UDP, 0 means "no checksum".
        0 => 0xffff,
        value => value,
    };
    // The payload reaches to the end of the frame.
    let at = frame.len().checked_sub(ip.payload.len())? + field;
    Some((at, value.to_be_bytes()))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// TCP segment from 10.0.0.1 to 10.0.0.2 with 5 bytes of data and this checksum field.
    fn segment(field: u16) -> Vec<u8> {
        let mut frame = vec![2, 0, 0, 0, 0, 2, 2, 0, 0, 0, 0, 1, 8, 0];
        frame.extend([
            0x45, 0, 0, 45, 0, 0, 0, 0, 64, 6, 0, 0, 10, 0, 0, 1, 10, 0, 0, 2,
        ]);
        let mut tcp = vec![0; 25];
        tcp[12] = 0x50;
        tcp[16..18].copy_from_slice(&field.to_be_bytes());
        tcp[20..].copy_from_slice(b"hello");
        frame.extend(tcp);
        frame
    }

    fn pseudo() -> u32 {
        sum(&[10, 0, 0, 1, 10, 0, 0, 2]) + 6 + 25
    }

    #[test]
    fn an_unfinished_checksum_is_completed_and_then_left_alone() {
        let mut frame = segment(!finish(pseudo()));
        frame.extend([9; 10]);
        let (field, value) = completion(&frame).expect("it is unfinished");
        assert_eq!(field, 50);
        frame[50..52].copy_from_slice(&value);
        assert_eq!(finish(pseudo() + sum(&frame[34..59])), 0, "it is right now");
        assert_eq!(completion(&frame), None);
    }

    #[test]
    fn fragments_other_protocols_and_short_frames_are_left_alone() {
        let unfinished = segment(!finish(pseudo()));
        let mut fragment = unfinished.clone();
        fragment[20] = 0x20;
        assert_eq!(completion(&fragment), None);
        let mut other = unfinished.clone();
        other[23] = 47;
        assert_eq!(completion(&other), None);
        for length in 0..unfinished.len() {
            assert_eq!(completion(&unfinished[..length]), None, "{length}");
        }
    }
}
