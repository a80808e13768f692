// SPDX-License-Identifier: MIT OR Apache-2.0
//! Loads from the packet: in place, from the window, or with the helper.
//!
//! Invariants
//! - A load beyond the captured bytes rejects the packet before it reads.
//! - Rarely used code is placed behind the filter.

use super::assembler::{Assembler, Label};
use super::frame::{Frame, PACKET, WINDOW};
use super::insn::*;

/// Start of a field.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Offset {
    Fixed(u32),
    /// A register plus a constant.
    From(Reg, u32),
}

/// A field of the packet.
#[derive(Debug, Clone, Copy)]
pub(super) struct Field {
    pub(super) size: AccessSize,
    pub(super) offset: Offset,
    pub(super) into: Reg,
}

/// A load that could not be done in place.
#[derive(Debug, Clone, Copy)]
pub(super) struct Slow {
    field: Field,
    begin: Label,
    loaded: Label,
}

/// Emits a load, of which `captured` bytes are known to be captured; rare paths are emitted later.
pub(super) fn load(
    to: &mut Assembler,
    frame: &Frame,
    field: Field,
    captured: u32,
    reject: Label,
) -> Option<Slow> {
    let bytes = u32::from(field.size.bytes());
    match field.offset {
        Offset::Fixed(k) => {
            let end = k.saturating_add(bytes);
            require(to, frame, end, captured, reject);
            if end <= frame.prefix {
                load_from_prefix(to, field, k);
                return None;
            }
            to.alu32(Op::Mov, R1, With::Constant(k.cast_signed()));
        }
        Offset::From(register, k) => {
            to.alu64(Op::Mov, R1, With::Reg(register));
            if k > 0 {
                to.alu64(Op::Add, R1, With::Constant(k.cast_signed()));
            }
            to.alu64(Op::Mov, R2, With::Reg(R1));
            to.alu64(Op::Add, R2, With::Constant(bytes.cast_signed()));
            frame.load_captured(to, R4);
            to.branch(Width::W64, Cond::Greater, R2, With::Reg(R4), reject);
        }
    }
    Some(load_in_place(to, frame, field))
}

/// Rejects a packet with fewer than `end` captured bytes, of which `captured` are known.
pub(super) fn require(to: &mut Assembler, frame: &Frame, end: u32, captured: u32, reject: Label) {
    if end > captured {
        frame.load_captured(to, R1);
        to.branch(
            Width::W64,
            Cond::Less,
            R1,
            With::Constant(end.cast_signed()),
            reject,
        );
    }
}

/// Emits a load at the offset in r1.
fn load_in_place(to: &mut Assembler, frame: &Frame, field: Field) -> Slow {
    let (begin, loaded) = (to.label(), to.label());
    let bytes = With::Constant(field.size.bytes().into());
    frame.load_limit(to, R4);
    to.branch(Width::W64, Cond::GreaterEqual, R1, With::Reg(R4), begin);
    to.alu64(Op::Mov, R3, With::Reg(PACKET));
    to.alu64(Op::Add, R3, With::Reg(R1));
    to.alu64(Op::Mov, R2, With::Reg(R3));
    to.alu64(Op::Add, R2, bytes);
    frame.load_data_end(to, R4);
    to.branch(Width::W64, Cond::Greater, R2, With::Reg(R4), begin);
    to.load(field.size, field.into, R3, 0);
    to.place(loaded);
    swap(to, field);
    Slow {
        field,
        begin,
        loaded,
    }
}

/// Emits the slow path of a load: the offset is in r1, and the bytes were captured.
pub(super) fn load_slowly(to: &mut Assembler, frame: &Frame, slow: Slow, reject: Label) {
    let Slow { field, loaded, .. } = slow;
    let [behind, far] = [to.label(), to.label()];
    to.place(slow.begin);
    frame.load_limit(to, R4);
    to.branch(Width::W64, Cond::NotEqual, R4, With::Constant(0), far);
    let last = frame.prefix - u32::from(field.size.bytes());
    let last = With::Constant(last.cast_signed());
    to.branch(Width::W64, Cond::Greater, R1, last, behind);
    load_from_window(to, frame, field, loaded);
    to.place(behind);
    frame.load_behind_window(to, field.size, (field.into, R1), far);
    to.go(loaded);
    to.place(far);
    frame.load_far(to, field.size, (field.into, R1), reject);
    to.go(loaded);
}

/// Loads byte by byte, since stack reads must be aligned.
fn load_from_window(to: &mut Assembler, frame: &Frame, field: Field, loaded: Label) {
    frame.point_into_window(to, R3, R1);
    to.load(AccessSize::Byte, field.into, R3, WINDOW);
    // In the packet's order, like the other paths to `loaded`.
    for byte in 1..field.size.bytes() {
        to.load(AccessSize::Byte, R2, R3, WINDOW + i16::from(byte));
        to.alu32(Op::Lsh, R2, With::Constant(8 * i32::from(byte)));
        to.alu32(Op::Or, field.into, With::Reg(R2));
    }
    to.go(loaded);
}

/// Loads from r6, which may point to the stack: in aligned pieces.
fn load_from_prefix(to: &mut Assembler, field: Field, k: u32) {
    // At most `LONGEST_PREFIX`.
    let k = i16::try_from(k).unwrap_or(0);
    let place = WINDOW + k;
    let bytes = i16::from(field.size.bytes());
    if place.rem_euclid(bytes) == 0 {
        to.load(field.size, field.into, PACKET, k);
        swap(to, field);
        return;
    }
    let piece = if place % 2 == 0 {
        AccessSize::Half
    } else {
        AccessSize::Byte
    };
    let step = i16::from(piece.bytes());
    to.load(piece, field.into, PACKET, k);
    for at in (step..bytes).step_by(usize::from(piece.bytes())) {
        to.load(piece, R2, PACKET, k + at);
        to.alu32(Op::Lsh, R2, With::Constant(8 * i32::from(at)));
        to.alu32(Op::Or, field.into, With::Reg(R2));
    }
    swap(to, field);
}

fn swap(to: &mut Assembler, field: Field) {
    if let Some(insn) = from_big_endian(field.size, field.into) {
        to.emit(insn);
    }
}
