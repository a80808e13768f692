// SPDX-License-Identifier: MIT OR Apache-2.0
//! Random filters from the pcap-filter grammar.

use crate::dice::Dice;
use crate::packets::{HOSTS, PORTS};

/// An expression; libpcap refuses some, for instance contradictory ones.
pub(crate) fn expression(dice: &mut Dice) -> String {
    let depth = dice.below(4);
    match dice.below(12) {
        0 => format!("{} and {}", encapsulation(dice), nested(dice, depth)),
        1 => encapsulation(dice),
        2 => format!(
            "{} and {} and {}",
            encapsulation(dice),
            encapsulation(dice),
            nested(dice, depth)
        ),
        _ => nested(dice, depth),
    }
}

fn encapsulation(dice: &mut Dice) -> String {
    let number = dice.pick(&[5, 7, 9]);
    match dice.below(6) {
        0 | 1 => "vlan".to_owned(),
        2 => format!("vlan {number}"),
        3 => format!("mpls {}", dice.pick(&[5, 6, 4102])),
        4 => "mpls".to_owned(),
        _ => dice.pick(&["pppoes", "pppoes 5", "pppoed"]).to_owned(),
    }
}

fn nested(dice: &mut Dice, depth: u32) -> String {
    if depth == 0 {
        return primitive(dice);
    }
    match dice.below(5) {
        0 => format!("not ({})", nested(dice, depth - 1)),
        1 | 2 => format!(
            "({}) and ({})",
            nested(dice, depth - 1),
            nested(dice, depth - 1)
        ),
        _ => format!(
            "({}) or ({})",
            nested(dice, depth - 1),
            nested(dice, depth - 1)
        ),
    }
}

fn primitive(dice: &mut Dice) -> String {
    match dice.below(16) {
        0 => format!("{}host {}", direction(dice), address(dice)),
        1 => format!("{}host {}", direction(dice), address6(dice)),
        2 => format!(
            "{}net {}",
            direction(dice),
            dice.pick(&[
                "10.0.0.0/8",
                "192.168.1.0/24",
                "2001:db8::/32",
                "10.0.0.0/30"
            ])
        ),
        3 | 4 => format!(
            "{}{}port {}",
            transport(dice),
            direction(dice),
            dice.pick(&PORTS)
        ),
        5 => {
            let (low, high) = (dice.pick(&PORTS), dice.pick(&PORTS));
            format!(
                "{}{}portrange {}-{}",
                transport(dice),
                direction(dice),
                low.min(high),
                low.max(high)
            )
        }
        6 => format!(
            "{} proto {}",
            dice.pick(&["ip", "ip6"]),
            dice.pick(&["\\tcp", "\\udp", "1", "58", "132", "47"])
        ),
        7 => format!(
            "ether {}host {}",
            direction(dice),
            dice.pick(&["02:00:00:00:00:01", "02:00:00:00:00:02"])
        ),
        8 => dice
            .pick(&[
                "ether broadcast",
                "ether multicast",
                "ip multicast",
                "ip6 multicast",
                "arp",
                "rarp",
                "ip",
                "ip6",
            ])
            .to_owned(),
        9 => dice
            .pick(&[
                "tcp", "udp", "icmp", "icmp6", "sctp", "igmp", "pim", "ah", "esp", "vrrp", "stp",
                "ipx", "atalk",
            ])
            .to_owned(),
        10 => format!(
            "{} {}",
            dice.pick(&["less", "greater"]),
            dice.pick(&[14, 42, 54, 60, 61, 64, 1000])
        ),
        11 => format!(
            "ether proto {}",
            dice.pick(&["0x0800", "0x86dd", "0x8100", "0x0806", "1500", "\\ip"])
        ),
        _ => relation(dice),
    }
}

fn relation(dice: &mut Dice) -> String {
    let operator = dice.pick(&["=", "!=", "<", ">", "<=", ">="]);
    let depth = dice.below(3);
    let right = match dice.below(4) {
        0 => arithmetic(dice, depth),
        1 => dice.word().to_string(),
        _ => dice
            .pick(&[0, 1, 2, 4, 5, 6, 17, 20, 53, 80, 255])
            .to_string(),
    };
    format!("{} {operator} {right}", arithmetic(dice, depth))
}

fn arithmetic(dice: &mut Dice, depth: u32) -> String {
    if depth == 0 {
        return field(dice);
    }
    let operator = dice.pick(&["+", "-", "*", "/", "%", "&", "|", "^", "<<", ">>"]);
    let left = arithmetic(dice, depth - 1);
    match dice.below(5) {
        0 | 1 => format!("({left} {operator} {})", arithmetic(dice, depth - 1)),
        2 => format!("(-{left} {operator} {})", 1 + dice.below(31)),
        _ => format!("({left} {operator} {})", 1 + dice.below(31)),
    }
}

fn field(dice: &mut Dice) -> String {
    let protocol = dice.pick(&[
        "ether", "ip", "ip", "ip6", "tcp", "udp", "icmp", "arp", "sctp", "link",
    ]);
    let size = dice.pick(&["", ":1", ":2", ":4"]);
    let offset = match dice.below(8) {
        0 => "len - 1".to_owned(),
        1 => format!("{protocol}[{}] & 0x1f", dice.below(8)),
        2 => format!("(ip[0] & 0xf) << {}", dice.below(4)),
        3 => dice.pick(&[60, 100, 500, 1400, 70000]).to_string(),
        _ => dice.below(24).to_string(),
    };
    match dice.below(10) {
        0 => "len".to_owned(),
        1 => dice
            .pick(&[
                "tcp[tcpflags] & (tcp-syn|tcp-fin)",
                "icmp[icmptype]",
                "ip[6:2] & 0x1fff",
            ])
            .to_owned(),
        _ => format!("{protocol}[{offset}{size}]"),
    }
}

fn transport(dice: &mut Dice) -> &'static str {
    dice.pick(&["", "tcp ", "udp ", "sctp "])
}

fn direction(dice: &mut Dice) -> &'static str {
    dice.pick(&["", "src ", "dst ", "src or dst ", "src and dst "])
}

fn address(dice: &mut Dice) -> String {
    let host = dice.below(HOSTS) + 1;
    match dice.below(4) {
        0 => format!("192.168.1.{host}"),
        _ => format!("10.0.0.{host}"),
    }
}

fn address6(dice: &mut Dice) -> String {
    format!("2001:db8::{}", dice.below(HOSTS) + 1)
}
