// SPDX-License-Identifier: MIT OR Apache-2.0
//! `--cpu`: what is moved, and that it goes back; needs root.

use std::process::Command;

use ringtap_testkit::{LIMIT, Namespace, Running, require_root, require_tool};
use rustix::process::Signal;

const BINARY: &str = env!("CARGO_BIN_EXE_ringtap");

fn count(net: &Namespace, cpu: &str) -> Running {
    net.spawn(
        BINARY,
        &[
            "count",
            "-i",
            "tap:rx0?direction=in",
            "--json",
            "--cpu",
            cpu,
        ],
    )
}

fn threaded(net: &Namespace) -> String {
    let text = net.run("cat", &["/sys/class/net/rx0/threaded"]).stdout;
    text.trim().to_owned()
}

/// Waits until the capture prints its first line: all is in place then.
fn running(count: &Running) {
    count.wait_for_stdout("offered", LIMIT);
}

#[test]
fn threaded_napi_is_switched_on_and_back() {
    require_root!();
    require_tool!("ip");
    let net = Namespace::with_veth("napi");
    assert_eq!(threaded(&net), "0");
    let count = count(&net, "napi=threaded,irq=0,reader=1");
    running(&count);
    assert_eq!(threaded(&net), "1");
    net.inject("tx0", &vec![vec![0xff; 64]; 10]);
    // The kernel's thread receives them when it runs.
    count.wait_for_stdout("\"delivered\":10,", LIMIT);
    count.interrupt();
    let end = count.wait(LIMIT);
    assert!(end.status.success(), "{}", end.stderr);
    let last = end.stdout.lines().last().expect("counters");
    assert!(last.contains("\"delivered\":10"), "{last}");
    assert_eq!(threaded(&net), "0", "as it was");
}

#[test]
fn it_goes_back_when_the_reader_has_enough() {
    require_root!();
    require_tool!("ip");
    let net = Namespace::with_veth("napi-enough");
    let args = [
        "count",
        "-i",
        "tap:rx0?direction=in",
        "--json",
        "-c",
        "5",
        "--cpu",
        "napi=threaded",
    ];
    let count = net.spawn(BINARY, &args);
    running(&count);
    assert_eq!(threaded(&net), "1");
    net.inject("tx0", &vec![vec![0xff; 64]; 10]);
    assert!(count.wait(LIMIT).status.success());
    assert_eq!(threaded(&net), "0", "as it was");
}

#[test]
fn the_next_start_restores_what_a_killed_program_changed() {
    require_root!();
    require_tool!("ip", "ethtool");
    let net = Namespace::with_veth("napi-killed");
    // With GRO there is NAPI to put back also when the tap is gone.
    let gro = net.run("ethtool", &["-K", "rx0", "gro", "on"]);
    assert!(gro.status.success(), "{}", gro.stderr);
    for signal in [Signal::KILL, Signal::ABORT] {
        let count = count(&net, "napi=threaded");
        running(&count);
        assert_eq!(threaded(&net), "1");
        count.signal(signal);
        let _killed = count.wait(LIMIT);
        assert_eq!(threaded(&net), "1", "nobody was there to restore it");
        let elsewhere = Namespace::with_veth("napi-elsewhere");
        let args = ["count", "-q", "-i", "rx0", "--duration", "0.1"];
        let other = elsewhere.run(BINARY, &args);
        assert!(!other.stderr.contains("restored"), "{}", other.stderr);
        assert_eq!(
            threaded(&net),
            "1",
            "another network's interface of this name"
        );
        let next = net.run(BINARY, &args);
        let says = "/sys/class/net/rx0/threaded: restored to 0";
        assert!(next.stderr.contains(says), "{}", next.stderr);
        assert_eq!(threaded(&net), "0", "as it was");
        assert!(!net.has_xdp("rx0"));
    }
}

#[test]
fn what_a_software_device_has_not_is_said() {
    require_root!();
    require_tool!("ip");
    let net = Namespace::with_veth("irq");
    let count = count(&net, "irq=0,auto");
    running(&count);
    count.interrupt();
    let end = count.wait(LIMIT);
    assert!(end.status.success(), "{}", end.stderr);
    assert!(
        end.stderr.contains("rx0 has no interrupts"),
        "{}",
        end.stderr
    );
    assert!(
        end.stderr
            .contains("--cpu auto: packets are received on CPU 0"),
        "{}",
        end.stderr
    );
}

#[test]
fn a_cpu_that_is_not_there_is_refused_and_nothing_to_move_is_said() {
    let run = |cpu: &str| {
        let mut count = Command::new(BINARY);
        count.args(["count", "-q", "-i", "sim:1Mpps?burst=10", "--cpu", cpu]);
        Running::start(count).wait(LIMIT)
    };
    for cpu in ["reader=8191", "capture=8191", "irq=8191", "auto,irq=8191"] {
        let end = run(cpu);
        assert!(!end.status.success(), "{cpu}");
        assert!(end.stderr.contains("CPU 8191"), "{cpu}: {}", end.stderr);
        assert!(end.stderr.contains("/online"), "{cpu}: {}", end.stderr);
    }
    for cpu in ["irq=0", "napi=threaded"] {
        let end = run(cpu).success();
        assert!(
            end.stderr.contains("have no effect"),
            "{cpu}: {}",
            end.stderr
        );
    }
}
