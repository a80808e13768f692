// SPDX-License-Identifier: MIT OR Apache-2.0
//! Largest amount of work that a program does for one packet.
//!
//! Invariants
//! - A program whose jumps all go forward runs each instruction at most once.
//! - Loops do not overlap, and a round of a loop has at most [`MAX_ROUND_LENGTH`] instructions.

use super::code::*;
use super::machine::{jump, targets};
use super::time::{self, FilterTime};
use super::{Instruction, Program, ProgramError};
use crate::ebpf::facts;

/// Maximum length of a loop, in instructions; the loop of `ip6 protochain` has 28.
const MAX_ROUND_LENGTH: usize = 32;

/// Longest time of a checked program for a packet; `None` if it loops.
pub(super) fn longest_time(program: &[Instruction]) -> Result<Option<FilterTime>, ProgramError> {
    if loops(program)? {
        return Ok(None);
    }
    let mut from = vec![FilterTime::default(); program.len()];
    for (at, instruction) in program.iter().enumerate().rev() {
        let rest = targets(at, instruction).filter_map(|to| from.get(to));
        let rest = rest.max().copied().unwrap_or_default();
        from[at] = time::of(instruction).and(rest);
    }
    Ok(from.first().map(|time| time.with_rule()))
}

impl Program {
    /// Estimate of a verifier's work: the instructions of all paths through the program together.
    ///
    /// Where a path comes to an instruction behind which no earlier result is needed, a verifier that was there before
    /// stops: the instructions behind it count once. `None` if the program loops.
    #[must_use]
    pub fn steps_of_all_paths(&self) -> Option<u64> {
        if self.loops() {
            return None;
        }
        let needed = facts::needed(self, |_| false);
        let mut paths = vec![0_u64; needed.len()];
        if let Some(first) = paths.first_mut() {
            *first = 1;
        }
        let mut steps = 0_u64;
        for (at, instruction) in self.instructions().iter().enumerate() {
            let here = if needed[at].is_nothing() {
                paths[at].min(1)
            } else {
                paths[at]
            };
            steps = steps.saturating_add(here);
            for to in targets(at, instruction) {
                if let Some(there) = paths.get_mut(to) {
                    *there = there.saturating_add(here);
                }
            }
        }
        Some(steps)
    }
}

/// Whether the program loops; an error for loops that `protochain` does not have.
fn loops(program: &[Instruction]) -> Result<bool, ProgramError> {
    // First and last instruction of the last loop so far.
    let mut last: Option<(usize, usize)> = None;
    for (at, instruction) in program.iter().enumerate() {
        let to = match instruction.code {
            JA => jump(at, instruction.k).filter(|to| *to <= at),
            _ => None,
        };
        let Some(to) = to else { continue };
        let is_apart = last.is_none_or(|(first, end)| to == first || to > end);
        if !is_apart || !is_round(&program[to..=at]) {
            return Err(ProgramError::Loop { at });
        }
        last = Some((to, at));
    }
    Ok(last.is_some())
}

/// Whether these instructions have the shape of a round over one header: compare the protocol, move
/// X to the next header, load its protocol from scratch memory, and jump back.
fn is_round(round: &[Instruction]) -> bool {
    let compares = |first: &Instruction| first.code == CLASS_JMP | JEQ;
    let ends = |end: &[Instruction; 3]| [end[0].code, end[1].code] == [TAX, LD_MEM];
    round.len() <= MAX_ROUND_LENGTH
        && round.first().is_some_and(compares)
        && round.last_chunk().is_some_and(ends)
}
