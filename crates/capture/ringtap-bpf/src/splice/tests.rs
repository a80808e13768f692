// SPDX-License-Identifier: MIT OR Apache-2.0
//! Programs split into functions and joined again.

use super::*;

const MARK: u64 = 0x5254_0001_8254_0002;

fn call(distance: i32) -> RawInsn {
    with_constant(0x1085, distance)
}

fn helper(number: i32) -> RawInsn {
    with_constant(0x85, number)
}

/// r0 = value, as a wide load.
fn wide(value: u64) -> [RawInsn; 2] {
    [u64::from(LOAD_WIDE) | value << 32, value >> 32 << 32]
}

/// An instruction that sets a distinct number.
fn set(number: i32) -> RawInsn {
    with_constant(0xb7, number)
}

/// Calls functions 1 and 2; function 1 is marked, and function 2 calls it.
fn three_functions() -> Vec<RawInsn> {
    let [low, high] = wide(MARK);
    vec![
        call(3),
        call(5),
        set(1),
        EXIT,
        low,
        high,
        EXIT,
        set(2),
        call(-5),
        EXIT,
    ]
}

/// Interprets `set`, `call` and `exit`; returns the numbers set.
fn run(insns: &[RawInsn]) -> Vec<i32> {
    let (mut at, mut returns, mut noted) = (0, Vec::new(), Vec::new());
    loop {
        let insn = insns[at];
        at += 1;
        match opcode(insn) {
            0xb7 => noted.push(constant(insn)),
            LOAD_WIDE => {
                noted.push(constant(insn));
                at += 1;
            }
            CALL if source(insn) == OUR_CALL => {
                returns.push(at);
                at = at
                    .checked_add_signed(isize::try_from(constant(insn)).unwrap())
                    .unwrap();
            }
            CALL => noted.push(-constant(insn)),
            0x95 => match returns.pop() {
                Some(back) => at = back,
                None => return noted,
            },
            other => panic!("opcode {other:#x}"),
        }
    }
}

#[test]
fn what_was_taken_apart_is_put_together_the_same() {
    let insns = three_functions();
    let code = Code::parse(&insns).unwrap();
    assert_eq!(code.functions.len(), 3);
    assert_eq!(code.to_insns().unwrap(), insns);
}

#[test]
fn another_program_takes_the_place_of_the_marked_function() {
    let other = [set(7), call(3), helper(9), call(1), EXIT, set(8), EXIT];
    let mut code = Code::parse(&three_functions()).unwrap();
    code.set_function(MARK, Code::parse(&other).unwrap())
        .unwrap();
    let noted = run(&code.to_insns().unwrap());
    let one = run(&other);
    assert_eq!(noted, [&one[..], &[2], &one[..], &[1]].concat());
    let error = code.set_function(MARK, Code::default()).unwrap_err();
    assert_eq!(error, SpliceError::NoMark { mark: MARK });
}

#[test]
fn a_program_of_one_function_can_take_the_place() {
    let mut code = Code::parse(&three_functions()).unwrap();
    code.set_function(MARK, Code::parse(&[set(5), EXIT]).unwrap())
        .unwrap();
    assert_eq!(run(&code.to_insns().unwrap()), [5, 2, 5, 1]);
}

#[test]
fn a_marked_number_is_replaced_whole() {
    let mut code = Code::parse(&three_functions()).unwrap();
    let value = 0x1122_3344_5566_7788;
    code.set_number(MARK, value).unwrap();
    let insns = code.to_insns().unwrap();
    assert_eq!(insns[4..6], wide(value));
    let again = code.set_number(MARK, 0).unwrap_err();
    assert_eq!(again, SpliceError::NoMark { mark: MARK });
}

#[test]
fn the_second_half_of_a_wide_load_is_no_instruction() {
    // As an instruction it would be a call outside the program.
    let insns = [u64::from(LOAD_WIDE), call(1000), EXIT];
    assert_eq!(Code::parse(&insns).unwrap().to_insns().unwrap(), insns);
}

#[test]
fn a_call_out_of_the_program_is_refused() {
    for distance in [-3, 2, i32::MAX, i32::MIN] {
        let error = Code::parse(&[set(1), call(distance), EXIT]).unwrap_err();
        assert_eq!(error, SpliceError::WildCall { at: 1 }, "{distance}");
    }
}

#[test]
fn a_choice_calls_the_program_with_the_number() {
    let programs = [[set(10), EXIT], [set(11), EXIT]].map(|it| Code::parse(&it).unwrap());
    let choice = Code::choice(&programs.each_ref());
    let insns = choice.to_insns().unwrap();
    // if r2 != 0 goto +2; call; exit; if r2 != 1 goto +2; call; exit; r0 = 0; exit
    assert_eq!(opcode(insns[0]), 0x55);
    assert_eq!((constant(insns[0]), constant(insns[3])), (0, 1));
    assert_eq!(run(&insns[1..]), [10]);
    assert_eq!(run(&insns[4..]), [11]);
    assert_eq!(run(&insns[6..]), [0]);
}

#[test]
fn helpers_are_found_in_all_functions() {
    let insns = [call(2), helper(5), EXIT, helper(12), EXIT];
    let code = Code::parse(&insns).unwrap();
    assert_eq!(code.helpers().collect::<Vec<_>>(), [5, 12]);
}
