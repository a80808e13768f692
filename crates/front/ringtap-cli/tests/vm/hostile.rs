// SPDX-License-Identifier: MIT OR Apache-2.0
//! A guest whose root overwrites and rings everything costs nobody else a packet, and sees none of them.

use ringtap_testkit::{GUEST_LIMIT, require_root};
use rustix::process::Signal;

use crate::kit::{GuestAndHub, boot_machine, detach, said_by};

/// Bytes of packets that the hostile guest may read, and of those that it may not.
const GRANTED: u8 = 0xC3;
const SECRET: u8 = 0xA5;
const BURSTS: usize = 20;
const BURST: usize = 50;

#[test]
fn a_guest_that_overwrites_and_rings_everything_sees_no_packet_of_others_and_costs_them_none() {
    require_root!();
    let plan = format!(
        "ringtap count -q -c 1 -i host:dns >/dev/null & one=$!
        ringtap count -q -i host:dns >/dev/null &
        readers 2
        echo GUEST ready
        wait $one
        kill -STOP $agent
        vm_intruder {GRANTED} {SECRET}"
    );
    let packets = (2 * BURSTS + 1) * BURST + 1;
    let honest = format!(
        "ringtap count -q --json -c {packets} -i host:all >/all & all=$!
        readers 1
        echo GUEST ready
        wait $all
        echo \"GUEST all $(cat /all)\"
        while true; do sleep 100; done"
    );
    let Some(machine) = boot_machine(&plan, &[], "") else {
        return;
    };
    let host = GuestAndHub::with("guest_hostile", machine, &["all", "dns:udp port 53"]);
    let other = boot_machine(&honest, &[], "").expect("the first machine has booted");
    let hostile_vm = host.attach_as("vm1", &host.machine, &["dns"]);
    let honest_vm = host.attach_as("honest", &other, &["all"]);
    host.wait_for("GUEST ready");
    other.qemu.wait_for_stdout("GUEST ready", GUEST_LIMIT);
    let count = packets.to_string();
    let reader = host.ringtap(&["count", "-q", "--json", "-c", &count, "-i", "hub:all"]);
    host.wait_for_readers(3);
    // While the guest's subscription copies, which the intruder will end.
    host.send_filled(7, BURST, SECRET);
    host.send_filled(53, 1, GRANTED);
    host.wait_for("GUEST pass 2 ");
    for _ in 0..BURSTS {
        host.send_filled(53, BURST, GRANTED);
        host.send_filled(7, BURST, SECRET);
    }
    assert_eq!(said_by(&other, "GUEST all ")["delivered"], packets);
    let end = reader.wait(GUEST_LIMIT).success();
    let counters: serde_json::Value = serde_json::from_str(&end.stdout).unwrap();
    assert_eq!(counters["delivered"], packets, "{counters}");
    // Two more passes begin after the last packet.
    let passes = host.console().matches("GUEST pass ").count();
    host.wait_for(&format!("GUEST pass {} ", passes + 2));
    let console = host.console();
    assert!(
        console.contains("GUEST intruder has 2 devices"),
        "{console}"
    );
    let found = console
        .lines()
        .filter_map(|line| line.split_once(" found ["));
    let found: Vec<_> = found
        .filter_map(|(_, found)| found.split_once("] end"))
        .collect();
    assert!(found.len() > passes, "{console}");
    for (counts, _) in found {
        let (granted, secret) = counts.split_once(", ").unwrap();
        assert!(granted != "0" && secret == "0", "{counts}: {console}");
    }
    let list = host.vm(&["list"]).wait(GUEST_LIMIT).success().stdout;
    println!("{list}");
    host.machine.qemu.signal(Signal::KILL);
    let _gone = hostile_vm.wait(GUEST_LIMIT).success();
    let _detached = detach(honest_vm);
    host.wait_for_readers(0);
    host.finish_hub();
}
