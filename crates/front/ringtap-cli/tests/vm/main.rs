// SPDX-License-Identifier: MIT OR Apache-2.0
//! Programs in a guest of an unmodified QEMU read the host's hub as `host:GROUP`.
#![allow(clippy::unwrap_used, reason = "in a test a panic is the report")]

mod account;
mod applications;
mod hostile;
mod kills;
mod kit;
mod libvirt;
mod life;
mod lines;
mod rules;
mod two;

use kit::{GuestAndHub, NOBODY};
use ringtap_testkit::{GUEST_LIMIT, require_root, say_skipped};
use rustix::process::Signal;

#[test]
fn programs_in_a_guest_get_exactly_the_packets_of_their_filters() {
    require_root!();
    let plan = format!(
        "{NOBODY} ringtap count -q --json -i host:all udp port 53 >/dns & dns=$!
        {NOBODY} ringtap count -q --json -i host:all udp port 99 >/other & other=$!
        ringtap count -q -i host:all >/dev/null & victim=$!
        gate 1001 & first=$!
        readers 4
        echo GUEST ready
        wait $first
        kill -9 $victim
        readers 2
        gate 1002 & second=$!
        export RINGTAP_PCAP=/bin/libringtap_pcap.so
        {NOBODY} ringtap exec -q -- tcpdump -c 20 -w - -i host:all udp port 53 >/dump & dump=$!
        readers 4
        echo GUEST second
        wait $second $dump
        kill -INT $dns $other
        wait $dns $other
        echo \"GUEST dns $(cat /dns)\"
        echo \"GUEST other $(cat /other)\"
        ringtap count -q --json -r /dump >/dumped
        echo \"GUEST dump $(cat /dumped)\"
        ringtap guest --status
        setpriv --reuid 1000 --clear-groups ringtap count -i host:all || echo GUEST stranger refused
        ringtap count -i host:none 2>&1 || echo GUEST no such group
        echo GUEST done"
    );
    let Some(host) = GuestAndHub::boot("guest_programs", &plan) else {
        return;
    };
    let vm = host.attach();
    host.wait_for("GUEST ready");
    host.send(53, 300);
    host.send(99, 200);
    host.send(7, 100);
    let taken = host.wanted();
    assert_eq!(taken, 600, "one reader in the guest wants everything");
    host.send(1001, 1);
    host.wait_for("GUEST second");
    host.wait_until_unwanted(7);
    let before = host.wanted();
    host.send(53, 50);
    host.send(7, 400);
    host.send(99, 60);
    host.send(1002, 1);
    host.wait_for("GUEST done");
    // All of the guest's filters are one in the host's kernel.
    assert_eq!(host.wanted() - before, 50 + 60 + 1);
    let delivered = |reader: &str| host.said(reader)["delivered"].as_u64().unwrap();
    assert_eq!(delivered("GUEST dns "), 350);
    assert_eq!(delivered("GUEST other "), 260);
    assert_eq!(delivered("GUEST dump "), 20, "{}", host.console());
    for line in [
        "host: attached",
        // As the host says, which has no KVM.
        "signals as messages: the host interrupts only guests that run with KVM",
        "start the agent in this virtual machine with `ringtap guest --users 1000`",
        "GUEST stranger refused",
        "GUEST no such group",
    ] {
        assert!(
            host.machine.qemu.stdout().contains(line),
            "{line}: {}",
            host.console()
        );
    }
    host.finish(vm);
}

#[test]
fn readers_in_a_guest_outlive_the_host_process_and_others_outlive_agent_and_qemu() {
    require_root!();
    let plan = format!(
        "{NOBODY} ringtap count -q --json -i host:all udp port 53 >/dns & dns=$!
        gate 1001 & first=$!
        gate 1002 & second=$!
        readers 3
        echo GUEST ready
        wait $first
        echo GUEST first
        wait $second
        ringtap guest --status
        until case \"$(ringtap status --socket /run/ringtap/host/all.sock)\" in
            *'gap 1'*) true ;; *) false ;; esac; do sleep 0.2; done
        kill -INT $dns
        wait $dns
        echo \"GUEST dns $(cat /dns)\"
        gate 1003 & orphan=$!
        readers 1
        kill -9 $agent
        wait $orphan || echo GUEST the hub of a reader is gone
        ringtap guest --status || echo GUEST sees no agent
        agent
        gate 1004 & third=$!
        readers 1
        echo GUEST again
        wait $third
        echo GUEST third
        gate 1005"
    );
    let Some(host) = GuestAndHub::boot("guest_outlives", &plan) else {
        return;
    };
    let vm = host.attach();
    host.wait_for("GUEST ready");
    host.send(53, 100);
    host.send(1001, 1);
    host.wait_for("GUEST first");
    vm.interrupt();
    let ended = vm.wait(GUEST_LIMIT);
    if ended.status.code() == Some(18) {
        say_skipped("the emulated guest's kernel did not come back from an unplug");
        return host.finish_hub();
    }
    assert!(ended.status.success(), "{}", ended.stderr);
    host.wait_for_readers(0);
    host.send(53, 10);
    let vm = host.attach();
    host.wait_for_readers(1);
    host.send(53, 70);
    host.send(1002, 1);
    host.wait_for("GUEST dns ");
    assert_eq!(host.said("GUEST dns ")["delivered"], 170);
    host.wait_for("GUEST again");
    for line in [
        "the agent of this virtual machine ended: start `ringtap guest` again",
        "GUEST the hub of a reader is gone",
        "no agent runs: start `ringtap guest` as root",
        "GUEST sees no agent",
    ] {
        assert!(host.console().contains(line), "{line}: {}", host.console());
    }
    host.send(1004, 1);
    host.wait_for("GUEST third");
    host.wait_for_readers(1);
    host.machine.qemu.signal(Signal::KILL);
    let ended = vm.wait(GUEST_LIMIT);
    assert!(ended.stderr.contains("vm1"), "{}", ended.stderr);
    host.wait_for_readers(0);
    host.finish_hub();
}
