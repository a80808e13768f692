// SPDX-License-Identifier: MIT OR Apache-2.0
//! Required fields, held against the interpreter: a packet that matches meets all conditions of an entry.

use proptest::prelude::*;

use super::*;

fn value(field: &ByteField, data: &[u8]) -> Option<u32> {
    let base = match field.base {
        FieldBase::Packet => 0,
        FieldBase::HeaderLength(at) => 4 * u32::from(data.get(at as usize)? & 0xf),
    };
    let at = (base + field.at) as usize;
    let bytes = data.get(at..at + usize::from(field.bytes))?;
    let number = bytes
        .iter()
        .fold(0, |sum, byte| sum << 8 | u32::from(*byte));
    Some(number & field.mask)
}

fn meets(conditions: &FieldConditions, data: &[u8]) -> bool {
    conditions.iter().all(|(field, range)| {
        value(field, data).is_some_and(|value| (range.min..=range.max).contains(&value))
    })
}

/// Programs of loads, calculations and jumps over a few small offsets and constants, so that paths meet.
fn programs() -> impl Strategy<Value = Program> {
    let load = (
        prop::sample::select(vec![
            LD_W_ABS, LD_H_ABS, LD_B_ABS, LD_W_IND, LD_H_IND, LD_B_IND, LDX_MSH, LD_IMM, LDX_IMM,
            TAX, TXA, 0x54, 0x44, 0x04,
        ]),
        0..6_u32,
    );
    let memory = (
        prop::sample::select(vec![ST, STX, LD_MEM, LDX_MEM]),
        0..3_u32,
    );
    let jump = (
        prop::sample::select(vec![0x15, 0x25, 0x35, 0x45, 0x1d]),
        0..4_u8,
        0..4_u8,
        0..4_u32,
    );
    let one = prop_oneof![
        load.prop_map(|(code, k)| Instruction::new(code, 0, 0, k)),
        memory.prop_map(|(code, k)| Instruction::new(code, 0, 0, k)),
        jump.prop_map(|(code, t, f, k)| Instruction::new(code, t, f, k)),
        (0..2_u32).prop_map(|k| Instruction::new(RETURN_CONSTANT, 0, 0, k)),
    ];
    prop::collection::vec(one, 1..24).prop_filter_map("a valid program", |mut all| {
        for k in [0, 1, 0, 1] {
            all.push(Instruction::new(RETURN_CONSTANT, 0, 0, k));
        }
        Program::new(&all).ok()
    })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(4000))]

    #[test]
    fn a_packet_that_matches_meets_all_conditions_of_an_entry(
        program in programs(),
        packets in prop::collection::vec(prop::collection::vec(0..4_u8, 0..16), 1..32),
    ) {
        let entries = program.required_fields();
        for data in packets {
            if program.matches(&data, 16) {
                prop_assert!(entries.iter().any(|entry| meets(entry, &data)), "{entries:?} {data:?}");
            }
        }
    }
}

#[test]
fn constants_ranges_and_masks_become_conditions() {
    let instructions = [
        Instruction::new(LD_H_ABS, 0, 0, 12),
        Instruction::new(0x15, 0, 6, 0x800),
        Instruction::new(LD_W_ABS, 0, 0, 26),
        Instruction::new(CLASS_ALU | AND, 0, 0, 0xff00_0000),
        Instruction::new(0x15, 0, 3, 0x0a00_0000),
        Instruction::new(LDX_MSH, 0, 0, 14),
        Instruction::new(LD_H_IND, 0, 0, 16),
        Instruction::new(0x35, 1, 0, 1024),
        Instruction::new(RETURN_CONSTANT, 0, 0, 0),
        Instruction::new(RETURN_CONSTANT, 0, 0, 1),
    ];
    let entries = Program::new(&instructions).unwrap().required_fields();
    let [entry] = &entries[..] else {
        panic!("{entries:?}");
    };
    let found: Vec<_> = entry.iter().collect();
    let field = |base, at, bytes, mask| ByteField {
        base,
        at,
        bytes,
        mask,
    };
    let range = |min, max| ValueRange { min, max };
    assert_eq!(
        found,
        [
            (
                &field(FieldBase::Packet, 12, 2, 0xffff),
                &range(0x800, 0x800)
            ),
            (
                &field(FieldBase::Packet, 26, 4, 0xff00_0000),
                &range(0x0a00_0000, 0x0a00_0000)
            ),
            (
                &field(FieldBase::HeaderLength(14), 16, 2, 0xffff),
                &range(1024, 0xffff)
            ),
        ]
    );
    assert!(Program::nothing().required_fields().is_empty());
    assert_eq!(
        Program::everything().required_fields(),
        [FieldConditions::new()]
    );
}

#[test]
fn too_many_paths_weaken_the_conditions_and_stay_bounded() {
    let mut instructions = Vec::new();
    // Each pair doubles the paths: a field is at most 1, or more.
    for at in 0..40 {
        instructions.push(Instruction::new(LD_B_ABS, 0, 0, at));
        instructions.push(Instruction::new(0x25, 0, 0, 1));
    }
    instructions.push(Instruction::new(RETURN_CONSTANT, 0, 0, 1));
    let entries = Program::new(&instructions).unwrap().required_fields();
    assert!(entries.len() <= MAX_STATES, "{}", entries.len());
    assert!(entries.iter().any(|entry| meets(entry, &[0; 40])));
    assert!(entries.iter().any(|entry| meets(entry, &[9; 40])));
}
