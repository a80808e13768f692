// SPDX-License-Identifier: MIT OR Apache-2.0
//! Groups share traffic out, and hand it over.

use ringtap_testkit::require_root;
use rustix::process::Signal;

use crate::support::{Account, Bench, LIMIT};

#[test]
fn members_share_by_flow_and_a_killed_one_hands_its_share_over() {
    require_root!();
    let bench = Bench::new("hub-share", &["ids:4:flow", "rec"]);
    let members: Vec<_> = (0..4).map(|_| bench.count("ids", &[])).collect();
    let recorder = bench.count("rec", &[]);
    let first = bench.send(100_000, 80_000);
    let delivered = || {
        let status = bench.status();
        let of_group = status.readers.iter().filter(|reader| reader.group == "ids");
        of_group.map(|reader| reader.delivered).collect::<Vec<_>>()
    };
    let shares = delivered();
    assert!(shares.iter().sum::<u64>() >= first, "{shares:?}");
    assert!(
        shares.iter().filter(|share| **share > 0).count() >= 2,
        "{shares:?}"
    );
    let mut members = members.into_iter();
    for member in members.by_ref().take(3) {
        member.signal(Signal::KILL);
        let _killed = member.wait(LIMIT);
    }
    bench.wait_until("three left", |status| status.readers.len() == 2);
    let before = delivered()[0];
    let second = bench.send(100_000, 80_000);
    let (last, _) = Account::of(members.next().expect("the fourth"));
    assert!(
        last.number("delivered") - before >= second,
        "everything is its own now: {last:?}"
    );
    let (all, _) = Account::of(recorder);
    assert!(all.number("delivered") >= first + second);
    assert_eq!(all.lost() + last.lost(), 0);
    bench.finish();
}

#[test]
fn round_robin_gives_every_member_as_much() {
    require_root!();
    let bench = Bench::new("hub-robin", &["rr:2:round-robin"]);
    let members = [bench.count("rr", &[]), bench.count("rr", &[])];
    let sent = bench.send(100_000, 50_000);
    let shares = members.map(|member| Account::of(member).0.number("delivered"));
    let [one, other] = shares;
    assert!(one + other >= sent, "{shares:?}");
    assert!(one.abs_diff(other) < sent / 20, "{shares:?}");
    bench.finish();
}
