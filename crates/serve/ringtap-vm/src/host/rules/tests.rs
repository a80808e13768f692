// SPDX-License-Identifier: MIT OR Apache-2.0
//! What a guest may ask of the hub, against a hub that writes down what it is asked.

use std::sync::Mutex;

use ringtap_filter::flow::{FlowId, FlowRule};
use ringtap_filter::{FlowSelector, Program};
use ringtap_ipc::mutex::lock;
use ringtap_ipc::protocol::{FlowEndReason, RuleStatus, Snapshot, encode};
use ringtap_ipc::subscription::Wanted;
use ringtap_vnplug::ctrl::message::MAX_PAYLOAD_BYTES;

use super::*;
use crate::messages::{HostMessage, pack};

/// A hub that gives each answer once.
#[derive(Default)]
struct Hub {
    asked: Mutex<Vec<Request>>,
    answers: Mutex<Vec<Reply>>,
}

impl Control for Hub {
    fn snapshot(&self) -> Result<Snapshot, ControlError> {
        Err(ControlError::Gone("no counters".into()))
    }

    fn set_filter(&self, _: &Program) -> Result<Vec<Wanted>, ControlError> {
        Err(ControlError::Gone("no filters".into()))
    }

    fn flow_request(&self, request: Request) -> Result<Reply, ControlError> {
        lock(&self.asked).push(request);
        let answer = lock(&self.answers).pop();
        answer.ok_or_else(|| Refused::new(Refusal::TooMuch, "enough").into())
    }

    fn stop(&self) {}
}

/// The longest flow that there is.
fn flow(port: u16) -> FlowId {
    let end = |last: u16| {
        format!(
            "[2001:db8:aaaa:bbbb:cccc:dddd:eeee:{last:x}]:{}",
            10_000 + port
        )
    };
    let text = format!(
        "tcp {} {} vlan 4000 vlan 4001 in vxlan 16000000",
        end(0xfff1),
        end(0xfff2)
    );
    text.parse().unwrap()
}

fn rule(port: u16) -> FlowRule<FlowSelector> {
    let text = format!(
        r#"{{"flow":"{}","action":"cutoff","packets":{1},"bytes":{1},"lasts_ms":{1}}}"#,
        flow(port),
        u64::MAX
    );
    ringtap_ipc::protocol::decode(text.as_bytes()).unwrap()
}

fn directions() -> Option<[ringtap_ipc::protocol::FlowDirectionCounts; 2]> {
    let most = ringtap_ipc::protocol::FlowDirectionCounts {
        packets: u64::MAX,
        bytes: u64::MAX,
        tcp_flags: u8::MAX,
        first_ns: u64::MAX,
        last_ns: u64::MAX,
    };
    Some([most; 2])
}

fn events(count: u16) -> Vec<FlowEvent> {
    let event = |port| FlowEvent {
        flow: flow(port),
        why: FlowEndReason::Restarted,
        directions: directions(),
    };
    (0..count).map(event).collect()
}

fn fits(reply: &Reply) -> bool {
    let message = HostMessage::FlowRules {
        group: "g".repeat(64),
        reply: reply.clone(),
    };
    pack(&message, u32::MAX).is_ok()
}

#[test]
fn a_guest_reaches_its_own_subscription_only_whatever_number_it_names() {
    let (hub, mut rules) = (Hub::default(), GuestRules::new(SubscriptionId(7)));
    for (named, asked) in [(None, None), (Some(1), Some(7)), (Some(u64::MAX), Some(7))] {
        for request in [
            |reader| Request::FlowEvents { reader },
            |reader| Request::Rules {
                reader,
                after: None,
            },
            |reader| Request::SetRules {
                reader,
                rules: vec![rule(1)],
            },
            |reader| Request::RemoveRules {
                reader,
                flows: vec![flow(1).into()],
            },
        ] {
            let refused = rules.carry_out(&hub, request(named)).unwrap();
            assert!(matches!(refused, Reply::Refused(_)), "{refused:?}");
            assert_eq!(lock(&hub.asked).pop(), Some(request(asked)));
        }
    }
    let many = Request::SetRules {
        reader: None,
        rules: (0..65).map(rule).collect(),
    };
    for other in [
        many,
        Request::Inline,
        Request::Detach,
        Request::Status { after: 0 },
        Request::Credit { chunks: 1 },
    ] {
        let refused = rules.carry_out(&hub, other).unwrap();
        assert!(matches!(refused, Reply::Refused(_)), "{refused:?}");
    }
    assert!(
        lock(&hub.asked).is_empty(),
        "no other request reaches the hub"
    );
}

#[test]
fn an_answer_that_is_too_long_for_a_message_comes_in_parts() {
    let (hub, mut rules) = (Hub::default(), GuestRules::new(SubscriptionId(7)));
    let page = Reply::Rules {
        rules: (0..128)
            .map(|port| RuleStatus {
                rule: rule(port),
                reader: Some(7),
                directions: directions(),
            })
            .collect(),
        more: false,
    };
    assert!(encode(&page).len() > MAX_PAYLOAD_BYTES);
    lock(&hub.answers).push(page);
    let asked = Request::Rules {
        reader: None,
        after: None,
    };
    let part = rules.carry_out(&hub, asked).unwrap();
    assert!(fits(&part));
    match part {
        Reply::Rules { rules, more: true } => assert_eq!(rules.len(), 64),
        other => panic!("{other:?}"),
    }
    let all = events(200);
    let answered = |events, lost| Reply::FlowEvents {
        events,
        lost,
        more: false,
    };
    lock(&hub.answers).push(answered(Vec::new(), 0));
    lock(&hub.answers).push(answered(all.clone(), 3));
    let beside = Request::FlowEvents { reader: Some(0) };
    let (mut got, mut lost, mut more) = (Vec::new(), 0, true);
    while more {
        let part = rules.carry_out(&hub, beside.clone()).unwrap();
        assert!(fits(&part));
        match part {
            Reply::FlowEvents {
                events,
                lost: also,
                more: now,
            } => {
                got.extend(events);
                (lost, more) = (lost + also, now);
            }
            other => panic!("{other:?}"),
        }
    }
    assert_eq!((got, lost), (all, 3));
    // Those of the reader itself are others.
    lock(&hub.answers).push(answered(events(65), 0));
    for left in [64, 1] {
        match rules.carry_out(&hub, Request::FlowEvents { reader: None }) {
            Ok(Reply::FlowEvents { events, .. }) => assert_eq!(events.len(), left),
            other => panic!("{other:?}"),
        }
        let beside = rules.carry_out(&hub, beside.clone());
        assert!(matches!(beside, Ok(Reply::Refused(_))), "{beside:?}");
    }
}
