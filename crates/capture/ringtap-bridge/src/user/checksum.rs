// SPDX-License-Identifier: MIT OR Apache-2.0
//! Completes TCP and UDP checksums that the sender left to a NIC (checksum offload).
//!
//! Invariants
//! - A packet is changed only if its checksum field equals the sum of the pseudo header. If a
//!   complete checksum has this value by chance, the result is the same checksum.

use ringtap_packet::checksum::{finish, sum};

/// Range and position of a checksum.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Unfinished {
    from: usize,
    to: usize,
    field: usize,
}

/// The missing checksum of an Ethernet frame, and its offset.
pub(super) fn completion(frame: &[u8]) -> Option<(usize, [u8; 2])> {
    let Unfinished { from, to, field } = unfinished(frame)?;
    // Over the range including the pseudo header's sum in the field, as the NIC would.
    let value = match finish(sum(frame.get(from..to)?)) {
        // In UDP, 0 means "no checksum".
        0 => 0xffff,
        value => value,
    };
    Some((field, value.to_be_bytes()))
}

fn word(frame: &[u8], at: usize) -> Option<u16> {
    let bytes = frame.get(at..at + 2)?;
    Some(u16::from_be_bytes([bytes[0], bytes[1]]))
}

fn unfinished(frame: &[u8]) -> Option<Unfinished> {
    const VLANS: [u16; 3] = [0x8100, 0x88a8, 0x9100];
    let mut at = 12;
    let mut kind = word(frame, at)?;
    for _ in 0..2 {
        if VLANS.contains(&kind) {
            at += 4;
            kind = word(frame, at)?;
        }
    }
    let ip = at + 2;
    let (from, protocol, length, addresses) = match kind {
        0x0800 => {
            let header = usize::from(frame.get(ip)? & 15) * 4;
            let is_fragment = word(frame, ip + 6)? & 0x3fff != 0;
            if is_fragment || header < 20 {
                return None;
            }
            let length = usize::from(word(frame, ip + 2)?).checked_sub(header)?;
            (ip + header, *frame.get(ip + 9)?, length, ip + 12..ip + 20)
        }
        0x86dd => {
            let length = usize::from(word(frame, ip + 4)?);
            (ip + 40, *frame.get(ip + 6)?, length, ip + 8..ip + 40)
        }
        _ => return None,
    };
    let field = from
        + match protocol {
            6 => 16,
            17 => 6,
            _ => return None,
        };
    let pseudo = sum(frame.get(addresses)?) + u32::from(protocol) + u32::try_from(length).ok()?;
    let is_unfinished = word(frame, field)? == !finish(pseudo);
    is_unfinished.then_some(Unfinished {
        from,
        // The rest is padding.
        to: from + length,
        field,
    })
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
