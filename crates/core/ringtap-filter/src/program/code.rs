// SPDX-License-Identifier: MIT OR Apache-2.0
//! Codes of classic BPF, by their effect on accumulator A, index X and scratch memory.

pub(crate) const RETURN_CONSTANT: u16 = 0x06;
pub(crate) const RETURN_A: u16 = 0x16;

// Loads into A: word, half, byte; absolute, indexed, and the rest.
pub(crate) const LD_W_ABS: u16 = 0x20;
pub(crate) const LD_H_ABS: u16 = 0x28;
pub(crate) const LD_B_ABS: u16 = 0x30;
pub(crate) const LD_W_IND: u16 = 0x40;
pub(crate) const LD_H_IND: u16 = 0x48;
pub(crate) const LD_B_IND: u16 = 0x50;
pub(crate) const LD_IMM: u16 = 0x00;
pub(crate) const LD_MEM: u16 = 0x60;
pub(crate) const LD_LEN: u16 = 0x80;
pub(crate) const LDX_IMM: u16 = 0x01;
pub(crate) const LDX_MEM: u16 = 0x61;
pub(crate) const LDX_LEN: u16 = 0x81;
pub(crate) const LDX_MSH: u16 = 0xb1;
pub(crate) const ST: u16 = 0x02;
pub(crate) const STX: u16 = 0x03;
pub(crate) const TAX: u16 = 0x07;
pub(crate) const TXA: u16 = 0x87;

pub(crate) const CLASS: u16 = 0x07;
pub(crate) const CLASS_ALU: u16 = 0x04;
pub(crate) const CLASS_JMP: u16 = 0x05;
pub(crate) const JA: u16 = 0x05;
/// The operand is X, not the constant.
pub(crate) const SOURCE_X: u16 = 0x08;
pub(crate) const OPERATION: u16 = 0xf0;

// Operations of CLASS_ALU.
pub(crate) const ADD: u16 = 0x00;
pub(crate) const SUB: u16 = 0x10;
pub(crate) const MUL: u16 = 0x20;
pub(crate) const DIV: u16 = 0x30;
pub(crate) const OR: u16 = 0x40;
pub(crate) const AND: u16 = 0x50;
pub(crate) const LSH: u16 = 0x60;
pub(crate) const RSH: u16 = 0x70;
pub(crate) const NEG: u16 = 0x80;
pub(crate) const MOD: u16 = 0x90;
pub(crate) const XOR: u16 = 0xa0;

// Operations of CLASS_JMP.
pub(crate) const JEQ: u16 = 0x10;
pub(crate) const JGT: u16 = 0x20;
pub(crate) const JGE: u16 = 0x30;
pub(crate) const JSET: u16 = 0x40;

/// Only the kernel interprets offsets from here on (`SKF_LL_OFF`, `SKF_NET_OFF`, `SKF_AD_OFF`).
pub(crate) const KERNEL_OFFSETS: u32 = 0xffe0_0000;

/// A load from the packet: size in bytes, and whether its offset is X + k.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct PacketLoad {
    pub(crate) bytes: u8,
    pub(crate) is_indexed: bool,
}

/// The load of an instruction with this code; `None` for other instructions.
pub(crate) fn packet_load(code: u16) -> Option<PacketLoad> {
    let (bytes, is_indexed) = match code {
        LD_W_ABS => (4, false),
        LD_H_ABS => (2, false),
        LD_B_ABS | LDX_MSH => (1, false),
        LD_W_IND => (4, true),
        LD_H_IND => (2, true),
        LD_B_IND => (1, true),
        _ => return None,
    };
    Some(PacketLoad { bytes, is_indexed })
}
