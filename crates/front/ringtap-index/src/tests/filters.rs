// SPDX-License-Identifier: MIT OR Apache-2.0
//! Random filters in pcap-filter syntax.

use std::net::{Ipv4Addr, Ipv6Addr};

use super::made::{PORTS, Random, ipv4, ipv6};

/// A filter of up to a few terms. Some are refused: `vlan` and IPv6 lengths contradict each other.
pub(super) fn filter(random: &mut Random) -> String {
    let mut text = term(random);
    for _ in 0..random.below(3) {
        let word = *random.one(&["and", "and", "or"]);
        let next = term(random);
        text = if random.chance(30) {
            format!("{next} {word} ({text})")
        } else {
            format!("{text} {word} {next}")
        };
    }
    text
}

fn term(random: &mut Random) -> String {
    let not = if random.chance(10) { "not " } else { "" };
    format!("{not}{}", primitive(random))
}

fn primitive(random: &mut Random) -> String {
    let direction = *random.one(&["", "", "src ", "dst ", "src or dst ", "src and dst "]);
    let protocol = *random.one(&["", "", "tcp ", "udp ", "sctp "]);
    let port = *random.one(&PORTS);
    let v4 = Ipv4Addr::from(ipv4(random));
    let v6 = Ipv6Addr::from(ipv6(random));
    let bits = random.below(33);
    match random.below(24) {
        0..=3 => format!("{direction}host {v4}"),
        4 | 5 => format!("{direction}host {v6}"),
        6 => {
            let network = u32::from(v4) & u32::MAX.checked_shl(32 - bits as u32).unwrap_or(0);
            format!("{direction}net {}/{bits}", Ipv4Addr::from(network))
        }
        7 => {
            let bits = random.below(129) as u32;
            let network = u128::from(v6) & u128::MAX.checked_shl(128 - bits).unwrap_or(0);
            format!("{direction}net {}/{bits}", Ipv6Addr::from(network))
        }
        8..=10 => format!("{protocol}{direction}port {port}"),
        11 => {
            let other = *random.one(&PORTS);
            let (low, high) = (port.min(other), port.max(other));
            format!("{protocol}{direction}portrange {low}-{high}")
        }
        12 => (*random.one(&[
            "tcp", "udp", "sctp", "icmp", "icmp6", "ip", "ip6", "arp", "rarp",
        ]))
        .to_owned(),
        13 => format!("vlan {}", random.below(6) + 98),
        14 => format!("vlan and {}", primitive(random)),
        15 => format!("arp {direction}host {v4}"),
        16 => format!("ether host 02:00:00:00:00:0{}", random.below(10)),
        17 => format!("greater {}", random.below(300)),
        18 => format!("less {}", random.below(300)),
        19 => (*random.one(&[
            "ip[6:2] & 0x1fff != 0",
            "tcp[tcpflags] & tcp-syn != 0",
            "ip6 proto 44",
            "ip proto 47",
            "ip6[6] = 6",
            "ip[9] > 5 and ip[9] < 18",
            "udp[2:2] = 4789",
            "ip[0] & 0xf > 5",
            "ip6 protochain 6",
            "ip[12:4] = 0x0a000101",
            "ether proto 0x88a8",
            "link[0] = 2",
        ]))
        .to_owned(),
        20 => format!("mpls and {}", primitive(random)),
        21 => format!("pppoes and {}", primitive(random)),
        22 => format!("host {v4} and port {port}"),
        _ => format!("ip proto {}", random.one(&[1, 6, 17, 47, 50, 132])),
    }
}
