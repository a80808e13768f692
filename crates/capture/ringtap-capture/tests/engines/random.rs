// SPDX-License-Identifier: MIT OR Apache-2.0
//! Random programs, in Ringtap's interpreter and in the kernel.

use ringtap_filter::{Instruction, Program};

use crate::{
    agree::{Case, compare_ours, load, seed},
    dice::Dice,
    packets,
};

/// Codes of every instruction of a checked program except returns and jumps.
const CODES: [u16; 41] = [
    0x20, 0x28, 0x30, 0x40, 0x48, 0x50, 0x00, 0x60, 0x80, 0x01, 0x61, 0x81, 0xb1, 0x02, 0x03, 0x07,
    0x87, 0x04, 0x0c, 0x14, 0x1c, 0x24, 0x2c, 0x34, 0x3c, 0x44, 0x4c, 0x54, 0x5c, 0x64, 0x6c, 0x74,
    0x7c, 0x84, 0x94, 0x9c, 0xa4, 0xac, 0x30, 0x48, 0x01,
];
const JUMPS: [u16; 9] = [0x05, 0x15, 0x1d, 0x25, 0x2d, 0x35, 0x3d, 0x45, 0x4d];

/// A constant that makes the instruction valid; now and then a boundary value.
fn constant(dice: &mut Dice, code: u16) -> u32 {
    match code {
        0x60 | 0x61 | 0x02 | 0x03 => dice.below(16),
        0x64 | 0x74 => dice.below(32),
        0x34 | 0x94 => 1 + dice.below(300),
        0x20 | 0x28 | 0x30 | 0xb1 if dice.once_in(20) => {
            dice.pick(&[1500, 0x7fff_ffff, 0xffdf_ffff])
        }
        0x40 | 0x48 | 0x50 if dice.once_in(10) => {
            dice.pick(&[0x7fff_ffff, 0xffff_ffff, 0xffff_fff0, 65_535])
        }
        0x20..=0x50 | 0xb1 => dice.below(80),
        _ if dice.once_in(3) => dice.word(),
        _ => dice.below(70),
    }
}

/// A program with forward jumps only.
fn program(dice: &mut Dice) -> Program {
    let count = 2 + dice.index(24);
    let mut instructions = Vec::new();
    for left in (1..count).rev() {
        let left = u32::try_from(left).unwrap();
        let code = if dice.once_in(3) {
            dice.pick(&JUMPS)
        } else {
            dice.pick(&CODES)
        };
        let is_jump = code & 7 == 5;
        let skip = |dice: &mut Dice| u8::try_from(dice.below(left.min(8))).unwrap();
        let (jump_true, jump_false) = match code {
            0x05 => (0, 0),
            _ if is_jump => (skip(dice), skip(dice)),
            _ => (0, 0),
        };
        let k = match code {
            0x05 => dice.below(left.min(8)),
            _ => constant(dice, code),
        };
        instructions.push(Instruction {
            code,
            jump_true,
            jump_false,
            k,
        });
        if dice.once_in(12) {
            let last = instructions.len() - 1;
            instructions[last] = end(dice);
        }
    }
    instructions.push(end(dice));
    Program::new(&instructions).expect("a valid program")
}

fn end(dice: &mut Dice) -> Instruction {
    Instruction {
        code: dice.pick(&[0x06, 0x06, 0x16]),
        jump_true: 0,
        jump_false: 0,
        k: dice.below(2),
    }
}

#[test]
fn programs_that_no_compiler_made_have_one_verdict_too() {
    ringtap_testkit::require_root!();
    let mut taken = 0;
    for batch in 0..100 {
        let mut dice = Dice::new(seed() * 1000 + batch);
        let programs = (0..16).map(|_| program(&mut dice));
        let cases: Vec<_> = programs
            .map(|program| Case {
                expression: String::from("(none)"),
                program,
            })
            .collect();
        let kernels = load(&cases);
        for _ in 0..50 {
            let packet = packets::packet(&mut dice);
            let snap_length = dice.pick(&[65535, 65535, 20, 60, 96]);
            taken += compare_ours(&cases, &kernels, &packet, snap_length).count_ones();
        }
    }
    assert!((8_000..72_000).contains(&taken), "{taken} of 80000");
}
