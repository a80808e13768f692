// SPDX-License-Identifier: MIT OR Apache-2.0
//! Every message arrives as it was sent; nothing else is a message.

use proptest::prelude::*;
use ringtap_filter::program::MAX_INSTRUCTIONS;
use ringtap_filter::{Instruction, Program};

use super::*;

/// Texts that arrive as they are: others are cleaned.
const TEXT: &str = "[^\\p{C}\\p{Z}]{0,40}";

/// A filter of `loads` loads and a return.
fn filter(loads: usize, k: u32) -> Program {
    let instruction = |code, k| Instruction {
        code,
        jump_true: 0,
        jump_false: 0,
        k,
    };
    let mut program = vec![instruction(0x00, k); loads];
    program.push(instruction(0x06, k));
    Program::new(&program).unwrap()
}

fn requests() -> impl Strategy<Value = GuestRequest> {
    let fields = (
        TEXT,
        TEXT,
        // A program of one return is sent as "everything".
        1..200_usize,
        any::<u32>(),
    );
    (0..5, fields).prop_map(|(kind, (group, name, loads, k))| match kind {
        0 => GuestRequest::Subscribe {
            group,
            name,
            filter: filter(loads, k),
            pool: GuestPool {
                chunks: k,
                epoch: u64::from(k) << 32,
                begins_at: u64::from(k),
                without: vec![[k, 1]; loads],
            },
            gap: (k % 2 == 0).then_some(GuestGap {
                after: u64::from(k),
                duration_ns: 7,
            }),
            cutoff: (k % 3 == 0).then_some(CutOff {
                packets: Some(u64::from(k)),
                bytes: None,
            }),
        },
        1 => GuestRequest::ChangeFilter {
            group,
            filter: filter(loads, k),
        },
        2 => GuestRequest::Unsubscribe { group },
        3 => GuestRequest::FlowRules {
            group,
            request: Request::FlowEvents {
                reader: (k % 2 == 0).then_some(u64::from(k)),
            },
        },
        _ => GuestRequest::Statistics { group },
    })
}

fn answers() -> impl Strategy<Value = HostMessage> {
    let fields = (TEXT, TEXT, any::<[u64; 9]>(), any::<u16>());
    (0..8, fields).prop_map(|(kind, (group, text, numbers, link_type))| {
        let [
            copied,
            filtered,
            shunted,
            other_members,
            nic,
            kernel,
            pool_full,
            overrun,
            part_full,
        ] = numbers;
        let counters = GuestCounters {
            copied,
            filtered,
            shunted,
            other_members,
            nic,
            kernel,
            pool_full,
            overrun,
            part_full,
        };
        let range = |device| DeviceRange {
            device,
            at: filtered,
            bytes: nic,
        };
        let not_in_source = (nic % 2 == 0).then(|| text.clone());
        match kind {
            0 => HostMessage::Granted {
                groups: vec![GrantedGroup {
                    name: group,
                    devices: vec![text],
                    link_type,
                    pool_bytes: nic,
                }],
            },
            1 => HostMessage::Subscribed {
                group,
                pool: range(copied),
                epoch: kernel,
                control: range(overrun),
                not_in_source,
            },
            2 => HostMessage::Filtered {
                group,
                from: copied,
                not_in_source,
            },
            3 => HostMessage::Unsubscribed { group, counters },
            4 => HostMessage::Counters {
                group,
                epoch: copied,
                counters,
            },
            5 if link_type % 2 == 0 => HostMessage::FlowRules {
                group,
                reply: Reply::RulesDone {
                    done: copied,
                    refused: None,
                },
            },
            5 => HostMessage::Refused { text },
            6 => HostMessage::Ended {
                group,
                epoch: copied,
                reason: text,
                counters,
            },
            _ => HostMessage::Mapped {
                device: copied,
                interrupts: filtered % 2 == 0,
            },
        }
    })
}

proptest! {
    #[test]
    fn every_message_arrives_as_it_was_sent(
        request in requests(),
        answer in answers(),
        number: u32,
    ) {
        let packed = pack(&request, number).unwrap();
        prop_assert_eq!((packed.application, packed.request), (APPLICATION, number));
        prop_assert_eq!(unpack::<GuestRequest>(&packed).unwrap(), request);
        prop_assert!(unpack::<HostMessage>(&packed).is_err());
        let packed = pack(&answer, number).unwrap();
        prop_assert_eq!(unpack::<HostMessage>(&packed).unwrap(), answer);
    }

    #[test]
    fn other_bytes_are_refused_or_read(request in requests(), at: usize, byte: u8, noise: Vec<u8>) {
        let mut packed = pack(&request, 0).unwrap();
        let at = at % packed.payload.len();
        packed.payload[at] = byte;
        let _either = unpack::<GuestRequest>(&packed);
        packed.payload = noise;
        let _or = unpack::<HostMessage>(&packed);
    }
}

#[test]
fn a_filter_that_does_not_fit_and_another_version_are_refused() {
    let change = |loads| GuestRequest::ChangeFilter {
        group: "ids".into(),
        filter: filter(loads, u32::MAX),
    };
    let refused = pack(&change(MAX_INSTRUCTIONS - 1), 0).unwrap_err();
    assert!(matches!(refused, MessageError::TooLong(_)), "{refused}");
    let mut packed = pack(&change(1000), 0).unwrap();
    packed.kind = 3;
    let refused = unpack::<GuestRequest>(&packed).unwrap_err();
    assert!(refused.to_string().contains("version 3"), "{refused}");
}

#[test]
fn runs_name_each_chunk_of_the_pool_once() {
    let pool = |without: &[[u32; 2]]| GuestPool {
        chunks: 10,
        epoch: 1,
        begins_at: 0,
        without: without.to_vec(),
    };
    let chunks = |without: &[[u32; 2]]| -> Vec<u32> {
        let chunks = pool(without).chunks_without();
        chunks.into_iter().map(|ChunkId(chunk)| chunk).collect()
    };
    assert_eq!(chunks(&[[2, 2], [7, 1]]), [2, 3, 7]);
    assert_eq!(chunks(&[[2, 3], [3, 3], [1, 9]]), [2, 3, 4, 5, 6, 7, 8, 9]);
    assert_eq!(chunks(&[[0, u32::MAX]; 1000]).len(), 9);
    assert!(chunks(&[[u32::MAX, u32::MAX], [20, 1]]).is_empty());
}
