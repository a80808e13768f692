// SPDX-License-Identifier: MIT OR Apache-2.0
//! Made packets: each option's effect on the wire, as tshark sees it.

use std::collections::{BTreeMap, BTreeSet};

use ringtap_packet::stamp;
use ringtap_testkit::{require_root, require_tool};

use crate::wire::{Capture, figures, network, send};

/// The status that tshark gives a checksum that is right.
const GOOD: &str = "1";

/// Sends with both methods; gives the fields of the packets, and checks that nothing is lost.
fn fields_of(test: &str, args: &str, count: usize, names: &[&str]) -> Vec<Vec<String>> {
    let net = network(test);
    let mut both = Vec::new();
    for method in ["live", "packet"] {
        let capture = Capture::start(&net);
        let figures = figures(&net, &format!("{args} -c {count} --method {method}"));
        assert_eq!(figures["sent"], count, "{figures}");
        assert_eq!(figures["method"], method, "{figures}");
        let seen = capture.packets(count);
        assert_eq!(seen.len(), count);
        let bytes: usize = seen.iter().map(Vec::len).sum();
        assert_eq!(figures["bytes"], bytes, "{figures}");
        both.push(capture.fields(names));
    }
    let of_packet = both.pop().expect("two methods");
    let of_live = both.pop().expect("two methods");
    assert_eq!(of_live, of_packet, "both methods send the same packets");
    of_live
}

fn row(fields: &[&str]) -> Vec<String> {
    fields.iter().map(|field| (*field).to_owned()).collect()
}

#[test]
fn plain_packets_are_udp_over_ipv4_of_64_bytes() {
    require_root!();
    require_tool!("tcpdump", "tshark", "ethtool");
    let names = [
        "frame.len",
        "eth.dst",
        "ip.src",
        "ip.dst",
        "udp.srcport",
        "udp.dstport",
        "ip.checksum.status",
        "udp.checksum.status",
    ];
    let fields = fields_of("send_plain", "--rate 10000", 300, &names);
    let expected = [
        "60",
        "02:00:00:00:00:02",
        "198.18.0.1",
        "198.19.0.1",
        "10000",
        "9",
        GOOD,
        GOOD,
    ];
    assert!(fields.iter().all(|fields| *fields == row(&expected)));
}

#[test]
fn addresses_and_ports_are_those_that_were_asked_for() {
    require_root!();
    require_tool!("tcpdump", "tshark", "ethtool");
    let args = "--rate 10000 --src-mac 02:aa:00:00:00:01 --dst-mac 02:bb:00:00:00:02 --size 99 \
                --src-ip 10.1.2.3 --dst-ip 10.4.5.6 --src-port 65535 --dst-port 53000";
    let names = [
        "frame.len",
        "eth.src",
        "eth.dst",
        "ip.src",
        "ip.dst",
        "udp.srcport",
        "udp.dstport",
        "udp.checksum.status",
    ];
    let fields = fields_of("send_addresses", args, 100, &names);
    let expected = [
        "95",
        "02:aa:00:00:00:01",
        "02:bb:00:00:00:02",
        "10.1.2.3",
        "10.4.5.6",
        "65535",
        "53000",
        GOOD,
    ];
    assert!(fields.iter().all(|fields| *fields == row(&expected)));
}

#[test]
fn tagged_tcp_over_ipv6_in_many_flows_has_good_checksums() {
    require_root!();
    require_tool!("tcpdump", "tshark", "ethtool");
    let args = "--rate 10000 --tcp --ipv6 --vlan 100,7 --flows 100 --stamp --size 300";
    let names = [
        "frame.len",
        "ieee8021ad.id",
        "vlan.id",
        "ipv6.dst",
        "tcp.checksum.status",
        "tcp.flags",
        "ipv6.src",
        "tcp.srcport",
    ];
    let fields = fields_of("send_tcp6", args, 1000, &names);
    let mut flows: BTreeMap<Vec<String>, u32> = BTreeMap::new();
    for fields in &fields {
        let (all, flow) = fields.split_at(6);
        let expected = ["296", "100", "7", "2001:2:0:1::1", GOOD, "0x0010"];
        assert_eq!(all, row(&expected));
        *flows.entry(flow.to_vec()).or_default() += 1;
    }
    assert_eq!(flows.len(), 100);
    assert!(flows.values().all(|packets| *packets == 10));
}

#[test]
fn the_mix_is_seven_to_four_to_one_with_good_checksums() {
    require_root!();
    require_tool!("tcpdump", "tshark", "ethtool");
    let names = ["frame.len", "ip.checksum.status", "udp.checksum.status"];
    let args = "--rate 10000 --imix --stamp --flows 7 --vlan 5";
    let fields = fields_of("send_imix", args, 1200, &names);
    let count = |length: &str| {
        let wanted = row(&[length, GOOD, GOOD]);
        fields.iter().filter(|fields| **fields == wanted).count()
    };
    // A tagged packet with a stamp needs 68 bytes: the smallest of the mix is raised to that.
    assert_eq!((count("64"), count("566"), count("1514")), (700, 400, 100));
}

#[test]
fn stamps_count_up_without_gaps_and_time_does_not_go_back() {
    require_root!();
    require_tool!("tcpdump", "ethtool");
    let net = network("send_stamps");
    for (method, rate) in [("live", "50000"), ("packet", "50000"), ("live", "max")] {
        let capture = Capture::start(&net);
        let args = format!("--stamp --flows 9 -c 5000 --rate {rate} --method {method}");
        let figures = figures(&net, &args);
        let sent = usize::try_from(figures["sent"].as_u64().unwrap()).unwrap();
        let stamps: Vec<_> = capture
            .packets(sent)
            .iter()
            .map(|packet| stamp::parse(packet).expect("every packet has a stamp"))
            .collect();
        assert_eq!(stamps.len(), sent);
        assert!(stamps.is_sorted_by_key(|stamp| stamp.time_ns), "{method}");
        let numbers: BTreeSet<_> = stamps.iter().map(|stamp| stamp.sequence).collect();
        assert!(stamps.is_sorted_by_key(|stamp| stamp.sequence), "{method}");
        assert_eq!(numbers.len(), sent, "each number once");
        assert!(numbers.last() < Some(&5000));
        let now_ns = std::time::UNIX_EPOCH.elapsed().unwrap().as_nanos();
        let age_ns = now_ns - u128::from(stamps[0].time_ns);
        assert!(age_ns < 120 * 1_000_000_000, "{age_ns} ns since 1970 off");
    }
}

#[test]
fn jumbo_frames_go_through_af_packet_and_that_is_said() {
    require_root!();
    require_tool!("tcpdump", "tshark", "ethtool");
    let net = network("send_jumbo");
    for device in ["tx0", "rx0"] {
        net.ip(&["link", "set", device, "mtu", "9000"]);
    }
    let capture = Capture::start(&net);
    let end = send(&net, "--size 9018 -c 50 --json --quiet").success();
    assert!(
        end.stderr.contains("too long for live frames"),
        "{}",
        end.stderr
    );
    assert!(end.stderr.contains("AF_PACKET"), "{}", end.stderr);
    assert!(
        capture
            .packets(50)
            .iter()
            .all(|packet| packet.len() == 9014)
    );
    let fields = capture.fields(&["udp.checksum.status"]);
    assert!(fields.len() == 50 && fields.iter().all(|fields| *fields == row(&[GOOD])));
}
