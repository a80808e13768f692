// SPDX-License-Identifier: MIT OR Apache-2.0
//! Machines that are attached and detached in rounds, and that migrate, under traffic.

use std::time::Duration;

use ringtap_pool::number::to_u64;
use ringtap_testkit::{GUEST_LIMIT, require_root, say_skipped};
use rustix::process::Signal;

use crate::kit::{GuestAndHub, HANGS, NOBODY, boot_machine, detach, said_by};

/// Rounds of attach and detach; `RINGTAP_VM_ROUNDS=50` sets another number.
fn rounds() -> usize {
    let asked = std::env::var("RINGTAP_VM_ROUNDS").ok();
    asked.map_or(5, |text| {
        text.parse().expect("RINGTAP_VM_ROUNDS is a number")
    })
}

#[test]
fn a_reader_in_a_guest_outlives_rounds_of_attach_detach_and_kills_under_traffic() {
    require_root!();
    let plan = format!(
        "{NOBODY} ringtap count -q --json -i host:all udp port 53 >/dns & dns=$!
        gate 1001 & last=$!
        readers 2
        echo GUEST ready
        wait $last
        kill -INT $dns
        wait $dns
        echo \"GUEST dns $(cat /dns)\"
        ringtap count -q -i host:all"
    );
    let Some(machine) = boot_machine(&plan, &[], "") else {
        return;
    };
    let mut host = GuestAndHub::with("guest_rounds", machine, &["all"]);
    let held = host.held_by_qemu();
    // The reader's group is known to the agent once the first host process grants it.
    let first = host.attach();
    host.wait_for("GUEST ready");
    if !detach(first) {
        say_skipped(HANGS);
        return host.finish_hub();
    }
    let traffic = host.ringtap(&[
        "send",
        "-q",
        "-i",
        "tx0",
        "--method",
        "packet",
        "--rate",
        "200",
        "--dst-port",
        "53",
    ]);
    for round in 0..rounds() {
        let mut vm = host.attach();
        if round % 5 == 1 {
            // At some time of the plugging.
            std::thread::sleep(Duration::from_millis(to_u64(round) * 37 % 500));
        } else if !host.is_read(&mut vm, 1) {
            return host.finish_hub();
        }
        if round % 5 == 3 {
            host.kill_hub();
            host.wait_for_readers(1);
        }
        if matches!(round % 5, 0 | 3) {
            if !detach(vm) {
                say_skipped(HANGS);
                return host.finish_hub();
            }
            assert_eq!(host.held_by_qemu(), held, "round {round}");
        } else {
            if round % 5 == 4 {
                vm.signal(Signal::INT);
            }
            vm.signal(Signal::KILL);
            let _killed = vm.wait(GUEST_LIMIT);
        }
        host.wait_for_readers(0);
    }
    let mut vm = host.attach();
    if !host.is_read(&mut vm, 1) {
        return host.finish_hub();
    }
    traffic.interrupt();
    let _sent = traffic.wait(GUEST_LIMIT).success();
    host.send(1001, 1);
    let delivered = host.said("GUEST dns ")["delivered"].as_u64();
    assert!(delivered > Some(0), "{delivered:?}");
    host.wait_for_readers(1);
    // QEMU ends in the middle of a detach.
    vm.interrupt();
    host.machine.qemu.signal(Signal::KILL);
    let ended = vm.wait(GUEST_LIMIT);
    assert_eq!(ended.status.code(), Some(0), "{}", ended.stderr);
    assert_eq!(std::fs::read_dir(host.vms()).unwrap().count(), 0);
    host.wait_for_readers(0);
    host.finish_hub();
}

#[test]
fn readers_in_a_guest_that_migrates_stay_and_learn_of_the_gap() {
    require_root!();
    let plan = format!(
        "{NOBODY} ringtap count -q --json -i host:all udp port 53 >/dns & dns=$!
        ringtap record -q --json -w /file.pcapng -i host:all udp port 53 >/recorded & file=$!
        gate 1001 & first=$!
        gate 1002 & second=$!
        readers 4
        echo GUEST ready
        wait $first
        echo GUEST first
        wait $second
        status() {{ ringtap status --socket /run/ringtap/host/all.sock; }}
        until case \"$(status)\" in *'gap 1: '*) true ;; *) false ;; esac; do sleep 0.2; done
        echo \"GUEST status $(status)\"
        kill -INT $dns $file
        wait $dns $file
        case \"$(cat /file.pcapng)\" in *'gap of '*'after packet 101 of'*) echo GUEST comment ;; esac
        said() {{ while read -r line; do echo \"GUEST $1 $line\"; done; }}
        said counted </dns
        said recorded </recorded
        echo GUEST done"
    );
    let Some(machine) = boot_machine(&plan, &[], "") else {
        return;
    };
    let mut host = GuestAndHub::with("guest_migrates", machine, &["all"]);
    let here = host.attach();
    host.wait_for("GUEST ready");
    host.send(53, 100);
    host.send(1001, 1);
    host.wait_for("GUEST first");
    let first_hub = host.change_hub();
    let (destination, address) = host.machine.destination();
    let there = host.attach_later("vm2", &destination, &["all"]);
    let moved = host.vm(&["migrate-out", "vm1", "--to", &address]);
    let moved = moved.wait(GUEST_LIMIT);
    let ended = here.wait(GUEST_LIMIT);
    if ended.status.code() == Some(18) {
        say_skipped(HANGS);
        return host.finish_hub();
    }
    let (moved, _ended) = (moved.success(), ended.success());
    println!("{}", moved.stdout);
    let _source = std::mem::replace(&mut host.machine, destination);
    host.wait_for_readers(1);
    host.send(53, 70);
    host.send(1002, 1);
    let status = said_by(&host.machine, "GUEST status ");
    let notes = status["sources"][0]["notes"].to_string();
    println!("{notes}");
    // The guest had 100 packets and the first gate's.
    assert!(
        notes.contains("gap 1: after packet 101 of the capture before"),
        "{notes}"
    );
    host.wait_for("GUEST done");
    let console = host.console();
    for reader in ["GUEST counted ", "GUEST recorded "] {
        let lines = console.lines().filter_map(|line| line.split_once(reader));
        let lines = lines.map(|(_, json)| serde_json::from_str(json.trim()).unwrap());
        let lines: Vec<serde_json::Value> = lines.collect();
        let of = |kind: &str| {
            let mut found = lines.iter().filter(|line| line["type"] == kind);
            let one = found
                .next()
                .unwrap_or_else(|| panic!("{reader}{kind}: {lines:?}"));
            assert!(found.next().is_none(), "{lines:?}");
            one.clone()
        };
        assert_eq!(of("counters")["delivered"], 170);
        let gap = of("capture_gap");
        // Readers of port 53 and the gates had 101 packets of this lane before it.
        assert_eq!(
            (&gap["after"], &gap["sequence"]),
            (&101.into(), &101.into())
        );
        assert!(gap["duration_ns"].as_u64() > Some(0), "{gap}");
    }
    assert!(console.contains("GUEST comment"), "{console}");
    first_hub.interrupt();
    let end = first_hub.wait(GUEST_LIMIT).success();
    assert!(end.stdout.contains(": balanced"), "{}", end.stdout);
    host.finish(there);
}
