// SPDX-License-Identifier: MIT OR Apache-2.0
//! Readers that end before they have read everything: each packet is in the hub's counters of them.

use std::os::unix::process::ExitStatusExt as _;

use ringtap_ipc::protocol::{DepartedStatus, HubStatus};
use ringtap_testkit::{Running, require_root};
use rustix::process::Signal;

use crate::support::{Account, LIMIT, RunningHub};

/// Small chunks, of which a reader may hold few: a stopped reader loses packets.
const DEVICE: &str = "packet:rx0?chunks=256&packets=16&snap=128";
const PACKETS: u64 = 16_000;

/// How a reader ends.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Ending {
    Interrupted,
    Terminated,
    /// By itself, after `-c` packets.
    Limited,
    Killed,
}

const ENDINGS: [(Ending, &str); 4] = [
    (Ending::Interrupted, "interrupted"),
    (Ending::Terminated, "terminated"),
    (Ending::Limited, "limited"),
    (Ending::Killed, "killed"),
];

fn captured(status: &HubStatus) -> u64 {
    let lanes = status.sources.iter().flat_map(|source| &source.lanes);
    lanes.map(|lane| lane.counters.delivered).sum()
}

fn sum(one: &DepartedStatus) -> u64 {
    one.counters.delivered
        + one.counters.filtered
        + one.counters.other_members
        + one.counters.dropped.overrun
        + one.unread
}

/// Ends a stopped reader; its account, unless it was killed.
fn end(reader: Running, ending: Ending) -> Option<Account> {
    match ending {
        Ending::Interrupted => reader.signal(Signal::INT),
        Ending::Terminated => reader.signal(Signal::TERM),
        Ending::Killed => reader.signal(Signal::KILL),
        Ending::Limited => {}
    }
    reader.signal(Signal::CONT);
    if ending != Ending::Killed {
        return Some(Account::of_ended(reader).0);
    }
    assert_eq!(reader.wait(LIMIT).status.signal(), Some(9));
    None
}

/// One reader for each way to end, all of which are stopped while packets come.
fn each_ending_is_accounted_for(test: &str, group: &str) {
    let hub = RunningHub::with(test, DEVICE, &["-g", group]);
    let before = captured(&hub.status());
    let readers = ENDINGS.map(|(ending, name)| {
        let limit: &[&str] = match ending {
            Ending::Limited => &["-c", "40"],
            _ => &[],
        };
        hub.count("ids", &[&["--name", name][..], limit].concat())
    });
    let attached = captured(&hub.status());
    readers.iter().for_each(|one| one.signal(Signal::STOP));
    assert_eq!(hub.send(20_000, PACKETS), PACKETS);
    let stopped = hub.wait_until("packets wait for readers", |status| {
        let mut readers = status.readers.iter();
        let are_left =
            readers.any(|reader| reader.counters.dropped.overrun > 0 || reader.unread > 0);
        captured(status) >= attached + PACKETS && are_left
    });
    for (reader, (ending, name)) in readers.into_iter().zip(ENDINGS) {
        let known = stopped.readers.iter().find(|one| one.name == name);
        let known = known.expect("it is stopped").counters.dropped.overrun;
        let least = captured(&hub.status());
        let account = end(reader, ending);
        let after = hub.wait_until("it has left", |status| {
            status.departed.iter().any(|one| one.name == name)
        });
        let departed = after.departed.iter().find(|one| one.name == name);
        let departed = departed.expect("it has left");
        // The hosts' own packets may come on top of those that were sent.
        let possible = least - attached..=captured(&after) - before;
        assert!(
            possible.contains(&sum(departed)),
            "{possible:?}: {departed:?}"
        );
        assert!(
            departed.counters.dropped.overrun >= known,
            "{known}: {departed:?}"
        );
        let Some(account) = account else { continue };
        assert_eq!(
            account.number("delivered"),
            departed.counters.delivered,
            "{ending:?}"
        );
        let lost = account.number("dropped.overrun");
        assert!(lost >= known, "{ending:?} {known}: {account:?}");
    }
    hub.finish();
}

#[test]
fn however_a_reader_ends_it_and_the_hub_count_each_packet() {
    require_root!();
    each_ending_is_accounted_for("hub-ends", "ids");
}

#[test]
fn however_a_member_ends_it_and_the_hub_count_each_packet() {
    require_root!();
    each_ending_is_accounted_for("hub-ends-lanes", "ids:4:lanes:offload=20");
}

#[test]
fn however_a_member_of_a_flow_balanced_group_ends_it_and_the_hub_count_each_packet() {
    require_root!();
    each_ending_is_accounted_for("hub-ends-flow", "ids:4:flow");
}

#[test]
fn however_a_private_reader_ends_it_and_the_hub_count_each_packet() {
    require_root!();
    each_ending_is_accounted_for("hub-ends-private", "ids:private");
}
