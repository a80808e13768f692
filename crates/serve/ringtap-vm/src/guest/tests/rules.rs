// SPDX-License-Identifier: MIT OR Apache-2.0
//! Flow rules of a guest's readers act on the host.

use ringtap_ipc::protocol::{ReaderStatus, Refused, Reply, Request, RuleStatus};
use ringtap_ipc::subscription::SubscriptionId;

use super::*;

const FLOW: &str = "udp 10.0.0.1:53 10.0.0.2:53";

fn ignore() -> Request {
    let rule = format!(r#"{{"flow":"{FLOW}","action":"ignore"}}"#);
    Request::SetRules {
        reader: None,
        rules: vec![ringtap_ipc::protocol::decode(rule.as_bytes()).unwrap()],
    }
}

fn done(done: u64) -> Reply {
    let refused = None;
    Reply::RulesDone { done, refused }
}

fn with_cutoff() -> SubscriptionRequest {
    SubscriptionRequest {
        cutoff: Some(CutOff {
            packets: Some(2),
            bytes: None,
        }),
        ..SubscriptionRequest::new("ids", "reader")
    }
}

impl GroupAndHost {
    fn ask(&mut self, hub: &Hub, id: SubscriptionId, request: Request) -> Result<Reply, Refused> {
        self.while_serving(hub.handle(), |handle| handle.flow_request(id, request))
    }

    fn try_attach(
        &mut self,
        hub: &Hub,
        request: SubscriptionRequest,
    ) -> Result<Subscription, Refused> {
        self.while_serving(hub.handle(), |handle| handle.attach(request))
    }

    /// The account of the only reader.
    fn account(&mut self, hub: &Hub) -> ReaderStatus {
        let status = self.while_serving(hub.handle(), |handle| handle.status().unwrap());
        status.readers[0].clone()
    }
}

#[test]
fn what_the_host_withholds_counts_as_shunted_of_the_only_reader() {
    let (hub, mut both) = both();
    let reader = both.attach(&hub, Program::everything());
    let id = reader.id;
    both.capture(&[60, 60]);
    assert_eq!(both.ask(&hub, id, ignore()).unwrap(), done(1));
    let part = both.part.as_mut().unwrap();
    assert_eq!(part.rules, 1);
    part.shunted += 7;
    both.capture(&[60]);
    assert_eq!(read(reader, 3), 3);
    let account = both.account(&hub).counters;
    assert_eq!((account.shunted, account.offered), (7, account.accounted()));
    let snapshot = both.while_serving(hub.handle(), |handle| handle.snapshot(id).unwrap());
    let lane = snapshot.sources[0].lanes[0];
    let (offered, delivered) = (lane.counters.offered, lane.counters.delivered);
    assert_eq!((offered, delivered, lane.withheld_packets), (10, 3, 7));
    // The next reader's account begins anew.
    hub.handle().leave(id);
    let next = both.attach(&hub, Program::everything());
    both.part.as_mut().unwrap().shunted += 2;
    assert_eq!(both.account(&hub).counters.shunted, 2);
    drop(next);
}

#[test]
fn a_reader_that_comes_later_has_none_of_what_was_withheld_before() {
    let (hub, mut both) = both();
    let _first = both.attach(&hub, of_length(60));
    // By a rule of the hub's file.
    both.part.as_mut().unwrap().shunted += 1000;
    let second = both.attach(&hub, of_length(70));
    both.part.as_mut().unwrap().shunted += 5;
    let snapshot = both.while_serving(hub.handle(), |handle| handle.snapshot(second.id).unwrap());
    assert_eq!(snapshot.sources[0].lanes[0].withheld_packets, 5);
}

#[test]
fn a_rule_withholds_from_no_other_reader_of_the_guest() {
    let (hub, mut both) = both();
    let first = both.attach(&hub, of_length(60));
    let second = both.attach(&hub, of_length(70));
    let refused = both.ask(&hub, first.id, ignore()).unwrap_err();
    assert!(
        refused.message.contains("ids has other readers"),
        "{refused}"
    );
    // Such a reader has no rules to remove, and no ends of flows.
    let remove = Request::RemoveRules {
        reader: None,
        flows: vec![FLOW.parse().unwrap()],
    };
    assert_eq!(both.ask(&hub, first.id, remove).unwrap(), done(0));
    assert_eq!(both.part.as_ref().unwrap().rules, 0);
    let refused = both.try_attach(&hub, with_cutoff()).map(drop).unwrap_err();
    assert!(
        refused.message.contains("ids has other readers"),
        "{refused}"
    );
    hub.handle().leave(second.id);
    assert_eq!(both.ask(&hub, first.id, ignore()).unwrap(), done(1));
    let other = SubscriptionRequest::new("ids", "other");
    let refused = both.try_attach(&hub, other).map(drop).unwrap_err();
    let says = "the reader reader (process ";
    assert!(refused.message.contains(says), "{refused}");
    both.capture(&[60]);
    assert_eq!(read(first, 1), 1);
}

#[test]
fn rules_end_with_their_reader_even_if_the_next_one_comes_at_once() {
    let (hub, mut both) = both();
    let first = both.attach(&hub, Program::everything());
    both.ask(&hub, first.id, ignore()).unwrap();
    assert_eq!(
        (both.subscriptions, both.part.as_ref().unwrap().rules),
        (1, 1)
    );
    let before = hub.handle().clone();
    let next = both.while_serving(hub.handle(), |handle| {
        before.leave(first.id);
        handle
            .attach(SubscriptionRequest::new("ids", "next"))
            .unwrap()
    });
    assert_eq!(
        (both.subscriptions, both.part.as_ref().unwrap().rules),
        (2, 0)
    );
    both.capture(&[60, 60]);
    assert_eq!(read(next, 2), 2);
}

#[test]
fn rules_that_wait_when_their_reader_leaves_are_not_the_next_ones() {
    let (hub, mut both) = both();
    let first = both.attach(&hub, Program::everything());
    let (handle, id) = (hub.handle().clone(), first.id);
    // The agent does nothing meanwhile.
    let waits = std::thread::spawn(move || handle.flow_request(id, ignore()));
    while !both.group.has_rules_waiting() {
        std::thread::sleep(Duration::from_millis(1));
    }
    let before = hub.handle().clone();
    let next = both.while_serving(hub.handle(), |handle| {
        before.leave(first.id);
        handle
            .attach(SubscriptionRequest::new("ids", "next"))
            .unwrap()
    });
    both.serve_until(|_| waits.is_finished());
    let refused = waits.join().unwrap();
    let part = both.part.as_ref().unwrap();
    // Either they came first, and ended with the subscription, or were refused.
    assert!(part.rules == 0, "{refused:?}");
    drop(next);
}

#[test]
fn a_cut_off_comes_with_the_subscription_again_after_an_interruption() {
    let (hub, mut both) = both();
    let reader = both.try_attach(&hub, with_cutoff()).unwrap();
    assert_eq!(both.part.as_ref().unwrap().cutoff, with_cutoff().cutoff);
    let other = SubscriptionRequest::new("ids", "other");
    assert!(both.try_attach(&hub, other.clone()).is_err());
    let last = counters(both.part.as_ref().unwrap());
    both.group.end_subscription("the hub has ended", last);
    both.part = None;
    // Meanwhile nobody can set rules.
    let refused = both.ask(&hub, reader.id, ignore()).unwrap_err();
    assert!(refused.message.contains("captures nothing"), "{refused}");
    both.group.begin(granted());
    both.serve_until(|both| both.part.is_some());
    assert_eq!(both.part.as_ref().unwrap().cutoff, with_cutoff().cutoff);
    hub.handle().leave(reader.id);
    let next = both.try_attach(&hub, other).unwrap();
    assert_eq!(both.part.as_ref().unwrap().cutoff, None);
    both.capture(&[60]);
    assert_eq!(read(next, 1), 1);
}

#[test]
fn a_cut_off_that_the_host_refuses_is_refused() {
    let (hub, mut both) = both();
    both.refuses_cutoffs = true;
    let refused = both.try_attach(&hub, with_cutoff()).map(drop).unwrap_err();
    assert!(refused.message.contains("four cut-offs"), "{refused}");
    let other = SubscriptionRequest::new("ids", "other");
    let reader = both.try_attach(&hub, other).unwrap();
    both.capture(&[60]);
    assert_eq!(read(reader, 1), 1);
}

#[test]
fn listed_rules_are_of_the_guests_reader_and_without_a_host_none_are_set() {
    let (hub, mut both) = both();
    let reader = both.attach(&hub, Program::everything());
    both.ask(&hub, reader.id, ignore()).unwrap();
    let list = Request::Rules {
        reader: Some(reader.id.0),
        after: None,
    };
    let Reply::Rules { rules, .. } = both.ask(&hub, reader.id, list).unwrap() else {
        panic!("no list")
    };
    let owners: Vec<_> = rules.iter().map(|one| one.reader).collect();
    assert_eq!(owners, [Some(reader.id.0), None]);
    both.group.end();
    both.part = None;
    let refused = hub.handle().flow_request(reader.id, ignore()).unwrap_err();
    assert!(refused.message.contains("captures nothing"), "{refused}");
}

/// What the host's hub answers.
pub(super) fn answer_rules(part: &mut HostHalf, request: Request) -> Reply {
    match request {
        Request::SetRules { rules, .. } => {
            part.rules += rules.len();
            done(to_u64(rules.len()))
        }
        Request::Rules { .. } => {
            let status = |reader| RuleStatus {
                rule: match ignore() {
                    Request::SetRules { rules, .. } => rules[0],
                    _ => unreachable!("it sets rules"),
                },
                reader,
                directions: None,
            };
            let rules = vec![status(Some(77)), status(None)];
            Reply::Rules { rules, more: false }
        }
        _ => done(0),
    }
}
