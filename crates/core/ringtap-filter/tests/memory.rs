// SPDX-License-Identifier: MIT OR Apache-2.0
//! Memory for the translation of one filter. The only test of its process, whose memory it measures.

use ringtap_filter::ebpf::{FilterHook, classify};
use ringtap_filter::{Instruction, Program};

const MAX_BYTES: u64 = 4 << 20;

fn instruction(code: u16, jump_true: u8, jump_false: u8, k: u32) -> Instruction {
    Instruction {
        code,
        jump_true,
        jump_false,
        k,
    }
}

/// 4,094 comparisons, as in the issue, and a last instruction that makes filters differ.
fn comparisons(last: u32) -> Program {
    let mut chain = vec![instruction(0x15, 0, 0, 5); 4094];
    chain.push(instruction(0x06, 0, 0, last));
    Program::new(&chain).expect("it is valid")
}

/// Loads and comparisons whose ways meet again.
fn diamonds(last: u32) -> Program {
    let step = |k| {
        [
            instruction(0x15, 0, 1, k),
            instruction(0x30, 0, 0, k % 200),
            instruction(0x45, 0, 1, k),
            instruction(0x87, 0, 0, 0),
        ]
    };
    let mut chain: Vec<_> = (0..1000).flat_map(step).collect();
    chain.push(instruction(0x06, 0, 0, last));
    Program::new(&chain).expect("it is valid")
}

/// A number of bytes in `/proc/self/status`.
fn memory(key: &str) -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").expect("it is there");
    let line = status.lines().find(|line| line.starts_with(key));
    let number = line.and_then(|line| line.split_whitespace().nth(1));
    let kibibytes: u64 = number.and_then(|text| text.parse().ok()).expect("a number");
    kibibytes << 10
}

#[test]
fn translating_a_filter_takes_less_than_4_mib() {
    // Once before, so that the code itself is in memory.
    let _warm = classify(&[comparisons(1)], FilterHook::Tc);
    for (name, filter) in [
        ("comparisons", comparisons as fn(u32) -> Program),
        ("diamonds", diamonds),
    ] {
        for count in 1..=3_u32 {
            let filters: Vec<_> = (1..=count).map(filter).collect();
            // Makes the peak the present size.
            std::fs::write("/proc/self/clear_refs", "5").expect("it is our own");
            let before = memory("VmRSS:");
            let translated = classify(&filters, FilterHook::Tc);
            let taken = memory("VmHWM:").saturating_sub(before);
            println!(
                "{count} {name}: {taken} bytes, {:?}",
                translated.map(|code| code.len())
            );
            assert!(
                taken < MAX_BYTES * u64::from(count),
                "{count} {name}: {taken} bytes"
            );
        }
    }
}
