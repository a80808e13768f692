// SPDX-License-Identifier: MIT OR Apache-2.0
//! Registers and stack of the function, its prologue and its epilogue.
//!
//! Registers: r6 the packet's first bytes (in place, or the window), r7 A, r8 X, r9 the mask.
//! The upper halves of A and X are zero.
//!
//! Invariants
//! - From r6 on, `prefix` bytes are readable in every state that the verifier sees.
//! - The mask and the two lengths are opaque to the verifier. Otherwise it would check the
//!   remaining filters once for each range that it can distinguish.

use super::assembler::{Assembler, Label};
use super::hook::FilterHook;
use super::insn::*;
use crate::Program;
use crate::program::code::{LD_MEM, LDX_MEM, ST, STX, packet_load};

/// Longest prefix, in bytes: that of the smallest Ethernet packet.
const LONGEST_PREFIX: u32 = 60;
/// Shortest prefix, in bytes: a VLAN tag and the bytes before it.
const SHORTEST_PREFIX: u32 = 20;
/// Bytes before a VLAN tag.
const MACS: u8 = 12;
const TAG: u8 = 4;

/// Limit of offsets read in place: beyond 65,535 the verifier loses track.
const IN_PLACE: i32 = 0xff00;

// Stack slots, by their offset from the frame's end.
const CONTEXT: i16 = -8;
/// In the upper half of a double word, like [`CAPTURED`]: see [`store_opaque`].
const WIRE_LENGTH: i16 = -12;
const SHIFT: i16 = -24;
const DATA_END: i16 = -32;
const LIMIT: i16 = -40;
const LOADED: i16 = -48;
const CAPTURED: i16 = -52;
/// Two more than a multiple of four: the stack is read aligned, and IP begins at byte 14.
pub(super) const WINDOW: i16 = -126;
const WINDOW_WORDS: std::ops::Range<i16> = -16..-8;
const WORDS: i16 = -128;
/// Double words below the window, for scratch memory and kept fields.
const WORD_COUNT: usize = 16;

pub(super) const PACKET: Reg = R6;
pub(super) const A: Reg = R7;
pub(super) const X: Reg = R8;
const MASK: Reg = R9;

/// Data common to all filters of a function.
pub(super) struct Frame {
    hook: FilterHook,
    /// Number of bytes readable at r6.
    pub(super) prefix: u32,
    reads_packet: bool,
    scratch_words: usize,
    body: Label,
    window: Label,
}

impl Frame {
    pub(super) fn new(to: &mut Assembler, hook: FilterHook, filters: &[Program]) -> Self {
        let instructions = filters.iter().flat_map(Program::instructions);
        let loads = instructions.filter_map(|one| Some((packet_load(one.code)?, one.k)));
        let fixed = loads.clone().filter(|(load, _)| !load.is_indexed);
        let ends = fixed.map(|(load, k)| k.saturating_add(load.bytes.into()));
        let prefix = ends.filter(|end| *end <= LONGEST_PREFIX).max();
        Self {
            hook,
            prefix: prefix.unwrap_or(0).max(SHORTEST_PREFIX),
            reads_packet: loads.count() > 0,
            scratch_words: scratch_words(filters),
            body: to.label(),
            window: to.label(),
        }
    }

    /// Emits the code before the filters.
    pub(super) fn begin(&self, to: &mut Assembler) {
        Self::clear_mask(to);
        store_opaque(to, WIRE_LENGTH, R3);
        if self.reads_packet {
            self.reach(to);
        }
        to.place(self.body);
    }

    /// Emits the code after the filters.
    pub(super) fn end(&self, to: &mut Assembler) {
        to.alu64(Op::Mov, R0, With::Reg(MASK));
        to.emit(exit());
        if self.reads_packet {
            self.fill_window(to);
        }
    }

    /// Offset of the packet's address in the context; the address of its end follows.
    fn data(&self) -> i16 {
        match self.hook {
            FilterHook::Xdp => 0,
            FilterHook::Tc => 76,
        }
    }

    /// Sets the mask to a pointer minus itself: 0, but an unknown number to the verifier.
    fn clear_mask(to: &mut Assembler) {
        to.alu64(Op::Mov, MASK, With::Reg(R1));
        to.alu64(Op::Sub, MASK, With::Reg(R1));
    }

    /// Loads the number of captured bytes.
    pub(super) fn load_captured(&self, to: &mut Assembler, register: Reg) {
        to.load(AccessSize::Word, register, FRAME, CAPTURED);
    }

    /// Makes the prefix readable, in place if possible.
    fn reach(&self, to: &mut Assembler) {
        let prefix = With::Constant(self.prefix.cast_signed());
        to.store(AccessSize::Double, FRAME, CONTEXT, R1);
        store_opaque(to, CAPTURED, R4);
        let zero = With::Constant(0);
        to.branch(Width::W32, Cond::NotEqual, R2, zero, self.window);
        to.branch(Width::W32, Cond::Less, R4, prefix, self.window);
        to.load(AccessSize::Word, PACKET, R1, self.data());
        to.load(AccessSize::Word, R4, R1, self.data() + 4);
        to.alu64(Op::Mov, R3, With::Reg(PACKET));
        to.alu64(Op::Add, R3, prefix);
        to.branch(Width::W64, Cond::Greater, R3, With::Reg(R4), self.window);
        to.store(AccessSize::Double, FRAME, DATA_END, R4);
        to.store_constant(AccessSize::Double, FRAME, SHIFT, 0);
        to.store_constant(AccessSize::Double, FRAME, LIMIT, IN_PLACE);
    }

    /// Copies the prefix, with its tag, to the stack.
    fn fill_window(&self, to: &mut Assembler) {
        let [plain, filled, broken] = [to.label(), to.label(), to.label()];
        to.place(self.window);
        for word in WINDOW_WORDS {
            to.store_constant(AccessSize::Double, FRAME, word * 8, 0);
        }
        to.store_constant(AccessSize::Double, FRAME, LIMIT, 0);
        to.store_constant(AccessSize::Double, FRAME, SHIFT, 0);
        to.branch(Width::W32, Cond::Equal, R2, With::Constant(0), plain);
        to.store_constant(AccessSize::Double, FRAME, SHIFT, TAG.into());
        let tag = WINDOW + i16::from(MACS);
        to.store(AccessSize::Half, FRAME, tag, R2);
        to.alu32(Op::Rsh, R2, With::Constant(16));
        to.store(AccessSize::Half, FRAME, tag + 2, R2);
        self.copy(to, 0, 0, MACS.into(), filled, broken);
        self.copy(to, MACS, MACS + TAG, self.prefix, filled, broken);
        to.go(filled);
        to.place(plain);
        self.copy(to, 0, 0, self.prefix, filled, broken);
        to.place(filled);
        to.alu64(Op::Mov, PACKET, With::Reg(FRAME));
        to.alu64(Op::Add, PACKET, With::Constant(WINDOW.into()));
        to.go(self.body);
        // The packet is shorter than the caller said: reject every read.
        to.place(broken);
        to.alu32(Op::Mov, R0, With::Constant(0));
        store_opaque(to, CAPTURED, R0);
        to.go(filled);
    }

    /// Copies from a byte of the packet to a byte of the window, up to the end of either.
    fn copy(&self, to: &mut Assembler, from: u8, into: u8, end: u32, filled: Label, broken: Label) {
        let most = With::Constant(end.cast_signed());
        let skipped = With::Constant(into.into());
        let within = to.label();
        self.load_captured(to, R4);
        to.branch(Width::W64, Cond::LessEqual, R4, most, within);
        to.alu64(Op::Mov, R4, most);
        to.place(within);
        to.branch(Width::W64, Cond::LessEqual, R4, skipped, filled);
        to.alu64(Op::Sub, R4, skipped);
        to.alu64(Op::Mov, R3, With::Reg(FRAME));
        let place = i32::from(WINDOW) + i32::from(into);
        to.alu64(Op::Add, R3, With::Constant(place));
        to.alu32(Op::Mov, R2, With::Constant(from.into()));
        to.load(AccessSize::Double, R1, FRAME, CONTEXT);
        to.emit(call(self.load_bytes()));
        to.branch(Width::W64, Cond::NotEqual, R0, With::Constant(0), broken);
    }

    /// Number of the helper.
    fn load_bytes(&self) -> i32 {
        match self.hook {
            FilterHook::Xdp => 189,
            FilterHook::Tc => 26,
        }
    }

    /// Sets bits that are still clear.
    pub(super) fn set_bits(&self, to: &mut Assembler, bits: u64) {
        // A constant with bit 31 would be sign-extended.
        match i32::try_from(bits) {
            Ok(constant) => to.alu64(Op::Xor, MASK, With::Constant(constant)),
            Err(_wide) => {
                for insn in load_wide(R1, bits) {
                    to.emit(insn);
                }
                to.alu64(Op::Xor, MASK, With::Reg(R1));
            }
        }
    }

    /// Saves a register in a stack slot.
    pub(super) fn save(&self, to: &mut Assembler, place: usize, register: Reg) {
        to.store(AccessSize::Double, FRAME, self.kept(place), register);
    }

    pub(super) fn load_wire_length(&self, to: &mut Assembler, register: Reg) {
        to.load(AccessSize::Word, register, FRAME, WIRE_LENGTH);
    }

    pub(super) fn load_scratch(&self, to: &mut Assembler, register: Reg, word: u32) {
        to.load(AccessSize::Double, register, FRAME, scratch(word));
    }

    pub(super) fn store_scratch(&self, to: &mut Assembler, word: u32, register: Reg) {
        to.store(AccessSize::Double, FRAME, scratch(word), register);
    }

    pub(super) fn clear_scratch(&self, to: &mut Assembler, word: u32) {
        to.store_constant(AccessSize::Double, FRAME, scratch(word), 0);
    }

    /// Number of stack slots for kept fields, and for saving A and X.
    pub(super) fn kept_places(&self) -> usize {
        WORD_COUNT - self.scratch_words
    }

    /// Sets a kept field to -1.
    pub(super) fn clear_kept(&self, to: &mut Assembler, place: usize) {
        let at = self.kept(place);
        to.store_constant(AccessSize::Word, FRAME, at, -1);
        to.store_constant(AccessSize::Word, FRAME, at + 4, -1);
    }

    /// Stores a kept field in two halves, so that the verifier does not remember the number. Runs
    /// before the filters, while the mask is 0, which the verifier does not know.
    pub(super) fn store_kept(&self, to: &mut Assembler, place: usize, register: Reg) {
        let at = self.kept(place);
        to.store(AccessSize::Word, FRAME, at, register);
        to.store(AccessSize::Word, FRAME, at + 4, MASK);
    }

    /// Loads a kept field or a saved register.
    pub(super) fn load_kept(&self, to: &mut Assembler, register: Reg, place: usize) {
        to.load(AccessSize::Double, register, FRAME, self.kept(place));
    }

    fn kept(&self, place: usize) -> i16 {
        word_at(self.scratch_words + place)
    }

    /// Loads the end of the linear part.
    pub(super) fn load_data_end(&self, to: &mut Assembler, register: Reg) {
        to.load(AccessSize::Double, register, FRAME, DATA_END);
    }

    /// Loads the first offset that is not read in place; 0 when there is a window.
    pub(super) fn load_limit(&self, to: &mut Assembler, register: Reg) {
        to.load(AccessSize::Double, register, FRAME, LIMIT);
    }

    /// Converts an offset from r6 to one in the window.
    pub(super) fn point_into_window(&self, to: &mut Assembler, register: Reg, offset: Reg) {
        to.alu64(Op::Mov, register, With::Reg(FRAME));
        to.alu64(Op::Add, register, With::Reg(offset));
    }

    /// Loads bytes behind the window in place, if they are in the packet's linear part; `offset` stays.
    pub(super) fn load_behind_window(
        &self,
        to: &mut Assembler,
        size: AccessSize,
        (register, offset): (Reg, Reg),
        far: Label,
    ) {
        offset_in_packet(to, offset);
        let limit = With::Constant(IN_PLACE);
        to.branch(Width::W64, Cond::GreaterEqual, R2, limit, far);
        to.load(AccessSize::Double, R0, FRAME, CONTEXT);
        to.load(AccessSize::Word, R3, R0, self.data());
        to.load(AccessSize::Word, R4, R0, self.data() + 4);
        to.alu64(Op::Add, R3, With::Reg(R2));
        to.alu64(Op::Mov, R2, With::Reg(R3));
        to.alu64(Op::Add, R2, With::Constant(size.bytes().into()));
        to.branch(Width::W64, Cond::Greater, R2, With::Reg(R4), far);
        to.load(size, register, R3, 0);
    }

    /// Loads bytes with the helper, at an offset on the wire behind any restored tag.
    pub(super) fn load_far(
        &self,
        to: &mut Assembler,
        size: AccessSize,
        (register, offset): (Reg, Reg),
        reject: Label,
    ) {
        offset_in_packet(to, offset);
        to.load(AccessSize::Double, R1, FRAME, CONTEXT);
        to.alu64(Op::Mov, R3, With::Reg(FRAME));
        to.alu64(Op::Add, R3, With::Constant(LOADED.into()));
        to.alu32(Op::Mov, R4, With::Constant(size.bytes().into()));
        to.emit(call(self.load_bytes()));
        to.branch(Width::W64, Cond::NotEqual, R0, With::Constant(0), reject);
        to.load(size, register, FRAME, LOADED);
    }
}

/// Stores 32 bits so that the verifier does not remember them: it remembers only stores to the
/// beginning of a double word. (After two 16-bit stores the processor would have to wait for both
/// before it can load them together.)
fn store_opaque(to: &mut Assembler, place: i16, register: Reg) {
    to.store(AccessSize::Word, FRAME, place, register);
}

/// Number of scratch words that the filters use, from the first one up.
fn scratch_words(filters: &[Program]) -> usize {
    let instructions = filters.iter().flat_map(Program::instructions);
    let words = instructions.filter(|one| matches!(one.code, LD_MEM | LDX_MEM | ST | STX));
    let highest = words.map(|one| one.k + 1).max().unwrap_or(0);
    usize::try_from(highest).unwrap_or(0)
}

fn scratch(word: u32) -> i16 {
    word_at(usize::try_from(word).unwrap_or(0))
}

/// Stack offset of a scratch word; a checked program uses at most sixteen.
fn word_at(word: usize) -> i16 {
    WORDS - 8 * (1 + i16::try_from(word & 0x0f).unwrap_or(0))
}

/// Sets r2 to the offset in the packet of an offset on the wire behind any restored tag; r4 is lost.
fn offset_in_packet(to: &mut Assembler, offset: Reg) {
    to.alu64(Op::Mov, R2, With::Reg(offset));
    to.load(AccessSize::Double, R4, FRAME, SHIFT);
    to.alu64(Op::Sub, R2, With::Reg(R4));
}
