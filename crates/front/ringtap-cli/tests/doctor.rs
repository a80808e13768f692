// SPDX-License-Identifier: MIT OR Apache-2.0
//! `doctor` and `devices` on software devices.

use std::process::Command;

use ringtap_testkit::{Finished, LIMIT, Namespace, Running, require_root, require_tool};
use serde_json::Value;

fn ringtap(net: &Namespace, args: &[&str]) -> Finished {
    let mut command: Command = net.command(env!("CARGO_BIN_EXE_ringtap"));
    command.args(args);
    Running::start(command).wait(LIMIT)
}

fn findings(net: &Namespace, device: &str) -> Vec<Value> {
    let end = ringtap(net, &["doctor", device, "--json"]);
    let report: Value =
        serde_json::from_str(&end.stdout).unwrap_or_else(|_| panic!("{}", end.stderr));
    assert_eq!(report["interface"], device);
    report["findings"].as_array().expect("a list").clone()
}

fn of<'a>(findings: &'a [Value], topic: &str) -> Vec<&'a Value> {
    findings
        .iter()
        .filter(|one| one["topic"] == topic)
        .collect()
}

#[test]
fn software_devices_are_examined() {
    require_root!();
    require_tool!("ethtool");
    let net = Namespace::with_veth("doctor");
    net.ip(&["link", "set", "rx0", "down"]);
    let down = findings(&net, "rx0");
    assert_eq!(of(&down, "link")[0]["severity"], "bad", "{down:?}");
    net.ip(&["link", "set", "rx0", "up"]);
    // Some kernels lack these two types.
    let dummy = net.run("ip", &["link", "add", "none0", "type", "dummy"]);
    let tap = net.run("ip", &["tuntap", "add", "tap7", "mode", "tap"]);
    let mut devices = vec!["rx0"];
    devices.extend(dummy.status.success().then_some("none0"));
    devices.extend(tap.status.success().then_some("tap7"));
    for device in &devices {
        let found = findings(&net, device);
        assert!(!of(&found, "kernel").is_empty(), "{found:?}");
        assert_eq!(of(&found, "rights").len(), 3, "{found:?}");
        assert_eq!(of(&found, "XDP").len(), 1, "{found:?}");
    }
    let table = ringtap(&net, &["devices"]).success().stdout;
    for device in devices {
        assert!(table.contains(device), "{table}");
    }
    let end = ringtap(&net, &["doctor", "nothing0"]);
    assert!(
        end.stderr.contains("no interface \"nothing0\""),
        "{}",
        end.stderr
    );
}

#[test]
fn fixes_are_restored() {
    require_root!();
    require_tool!("ethtool");
    if std::thread::available_parallelism().map_or(1, usize::from) < 2 {
        ringtap_testkit::say_skipped("one CPU has no use for several queues");
        return;
    }
    let net = Namespace::new("doctor-fix");
    net.ip(&[
        "link",
        "add",
        "many0",
        "numrxqueues",
        "4",
        "numtxqueues",
        "4",
        "type",
        "veth",
    ]);
    let _one_queue = net.run("ethtool", &["-L", "many0", "rx", "1"]);
    let queues = || net.run("ethtool", &["-l", "many0"]).stdout;
    let before = queues();
    let found = findings(&net, "many0");
    assert!(
        !of(&found, "queues")[0]["remedy"].is_null(),
        "{found:?} {before}"
    );
    let fixed = ringtap(&net, &["doctor", "many0", "--fix"]).success();
    assert!(
        fixed.stdout.contains("+ ethtool -L many0 rx "),
        "{}",
        fixed.stdout
    );
    assert_ne!(queues(), before);
    let restored = ringtap(&net, &["doctor", "--restore"]).success();
    assert!(
        restored.stdout.contains("+ ethtool -L many0 rx 1"),
        "{}",
        restored.stdout
    );
    assert_eq!(queues(), before);
    let again = ringtap(&net, &["doctor", "--restore"]).success();
    assert_eq!(again.stdout.trim(), "nothing to restore here");
}
