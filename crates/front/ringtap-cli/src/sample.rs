// SPDX-License-Identifier: MIT OR Apache-2.0
//! Writes a small capture to try other verbs with: nine flows, always the same bytes.
#![forbid(unsafe_code)]

use std::{fs, path::Path, process::ExitCode};

use anyhow::{Context, Result};
use clap::Args;
use ringtap_file::write::{FilePacket, Origin};
use ringtap_file::{Direction, Interface};
use ringtap_filter::LinkType;
use ringtap_packet::{MacAddress, Plan, Sizes, Traffic, Transport};
use ringtap_pool::counters::Counters;

use crate::print;
use crate::record::{self, FileOptions, Next, Writer};

/// 2026-01-01 00:00:00 UTC.
const START_NS: u64 = 1_767_225_600_000_000_000;

/// Start and interval of the packets in microseconds, number of packets, VLAN tags, whether IPv6,
/// protocol, destination port, bytes on the wire.
type Flow<'a> = (u64, u64, u64, &'a [u16], bool, Transport, u16, u32);

/// The flows; every second packet is a reply, except in voice flows.
const FLOWS: [Flow<'_>; 9] = [
    (100_000, 8_000, 2, &[], false, Transport::Udp, 53, 90),
    (140_000, 8_000, 2, &[], true, Transport::Udp, 53, 110),
    (400_000, 900, 2, &[], false, Transport::Udp, 123, 94),
    (200_000, 1_100, 54, &[], false, Transport::Tcp, 80, 1_458),
    (260_000, 1_100, 38, &[], true, Transport::Tcp, 80, 1_478),
    (
        600_000,
        1_100,
        27,
        &[100],
        false,
        Transport::Tcp,
        8080,
        1_462,
    ),
    (
        500_000,
        20_000,
        50,
        &[100],
        false,
        Transport::Udp,
        VOICE,
        222,
    ),
    (
        510_000,
        20_000,
        26,
        &[200],
        true,
        Transport::Udp,
        VOICE,
        242,
    ),
    (
        520_000,
        20_000,
        20,
        &[300, 42],
        false,
        Transport::Udp,
        VOICE,
        226,
    ),
];
const VOICE: u16 = 16_386;

/// Options of the verb.
#[derive(Args)]
pub(crate) struct SampleArgs {
    /// File to write; "-" is standard output.
    #[arg(default_value = "examples/first.pcapng")]
    file: String,
}

struct SampleFrame {
    time_ns: u64,
    direction: Direction,
    bytes: Vec<u8>,
}

/// Writes the sample and prints its path.
pub(crate) fn run(options: &SampleArgs) -> Result<ExitCode> {
    if let Some(folder) = Path::new(&options.file).parent() {
        fs::create_dir_all(folder)
            .with_context(|| format!("{}: cannot be created", folder.display()))?;
    }
    let files = FileOptions {
        file: options.file.clone(),
        ..FileOptions::default()
    };
    let origin = Origin {
        hardware: None,
        os: None,
        application: "ringtap sample".to_owned(),
    };
    let interface = Interface {
        name: Some("sample0".to_owned()),
        ..Interface::new(0, LinkType::ETHERNET, 262_144)
    };
    let mut writer = Writer::create(&files, origin, vec![interface], START_NS)?;
    let (mut time_ns, mut counters) = (START_NS, Counters::default());
    for frame in frames()? {
        time_ns = frame.time_ns;
        let wire_length = u32::try_from(frame.bytes.len())?;
        let next = writer.packet(&FilePacket {
            interface: 0,
            time_ns,
            wire_length,
            data: &frame.bytes,
            direction: frame.direction,
            dropped_before: 0,
            is_super: false,
        })?;
        debug_assert_eq!(next, Next::Continue, "a single file is never full");
        counters.offered += 1;
        counters.delivered += 1;
        counters.bytes += u64::from(wire_length);
    }
    let written = writer.finish(&[record::statistics(START_NS, time_ns, &counters)])?;
    print::note(format_args!(
        "{}: {} packets, {} bytes",
        written.file, written.packets, written.size_bytes
    ));
    Ok(ExitCode::SUCCESS)
}

/// All frames in time order.
fn frames() -> Result<Vec<SampleFrame>> {
    let mut frames = Vec::new();
    for (start_us, gap_us, packets, vlans, is_ipv6, transport, port, size_bytes) in FLOWS {
        let (source, destination) = Traffic::benchmark_addresses(is_ipv6);
        let request = Traffic {
            sizes: Sizes::Fixed(size_bytes),
            vlans: vlans.to_vec(),
            transport,
            source,
            destination,
            destination_port: port,
            ..Traffic::default()
        };
        let reply = Traffic {
            source: destination,
            destination: source,
            source_port: port,
            destination_port: request.source_port,
            ..request.clone()
        };
        let request = Plan::new(&request, MacAddress([2, 0, 0, 0, 0, 1]))?;
        let reply = Plan::new(&reply, MacAddress([2, 0, 0, 0, 0, 2]))?;
        for number in 0..packets {
            let time_ns = START_NS + (start_us + number * gap_us) * 1_000;
            let (plan, direction) = match number % 2 {
                1 if port != VOICE => (&reply, Direction::Inbound),
                _ => (&request, Direction::Outbound),
            };
            let mut bytes = Vec::new();
            plan.write(number, time_ns, &mut bytes);
            frames.push(SampleFrame {
                time_ns,
                direction,
                bytes,
            });
        }
    }
    frames.sort_by_key(|frame| frame.time_ns);
    Ok(frames)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_sample_has_the_packets_that_the_documents_show() {
        let frames = frames().unwrap();
        let voice = FLOWS.iter().filter(|flow| flow.6 == VOICE);
        let one_way: u64 = voice.map(|flow| flow.2).sum();
        assert_eq!((frames.len(), one_way), (221, 96));
        assert!(frames.is_sorted_by_key(|frame| frame.time_ns));
    }
}
