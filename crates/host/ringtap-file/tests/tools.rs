// SPDX-License-Identifier: MIT OR Apache-2.0
//! Files that other programs captured, read packet for packet (needs root and network namespaces).
#![allow(missing_docs, reason = "a test is named by its claim")]

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use ringtap_file::{FileReader, Format, Resolution};
use ringtap_filter::LinkType;
use ringtap_testkit::{LIMIT, Namespace, Running, require_root, require_tool};
use tempfile::TempDir;

/// Frames of every length from 60 to 1,514 in steps, each with other bytes.
fn frames() -> Vec<Vec<u8>> {
    (60..=1_514_u16)
        .step_by(97)
        .map(|length| {
            let mut frame = vec![0xff; 6];
            frame.extend([2, 0, 0, 0, 0, 1, 0x88, 0xb5]);
            frame.resize(usize::from(length), length.to_le_bytes()[0]);
            frame
        })
        .collect()
}

/// Captures `frames` with another program and checks what we read from its file.
fn captured(test: &str, program: &str, args: &[&str], format: Format, resolution: Resolution) {
    let net = Namespace::with_veth(test);
    let folder = TempDir::new().expect("a folder can be made");
    let path = folder
        .path()
        .join("capture")
        .to_str()
        .expect("UTF-8")
        .to_owned();
    let frames = frames();
    // It ends by itself: what a signal interrupts may not have left the kernel's ring yet.
    let count = frames.len().to_string();
    let mut all = vec!["-i", "rx0", "-p", "-c", &count, "-w", &path];
    all.extend(args);
    let capture = net.spawn(program, &all);
    capture.wait_for_stderr(
        if program == "dumpcap" {
            "File:"
        } else {
            "listening on"
        },
        LIMIT,
    );
    net.inject("tx0", &frames);
    let finished = capture.wait(LIMIT).success();

    let mut reader =
        FileReader::open(&path).unwrap_or_else(|error| panic!("{error}: {finished:?}"));
    assert_eq!(reader.format(), format);
    let mut last_ns = 0;
    for frame in &frames {
        let packet = reader
            .next_packet()
            .expect("whole")
            .expect("as many packets");
        assert!(packet.data == frame, "{} bytes differ", frame.len());
        assert_eq!(
            packet.wire_length,
            u32::try_from(frame.len()).expect("short")
        );
        assert_eq!(packet.link_type, LinkType::ETHERNET);
        assert!(packet.time_ns >= last_ns, "times are in order");
        last_ns = packet.time_ns;
    }
    assert!(reader.next_packet().expect("a clean end").is_none());
    assert_eq!(reader.interfaces()[0].resolution, resolution);
    let now = SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .expect("after 1970");
    let age = now.saturating_sub(Duration::from_nanos(last_ns));
    assert!(age < Duration::from_secs(3600), "{age:?} old");
    if format == Format::Pcapng {
        let interface = &reader.interfaces()[0];
        assert_eq!(interface.name.as_deref(), Some("rx0"));
        assert_eq!(interface.filter.as_deref(), Some("ether proto 0x88b5"));
        let counted = interface.statistics.as_ref().expect("dumpcap counts");
        assert_eq!(counted.received, u64::try_from(frames.len()).ok());
    }
}

#[test]
fn tcpdump_microseconds() {
    require_root!();
    require_tool!("tcpdump");
    let (format, resolution) = (Format::Pcap, Resolution::MICROSECONDS);
    captured("tcpdump_us", "tcpdump", &["-U"], format, resolution);
}

#[test]
fn tcpdump_nanoseconds() {
    require_root!();
    require_tool!("tcpdump");
    let args = ["-U", "--time-stamp-precision", "nano"];
    let (format, resolution) = (Format::Pcap, Resolution::NANOSECONDS);
    captured("tcpdump_ns", "tcpdump", &args, format, resolution);
}

#[test]
fn dumpcap_pcapng() {
    require_root!();
    require_tool!("dumpcap");
    let args = ["-f", "ether proto 0x88b5"];
    let (format, resolution) = (Format::Pcapng, Resolution::NANOSECONDS);
    captured("dumpcap", "dumpcap", &args, format, resolution);
}

/// Words of a file in the order of this machine.
fn words(words: &[u32]) -> Vec<u8> {
    words.iter().flat_map(|word| word.to_ne_bytes()).collect()
}

/// Files of other writers: tshark and we read the same times and lengths.
#[test]
fn tshark_reads_the_dialects_alike() {
    require_tool!("tshark");
    let (version, old, older) = (2 | 4 << 16, 2 | 3 << 16, 2 | 2 << 16);
    let frame = &frames()[0];
    let length = u32::try_from(frame.len()).expect("short");
    let wire = length + 40;
    for (name, head, packet) in [
        (
            "patched",
            vec![0xa1b2_cd34, version, 0, 0, 65535, 1],
            vec![1000, 5, length, wire, 7, 0x0008],
        ),
        (
            "ixia",
            vec![0x1c00_01ac, version, 0, 0, 65535, 1, 16 + length],
            vec![1000, 5, length, wire],
        ),
        (
            "2.3",
            vec![0xa1b2_c3d4, old, 0, 0, 65535, 1],
            vec![1000, 5, wire, length],
        ),
        (
            "aix",
            vec![0xa1b2_c3d4, older, 0, 0, 65535, 6],
            vec![1000, 5, wire, length],
        ),
    ] {
        let mut bytes = words(&head);
        for _ in 0..3 {
            bytes.extend(words(&packet));
            bytes.extend(frame);
        }
        let folder = TempDir::new().expect("a folder can be made");
        let path = folder.path().join(name);
        std::fs::write(&path, bytes).expect("a file");
        let path = path.to_str().expect("UTF-8");
        let mut command = std::process::Command::new("tshark");
        command.args([
            "-r",
            path,
            "-T",
            "fields",
            "-e",
            "frame.time_epoch",
            "-e",
            "frame.len",
        ]);
        command.args(["-e", "frame.cap_len", "-e", "eth.type"]);
        let told = Running::start(command).wait(LIMIT).success().stdout;
        let mut reader = FileReader::open(path).unwrap_or_else(|error| panic!("{name}: {error}"));
        let mut ours = String::new();
        while let Some(packet) = reader
            .next_packet()
            .unwrap_or_else(|error| panic!("{name}: {error}"))
        {
            let (seconds, fraction) = (
                packet.time_ns / 1_000_000_000,
                packet.time_ns % 1_000_000_000,
            );
            let (wire, captured) = (packet.wire_length, packet.data.len());
            let line = format!("{seconds}.{fraction:09}\t{wire}\t{captured}\t0x88b5\n");
            ours.push_str(&line);
        }
        assert_eq!(ours, told, "{name}");
    }
}
