// SPDX-License-Identifier: MIT OR Apache-2.0
//! Two applications of vNPlug, each with a process on the host and one in the guest, share a guest.

use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

use ringtap_testkit::{GUEST_LIMIT, Running, require_root, say_skipped};
use rustix::process::Signal;
use tempfile::TempDir;

use crate::kit::{BINARY, GuestAndHub, HANGS, boot_machine, detach};

/// The guest's part of `telemetry` prints this at each change of the host's figures.
const CHANGE: &str = "change, [load";

const PLAN: &str = r#"
while true; do telemetry guest; sleep 0.1; done &
gate 1001; echo GUEST got 1
gate 1002; echo GUEST got 2
gate 1003; echo GUEST got 3
"#;

/// The host's part of `telemetry`.
fn telemetry(qmp: &Path) -> Running {
    let mut command = Command::new(Path::new(BINARY).with_file_name("examples/telemetry"));
    command.arg("host").arg(qmp);
    Running::start(command)
}

/// Waits until the guest has seen further changes.
fn wait_for_changes(host: &GuestAndHub, telemetry: &mut Running) {
    let seen = || host.console().matches(CHANGE).count();
    let (before, deadline) = (seen(), Instant::now() + GUEST_LIMIT);
    while seen() < before + 2 {
        let is_served = telemetry.is_running() && Instant::now() < deadline;
        assert!(is_served, "{}: {}", telemetry.stderr(), host.console());
        std::thread::sleep(Duration::from_millis(20));
    }
}

/// Sends a packet for the guest's reader number `at`; `false` if the emulated guest's kernel does not come back from
/// an unplug.
fn delivers(host: &GuestAndHub, vm: &mut Running, at: u16) -> bool {
    let (text, deadline) = (format!("GUEST got {at}"), Instant::now() + GUEST_LIMIT);
    let is_read = host.is_read(vm, 1);
    while is_read && !host.console().contains(&text) {
        assert!(Instant::now() < deadline, "{text}: {}", host.console());
        // Packets before the guest's reader are not for it.
        host.send(1000 + at, 1);
        std::thread::sleep(Duration::from_millis(100));
    }
    is_read
}

#[test]
fn telemetry_and_attach_share_a_guest_as_two_processes_and_each_has_one_owner() {
    require_root!();
    let folder = TempDir::new().unwrap();
    let qmp = |number: u32| folder.path().join(format!("qmp{number}"));
    let sockets = [1, 2].map(|number| format!("unix:{},server=on,wait=off", qmp(number).display()));
    let more = ["5", "6", "7"].map(|port| format!("pcie-root-port,id=p{port},chassis={port}"));
    // So that memory is mapped as ordinary memory.
    let mut options = vec!["-global", "pcie-root-port.pref64-reserve=4G"];
    options.extend(["-device", "intel-iommu,intremap=on"]);
    options.extend(sockets.iter().flat_map(|socket| ["-qmp", &**socket]));
    options.extend(more.iter().flat_map(|port| ["-device", &**port]));
    let Some(machine) = boot_machine(PLAN, &options, "intel_iommu=on iommu=pt") else {
        return;
    };
    let host = GuestAndHub::with("guest_applications", machine, &["all"]);
    let mut vm = host.attach();
    let mut figures = telemetry(&qmp(1));
    wait_for_changes(&host, &mut figures);

    // Neither application has two owners: the second one of each is refused, and changes nothing.
    let refused = host.attach_by("vm2", &qmp(2)).wait(GUEST_LIMIT);
    let text = format!("process {} serves this VM", vm.pid());
    assert_eq!(refused.status.code(), Some(20), "{}", refused.stderr);
    assert!(refused.stderr.contains(&text), "{}", refused.stderr);
    assert!(
        refused.stderr.contains("attached as vm1"),
        "{}",
        refused.stderr
    );
    let refused = telemetry(&qmp(2)).wait(GUEST_LIMIT);
    assert!(
        !refused.status.success() && refused.stderr.contains("Owned"),
        "{}",
        refused.stderr
    );
    if !delivers(&host, &mut vm, 1) {
        return host.finish_hub();
    }
    wait_for_changes(&host, &mut figures);

    // A process that is killed has a successor at once, which takes away only what the killed one left.
    figures.signal(Signal::KILL);
    let _killed = figures.wait(GUEST_LIMIT);
    let mut figures = telemetry(&qmp(1));
    wait_for_changes(&host, &mut figures);
    if !delivers(&host, &mut vm, 2) {
        return host.finish_hub();
    }
    vm.signal(Signal::KILL);
    let _killed = vm.wait(GUEST_LIMIT);
    host.wait_for_readers(0);
    let mut vm = host.attach();
    if !delivers(&host, &mut vm, 3) {
        return host.finish_hub();
    }
    wait_for_changes(&host, &mut figures);
    let console = host.console();
    assert!(!console.contains("x86/PAT"), "{console}");
    if !detach(vm) {
        say_skipped(HANGS);
        return host.finish_hub();
    }
    wait_for_changes(&host, &mut figures);
    host.finish_hub();
}
