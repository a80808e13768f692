// SPDX-License-Identifier: MIT OR Apache-2.0
//! IPFIX and NetFlow v9 in tshark, value by value.

use std::fs;
use std::net::UdpSocket;
use std::time::Duration;

use ringtap_probe::export::ipfix::{FlowExporter, FlowProtocol};
use ringtap_probe::export::{Exporter as _, FlowSum};
use ringtap_probe::record::{DirectionCounts, EndReason, FlowRecord, Record};
use ringtap_testkit::{LIMIT, Running, require_tool};

use crate::collectors::{exporter, text};
use crate::flows::{NEW_YEAR_NS, flows, records, with_texts, with_tunnels};

#[test]
fn tshark_reads_each_value_of_each_record() {
    require_tool!("tshark");
    let mut flows = flows(60);
    let ends = [
        EndReason::Idle,
        EndReason::Active,
        EndReason::Fin,
        EndReason::Reset,
        EndReason::Evicted,
        EndReason::End,
    ];
    for (flow, end) in flows.iter_mut().zip(ends.into_iter().cycle()) {
        flow.end = end;
    }
    let (first, second) = flows.split_at(40);
    for protocol in [
        FlowProtocol::Ipfix,
        FlowProtocol::IpfixUniflow,
        FlowProtocol::NetflowV9,
    ] {
        let told = tshark(protocol, &[&records(first), &records(second)]);
        let expected: Vec<_> = flows
            .iter()
            .flat_map(|flow| lines(flow, protocol))
            .collect();
        let got: Vec<_> = told.split("\n        Flow ").skip(1).map(values).collect();
        assert_eq!(got.len(), expected.len(), "{protocol:?}: {told}");
        for (got, expected) in got.iter().zip(&expected) {
            assert_eq!(got, expected, "{protocol:?}");
        }
        assert_sequence(protocol, &told);
    }
}

/// The values of one record, as tshark prints them.
fn values(record: &str) -> Vec<String> {
    const NAMES: [&str; 15] = [
        "SrcAddr",
        "DstAddr",
        "SrcPort",
        "DstPort",
        "Protocol",
        "Vlan Id",
        "IP ToS",
        "InputInt",
        "OutputInt",
        "Direction",
        "TCP Flags",
        "Flow End Reason",
        "Packets",
        "Octets",
        "StartTime",
    ];
    let record = record.split("\nFrame ").next().unwrap_or(record);
    // Times since the system's start are compared by their own test.
    let record = record.split("seconds (switched)]").next().unwrap_or(record);
    let lines = record
        .lines()
        .filter_map(|line| line.trim().split_once(": "));
    let lines = lines.filter(|(name, _)| NAMES.contains(name) || *name == "EndTime");
    lines
        .map(|(name, value)| {
            let number = value
                .split_once(" (")
                .filter(|_| name == "Protocol" || name == "Flow End Reason");
            let value = number.map_or(value, |(_, number)| number.trim_end_matches(')'));
            let value = match name {
                "StartTime" | "EndTime" => value,
                _ => value.split([' ', ',']).next().unwrap_or(value),
            };
            format!("{name}: {value}")
        })
        .collect()
}

/// The same values from the flow itself: one record with both directions, or one for each.
fn lines(flow: &FlowRecord, protocol: FlowProtocol) -> Vec<Vec<String>> {
    let key = &flow.key;
    let there = [
        (key.source, key.source_port),
        (key.destination, key.destination_port),
    ];
    let back = [there[1], there[0]];
    let directions = [(&flow.forward, there), (&flow.backward, back)];
    let mut records: Vec<Vec<String>> = Vec::new();
    for (number, (direction, [(from, from_port), (to, to_port)])) in
        directions.into_iter().enumerate()
    {
        if direction.packets == 0 {
            continue;
        }
        let numbers = [
            format!("Packets: {}", direction.packets),
            format!("Octets: {}", direction.bytes),
        ];
        let times = [
            format!("StartTime: {}", new_year_time(direction.first_ns)),
            format!("EndTime: {}", new_year_time(direction.last_ns)),
        ];
        let flags = format!("TCP Flags: {:#04x}", direction.tcp_flags);
        let marks = flow.marks[number];
        let tos = format!("IP ToS: {:#04x}", marks.traffic_class);
        let interface = flow.interface.map(|index| {
            let (input, output, direction) = if marks.is_sent {
                (0, index, "Egress")
            } else {
                (index, 0, "Ingress")
            };
            [
                format!("InputInt: {input}"),
                format!("OutputInt: {output}"),
                format!("Direction: {direction}"),
            ]
        });
        let rest = numbers.into_iter().chain(times);
        let rest = rest.chain(interface.into_iter().flatten());
        if number == 1 && protocol == FlowProtocol::Ipfix {
            let record = records.last_mut().expect("the direction there comes first");
            record.extend([tos, flags].into_iter().chain(rest));
            continue;
        }
        let head = [
            format!("SrcAddr: {from}"),
            format!("DstAddr: {to}"),
            format!("SrcPort: {from_port}"),
            format!("DstPort: {to_port}"),
            format!("Protocol: {}", key.protocol),
            format!("Vlan Id: {}", key.vlan),
            tos,
            flags,
            // IANA's values of flowEndReason.
            format!(
                "Flow End Reason: {}",
                match flow.end {
                    EndReason::Idle => 1,
                    EndReason::Active => 2,
                    EndReason::Fin | EndReason::Reset => 3,
                    EndReason::End => 4,
                    EndReason::Evicted => 5,
                }
            ),
        ];
        records.push(head.into_iter().chain(rest).collect());
    }
    records
}

/// A time in the first minute of 2026 as tshark prints it, cut to milliseconds.
fn new_year_time(time_ns: u64) -> String {
    let ms = (time_ns - NEW_YEAR_NS) / 1_000_000;
    assert!(ms < 60_000, "in the first minute");
    format!(
        "Jan  1, 2026 00:00:{:02}.{:03}000000 UTC",
        ms / 1000,
        ms % 1000
    )
}

/// RFC 7011: records sent before this message. RFC 3954: messages.
fn assert_sequence(protocol: FlowProtocol, told: &str) {
    let mut sent = 0;
    for message in told.split("Cisco NetFlow/IPFIX").skip(1) {
        let sequence = message
            .split_once("FlowSequence: ")
            .map(|(_, rest)| rest.lines().next());
        assert_eq!(
            sequence,
            Some(Some(sent.to_string().as_str())),
            "{protocol:?}"
        );
        sent += match protocol {
            FlowProtocol::NetflowV9 => 1,
            _ => message.matches("\n        Flow ").count(),
        };
    }
    assert!(sent > 1, "several messages");
}

#[test]
fn netflow_v9_counts_times_from_the_start_in_its_header() {
    require_tool!("tshark");
    let mut flows = flows(3);
    // 2004: further from the others than 32 bits of milliseconds.
    flows[1].forward.first_ns -= 22 * 365 * 86_400 * 1_000_000_000;
    flows[1].forward.last_ns -= 22 * 365 * 86_400 * 1_000_000_000;
    flows[1].backward = DirectionCounts::default();
    flows[2].backward = DirectionCounts::default();
    let told = tshark(FlowProtocol::NetflowV9, &[&records(&flows)]);
    let number = |text: &str, name: &str| -> f64 {
        let value = text
            .split_once(name)
            .and_then(|(_, rest)| rest.split(' ').next());
        value
            .and_then(|value| value.trim().parse().ok())
            .unwrap_or_else(|| panic!("{name} in {text}"))
    };
    let mut got = Vec::new();
    for message in told.split("Cisco NetFlow/IPFIX").skip(1) {
        let seconds = message
            .split_once("CurrentSecs: ")
            .and_then(|(_, rest)| rest.lines().next());
        let seconds: f64 = seconds.and_then(|text| text.parse().ok()).expect("a time");
        let start = seconds - number(message, "SysUptime: ");
        for switched in message.split("seconds (switched)]").skip(1) {
            got.push([
                start + number(switched, "StartTime: "),
                start + number(switched, "EndTime: "),
            ]);
        }
    }
    let ms = |time_ns: u64| Duration::from_millis(time_ns / 1_000_000).as_secs_f64();
    assert_eq!(got.len(), 3, "{told}");
    for (got, flow) in got.iter().zip(&flows) {
        let expected = [ms(flow.forward.first_ns), ms(flow.forward.last_ns)];
        let differ = [got[0] - expected[0], got[1] - expected[1]].map(f64::abs);
        assert!(differ.iter().all(|by| *by < 0.0005), "{got:?} {expected:?}");
    }
}

#[test]
fn tshark_reads_the_application_and_the_host_of_each_flow() {
    require_tool!("tshark");
    let flows = records(&with_texts(flows(60)));
    let told = tshark(FlowProtocol::Ipfix, &[&flows]);
    let found = |what: &str| {
        told.lines()
            .filter(|line| line.trim().starts_with(what))
            .count()
    };
    assert!(!told.contains("Malformed"), "{told}");
    // Biflows have one record each; a fourth of the flows has one direction, so one record, too.
    assert_eq!(found("ApplicationName: http"), 20, "{told}");
    assert_eq!(found("HTTP Request Host: www."), 20, "{told}");
}

#[test]
fn tshark_reads_the_tunnels_of_a_flow_before_its_own_addresses() {
    require_tool!("tshark");
    let told = tshark(FlowProtocol::Ipfix, &[&records(&with_tunnels(flows(6)))]);
    assert!(!told.contains("Malformed"), "{told}");
    let vxlan = [
        "SrcAddr: 192.0.2.1",
        "DstAddr: 192.0.2.2",
        "Protocol: UDP (17)",
        "DstPort: 4789",
        // 1 for VXLAN in the first byte, then 0x010203.
        "Layer2 Segment Id: 72057594037993987",
    ];
    let gtp = ["DstPort: 2152", "Type 507: Value (hex bytes): 01 02 03 04"];
    let expected: [&[&[&str]]; 6] = [
        &[
            &["SrcAddr: 2001:db8::9:1", "DstAddr: 2001:db8::9:2", "(47)"],
            &["SrcAddr: 2001:db8::1:0"],
        ],
        &[&vxlan, &["SrcAddr: 10.1.0.1"]],
        &[
            &gtp,
            &[
                "SrcAddr: 10.1.0.2",
                "Type 507: Value (hex bytes): 05 06 07 08 (Reverse",
            ],
        ],
        &[&["SrcAddr: 2001:db8::1:3"]],
        &[&vxlan, &gtp, &["SrcAddr: 10.1.0.4"]],
        &[&["SrcAddr: 10.1.0.5", "Dot1q Customer Vlan Id: 7"]],
    ];
    let records: Vec<_> = told.split("\n        Flow ").skip(1).collect();
    assert_eq!(records.len(), expected.len(), "{told}");
    for (record, lines) in records.into_iter().zip(expected) {
        let mut rest = record;
        for line in lines.iter().copied().flatten() {
            let found = rest.split_once(line);
            rest = found.unwrap_or_else(|| panic!("{line} in {record}")).1;
        }
    }
    // The ends of a tunnel have the flow's IP version, or are left out.
    assert_eq!(told.matches("SrcAddr: 192.0.2.1").count(), 4, "{told}");
}

#[test]
fn tshark_reads_the_sampling_before_the_first_flow_and_the_statistics_of_the_exporter() {
    require_tool!("tshark");
    let mut flows = flows(3);
    for flow in &mut flows {
        flow.sampling = 1000;
    }
    for (protocol, expected) in [
        (
            FlowProtocol::Ipfix,
            &[
                // RFC 5477: one packet, then 999 that are left out; a probability of 1 / 1000.
                "Sampling interval: 1000",
                "Selector Id: 1",
                "Selector Algorithm: Uniform probabilistic Sampling (4)",
                "Sampling Packet Interval: 1",
                "Sampling Packet Space: 999",
                "Observation Domain Id: 7",
                "PacketsExp: 1",
                "FlowsExp: 3",
                "Not Sent Flows: 5",
                "Not Sent Packets: 50",
                "Not Sent Octets: 500",
            ][..],
        ),
        (
            FlowProtocol::NetflowV9,
            &["Sampling interval: 1000", "PacketsExp: 1", "FlowsExp: 5"],
        ),
    ] {
        let told = messages(protocol, |exporter| {
            exporter.write(&records(&flows)).expect("it is sent");
            exporter.not_queued(FlowSum {
                flows: 5,
                packets: 50,
                octets: 500,
            });
            exporter.flush().expect("it is sent");
        });
        let mut rest = told.as_str();
        for line in expected {
            let found = rest.split_once(line);
            rest = found
                .unwrap_or_else(|| panic!("{protocol:?}: {line} in {told}"))
                .1;
        }
        assert!(!told.contains("Malformed"), "{told}");
        let sampling = told.find("Sampling interval: 1000");
        assert!(sampling < told.find("SrcAddr: "), "{told}");
    }
}

/// What `tshark -V` prints of the messages that hold these records, one part after the other.
fn tshark(protocol: FlowProtocol, parts: &[&[Record]]) -> String {
    messages(protocol, |exporter| {
        for part in parts {
            exporter.write(part).expect("it is sent");
        }
    })
}

/// What `tshark -V` prints of the messages that an exporter sends.
fn messages(protocol: FlowProtocol, send: impl Fn(&mut FlowExporter)) -> String {
    let collector = UdpSocket::bind("127.0.0.1:0").expect("a port");
    let port = collector.local_addr().expect("it is bound").port();
    let mut exporter = exporter(protocol, &format!("udp://127.0.0.1:{port}"));
    send(&mut exporter);
    // Over the loopback interface, what was sent is there.
    collector.set_nonblocking(true).expect("a socket");
    let mut file = Vec::new();
    for word in [0xa1b2_c3d4, 0x0004_0002, 0, 0, 65535, 101_u32] {
        file.extend(word.to_le_bytes());
    }
    let mut message = [0; 2000];
    while let Ok(length) = collector.recv(&mut message) {
        let builder = etherparse::PacketBuilder::ipv4([127, 0, 0, 1], [127, 0, 0, 1], 64);
        let mut packet = Vec::new();
        let written = builder
            .udp(port, port)
            .write(&mut packet, &message[..length]);
        written.expect("memory");
        let length = u32::try_from(packet.len()).expect("small");
        for word in [0, 0, length, length] {
            file.extend(word.to_le_bytes());
        }
        file.extend(packet);
    }
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("messages.pcap");
    fs::write(&path, file).expect("a file");
    let mut command = std::process::Command::new("tshark");
    command.args([
        "-r",
        text(&path),
        "-V",
        "-d",
        &format!("udp.port=={port},cflow"),
    ]);
    command.env("TZ", "UTC");
    Running::start(command).wait(LIMIT).success().stdout
}
