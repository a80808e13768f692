// SPDX-License-Identifier: MIT OR Apache-2.0
//! Translates one filter's instructions in sequence.
//!
//! Invariants
//! - Only reachable instructions are emitted: the verifier refuses dead code.
//! - A filter ends by falling through to the next one, with its bit set if it matches.

use std::collections::BTreeMap;

use super::assembler::{Assembler, Label};
use super::facts::{self, LoadFacts, Needed, Written};
use super::frame::{A, Frame, X};
use super::insn::*;
use super::kept::{Kept, Key};
use super::load::{self, Field, Offset, Slow};
use crate::Program;
use crate::program::code::packet_load;
use crate::program::{Instruction, code, is_outside, jump as jump_target};

/// A filter and its facts.
pub(super) struct FilterFacts<'a> {
    /// The filter's bit in the result.
    pub(super) number: usize,
    pub(super) program: &'a Program,
    pub(super) facts: Vec<Option<LoadFacts>>,
    /// For each instruction, where unconditional jumps lead from there.
    pub(super) steps: Vec<Step>,
    /// Registers needed from each instruction on.
    pub(super) needed: Vec<Needed>,
}

/// Result of following jumps.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Step {
    Accept,
    Reject,
    /// Continue with this instruction, which has an effect.
    At(usize),
}

/// Emits instructions of one filter.
pub(super) struct Translator<'a> {
    to: &'a mut Assembler,
    frame: &'a Frame,
    kept: &'a Kept,
    filter: &'a FilterFacts<'a>,
    /// Labels before the instructions that jumps lead to.
    labels: BTreeMap<usize, Label>,
    accept: Label,
    reject: Label,
    slow: Vec<Slow>,
}

impl FilterFacts<'_> {
    pub(super) fn instructions(&self) -> &[Instruction] {
        self.program.instructions()
    }

    /// Computes the needed registers, once the kept fields are known.
    pub(super) fn find_needed(&mut self, kept: &Kept) {
        let place = |at: usize| kept.place(self.key(at)?);
        self.needed = facts::needed(self.program, |at| place(at).is_some());
    }

    /// The field that an instruction loads.
    pub(super) fn key(&self, at: usize) -> Option<Key> {
        Key::from_instruction(self.instructions().get(at)?, (*self.facts.get(at)?)?)
    }

    /// Follows unconditional jumps.
    pub(super) fn step(&self, at: usize) -> Step {
        self.steps.get(at).copied().unwrap_or(Step::Reject)
    }
}

/// Where unconditional jumps lead from each instruction of a program without loops.
pub(super) fn steps(program: &Program) -> Vec<Step> {
    let instructions = program.instructions();
    let mut steps = vec![Step::Reject; instructions.len()];
    for (at, instruction) in instructions.iter().enumerate().rev() {
        steps[at] = match instruction.code {
            code::RETURN_CONSTANT if instruction.k == 0 => Step::Reject,
            code::RETURN_CONSTANT => Step::Accept,
            code::JA => {
                let to = jump_target(at, instruction.k).and_then(|to| steps.get(to));
                to.copied().unwrap_or(Step::Reject)
            }
            _ => Step::At(at),
        };
    }
    steps
}

/// Emits a filter from an instruction on; `written` names the registers that are already valid.
pub(super) fn translate(
    to: &mut Assembler,
    frame: &Frame,
    kept: &Kept,
    filter: &FilterFacts<'_>,
    (start, written): (usize, Written),
) {
    clear(to, frame, filter.needed[start].unwritten(written));
    let (accept, reject) = (to.label(), to.label());
    let mut translator = Translator::new(to, frame, kept, filter, (accept, reject));
    translator.emit_all(start);
    translator.emit_slow();
    if to.is_target(accept) {
        to.place(accept);
        frame.set_bits(to, 1 << filter.number);
    }
    to.place(reject);
}

/// Clears A, X and scratch words that are read before they are written.
pub(super) fn clear(to: &mut Assembler, frame: &Frame, missing: Needed) {
    let zero = With::Constant(0);
    if missing.a() {
        to.alu32(Op::Mov, A, zero);
    }
    if missing.x() {
        to.alu32(Op::Mov, X, zero);
    }
    missing
        .words()
        .for_each(|word| frame.clear_scratch(to, word));
}

impl<'a> Translator<'a> {
    pub(super) fn new(
        to: &'a mut Assembler,
        frame: &'a Frame,
        kept: &'a Kept,
        filter: &'a FilterFacts<'a>,
        (accept, reject): (Label, Label),
    ) -> Self {
        Self {
            to,
            frame,
            kept,
            filter,
            labels: BTreeMap::new(),
            accept,
            reject,
            slow: Vec::new(),
        }
    }

    fn emit_all(&mut self, start: usize) {
        let mut at = start;
        while !self.to.is_full()
            && let Some(instruction) = self.filter.instructions().get(at)
            && let Some(facts) = self.filter.facts[at]
        {
            if let Some(label) = self.labels.get(&at) {
                self.to.place(*label);
            }
            if self.emit(at, instruction, facts) {
                at += 1;
                continue;
            }
            // The next instruction that a jump leads to.
            match self.labels.range(at + 1..).next() {
                Some((next, _)) => at = *next,
                None => return,
            }
        }
    }

    /// Emits instructions without jumps and returns; returns the slow paths to emit later.
    pub(super) fn emit_row(mut self, row: std::ops::Range<usize>, x_is_needed: bool) -> Vec<Slow> {
        for at in row {
            let instruction = &self.filter.instructions()[at];
            if let Some(facts) = self.filter.facts[at] {
                match packet_load(instruction.code) {
                    Some(_) => self.load(instruction, facts, x_is_needed),
                    None => _ = self.emit(at, instruction, facts),
                }
            }
        }
        self.slow
    }

    fn emit_slow(&mut self) {
        for slow in std::mem::take(&mut self.slow) {
            load::load_slowly(self.to, self.frame, slow, self.reject);
        }
    }

    /// Emits one instruction; returns whether the next one is reachable.
    fn emit(&mut self, at: usize, instruction: &Instruction, facts: LoadFacts) -> bool {
        let Instruction { code, k, .. } = *instruction;
        let constant = With::Constant(k.cast_signed());
        match code {
            code::RETURN_CONSTANT | code::JA => {
                let to = self.label(self.filter.step(at));
                self.to.go(to);
                return false;
            }
            code::RETURN_A => {
                let (to, zero) = (self.accept, With::Constant(0));
                self.to.branch(Width::W32, Cond::NotEqual, A, zero, to);
                self.to.go(self.reject);
                return false;
            }
            code::LD_IMM => self.to.alu32(Op::Mov, A, constant),
            code::LDX_IMM => self.to.alu32(Op::Mov, X, constant),
            code::LD_LEN => self.frame.load_wire_length(self.to, A),
            code::LDX_LEN => self.frame.load_wire_length(self.to, X),
            code::LD_MEM => self.frame.load_scratch(self.to, A, k),
            code::LDX_MEM => self.frame.load_scratch(self.to, X, k),
            code::ST => self.frame.store_scratch(self.to, k, A),
            code::STX => self.frame.store_scratch(self.to, k, X),
            code::TAX => self.to.alu32(Op::Mov, X, With::Reg(A)),
            code::TXA => self.to.alu32(Op::Mov, A, With::Reg(X)),
            _ if is_outside(instruction) => {
                self.to.go(self.reject);
                return false;
            }
            code if packet_load(code).is_some() => {
                let behind = self.filter.needed.get(at + 1);
                self.load(instruction, facts, behind.is_some_and(|needed| needed.x()));
            }
            code if code & code::CLASS == code::CLASS_JMP => return self.jump(at, instruction),
            _ => self.calculate(instruction),
        }
        true
    }

    fn load(&mut self, instruction: &Instruction, facts: LoadFacts, x_is_needed: bool) {
        let Instruction { code, k, .. } = *instruction;
        let Some(load) = packet_load(code) else {
            return;
        };
        let key = Key::from_instruction(instruction, facts);
        if let Some(place) = key.and_then(|key| self.kept.place(key)) {
            self.frame.load_kept(self.to, A, place);
            let (zero, reject) = (With::Constant(0), self.reject);
            self.to
                .branch(Width::W64, Cond::SignedLess, A, zero, reject);
            return;
        }
        let is_header_length = code == code::LDX_MSH;
        if is_header_length && !x_is_needed {
            load::require(
                self.to,
                self.frame,
                k.saturating_add(1),
                facts.captured,
                self.reject,
            );
            return;
        }
        let field = Field {
            size: AccessSize::from_bytes(load.bytes),
            offset: if load.is_indexed {
                Offset::From(X, k)
            } else {
                Offset::Fixed(k)
            },
            into: if is_header_length { X } else { A },
        };
        let slow = load::load(self.to, self.frame, field, facts.captured, self.reject);
        self.slow.extend(slow);
        if is_header_length {
            self.to.alu32(Op::And, X, With::Constant(0x0f));
            self.to.alu32(Op::Lsh, X, With::Constant(2));
        }
    }

    fn calculate(&mut self, instruction: &Instruction) {
        let (code, k) = (instruction.code, instruction.k.cast_signed());
        let is_by_x = code & code::SOURCE_X != 0;
        let operand = if is_by_x {
            With::Reg(X)
        } else {
            With::Constant(k)
        };
        let op = match code & code::OPERATION {
            code::ADD => Op::Add,
            code::SUB => Op::Sub,
            code::MUL => Op::Mul,
            code::DIV => Op::Div,
            code::OR => Op::Or,
            code::AND => Op::And,
            code::LSH => Op::Lsh,
            code::RSH => Op::Rsh,
            code::NEG => Op::Neg,
            code::MOD => Op::Mod,
            _ => Op::Xor,
        };
        match op {
            Op::Div | Op::Mod if is_by_x => {
                let (zero, reject) = (With::Constant(0), self.reject);
                self.to.branch(Width::W32, Cond::Equal, X, zero, reject);
                self.to.alu32(op, A, operand);
            }
            Op::Lsh | Op::Rsh if is_by_x => self.shift_by_x(op),
            Op::Neg => self.to.alu32(op, A, With::Constant(0)),
            _ => self.to.alu32(op, A, operand),
        }
    }

    /// A shift by 32 bits or more gives 0; eBPF would take the amount modulo 32.
    fn shift_by_x(&mut self, op: Op) {
        let [within, done] = [self.to.label(), self.to.label()];
        let limit = With::Constant(32);
        self.to.branch(Width::W32, Cond::Less, X, limit, within);
        self.to.alu32(Op::Mov, A, With::Constant(0));
        self.to.go(done);
        self.to.place(within);
        self.to.alu32(op, A, With::Reg(X));
        self.to.place(done);
    }

    fn jump(&mut self, at: usize, instruction: &Instruction) -> bool {
        let Instruction { code, k, .. } = *instruction;
        let operand = operand(code, k);
        let (cond, opposite) = condition(code);
        let behind = |skip: u8| self.filter.step(at + 1 + usize::from(skip));
        let when_true = behind(instruction.jump_true);
        let when_false = behind(instruction.jump_false);
        let is_next = |step| step == Step::At(at + 1);
        if when_true == when_false {
            if !is_next(when_true) {
                let to = self.label(when_true);
                self.to.go(to);
            }
        } else if is_next(when_true)
            && let Some(opposite) = opposite
        {
            let to = self.label(when_false);
            self.to.branch(Width::W32, opposite, A, operand, to);
        } else {
            let to = self.label(when_true);
            self.to.branch(Width::W32, cond, A, operand, to);
            if !is_next(when_false) {
                let to = self.label(when_false);
                self.to.go(to);
            }
        }
        is_next(when_true) || is_next(when_false)
    }

    /// Label of the place where a step leads.
    fn label(&mut self, step: Step) -> Label {
        match step {
            Step::Accept => self.accept,
            Step::Reject => self.reject,
            Step::At(at) => {
                let new = || self.to.label();
                *self.labels.entry(at).or_insert_with(new)
            }
        }
    }
}

/// Second operand of a jump.
pub(super) fn operand(code: u16, k: u32) -> With {
    match code & code::SOURCE_X {
        0 => With::Constant(k.cast_signed()),
        _ => With::Reg(X),
    }
}

/// Condition of a jump, and the opposite condition if there is one.
pub(super) fn condition(code: u16) -> (Cond, Option<Cond>) {
    match code & code::OPERATION {
        code::JEQ => (Cond::Equal, Some(Cond::NotEqual)),
        code::JGT => (Cond::Greater, Some(Cond::LessEqual)),
        code::JGE => (Cond::GreaterEqual, Some(Cond::Less)),
        _ => (Cond::AnyBit, None),
    }
}
