// SPDX-License-Identifier: MIT OR Apache-2.0
//! The table of signals in `docs/command-line.md`, over all verbs that run until they are ended.

use std::process::Command;
use std::thread::sleep;
use std::time::{Duration, Instant};

use ringtap_testkit::{Namespace, Running, require_root, require_tool};
use rustix::process::Signal;
use tempfile::TempDir;

use crate::support::{BINARY, LIMIT, RunningHub};

/// A running verb.
struct Case {
    verb: &'static str,
    running: Running,
    /// What it prints at SIGUSR1.
    counters: &'static str,
}

/// Starts a verb in a namespace and waits until its standard error or output has this text.
fn start(net: &Namespace, args: &[&str], ready: &str) -> Running {
    let running = net.spawn(BINARY, args);
    let begun = Instant::now();
    while !running.stderr().contains(ready) && !running.stdout().contains(ready) {
        assert!(begun.elapsed() < LIMIT, "{args:?}: {}", running.stderr());
        sleep(Duration::from_millis(20));
    }
    running
}

fn all_verbs(net: &Namespace, folder: &TempDir) -> Vec<Case> {
    let path = |name: &str| folder.path().join(name).display().to_string();
    let (socket, wire, file) = (path("hub.sock"), path("wire.sock"), path("all.pcapng"));
    let (control, guests) = (path("probe.sock"), path("guests"));
    let group = format!("hub:all?socket={socket}");
    let inline = format!("hub:ips?socket={wire}");
    let case = |verb, args: &[&str], ready, counters| Case {
        verb,
        running: start(net, &[&[verb], args].concat(), ready),
        counters,
    };
    vec![
        case(
            "hub",
            &["-i", "tap:rx0", "--socket", &socket],
            "hub of",
            " of group all: ",
        ),
        case(
            "count",
            &["-i", &group, "--interval", "0.05"],
            "packets/s",
            "so far",
        ),
        case(
            "record",
            &["-i", &group, "-w", &file, "--interval", "0.05"],
            "packets/s",
            "so far",
        ),
        case(
            "probe",
            &["-i", "packet:rx0", "--control", &control],
            "probe of",
            "so far",
        ),
        case(
            "send",
            &["-i", "tx0", "--rate", "100pps"],
            "packets/s",
            "bytes in",
        ),
        case(
            "bridge",
            &["rx1", "rx2", "--inline", "ips", "--socket", &wire],
            "bridge of",
            "so far",
        ),
        case("inline", &["-i", &inline], "deciding for", "so far"),
        case(
            "guest",
            &["--folder", &guests],
            "serving the host's groups",
            "agent of",
        ),
    ]
}

#[test]
fn usr1_prints_counters_usr2_ends_nothing_and_hangup_ends_in_good_order() {
    require_root!();
    require_tool!("ip");
    let net = Namespace::with_veth("hub-signals");
    net.add_veth("tx1", "rx1");
    net.add_veth("tx2", "rx2");
    let folder = TempDir::new().expect("a folder can be made");
    let mut cases = all_verbs(&net, &folder);
    for Case {
        verb,
        running,
        counters,
    } in &cases
    {
        let begun = Instant::now();
        while !running.stderr().contains(counters) {
            assert!(begun.elapsed() < LIMIT, "{verb}: {}", running.stderr());
            running.signal(Signal::USR1);
            running.signal(Signal::USR2);
            sleep(Duration::from_millis(100));
        }
    }
    // Readers before their hub, and the inline reader before its bridge.
    cases.reverse();
    for Case {
        verb, mut running, ..
    } in cases
    {
        assert!(running.is_running(), "{verb}: {}", running.stderr());
        running.signal(Signal::HUP);
        let end = running.wait(LIMIT);
        assert!(end.status.success(), "{verb}: {}", end.stderr);
        assert!(
            end.stderr.contains("ends by SIGHUP"),
            "{verb}: {}",
            end.stderr
        );
    }
}

#[test]
fn a_hangup_that_nohup_ignores_ends_no_capture() {
    let mut command = Command::new("sh");
    let script = "trap '' HUP; exec \"$1\" count -i sim:1000pps --interval 0.05";
    command.args(["-c", script, "sh", BINARY]);
    let mut count = Running::start(command);
    count.wait_for_stdout("packets/s", LIMIT);
    count.signal(Signal::HUP);
    sleep(Duration::from_millis(500));
    assert!(count.is_running(), "{}", count.stderr());
    count.interrupt();
    let end = count.wait(LIMIT).success();
    assert!(!end.stderr.contains("SIGHUP"), "{}", end.stderr);
}

#[test]
fn a_hub_with_a_file_lives_on_after_a_hangup() {
    require_root!();
    let folder = TempDir::new().expect("a folder can be made");
    let file = folder.path().join("hub.toml");
    std::fs::write(&file, "[[group]]\nname = \"a\"\n").expect("a file");
    let text = file.display().to_string();
    let hub = RunningHub::with(
        "signals-file",
        "tap:rx0?exclusive&direction=in",
        &["-c", &text],
    );
    hub.hub.signal(Signal::HUP);
    hub.hub
        .wait_for_stderr("read the configuration again", LIMIT);
    let _end = hub.finish();
}
