// SPDX-License-Identifier: MIT OR Apache-2.0
//! Translated programs give the verdicts of the classic interpreter, and touch nothing else.

mod deep;
mod instructions;
mod processor;
mod random;

use super::insn::*;
use super::{FilterHook, TranslateError, classify};
use crate::{Instruction, Program};
use processor::Input;

/// Filters, and their translation for each hook.
struct Case {
    filters: Vec<Program>,
    translated: [(FilterHook, Vec<Insn>); 2],
}

impl Case {
    fn new(filters: Vec<Program>) -> Result<Self, TranslateError> {
        let translated = [
            (FilterHook::Xdp, classify(&filters, FilterHook::Xdp)?),
            (FilterHook::Tc, classify(&filters, FilterHook::Tc)?),
        ];
        Ok(Self {
            filters,
            translated,
        })
    }

    /// Compares the verdicts on a packet of which `snap_length` bytes are captured, and `linear`
    /// bytes can be read in place; gives their mask.
    fn compare(&self, wire: &[u8], snap_length: usize, linear: usize) -> u64 {
        let captured = snap_length.min(wire.len());
        let wire_length = u32::try_from(wire.len()).unwrap();
        let verdicts = self.filters.iter().enumerate();
        let expected = verdicts.fold(0, |mask, (bit, filter)| {
            mask | u64::from(filter.matches(&wire[..captured], wire_length)) << bit
        });
        self.run(wire, captured, linear, |mask| *mask == Ok(expected));
        expected
    }

    /// Says that more was captured than the packet has: nothing behind its end is read.
    fn exaggerate(&self, wire: &[u8], linear: usize) {
        self.run(wire, wire.len() + 9, linear, Result::is_ok);
    }

    /// Runs all translations on a packet as it is and with its VLAN tag stripped.
    fn run(
        &self,
        wire: &[u8],
        captured: usize,
        linear: usize,
        is_right: impl Fn(&Result<u64, String>) -> bool,
    ) {
        let ways = [Some((0, wire.to_vec())), strip(wire)];
        for (tag, packet) in ways.into_iter().flatten() {
            for (hook, code) in &self.translated {
                let input = Input {
                    hook: *hook,
                    packet: &packet,
                    linear: linear.min(packet.len()),
                    tag,
                    wire_length: u32::try_from(wire.len()).unwrap(),
                    captured: u32::try_from(captured).unwrap(),
                };
                let mask = processor::run(code, input);
                assert!(
                    is_right(&mask),
                    "{mask:x?}\n{input:x?}\n{:x?}",
                    self.filters
                );
            }
        }
    }
}

/// The packet without its tag, as a NIC hands it over.
fn strip(wire: &[u8]) -> Option<(u32, Vec<u8>)> {
    let tag = u32::from_ne_bytes(*wire.get(12..)?.first_chunk()?);
    (tag != 0).then(|| (tag, [&wire[..12], &wire[16..]].concat()))
}

fn instruction(code: u16, (jump_true, jump_false): (u8, u8), k: u32) -> Instruction {
    Instruction {
        code,
        jump_true,
        jump_false,
        k,
    }
}

fn plain(code: u16, k: u32) -> Instruction {
    instruction(code, (0, 0), k)
}

#[test]
fn the_checked_interpreter_refuses_what_a_program_must_not_do() {
    let zero = With::Constant(0);
    let data = load(AccessSize::Word, R6, R1, 0);
    for (code, fault) in [
        (vec![exit()], "reads r0"),
        (
            vec![alu(Width::W64, Op::Mov, R0, With::Reg(R1)), exit()],
            "as a number",
        ),
        (vec![alu(Width::W64, Op::Mov, FRAME, zero)], "writes r10"),
        (vec![load(AccessSize::Word, R0, R2, 0)], "is no pointer"),
        (
            vec![load(AccessSize::Word, R0, R1, 8)],
            "4 bytes of Context at 8",
        ),
        (
            vec![data, load(AccessSize::Double, R0, R6, 3)],
            "8 bytes of Packet at 3",
        ),
        (
            vec![data, load(AccessSize::Byte, R0, R6, -1)],
            "1 bytes of Packet at -1",
        ),
        (
            vec![data, store(AccessSize::Byte, R6, 0, R2)],
            "writes Packet",
        ),
        (
            vec![load(AccessSize::Double, R0, FRAME, -8)],
            "which nothing wrote",
        ),
        (
            vec![store_constant(AccessSize::Double, FRAME, -264, 0)],
            "stack at -264",
        ),
        (
            vec![store_constant(AccessSize::Word, FRAME, -6, 0)],
            "stack at -6",
        ),
        (
            vec![alu(Width::W32, Op::Lsh, R2, With::Constant(32))],
            "by 32",
        ),
        (vec![call(1)], "calls 1"),
        (vec![encode(0xc3, R2, R0, 0, 0)], "unknown"),
        (vec![encode(0x05, R0, R0, -1, 0)], "without a loop"),
        (vec![jump(Width::W64, Cond::Always, R0, zero)], "jumps to 1"),
    ] {
        let input = Input {
            hook: FilterHook::Xdp,
            packet: &[0; 10],
            linear: 10,
            tag: 0,
            wire_length: 10,
            captured: 10,
        };
        let found = processor::run(&code, input).unwrap_err();
        assert!(found.contains(fault), "{found}, not {fault}");
    }
}
