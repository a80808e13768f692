// SPDX-License-Identifier: MIT OR Apache-2.0
//! Requests in parts.

use std::sync::mpsc::{Receiver, channel};

use ringtap_filter::FlowSelector;

use super::*;

fn flows(count: u16) -> Vec<FlowSelector> {
    let flow = |port| format!("udp 10.0.0.1:{port} 10.0.0.2:53").parse().unwrap();
    (1..=count).map(flow).collect()
}

fn work(count: u16) -> (RulesWork, Receiver<Result<Reply, Refused>>) {
    let (answered, answer) = channel();
    let request = Request::RemoveRules {
        reader: None,
        flows: flows(count),
    };
    let answer_to = move |reply| answered.send(reply).unwrap();
    (RulesWork::new(request, Box::new(answer_to)), answer)
}

fn part(work: &mut RulesWork) -> Vec<FlowSelector> {
    match work.next_part() {
        Request::RemoveRules { flows, .. } => flows,
        other => panic!("{other:?}"),
    }
}

fn done(done: u64, refused: Option<&str>) -> Reply {
    let refused = refused.map(|why| Refused::new(Refusal::TooMuch, why));
    Reply::RulesDone { done, refused }
}

#[test]
fn a_long_request_goes_in_parts_in_order_and_gets_one_answer() {
    let (mut work, answer) = work(150);
    let mut seen = Vec::new();
    for _ in 0..2 {
        let part = part(&mut work);
        assert_eq!(part.len(), 64);
        seen.extend(part);
        work = work.take(done(60, None)).expect("a part is left");
        assert!(answer.try_recv().is_err());
    }
    seen.extend(part(&mut work));
    assert_eq!(seen, flows(150));
    assert!(work.take(done(20, None)).is_none());
    assert_eq!(answer.recv().unwrap(), Ok(done(140, None)));
}

#[test]
fn a_refused_part_ends_the_request_which_tells_what_was_done() {
    for (second, told) in [
        (done(5, Some("enough")), done(69, Some("enough"))),
        (
            Reply::Refused(Refused::new(Refusal::TooMuch, "all")),
            done(64, Some("all")),
        ),
    ] {
        let (mut work, answer) = work(200);
        part(&mut work);
        let mut work = work.take(done(64, None)).unwrap();
        part(&mut work);
        assert!(work.take(second).is_none());
        assert_eq!(answer.recv().unwrap(), Ok(told));
    }
    let (work, answer) = work(1);
    work.refuse("nobody is there");
    assert_eq!(
        answer.recv().unwrap().unwrap_err().message,
        "nobody is there"
    );
}

#[test]
fn readers_that_ask_without_end_wait_in_a_short_queue() {
    let mut waiting = WaitingRules::default();
    let pushed = (0..1000).filter(|_| waiting.push(work(1).0).is_none());
    assert_eq!(pushed.count(), MAX_WAITING);
}
