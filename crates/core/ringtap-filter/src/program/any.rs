// SPDX-License-Identifier: MIT OR Apache-2.0
//! Joins programs to one that matches what any of them matches.
//!
//! A load outside the packet ends a classic program, and with it the programs behind it. So the joined
//! program matches every packet for which a load could fail: packets shorter than the fixed offsets of
//! the programs, and those in which an indexed load leaves the packet.

use super::code::{
    CLASS, CLASS_ALU, CLASS_JMP, DIV, JA, JGE, JGT, LD_LEN, MOD, OPERATION, RETURN_A,
    RETURN_CONSTANT, SOURCE_X, SUB, TXA, packet_load,
};
use super::{Instruction, MOST_INSTRUCTIONS, Program, jump};

/// Instructions before an indexed load that match packets in which it fails.
const GUARD: usize = 7;

const MATCH: Instruction = Instruction::new(RETURN_CONSTANT, 0, 0, u32::MAX);

impl Program {
    /// A program that matches what any of these matches, and rarely more, for packets of which at most
    /// `snap_length` bytes are captured.
    ///
    /// It matches everything if the programs cannot be joined: if they loop, return a computed value,
    /// divide by X, read behind `snap_length`, or are too long.
    #[must_use]
    pub fn any_of(programs: &[Program], snap_length: u32) -> Program {
        let mut different: Vec<&Program> = Vec::new();
        for program in programs {
            if program.takes_everything() {
                return Program::everything();
            }
            if !different.contains(&program) {
                different.push(program);
            }
        }
        match different[..] {
            [only] => only.clone(),
            _ => join(&different, snap_length).unwrap_or_else(Program::everything),
        }
    }
}

fn join(programs: &[&Program], snap_length: u32) -> Option<Program> {
    let (last, others) = programs.split_last()?;
    let mut least = 0;
    for instruction in others.iter().flat_map(|program| program.instructions()) {
        let divides = matches!(instruction.code & OPERATION, DIV | MOD)
            && instruction.code & (CLASS | SOURCE_X) == CLASS_ALU | SOURCE_X;
        if divides || instruction.code == RETURN_A {
            return None;
        }
        if let Some(load) = packet_load(instruction.code) {
            least = least.max(instruction.k.checked_add(load.bytes.into())?);
        }
    }
    if least > snap_length {
        return None;
    }
    let mut joined = vec![
        Instruction::new(LD_LEN, 0, 0, 0),
        Instruction::new(JGE | CLASS_JMP, 1, 0, least),
        MATCH,
    ];
    for program in others {
        // A loop may have other ends than those that `append` knows.
        program.longest_time()?;
        joined.extend(program.clears());
        append(&mut joined, program.instructions(), snap_length)?;
    }
    joined.extend(last.clears());
    joined.extend(last.instructions());
    match joined.len() <= MOST_INSTRUCTIONS {
        true => Program::new(&joined).ok(),
        false => None,
    }
}

/// Appends a program that goes on behind its end where it does not match. Packets have the bytes of
/// its fixed offsets.
fn append(joined: &mut Vec<Instruction>, program: &[Instruction], snap_length: u32) -> Option<()> {
    let is_indexed = |one: &Instruction| packet_load(one.code).is_some_and(|load| load.is_indexed);
    // Where each instruction begins, and the end.
    let mut places = Vec::with_capacity(program.len() + 1);
    let mut place = joined.len();
    for one in program {
        places.push(place);
        place += 1 + if is_indexed(one) { GUARD } else { 0 };
    }
    let end = place;
    for (at, one) in program.iter().enumerate() {
        let place = *places.get(at)?;
        let skip_to = |to: usize| places.get(to)?.checked_sub(place + 1);
        if is_indexed(one) {
            let load = packet_load(one.code)?;
            let behind = one.k.checked_add(load.bytes.into())?;
            joined.extend([
                Instruction::new(TXA, 0, 0, 0),
                Instruction::new(JGT | CLASS_JMP, 0, 1, snap_length.checked_sub(behind)?),
                MATCH,
                Instruction::new(LD_LEN, 0, 0, 0),
                Instruction::new(SUB | CLASS_ALU, 0, 0, behind),
                Instruction::new(JGE | CLASS_JMP | SOURCE_X, 1, 0, 0),
                MATCH,
            ]);
        }
        joined.push(match one.code {
            RETURN_CONSTANT if one.k == 0 => {
                Instruction::new(JA, 0, 0, u32::try_from(end - place - 1).ok()?)
            }
            JA => Instruction::new(JA, 0, 0, u32::try_from(skip_to(jump(at, one.k)?)?).ok()?),
            code if code & CLASS == CLASS_JMP => {
                let skip = |skip: u8| u8::try_from(skip_to(at + 1 + usize::from(skip))?).ok();
                Instruction::new(code, skip(one.jump_true)?, skip(one.jump_false)?, one.k)
            }
            _ => *one,
        });
    }
    Some(())
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn given(entries: &[(u16, u8, u8, u32)]) -> Program {
        let instructions: Vec<_> = entries
            .iter()
            .map(|(code, jump_true, jump_false, k)| {
                Instruction::new(*code, *jump_true, *jump_false, *k)
            })
            .collect();
        Program::new(&instructions).unwrap()
    }

    /// `udp port PORT`, for IPv4 only, as libpcap compiles it.
    fn udp_port(port: u32) -> Program {
        given(&[
            (0x28, 0, 0, 12),
            (0x15, 0, 10, 0x800),
            (0x30, 0, 0, 23),
            (0x15, 0, 8, 17),
            (0x28, 0, 0, 20),
            (0x45, 6, 0, 0x1fff),
            (0xb1, 0, 0, 14),
            (0x48, 0, 0, 14),
            (0x15, 2, 0, port),
            (0x48, 0, 0, 16),
            (0x15, 0, 1, port),
            (0x06, 0, 0, 262_144),
            (0x06, 0, 0, 0),
        ])
    }

    fn vlan(number: u32) -> Program {
        given(&[
            (0x28, 0, 0, 12),
            (0x15, 0, 3, 0x8100),
            (0x28, 0, 0, 14),
            (0x15, 0, 1, number),
            (0x06, 0, 0, 262_144),
            (0x06, 0, 0, 0),
        ])
    }

    fn udp(from: u16, to: u16) -> Vec<u8> {
        let mut packet = vec![0; 64];
        packet[12] = 8;
        packet[14] = 0x45;
        packet[23] = 17;
        packet[34..36].copy_from_slice(&from.to_be_bytes());
        packet[36..38].copy_from_slice(&to.to_be_bytes());
        packet
    }

    #[test]
    fn exactly_the_packets_of_each_program_match_among_whole_ones() {
        let all = Program::any_of(&[udp_port(53), vlan(7), udp_port(99), vlan(7)], 1500);
        let matches = |packet: &[u8]| all.matches(packet, 64);
        assert!(matches(&udp(53, 1)) && matches(&udp(1, 99)) && !matches(&udp(1, 2)));
        let mut tagged = udp(1, 2);
        tagged[12..16].copy_from_slice(&[0x81, 0, 0, 7]);
        assert!(matches(&tagged));
        tagged[15] = 8;
        assert!(!matches(&tagged));
    }

    #[test]
    fn what_cannot_be_joined_matches_everything() {
        let computed = given(&[(0x80, 0, 0, 0), (0x16, 0, 0, 0)]);
        let divides = given(&[(0x81, 0, 0, 0), (0x3c, 0, 0, 0), (0x06, 0, 0, 0)]);
        for other in [computed, divides, Program::everything()] {
            let all = Program::any_of(&[other.clone(), udp_port(1)], 1500);
            assert!(all.takes_everything(), "{other:?}");
        }
        assert!(Program::any_of(&[udp_port(1), udp_port(2)], 20).takes_everything());
        assert_eq!(
            Program::any_of(&[udp_port(1), udp_port(1)], 20),
            udp_port(1)
        );
        let many: Vec<_> = (0..400).map(udp_port).collect();
        assert!(Program::any_of(&many, 1500).takes_everything());
    }

    proptest! {
        #[test]
        fn no_packet_that_a_program_matches_is_left_out(
            mut packet in prop::collection::vec(any::<u8>(), 0..80),
            shape in 0..3_u8,
            snap_length in 38_u32..70,
            ports in prop::collection::vec(0_u32..3, 2..5),
        ) {
            let mut set = |at: usize, byte: u8| packet.get_mut(at).map(|place| *place = byte);
            if shape > 0 {
                for (at, byte) in [(12, 8), (13, 0), (20, 0), (21, 0), (23, 17)] {
                    set(at, byte);
                }
            }
            if shape > 1 {
                for (at, byte) in [(14, 0x45), (34, 0), (36, 0), (37, 1)] {
                    set(at, byte);
                }
            }
            let wire_length = u32::try_from(packet.len()).unwrap();
            packet.truncate(usize::try_from(snap_length).unwrap());
            let programs: Vec<_> = ports.into_iter().map(udp_port).chain([vlan(0)]).collect();
            let all = Program::any_of(&programs, snap_length);
            let one = programs.iter().any(|one| one.matches(&packet, wire_length));
            prop_assert!(!one || all.matches(&packet, wire_length));
        }
    }
}
