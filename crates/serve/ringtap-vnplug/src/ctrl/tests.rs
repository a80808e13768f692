// SPDX-License-Identifier: MIT OR Apache-2.0
//! Tests of frames, messages and the channel.

use proptest::prelude::*;
use rustix::net::{AddressFamily, SocketFlags, SocketType, socketpair};

use super::frame::{MAX_BODY_BYTES, MAX_FRAME_BYTES, encode};
use super::message::{ApplicationMessage, DecodeError};
use super::*;
use crate::device::{MappingKind, SharedId};

fn message() -> impl Strategy<Value = Message> {
    let device = any::<u64>().prop_map(SharedId);
    let kinds = [
        MappingKind::WriteBack,
        MappingKind::WriteCombining,
        MappingKind::Uncached,
        MappingKind::Vfio,
    ];
    prop_oneof![
        any::<(u8, u8, u64)>().prop_map(|(oldest, newest, instance)| Message::Hello {
            oldest,
            newest,
            instance
        }),
        any::<(u8, u64)>().prop_map(|(version, instance)| Message::Welcome { version, instance }),
        (device.clone(), 1..u32::MAX).prop_map(|(device, application)| Message::DeviceAdded {
            device,
            application
        }),
        device
            .clone()
            .prop_map(|device| Message::DeviceLeaving { device }),
        (
            device.clone(),
            prop::sample::select(kinds.to_vec()),
            any::<bool>()
        )
            .prop_map(|(device, mapping, interrupts)| Message::DeviceReady {
                device,
                mapping,
                interrupts
            }),
        (device, any::<u16>()).prop_map(|(device, vector)| Message::Signal { device, vector }),
        (
            1..u32::MAX,
            any::<(u16, u32)>(),
            prop::collection::vec(any::<u8>(), 0..600)
        )
            .prop_map(|(application, (kind, request), payload)| {
                Message::Application(ApplicationMessage {
                    application,
                    kind,
                    request,
                    payload,
                })
            }),
    ]
}

/// All bodies in a stream that arrives in pieces of at most `step` bytes.
fn bodies(deframer: &mut Deframer, stream: &[u8], step: usize) -> Vec<Vec<u8>> {
    let mut found = Vec::new();
    for mut piece in stream.chunks(step) {
        while let Some(body) = deframer.next(&mut piece) {
            found.push(body);
        }
    }
    found
}

proptest! {
    #[test]
    fn every_message_arrives_as_it_was_sent(messages in prop::collection::vec(message(), 1..8), step in 1_usize..2000) {
        let stream: Vec<u8> = messages.iter().flat_map(|message| encode(&message.encode())).collect();
        let bodies = bodies(&mut Deframer::default(), &stream, step);
        let arrived: Result<Vec<_>, _> = bodies.iter().map(|body| Message::decode(body)).collect();
        prop_assert_eq!(arrived.unwrap(), messages);
    }

    #[test]
    fn what_follows_a_cut_message_arrives(cut in message(), whole in message(), at in any::<prop::sample::Index>(), step in 1_usize..64) {
        let first = encode(&cut.encode());
        // The last byte only closes the frame.
        let (first, _) = first.split_at(at.index(first.len() - 1));
        let stream = [first, &encode(&whole.encode())].concat();
        prop_assert_eq!(bodies(&mut Deframer::default(), &stream, step), vec![whole.encode()]);
    }

    #[test]
    fn any_bytes_are_refused_or_are_exactly_a_message(bytes in prop::collection::vec(0_u8..12, 0..64)) {
        if let Ok(message) = Message::decode(&bytes) {
            let mut again = message.encode();
            again[0] = bytes[0];
            prop_assert_eq!(again, bytes);
        }
    }

    #[test]
    fn a_longer_message_is_refused_unless_it_is_an_applications(message in message(), more in 1_usize..80) {
        let mut bytes = message.encode();
        bytes.resize(bytes.len() + more, 0);
        let is_refused = Message::decode(&bytes) == Err(DecodeError::Length(bytes.len()));
        prop_assert_eq!(is_refused, !matches!(message, Message::Application(_)));
    }

    #[test]
    fn after_any_bytes_the_next_message_arrives(noise in prop::collection::vec(any::<u8>(), 0..400), message in message()) {
        let mut deframer = Deframer::default();
        bodies(&mut deframer, &noise, 7);
        let found = bodies(&mut deframer, &encode(&message.encode()), 7);
        prop_assert_eq!(found.last(), Some(&message.encode()));
    }
}

#[test]
fn a_frame_without_an_end_keeps_no_more_than_the_longest_frame() {
    let mut deframer = Deframer::default();
    assert!(bodies(&mut deframer, &vec![1; 3 * MAX_FRAME_BYTES], 4096).is_empty());
    let longest = vec![7; MAX_BODY_BYTES];
    assert!(MAX_FRAME_BYTES < encode(&longest).len());
    assert_eq!(bodies(&mut deframer, &encode(&longest), 4096), [longest]);
    assert_eq!(deframer.damaged(), 1);
}

#[test]
fn a_frame_is_its_groups_between_two_zero_bytes() {
    for bytes in 0..2000 {
        let frame = encode(&[vec![0; 16], vec![7; bytes]].concat());
        let [0, groups @ .., 0] = &frame[..] else {
            panic!("{frame:?}");
        };
        assert!(!groups.contains(&0), "{bytes} bytes");
    }
}

#[test]
fn a_damaged_byte_makes_no_message() {
    let message = Message::Signal {
        device: SharedId(5),
        vector: 6,
    };
    let frame = encode(&message.encode());
    for at in 1..frame.len() - 1 {
        let mut damaged = frame.clone();
        damaged[at] ^= 1;
        assert!(
            bodies(&mut Deframer::default(), &damaged, 64).is_empty(),
            "byte {at}"
        );
    }
}

#[test]
fn only_hello_and_refuse_are_read_from_other_versions() {
    let hello = Message::Hello {
        oldest: 2,
        newest: 9,
        instance: 4,
    };
    let other = |message: &Message| {
        let mut bytes = message.encode();
        bytes[0] = 9;
        Message::decode(&bytes)
    };
    assert_eq!(other(&hello), Ok(hello));
    let leaving = Message::DeviceLeaving {
        device: SharedId(1),
    };
    assert_eq!(other(&leaving), Err(DecodeError::Version(9)));
}

#[test]
fn an_end_that_reads_nothing_fills_the_queue_and_delays_nobody() {
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    let (one, other) = socketpair(AddressFamily::UNIX, SocketType::STREAM, flags, None).unwrap();
    let mut sender = Channel::new(one, 100_000);
    let message = Message::Application(ApplicationMessage {
        application: 1,
        kind: 2,
        request: 3,
        payload: vec![4; 5000],
    });
    let mut sent = 0;
    while sender.send(&message).unwrap() {
        sent += 1;
    }
    assert!(!sender.outgoing.is_empty());
    let mut receiver = Channel::new(other, 0);
    let mut arrived = Vec::new();
    while arrived.len() < sent {
        sender.flush().unwrap();
        assert!(receiver.receive(&mut arrived).unwrap());
    }
    assert!(sender.outgoing.is_empty() && arrived.iter().all(|one| *one == message));
    assert_eq!(receiver.refused(), 0);
    drop(sender);
    assert!(!receiver.receive(&mut arrived).unwrap());
}
