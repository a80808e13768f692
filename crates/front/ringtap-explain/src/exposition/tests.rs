// SPDX-License-Identifier: MIT OR Apache-2.0
//! The metrics of a hub with every kind of part.

use std::collections::HashSet;

use ringtap_ipc::protocol::{
    BridgeStatus, BuddyCounts, DepartedStatus, Division, GroupStatus, LaneStatus, ReaderStatus,
};
use ringtap_pool::congestion::Congestion;
use ringtap_pool::counters::{Counters, Dropped};
use ringtap_pool::distributor::Policy;

use super::*;

/// A hub with two lanes, two readers and every kind of loss.
fn hub() -> HubStatus {
    let lane = |lane| LaneStatus {
        lane,
        counters: Counters {
            offered: 100,
            delivered: 80,
            bytes: 8000,
            filtered: 10,
            dropped: Dropped {
                pool_full: 7,
                kernel: 3,
                ..Dropped::default()
            },
            ..Counters::default()
        },
        chunks: 64,
        chunks_in_use: 5,
        paused: lane == 1,
    };
    let source = SourceStatus {
        device: "tap:eth0".into(),
        state: SourceState::Paused,
        pool_bytes: 4096,
        lanes: vec![lane(0), lane(1)],
        balanced: true,
        congestion: Some(Congestion {
            low_percent: 10,
            high_percent: 30,
        }),
        dropped: Dropped {
            nic: 11,
            kernel: 2,
            ..Dropped::default()
        },
        ..SourceStatus::default()
    };
    let reader = |reader| ReaderStatus {
        counters: Counters {
            delivered: 60,
            filtered: 4,
            other_members: 5,
            bytes: 6000,
            dropped: Dropped {
                overrun: 9,
                ..Dropped::default()
            },
            ..Counters::default()
        },
        reader,
        name: "a \"b\"\\c\nd".into(),
        group: "ids".into(),
        lag_chunks: 3,
        lag_ms: 1500,
        credit_chunks: 56,
        unread: 17,
        helped_chunks: 21,
        buckets: 128,
        ..ReaderStatus::default()
    };
    HubStatus {
        started_ns: 1_500_000_000,
        version: "0.2.0".into(),
        pid: 7,
        sources: vec![source.clone(), source],
        groups: vec![GroupStatus {
            name: "ids".into(),
            members: 2,
            division: Division::Lanes,
            policy: Policy::Sample { one_in: 10 },
            offload_percent: Some(60),
            buddies: BuddyCounts {
                offloaded_chunks: 42,
                offloaded_packets: 4200,
                disordered_packets: 99,
                ..BuddyCounts::default()
            },
            ..GroupStatus::default()
        }],
        readers: vec![reader(1), reader(2)],
        departed_overrun: 13,
        departed: vec![DepartedStatus {
            counters: Counters {
                delivered: 40,
                dropped: Dropped {
                    overrun: 13,
                    ..Dropped::default()
                },
                ..Counters::default()
            },
            name: "old".into(),
            group: "ids".into(),
            uid: 7,
            unread: 6,
            ..DepartedStatus::default()
        }],
        ..HubStatus::default()
    }
}

#[test]
fn every_metric_of_the_table_has_its_field() {
    let source = SourceStatus {
        lanes: vec![LaneStatus::default()],
        congestion: Some(Congestion::default()),
        ..SourceStatus::default()
    };
    let hub = HubStatus {
        sources: vec![source],
        groups: vec![GroupStatus::default()],
        bridges: vec![BridgeStatus::default()],
        readers: vec![ReaderStatus::default()],
        departed: vec![DepartedStatus::default()],
        ..HubStatus::default()
    };
    let parts = parts(&hub);
    for line in METRICS.lines() {
        let rows = MetricRow::parse(line);
        assert!(!rows.is_empty(), "{line}");
        for row in rows {
            let part = parts.iter().find(|part| part.name == row.part);
            let field = part.and_then(|part| part.fields.pointer(&row.field));
            assert!(field.is_some(), "{line}");
        }
        let kind = line.split_whitespace().nth(1);
        assert!(
            matches!(kind, Some("counter" | "losses" | "gauge")),
            "{line}"
        );
    }
}

#[test]
fn every_counter_has_its_line() {
    let text = exposition(&hub()).unwrap();
    let name = r#"name="a \"b\"\\c\nd""#;
    for line in [
        r#"ringtap_hub_info{version="0.2.0",pid="7"} 1"#.to_owned(),
        "ringtap_start_time_seconds 1.5".to_owned(),
        r#"ringtap_offered_packets_total{source="tap:eth0",lane="1"} 100"#.to_owned(),
        r#"ringtap_delivered_packets_total{source="tap:eth0",lane="0"} 80"#.to_owned(),
        r#"ringtap_filtered_packets_total{source="tap:eth0",lane="0"} 10"#.to_owned(),
        r#"ringtap_lost_packets_total{source="tap:eth0",lane="0",reason="pool_full"} 7"#.to_owned(),
        r#"ringtap_lost_packets_total{source="tap:eth0",lane="0",reason="kernel"} 3"#.to_owned(),
        r#"ringtap_lost_packets_total{source="tap:eth0",reason="kernel"} 2"#.to_owned(),
        r#"ringtap_lost_packets_total{source="tap:eth0",reason="nic"} 11"#.to_owned(),
        r#"ringtap_chunks{source="tap:eth0",lane="0"} 64"#.to_owned(),
        r#"ringtap_chunks_in_use{source="tap:eth0",lane="0"} 5"#.to_owned(),
        r#"ringtap_paused{source="tap:eth0",lane="1"} 1"#.to_owned(),
        r#"ringtap_source_up{source="tap:eth0"} 1"#.to_owned(),
        r#"ringtap_source_balanced{source="tap:eth0"} 1"#.to_owned(),
        r#"ringtap_pool_bytes{source="tap:eth0"} 4096"#.to_owned(),
        r#"ringtap_group_members{group="ids"} 2"#.to_owned(),
        r#"ringtap_delivered_wire_bytes_total{source="tap:eth0",lane="1"} 8000"#.to_owned(),
        r#"ringtap_source_congestion_percent{source="tap:eth0",mark="low"} 10"#.to_owned(),
        r#"ringtap_source_congestion_percent{source="tap:eth0#2",mark="high"} 30"#.to_owned(),
        r#"ringtap_group_info{balance="lanes",delivery="shared",policy="sample:10",group="ids"} 1"#
            .to_owned(),
        r#"ringtap_group_offload_percent{group="ids"} 60"#.to_owned(),
        r#"ringtap_group_offloaded_chunks_total{group="ids"} 42"#.to_owned(),
        r#"ringtap_group_offloaded_packets_total{group="ids"} 4200"#.to_owned(),
        r#"ringtap_group_disordered_packets_total{group="ids"} 99"#.to_owned(),
        format!(r#"ringtap_reader_unread_packets{{group="ids",reader="1",{name}}} 17"#),
        r#"ringtap_departed_reader_unread_packets_total{group="ids",name="old",uid="7"} 6"#
            .to_owned(),
        format!(r#"ringtap_reader_helped_chunks_total{{group="ids",reader="2",{name}}} 21"#),
        format!(r#"ringtap_reader_buckets{{group="ids",reader="2",{name}}} 128"#),
        format!(r#"ringtap_reader_delivered_packets_total{{group="ids",reader="1",{name}}} 60"#),
        format!(r#"ringtap_reader_filtered_packets_total{{group="ids",reader="1",{name}}} 4"#),
        format!(r#"ringtap_reader_other_members_packets_total{{group="ids",reader="1",{name}}} 5"#),
        format!(
            r#"ringtap_reader_delivered_wire_bytes_total{{group="ids",reader="1",{name}}} 6000"#
        ),
        format!(
            r#"ringtap_reader_lost_packets_total{{group="ids",reader="2",{name},reason="overrun"}} 9"#
        ),
        r#"ringtap_departed_readers_lost_packets_total{reason="overrun"} 13"#.to_owned(),
        r#"ringtap_departed_reader_lost_packets_total{group="ids",name="old",uid="7",reason="overrun"} 13"#
            .to_owned(),
        format!(r#"ringtap_reader_lag_chunks{{group="ids",reader="1",{name}}} 3"#),
        format!(r#"ringtap_reader_credit_chunks{{group="ids",reader="1",{name}}} 56"#),
        format!(r#"ringtap_reader_lag_seconds{{group="ids",reader="1",{name}}} 1.5"#),
        format!(r#"ringtap_reader_corrupt{{group="ids",reader="1",{name}}} 0"#),
    ] {
        assert!(text.lines().any(|one| one == line), "no {line} in\n{text}");
    }
    assert!(text.ends_with("# EOF\n"));
}

#[test]
fn no_sample_is_there_twice_and_every_metric_is_explained() {
    let text = exposition(&hub()).unwrap();
    let mut samples = HashSet::new();
    let mut documented = HashSet::new();
    for line in text.lines() {
        if let Some(help) = line.strip_prefix("# HELP ") {
            documented.insert(help.split(' ').next().unwrap());
        } else if !line.starts_with('#') {
            let sample = line.rsplit_once(' ').unwrap().0;
            assert!(samples.insert(sample), "{sample} is there twice");
            let name = sample.split('{').next().unwrap();
            let name = name.trim_end_matches("_total").trim_end_matches("_info");
            assert!(documented.contains(name), "{name} has no help");
        }
    }
    assert!(samples.iter().any(|one| one.contains("tap:eth0#2")));
}

#[test]
fn every_metric_is_in_the_documentation() {
    let page = include_str!("../../../../../docs/counters.md");
    let text = exposition(&hub()).unwrap();
    for line in text.lines().filter(|line| !line.starts_with('#')) {
        let name = line.split(['{', ' ']).next().unwrap();
        assert!(
            page.contains(&format!("`{name}`")),
            "{name} is not in docs/counters.md"
        );
    }
}
