// SPDX-License-Identifier: MIT OR Apache-2.0
//! What the filter promises, held against known packets.

use super::*;

/// Ethernet, IPv4, UDP 1000 → 53, four bytes of data.
const UDP: [u8; 46] = [
    0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 8, 0, 0x45, 0, 0, 32, 0, 0, 0, 0, 64, 17, 0, 0, 10, 0, 0,
    1, 10, 0, 0, 2, 3, 0xe8, 0, 53, 0, 12, 0, 0, 1, 2, 3, 4,
];

fn filter(expression: &str) -> Filter {
    Filter::compile(expression, LinkType::ETHERNET, 65535).unwrap()
}

fn refused(expression: &str) -> (String, Option<String>) {
    match Filter::compile(expression, LinkType::ETHERNET, 65535) {
        Err(FilterError::Refused {
            expression,
            message,
            place,
        }) => (message, place.map(|place| expression[place].to_owned())),
        other => panic!("{other:?}"),
    }
}

fn tagged(packet: &[u8], tag: u16) -> Vec<u8> {
    let mut bytes = packet[..12].to_vec();
    bytes.extend([0x81, 0]);
    bytes.extend(tag.to_be_bytes());
    bytes.extend(&packet[12..]);
    bytes
}

#[test]
fn filters_take_what_they_describe() {
    for (expression, verdict) in [
        ("udp port 53", true),
        ("udp and dst host 10.0.0.2", true),
        ("tcp", false),
        ("ip6", false),
        ("udp[8:4] = 0x01020304", true),
        ("ether src 06:07:08:09:0a:0b", true),
        ("ip[0] & 0xf != 5", false),
        ("udp portrange 40-60", true),
    ] {
        assert_eq!(
            filter(expression).matches(&UDP, 46),
            verdict,
            "{expression}"
        );
    }
}

#[test]
fn the_empty_filter_takes_everything() {
    for expression in ["", "   "] {
        let filter = filter(expression);
        assert!(filter.takes_everything());
        assert!(filter.matches(&[], 0));
    }
    assert!(!filter("udp").takes_everything());
}

#[test]
fn length_is_the_wire_length_and_loads_see_the_captured_bytes() {
    let greater = filter("greater 1000");
    assert!(greater.matches(&UDP, 1500));
    assert!(!greater.matches(&UDP, 46));
    let deep = filter("udp[8:4] = 0x01020304");
    assert!(!deep.matches(&UDP[..44], 46));
}

#[test]
fn vlan_tags_are_found_in_the_bytes() {
    let packet = tagged(&UDP, 7);
    assert!(filter("vlan 7 and udp port 53").matches(&packet, 50));
    assert!(!filter("vlan 8").matches(&packet, 50));
    assert!(!filter("vlan").matches(&UDP, 46));
    assert!(filter("vlan 9 and vlan 7").matches(&tagged(&packet, 9), 54));
}

#[test]
fn a_filter_can_move_to_another_thread() {
    let filter = filter("udp");
    let verdict = std::thread::spawn(move || filter.matches(&UDP, 46)).join();
    assert!(verdict.unwrap());
}

#[test]
fn the_offending_word_is_found() {
    for (expression, word) in [
        ("udp port 53 and tcp prt 80", "prt"),
        ("port 80 80", "80"),
        ("tcp port", ""),
        ("tcp and", ""),
        ("(tcp or udp", ""),
        ("tcp) or udp", ")"),
        ("ip[0 = 1", "="),
        ("tcp & & udp", "&"),
    ] {
        let (message, place) = refused(expression);
        assert_eq!(place.as_deref(), Some(word), "{expression}: {message}");
    }
}

#[test]
fn a_contradiction_is_refused_without_blaming_a_word() {
    let (message, place) = refused("tcp and udp");
    assert!(message.contains("rejects all packets"), "{message}");
    assert_eq!(place, None);
}

#[test]
fn a_refusal_shows_libpcaps_words_and_a_caret() {
    let error = Filter::compile("tcp prt 80", LinkType::ETHERNET, 0).unwrap_err();
    let text = error.to_string();
    assert!(text.starts_with("bad filter: "), "{text}");
    assert!(text.ends_with("\n  tcp prt 80\n      ^^^"), "{text}");
}

#[test]
fn a_nul_is_refused() {
    let error = Filter::compile("tcp\0", LinkType::ETHERNET, 0).unwrap_err();
    assert_eq!(error, FilterError::Nul { position: 3 });
}

#[test]
fn impossible_programs_are_refused() {
    let instruction = |code, jump_true, k| Instruction {
        code,
        jump_true,
        jump_false: 0,
        k,
    };
    let end = instruction(6, 0, 1);
    for (program, at) in [
        (vec![], 0),
        (vec![instruction(0x15, 5, 0), end], 0),
        (vec![end, instruction(0x28, 0, 12)], 1),
        (vec![instruction(0x05, 0, u32::MAX), end], 0),
        (vec![instruction(0x60, 0, 16), end], 0),
        (vec![instruction(0x34, 0, 0), end], 0),
        (vec![instruction(0xff, 0, 0), end], 0),
    ] {
        assert_eq!(machine::check(&program), Err(at), "{program:?}");
    }
}
