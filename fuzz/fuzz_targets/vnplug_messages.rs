// SPDX-License-Identifier: MIT OR Apache-2.0
//! Any bytes on the command port of a guest, at either end.

#![no_main]

use libfuzzer_sys::fuzz_target;
use ringtap_vnplug::ctrl::frame::{Deframer, MAX_BODY_BYTES, encode};
use ringtap_vnplug::ctrl::message::Message;
use ringtap_vnplug::device::{DeviceHeader, DeviceKind, SharedId};
use ringtap_vnplug::guest::GuestSession;
use ringtap_vnplug::host::HostSession;

fuzz_target!(|input: &[u8]| {
    let mut host = HostSession::default();
    for device in 1..4 {
        host.add(&DeviceHeader {
            device: SharedId(device),
            application: 7,
            kind: DeviceKind::Control { vectors: 2 },
            bytes: 4096,
        });
    }
    let mut guest = GuestSession::new(5);
    let mut receive = |body: &[u8]| {
        assert!(body.len() <= MAX_BODY_BYTES);
        if let Ok(message) = Message::decode(body) {
            assert_eq!(Message::decode(&message.encode()), Ok(message.clone()));
            let outcome = host.receive(message.clone());
            assert!(outcome.events.len() <= 2 && outcome.answers.len() <= 4);
            guest.receive(message);
        }
    };
    // The bytes as a stream, and as the bodies of intact frames.
    let mut deframer = Deframer::default();
    let mut rest = input;
    while let Some(body) = deframer.next(&mut rest) {
        receive(&body);
    }
    for body in input.split(|byte| *byte == 0xFF) {
        let frame = encode(body);
        let mut rest = frame.as_slice();
        if let Some(body) = Deframer::default().next(&mut rest) {
            receive(&body);
        }
    }
});
