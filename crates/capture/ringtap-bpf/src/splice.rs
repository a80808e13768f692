// SPDX-License-Identifier: MIT OR Apache-2.0
//! Splits a loaded eBPF program into functions and replaces some of them.
//!
//! Marker numbers of `bpf/splice.h` show what to replace: a constant or a whole function.
//!
//! Invariants
//! - Function 0 is the program's entry; every call names an existing function.
//! - Jumps stay inside their function, as the verifier requires, so functions can be moved whole.

use ringtap_filter::Program as Filter;
use ringtap_filter::ebpf::{self, FilterHook, TranslateError};

use crate::program::NotLoaded;

/// One instruction as the kernel reads it: opcode, registers, offset and constant, from the
/// lowest byte up.
pub type RawInsn = u64;

const LOAD_WIDE: u8 = 0x18;
const CALL: u8 = 0x85;
const EXIT: RawInsn = 0x95;
/// Value of the source register for a call of, or a pointer to, a function of the same program.
const OUR_CALL: u8 = 1;
const OUR_FUNCTION: u8 = 4;
/// Value of the source register for a map's descriptor.
const MAP: u8 = 1;

/// Why a program cannot be split.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[allow(missing_docs, reason = "the messages describe the variants")]
pub enum SpliceError {
    #[error("instruction {at} calls a function outside the program")]
    WildCall { at: usize },
    #[error("the program has no instruction with the mark {mark:#x}")]
    NoMark { mark: u64 },
    #[error("the program is too long for a call from its start to its end")]
    TooLong,
}

/// Translates filters for a hook.
pub(crate) fn translate(
    filters: &[Filter],
    hook: FilterHook,
) -> Result<Vec<RawInsn>, TranslateError> {
    let insns = ebpf::classify(filters, hook)?;
    Ok(insns.into_iter().map(|insn| insn.0).collect())
}

/// A program split into functions.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Code {
    functions: Vec<Function>,
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Function {
    insns: Vec<RawInsn>,
    /// References to functions: position, function.
    calls: Vec<(usize, usize)>,
}

fn opcode(insn: RawInsn) -> u8 {
    insn.to_le_bytes()[0]
}

fn source(insn: RawInsn) -> u8 {
    insn.to_le_bytes()[1] >> 4
}

fn constant(insn: RawInsn) -> i32 {
    let [.., a, b, c, d] = insn.to_le_bytes();
    i32::from_le_bytes([a, b, c, d])
}

fn with_constant(insn: RawInsn, constant: i32) -> RawInsn {
    let [a, b, c, d, ..] = insn.to_le_bytes();
    let [e, f, g, h] = constant.to_le_bytes();
    RawInsn::from_le_bytes([a, b, c, d, e, f, g, h])
}

/// The function of the same program to which the instruction at `at` refers, by its start.
fn target(insn: RawInsn, at: usize) -> Option<Result<usize, SpliceError>> {
    let refers = match opcode(insn) {
        CALL => source(insn) == OUR_CALL,
        LOAD_WIDE => source(insn) == OUR_FUNCTION,
        _ => false,
    };
    let relative = || isize::try_from(constant(insn)).ok();
    let start = || at.checked_add(1)?.checked_add_signed(relative()?);
    refers.then(|| start().ok_or(SpliceError::WildCall { at }))
}

/// Instructions with their positions; the second half of a wide load is skipped.
fn walk(insns: &[RawInsn]) -> impl Iterator<Item = (usize, RawInsn)> {
    let mut at = 0;
    std::iter::from_fn(move || {
        let insn = *insns.get(at)?;
        let place = at;
        at += if opcode(insn) == LOAD_WIDE { 2 } else { 1 };
        Some((place, insn))
    })
}

impl Code {
    /// Splits a whole program into functions.
    pub fn parse(insns: &[RawInsn]) -> Result<Self, SpliceError> {
        let mut starts = vec![0];
        for (at, insn) in walk(insns) {
            match target(insn, at).transpose()? {
                Some(start) if start >= insns.len() => return Err(SpliceError::WildCall { at }),
                start => starts.extend(start),
            }
        }
        starts.sort_unstable();
        starts.dedup();
        let ends = starts.iter().skip(1).copied().chain([insns.len()]);
        let function = |(start, end): (usize, usize)| Function::parse(insns, start, end, &starts);
        let functions = starts.iter().copied().zip(ends).map(function);
        Ok(Code {
            functions: functions.collect::<Result<_, _>>()?,
        })
    }

    /// A function with the results of these filters, a bit each.
    pub fn of_filters(filters: &[Filter], hook: FilterHook) -> Result<Self, NotLoaded> {
        Ok(Code::parse(&translate(filters, hook)?)?)
    }

    /// A function that calls the program whose number is its second argument, with its first
    /// argument; returns 0 for other numbers.
    pub fn choice(programs: &[&Code]) -> Self {
        let mut code = Code {
            functions: vec![Function::default()],
        };
        let mut choice = Function::default();
        for (number, program) in (0..).zip(programs) {
            let function = code.append((*program).clone());
            // if r2 != number goto over the next two
            choice.insns.push(with_constant(0x0002_0255, number));
            choice.calls.push((choice.insns.len(), function));
            choice.insns.push(0x1085);
            choice.insns.push(EXIT);
        }
        choice.insns.extend([0xb7, EXIT]);
        code.functions[0] = choice;
        code
    }

    /// Replaces each wide constant `mark` by `value`.
    pub fn set_number(&mut self, mark: u64, value: u64) -> Result<(), SpliceError> {
        let mut found = false;
        for function in &mut self.functions {
            let places: Vec<_> = function.marked(mark).collect();
            for at in places {
                let [a, b, c, d, e, f, g, h] = value.to_le_bytes();
                let halves = [[a, b, c, d], [e, f, g, h]].map(i32::from_le_bytes);
                for (insn, half) in function.insns[at..].iter_mut().zip(halves) {
                    *insn = with_constant(*insn, half);
                }
                found = true;
            }
        }
        found.then_some(()).ok_or(SpliceError::NoMark { mark })
    }

    /// Replaces each use of a map by another map, by their descriptors.
    pub fn set_map(&mut self, from: i32, to: i32) {
        for function in &mut self.functions {
            let uses = |insn: RawInsn| {
                opcode(insn) == LOAD_WIDE && source(insn) == MAP && constant(insn) == from
            };
            let places: Vec<_> = walk(&function.insns)
                .filter(|(_, insn)| uses(*insn))
                .map(|(at, _)| at)
                .collect();
            for at in places {
                function.insns[at] = with_constant(function.insns[at], to);
            }
        }
    }

    /// Replaces the function that holds the wide constant `mark` by a program.
    pub fn set_function(&mut self, mark: u64, program: Code) -> Result<(), SpliceError> {
        let holds = |function: &Function| function.marked(mark).next().is_some();
        let marked = self.functions.iter().position(holds);
        let place = marked.ok_or(SpliceError::NoMark { mark })?;
        let start = self.append(program);
        self.functions[place] = std::mem::take(&mut self.functions[start]);
        self.functions.swap_remove(start);
        // The last function has moved to the place of the removed one.
        let last = self.functions.len();
        self.redirect(start, place);
        self.redirect(last, start);
        Ok(())
    }

    /// Appends a program's functions; returns the number of the first.
    fn append(&mut self, program: Code) -> usize {
        let base = self.functions.len();
        self.functions.extend(program.functions);
        for function in &mut self.functions[base..] {
            for (_, called) in &mut function.calls {
                *called += base;
            }
        }
        base
    }

    fn redirect(&mut self, from: usize, to: usize) {
        let calls = self.functions.iter_mut().flat_map(|it| &mut it.calls);
        for (_, called) in calls.filter(|(_, called)| *called == from) {
            *called = to;
        }
    }

    /// Joins the functions to one program.
    pub fn to_insns(&self) -> Result<Vec<RawInsn>, SpliceError> {
        let mut starts = Vec::new();
        let mut all = Vec::new();
        for function in &self.functions {
            starts.push(all.len());
            all.extend_from_slice(&function.insns);
        }
        for (function, start) in self.functions.iter().zip(&starts) {
            for (at, called) in &function.calls {
                let from = start + at;
                let place = |at: usize| i32::try_from(at).map_err(|_| SpliceError::TooLong);
                let distance = place(starts[*called])? - place(from + 1)?;
                all[from] = with_constant(all[from], distance);
            }
        }
        Ok(all)
    }

    /// Numbers of the kernel helpers that the program calls.
    pub fn helpers(&self) -> impl Iterator<Item = i32> {
        let insns = self.functions.iter().flat_map(|it| walk(&it.insns));
        insns
            .filter(|(_, insn)| opcode(*insn) == CALL && source(*insn) == 0)
            .map(|(_, insn)| constant(insn))
    }
}

impl Function {
    fn parse(
        insns: &[RawInsn],
        start: usize,
        end: usize,
        starts: &[usize],
    ) -> Result<Self, SpliceError> {
        let insns = insns[start..end].to_vec();
        let mut calls = Vec::new();
        for (at, insn) in walk(&insns) {
            if let Some(called) = target(insn, start + at).transpose()? {
                let at_start = starts.binary_search(&called);
                let function = at_start.map_err(|_| SpliceError::WildCall { at: start + at })?;
                calls.push((at, function));
            }
        }
        Ok(Function { insns, calls })
    }

    /// Positions where the wide constant `mark` is loaded.
    fn marked(&self, mark: u64) -> impl Iterator<Item = usize> {
        let low = mark.to_le_bytes();
        let is_mark = move |at: usize, insn: RawInsn| {
            let high = self.insns.get(at + 1).copied().unwrap_or(0);
            opcode(insn) == LOAD_WIDE
                && source(insn) == 0
                && insn.to_le_bytes()[4..] == low[..4]
                && high.to_le_bytes()[4..] == low[4..]
        };
        walk(&self.insns)
            .filter(move |(at, insn)| is_mark(*at, *insn))
            .map(|(at, _)| at)
    }
}

#[cfg(test)]
mod tests;
