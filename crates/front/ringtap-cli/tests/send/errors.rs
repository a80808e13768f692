// SPDX-License-Identifier: MIT OR Apache-2.0
//! What a user meets when something is wrong, and that nothing is left behind.

use std::process::Command;

use ringtap_testkit::{LIMIT, Namespace, PublicProgram, Running, require_root, require_tool};
use rustix::process::Signal;
use tempfile::TempDir;

use crate::wire::{RINGTAP, network, received, send, start};

/// Runs `ringtap send ARGS`, which must fail, and gives what it said.
fn refused(net: &Namespace, args: &str) -> String {
    let mut all = vec!["send"];
    all.extend(args.split_whitespace());
    let end = net.run(RINGTAP, &all);
    assert!(!end.status.success(), "{args} succeeded: {}", end.stdout);
    assert!(!end.stderr.contains("panicked"), "{}", end.stderr);
    end.stderr
}

#[test]
fn wrong_arguments_are_told_with_what_would_be_right() {
    require_root!();
    let net = Namespace::with_veth("send_wrong");
    for (args, says) in [
        ("-i tx1", "did you mean \"tx0\""),
        ("-i tx0 --rate 1M", "add pps or bps"),
        ("-i tx0 --rate fast", "use packets per second"),
        ("-i tx0 --size 40", "the least is 64"),
        ("-i tx0 --size 64 --ipv6 --tcp --stamp", "the least is 96"),
        ("-i tx0 --size 3000", "ip link set tx0 mtu 2982"),
        ("-i tx0 --vlan 4095", "0 to 4094"),
        ("-i tx0 --vlan 1,2,3", "at most two"),
        ("-i tx0 --flows 0", "1 to"),
        ("-i tx0 --src-ip 10.0.0.1 --dst-ip ::1", "both IPv6"),
        ("-i tx0 --src-mac 1:2:3", "six hexadecimal bytes"),
        ("-i tx0 --duration 0", "above 0"),
        ("-i tx0 --cpu 4000", "/sys/devices/system/cpu/online"),
        ("-i tx0 -r /nonexistent.pcap", "/nonexistent.pcap"),
        ("-i tx0 -r /dev/null --size 100", "cannot be used with"),
        ("-i tx0 --loop", "--read"),
        ("-i tx0 -r /dev/null --speed 10kpps", "use --rate"),
        ("-i tx0 --imix --size 100", "cannot be used with"),
    ] {
        let said = refused(&net, args);
        assert!(said.contains(says), "{args}: {said}");
    }
}

#[test]
fn files_that_cannot_be_sent_are_refused_with_the_reason() {
    require_root!();
    let net = Namespace::with_veth("send_files");
    let folder = TempDir::new().unwrap();
    let file = |name: &str, link_type: u8, packet: &[u8]| {
        let mut bytes = vec![0xd4, 0xc3, 0xb2, 0xa1, 2, 0, 4, 0, 0, 0, 0, 0, 0, 0, 0, 0];
        bytes.extend_from_slice(&[0, 0, 1, 0, link_type, 0, 0, 0]);
        bytes.extend_from_slice(packet);
        let path = folder.path().join(name);
        std::fs::write(&path, bytes).unwrap();
        path.display().to_string()
    };
    let record = [
        0, 0, 0, 0, 0, 0, 0, 0, 4, 0, 0, 0, 4, 0, 0, 0, 0x45, 0, 0, 4,
    ];
    let empty = file("empty.pcap", 1, &[]);
    let raw_ip = file("raw.pcap", 101, &record);
    for (args, says) in [
        (format!("-r {empty}"), "contains no packet"),
        (format!("-r {empty} --loop"), "contains no packet"),
        (format!("-r {raw_ip}"), "link type 101"),
    ] {
        let said = refused(&net, &format!("-i tx0 {args}"));
        assert!(said.contains(says), "{args}: {said}");
    }
}

#[test]
fn an_interface_that_is_down_is_named_with_the_command_that_helps() {
    require_root!();
    let net = Namespace::with_veth("send_down");
    net.ip(&["link", "set", "tx0", "down"]);
    let said = refused(&net, "-i tx0");
    assert!(said.contains("ip link set tx0 up"), "{said}");
}

#[test]
fn a_veth_whose_peer_takes_no_live_frames_falls_back_and_says_why() {
    require_root!();
    require_tool!("ethtool");
    let net = Namespace::with_veth("send_no_gro");
    let _ = net.run("ethtool", &["-K", "rx0", "gro", "off"]).success();
    let end = send(&net, "-c 100 --json --quiet").success();
    assert!(end.stderr.contains("gro on"), "{}", end.stderr);
    assert!(
        end.stderr.contains("sending through AF_PACKET instead"),
        "{}",
        end.stderr
    );
    assert!(
        end.stdout.contains("\"method\":\"packet\""),
        "{}",
        end.stdout
    );
    assert!(
        end.stdout.contains("\"sent\":100,\"refused\":0,"),
        "{}",
        end.stdout
    );
    assert_eq!(received(&net, 100), 100);
    let said = refused(&net, "-i tx0 -c 100 --method live");
    assert!(
        said.contains("gro on") && said.contains("--method packet"),
        "{said}"
    );
}

#[test]
fn loopback_falls_back_and_says_why() {
    require_root!();
    let net = Namespace::new("send_lo");
    let end = net
        .run(RINGTAP, &["send", "-i", "lo", "-c", "10", "--json", "-q"])
        .success();
    assert!(end.stderr.contains("AF_PACKET"), "{}", end.stderr);
    assert!(end.stdout.contains("\"sent\":10,"), "{}", end.stdout);
}

#[test]
fn an_interface_that_goes_away_ends_the_run_with_its_figures() {
    require_root!();
    require_tool!("ethtool");
    for (method, says) in [("live", "was removed"), ("packet", "was removed")] {
        let net = network("send_gone");
        let sender = start(&net, &format!("--json --rate 10000 --method {method}"));
        sender.wait_for_stdout("\"final\":false", LIMIT);
        net.ip(&["link", "delete", "tx0"]);
        let end = sender.wait(LIMIT);
        assert_eq!(end.status.code(), Some(3), "{method}: {}", end.stderr);
        assert!(
            end.stdout.contains("\"final\":true"),
            "{method}: {}",
            end.stdout
        );
        assert!(end.stderr.contains(says), "{method}: {}", end.stderr);
        assert!(!end.stderr.contains("panicked"), "{}", end.stderr);
    }
}

#[test]
fn a_peer_that_goes_down_is_counted_as_refusing() {
    require_root!();
    require_tool!("ethtool");
    let net = network("send_peer");
    let sender = start(&net, "--json --rate 10000 --method live");
    sender.wait_for_stdout("\"final\":false", LIMIT);
    net.ip(&["link", "set", "rx0", "down"]);
    sender.wait_for_stdout("\"refusal\":\"", LIMIT);
    sender.interrupt();
    let end = sender.wait(LIMIT).success();
    let last = end.stdout.lines().last().unwrap();
    let last: serde_json::Value = serde_json::from_str(last).unwrap();
    assert!(last["refused"].as_u64().unwrap() > 0, "{last}");
}

#[test]
fn in_a_user_namespace_it_works_through_af_packet() {
    require_root!();
    require_tool!("unshare", "setpriv");
    let program = PublicProgram::copy_of(RINGTAP);
    // Nobody at all outside, root of a user namespace of its own inside.
    let script = format!(
        "ip link add tx0 type veth peer name rx0 && ip link set tx0 up && ip link set rx0 up && \
         exec {} send -i tx0 -c 50 --json --quiet",
        program.path().display()
    );
    let mut command = Command::new("setpriv");
    let nobody = ["--reuid", "65534", "--regid", "65534", "--clear-groups"];
    command
        .current_dir(program.folder())
        .args(nobody)
        .args(["unshare", "-Urn", "sh", "-c", &script]);
    let end = Running::start(command).wait(LIMIT);
    if end.stderr.contains("unshare:") {
        ringtap_testkit::say_skipped(&format!("no user namespaces: {}", end.stderr.trim()));
        return;
    }
    let end = end.success();
    assert!(
        end.stderr.contains("inside a user namespace"),
        "{}",
        end.stderr
    );
    assert!(
        end.stdout.contains("\"method\":\"packet\""),
        "{}",
        end.stdout
    );
    assert!(end.stdout.contains("\"sent\":50,"), "{}", end.stdout);
}

#[test]
fn without_rights_the_capability_is_named() {
    require_root!();
    require_tool!("setpriv");
    let net = Namespace::with_veth("send_nobody");
    let nobody = ["--reuid", "65534", "--regid", "65534", "--clear-groups"];
    let program = PublicProgram::copy_of(RINGTAP);
    let mut all = nobody.to_vec();
    all.extend([
        program.path().to_str().expect("text"),
        "send",
        "-i",
        "tx0",
        "-c",
        "5",
    ]);
    let end = net.run("setpriv", &all);
    assert!(!end.status.success());
    assert!(end.stderr.contains("CAP_NET_RAW"), "{}", end.stderr);
    all.extend(["--method", "live"]);
    let end = net.run("setpriv", &all);
    assert!(end.stderr.contains("CAP_BPF"), "{}", end.stderr);
}

#[test]
fn a_sender_without_a_carrier_says_that_packets_are_dropped() {
    require_root!();
    let net = Namespace::with_veth("send_carrier");
    let args = ["send", "-q", "-i", "tx0", "-c", "5", "--method", "packet"];
    let told = net.run(RINGTAP, &args).success().stderr;
    assert!(!told.contains("carrier"), "{told}");
    net.ip(&["link", "set", "rx0", "down"]);
    let told = net.run(RINGTAP, &args).success().stderr;
    assert!(told.contains("tx0 has no carrier"), "{told}");
}

#[test]
fn a_killed_sender_leaves_nothing_behind() {
    require_root!();
    require_tool!("ethtool", "bpftool");
    let net = network("send_killed");
    let sender = start(&net, "--json --rate 10000 --method live");
    sender.wait_for_stdout("\"final\":false", LIMIT);
    assert!(!net.has_xdp("tx0"), "nothing is attached to the interface");
    let objects = ringtap_testkit::ebpf_objects_of(sender.pid());
    assert!(!objects.is_empty(), "it sends by eBPF programs");
    sender.signal(Signal::KILL);
    let end = sender.wait(LIMIT);
    assert!(!end.status.success());
    ringtap_testkit::wait_until_gone(&objects);
}
