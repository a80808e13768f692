// SPDX-License-Identifier: MIT OR Apache-2.0
//! eBPF instructions: one constructor for each kind.

/// One eBPF instruction: the bytes of the kernel's `struct bpf_insn` as a little-endian number.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Insn(pub u64);

/// A register.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Reg(u8);

pub(super) const R0: Reg = Reg(0);
pub(super) const R1: Reg = Reg(1);
pub(super) const R2: Reg = Reg(2);
pub(super) const R3: Reg = Reg(3);
pub(super) const R4: Reg = Reg(4);
pub(super) const R6: Reg = Reg(6);
pub(super) const R7: Reg = Reg(7);
pub(super) const R8: Reg = Reg(8);
pub(super) const R9: Reg = Reg(9);
/// End of the stack frame; the stack grows down from here.
pub(super) const FRAME: Reg = Reg(10);

/// Number of bytes that a load or store moves.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) enum AccessSize {
    Byte,
    Half,
    Word,
    Double,
}

impl AccessSize {
    /// The size of a load of this many bytes; classic BPF has no larger ones than words.
    pub(super) fn from_bytes(bytes: u8) -> Self {
        match bytes {
            1 => AccessSize::Byte,
            2 => AccessSize::Half,
            _ => AccessSize::Word,
        }
    }

    pub(super) fn bytes(self) -> u8 {
        match self {
            AccessSize::Byte => 1,
            AccessSize::Half => 2,
            AccessSize::Word => 4,
            AccessSize::Double => 8,
        }
    }

    fn code(self) -> u8 {
        match self {
            AccessSize::Word => 0x00,
            AccessSize::Half => 0x08,
            AccessSize::Byte => 0x10,
            AccessSize::Double => 0x18,
        }
    }
}

/// Operation on a register; the upper four bits of the code.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Op {
    Add = 0x00,
    Sub = 0x10,
    Mul = 0x20,
    Div = 0x30,
    Or = 0x40,
    And = 0x50,
    Lsh = 0x60,
    Rsh = 0x70,
    Neg = 0x80,
    Mod = 0x90,
    Xor = 0xa0,
    Mov = 0xb0,
}

/// Condition, unsigned unless noted; the upper four bits of the code.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Cond {
    Always = 0x00,
    Equal = 0x10,
    Greater = 0x20,
    GreaterEqual = 0x30,
    AnyBit = 0x40,
    NotEqual = 0x50,
    Less = 0xa0,
    LessEqual = 0xb0,
    /// Signed comparison.
    SignedLess = 0xc0,
}

/// Number of bits in the operation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Width {
    W32,
    W64,
}

/// The second operand.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum With {
    Reg(Reg),
    /// Sign-extended for 64 bits.
    Constant(i32),
}

const CLASS_LDX: u8 = 0x01;
const CLASS_ST: u8 = 0x02;
const CLASS_STX: u8 = 0x03;
const CLASS_ALU: u8 = 0x04;
const CLASS_JMP: u8 = 0x05;
const CLASS_JMP32: u8 = 0x06;
const CLASS_ALU64: u8 = 0x07;
const MODE_MEM: u8 = 0x60;
const SOURCE_X: u8 = 0x08;

pub(super) fn encode(code: u8, dst: Reg, src: Reg, offset: i16, constant: i32) -> Insn {
    let [o0, o1] = offset.to_le_bytes();
    let [c0, c1, c2, c3] = constant.to_le_bytes();
    Insn(u64::from_le_bytes([
        code,
        dst.0 | src.0 << 4,
        o0,
        o1,
        c0,
        c1,
        c2,
        c3,
    ]))
}

pub(super) fn alu(width: Width, op: Op, dst: Reg, with: With) -> Insn {
    let class = match width {
        Width::W32 => CLASS_ALU,
        Width::W64 => CLASS_ALU64,
    };
    with_operand(class | op as u8, dst, with)
}

/// A jump whose distance is set later.
pub(super) fn jump(width: Width, cond: Cond, dst: Reg, with: With) -> Insn {
    let class = match width {
        Width::W32 => CLASS_JMP32,
        Width::W64 => CLASS_JMP,
    };
    with_operand(class | cond as u8, dst, with)
}

fn with_operand(code: u8, dst: Reg, with: With) -> Insn {
    match with {
        With::Reg(src) => encode(code | SOURCE_X, dst, src, 0, 0),
        With::Constant(constant) => encode(code, dst, R0, 0, constant),
    }
}

pub(super) fn load(size: AccessSize, dst: Reg, base: Reg, offset: i16) -> Insn {
    encode(CLASS_LDX | MODE_MEM | size.code(), dst, base, offset, 0)
}

pub(super) fn store(size: AccessSize, base: Reg, offset: i16, src: Reg) -> Insn {
    encode(CLASS_STX | MODE_MEM | size.code(), base, src, offset, 0)
}

pub(super) fn store_constant(size: AccessSize, base: Reg, offset: i16, constant: i32) -> Insn {
    encode(
        CLASS_ST | MODE_MEM | size.code(),
        base,
        R0,
        offset,
        constant,
    )
}

/// Converts a big-endian number of this size to the machine's order.
pub(super) fn from_big_endian(size: AccessSize, dst: Reg) -> Option<Insn> {
    const TO_BIG_ENDIAN: u8 = 0xdc;
    let bits = match size {
        AccessSize::Byte => return None,
        AccessSize::Half => 16,
        AccessSize::Word => 32,
        AccessSize::Double => 64,
    };
    Some(encode(TO_BIG_ENDIAN, dst, R0, 0, bits))
}

/// A 64-bit constant, in two instructions.
pub(super) fn load_wide(dst: Reg, constant: u64) -> [Insn; 2] {
    let [c0, c1, c2, c3, d0, d1, d2, d3] = constant.to_le_bytes();
    [
        Insn(u64::from_le_bytes([0x18, dst.0, 0, 0, c0, c1, c2, c3])),
        Insn(u64::from_le_bytes([0, 0, 0, 0, d0, d1, d2, d3])),
    ]
}

pub(super) fn call(helper: i32) -> Insn {
    encode(0x85, R0, R0, 0, helper)
}

pub(super) fn exit() -> Insn {
    encode(0x95, R0, R0, 0, 0)
}
