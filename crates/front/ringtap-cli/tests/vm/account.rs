// SPDX-License-Identifier: MIT OR Apache-2.0
//! Hub, host process and guest account for the same packets, through detaches, migrations and ends of the hub.

use std::time::Duration;

use ringtap_testkit::{GUEST_LIMIT, Running, require_root, say_skipped};
use rustix::process::Signal;

use crate::kit::{GuestAndHub, HANGS, NOBODY, boot_machine};

/// Readers of the guest that come and go, so that the filter at the hub changes, also just before a detach. The
/// guest prints its account every second.
const CHANGING_READERS: &str = "$NOBODY ringtap count -q --json -i host:all udp port 53 >/dns & dns=$!
        while true; do $NOBODY ringtap count -q --duration 1 -i host:all udp port 99; done >/dev/null &
        echo GUEST ready
        while true; do
            ringtap guest --status
            echo \"GUEST status $(ringtap status --socket /run/ringtap/host/all.sock)\"
            sleep 1
        done";

/// `RINGTAP_VM_ROUNDS=50` sets another number of rounds.
fn rounds(usual: u32) -> u32 {
    let asked = std::env::var("RINGTAP_VM_ROUNDS").ok();
    asked.map_or(usual, |text| {
        text.parse().expect("RINGTAP_VM_ROUNDS is a number")
    })
}

/// Packets of a guest, by its own account or by that of a host process.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Account {
    /// Packets that the guest read.
    read: u64,
    /// Packets that were lost for it.
    lost: u64,
}

impl Account {
    fn add(&mut self, more: Account) {
        self.read += more.read;
        self.lost += more.lost;
    }
}

/// The number before this text.
fn number_before(text: &str, line: &str) -> u64 {
    let (before, _) = line.split_once(text).unwrap_or_else(|| panic!("{line}"));
    let number = before.rsplit(' ').next().unwrap_or_default();
    let number = number.replace(',', "");
    number.parse().unwrap_or_else(|_| panic!("{line}"))
}

/// The account that the guest prints from now on, again and again.
fn of_guest(host: &GuestAndHub) -> Account {
    const LINE: &str = " packets from the host, ";
    let seen = host.console().matches(LINE).count();
    let deadline = std::time::Instant::now() + GUEST_LIMIT;
    loop {
        let console = host.console();
        let whole = console.rsplit_once('\n').map_or("", |(whole, _)| whole);
        // The first one may have been under way.
        if whole.matches(LINE).count() >= seen + 2 {
            let line = whole.lines().rfind(|line| line.contains(LINE)).unwrap();
            return Account {
                read: number_before(LINE, line),
                lost: number_before(" lost there", line),
            };
        }
        assert!(std::time::Instant::now() < deadline, "{console}");
        std::thread::sleep(Duration::from_millis(50));
    }
}

/// Counters that the process of a machine printed at its end.
struct HostEnd {
    account: Account,
    /// Packets that the process copied into the guest's memory.
    copied: u64,
    /// Packets that the hub delivered.
    delivered: u64,
}

/// What the process of a machine printed at its end; `None` if the emulated guest's kernel did not come back from an
/// unplug.
fn of_host(vm: Running) -> Option<HostEnd> {
    let ended = vm.wait(GUEST_LIMIT);
    if ended.status.code() == Some(18) {
        say_skipped(HANGS);
        return None;
    }
    assert!(ended.status.success(), "{}", ended.stderr);
    let mut lines = ended.stderr.lines();
    let line = lines.rfind(|line| line.contains(" packets copied, "));
    let line = line.unwrap_or_else(|| panic!("{}", ended.stderr));
    let number = |text| number_before(text, line);
    let copied = number(" packets copied, ");
    let not_taken = number(" copied but not read");
    let no_room = number(" lost because the guest");
    let account = Account {
        read: copied - not_taken,
        lost: number(" lost before the hub") + number(" lost at the hub") + no_room + not_taken,
    };
    Some(HostEnd {
        account,
        copied,
        delivered: copied + no_room,
    })
}

/// Starts traffic to two ports.
fn traffic(host: &GuestAndHub) -> [Running; 2] {
    let send = |rate, port| {
        let words = ["send", "-q", "-i", "tx0", "--method", "packet", "--rate"];
        host.ringtap(&[&words[..], &[rate, "--dst-port", port]].concat())
    };
    [send("2000", "53"), send("500", "99")]
}

/// Ends the traffic and the hub.
fn finish(host: GuestAndHub, traffic: [Running; 2]) {
    for traffic in traffic {
        traffic.interrupt();
        let _sent = traffic.wait(GUEST_LIMIT).success();
    }
    host.finish_hub();
}

#[test]
fn hub_host_and_guest_agree_on_each_packet_of_rounds_of_detach_under_traffic() {
    require_root!();
    let plan = CHANGING_READERS.replace("$NOBODY", NOBODY);
    let Some(machine) = boot_machine(&plan, &[], "") else {
        return;
    };
    let host = GuestAndHub::with("guest_account", machine, &["all"]);
    let traffic = traffic(&host);
    let (mut account, mut delivered) = (Account::default(), 0);
    for round in 0..rounds(6) {
        let mut vm = host.attach();
        if !host.is_read(&mut vm, 1) {
            return host.finish_hub();
        }
        std::thread::sleep(Duration::from_millis(u64::from(round) * 137 % 1000));
        vm.interrupt();
        let Some(end) = of_host(vm) else {
            return host.finish_hub();
        };
        account.add(end.account);
        delivered += end.delivered;
        host.wait_for_readers(0);
        assert_eq!(host.delivered_to_guests(), delivered, "round {round}");
        let guest = of_guest(&host);
        assert_eq!(guest, account, "round {round}: {}", host.console());
        println!("round {round}: {guest:?}, {delivered} delivered by the hub");
    }
    assert!(account.read > 0);
    finish(host, traffic);
}

#[test]
fn hub_host_and_guest_agree_on_each_packet_of_migrations_under_traffic() {
    require_root!();
    let plan = CHANGING_READERS.replace("$NOBODY", NOBODY);
    let Some(machine) = boot_machine(&plan, &[], "") else {
        return;
    };
    let mut host = GuestAndHub::with("guest_moves", machine, &["all"]);
    let traffic = traffic(&host);
    let (mut account, mut delivered) = (Account::default(), 0);
    let mut here = host.attach();
    let mut gaps = Vec::new();
    for round in 1..=rounds(1) {
        if !host.is_read(&mut here, 1) {
            return host.finish_hub();
        }
        std::thread::sleep(Duration::from_millis(u64::from(round) * 137 % 1000));
        let (destination, address) = host.machine.destination();
        let there = host.attach_later(&format!("vm{}", round + 1), &destination, &["all"]);
        let name = format!("vm{round}");
        let moved = host.vm(&["migrate-out", &name, "--to", &address]);
        let moved = moved.wait(GUEST_LIMIT);
        let Some(end) = of_host(here) else {
            return host.finish_hub();
        };
        let _moved = moved.success();
        account.add(end.account);
        delivered += end.delivered;
        gaps.push(format!(
            "gap {round}: after packet {} of the capture before",
            end.copied
        ));
        println!(
            "migration {round}: {:?}, {} delivered by the hub",
            end.account, end.delivered
        );
        let _source = std::mem::replace(&mut host.machine, destination);
        here = there;
    }
    if !host.is_read(&mut here, 1) {
        return host.finish_hub();
    }
    host.wait_for(gaps.last().expect("a migration"));
    here.interrupt();
    let Some(end) = of_host(here) else {
        return host.finish_hub();
    };
    account.add(end.account);
    host.wait_for_readers(0);
    assert_eq!(host.delivered_to_guests(), delivered + end.delivered);
    assert_eq!(of_guest(&host), account, "{}", host.console());
    let console = host.console();
    for gap in &gaps {
        assert!(console.contains(gap), "{gap}: {console}");
    }
    finish(host, traffic);
}

#[test]
fn readers_in_a_guest_get_packets_again_however_the_hub_ended() {
    require_root!();
    const SIGNALS: [Signal; 3] = [Signal::TERM, Signal::INT, Signal::KILL];
    let plan = format!(
        "{NOBODY} ringtap count -q --json -i host:all udp port 53 >/dns & dns=$!
        gate 1001 & last=$!
        readers 2
        echo GUEST ready
        while true; do ringtap guest --status; sleep 1; done & status=$!
        wait $last
        kill $status
        kill -INT $dns
        wait $dns
        while read -r line; do echo \"GUEST counted $line\"; done </dns
        echo GUEST done"
    );
    let Some(machine) = boot_machine(&plan, &[], "") else {
        return;
    };
    let mut host = GuestAndHub::with("guest_hub_ends", machine, &["all"]);
    let vm = host.attach();
    host.wait_for("GUEST ready");
    host.wait_for_readers(1);
    let mut sent = 0;
    for signal in SIGNALS {
        host.send(53, 10);
        sent += 10;
        while of_guest(&host).read < sent {}
        host.restart_hub(signal);
        // The relay of the hub before is not this one's.
        host.wait_for_readers(1);
        println!("after {signal:?}: read again");
    }
    host.send(53, 10);
    host.send(1001, 1);
    host.wait_for("GUEST done");
    let console = host.console();
    let lines = console
        .lines()
        .filter_map(|line| line.split_once("GUEST counted "));
    let lines = lines.map(|(_, json)| serde_json::from_str(json.trim()).unwrap());
    let lines: Vec<serde_json::Value> = lines.collect();
    let of = |kind: &'static str| {
        let lines = lines.iter();
        lines.filter(move |line| line["type"] == kind)
    };
    let gaps: Vec<_> = of("capture_gap")
        .map(|gap| (&gap["sequence"], &gap["after"]))
        .collect();
    let [one, two, three, ten] = [10, 20, 30, 10].map(serde_json::Value::from);
    assert_eq!(
        gaps,
        [(&one, &ten), (&two, &ten), (&three, &ten)],
        "{lines:?}"
    );
    let counters: Vec<_> = of("counters").collect();
    assert_eq!(counters.len(), 1);
    assert_eq!(counters[0]["delivered"], 40, "{lines:?}");
    let listed = host.vm(&["list"]).wait(GUEST_LIMIT).success().stdout;
    assert!(listed.contains("41 packets copied"), "{listed}");
    host.finish(vm);
}
