// SPDX-License-Identifier: MIT OR Apache-2.0
//! Tests of the host's half of the protocol.

use super::*;
use crate::device::DeviceKind;

const DEVICE: SharedId = SharedId(9);
const OTHER: SharedId = SharedId(8);

fn hello(instance: u64) -> Message {
    Message::Hello {
        oldest: 1,
        newest: 1,
        instance,
    }
}

fn header(vectors: u16) -> DeviceHeader {
    DeviceHeader {
        device: DEVICE,
        application: 4,
        kind: DeviceKind::Control { vectors },
        bytes: 4096,
    }
}

fn ready(device: SharedId) -> Message {
    Message::DeviceReady {
        device,
        mapping: MappingKind::Vfio,
        interrupts: true,
    }
}

#[test]
fn an_agent_learns_of_all_devices_and_so_does_the_next() {
    let mut session = HostSession::default();
    assert_eq!(session.add(&header(1)), None);
    for instance in [1, 2] {
        let outcome = session.receive(hello(instance));
        assert!(outcome.is_new_agent);
        let added = Message::DeviceAdded {
            device: DEVICE,
            application: 4,
        };
        let welcome = Message::Welcome {
            version: VERSION,
            instance,
        };
        assert_eq!(outcome.answers, [welcome, added]);
        assert_eq!(outcome.events.contains(&FromGuest::Left), instance == 2);
        assert_eq!(session.interrupts(DEVICE), None);
        session.receive(ready(DEVICE));
        assert_eq!(session.interrupts(DEVICE), Some(true));
    }
    assert!(session.agent_left() && !session.agent_left());
    assert_eq!(session.interrupts(DEVICE), None);
}

#[test]
fn an_agent_of_another_version_is_refused_with_ours() {
    let mut session = HostSession::default();
    let outcome = session.receive(Message::Hello {
        oldest: 2,
        newest: 5,
        instance: 7,
    });
    assert_eq!(outcome.events, [FromGuest::Incompatible(2, 5)]);
    let refuse = Message::Refuse {
        oldest: VERSION,
        newest: VERSION,
        instance: 7,
    };
    assert_eq!(outcome.answers, [refuse]);
    assert!(!session.has_agent());
}

#[test]
fn what_a_guest_says_of_unknown_devices_and_vectors_is_ignored() {
    let mut session = HostSession::default();
    session.add(&header(2));
    let nothing = |session: &mut HostSession, message: Message| {
        let outcome = session.receive(message.clone());
        assert!(
            outcome.events.is_empty() && outcome.answers.is_empty(),
            "{message:?}"
        );
    };
    // Before the agent said hello.
    nothing(&mut session, ready(DEVICE));
    session.receive(hello(1));
    nothing(&mut session, ready(OTHER));
    let vector = 2;
    nothing(
        &mut session,
        Message::Signal {
            device: DEVICE,
            vector,
        },
    );
    for device in [OTHER, SharedId(0)] {
        nothing(&mut session, Message::DeviceFailed { device });
        nothing(&mut session, Message::DeviceReleased { device });
        nothing(&mut session, Message::DeviceLeaving { device });
    }
    nothing(
        &mut session,
        Message::Welcome {
            version: 1,
            instance: 1,
        },
    );
}

#[test]
fn a_leaving_device_is_not_announced_and_a_late_mapping_is_ended() {
    let mut session = HostSession::default();
    session.receive(hello(1));
    assert!(session.add(&header(1)).is_some());
    let leaving = Message::DeviceLeaving { device: DEVICE };
    assert_eq!(session.leave(DEVICE), Some(leaving.clone()));
    assert_eq!(session.receive(ready(DEVICE)).answers, [leaving]);
    let released = Message::DeviceReleased { device: DEVICE };
    let events = session.receive(released).events;
    assert_eq!(events, [FromGuest::Released(DEVICE)]);
    assert_eq!(session.receive(hello(2)).answers.len(), 1);
}
