// SPDX-License-Identifier: MIT OR Apache-2.0
//! The reader against files that the test makes byte by byte, whole and damaged.

mod made;
mod ng;
mod pace;
mod plain;

use std::io::Cursor;

use super::{FileReader, ReadError};

/// A packet, copied out of the reader.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Packet {
    time_ns: u64,
    wire_length: u32,
    interface: u32,
    data: Vec<u8>,
}

/// All packets of a file and the error that ended it, if one did.
fn read_all(bytes: &[u8]) -> (Vec<Packet>, Option<ReadError>) {
    let mut packets = Vec::new();
    let mut reader = match FileReader::from_stream("test", Cursor::new(bytes.to_vec())) {
        Ok(reader) => reader,
        Err(error) => return (packets, Some(error)),
    };
    loop {
        match reader.next_packet() {
            Ok(Some(packet)) => packets.push(Packet {
                time_ns: packet.time_ns,
                wire_length: packet.wire_length,
                interface: packet.interface,
                data: packet.data.to_vec(),
            }),
            Ok(None) => return (packets, None),
            Err(error) => {
                assert!(
                    matches!(reader.next_packet(), Ok(None)),
                    "nothing follows an error"
                );
                return (packets, Some(error));
            }
        }
    }
}

/// Cuts `whole` at every length; `ends` are the clean ends (after the header, after each packet).
fn cut_everywhere(whole: &[u8], ends: &[(usize, usize)]) {
    for length in 0..whole.len() {
        let (packets, error) = read_all(&whole[..length]);
        let before = ends.iter().rfind(|(end, _)| *end <= length);
        let (end, count) = before.copied().unwrap_or((0, 0));
        assert_eq!(packets.len(), count, "cut at {length}");
        if end == length && end > 0 {
            assert!(
                error.is_none(),
                "cut at {length}, between packets: {error:?}"
            );
            continue;
        }
        match error {
            Some(ReadError::Truncated {
                offset,
                found,
                needed,
                ..
            }) => {
                assert_eq!(offset, u64::try_from(end).unwrap(), "cut at {length}");
                assert_eq!(offset + found, u64::try_from(length).unwrap());
                assert!(
                    needed > found,
                    "cut at {length}: {needed} needed, {found} there"
                );
            }
            other => panic!("cut at {length}: {other:?}"),
        }
    }
}

/// A small repeatable generator; good enough to choose bytes to damage.
struct Dice(u64);

impl Dice {
    fn roll(&mut self, below: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        usize::try_from(self.0 % u64::try_from(below).unwrap()).unwrap()
    }
}

/// Damages random bytes, many times; reading must end, with what it finds, without panic.
fn damage_at_random(whole: &[u8]) {
    let mut dice = Dice(0x9e37_79b9_7f4a_7c15);
    let mut errors = 0;
    for _ in 0..20_000 {
        let mut bytes = whole.to_vec();
        for _ in 0..=dice.roll(4) {
            let at = dice.roll(bytes.len());
            bytes[at] = u8::try_from(dice.roll(256)).unwrap();
        }
        let (packets, error) = read_all(&bytes);
        assert!(packets.len() * 8 <= bytes.len());
        errors += u32::from(error.is_some());
    }
    assert!(errors > 1000, "the damage was noticed only {errors} times");
}
