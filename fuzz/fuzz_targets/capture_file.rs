// SPDX-License-Identifier: MIT OR Apache-2.0
//! Any bytes as a capture file: no panic, true offsets, and a cut file gives the same beginning.
//!
//! The first two bytes of the input say where the rest is cut for the second reading.

#![no_main]

use std::io::Cursor;

use libfuzzer_sys::fuzz_target;
use ringtap_file::{FileReader, ReadError};

fuzz_target!(|input: &[u8]| {
    let Some((cut, file)) = input.split_first_chunk::<2>() else {
        return;
    };
    let cut = usize::from(u16::from_le_bytes(*cut)).min(file.len());
    let (whole, _) = read(file);
    let (part, error) = read(&file[..cut]);
    assert!(whole.starts_with(&part), "a cut file gave other packets");
    assert!(
        part.len() == whole.len() || cut < file.len() && !matches!(error, Some(Damage::Other)),
        "a cut file gave fewer packets without saying that it is cut"
    );
});

#[derive(Debug)]
enum Damage {
    Truncated,
    Other,
}

type Packet = (u64, u32, u32, Vec<u8>);

fn read(file: &[u8]) -> (Vec<Packet>, Option<Damage>) {
    let mut packets = Vec::new();
    let mut reader = match FileReader::from_stream("fuzz", Cursor::new(file.to_vec())) {
        Ok(reader) => reader,
        Err(error) => return (packets, Some(damage_of(&error, file.len()))),
    };
    let mut offset = reader.offset();
    loop {
        match reader.next_packet() {
            Ok(Some(packet)) => {
                let _ = (packet.direction(), packet.drop_count());
                let kept = packet.data.to_vec();
                packets.push((packet.time_ns, packet.wire_length, packet.interface, kept));
                let interface = usize::try_from(packet.interface).expect("an index");
                assert!(reader.interfaces().get(interface).is_some());
                assert!(reader.offset() > offset, "a packet takes bytes");
                offset = reader.offset();
            }
            Ok(None) => return (packets, None),
            Err(error) => return (packets, Some(damage_of(&error, file.len()))),
        }
    }
}

fn damage_of(error: &ReadError, length: usize) -> Damage {
    let length = u64::try_from(length).expect("64 bits");
    let _ = error.to_string();
    match error {
        ReadError::Truncated {
            offset,
            needed,
            found,
            ..
        } => {
            assert_eq!(offset + found, length, "the end of the file");
            assert!(needed > found);
            Damage::Truncated
        }
        ReadError::Corrupt { offset, .. } | ReadError::Unsupported { offset, .. } => {
            assert!(*offset < length);
            Damage::Other
        }
        _ => Damage::Other,
    }
}
