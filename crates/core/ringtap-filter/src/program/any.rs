// SPDX-License-Identifier: MIT OR Apache-2.0
//! Joins programs to one that matches what any of them matches.
//!
//! A load outside the packet ends a classic program, and with it the programs behind it. So the joined
//! program matches every packet for which a load could fail: packets shorter than the fixed offsets of
//! the programs, and those in which an indexed load leaves the packet.

use super::code::{
    CLASS, CLASS_ALU, CLASS_JMP, DIV, JA, JGE, JGT, LD_LEN, MOD, OPERATION, RETURN_A,
    RETURN_CONSTANT, SOURCE_X, SUB, TXA, packet_load,
};
use super::{Instruction, MAX_INSTRUCTIONS, Program, jump, targets};
use crate::ebpf::facts;

/// Bytes of an IPv4 header at most.
const LONGEST_HEADER: u32 = 60;
/// Bytes between the ends of two loads that share a guard.
const PORTS: u32 = 2;

const MATCH: Instruction = Instruction::new(RETURN_CONSTANT, 0, 0, u32::MAX);

impl Program {
    /// A program that matches what any of these matches, and rarely more, for packets of which at most
    /// `snap_length` bytes are captured.
    ///
    /// It matches everything if the programs cannot be joined: if they loop, return a computed value,
    /// divide by X, read behind `snap_length`, or are too long.
    #[must_use]
    pub fn any_of(programs: &[Program], snap_length: u32) -> Program {
        let mut different: Vec<&Program> = Vec::new();
        for program in programs {
            if program.takes_everything() {
                return Program::everything();
            }
            if !different.contains(&program) {
                different.push(program);
            }
        }
        match different[..] {
            [only] => only.clone(),
            _ => join(&different, snap_length).unwrap_or_else(Program::everything),
        }
    }
}

fn join(programs: &[&Program], snap_length: u32) -> Option<Program> {
    let (last, others) = programs.split_last()?;
    let mut least = 0;
    for instruction in others.iter().flat_map(|program| program.instructions()) {
        let divides = matches!(instruction.code & OPERATION, DIV | MOD)
            && instruction.code & (CLASS | SOURCE_X) == CLASS_ALU | SOURCE_X;
        if divides || instruction.code == RETURN_A {
            return None;
        }
        if let Some(load) = packet_load(instruction.code) {
            least = least.max(instruction.k.checked_add(load.bytes.into())?);
        }
    }
    if least > snap_length {
        return None;
    }
    let mut joined = vec![
        Instruction::new(LD_LEN, 0, 0, 0),
        Instruction::new(JGE | CLASS_JMP, 1, 0, least),
        MATCH,
    ];
    for program in others {
        // A loop may have other ends than those that `append` knows.
        program.longest_time()?;
        joined.extend(program.clears());
        append(&mut joined, program, snap_length)?;
    }
    joined.extend(last.clears());
    joined.extend(last.instructions());
    if joined.len() <= MAX_INSTRUCTIONS {
        Program::new(&joined).ok()
    } else {
        None
    }
}

/// Appends a program that goes on behind its end where it does not match. Packets have the bytes of
/// its fixed offsets.
fn append(joined: &mut Vec<Instruction>, program: &Program, snap_length: u32) -> Option<()> {
    let guards = guards(program, snap_length)?;
    // Where each instruction begins, and the end.
    let mut places = Vec::with_capacity(guards.len() + 1);
    let mut place = joined.len();
    for guard in &guards {
        places.push(place);
        place += 1 + guard.len();
    }
    let end = place;
    for ((at, one), guard) in program.instructions().iter().enumerate().zip(guards) {
        joined.extend(guard);
        let place = joined.len();
        let skip_to = |to: usize| places.get(to)?.checked_sub(place + 1);
        joined.push(match one.code {
            RETURN_CONSTANT if one.k == 0 => {
                Instruction::new(JA, 0, 0, u32::try_from(end - place - 1).ok()?)
            }
            JA => Instruction::new(JA, 0, 0, u32::try_from(skip_to(jump(at, one.k)?)?).ok()?),
            code if code & CLASS == CLASS_JMP => {
                let skip = |skip: u8| u8::try_from(skip_to(at + 1 + usize::from(skip))?).ok();
                Instruction::new(code, skip(one.jump_true)?, skip(one.jump_false)?, one.k)
            }
            _ => *one,
        });
    }
    Some(())
}

/// For each instruction of a program without loops, the instructions before it that match packets in which its indexed
/// load fails. They change A, which the load sets.
fn guards(program: &Program, snap_length: u32) -> Option<Vec<Vec<Instruction>>> {
    let end_of = |one: &Instruction| {
        let load = packet_load(one.code).filter(|load| load.is_indexed)?;
        one.k.checked_add(load.bytes.into())
    };
    let instructions = program.instructions();
    let facts = facts::facts(program);
    // Bytes from offset X on that guards have found on every way to an instruction.
    let mut found: Vec<Option<u32>> = vec![None; instructions.len()];
    let mut all = Vec::with_capacity(instructions.len());
    for (at, one) in instructions.iter().enumerate() {
        let mut bytes = found[at].unwrap_or(0);
        let mut guard = Vec::new();
        if packet_load(one.code).is_some_and(|load| load.is_indexed) {
            let own = end_of(one)?;
            if bytes < own {
                // One guard for both ports.
                let ends = instructions.iter().filter_map(end_of);
                bytes = ends.filter(|end| end - own.min(*end) <= PORTS).max()?;
                let is_header = facts[at].is_some_and(|facts| facts.header.is_some());
                guard = guard_of(bytes, is_header, snap_length)?;
            }
        }
        all.push(guard);
        if facts::writes_x(one) {
            bytes = 0;
        }
        for to in targets(at, one) {
            let there = found.get_mut(to).filter(|_| to > at)?;
            *there = Some(there.map_or(bytes, |there| there.min(bytes)));
        }
    }
    Some(all)
}

/// Matches packets that have less than these bytes from offset X on.
fn guard_of(bytes: u32, is_header: bool, snap_length: u32) -> Option<Vec<Instruction>> {
    let longest = snap_length.checked_sub(bytes)?;
    let mut guard = Vec::new();
    if !is_header || longest < LONGEST_HEADER {
        guard.extend([
            Instruction::new(TXA, 0, 0, 0),
            Instruction::new(JGT | CLASS_JMP, 0, 1, longest),
            MATCH,
        ]);
    }
    guard.extend([
        Instruction::new(LD_LEN, 0, 0, 0),
        Instruction::new(SUB | CLASS_ALU, 0, 0, bytes),
        Instruction::new(JGE | CLASS_JMP | SOURCE_X, 1, 0, 0),
        MATCH,
    ]);
    Some(guard)
}

#[cfg(test)]
mod tests;
