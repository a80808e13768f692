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

/// The loop of libpcap's `ip protochain 6`, without the Ethernet header.
fn protochain() -> Vec<Instruction> {
    let compare = |k, jump_true| instruction(0x15, jump_true, k);
    vec![
        instruction(0x30, 0, 9),
        instruction(0xb1, 0, 0),
        compare(6, 9),
        instruction(0x50, 0, 0),
        instruction(0x02, 0, 0),
        instruction(0x50, 0, 1),
        instruction(0x04, 0, 2),
        instruction(0x24, 0, 4),
        instruction(0x0c, 0, 0),
        instruction(0x07, 0, 0),
        instruction(0x60, 0, 0),
        instruction(0x05, 0, u32::MAX - 9),
        END,
    ]
}

#[test]
fn only_the_loops_of_protochain_jump_back() {
    let chain = protochain();
    let program = Program::new(&chain).unwrap();
    assert!(program.loops());
    // A packet whose header goes on beyond its end.
    let mut packet = vec![0_u8; 60];
    (packet[0], packet[21]) = (5, 0xfe);
    assert_eq!(program.run(&packet, 60), 0);

    let refused = |program: &[Instruction], at| {
        assert_eq!(Program::new(program), Err(ProgramError::Loop { at }));
    };
    refused(&[instruction(0x05, 0, u32::MAX), END], 0);
    for (at, other) in [(2, 0x07), (9, 0x87), (10, 0x00)] {
        let mut odd = chain.clone();
        odd[at] = instruction(other, 0, 0);
        refused(&odd, 11);
    }
    // The loop of the issue: loads, and a jump back to the first.
    let mut busy = vec![instruction(0x30, 0, 12); 4090];
    busy.extend([instruction(0x05, 0, 4091_u32.wrapping_neg()), END]);
    refused(&busy, 4090);
    let mut long = chain.clone();
    long.splice(3..3, vec![instruction(0x87, 0, 0); 23]);
    long[2 + 23 + 9].k = (10 + 23_u32).wrapping_neg();
    refused(&long, 34);
    // A second loop that begins inside the first.
    let mut nested = chain.clone();
    nested[8] = instruction(0x15, 0, 6);
    nested.splice(
        12..12,
        [
            instruction(0x07, 0, 0),
            instruction(0x60, 0, 0),
            instruction(0x05, 0, 7_u32.wrapping_neg()),
        ],
    );
    refused(&nested, 14);
}

/// A program of the loops' shape that counts its rounds, and matches after this many.
fn counting_to(rounds: u32) -> Program {
    let program = [
        instruction(0x60, 0, 0),
        instruction(0x15, 5, rounds),
        instruction(0x04, 0, 1),
        instruction(0x02, 0, 0),
        instruction(0x07, 0, 0),
        instruction(0x60, 0, 0),
        instruction(0x05, 0, 6_u32.wrapping_neg()),
        END,
    ];
    Program::new(&program).unwrap()
}

#[test]
fn a_loop_that_the_packet_does_not_end_stops_after_its_rounds() {
    for rounds in [0, 1, MAX_ROUNDS - 1, MAX_ROUNDS] {
        assert_eq!(counting_to(rounds).run(&[], 0), 1, "{rounds}");
    }
    for rounds in [MAX_ROUNDS + 1, 3 * MAX_ROUNDS] {
        assert_eq!(counting_to(rounds).run(&[], 0), 0, "{rounds}");
    }
}

#[test]
fn the_path_that_takes_longest_counts() {
    let time = |program: &[Instruction]| Program::new(program).unwrap().longest_time();
    let steps =
        |steps: usize| time(&[&vec![instruction(0x87, 0, 0); steps - 1], &[END][..]].concat());
    assert_eq!(time(&[END]), steps(1));
    assert_eq!(Program::everything().longest_time(), steps(1));
    // Both branches of the jump: one step, or three.
    let branches = [
        instruction(0x15, 2, 0),
        instruction(0x87, 0, 0),
        instruction(0x87, 0, 0),
        END,
    ];
    assert_eq!(time(&branches), steps(4));
    let skipping = [instruction(0x05, 0, 2), END, END, instruction(0x16, 0, 0)];
    assert_eq!(time(&skipping), steps(2));
    let mut chain = vec![instruction(0x15, 0, 7); 4095];
    chain.push(END);
    assert_eq!(time(&chain), steps(4096));
}

#[test]
fn paths_that_meet_again_count_each() {
    let steps = |program: &[Instruction]| Program::new(program).unwrap().steps_of_all_paths();
    assert_eq!(steps(&[END]), Some(1));
    let diamond = [instruction(0x15, 1, 0), instruction(0x87, 0, 0)];
    assert_eq!(steps(&[&diamond[..], &[END]].concat()), Some(3));
    assert_eq!(steps(&[&diamond[..], &diamond, &[END]].concat()), Some(7));
    let many = [diamond.repeat(1000), vec![END]].concat();
    assert_eq!(steps(&many), Some(u64::MAX));
    // Where paths meet and nothing of before is needed, the rest counts once.
    let anew = [
        instruction(0x28, 0, 12),
        instruction(0x15, 1, 7),
        instruction(0x28, 0, 14),
    ];
    assert_eq!(steps(&[anew.repeat(2), vec![END]].concat()), Some(7));
    assert_eq!(steps(&protochain()), None);
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
