// SPDX-License-Identifier: MIT OR Apache-2.0
//! Random programs and those that libpcap compiles.

use std::cell::Cell;

use proptest::prelude::*;
use proptest::sample::{Index, select};
use proptest::test_runner::{RngSeed, TestRunner};

use super::{Case, instruction, instructions::instructions, plain};
use crate::program::code::*;
use crate::{Instruction, Program};

/// Valid on its own, but that a jump may lead too far.
fn any_instruction() -> impl Strategy<Value = Instruction> {
    let end = plain(RETURN_CONSTANT, 1);
    let known = instructions().into_iter().map(|one| one.code);
    // Header lengths and what stands behind a header are what filters are made of.
    let often = [LDX_MSH, LD_H_IND, LD_B_IND, LD_H_ABS, JA].repeat(6);
    let codes: Vec<_> = known.chain(often).collect();
    let k = prop_oneof![
        12 => 0_u32..80,
        2 => select(vec![1500, 0x7fff_ffff, 0x8000_0000, 0xffdf_ffff, 0xffff_fff0, u32::MAX]),
        1 => any::<u32>(),
    ];
    let parts = (select(codes), (0_u8..6, 0_u8..6), k);
    parts.prop_map(move |(code, jumps, k)| {
        let one = match code {
            JA => plain(JA, k % 6),
            RETURN_CONSTANT => plain(code, k % 2),
            _ if code & CLASS == CLASS_JMP => instruction(code, jumps, k),
            _ => plain(code, k),
        };
        match Program::new(&[&[one][..], &[end; 8]].concat()) {
            Ok(_) => one,
            Err(_) => plain(code, k % 15 + 1),
        }
    })
}

/// A program whose jumps end where it ends.
fn close(mut row: Vec<Instruction>) -> Program {
    let count = row.len();
    for (at, one) in row.iter_mut().enumerate() {
        let left = count - at - 1;
        if one.code == JA {
            one.k = one.k.min(u32::try_from(left).unwrap());
        }
        let most = u8::try_from(left).unwrap();
        one.jump_true = one.jump_true.min(most);
        one.jump_false = one.jump_false.min(most);
    }
    // Filters that share a jump to the end either all return A there, or all reject.
    row.push(plain([RETURN_A, RETURN_CONSTANT][count % 2], 0));
    Program::new(&row).unwrap()
}

/// Filters of which some differ in one instruction.
fn filters() -> impl Strategy<Value = Vec<Program>> {
    let first = prop::collection::vec(prop::collection::vec(any_instruction(), 1..24), 1..4);
    let change = (any::<Index>(), any::<Index>(), any_instruction());
    let changes = prop::collection::vec(change, 0..9);
    (first, changes).prop_map(|(mut rows, changes)| {
        for (row, at, one) in changes {
            let mut row = row.get(&rows).clone();
            let at = at.index(row.len());
            row[at] = one;
            rows.push(row);
        }
        rows.into_iter().map(close).collect()
    })
}

/// A packet, how much of it is captured, and how much can be read in place.
type Arrival = (Vec<u8>, usize, usize);

fn arrivals() -> impl Strategy<Value = Vec<Arrival>> {
    let byte = prop_oneof![Just(0_u8), Just(0x45), any::<u8>()];
    let bytes = prop::collection::vec(byte, 0..100);
    let length = || prop_oneof![2 => Just(usize::MAX), 1 => 0_usize..100];
    prop::collection::vec((bytes, length(), length()), 1..12)
}

/// The same cases each time, unless `PROPTEST_RNG_SEED` and `PROPTEST_CASES` choose others.
fn runner() -> TestRunner {
    let given = ProptestConfig::default();
    TestRunner::new(ProptestConfig {
        rng_seed: match given.rng_seed {
            RngSeed::Random => RngSeed::Fixed(1),
            chosen @ RngSeed::Fixed(_) => chosen,
        },
        cases: given.cases.max(1_500),
        failure_persistence: None,
        ..given
    })
}

#[test]
fn random_programs_have_the_verdict_of_the_classic_interpreter() {
    let (taken, verdicts) = (Cell::new(0_u64), Cell::new(0_u64));
    let compare = |(filters, arrivals): (Vec<Program>, Vec<Arrival>)| {
        let case = Case::new(filters).unwrap();
        for (packet, snap_length, linear) in arrivals {
            let mask = case.compare(&packet, snap_length, linear);
            case.exaggerate(&packet, linear);
            taken.set(taken.get() + u64::from(mask.count_ones()));
            verdicts.set(verdicts.get() + u64::try_from(case.filters.len()).unwrap());
        }
        Ok(())
    };
    runner().run(&(filters(), arrivals()), compare).unwrap();
    let (taken, verdicts) = (taken.get(), verdicts.get());
    let is_telling = taken > verdicts / 20 && taken < verdicts / 2;
    assert!(is_telling, "{taken} of {verdicts} taken");
}

#[cfg(feature = "libpcap")]
#[test]
fn filters_that_libpcap_compiles_have_the_verdict_of_the_classic_interpreter() {
    use crate::text::tests::{EXPRESSIONS, filter, packets};
    let filters = EXPRESSIONS.map(filter);
    let alone = filters.iter().map(|one| Case::new(vec![one.clone()]));
    let mut cases: Vec<_> = alone.flatten().collect();
    // All but `protochain`, which loops.
    assert_eq!(cases.len(), filters.len() - 1);
    let together = cases.iter().map(|case| case.filters[0].clone());
    cases.push(Case::new(together.collect()).unwrap());
    let taken = Cell::new(0_u64);
    let compare = |(packet, linear, snap_length): (Vec<u8>, Index, Index)| {
        let length = packet.len() + 1;
        let snap_length = snap_length.index(2 * length);
        let linear = linear.index(length);
        let compare = |_: u64, case: &Case| case.compare(&packet, snap_length, linear);
        // The last case is all filters together.
        taken.set(taken.get() | cases.iter().fold(0, compare));
        Ok(())
    };
    let strategy = (packets(), any::<Index>(), any::<Index>());
    runner().run(&strategy, compare).unwrap();
    let taken = taken.get().count_ones();
    assert!(taken >= 8, "only {taken} filters took a packet");
}
