// SPDX-License-Identifier: MIT OR Apache-2.0
//! Any entries as a filter: what is checked ends, keeps its entries, and translates or says why.
//!
//! The input's first byte says how many entries of eight bytes follow; the rest is a packet.

#![no_main]

use libfuzzer_sys::fuzz_target;
use ringtap_filter::{
    Headers, Program,
    ebpf::{self, FilterHook, TranslateError},
    hash::{HashKeys, HashSeed, Link},
};

fuzz_target!(|input: &[u8]| {
    let Some((&count, rest)) = input.split_first() else {
        return;
    };
    let bytes = (usize::from(count) * 8).min(rest.len() / 8 * 8);
    let (entries, packet) = rest.split_at(bytes);
    let entries: Vec<_> = entries
        .chunks_exact(8)
        .filter_map(|entry| Some(u64::from_le_bytes(entry.try_into().ok()?)))
        .collect();
    for headers in [Headers::Outer, Headers::Inner] {
        for link in [Link::Ethernet, Link::Ip] {
            let keys = HashKeys::new(HashSeed(count.into()));
            let _ = (keys.flow(packet, link, headers), keys.addresses(packet, link, headers));
        }
    }
    let Ok(program) = Program::from_entries(&entries) else {
        return;
    };
    // One that takes everything has none.
    if !program.takes_everything() {
        assert_eq!(program.to_entries(), entries);
    }
    let wire_length = u32::from(count) + u32::try_from(packet.len()).unwrap_or(u32::MAX / 2);
    let verdict = program.matches(packet, wire_length);
    assert_eq!(verdict, program.run(packet, wire_length) != 0);
    for hook in [FilterHook::Xdp, FilterHook::Tc] {
        let filters = [program.clone(), Program::everything(), program.clone()];
        match ebpf::classify(&filters, hook) {
            // The last instruction leads somewhere, and is not half of one.
            Ok(insns) => assert!(insns.last().is_some_and(|last| last.0 != 0)),
            Err(TranslateError::Loops { filter }) => assert_eq!(filter, 0),
            Err(error) => assert!(entries.len() > 100, "{error}"),
        }
    }
});
