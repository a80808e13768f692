// SPDX-License-Identifier: MIT OR Apache-2.0
//! Flow rules of readers in a guest act on the host: what they withhold costs the guest nothing.

use ringtap_testkit::{GUEST_LIMIT, require_root};
use serde_json::Value;

use crate::kit::{GuestAndHub, NOBODY, boot_machine};

/// Packets of the flow that the guest ignores.
const SHUNTED: u64 = 20_000;
const HALF: usize = 10_000;

/// The guest's group `all` has one reader, and `gates` those that wait for the sender.
const PLAN: &str = r#"
until [ -S /run/ringtap/host/gates.sock ]; do sleep 0.1; done
gate() { ringtap count -q -c 1 -i host:gates udp port $1 >/dev/null; }
has() { case "$(ringtap guest --status 2>&1)" in *"$1.sock: $2 reader"*) true ;; *) false ;; esac; }
until_has() { until has $1 $2; do sleep 0.2; done; }
# Ticks of a processor that a process has used, in user space and in the kernel.
ticks() { read -r all < /proc/$1/stat; set -- ${all##*) }; shift 11; echo "$1 + $2"; }
used() { echo "GUEST $1 { \"agent\": $(($(ticks $agent))), \"reader\": $(($(ticks $reader))) }"; }
$NOBODY ringtap count -q --json -i host:all >/all & reader=$!
until_has all 1
gate 1001 & waits=$!
until_has gates 1
echo GUEST ready
wait $waits
ringtap rules add -i host:all udp 10.0.0.1:12345 10.0.0.2:53 ignore && echo GUEST rule set
ringtap rules add -i host:all udp port 54 ignore && echo GUEST pattern set
ringtap rules list -i host:all --json
ringtap count -q -i host:all 2>&1 || echo GUEST second refused
until_has gates 0
gate 1002 & waits=$!
until_has gates 1
sleep 2
used before
sleep 5
used idle
echo GUEST shunts
wait $waits
used after
ringtap rules remove -i host:all udp 10.0.0.1:12345 10.0.0.2:53 && echo GUEST removed
until_has gates 0
gate 1003 & waits=$!
until_has gates 1
used begin
echo GUEST unshunts
wait $waits
sleep 1
used end
echo "GUEST status $(ringtap status --json --socket /run/ringtap/host/all.sock)"
kill -INT $reader
wait $reader
echo "GUEST all $(cat /all)"
until_has all 0
until_has gates 0
$NOBODY ringtap count -q --json -i host:all --cutoff '20 packets' >/heads & reader=$!
until_has all 1
gate 1004 & waits=$!
until_has gates 1
echo GUEST waits
wait $waits
sleep 1
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
    let host = GuestAndHub::with(
        "guest_rules",
        machine,
        &["all:not udp portrange 1000-1099", gates],
    );
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
    host.wait_for_account(110, 0);
    host.send(53, HALF);
    host.send(54, HALF);
    // No packet was copied for the guest.
    host.wait_for_account(110, SHUNTED);
    host.send(1002, 1);
    host.wait_for("GUEST unshunts");
    host.send(53, 2 * HALF);
    host.wait_for_account(110 + SHUNTED, SHUNTED);
    host.send(1003, 1);
    host.wait_for("GUEST all ");
    let used = |from: &str, to: &str| {
        let at =
            |when: &str, who: &str| host.said(&format!("GUEST {when} "))[who].as_u64().unwrap();
        ["agent", "reader"].map(|who| at(to, who) - at(from, who))
    };
    // A tick is a hundredth of a second; the first ones are of 5 seconds without packets.
    let (idle, shunting) = (used("before", "idle"), used("idle", "after"));
    let reading = used("begin", "end");
    println!(
        "ticks of agent and reader: idle {idle:?}, {SHUNTED} packets shunted {shunting:?}, as many read {reading:?}"
    );
    let account = [110 + 2 * SHUNTED, 110 + SHUNTED, SHUNTED, 0];
    let all = host.said("GUEST all ");
    assert_eq!(counters(&all), account, "{all}");
    let status = host.said("GUEST status ");
    assert_eq!(counters(&status["readers"][0]), account, "{status}");
    host.wait_for("GUEST waits");
    host.send(99, 500);
    host.send(98, 5);
    host.wait_for_account(135 + SHUNTED, SHUNTED + 480);
    host.send(1004, 1);
    host.wait_for("GUEST done");
    let heads = host.said("GUEST heads ");
    assert_eq!(counters(&heads), [505, 25, 480, 0], "{heads}");
    // The reader on the host got all but those for the gates.
    beside.interrupt();
    let beside = beside.wait(GUEST_LIMIT).success();
    let beside: Value = serde_json::from_str(beside.stdout.trim()).unwrap();
    let all = 110 + 2 * SHUNTED + 505;
    assert_eq!(counters(&beside), [all + 4, all, 0, 4], "{beside}");
    host.finish(vm);
}
