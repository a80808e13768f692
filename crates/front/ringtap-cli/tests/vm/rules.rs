// SPDX-License-Identifier: MIT OR Apache-2.0
//! Flow rules of readers in a guest act on the host: what they withhold costs the guest nothing.

use ringtap_testkit::require_root;
use serde_json::Value;

use crate::kit::{GuestAndHub, NOBODY, boot_machine};

/// Packets of the flow that the guest ignores.
const SHUNTED: u64 = 20_000;

/// The guest's group `all` has one reader, and `gates` those that wait for the sender.
const PLAN: &str = r#"
until [ -S /run/ringtap/host/gates.sock ]; do sleep 0.1; done
gate() { ringtap count -q -c 1 -i host:gates udp port $1 >/dev/null; }
# Ticks of a processor that agent and reader have used, in user space and in the kernel; prints nothing else.
ticks() { read -r all < /proc/$1/stat; set -- ${all##*) }; shift 11; echo "$1 + $2"; }
used() { echo "GUEST $1 { \"agent\": $(($(ticks $agent))), \"reader\": $(($(ticks $reader))) }"; }
$NOBODY ringtap count -q --json -i host:all >/all & reader=$!
one_reader() { case "$(ringtap guest --status 2>&1)" in *"host:all"*": read"*) true ;; *) false ;; esac; }
until one_reader; do sleep 0.2; done
gate 1001 & first=$!
echo GUEST ready
wait $first
# Only the reader's own user and root set rules.
ringtap rules add -i host:all udp 10.0.0.1:12345 10.0.0.2:53 ignore && echo GUEST rule set
ringtap rules add -i host:all udp port 54 ignore && echo GUEST pattern set
ringtap rules list -i host:all --json
ringtap count -q -i host:all 2>&1 || echo GUEST second refused
gate 1002 & second=$!
sleep 3
used before
sleep 5
used idle
echo GUEST shunts
wait $second
used after
ringtap rules remove -i host:all udp 10.0.0.1:12345 10.0.0.2:53 && echo GUEST removed
ringtap rules watch -i host:all --json >/ends & watch=$!
gate 1003 & third=$!
echo GUEST unshunts
wait $third
status=$(ringtap status --json --socket /run/ringtap/host/all.sock)
echo "GUEST status $status"
kill -INT $reader
wait $reader
echo "GUEST all $(cat /all)"
kill $watch
$NOBODY ringtap count -q --json -i host:all --cutoff '20 packets' >/heads & reader=$!
until one_reader; do sleep 0.2; done
gate 1004 & fourth=$!
echo GUEST heads ready
wait $fourth
kill -INT $reader
wait $reader
echo "GUEST heads $(cat /heads)"
echo GUEST done
"#;

fn counters(counted: &Value) -> [u64; 4] {
    ["offered", "delivered", "shunted", "filtered"]
        .map(|term| counted[term].as_u64().unwrap_or_default())
}

#[test]
fn what_a_rule_of_a_guest_withholds_is_counted_exactly_and_costs_the_guest_nothing() {
    require_root!();
    let plan = PLAN.replace("$NOBODY", NOBODY);
    let Some(machine) = boot_machine(&plan, &[], "") else {
        return;
    };
    let gates = "gates:udp portrange 1000-1099";
    let host = GuestAndHub::with("guest_rules", machine, &["all:not udp portrange 1000-1099", gates]);
    let vm = host.attach_as("vm1", &host.machine, &["all", "gates"]);
    let beside = host.host_reader("all");
    host.wait_for("GUEST ready");
    host.wait_for_readers(3);
    host.send(53, 100);
    host.send(7, 10);
    host.send(1001, 1);
    host.wait_for("GUEST shunts");
    for line in [
        "GUEST rule set",
        "GUEST pattern set",
        "GUEST second refused",
        r#""flow":"udp 10.0.0.1:12345 10.0.0.2:53","action":"ignore""#,
        "which hold for all of this virtual machine's readers",
    ] {
        assert!(host.console().contains(line), "{line}: {}", host.console());
    }
    let copied = || {
        let reports = host.report();
        let group = &reports["groups"][0];
        let counters = &group["counters"];
        let term = |name: &str| counters[name].as_u64().unwrap();
        (term("copied"), term("shunted"))
    };
    assert_eq!(copied(), (110, 0));
    host.send(53, SHUNTED as usize / 2);
    host.send(54, SHUNTED as usize / 2);
    assert_eq!(copied(), (110, SHUNTED), "no packet was copied for the guest");
    host.send(1002, 1);
    host.wait_for("GUEST unshunts");
    host.send(53, 30);
    host.send(1003, 1);
    host.wait_for("GUEST all ");
    // A hundredth of a second is a tick.
    let [before, idle, after] = ["before", "idle", "after"].map(|at| host.said(&format!("GUEST {at} ")));
    let used = |from: &Value, to: &Value, who: &str| {
        to[who].as_u64().unwrap() - from[who].as_u64().unwrap()
    };
    for who in ["agent", "reader"] {
        let (idle, shunting) = (used(&before, &idle, who), used(&idle, &after, who));
        println!("{who}: {idle} ticks idle, {shunting} ticks while {SHUNTED} packets were shunted");
    }
    let all = host.said("GUEST all ");
    assert_eq!(counters(&all), [140 + SHUNTED, 140, SHUNTED, 0], "{all}");
    let status = host.said("GUEST status ");
    let reader = &status["readers"][0];
    assert_eq!(counters(reader), [140 + SHUNTED, 140, SHUNTED, 0], "{reader}");
    host.wait_for("GUEST heads ready");
    host.send(99, 500);
    host.send(98, 5);
    host.send(1004, 1);
    host.wait_for("GUEST done");
    let heads = host.said("GUEST heads ");
    assert_eq!(counters(&heads), [505, 25, 480, 0], "{heads}");
    assert_eq!(copied(), (140 + 25, SHUNTED + 480));
    // The reader on the host got all.
    beside.interrupt();
    let beside = beside.wait(ringtap_testkit::GUEST_LIMIT).success();
    let beside: Value = serde_json::from_str(beside.stdout.trim()).unwrap();
    let all = 140 + SHUNTED + 505;
    assert_eq!((beside["delivered"].as_u64(), beside["shunted"].as_u64()), (Some(all), Some(0)));
    host.finish(vm);
}
