// SPDX-License-Identifier: MIT OR Apache-2.0
//! Checks of programs, and the end of every program.

use proptest::prelude::*;

use super::*;

fn instruction(code: u16, jump_true: u8, k: u32) -> Instruction {
    Instruction {
        code,
        jump_true,
        jump_false: 0,
        k,
    }
}

const END: Instruction = Instruction {
    code: 0x06,
    jump_true: 0,
    jump_false: 0,
    k: 1,
};

#[test]
fn impossible_programs_are_refused() {
    assert_eq!(Program::new(&[]), Err(ProgramError::NoEnd));
    assert_eq!(
        Program::new(&[instruction(0x28, 0, 12)]),
        Err(ProgramError::NoEnd)
    );
    for (bad, why) in [
        (instruction(0x15, 5, 0), "jumps out"),
        (instruction(0x05, 0, 1), "jumps out"),
        (instruction(0x05, 0, u32::MAX - 1), "jumps back out"),
        (instruction(0x60, 0, 16), "no such scratch word"),
        (instruction(0x34, 0, 0), "divides by zero"),
        (instruction(0x64, 0, 32), "shifts by 32"),
        (instruction(0x8c, 0, 0), "negates by X"),
        (instruction(0xff, 0, 0), "does not exist"),
    ] {
        let Instruction { code, k, .. } = bad;
        let expected = ProgramError::Instruction { at: 0, code, k };
        assert_eq!(Program::new(&[bad, END]), Err(expected), "{why}");
    }
    let k = 0xffff_f004;
    let asks = Program::new(&[instruction(0x30, 0, k), END]);
    assert_eq!(asks, Err(ProgramError::Kernel { at: 0, k }));
}

#[test]
fn a_jump_back_for_ever_ends() {
    let back = instruction(0x05, 0, u32::MAX);
    assert_eq!(Program::new(&[back, END]).unwrap().run(&[], 0), 0);
}

#[test]
fn entries_are_the_bytes_of_the_instructions() {
    let program = Program::new(&[instruction(0x28, 0, 12), instruction(0x15, 0, 0x0800), END]);
    let entries = program.clone().unwrap().to_entries();
    assert_eq!(
        entries,
        [
            0x0000_000c_0000_0028,
            0x0000_0800_0000_0015,
            0x0000_0001_0000_0006
        ]
    );
    assert_eq!(Program::from_entries(&entries), program);
    assert!(Program::from_entries(&[]).unwrap().takes_everything());
}

proptest! {
    #[test]
    fn no_program_panics(
        entries in prop::collection::vec(any::<u64>(), 0..20),
        packet in prop::collection::vec(any::<u8>(), 0..64),
    ) {
        let instructions: Vec<_> = entries.into_iter().map(Instruction::from).collect();
        let _verdict = machine::run(&instructions, &packet, 99);
        if let Ok(program) = Program::new(&instructions) {
            let _verdict = program.run(&packet, 99);
        }
    }
}
