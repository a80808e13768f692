// SPDX-License-Identifier: MIT OR Apache-2.0
//! The meter on TCP: resets, keep-alives, and segments that the kernel merged.

use super::*;
use ringtap_testkit::with;

const RST: u8 = 4;

fn segment(sequence: u32, flags: u8, payload: u8) -> Vec<u8> {
    let segment = tcp([1000, 443], sequence, flags, payload);
    ethernet(&[], 0x0800, &ipv4(TCP, 1, 2, &segment))
}

#[test]
fn resets_count_and_keep_alives_are_no_retransmissions() {
    require_root!();
    require_tool!("ip");
    let net = Namespace::with_veth("meter_tcp");
    let mut meter = attach(&net, Taking::Pass, &WANTS).unwrap();
    net.inject(
        "tx0",
        &[
            segment(10, SYN, 0),
            segment(11, ACK, 100),
            // Keep-alives (RFC 9293, 3.8.4): the byte before the next one, with and without a byte.
            segment(110, ACK, 1),
            segment(110, ACK, 0),
        ],
    );
    let all = take(&mut meter);
    assert_eq!(packets(&meter, &all), 4);
    let [one] = &all[..] else { panic!("{all:#?}") };
    assert_eq!((one.retransmissions, one.resets), (0, 0), "{one:?}");
    assert_eq!(one.expected, 111);
    assert!(
        one.first_may_repeat,
        "a SYN may be one that was sent before"
    );
    net.inject(
        "tx0",
        &[
            segment(111, ACK, 50),
            // A byte that is not the last one was sent before, and so was all of this segment.
            segment(120, ACK, 1),
            segment(111, ACK, 50),
            segment(161, RST | ACK, 0),
            segment(161, RST, 0),
        ],
    );
    let all = take(&mut meter);
    let [one] = &all[..] else { panic!("{all:#?}") };
    assert_eq!((one.retransmissions, one.resets), (2, 2), "{one:?}");
    assert_eq!(one.tcp_flags, ACK | RST);
    assert!(one.first_may_repeat, "data may be sent before");
    // A byte may be a keep-alive, and an ACK has nothing that could be sent again.
    for payload in [1, 0] {
        net.inject("tx0", &[segment(160, ACK, payload)]);
        let all = take(&mut meter);
        let [one] = &all[..] else { panic!("{all:#?}") };
        assert!(!one.first_may_repeat, "{one:?}");
    }
}

#[test]
fn sequence_numbers_go_on_behind_the_largest() {
    require_root!();
    require_tool!("ip");
    let net = Namespace::with_veth("meter_wrap");
    let mut meter = attach(&net, Taking::Pass, &WANTS).unwrap();
    let begin = u32::MAX - 149;
    let sent = [0_u32, 100, 200, 100].map(|at| segment(begin.wrapping_add(at), ACK, 100));
    net.inject("tx0", &sent);
    let all = take(&mut meter);
    let [one] = &all[..] else { panic!("{all:#?}") };
    assert_eq!((one.retransmissions, one.expected), (1, 150), "{one:?}");
}

#[test]
fn a_reset_moves_no_stream_by_its_payload_or_a_wrong_number() {
    require_root!();
    require_tool!("ip");
    let net = Namespace::with_veth("meter_rst");
    let mut meter = attach(&net, Taking::Pass, &WANTS).unwrap();
    net.inject(
        "tx0",
        &[
            segment(11, ACK, 100),
            segment(111, RST, 50),
            segment(111 + (2 << 20), RST, 0),
        ],
    );
    let all = take(&mut meter);
    let [one] = &all[..] else { panic!("{all:#?}") };
    assert_eq!((one.expected, one.retransmissions, one.resets), (111, 0, 2));
}

#[test]
fn a_reset_is_not_the_first_acknowledgement() {
    require_root!();
    require_tool!("ip");
    let net = Namespace::with_veth("meter_reset");
    let mut meter = attach(&net, Taking::Pass, &WANTS).unwrap();
    net.inject("tx0", &[segment(10, SYN, 0), segment(11, RST | ACK, 0)]);
    let all = take(&mut meter);
    let [one] = &all[..] else { panic!("{all:#?}") };
    assert_eq!((one.first_ack_ns, one.first_payload_ns), (None, None));
}

/// Fills the room for flows, then sends 256 KiB by TCP.
const FILL_AND_SEND: &str = "import socket\n\
    u = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)\n\
    for port in range(20000, 20400): u.sendto(b'x', ('127.0.0.1', port))\n\
    l = socket.create_server(('127.0.0.1', 7777))\n\
    s = socket.create_connection(('127.0.0.1', 7777))\n\
    c, _ = l.accept()\n\
    s.sendall(bytes(256) * 1024)\n\
    got = 0\n\
    while got < 256 * 1024: got += len(c.recv(65536))\n";

#[test]
fn each_segment_of_a_buffer_without_room_is_counted() {
    require_root!();
    require_tool!("ip", "python3", "taskset");
    let net = Namespace::new("meter_merged");
    let wants = MeterWants {
        max_flows: 16,
        ..WANTS
    };
    let options = with(TapOptions::new("lo"), |it| it.on.pool.bytes = Some(8 << 20));
    let mut meter = net.enter(|| KernelMeter::attach(&options, &wants)).unwrap();
    let end = net.run("taskset", &["-c", "0", "python3", "-c", FILL_AND_SEND]);
    assert!(end.status.success(), "{}", end.stderr);
    settle_everywhere();
    let all = take(&mut meter);
    // `packets` compares what was seen, in segments, with what was counted.
    let _flows = packets(&meter, &all);
    let sent_by_tcp = 256 * 1024 / 65483;
    assert!(
        meter.counters().full > 380 + sent_by_tcp,
        "{:?}",
        meter.counters()
    );
}

#[test]
fn a_merged_buffer_has_the_headers_of_each_of_its_segments() {
    require_root!();
    require_tool!("ip", "python3", "taskset");
    let net = Namespace::new("meter_segments");
    let options = with(TapOptions::new("lo"), |it| it.on.pool.bytes = Some(8 << 20));
    let mut meter = net.enter(|| KernelMeter::attach(&options, &WANTS)).unwrap();
    let end = net.run("taskset", &["-c", "0", "python3", "-c", FILL_AND_SEND]);
    assert!(end.status.success(), "{}", end.stderr);
    settle_everywhere();
    let all = take(&mut meter);
    let is_data = |one: &&FlowCounts| one.protocol == TCP && one.payload_bytes >= 256 * 1024;
    let data: Vec<_> = all.iter().filter(is_data).collect();
    assert!(!data.is_empty(), "{all:#?}");
    for one in data {
        // Ethernet's header, and those of IP and TCP with at most 40 bytes of options.
        assert_eq!(one.frame_bytes - one.bytes, 14 * one.packets, "{one:?}");
        let headers = one.bytes - one.payload_bytes;
        assert!(
            (40 * one.packets..=80 * one.packets).contains(&headers),
            "{one:?}"
        );
    }
}
