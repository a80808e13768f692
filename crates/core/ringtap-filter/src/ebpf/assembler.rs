// SPDX-License-Identifier: MIT OR Apache-2.0
//! Collects instructions and computes jump distances once the labels are placed.
//!
//! Invariants
//! - The translation ends soon after [`MAX_INSTRUCTIONS`]: the callers stop when the code is full.

use super::error::TranslateError;
use super::insn::{self, AccessSize, Cond, Insn, Op, R0, Reg, Width, With};

/// Maximum number of instructions of a function: what a jump from its begin to its end can skip.
const MAX_INSTRUCTIONS: usize = 1 << 15;

/// A position in the code.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Label(usize);

#[derive(Debug, Default)]
pub(super) struct Assembler {
    code: Vec<Insn>,
    places: Vec<Option<usize>>,
    is_target: Vec<bool>,
    jumps: Vec<(usize, Label)>,
}

impl Assembler {
    pub(super) fn label(&mut self) -> Label {
        self.places.push(None);
        self.is_target.push(false);
        Label(self.places.len() - 1)
    }

    /// Places the label before the next instruction.
    pub(super) fn place(&mut self, label: Label) {
        self.places[label.0] = Some(self.code.len());
    }

    /// Whether a jump leads to the label so far.
    pub(super) fn is_target(&self, label: Label) -> bool {
        self.is_target[label.0]
    }

    /// Number of instructions so far.
    pub(super) fn length(&self) -> usize {
        self.code.len()
    }

    /// Whether the function is too long.
    pub(super) fn is_full(&self) -> bool {
        self.code.len() > MAX_INSTRUCTIONS
    }

    pub(super) fn emit(&mut self, insn: Insn) {
        self.code.push(insn);
    }

    pub(super) fn go(&mut self, to: Label) {
        let always = insn::jump(Width::W64, Cond::Always, R0, With::Constant(0));
        self.jump_with(always, to);
    }

    pub(super) fn branch(&mut self, width: Width, cond: Cond, dst: Reg, with: With, to: Label) {
        self.jump_with(insn::jump(width, cond, dst, with), to);
    }

    fn jump_with(&mut self, jump: Insn, to: Label) {
        self.is_target[to.0] = true;
        self.jumps.push((self.code.len(), to));
        self.code.push(jump);
    }

    pub(super) fn alu32(&mut self, op: Op, dst: Reg, with: With) {
        self.emit(insn::alu(Width::W32, op, dst, with));
    }

    pub(super) fn alu64(&mut self, op: Op, dst: Reg, with: With) {
        self.emit(insn::alu(Width::W64, op, dst, with));
    }

    pub(super) fn load(&mut self, size: AccessSize, dst: Reg, base: Reg, offset: i16) {
        self.emit(insn::load(size, dst, base, offset));
    }

    pub(super) fn store(&mut self, size: AccessSize, base: Reg, offset: i16, src: Reg) {
        self.emit(insn::store(size, base, offset, src));
    }

    pub(super) fn store_constant(
        &mut self,
        size: AccessSize,
        base: Reg,
        offset: i16,
        constant: i32,
    ) {
        self.emit(insn::store_constant(size, base, offset, constant));
    }

    /// The finished code.
    pub(super) fn finish(mut self) -> Result<Vec<Insn>, TranslateError> {
        let too_long = TranslateError::TooLong {
            instructions: self.code.len(),
        };
        if self.is_full() {
            return Err(too_long);
        }
        for (at, label) in self.jumps {
            let to = self.places[label.0].unwrap_or(at);
            let behind = at + 1;
            let distance = to.cast_signed() - behind.cast_signed();
            let distance = i16::try_from(distance).map_err(|_far| too_long.clone())?;
            let [low, high] = distance.to_le_bytes();
            self.code[at].0 |= u64::from(low) << 16 | u64::from(high) << 24;
        }
        Ok(self.code)
    }
}
