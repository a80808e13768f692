// SPDX-License-Identifier: MIT OR Apache-2.0
//! Each reason of a loss, and its sentences.

use ringtap_ipc::protocol::{
    BridgeStatus, Delivery, DepartedStatus, Division, GroupStatus, HubStatus, LaneStatus,
    ReaderStatus, SourceState, SourceStatus,
};
use ringtap_pool::congestion::Congestion;
use ringtap_pool::counters::{Counters, Dropped};
use ringtap_pool::distributor::Policy;

use crate::{Explanation, Finding};

const SECOND: u64 = 1_000_000_000;

/// A hub that has run for a minute without losses: a tap with two lanes, two readers.
fn well() -> HubStatus {
    let lane = |lane| LaneStatus {
        lane,
        counters: Counters {
            offered: 1_000,
            delivered: 900,
            filtered: 100,
            ..Counters::default()
        },
        chunks: 64,
        ..LaneStatus::default()
    };
    let reader = |reader, name: &str, group: &str| ReaderStatus {
        counters: Counters {
            delivered: 1_500,
            filtered: 300,
            ..Counters::default()
        },
        reader,
        name: name.into(),
        group: group.into(),
        pid: 4_000 + i32::try_from(reader).unwrap(),
        attached_ns: 20 * SECOND,
        credit_chunks: 56,
        ..ReaderStatus::default()
    };
    let group = |name: &str, balance: &str| GroupStatus {
        name: name.into(),
        division: Division::from_word(balance).unwrap(),
        members: 1,
        max_members: 4,
        ..GroupStatus::default()
    };
    HubStatus {
        time_ns: 70 * SECOND,
        started_ns: 10 * SECOND,
        pid: 99,
        sources: vec![SourceStatus {
            device: "tap:eth0".into(),
            pool_bytes: 32 << 20,
            lanes: vec![lane(0), lane(1)],
            balanced: true,
            ..SourceStatus::default()
        }],
        groups: vec![group("ids", "flow"), group("rec", "broadcast")],
        readers: vec![reader(1, "zeek", "ids"), reader(2, "dump", "rec")],
        ..HubStatus::default()
    }
}

/// The answer if this change happened within the last two seconds.
fn after(change: impl Fn(&mut HubStatus)) -> Explanation {
    let mut now = well();
    now.time_ns += 2 * SECOND;
    change(&mut now);
    Explanation::new(Some(&well()), &now, &|_| false)
}

/// The answer if the first snapshot has this change, too.
fn always(change: impl Fn(&mut HubStatus)) -> Explanation {
    let mut before = well();
    change(&mut before);
    let now = HubStatus {
        time_ns: before.time_ns + 2 * SECOND,
        ..before.clone()
    };
    Explanation::new(Some(&before), &now, &|_| false)
}

#[track_caller]
fn says(answer: &Explanation, words: &[&str]) {
    let text = answer.sentences().join("\n");
    for words in words {
        assert!(text.contains(words), "{words:?} is missing in:\n{text}");
    }
}

#[test]
fn nothing_lost_is_said_with_the_equation_that_was_checked() {
    let answer = after(|_| {});
    assert!(!answer.is_bad && answer.findings.is_empty());
    says(
        &answer,
        &[
            "Nothing was lost since the hub started 62 s ago (1970-01-01T00:00:10Z).",
            "tap:eth0, on each of 2 lanes: offered = delivered + filtered + dropped.kernel + dropped.pool_full holds",
            "2,000 = 1,800 + 200 + 0 + 0",
        ],
    );
}

#[test]
fn a_late_hub_is_named_and_not_the_reader() {
    let late = |overrun_in_bursts| {
        after(move |hub| {
            hub.sources[0].longest_wait_ms = 1_250;
            hub.readers[0].counters.dropped.overrun = 1_000;
            hub.readers[0].overrun_in_bursts = overrun_in_bursts;
        })
    };
    says(
        &late(501),
        &[
            "(group ids, process 4001) was not slow",
            "the hub's thread came late (by up to 1,250 ms since the hub started). The reader lost \
             1,000 packets",
            "Give the hub a CPU that other programs do not use",
        ],
    );
    says(&late(500), &["(group ids, process 4001) could not keep up"]);
    let full = after(|hub| {
        hub.sources[0].longest_wait_ms = 1_250;
        hub.sources[0].lanes[0].counters.dropped.pool_full = 10;
    });
    says(
        &full,
        &["returns chunks to the pool, came up to 1,250 ms late"],
    );
}

#[test]
fn losses_of_the_card_name_the_interface_and_its_ring() {
    let answer = after(|hub| hub.sources[0].dropped.nic = 500);
    assert!(answer.is_bad);
    assert_eq!(answer.findings[0].loss().unwrap().share(), 0.2);
    says(
        &answer,
        &[
            "tap:eth0: the network card or its driver lost 500 packets, 20.0 % of 2,500, since",
            "since the hub started 62 s ago",
            "It goes on: 250 a second.",
            "`ethtool -G eth0 rx N`",
        ],
    );
}

#[test]
fn a_share_is_of_the_packets_that_reached_the_place() {
    let answer = after(|hub| {
        hub.sources[0].dropped.nic = 500;
        hub.sources[0].lanes[1].counters.dropped.pool_full = 1_000;
    });
    let share = |kind| {
        let mut findings = answer.findings.iter();
        let found = findings.find(|one| one.kind() == kind);
        found.and_then(Finding::loss).map(crate::Loss::share)
    };
    assert_eq!((share("nic"), share("pool_full")), (Some(0.2), Some(0.5)));
}

#[test]
fn losses_of_the_kernel_are_those_of_lanes_and_of_none() {
    let answer = after(|hub| {
        hub.sources[0].device = "packet:eth0".into();
        hub.sources[0].dropped.kernel = 5;
        hub.sources[0].lanes[1].counters.dropped.kernel = 15;
    });
    assert_eq!(answer.findings[0].lost_packets(), 20);
    says(&answer, &["the kernel lost 20 packets", "tap:eth0"]);
    let tap = after(|hub| hub.sources[0].lanes[0].counters.dropped.kernel = 1);
    says(&tap, &["the kernel lost 1 packet,", "bpftool net"]);
}

#[test]
fn a_full_pool_names_its_size_and_who_is_furthest_behind() {
    let answer = after(|hub| {
        hub.sources[0].lanes[1].counters.dropped.pool_full = 1_000;
        hub.sources[0].lanes[1].paused = true;
        hub.readers[1].lag_chunks = 40;
    });
    says(
        &answer,
        &[
            "lane 1 had no free chunk and lost 1,000 packets, 50.0 % of 2,000",
            "Reader 2 \"dump\" (group rec, process 4002) is furthest behind now, with 40 chunks",
            "it has 32 MiB: `tap:eth0?pool=64MiB` doubles it",
            "Capture is paused now",
            "receive queues (RSS)",
        ],
    );
}

#[test]
fn a_pool_with_congestion_marks_names_them() {
    let full = |congestion| {
        after(|hub| {
            hub.sources[0].congestion = congestion;
            hub.sources[0].lanes.iter_mut().for_each(|lane| {
                lane.counters.dropped.pool_full = 500;
                lane.paused = true;
            });
        })
    };
    let marks = Congestion {
        low_percent: 10,
        high_percent: 30,
    };
    let pauses = "a lane pauses when less than 10 % of its chunks are free, until 30 % are";
    says(
        &full(Some(marks)),
        &[
            &format!("or capture was paused ({pauses}), and it lost 1,000 packets"),
            &format!("until readers have caught up: {pauses} (`congestion`)."),
        ],
    );
    says(
        &full(None),
        &["the pool had no free chunk, and it lost 1,000 packets"],
    );
}

#[test]
fn a_overrun_is_named_with_the_policy_of_its_group_and_its_credit() {
    let cases = [
        (
            "drop",
            "(drop: past 56 chunks of a lane the newest packets are lost), lost 200 packets",
        ),
        (
            "sample:10",
            "(sample:10: from half of 56 chunks of a lane on one chunk in 10 is kept), lost 200",
        ),
        (
            "cut:96",
            "(cut:96: from half of 56 chunks of a lane on 96 bytes of each packet are kept, and past \
             56 chunks of a lane none), lost 200",
        ),
    ];
    for (policy, words) in cases {
        let answer = after(|hub| {
            hub.groups[0].policy = Policy::from_word(policy).unwrap();
            hub.readers[0].counters.dropped.overrun = 200;
        });
        says(&answer, &[words]);
    }
}

#[test]
fn a_group_that_offloads_says_how_much_went_to_which_member() {
    let answer = after(|hub| {
        hub.groups[0].offload_percent = Some(60);
        hub.groups[0].buddies.offloaded_chunks = 1_234;
        hub.groups[0].buddies.offloaded_packets = 56_789;
        hub.groups[0].buddies.disordered_packets = 321;
        let first = hub.readers[0].clone();
        for (reader, helped_chunks) in [(3, 700), (4, 400), (5, 100), (6, 34)] {
            hub.readers.push(ReaderStatus {
                reader,
                helped_chunks,
                ..first.clone()
            });
        }
    });
    assert!(!answer.is_bad, "nothing was lost");
    assert_eq!(answer.findings[0].kind(), "offloaded");
    says(
        &answer,
        &[
            "Group ids offloads above 60 percent of a lane's chunks: 1,234 chunks (56,789 packets) \
             went to a member other than their lane's owner (617 a second now): reader 3 \"zeek\" \
             took 700, reader 4 \"zeek\" took 400, reader 5 \"zeek\" took 100, one other the rest.",
            "321 packets may have been read before earlier ones of their flow.",
            "divides whole flows instead of chunks",
        ],
    );
    let idle = after(|hub| hub.groups[0].offload_percent = Some(60));
    assert!(idle.findings.is_empty(), "nothing was offloaded");
}

#[test]
fn packets_that_flow_rules_withheld_are_named_and_are_no_loss() {
    let answer = after(|hub| {
        hub.readers[0].counters.shunted = 200;
        hub.readers[0].shunted_bytes = 12_800;
    });
    assert!(!answer.is_bad, "nothing was lost");
    assert_eq!(answer.findings[0].kind(), "shunted");
    says(
        &answer,
        &[
            "Reader 1 \"zeek\" (group ids, process 4001): flow rules withheld 200 packets (12.8 kB) from it, as \
             asked: now 100 a second.",
        ],
    );
}

#[test]
fn a_overrun_is_named_with_its_group_its_process_and_its_share() {
    let answer = after(|hub| hub.readers[0].counters.dropped.overrun = 200);
    says(
        &answer,
        &[
            "Reader 1 \"zeek\" (group ids, process 4001) could not keep up: it used up its credit",
            "lost 200 packets, 11.8 % of 1,700, since it attached 52 s ago",
            "It goes on: 100 a second.",
            "Start more readers in group ids, which divides packets by flow: it has 1 of at most 4.",
            "it may now hold 56 chunks",
            "narrower filter",
            "policy = \"sample:10\"",
        ],
    );
}

#[test]
fn a_group_that_does_not_divide_packets_is_not_told_to_have_more_members() {
    let answer = after(|hub| hub.readers[1].counters.dropped.overrun = 200);
    says(&answer, &["Group rec gives every packet to each member"]);
    let full = after(|hub| {
        hub.groups[0].members = 4;
        hub.readers[0].counters.dropped.overrun = 1;
    });
    says(&full, &["Allow more `members` in group ids"]);
}

#[test]
fn a_stopped_reader_is_recognised() {
    let mut now = well();
    now.time_ns += SECOND;
    now.readers[1].counters.dropped.overrun = 9;
    let answer = Explanation::new(Some(&well()), &now, &|pid| pid == 4_002);
    says(
        &answer,
        &["Process 4002 is stopped: continue it with `kill -CONT 4002`"],
    );
    let other = Explanation::new(Some(&well()), &now, &|pid| pid == 4_001);
    assert!(!other.sentences().join("").contains("is stopped"));
}

#[test]
fn a_reader_with_a_pool_of_its_own_is_told_of_that_pool() {
    let answer = after(|hub| {
        hub.readers[0].delivery = Delivery::Private;
        hub.readers[0].counters.dropped.overrun = 200;
    });
    says(
        &answer,
        &[
            "its own pool was full",
            "private pools of group ids more memory",
        ],
    );
}

#[test]
fn what_is_over_is_told_from_what_goes_on() {
    let answer = always(|hub| hub.readers[0].counters.dropped.overrun = 200);
    assert!(answer.is_bad);
    says(&answer, &["No loss in the last 2 s."]);
    assert_eq!(answer.findings[0].loss().unwrap().per_second, Some(0.0));
}

#[test]
fn the_last_loss_has_its_time_if_somebody_looked_then() {
    let with = |last_loss_ns| {
        let lost = always(|hub| {
            hub.readers[0].counters.dropped.overrun = 200;
            hub.readers[0].last_loss_ns = last_loss_ns;
        });
        lost.sentences().join("\n")
    };
    let text = with(40 * SECOND);
    assert!(
        text.contains("last 2 s. The hub last noticed a loss 32 s ago (1970-01-01T00:00:40Z)."),
        "{text}"
    );
    // No client had asked before our first snapshot.
    assert!(!with(70 * SECOND).contains("noticed"));
}

#[test]
fn a_reader_that_came_between_the_snapshots_has_no_rate() {
    let mut before = well();
    before.readers.pop();
    let mut now = well();
    now.time_ns += SECOND;
    now.readers[1].counters.dropped.overrun = 7;
    let answer = Explanation::new(Some(&before), &now, &|_| false);
    assert_eq!(answer.findings[0].loss().unwrap().per_second, None);
    says(&answer, &["process 4002) could not keep up"]);
}

#[test]
fn losses_of_readers_that_left_are_not_forgotten() {
    let answer = always(|hub| {
        hub.departed_overrun = 1_234;
        hub.departed.push(DepartedStatus {
            counters: Counters {
                delivered: 800,
                dropped: Dropped {
                    overrun: 200,
                    ..Dropped::default()
                },
                ..Counters::default()
            },
            name: "recorder".into(),
            group: "rec".into(),
            readers: 2,
            left_ns: hub.time_ns - 9_000_000_000,
            ..DepartedStatus::default()
        });
    });
    assert!(answer.is_bad);
    says(
        &answer,
        &[
            "2 readers \"recorder\" (group rec), of which the last left 11 s ago",
            "lost 200 packets, 20.0 % of 1,000, since the hub started",
            "Other readers that have left lost 1,034 packets since",
        ],
    );
}

#[test]
fn losses_of_a_bridge_are_losses() {
    let answer = after(|hub| {
        hub.bridges.push(BridgeStatus {
            counters: Counters {
                offered: 1_000,
                delivered: 899,
                dropped: Dropped {
                    kernel: 101,
                    ..Dropped::default()
                },
                ..Counters::default()
            },
            way: "eth0>eth1".into(),
        });
    });
    assert!(answer.is_bad);
    says(
        &answer,
        &[
            "Bridge eth0>eth1: the other interface had no room, and it lost 101 packets, 10.1 % of 1,000",
        ],
    );
}

#[test]
fn a_filter_that_runs_in_the_reader_is_no_loss_but_is_said() {
    let answer = always(|hub| hub.readers[0].not_in_source = Some("it is too long".into()));
    assert!(!answer.is_bad);
    says(
        &answer,
        &[
            "runs its filter itself, because the source cannot: it is too long. 16.7 % of the packets",
        ],
    );
}

#[test]
fn a_reader_that_broke_the_rules_is_bad_without_a_loss() {
    let answer = always(|hub| hub.readers[0].corrupt = true);
    assert!(answer.is_bad);
    says(&answer, &["but there is a fault", "End process 4001"]);
}

#[test]
fn a_source_that_failed_is_bad_and_one_that_ended_is_not() {
    let ended = always(|hub| hub.sources[0].state = SourceState::Ended);
    assert!(!ended.is_bad);
    says(&ended, &["tap:eth0 has ended"]);
    let failed = always(|hub| {
        hub.sources[0].state = SourceState::Ended;
        hub.sources[0].failure = Some("eth0 is gone".into());
    });
    assert!(failed.is_bad);
    says(&failed, &["tap:eth0: capture failed: eth0 is gone."]);
}

#[test]
fn counters_that_do_not_add_up_are_to_be_reported() {
    let answer = always(|hub| hub.sources[0].balanced = false);
    assert!(answer.is_bad);
    says(
        &answer,
        &[
            "the counters do not add up",
            "Please report it",
            "DOES NOT HOLD",
        ],
    );
}

#[test]
fn the_worst_loss_comes_first() {
    let answer = after(|hub| {
        hub.sources[0].dropped.nic = 5;
        hub.readers[0].counters.dropped.overrun = 50;
        hub.readers[1].counters.dropped.overrun = 500;
    });
    let lost: Vec<_> = answer
        .findings
        .iter()
        .map(|one| one.lost_packets())
        .collect();
    assert_eq!(lost, [500, 50, 5]);
    says(
        &answer,
        &["Packets were lost in 3 places, the worst first."],
    );
}

#[test]
fn a_hub_with_any_numbers_is_explained_without_a_wrong_sum() {
    let answer = always(|hub| {
        hub.readers[0].impossible = true;
        for lane in &mut hub.sources[0].lanes {
            lane.counters.offered = u64::MAX;
            lane.counters.dropped.kernel = u64::MAX;
            lane.chunks = u32::MAX;
        }
        hub.sources[0].dropped.nic = u64::MAX;
        hub.sources[0].dropped.kernel = u64::MAX;
        for reader in &mut hub.readers {
            reader.counters.delivered = u64::MAX;
            reader.counters.filtered = u64::MAX;
            reader.counters.dropped.overrun = u64::MAX;
            reader.not_in_source = Some("it loops".into());
        }
        let departed = DepartedStatus {
            counters: Counters {
                delivered: u64::MAX,
                dropped: Dropped {
                    overrun: u64::MAX,
                    ..Dropped::default()
                },
                ..Counters::default()
            },
            readers: 1,
            ..DepartedStatus::default()
        };
        hub.departed = vec![departed.clone(), departed];
        hub.departed_overrun = u64::MAX;
    });
    assert!(
        answer
            .findings
            .iter()
            .filter_map(Finding::loss)
            .all(|loss| loss.share() <= 1.0)
    );
    let lies = answer
        .findings
        .iter()
        .filter(|one| one.kind() == "impossible");
    assert_eq!(lies.count(), 1, "{answer:?}");
}

#[test]
fn a_partial_status_says_so() {
    let answer = after(|hub| hub.partial = true).sentences();
    let last = answer.last().unwrap();
    assert!(last.contains("may join are shown: ids, rec."), "{last}");
    assert!(
        !after(|_| {})
            .sentences()
            .iter()
            .any(|line| line.contains("may join"))
    );
}

#[test]
fn json_has_the_promised_names() {
    let answer = after(|hub| hub.sources[0].dropped.nic = 500);
    let json = serde_json::to_value(&answer).unwrap();
    let names = |value: &serde_json::Value| {
        let names: Vec<_> = value.as_object().unwrap().keys().cloned().collect();
        names.join(" ")
    };
    assert_eq!(names(&json), "checked findings lost time_ns type");
    let promised = "advice bad kind lost_packets lost_per_second lost_share place sentence";
    assert_eq!(names(&json["findings"][0]), promised);
}
