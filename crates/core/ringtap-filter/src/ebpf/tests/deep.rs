// SPDX-License-Identifier: MIT OR Apache-2.0
//! Filters that are as deep and as wide as a program can be: translation needs no deep stack.

use super::*;
use crate::program::code::*;

/// Smaller than the stack that one call per jump of the deepest filter needs.
const STACK_BYTES: usize = 128 << 10;

/// Compares a byte with 4,094 constants.
fn deep(last: u32) -> Program {
    let mut chain: Vec<_> = (0..4093)
        .map(|k| instruction(CLASS_JMP | JEQ, (0, 1), k))
        .flat_map(|jump| [jump, plain(RETURN_CONSTANT, 1)])
        .take(4093)
        .collect();
    chain.insert(0, plain(LD_B_ABS, 12));
    chain.push(plain(RETURN_CONSTANT, 0));
    chain.push(plain(RETURN_CONSTANT, last));
    Program::new(&chain).unwrap()
}

/// The filter of the issue: only jumps, each to the next instruction in either case.
fn jumps(last: u32) -> Program {
    let mut chain = vec![instruction(CLASS_JMP | JEQ, (0, 0), 5); 4094];
    chain.push(plain(RETURN_CONSTANT, last));
    Program::new(&chain).unwrap()
}

/// Two ways at each jump, which meet behind it: as many paths as powers of two.
fn diamonds(last: u32) -> Program {
    let mut chain = Vec::new();
    for k in 0..1000 {
        chain.push(instruction(CLASS_JMP | JEQ, (0, 1), k));
        chain.push(plain(LD_B_ABS, k % 50));
        chain.push(instruction(CLASS_JMP | JSET, (0, 1), k));
        chain.push(plain(TXA, 0));
    }
    chain.push(plain(RETURN_CONSTANT, last));
    Program::new(&chain).unwrap()
}

/// Jumps that lead to chains of unconditional jumps.
fn detours(last: u32) -> Program {
    let mut chain = Vec::new();
    for _ in 0..1300 {
        chain.push(instruction(CLASS_JMP | JEQ, (1, 0), 5));
        chain.push(plain(JA, 0));
        chain.push(plain(JA, 0));
    }
    chain.push(plain(RETURN_CONSTANT, last));
    Program::new(&chain).unwrap()
}

#[test]
fn the_deepest_filters_are_translated_or_refused_on_a_small_stack() {
    for filter in [deep, jumps, diamonds, detours] {
        let translate = move || {
            for count in [1, 2, 3, 64] {
                // The filters differ in their last instruction only.
                let filters: Vec<_> = (1..=count).map(filter).collect();
                let translated = classify(&filters, FilterHook::Tc);
                let too_long = matches!(translated, Err(TranslateError::TooLong { .. }));
                assert!(translated.is_ok() || too_long, "{translated:?}");
                assert!(translated.is_ok() || count > 1, "{count}: {translated:?}");
            }
        };
        let thread = std::thread::Builder::new().stack_size(STACK_BYTES);
        thread.spawn(translate).unwrap().join().unwrap();
    }
}

#[test]
fn deep_filters_keep_their_verdicts() {
    for filter in [deep, jumps, diamonds, detours] {
        let case = Case::new(vec![filter(1), filter(2)]).unwrap();
        for byte in [0, 1, 7, 255] {
            case.compare(&[byte; 64], 64, 64);
        }
    }
}
