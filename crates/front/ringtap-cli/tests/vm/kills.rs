// SPDX-License-Identifier: MIT OR Apache-2.0
//! `kill -9` of host process, hub, agent and QEMU while a machine is attached, reads and is detached, under traffic.

use std::collections::BTreeSet;
use std::os::unix::net::UnixStream;
use std::time::Instant;

use ringtap_testkit::{GUEST_LIMIT, Running, require_root, say_skipped};
use rustix::process::Signal;

use crate::kit::{GuestAndHub, HANGS, boot_machine};

/// State of a host process in which a process is killed.
#[derive(Clone, Copy, Debug, PartialEq)]
enum State {
    /// No device is plugged.
    Connecting,
    /// The devices are plugged, and the agent maps them.
    Plugged,
    Delivering,
    Detaching,
}

const STATES: [State; 4] = [
    State::Connecting,
    State::Plugged,
    State::Delivering,
    State::Detaching,
];

/// What the guest does. It kills its agent when the first device is plugged, when all are, while it copies, and when
/// the first device is unplugged; `pass` waits until the next agent delivers a packet.
const PLAN: &str = r#"
devices() { set -- /sys/bus/pci/devices/*; plugged=$(($# - before)); }
until_devices() { until devices; [ $plugged $1 $2 ]; do sleep 0.02; done; }
detached() { until_devices -eq 0; echo GUEST detached $1; }
pass() {
    kill -9 $agent
    wait $agent
    echo GUEST killed $1
    agent
    gate 1002
    echo GUEST pass $1
}
before=3
devices
before=$plugged
setpriv --reuid 65534 --regid 65534 --clear-groups ringtap count -q --json -i host:all udp port 53 >/dns & dns=$!
gate 1001
# Time for packets of this subscription.
sleep 1
kill -INT $dns
wait $dns
echo "GUEST dns $(cat /dns)"
detached 0
until_devices -ge 1
pass 1
detached 1
until_devices -eq 3
pass 2
detached 2
ringtap count -q -i host:all >/dev/null &
gate 1003
pass 3
until_devices -lt 3
pass 4
ringtap count -q -i host:all >/dev/null
"#;

/// The machine, and a reader beside it.
struct Kills {
    host: GuestAndHub,
    /// A reader on the host, which only the end of the hub ends.
    other: Running,
    /// Memory of devices that QEMU has without a host process.
    held: usize,
    begin: Instant,
}

impl Kills {
    fn report(&self, what: &str) {
        println!("{:5.1} s: {what}", self.begin.elapsed().as_secs_f64());
    }

    /// Attaches the machine until it is in this state; `None` if the emulated guest's kernel did not come back from
    /// an unplug.
    fn reach(&self, state: State) -> Option<Running> {
        let mut vm = self.host.attach();
        let until = Instant::now() + GUEST_LIMIT;
        let is_reached = |vm: &Running| match state {
            State::Connecting => UnixStream::connect(self.host.vms().join("vm1.sock")).is_ok(),
            State::Plugged => vm.stderr().contains("attached, for groups"),
            State::Delivering | State::Detaching => self.host.readers() == 2,
        };
        while !is_reached(&vm) {
            if !vm.is_running() {
                let ended = vm.wait(GUEST_LIMIT);
                let (stderr, console) = (ended.stderr, self.host.console());
                assert_eq!(ended.status.code(), Some(18), "{stderr}\n{console}");
                return None;
            }
            assert!(Instant::now() < until, "{state:?}: {}", self.host.console());
            std::thread::sleep(std::time::Duration::from_millis(5));
        }
        if state == State::Detaching {
            vm.interrupt();
        }
        Some(vm)
    }

    fn kill_host_process(&self, state: State) -> Option<()> {
        let vm = self.reach(state)?;
        vm.signal(Signal::KILL);
        let _killed = vm.wait(GUEST_LIMIT);
        self.host.wait_for_readers(1);
        Some(())
    }

    fn kill_hub(&mut self, state: State) -> Option<()> {
        let mut vm = self.reach(state)?;
        self.host.kill_hub();
        let other = std::mem::replace(&mut self.other, self.host.host_reader("all"));
        let _balanced = counters_of(other, 1);
        match state {
            // It may have asked the hub before or after.
            State::Connecting => {}
            State::Detaching => return self.end(vm, &[0]),
            State::Plugged | State::Delivering => {
                if !self.host.is_read(&mut vm, 2) {
                    return None;
                }
            }
        }
        vm.interrupt();
        self.end(vm, &[0, 1])
    }

    fn attach_and_detach(&self) -> Option<()> {
        let vm = self.reach(State::Delivering)?;
        vm.interrupt();
        self.end(vm, &[0])?;
        self.report("attached and detached");
        Some(())
    }

    /// Waits for the end of a host process, after which nothing of it may be left.
    fn end(&self, vm: Running, statuses: &[i32]) -> Option<()> {
        let ended = vm.wait(GUEST_LIMIT);
        let status = ended.status.code()?;
        if status == 18 {
            return None;
        }
        assert!(statuses.contains(&status), "{status}: {}", ended.stderr);
        assert_eq!(self.host.held_by_qemu(), self.held);
        self.is_alone();
        Some(())
    }

    /// Checks that only the hub and its reader are left, and no socket of a machine.
    fn is_alone(&self) {
        self.host.wait_for_readers(1);
        let sockets = std::fs::read_dir(self.host.vms()).unwrap();
        assert_eq!(sockets.count(), 0);
        let ours = BTreeSet::from([self.host.hub_pid(), self.other.pid()]);
        assert_eq!(self.host.processes(), ours);
    }

    /// All rounds; `None` if the emulated guest's kernel did not come back from an unplug.
    fn run(&mut self) -> Option<()> {
        // The agent knows the group from then on.
        self.attach_and_detach()?;
        for state in STATES {
            self.kill_host_process(state)?;
            self.report(&format!("host process killed: {state:?}"));
        }
        self.attach_and_detach()?;
        for state in STATES {
            self.kill_hub(state)?;
            self.report(&format!("hub killed: {state:?}"));
        }
        self.end_first_reader()?;
        for round in 1..=4 {
            self.kill_agent(round)?;
            self.report(&format!("agent killed: {round}"));
        }
        self.kill_qemu()?;
        self.report("QEMU killed");
        Some(())
    }

    /// Checks that the guest's first reader still reads, and ends it.
    fn end_first_reader(&self) -> Option<()> {
        let vm = self.reach(State::Delivering)?;
        self.open_gate(1001, "GUEST dns ");
        let delivered = self.host.said("GUEST dns ")["delivered"].as_u64();
        assert!(delivered > Some(0), "{delivered:?}");
        vm.interrupt();
        self.end(vm, &[0])?;
        self.host.wait_for("GUEST detached");
        Some(())
    }

    /// The guest kills its agent in this round of [`PLAN`], and the next agent delivers.
    fn kill_agent(&self, round: usize) -> Option<()> {
        if round < 4 {
            self.host.wait_for(&format!("GUEST detached {}", round - 1));
        } else {
            // When the machine was detached after the round before.
            self.host.wait_for("GUEST killed 4");
        }
        let mut vm = self.reach(State::Plugged)?;
        if round == 3 {
            self.is_read(&mut vm)?;
            self.open_gate(1003, "GUEST killed 3");
        }
        self.host.wait_for(&format!("GUEST killed {round}"));
        // A subscription of the agent that was killed may still be there.
        self.host.wait_for_readers(1);
        self.is_read(&mut vm)?;
        self.open_gate(1002, &format!("GUEST pass {round}"));
        vm.interrupt();
        self.end(vm, &[0])
    }

    /// Sends packets to a port until the guest, which waits for one, says this. The hub has a reader for the guest
    /// before the agent has attached the reader in the guest: a packet in between is nobody's.
    fn open_gate(&self, port: u16, text: &str) {
        let until = Instant::now() + GUEST_LIMIT;
        while !self.host.console().contains(text) {
            assert!(Instant::now() < until, "{text}: {}", self.host.console());
            self.host.send(port, 1);
            std::thread::sleep(std::time::Duration::from_millis(200));
        }
    }

    /// Waits until the guest reads.
    fn is_read(&self, vm: &mut Running) -> Option<()> {
        self.host.is_read(vm, 2).then_some(())
    }

    /// QEMU is killed while its machine is attached, and while its machine reads.
    fn kill_qemu(&self) -> Option<()> {
        let vm = self.reach(State::Delivering)?;
        let second = boot_machine("", &[], "").expect("the first machine has booted");
        let of_second = self.host.attach_as("vm2", &second, &["all"]);
        of_second.wait_for_stderr("attached, for groups", GUEST_LIMIT);
        for (vm, machine) in [(of_second, &second), (vm, &self.host.machine)] {
            machine.qemu.signal(Signal::KILL);
            let ended = vm.wait(GUEST_LIMIT);
            assert_eq!(ended.status.code(), Some(0), "{}", ended.stderr);
            assert!(ended.stderr.contains("QEMU has ended"), "{}", ended.stderr);
        }
        self.is_alone();
        Some(())
    }
}

/// The counters of a reader that ends with this status.
fn counters_of(reader: Running, status: i32) -> serde_json::Value {
    let ended = reader.wait(GUEST_LIMIT);
    assert_eq!(ended.status.code(), Some(status), "{}", ended.stderr);
    let last = ended.stdout.lines().last().unwrap_or_default();
    let counters: serde_json::Value = serde_json::from_str(last).unwrap();
    assert_eq!(counters["balanced"], true, "{counters}");
    counters
}

#[test]
fn kills_in_every_state_leave_nothing_and_cost_others_no_packet() {
    require_root!();
    let Some(machine) = boot_machine(PLAN, &[], "") else {
        return;
    };
    let host = GuestAndHub::with("guest_kills", machine, &["all"]);
    let other = host.host_reader("all");
    host.wait_for_readers(1);
    let mut kills = Kills {
        held: host.held_by_qemu(),
        begin: Instant::now(),
        other,
        host,
    };
    let words = "send -q -i tx0 --method packet --rate 200 --dst-port 53";
    let words: Vec<_> = words.split(' ').collect();
    let traffic = kills.host.ringtap(&words);
    if kills.run().is_none() {
        say_skipped(HANGS);
    }
    traffic.interrupt();
    let _sent = traffic.wait(GUEST_LIMIT).success();
    kills.other.interrupt();
    let counters = counters_of(kills.other, 0);
    let mut lost = counters["dropped"].as_object().unwrap().values();
    assert!(lost.all(|packets| *packets == 0), "{counters}");
    assert!(counters["delivered"].as_u64() > Some(0), "{counters}");
    kills.host.finish_hub();
}
