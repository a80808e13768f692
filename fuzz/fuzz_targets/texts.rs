// SPDX-License-Identifier: MIT OR Apache-2.0
//! Any text as a device and as a filter: no panic, and what is understood is said the same way.
//!
//! Words that libpcap would look up as names of hosts, networks or services are left out.

#![no_main]

use libfuzzer_sys::fuzz_target;
use ringtap_device::DeviceSpec;
use ringtap_filter::{
    LinkType,
    text::{self, FilterError},
};

const WORDS: [&str; 44] = [
    "and", "or", "not", "host", "net", "port", "portrange", "src", "dst", "ether", "ip", "ip6",
    "tcp", "udp", "icmp", "icmp6", "arp", "rarp", "sctp", "vlan", "mpls", "pppoes", "pppoed",
    "proto", "protochain", "less", "greater", "len", "broadcast", "multicast", "gateway", "mask",
    "inbound", "outbound", "ah", "esp", "igmp", "link", "tcpflags", "syn", "fin", "x", "e", "f",
];

fuzz_target!(|input: &[u8]| {
    let Ok(text) = std::str::from_utf8(input) else {
        return;
    };
    device(text);
    let mut words = text.split(|c: char| !c.is_alphabetic() && c != '_');
    if words.all(|word| word.is_empty() || WORDS.contains(&word)) {
        filter(text);
    }
});

fn device(text: &str) {
    match text.parse::<DeviceSpec>() {
        Ok(device) => {
            let again = device.to_string().parse::<DeviceSpec>();
            assert_eq!(again.as_ref().ok(), Some(&device), "{text:?} became {device}");
        }
        Err(error) => assert!(!error.to_string().is_empty()),
    }
}

fn filter(text: &str) {
    match text::compile(text, LinkType::ETHERNET, 65535) {
        Ok(filter) => {
            let packet: Vec<_> = (0..=255).collect();
            let _ = filter.matches(&packet, 1000);
        }
        Err(FilterError::Program { at, .. }) => panic!("{text:?}: instruction {at}"),
        Err(error) => assert!(!error.to_string().is_empty()),
    }
}
