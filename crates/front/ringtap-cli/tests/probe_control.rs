// SPDX-License-Identifier: MIT OR Apache-2.0
//! A probe that changes while it runs: by `ringtap probe ctl`, by its file, by actions.

use std::os::unix::process::CommandExt as _;
use std::path::PathBuf;
use std::process::Command;
use std::time::{Duration, Instant};

use ringtap_testkit::{Finished, LIMIT, Namespace, Running, require_root, settle_everywhere};
use rustix::process::Signal;
use serde_json::Value;
use tempfile::TempDir;

const BINARY: &str = env!("CARGO_BIN_EXE_ringtap");

/// A running probe with a file and a socket of its own.
struct Probe {
    net: Namespace,
    folder: TempDir,
    running: Running,
}

impl Probe {
    fn start(name: &str, config: &str) -> Self {
        Probe::on(name, "tap:rx0?direction=in", config)
    }

    fn on(name: &str, device: &str, config: &str) -> Self {
        let net = Namespace::with_veth(name);
        let folder = TempDir::new().expect("a folder can be made");
        let (file, socket) = (folder.path().join("probe.toml"), folder.path().join("ctl"));
        std::fs::write(&file, config).expect("a file of the test");
        let (file, socket) = (file.display().to_string(), socket.display().to_string());
        let words = [
            "probe",
            "-i",
            device,
            "--workers",
            "2",
            "--json",
            "--config",
            &file,
            "--control",
            &socket,
            "udp",
        ];
        let running = net.spawn(BINARY, &words);
        running.wait_for_stderr("ringtap: probe of", LIMIT);
        Probe {
            net,
            folder,
            running,
        }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    fn ctl_command(&self, words: &[&str]) -> Command {
        let mut command = Command::new(BINARY);
        command.args(["probe", "ctl", "--control"]);
        command.arg(self.path("ctl")).args(words);
        command
    }

    fn ctl(&self, words: &[&str]) -> Finished {
        Running::start(self.ctl_command(words)).wait(LIMIT)
    }

    /// Sends datagrams of flows 0 to 49, one of each in turn, `times` times.
    fn send(&self, times: usize) {
        let frames = (0..times).flat_map(|_| (0..50).map(datagram));
        self.net.inject("tx0", &frames.collect::<Vec<_>>());
    }

    /// Ends the probe; returns all objects that it printed.
    fn end(self) -> Vec<Value> {
        settle_everywhere();
        self.running.interrupt();
        let end = self.running.wait(LIMIT).success();
        let lines = end.stdout.lines().map(serde_json::from_str);
        lines
            .map(|line| line.expect("each line is one object"))
            .collect()
    }
}

/// An Ethernet frame with a UDP datagram of one of many flows.
fn datagram(flow: u8) -> Vec<u8> {
    let mut frame = vec![2, 0, 0, 0, 0, 2, 2, 0, 0, 0, 0, 1, 8, 0, 0x45, 0, 0, 46];
    frame.extend([0, 0, 0x40, 0, 64, 17, 0, 0, 10, 0, 0, flow, 10, 0, 1, 2]);
    frame.extend([0x20, flow, 0, 99, 0, 26, 0, 0]);
    frame.resize(60, 7);
    frame
}

fn of_type<'a>(objects: &'a [Value], of_type: &str) -> Vec<&'a Value> {
    let objects = objects.iter();
    objects.filter(|object| object["type"] == of_type).collect()
}

fn values(objects: &[Value], analysis: &str, value: &str) -> Vec<u64> {
    let results = of_type(objects, "measurement").into_iter();
    let results = results.filter(|one| one["analysis"] == analysis);
    results
        .filter_map(|one| one["values"][value].as_u64())
        .collect()
}

#[test]
fn changes_under_load_lose_no_packet_and_no_flow_record() {
    require_root!();
    let sizes = "[[analysis]]\nkind = \"sizes\"\nevery = \"1s\"\n";
    let flows = |idle: &str, most: u32| {
        format!("{sizes}[[analysis]]\nkind = \"flows\"\nidle = \"{idle}\"\nmost_flows = {most}\n")
    };
    let probe = Probe::start("probe_change", &flows("10s", 1000));
    let rounds = 20;
    std::thread::scope(|scope| {
        let sender = scope.spawn(|| (0..rounds).for_each(|_| probe.send(15)));
        for (change, idle) in (0..).zip(["1s", "20s", "3s", "5s"]) {
            // A table of another size ends all flows, which become records.
            std::fs::write(probe.path("probe.toml"), flows(idle, 100 + change)).expect("a file");
            if change < 3 {
                let _done = probe.ctl(&["reload"]).success();
            } else {
                probe.running.signal(Signal::HUP);
                probe
                    .running
                    .wait_for_stderr("the configuration is in force", LIMIT);
            }
            let _done = probe.ctl(&["disable", "sizes"]).success();
            let _done = probe.ctl(&["period", "sizes", "2"]).success();
            let _done = probe.ctl(&["enable", "sizes"]).success();
        }
        sender.join().expect("it sends");
    });
    let objects = probe.end();
    let sent = u64::try_from(50 * 15 * rounds).expect("small");
    let counters = of_type(&objects, "counters")[0];
    assert_eq!(counters["delivered"], sent, "{counters}");
    let ledger = of_type(&objects, "probe")[0];
    assert_eq!(
        (&ledger["captured"], &ledger["analysed"]),
        (&sent.into(), &sent.into())
    );
    let flows = of_type(&objects, "flow");
    let packets = flows.iter().filter_map(|flow| flow["orig_pkts"].as_u64());
    assert_eq!(packets.sum::<u64>(), sent);
}

#[test]
fn losses_of_the_capture_are_results_with_their_times() {
    require_root!();
    let config = "[[analysis]]\nkind = \"sizes\"\n";
    let probe = Probe::on("probe_losses", "tap:rx0?direction=in&pool=1MiB", config);
    // The pool has no room for these packets, and nobody reads them.
    probe.running.signal(Signal::STOP);
    probe.send(1_000);
    settle_everywhere();
    probe.running.signal(Signal::CONT);
    let objects = probe.end();
    let counters = of_type(&objects, "counters")[0];
    let lost = &counters["dropped"];
    let lost: u64 = lost
        .as_object()
        .expect("reasons")
        .values()
        .filter_map(Value::as_u64)
        .sum();
    assert!(lost > 0, "{counters}");
    let stated: u64 = values(&objects, "ledger", "dropped").into_iter().sum();
    assert_eq!(stated, lost, "{counters}");
}

#[test]
fn a_user_changes_a_running_probe_and_another_user_does_not() {
    require_root!();
    let config = "[[analysis]]\nkind = \"sizes\"\nevery = \"1h\"\nenabled = false\n\
                  [[analysis]]\nkind = \"flows\"\n";
    let probe = Probe::start("probe_ctl", config);
    let unknown = probe.ctl(&["enable", "dns"]);
    assert!(!unknown.status.success());
    assert!(
        unknown
            .stderr
            .contains("no analysis \"dns\"; the analyses are: sizes, flows"),
        "{}",
        unknown.stderr
    );
    let _done = probe.ctl(&["enable", "sizes"]).success();
    // The first packets may come before the workers have switched it on.
    let mut sent: u64 = 0;
    while !probe.running.stdout().contains("\"analysis\":\"sizes\"") {
        probe.send(1);
        sent += 50;
        let _done = probe.ctl(&["snapshot", "sizes"]).success();
        std::thread::sleep(Duration::from_millis(200));
        assert!(sent < 50 * 600, "{}", probe.running.stderr());
    }
    let deadline = Instant::now() + LIMIT;
    loop {
        let status = probe.ctl(&["status"]).success();
        let status: Value = serde_json::from_str(&status.stdout).expect("an object");
        assert_eq!(status["analyses"][0]["enabled"], true, "{status}");
        if status["captured"] == sent {
            break;
        }
        assert!(Instant::now() < deadline, "{status}");
    }
    // The folder of the test is for root only; the socket itself must refuse, too.
    let open = std::os::unix::fs::PermissionsExt::from_mode(0o755);
    std::fs::set_permissions(probe.folder.path(), open).expect("a folder of the test");
    let mut other = Command::new("python3");
    let connects = "import socket, sys\nsocket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET).connect(sys.argv[1])";
    other
        .args(["-c", connects])
        .arg(probe.path("ctl"))
        .uid(65_534);
    let refused = Running::start(other).wait(LIMIT);
    assert!(
        refused.stderr.contains("PermissionError"),
        "{}",
        refused.stderr
    );
    std::fs::write(probe.path("probe.toml"), "[[analysis]]\nkind = \"flow\"\n").expect("a file");
    let wrong = probe.ctl(&["reload"]);
    assert!(
        wrong
            .stderr
            .contains("the old configuration stays in force")
            && wrong.stderr.contains("line 2, kind: expected flows"),
        "{}",
        wrong.stderr
    );
    let objects = probe.end();
    let counted: u64 = values(&objects, "sizes", "packets").iter().sum();
    assert!((1..=sent).contains(&counted), "{counted} of {sent}");
}

#[test]
fn actions_follow_the_clock_and_conditions() {
    require_root!();
    let config = "[[analysis]]\nkind = \"sizes\"\nevery = \"1h\"\n\
                  [[analysis]]\nkind = \"top\"\nby = \"source\"\nevery = \"1s\"\nenabled = false\n\
                  [[action]]\ndo = \"snapshot\"\nanalysis = \"sizes\"\nevery = \"1s\"\n\
                  [[action]]\ndo = \"enable\"\nanalysis = \"top source\"\nwhen = \"captured > 10\"\n\
                  [[action]]\ndo = \"alarm\"\nname = \"busy\"\nwhen = \"top source.packets > 0\"\n\
                  until = \"top source.pps < 1\"\n";
    let probe = Probe::start("probe_actions", config);
    probe.send(10);
    probe
        .running
        .wait_for_stderr("action enable top source: top source: on", LIMIT);
    // The analysis is on now: further packets raise the alarm, and their absence ends it.
    let mut sent = 500;
    while !probe.running.stderr().contains("alarm busy: raised") {
        probe.send(1);
        sent += 50;
        std::thread::sleep(Duration::from_millis(100));
        assert!(sent < 100_000, "{}", probe.running.stderr());
    }
    probe
        .running
        .wait_for_stderr("alarm busy: over at 0", LIMIT);
    let objects = probe.end();
    let raised = values(&objects, "busy", "raised");
    // Once, unless the machine stood still between two packets.
    let states: Vec<_> = [1, 0].into_iter().cycle().take(raised.len()).collect();
    assert!(raised.len() > 1 && raised == states, "{raised:?}");
    let sizes = values(&objects, "sizes", "packets");
    assert!(sizes.len() > 1, "a snapshot each second: {sizes:?}");
    assert_eq!(sizes.iter().sum::<u64>(), sent);
}
