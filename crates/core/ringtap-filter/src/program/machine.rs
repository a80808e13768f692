// SPDX-License-Identifier: MIT OR Apache-2.0
//! Interpreter for classic BPF, with libpcap's semantics, in safe code.
//!
//! Invariants
//! - Only programs that passed `check` are run. Any other program ends too, with result 0.
//! - Conditional jumps go forward. The loops of `protochain` jump back, at most [`MAX_ROUNDS`]
//!   times in all.
//! - A load outside the packet, and a division by zero, reject the packet.

use super::code::*;
use super::{Instruction, MAX_ROUNDS, ProgramError, SCRATCH_WORDS};

/// Larger than any packet: a load from here on rejects.
const OUTSIDE_EVERY_PACKET: u32 = 0x7fff_0000;

/// Checks whether `run` can run the program.
pub(super) fn check(program: &[Instruction]) -> Result<(), ProgramError> {
    let count = program.len();
    for (at, instruction) in program.iter().enumerate() {
        let valid = match instruction.code {
            JA => jump(at, instruction.k).is_some_and(|to| to < count),
            _ => is_valid(instruction, count - at - 1),
        };
        if !valid {
            let Instruction { code, k, .. } = *instruction;
            if matches!(code, LD_W_ABS | LD_H_ABS | LD_B_ABS | LDX_MSH) {
                return Err(ProgramError::Kernel { at, k });
            }
            return Err(ProgramError::Instruction { at, code, k });
        }
    }
    match program.last() {
        Some(last) if matches!(last.code, RETURN_CONSTANT | RETURN_A) => Ok(()),
        _ => Err(ProgramError::NoEnd),
    }
}

/// Target of the unconditional jump at `at`: `k` is signed, relative to the next instruction.
pub(crate) fn jump(at: usize, k: u32) -> Option<usize> {
    let skip = isize::try_from(k.cast_signed()).ok()?;
    at.checked_add(1)?.checked_add_signed(skip)
}

/// Whether the instruction rejects every packet.
pub(crate) fn is_outside(instruction: &Instruction) -> bool {
    packet_load(instruction.code).is_some() && instruction.k >= OUTSIDE_EVERY_PACKET
}

/// Places of the next instructions, each once; none behind the end of the program's run.
pub(crate) fn targets(at: usize, instruction: &Instruction) -> impl Iterator<Item = usize> {
    let next = at + 1;
    let (first, second) = match instruction.code {
        RETURN_CONSTANT | RETURN_A => (None, None),
        JA => (jump(at, instruction.k), None),
        code if code & CLASS == CLASS_JMP => {
            let to = |skip: u8| Some(next + usize::from(skip));
            (to(instruction.jump_true), to(instruction.jump_false))
        }
        _ if is_outside(instruction) => (None, None),
        _ => (Some(next), None),
    };
    first.into_iter().chain(second.filter(|_| second != first))
}

fn is_valid(instruction: &Instruction, following: usize) -> bool {
    let reaches = |skip: u8| usize::from(skip) < following;
    let k = instruction.k;
    match instruction.code {
        RETURN_CONSTANT | RETURN_A | TAX | TXA => true,
        LD_W_ABS | LD_H_ABS | LD_B_ABS | LDX_MSH => k < KERNEL_OFFSETS,
        LD_W_IND | LD_H_IND | LD_B_IND | LD_IMM | LD_LEN | LDX_IMM | LDX_LEN => true,
        LD_MEM | LDX_MEM | ST | STX => scratch(k).is_some(),
        code if code & CLASS == CLASS_JMP => {
            matches!(code & OPERATION, JEQ | JGT | JGE | JSET)
                && code & !(OPERATION | SOURCE_X | CLASS) == 0
                && reaches(instruction.jump_true)
                && reaches(instruction.jump_false)
        }
        code if code & CLASS == CLASS_ALU => is_calculation(code, k),
        _ => false,
    }
}

fn is_calculation(code: u16, k: u32) -> bool {
    let has_constant = code & SOURCE_X == 0;
    let has_meaning = match code & OPERATION {
        ADD | SUB | MUL | OR | AND | XOR => true,
        DIV | MOD => !has_constant || k != 0,
        // libpcap's interpreter leaves larger shifts to the machine.
        LSH | RSH => !has_constant || k < 32,
        // It has no operand: libpcap aborts on "by X".
        NEG => has_constant,
        _ => false,
    };
    has_meaning && code & !(OPERATION | SOURCE_X | CLASS) == 0
}

fn scratch(k: u32) -> Option<usize> {
    usize::try_from(k).ok().filter(|word| *word < SCRATCH_WORDS)
}

/// Runs the program on a packet; returns the number of bytes to keep, 0 for "no match".
#[inline]
pub(super) fn run(program: &[Instruction], data: &[u8], wire_length: u32) -> u32 {
    evaluate(program, data, wire_length).unwrap_or(0)
}

/// Returns `None` if the packet is too short for a load, or the program divides by zero.
#[inline]
fn evaluate(program: &[Instruction], data: &[u8], wire_length: u32) -> Option<u32> {
    let mut a = 0_u32;
    let mut x = 0_u32;
    let mut memory = [0_u32; SCRATCH_WORDS];
    let mut at = 0_usize;
    let mut rounds = 0_u32;
    loop {
        let instruction = program.get(at)?;
        let k = instruction.k;
        match instruction.code {
            LD_H_ABS => a = load_half(data, k)?,
            LD_B_ABS => a = load_byte(data, k)?,
            LD_W_ABS => a = load_word(data, k)?,
            LD_H_IND => a = load_half(data, x.checked_add(k)?)?,
            LD_B_IND => a = load_byte(data, x.checked_add(k)?)?,
            LD_W_IND => a = load_word(data, x.checked_add(k)?)?,
            LDX_MSH => x = (load_byte(data, k)? & 0x0f) << 2,
            RETURN_CONSTANT => return Some(k),
            RETURN_A => return Some(a),
            LD_IMM => a = k,
            LD_LEN => a = wire_length,
            LD_MEM => a = memory[scratch(k)?],
            LDX_IMM => x = k,
            LDX_LEN => x = wire_length,
            LDX_MEM => x = memory[scratch(k)?],
            ST => memory[scratch(k)?] = a,
            STX => memory[scratch(k)?] = x,
            TAX => x = a,
            TXA => a = x,
            JA => {
                let to = jump(at, k)?;
                rounds += u32::from(to <= at);
                if rounds > MAX_ROUNDS {
                    return None;
                }
                at = to;
                continue;
            }
            code => {
                let operand = if code & SOURCE_X == 0 { k } else { x };
                if code & CLASS == CLASS_JMP {
                    at += usize::from(skip(instruction, a, operand)?);
                } else {
                    a = calculate(code, a, operand)?;
                }
            }
        }
        at += 1;
    }
}

#[inline]
fn skip(instruction: &Instruction, a: u32, operand: u32) -> Option<u8> {
    let holds = match instruction.code & OPERATION {
        JEQ => a == operand,
        JGT => a > operand,
        JGE => a >= operand,
        JSET => a & operand != 0,
        _ => return None,
    };
    Some(if holds {
        instruction.jump_true
    } else {
        instruction.jump_false
    })
}

#[inline]
fn calculate(code: u16, a: u32, operand: u32) -> Option<u32> {
    Some(match code & OPERATION {
        ADD => a.wrapping_add(operand),
        SUB => a.wrapping_sub(operand),
        MUL => a.wrapping_mul(operand),
        DIV => a.checked_div(operand)?,
        OR => a | operand,
        AND => a & operand,
        LSH => a.checked_shl(operand).unwrap_or(0),
        RSH => a.checked_shr(operand).unwrap_or(0),
        NEG => a.wrapping_neg(),
        MOD => a.checked_rem(operand)?,
        XOR => a ^ operand,
        _ => return None,
    })
}

#[inline]
fn load<const N: usize>(data: &[u8], offset: u32) -> Option<[u8; N]> {
    let start = usize::try_from(offset).ok()?;
    data.get(start..)?.first_chunk::<N>().copied()
}

#[inline]
fn load_byte(data: &[u8], offset: u32) -> Option<u32> {
    load::<1>(data, offset).map(|[byte]| byte.into())
}

#[inline]
fn load_half(data: &[u8], offset: u32) -> Option<u32> {
    load(data, offset).map(|bytes| u16::from_be_bytes(bytes).into())
}

#[inline]
fn load_word(data: &[u8], offset: u32) -> Option<u32> {
    load(data, offset).map(u32::from_be_bytes)
}
