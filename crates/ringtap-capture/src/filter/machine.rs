// SPDX-License-Identifier: MIT OR Apache-2.0
//! Interpreter for classic BPF, with libpcap's semantics, in safe code.
//!
//! Invariants
//! - Only programs that `check` passed are run: jumps go forward and stay inside, the last
//!   instruction returns, scratch words exist. `run` ends for any other program too, with 0.
//! - A load outside the packet, and a division by zero, reject the packet.
#![forbid(unsafe_code)]

/// One classic BPF instruction, laid out as the kernel's `struct sock_filter`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(C)]
pub struct Instruction {
    /// Class, size, mode or operation.
    pub code: u16,
    /// Instructions to skip when the condition holds.
    pub jump_true: u8,
    /// Instructions to skip when it does not.
    pub jump_false: u8,
    /// The constant, offset or scratch word.
    pub k: u32,
}

const SCRATCH_WORDS: usize = 16;

pub(super) const RETURN_CONSTANT: u16 = 0x06;
const RETURN_A: u16 = 0x16;

// Loads into A: word, half, byte; absolute (0x20), indexed (0x40), and the rest.
const LD_W_ABS: u16 = 0x20;
const LD_H_ABS: u16 = 0x28;
const LD_B_ABS: u16 = 0x30;
const LD_W_IND: u16 = 0x40;
const LD_H_IND: u16 = 0x48;
const LD_B_IND: u16 = 0x50;
const LD_IMM: u16 = 0x00;
const LD_MEM: u16 = 0x60;
const LD_LEN: u16 = 0x80;
const LDX_IMM: u16 = 0x01;
const LDX_MEM: u16 = 0x61;
const LDX_LEN: u16 = 0x81;
const LDX_MSH: u16 = 0xb1;
const ST: u16 = 0x02;
const STX: u16 = 0x03;
const TAX: u16 = 0x07;
const TXA: u16 = 0x87;

const CLASS_ALU: u16 = 0x04;
const CLASS_JMP: u16 = 0x05;
const JA: u16 = 0x05;
const SOURCE_X: u16 = 0x08;
const OPERATION: u16 = 0xf0;

/// The first instruction that `run` must not meet.
pub(super) fn check(program: &[Instruction]) -> Result<(), usize> {
    for (at, instruction) in program.iter().enumerate() {
        if !is_valid(instruction, program.len() - at - 1) {
            return Err(at);
        }
    }
    match program.last() {
        Some(last) if last.code == RETURN_CONSTANT || last.code == RETURN_A => Ok(()),
        _ => Err(program.len().saturating_sub(1)),
    }
}

fn is_valid(instruction: &Instruction, following: usize) -> bool {
    let reaches = |skip: u32| usize::try_from(skip).is_ok_and(|skip| skip < following);
    match instruction.code {
        RETURN_CONSTANT | RETURN_A | TAX | TXA => true,
        LD_W_ABS | LD_H_ABS | LD_B_ABS | LD_W_IND | LD_H_IND | LD_B_IND => true,
        LD_IMM | LD_LEN | LDX_IMM | LDX_LEN | LDX_MSH => true,
        LD_MEM | LDX_MEM | ST | STX => scratch(instruction.k).is_some(),
        JA => reaches(instruction.k),
        code if code & 0x07 == CLASS_JMP => {
            matches!(code & OPERATION, 0x10 | 0x20 | 0x30 | 0x40)
                && code & !(OPERATION | SOURCE_X | 0x07) == 0
                && reaches(instruction.jump_true.into())
                && reaches(instruction.jump_false.into())
        }
        code if code & 0x07 == CLASS_ALU => {
            let divides = matches!(code & OPERATION, 0x30 | 0x90);
            code & OPERATION <= 0xa0
                && code & !(OPERATION | SOURCE_X | 0x07) == 0
                && (code & SOURCE_X != 0 || !divides || instruction.k != 0)
        }
        _ => false,
    }
}

fn scratch(k: u32) -> Option<usize> {
    usize::try_from(k).ok().filter(|word| *word < SCRATCH_WORDS)
}

/// What the program returns for a packet: how many bytes to keep, 0 for "not this one".
pub(super) fn run(program: &[Instruction], data: &[u8], wire_length: u32) -> u32 {
    evaluate(program, data, wire_length).unwrap_or(0)
}

/// `None` where the packet is too short for a load, or the program divides by zero.
#[inline]
fn evaluate(program: &[Instruction], data: &[u8], wire_length: u32) -> Option<u32> {
    let mut a = 0_u32;
    let mut x = 0_u32;
    let mut memory = [0_u32; SCRATCH_WORDS];
    let mut at = 0_usize;
    loop {
        let instruction = program.get(at)?;
        at += 1;
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
            JA => at += usize::try_from(k).ok()?,
            code => {
                let operand = if code & SOURCE_X == 0 { k } else { x };
                if code & 0x07 == CLASS_JMP {
                    at += usize::from(skip(instruction, a, operand)?);
                } else {
                    a = calculate(code, a, operand)?;
                }
            }
        }
    }
}

#[inline]
fn skip(instruction: &Instruction, a: u32, operand: u32) -> Option<u8> {
    let holds = match instruction.code & OPERATION {
        0x10 => a == operand,
        0x20 => a > operand,
        0x30 => a >= operand,
        0x40 => a & operand != 0,
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
        0x00 => a.wrapping_add(operand),
        0x10 => a.wrapping_sub(operand),
        0x20 => a.wrapping_mul(operand),
        0x30 => a.checked_div(operand)?,
        0x40 => a | operand,
        0x50 => a & operand,
        0x60 => a.checked_shl(operand).unwrap_or(0),
        0x70 => a.checked_shr(operand).unwrap_or(0),
        0x80 => a.wrapping_neg(),
        0x90 => a.checked_rem(operand)?,
        0xa0 => a ^ operand,
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
