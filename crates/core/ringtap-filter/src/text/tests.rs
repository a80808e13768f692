// SPDX-License-Identifier: MIT OR Apache-2.0
//! What the filter promises, held against known packets.

use proptest::prelude::*;

use super::*;
use crate::Instruction;

/// Ethernet, IPv4, UDP 1000 → 53, four bytes of data.
const UDP: [u8; 46] = [
    0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 8, 0, 0x45, 0, 0, 32, 0, 0, 0, 0, 64, 17, 0, 0, 10, 0, 0,
    1, 10, 0, 0, 2, 3, 0xe8, 0, 53, 0, 12, 0, 0, 1, 2, 3, 4,
];

pub(crate) fn filter(expression: &str) -> Program {
    compile(expression, LinkType::ETHERNET, 65535).unwrap()
}

fn refused(expression: &str) -> (String, Option<String>) {
    match compile(expression, LinkType::ETHERNET, 65535) {
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
    let error = compile("tcp prt 80", LinkType::ETHERNET, 0).unwrap_err();
    let text = error.to_string();
    assert!(text.starts_with("bad filter: "), "{text}");
    assert!(text.ends_with("\n  tcp prt 80\n      ^^^"), "{text}");
}

#[test]
fn an_interface_is_refused_with_what_to_do_instead() {
    let error = compile("tcp and ifindex 3", LinkType::ETHERNET, 65_535);
    let message = error.expect_err("no packet has it").to_string();
    assert!(message.contains("name it as the device"), "{message}");
    assert!(message.contains("character 9"), "{message}");
}

#[test]
fn a_direction_is_refused_with_what_to_do_instead() {
    let (message, place) = refused("udp and outbound");
    assert!(message.contains("eth0?direction=in"), "{message}");
    assert_eq!(place.as_deref(), Some("outbound"));
}

#[test]
fn a_nul_is_refused() {
    let error = compile("tcp\0", LinkType::ETHERNET, 0).unwrap_err();
    assert_eq!(error, FilterError::Nul { position: 3 });
}

/// Expressions that use every kind of instruction that libpcap makes.
pub(crate) const EXPRESSIONS: [&str; 24] = [
    "",
    "ip",
    "ip6 and tcp port 80",
    "tcp port 80 or udp port 53",
    "host 10.0.0.1",
    "src net 10.0.0.0/8 and not dst host 10.0.0.2",
    "ether host 06:07:08:09:0a:0b",
    "ether broadcast or ether multicast",
    "vlan",
    "vlan 7 and ip",
    "vlan and vlan 9 and udp",
    "mpls 5",
    "pppoes and ip",
    "portrange 1000-2000",
    "greater 100",
    "less 61",
    "len = 60",
    "ip[0] & 0xf != 5",
    "tcp[tcpflags] & (tcp-syn|tcp-fin) != 0",
    "udp[8:4] = 0x01020304",
    "ip[2:2] - ((ip[0] & 0xf) << 2) > 12",
    "ip[8] * 2 + ip[9] / 3 - 1 > 20 or ip[1] % 3 = 1",
    "ether[len - 1] = 0",
    "ip6 protochain 17 or icmp6",
];

/// Bytes that look enough like packets to get past a filter's first instructions.
pub(crate) fn packets() -> impl Strategy<Value = Vec<u8>> {
    let types = prop::sample::select(vec![
        vec![8, 0],
        vec![0x86, 0xdd],
        vec![0x81, 0, 0, 7, 8, 0],
        vec![0x88, 0xa8, 0, 9, 0x81, 0, 0, 7, 8, 0],
        vec![0x88, 0x47],
        vec![0x88, 0x64],
    ]);
    let header = prop::sample::select(vec![0x45_u8, 0x46, 0x60, 0x00]);
    let protocol = prop::sample::select(vec![1_u8, 6, 17, 58, 0]);
    let rest = prop::collection::vec(prop_oneof![Just(0_u8), any::<u8>()], 0..100);
    (
        prop::array::uniform12(0_u8..12),
        types,
        header,
        protocol,
        rest,
    )
        .prop_map(|(addresses, types, header, protocol, mut rest)| {
            for (at, value) in [(0, header), (6, protocol), (9, protocol)] {
                if let Some(byte) = rest.get_mut(at) {
                    *byte = value;
                }
            }
            [&addresses[..], &types, &rest].concat()
        })
}

proptest! {
    #[test]
    fn verdicts_are_those_of_libpcaps_interpreter(
        number in 0..EXPRESSIONS.len(), packet in packets(), more in 0_u32..100,
    ) {
        let filter = filter(EXPRESSIONS[number]);
        let wire_length = u32::try_from(packet.len()).unwrap() + more;
        let theirs = libpcap::interpret(filter.instructions(), &packet, wire_length);
        prop_assert_eq!(filter.run(&packet, wire_length), theirs);
    }

    #[test]
    fn any_program_that_is_checked_ends_as_in_libpcap(
        codes in prop::collection::vec((0_u16..0xc0, 0_u8..4, 0_u8..4, 0_u32..40), 1..20),
        packet in prop::collection::vec(any::<u8>(), 0..64),
    ) {
        // libpcap does not clear its scratch words.
        let stores = (0..16).map(|k| Instruction { code: 0x02, k, ..END });
        let given = codes
            .into_iter()
            .map(|(code, jump_true, jump_false, k)| Instruction { code, jump_true, jump_false, k });
        let mut program: Vec<_> = stores
            .chain(given)
            .filter(|one| Program::new(&[*one, *one, *one, *one, *one, *one, END]).is_ok())
            .collect();
        program.push(Instruction { code: 0x16, ..END });
        if let Ok(checked) = Program::new(&program) {
            let theirs = libpcap::interpret(&program, &packet, 99);
            prop_assert_eq!(checked.run(&packet, 99), theirs, "{:?}", program);
        }
    }
}

const END: Instruction = Instruction {
    code: 0x06,
    jump_true: 0,
    jump_false: 0,
    k: 1,
};
