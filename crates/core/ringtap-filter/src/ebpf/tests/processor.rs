// SPDX-License-Identifier: MIT OR Apache-2.0
//! Checked interpreter for translated programs.
//!
//! Invariants
//! - A register or stack byte is written before it is read. A call clears r1 to r5.
//! - Packets are read in their linear part only. The stack has 256 bytes, and accesses are aligned.
//! - Pointers and numbers never mix, except that a pointer moves by a number.
//! - Each instruction runs once at most: a translated program has no loop.

use crate::ebpf::{FilterHook, Insn};

const STACK_BYTES: i64 = 256;
/// Upper halves of the arguments, which are `u32`.
const GARBAGE: u64 = 0xdead_beef << 32;

/// What a program reads.
#[derive(Debug, Clone, Copy)]
pub(super) struct Input<'a> {
    pub(super) hook: FilterHook,
    pub(super) packet: &'a [u8],
    /// Bytes that can be read in place.
    pub(super) linear: usize,
    pub(super) tag: u32,
    pub(super) wire_length: u32,
    pub(super) captured: u32,
}

/// The result of a step, or what the program did wrong.
type Checked<T> = Result<T, String>;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Region {
    Context,
    Packet,
    Stack,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Value {
    Number(u64),
    /// An offset from the region's beginning; from its end for the stack.
    Pointer(Region, i64),
}

/// Eight bytes of the stack.
#[derive(Debug, Clone, Copy)]
enum Word {
    Bytes([Option<u8>; 8]),
    Spilled(Value),
}

struct Fields {
    code: u8,
    dst: usize,
    src: usize,
    offset: i64,
    constant: i32,
}

struct Processor<'a> {
    input: Input<'a>,
    registers: [Option<Value>; 11],
    stack: [Word; 32],
}

/// Where a program goes on.
enum Next {
    Skip(i64),
    Exit(u64),
}

/// Runs a program; gives its result or the first fault with its instruction.
pub(super) fn run(code: &[Insn], input: Input<'_>) -> Checked<u64> {
    let mut processor = Processor::new(input);
    let mut at = 0;
    for _step in 0..=code.len() {
        let insn = *code.get(at).ok_or_else(|| format!("jumps to {at}"))?;
        let wide = code.get(at + 1).map_or(0, |next| next.0);
        let next = processor.step(Fields::of(insn), wide);
        match next.map_err(|fault| format!("instruction {at} ({:016x}): {fault}", insn.0))? {
            Next::Exit(result) => return Ok(result),
            Next::Skip(skip) => {
                let skip = isize::try_from(skip).unwrap();
                let to = (at + 1).checked_add_signed(skip);
                at = to.ok_or_else(|| format!("instruction {at} jumps before the program"))?;
            }
        }
    }
    Err("runs longer than a program without a loop".to_owned())
}

impl Fields {
    fn of(insn: Insn) -> Self {
        let [code, registers, o0, o1, constant @ ..] = insn.0.to_le_bytes();
        Self {
            code,
            dst: usize::from(registers & 0x0f),
            src: usize::from(registers >> 4),
            offset: i16::from_le_bytes([o0, o1]).into(),
            constant: i32::from_le_bytes(constant),
        }
    }

    fn size(&self) -> i64 {
        [4, 2, 1, 8][usize::from(self.code >> 3 & 3)]
    }
}

impl<'a> Processor<'a> {
    fn new(input: Input<'a>) -> Self {
        let mut registers = [None; 11];
        registers[1] = Some(Value::Pointer(Region::Context, 0));
        let arguments = [input.tag, input.wire_length, input.captured];
        for (register, argument) in (2..).zip(arguments) {
            registers[register] = Some(Value::Number(GARBAGE | u64::from(argument)));
        }
        registers[10] = Some(Value::Pointer(Region::Stack, 0));
        Self {
            input,
            registers,
            stack: [Word::Bytes([None; 8]); 32],
        }
    }

    fn step(&mut self, fields: Fields, wide: u64) -> Checked<Next> {
        let Fields { code, dst, .. } = fields;
        match code {
            0x18 if fields.src == 0 && wide & 0xffff_ffff == 0 => {
                let low = u64::from(fields.constant.cast_unsigned());
                self.write(dst, Value::Number(wide | low))?;
                return Ok(Next::Skip(1));
            }
            0x61 | 0x69 | 0x71 | 0x79 => {
                let value = self.load(self.place(fields.src, fields.offset)?, fields.size())?;
                self.write(dst, value)?;
            }
            0x62 | 0x6a | 0x72 | 0x7a => {
                let value = Value::Number(i64::from(fields.constant).cast_unsigned());
                self.store(self.place(dst, fields.offset)?, fields.size(), value)?;
            }
            0x63 | 0x6b | 0x73 | 0x7b => {
                let value = self.read(fields.src)?;
                self.store(self.place(dst, fields.offset)?, fields.size(), value)?;
            }
            0x05 => return Ok(Next::Skip(fields.offset)),
            0x85 => self.call(fields.constant)?,
            0x95 => return Ok(Next::Exit(number(self.read(0)?)?)),
            0xdc => {
                let swapped = swap(number(self.read(dst)?)?, fields.constant)?;
                self.write(dst, Value::Number(swapped))?;
            }
            _ if matches!(code & 7, 5 | 6) => {
                let holds = compare(code, self.read(dst)?, self.operand(&fields)?)?;
                return Ok(Next::Skip(if holds { fields.offset } else { 0 }));
            }
            _ if matches!(code & 7, 4 | 7) && fields.offset == 0 => {
                let operand = self.operand(&fields)?;
                let value = match code & 0xf0 {
                    0xb0 => operand,
                    _ => self.read(dst)?,
                };
                self.write(dst, calculate(code, value, operand)?)?;
            }
            _ => return Err("unknown".to_owned()),
        }
        Ok(Next::Skip(0))
    }

    fn read(&self, register: usize) -> Checked<Value> {
        let value = self.registers.get(register).copied().flatten();
        value.ok_or_else(|| format!("reads r{register}, which nothing wrote"))
    }

    fn write(&mut self, register: usize, value: Value) -> Checked<()> {
        match register {
            0..10 => self.registers[register] = Some(value),
            _ => return Err(format!("writes r{register}")),
        }
        Ok(())
    }

    fn operand(&self, fields: &Fields) -> Checked<Value> {
        match fields.code & 0x08 {
            0 => Ok(Value::Number(i64::from(fields.constant).cast_unsigned())),
            _ => self.read(fields.src),
        }
    }

    fn place(&self, register: usize, offset: i64) -> Checked<(Region, i64)> {
        match self.read(register)? {
            Value::Pointer(region, base) => Ok((region, base + offset)),
            Value::Number(number) => Err(format!("{number:#x} is no pointer")),
        }
    }

    fn load(&self, (region, offset): (Region, i64), size: i64) -> Checked<Value> {
        let packet = |offset| Value::Pointer(Region::Packet, offset);
        let end = i64::try_from(self.input.linear).unwrap();
        let bytes = match (region, self.input.hook, offset) {
            (Region::Context, FilterHook::Xdp, 0) | (Region::Context, FilterHook::Tc, 76)
                if size == 4 =>
            {
                return Ok(packet(0));
            }
            (Region::Context, FilterHook::Xdp, 4) | (Region::Context, FilterHook::Tc, 80)
                if size == 4 =>
            {
                return Ok(packet(end));
            }
            (Region::Packet, _, 0..) if offset + size <= end => {
                let start = usize::try_from(offset).unwrap();
                self.input.packet[start..][..usize::try_from(size).unwrap()].to_vec()
            }
            (Region::Stack, ..) => {
                let (word, within) = stack_place(offset, size)?;
                match self.stack[word] {
                    Word::Spilled(value) if size == 8 => return Ok(value),
                    Word::Spilled(_) => return Err("reads a part of a pointer".to_owned()),
                    Word::Bytes(bytes) => {
                        let bytes = bytes[within].iter().copied().collect::<Option<_>>();
                        bytes.ok_or_else(|| {
                            format!("reads the stack at {offset}, which nothing wrote")
                        })?
                    }
                }
            }
            _ => return Err(format!("reads {size} bytes of {region:?} at {offset}")),
        };
        let number = bytes.iter().rev();
        let number = number.fold(0, |all, byte| all << 8 | u64::from(*byte));
        Ok(Value::Number(number))
    }

    fn store(&mut self, (region, offset): (Region, i64), size: i64, value: Value) -> Checked<()> {
        if region != Region::Stack {
            return Err(format!("writes {region:?}"));
        }
        let (word, within) = stack_place(offset, size)?;
        if size == 8 && matches!(value, Value::Pointer(..)) {
            self.stack[word] = Word::Spilled(value);
            return Ok(());
        }
        let mut bytes = match self.stack[word] {
            Word::Bytes(bytes) => bytes,
            Word::Spilled(_) => [None; 8],
        };
        let stored = number(value)?.to_le_bytes().map(Some);
        let length = within.len();
        bytes[within].copy_from_slice(&stored[..length]);
        self.stack[word] = Word::Bytes(bytes);
        Ok(())
    }

    /// `bpf_xdp_load_bytes` and `bpf_skb_load_bytes`, with `u32` for offset and length.
    fn call(&mut self, helper: i32) -> Checked<()> {
        match (self.input.hook, helper) {
            (FilterHook::Xdp, 189) | (FilterHook::Tc, 26) => {}
            _ => return Err(format!("calls {helper}")),
        }
        if self.place(1, 0)? != (Region::Context, 0) {
            return Err("calls without the context".to_owned());
        }
        let offset = number(self.read(2)?)? & 0xffff_ffff;
        let (region, to) = self.place(3, 0)?;
        let length = i64::try_from(number(self.read(4)?)?).map_err(|error| error.to_string())?;
        if region != Region::Stack || length < 1 || to < -STACK_BYTES || to + length > 0 {
            return Err(format!(
                "lets {length} bytes be written to {region:?} at {to}"
            ));
        }
        let start = usize::try_from(offset).unwrap();
        let is_far = self.input.hook == FilterHook::Xdp && offset > 0xffff;
        let packet = self.input.packet.get(start..).filter(|_| !is_far);
        let found = packet.and_then(|rest| rest.get(..usize::try_from(length).unwrap()));
        for at in 0..length {
            // A helper that fails may leave anything: the program must not read it.
            let byte = found.map(|bytes| bytes[usize::try_from(at).unwrap()]);
            let byte = Value::Number(byte.unwrap_or(0xee).into());
            self.store((Region::Stack, to + at), 1, byte)?;
        }
        self.registers[1..=5].fill(None);
        let result = if found.is_some() { 0_i64 } else { -14 };
        self.write(0, Value::Number(result.cast_unsigned()))
    }
}

/// The double word of a stack access, and its bytes in there.
fn stack_place(offset: i64, size: i64) -> Checked<(usize, std::ops::Range<usize>)> {
    if offset < -STACK_BYTES || offset + size > 0 || offset.rem_euclid(size) != 0 {
        return Err(format!("uses {size} bytes of the stack at {offset}"));
    }
    let at = usize::try_from(offset + STACK_BYTES).unwrap();
    let within = at % 8..at % 8 + usize::try_from(size).unwrap();
    Ok((at / 8, within))
}

fn number(value: Value) -> Checked<u64> {
    match value {
        Value::Number(number) => Ok(number),
        Value::Pointer(region, _) => Err(format!("uses a pointer to {region:?} as a number")),
    }
}

fn low_half(number: u64) -> u32 {
    u32::try_from(number & 0xffff_ffff).unwrap()
}

fn swap(number: u64, bits: i32) -> Checked<u64> {
    match bits {
        16 | 32 | 64 => Ok(number.swap_bytes() >> (64 - bits)),
        _ => Err(format!("swaps {bits} bits")),
    }
}

fn calculate(code: u8, value: Value, operand: Value) -> Checked<Value> {
    let operation = code & 0xf0;
    let is_wide = code & 7 == 7;
    if let (true, Value::Pointer(region, offset)) = (is_wide, value) {
        return match (operation, operand) {
            (0x00, Value::Number(by)) => Ok(Value::Pointer(
                region,
                offset.wrapping_add(by.cast_signed()),
            )),
            (0x10, Value::Pointer(other, from)) if other == region => {
                Ok(Value::Number((offset - from).cast_unsigned()))
            }
            (0xb0, _) => Ok(value),
            _ => Err("calculates with a pointer".to_owned()),
        };
    }
    let (a, b) = (number(value)?, number(operand)?);
    let result = if is_wide {
        match operation {
            0x00 => a.wrapping_add(b),
            0x10 => a.wrapping_sub(b),
            0xa0 => a ^ b,
            0xb0 => b,
            _ => return Err("unknown".to_owned()),
        }
    } else {
        calculate_half(operation, low_half(a), low_half(b))?.into()
    };
    Ok(Value::Number(result))
}

fn calculate_half(operation: u8, a: u32, b: u32) -> Checked<u32> {
    let undefined = || format!("operation {operation:#x} by {b}");
    Ok(match operation {
        0x00 => a.wrapping_add(b),
        0x10 => a.wrapping_sub(b),
        0x20 => a.wrapping_mul(b),
        0x30 => a.checked_div(b).ok_or_else(undefined)?,
        0x40 => a | b,
        0x50 => a & b,
        0x60 => a.checked_shl(b).ok_or_else(undefined)?,
        0x70 => a.checked_shr(b).ok_or_else(undefined)?,
        0x80 => a.wrapping_neg(),
        0x90 => a.checked_rem(b).ok_or_else(undefined)?,
        0xa0 => a ^ b,
        0xb0 => b,
        _ => return Err(undefined()),
    })
}

fn compare(code: u8, one: Value, other: Value) -> Checked<bool> {
    let (a, b) = match (code & 7, one, other) {
        (5, Value::Pointer(region, a), Value::Pointer(same, b)) if region == same => {
            (a.cast_unsigned(), b.cast_unsigned())
        }
        (5, ..) => (number(one)?, number(other)?),
        _ => (
            low_half(number(one)?).into(),
            low_half(number(other)?).into(),
        ),
    };
    Ok(match code & 0xf0 {
        0x10 => a == b,
        0x20 => a > b,
        0x30 => a >= b,
        0x40 => a & b != 0,
        0x50 => a != b,
        0xa0 => a < b,
        0xb0 => a <= b,
        0xc0 if code & 7 == 5 => a.cast_signed() < b.cast_signed(),
        _ => return Err("unknown".to_owned()),
    })
}
