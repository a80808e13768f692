// SPDX-License-Identifier: MIT OR Apache-2.0
//! Gives a filter the view that libpcap's live filters have: without the outer VLAN tag.
//!
//! The kernel takes the tag out before it runs the filter of a packet socket, and libpcap puts it back into
//! the bytes. So `udp` matches tagged packets there. Packets of Ringtap have their tag.
//!
//! Invariants
//! - A filter that looks for tags itself (`vlan`) sees packets as on the wire: it matches the same.

use ringtap_filter::Instruction;

/// Ethernet types of the tags that the kernel takes out, and the older one that filters look for, too.
const TAGS: [u32; 2] = [0x8100, 0x88a8];
const OLD_TAG: u32 = 0x9100;
/// Offset of the type, or tag, in an Ethernet frame, and length of a tag.
const TYPE_AT: u32 = 12;
const TAG_BYTES: u32 = 4;
/// Offsets from here on stand for facts beside the packet.
const BESIDE: u32 = 0xffff_f000;

const LOAD_WORD: u16 = 0x20;
const LOAD_HALF: u16 = 0x28;
const LOAD_BYTE: u16 = 0x30;
const LOAD_WORD_AT_X: u16 = 0x40;
const LOAD_HALF_AT_X: u16 = 0x48;
const LOAD_BYTE_AT_X: u16 = 0x50;
const LOAD_HEADER_LENGTH: u16 = 0xb1;
const LOAD_LENGTH: u16 = 0x80;
const LOAD_LENGTH_TO_X: u16 = 0x81;
const SUBTRACT: u16 = 0x14;
const JUMP: u16 = 0x05;
const JUMP_IF_EQUAL: u16 = 0x15;
const CLASS: u16 = 0x07;

/// The filter for packets with their tags that matches what `filter` matches in a live capture of libpcap;
/// `None`: the same filter does.
pub(super) fn with_tags(filter: &[Instruction]) -> Option<Vec<Instruction>> {
    let looks_for_tags = |one: &Instruction| {
        one.code == JUMP_IF_EQUAL && (TAGS.contains(&one.k) || one.k == OLD_TAG)
    };
    if filter.iter().any(looks_for_tags) {
        return None;
    }
    let untagged = behind_tag(filter)?;
    if untagged == filter {
        return None;
    }
    let behind = u32::try_from(filter.len()).ok()?;
    let mut all = vec![
        Instruction::new(LOAD_HALF, 0, 0, TYPE_AT),
        Instruction::new(JUMP_IF_EQUAL, 1, 0, TAGS[0]),
        Instruction::new(JUMP_IF_EQUAL, 0, 1, TAGS[1]),
        Instruction::new(JUMP, 0, 0, behind),
    ];
    all.extend_from_slice(filter);
    all.extend(untagged);
    Some(all)
}

/// The filter on a packet that has a tag, as if it had none; `None` if that cannot be told.
fn behind_tag(filter: &[Instruction]) -> Option<Vec<Instruction>> {
    let mut places = Vec::with_capacity(filter.len() + 1);
    let mut all = Vec::with_capacity(filter.len());
    for one in filter {
        places.push(all.len());
        let mut one = *one;
        one.k = match one.code {
            LOAD_WORD => moved(one.k, 4)?,
            LOAD_HALF => moved(one.k, 2)?,
            LOAD_BYTE | LOAD_HEADER_LENGTH => moved(one.k, 1)?,
            LOAD_WORD_AT_X | LOAD_HALF_AT_X | LOAD_BYTE_AT_X if one.k < TYPE_AT => return None,
            LOAD_WORD_AT_X | LOAD_HALF_AT_X | LOAD_BYTE_AT_X => moved(one.k, 1)?,
            LOAD_LENGTH_TO_X => return None,
            _ => one.k,
        };
        all.push(one);
        if one.code == LOAD_LENGTH {
            all.push(Instruction::new(SUBTRACT, 0, 0, TAG_BYTES));
        }
    }
    // A jump spans the instructions that were added between.
    for (at, one) in filter.iter().enumerate() {
        if one.code & CLASS != JUMP {
            continue;
        }
        let place = places[at];
        let span = |by: usize| places.get(at + 1 + by)?.checked_sub(place + 1);
        let new = &mut all[place];
        if one.code == JUMP {
            new.k = u32::try_from(span(usize::try_from(one.k).ok()?)?).ok()?;
        } else {
            new.jump_true = u8::try_from(span(one.jump_true.into())?).ok()?;
            new.jump_false = u8::try_from(span(one.jump_false.into())?).ok()?;
        }
    }
    Some(all)
}

/// The offset behind the tag of `bytes` bytes at this offset; `None` if the tag divides them.
fn moved(offset: u32, bytes: u32) -> Option<u32> {
    match offset {
        BESIDE.. => Some(offset),
        TYPE_AT.. => offset.checked_add(TAG_BYTES),
        _ if offset + bytes <= TYPE_AT => Some(offset),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use ringtap_filter::{LinkType, Program, text};

    use super::*;

    fn compiled(filter: &str) -> Vec<Instruction> {
        let program = text::compile(filter, LinkType::ETHERNET, 65_535).unwrap();
        program.instructions().to_vec()
    }

    /// An IPv4 packet of UDP from port 5000 to `port`, behind these tags.
    fn packet(tags: &[u16], port: u16) -> Vec<u8> {
        let mut frame = vec![2; 12];
        for tag in tags {
            frame.extend(tag.to_be_bytes());
            frame.extend([0, 7]);
        }
        frame.extend([8, 0, 0x45, 0, 0, 46, 0, 0, 0, 0, 64, 17, 0, 0]);
        frame.extend([10, 0, 0, 1, 10, 0, 0, 2, 0x13, 0x88]);
        frame.extend(port.to_be_bytes());
        frame.resize(60, 0);
        frame
    }

    fn matches(filter: &str, frame: &[u8]) -> bool {
        let own = compiled(filter);
        let program = Program::new(&with_tags(&own).unwrap_or(own)).unwrap();
        program.matches(frame, u32::try_from(frame.len()).unwrap())
    }

    #[test]
    fn a_filter_sees_behind_one_tag_as_libpcaps_live_filters_do() {
        for (filter, tags, passes) in [
            ("udp dst port 53", &[][..], true),
            ("udp dst port 53", &[0x8100], true),
            ("udp dst port 53", &[0x88a8], true),
            ("udp dst port 53", &[0x9100], false),
            ("udp dst port 53", &[0x88a8, 0x8100], false),
            ("udp dst port 54", &[0x8100], false),
            ("not udp", &[0x8100], false),
            ("ip[16:4] = 0x0a000002", &[0x8100], true),
            ("ether src 02:02:02:02:02:02", &[0x8100], true),
            ("less 56", &[0x8100], true),
            ("less 56", &[], false),
            ("less 56 and udp dst port 53", &[0x8100], true),
            ("vlan 7 and udp", &[0x8100], true),
            ("vlan 7 and udp", &[], false),
            ("not vlan", &[0x8100], false),
        ] {
            assert_eq!(
                matches(filter, &packet(tags, 53)),
                passes,
                "{filter} {tags:x?}"
            );
        }
    }

    #[test]
    fn a_filter_that_does_not_look_behind_the_addresses_stays_as_it_is() {
        for filter in ["", "ether host 02:02:02:02:02:02", "vlan", "vlan 5 and tcp"] {
            assert_eq!(with_tags(&compiled(filter)), None, "{filter}");
        }
        // Bytes on both sides of the tag.
        let divided = [
            Instruction::new(LOAD_WORD, 0, 0, 10),
            Instruction::new(0x06, 0, 0, 9),
        ];
        assert_eq!(with_tags(&divided), None);
    }
}
