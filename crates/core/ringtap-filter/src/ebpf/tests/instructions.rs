// SPDX-License-Identifier: MIT OR Apache-2.0
//! Every instruction of classic BPF, with the constants at which it may go wrong.

use super::{Case, instruction, plain};
use crate::program::code::packet_load;
use crate::program::code::*;
use crate::{Instruction, Program};

/// Constants for an instruction of this code: at the edges of what the translation distinguishes.
fn constants(code: u16) -> Vec<u32> {
    let (ranges, far): (&[_], &[_]) = match code {
        JA => (&[0..1, 1..2], &[]),
        LD_W_ABS | LD_H_ABS | LD_B_ABS | LDX_MSH => {
            let ranges = &[0..4, 10..18, 55..62, 96..101];
            (ranges, &[0x7ffe_ffff, 0x7fff_0000, 0xffdf_ffff])
        }
        LD_W_IND | LD_H_IND | LD_B_IND => {
            let ranges = &[0..2, 13..15, 56..59, 95..97];
            (ranges, &[0x7fff_ffff, 0xffff_fff0, u32::MAX])
        }
        _ => (&[0..2, 3..4, 31..32], &[0x7fff_ffff, 1 << 31, u32::MAX]),
    };
    let near = ranges.iter().cloned().flatten();
    near.chain(far.iter().copied()).collect()
}

/// Every code that a checked program may hold, with its constants and jumps.
pub(super) fn instructions() -> Vec<Instruction> {
    const JUMPS: [(u8, u8); 4] = [(0, 0), (1, 0), (0, 1), (1, 1)];
    let all = (0..=0xff).flat_map(|code| {
        let is_jump = code & CLASS == CLASS_JMP && code != JA;
        let jumps = if is_jump { &JUMPS[..] } else { &JUMPS[..1] };
        let each = constants(code).into_iter();
        each.flat_map(move |k| jumps.iter().map(move |jump| instruction(code, *jump, k)))
    });
    let end = plain(RETURN_CONSTANT, 1);
    all.filter(|one| Program::new(&[*one, end, end]).is_ok())
        .collect()
}

/// What A, X and scratch words hold before an instruction.
fn beginnings() -> [Vec<Instruction>; 5] {
    [
        vec![],
        vec![
            plain(LDX_IMM, 0xffff_fff1),
            plain(LD_IMM, 0x8000_0005),
            plain(ST, 3),
            plain(STX, 15),
        ],
        vec![plain(LD_B_ABS, 0), plain(TAX, 0), plain(LD_B_ABS, 1)],
        vec![plain(LDX_MSH, 14), plain(LD_B_ABS, 13)],
        vec![plain(LDX_IMM, 2), plain(LD_IMM, 0x1234_5678)],
    ]
}

/// Filters that each take the packets for which a bit of A or X is set in the end.
fn observers(row: &[Instruction], bits: &[u32]) -> Vec<Program> {
    let is_set = [plain(RETURN_CONSTANT, 1), plain(RETURN_CONSTANT, 0)];
    let each = bits
        .iter()
        .flat_map(|bit| [(*bit, None), (*bit, Some(plain(TXA, 0)))]);
    let each = each.map(|(bit, from_x)| {
        let test = instruction(CLASS_JMP | JSET, (0, 1), 1 << bit);
        let end = from_x.into_iter().chain([test]).chain(is_set);
        let all: Vec<_> = row.iter().copied().chain(end).collect();
        Program::new(&all).unwrap()
    });
    each.collect()
}

/// Zeros, ones, or what may be headers.
fn packet(length: usize, kind: usize) -> Vec<u8> {
    let byte = |at: usize| match (kind % 3, at) {
        (0, _) => 0,
        (1, _) => 0xff,
        (_, 14) => 0x45,
        _ => u8::try_from((at * 37 + length * 11) % 256).unwrap(),
    };
    (0..length).map(byte).collect()
}

#[test]
fn every_instruction_does_what_it_does_in_the_classic_interpreter() {
    let instructions = instructions();
    for (number, one) in instructions.iter().enumerate() {
        let mut after = vec![*one];
        match one.code {
            ST | STX => after.push(plain(LD_MEM, one.k)),
            code if code & CLASS == CLASS_JMP => after.push(plain(LD_IMM, 0x55)),
            _ => {}
        }
        let is_load = packet_load(one.code).is_some();
        let step = if is_load { 1 } else { 25 };
        for begin in beginnings() {
            let row = [begin, after.clone()].concat();
            // A store makes each filter run alone.
            let alone = [vec![plain(ST, 9)], row.clone()].concat();
            let alike = observers(&row, &[0, 1, 2, 3, 7, 8, 15, 16, 24, 31]);
            for filters in [alike, observers(&alone, &[0, 7, 31])] {
                let case = Case::new(filters).unwrap();
                for length in (0..=100).step_by(step) {
                    let linear = length * ((length / 3 + number) % 3) / 2;
                    case.compare(&packet(length, length + number), length, linear);
                }
            }
        }
    }
    let mut codes: Vec<_> = instructions.iter().map(|one| one.code).collect();
    codes.dedup();
    assert_eq!(codes.len(), 49, "{codes:x?}");
}

#[test]
fn loads_from_packets_of_70_000_bytes_end_where_the_capture_ends() {
    let last = [0xfefc, 0xfefd, 0xff00, 65_528, 65_531, 65_532, 69_996];
    let filters = last.map(|k| observers(&[plain(LD_W_ABS, k)], &[0, 7]));
    let case = Case::new(filters.concat()).unwrap();
    for linear in [0, 65_300, 65_530, 70_000] {
        let mask = case.compare(&packet(70_000, 2), 65_535, linear);
        assert_ne!(mask, 0);
    }
}
