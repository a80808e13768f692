// SPDX-License-Identifier: MIT OR Apache-2.0
//! Files of other formats: pcap, and compressed ones.

use std::fs;

use ringtap_file::{FileReader, Format, PacketDirection};
use ringtap_testkit::require_tool;
use tempfile::TempDir;

use super::tools::output;
use super::{Kept, packets, read, write};

/// The packet as a pcap file has it.
fn plain(packet: &Kept) -> Kept {
    Kept {
        direction: PacketDirection::Unknown,
        dropped_before: 0,
        wire_length: packet
            .wire_length
            .max(u32::try_from(packet.data.len()).unwrap()),
        ..packet.clone()
    }
}

#[test]
fn files_are_what_their_names_say_and_are_read_back() {
    let folder = TempDir::new().unwrap();
    let sent = packets(3_000, 1_600);
    let plain: Vec<_> = sent.iter().map(plain).collect();
    for (name, start) in [
        ("a.pcap", &[0x4d, 0x3c, 0xb2, 0xa1][..]),
        ("a.pcap.gz", &[0x1f, 0x8b]),
        ("a.pcap.zst", &[0x28, 0xb5, 0x2f, 0xfd]),
        ("a.pcapng.gz", &[0x1f, 0x8b]),
        ("a.pcapng.zst", &[0x28, 0xb5, 0x2f, 0xfd]),
    ] {
        let path = write(&folder, name, &sent);
        assert!(fs::read(&path).unwrap().starts_with(start), "{name}");
        let is_pcap = name.contains(".pcap.") || name.ends_with(".pcap");
        let wanted = if is_pcap { &plain } else { &sent };
        assert!(read(&path) == *wanted, "{name}: the packets differ");
        let reader = FileReader::open(&path).unwrap();
        assert_eq!(reader.format() == Format::Pcap, is_pcap);
        assert!(!reader.is_stream());
    }
}

#[test]
fn other_tools_decompress_and_read_the_files() {
    require_tool!("capinfos");
    require_tool!("gzip");
    require_tool!("zstd");
    let folder = TempDir::new().unwrap();
    // Several frames: more than one buffer.
    let sent = packets(2_000, 1_600);
    for name in ["a.pcap", "a.pcap.gz", "a.pcapng.gz", "a.pcapng.zst"] {
        let mut path = write(&folder, name, &sent);
        if name.ends_with(".zst") {
            // capinfos 4.0 stumbles over some frames after the first one.
            output("zstd", &["-q", "-d", &path]);
            path = path.replace(".zst", "");
        }
        let told = output("capinfos", &["-Mc", &path]);
        assert!(told.contains("2000"), "{name}: {told}");
        if name.ends_with(".gz") {
            output("gzip", &["-t", &path]);
        }
    }
}

#[test]
fn a_damaged_compressed_file_is_read_up_to_the_damage() {
    let folder = TempDir::new().unwrap();
    let sent = packets(3_000, 1_600);
    for name in ["a.pcapng.gz", "a.pcapng.zst"] {
        let path = write(&folder, name, &sent);
        let bytes = fs::read(&path).unwrap();
        fs::write(&path, &bytes[..bytes.len() * 2 / 3]).unwrap();
        let mut reader = FileReader::open(&path).unwrap();
        let mut count = 0;
        let error = loop {
            match reader.next_packet() {
                Ok(Some(packet)) => assert_eq!(packet.data, sent[count].data),
                Ok(None) => panic!("{name}: the end is not told"),
                Err(error) => break error,
            }
            count += 1;
        };
        assert!((500..3_000).contains(&count), "{name}: {count}");
        assert!(
            error.to_string().contains("reading failed at byte"),
            "{error}"
        );
    }
}
