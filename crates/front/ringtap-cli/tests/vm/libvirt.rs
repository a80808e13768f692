// SPDX-License-Identifier: MIT OR Apache-2.0
//! A domain of libvirt, whose daemon and QEMU are another user's, in another PID namespace.

use std::process::Command;

use ringtap_testkit::{
    DOMAIN, GUEST_LIMIT, LibvirtDomain, Namespace, Running, require_root, say_skipped,
};
use tempfile::TempDir;

use crate::kit::{BINARY, inject_port, with_guest_files};

#[test]
fn a_domain_of_libvirt_reads_a_group_and_is_left_as_it_was() {
    require_root!();
    let plan = "gate 1001; echo GUEST got the packet; gate 1002; echo GUEST got another";
    let Some(domain) = with_guest_files(plan, LibvirtDomain::boot) else {
        return;
    };
    let folder = TempDir::new().unwrap();
    let net = Namespace::with_veth("libvirt_domain");
    let path = |name: &str| folder.path().join(name);
    let mut command = net.command(BINARY);
    command.args(["hub", "-i", "tap:rx0?direction=in", "-g", "all", "--socket"]);
    command.arg(path("hub.sock"));
    let hub = Running::start(command);
    hub.wait_for_stderr("ringtap: hub of", GUEST_LIMIT);
    let attach_as = |name: &str| {
        let mut command = Command::new(BINARY);
        command.args(["vm", "attach", "--group", "all", "--memory", "16MiB"]);
        command.args(["--name", name, "--libvirt", DOMAIN, "--socket"]);
        command
            .arg(path("hub.sock"))
            .arg("--folder")
            .arg(path("vm"));
        command.env("LIBVIRT_DEFAULT_URI", &domain.uri);
        Running::start(command)
    };
    let attach = || attach_as("vm1");
    let virsh = |args: &[&str]| {
        let mut command = Command::new("virsh");
        command.args(["-c", &domain.uri]).args(args);
        Running::start(command).wait(GUEST_LIMIT).success().stdout
    };
    let vm = attach();
    vm.wait_for_stderr("the agent in the guest has connected", GUEST_LIMIT);
    let console = || domain.console.stdout();
    let send_until = |port, text| {
        let deadline = std::time::Instant::now() + GUEST_LIMIT;
        while !console().contains(text) {
            assert!(std::time::Instant::now() < deadline, "{}", console());
            // Packets before the guest's reader are not for it.
            inject_port(&net, port, 1);
        }
    };
    send_until(1001, "GUEST got the packet");
    let refused = attach_as("vm2").wait(GUEST_LIMIT);
    assert_eq!(refused.status.code(), Some(20), "{}", refused.stderr);
    // The machine runs on without its daemon, and so does the process for it.
    domain.restart_daemon();
    vm.wait_for_stderr("does not answer: the VM runs on", GUEST_LIMIT);
    send_until(1002, "GUEST got another");
    vm.wait_for_stderr("connected with the VM's QEMU again", GUEST_LIMIT);
    vm.interrupt();
    let ended = vm.wait(GUEST_LIMIT);
    if ended.status.code() == Some(18) {
        return say_skipped("the emulated guest's kernel did not come back from an unplug");
    }
    assert!(ended.status.success(), "{}", ended.stderr);
    let list = r#"{"execute":"qom-list","arguments":{"path":"/machine/peripheral"}}"#;
    let left = virsh(&["qemu-monitor-command", DOMAIN, list]);
    assert!(!left.contains("vnplug"), "{left}");
    let vm = attach();
    vm.wait_for_stderr("attached, for groups all", GUEST_LIMIT);
    virsh(&["destroy", DOMAIN]);
    let ended = vm.wait(GUEST_LIMIT);
    assert!(ended.stderr.contains("QEMU has ended"), "{}", ended.stderr);
    hub.interrupt();
    let end = hub.wait(GUEST_LIMIT).success();
    assert!(end.stdout.contains(": balanced"), "{}", end.stdout);
}
