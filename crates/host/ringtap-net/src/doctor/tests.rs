// SPDX-License-Identifier: MIT OR Apache-2.0
//! Findings for answers of drivers.

use super::answers::DeviceAnswers;
use super::device::diagnose;
use super::findings::{Diagnosis, Severity};
use super::repair::is_restoring;

/// Answers that were written by hand, and what is found besides that all is well, on a machine with 4 CPUs.
const DRIVERS: [(&str, &str, &[&str]); 8] = [
    (
        "ixgbe",
        include_str!("drivers/ixgbe.txt"),
        &[
            "note attaching",
            "note merging",
            "note VLAN tags: ethtool -K eth0 rxvlan off",
            "note rings: ethtool -G eth0 rx 8192",
            "note RSS: ethtool -X eth0 hkey 6d:5a:6d:5a",
        ],
    ),
    (
        "i40e",
        include_str!("drivers/i40e.txt"),
        &[
            "note attaching",
            "note merging",
            "note VLAN tags: ethtool -K eth0 rxvlan off",
            "note rings: ethtool -G eth0 rx 8160",
            "note RSS: ethtool -X eth0 hkey 6d:5a:6d:5a",
        ],
    ),
    (
        "ice",
        include_str!("drivers/ice.txt"),
        &["note attaching", "note merging"],
    ),
    (
        "mlx5_core",
        include_str!("drivers/mlx5_core.txt"),
        &[
            "note attaching",
            "bad merging: ethtool -K eth0 lro off",
            "note merging",
            "note queues: ethtool -L eth0 combined 4",
            "note rings: ethtool -G eth0 rx 8192",
            "note RSS: ethtool -X eth0 hkey 6d:5a:6d:5a",
        ],
    ),
    (
        "ena",
        include_str!("drivers/ena.txt"),
        &[
            "note attaching",
            "bad MTU",
            "note merging",
            "note rings: ethtool -G eth0 rx 16384",
        ],
    ),
    (
        "virtio_net",
        include_str!("drivers/virtio_net.txt"),
        &[
            "note XDP program",
            "bad merging: ethtool -K eth0 rx-gro-hw off",
            "note merging",
            "note queues: ethtool -L eth0 combined 4",
        ],
    ),
    (
        "e1000e",
        include_str!("drivers/e1000e.txt"),
        &[
            "bad link",
            "note XDP",
            "note merging",
            "note rings: ethtool -G eth0 rx 4096",
        ],
    ),
    (
        "bnxt_en",
        include_str!("drivers/bnxt_en.txt"),
        &[
            "note attaching",
            "bad merging: ethtool -K eth0 rx-gro-hw off",
            "note merging",
            "note VLAN tags",
            "note rings: ethtool -G eth0 rx 8191",
        ],
    ),
];

fn in_short(one: &Diagnosis) -> String {
    let severity = match one.severity {
        Severity::Good => "good",
        Severity::Note => "note",
        Severity::Bad => "bad",
    };
    let change = one.remedy.as_ref().map(|remedy| remedy.change.join(" "));
    let change = change
        .map(|change| format!(": {change}"))
        .unwrap_or_default();
    format!("{severity} {}{change}", one.topic)
}

#[test]
fn drivers_get_the_advice_that_fits_them() {
    for (driver, text, wanted) in DRIVERS {
        let answers = DeviceAnswers::recorded(text);
        assert_eq!(answers.driver(), Some(driver));
        let all = diagnose("eth0", &answers, 4);
        let mut found = all.iter().filter(|one| one.severity != Severity::Good);
        for wanted in wanted {
            let found = found.next().map(in_short).unwrap_or_default();
            assert!(found.starts_with(wanted), "{driver}: {found}, not {wanted}");
        }
        assert_eq!(found.next(), None, "{driver}");
    }
}

#[test]
fn each_change_has_a_command_that_restores_it() {
    let each = DRIVERS.map(|(_, text, _)| diagnose("eth0", &DeviceAnswers::recorded(text), 4));
    let mut count = 0;
    for remedy in each.iter().flatten().filter_map(|one| one.remedy.as_ref()) {
        assert_eq!(remedy.change[..3], remedy.restore[..3], "the same setting");
        assert_ne!(remedy.change, remedy.restore);
        assert_eq!(remedy.change.len(), remedy.restore.len());
        assert!(is_restoring(&remedy.restore), "{:?}", remedy.restore);
        assert!(is_restoring(&remedy.change), "{:?}", remedy.change);
        count += 1;
    }
    assert!(count > 10, "{count}");
}

#[test]
fn no_other_command_restores() {
    for line in [
        "sysctl -w kernel.core_pattern=|/tmp/x",
        "sysctl -p /tmp/x",
        "ethtool --flash eth0 /tmp/x",
        "ethtool -K eth0 lro on gro off",
        "ethtool -K --debug lro on",
        "ethtool -X eth0 hkey --x",
        "sh -c id",
        "",
    ] {
        let words: Vec<_> = line.split_whitespace().map(str::to_owned).collect();
        assert!(!is_restoring(&words), "{line}");
    }
}

#[test]
fn without_answers_nothing_is_claimed() {
    let all = diagnose("eth0", &DeviceAnswers::default(), 4);
    let topics: Vec<_> = all.iter().map(|one| one.topic).collect();
    assert_eq!(topics, ["ethtool", "XDP"]);
}
