// SPDX-License-Identifier: MIT OR Apache-2.0
//! A probe that changes while it runs: by `ringtap probe ctl`, by its file, by actions.

mod probing;

use std::os::unix::process::CommandExt as _;
use std::process::Command;
use std::time::{Duration, Instant};

use ringtap_testkit::{LIMIT, Running, require_root, settle_everywhere};
use rustix::process::Signal;
use serde_json::Value;
use tempfile::TempDir;

use probing::{BINARY, RunningProbe, of_type};

fn start(name: &str, config: &str) -> RunningProbe {
    start_on(name, "tap:rx0?direction=in", config)
}

fn start_on(name: &str, device: &str, config: &str) -> RunningProbe {
    let folder = TempDir::new().expect("a folder can be made");
    RunningProbe::spawn(BINARY, name, &["-i", device], folder, config).started()
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
        format!("{sizes}[[analysis]]\nkind = \"flows\"\nidle = \"{idle}\"\nmax_flows = {most}\n")
    };
    let probe = start("probe_change", &flows("10s", 1000));
    let rounds = 20;
    std::thread::scope(|scope| {
        let sender = scope.spawn(|| (0..rounds).for_each(|_| probe.send(15)));
        for (change, idle) in (0..).zip(["1s", "20s", "3s", "5s"]) {
            // A table of another size ends all flows, which become records.
            std::fs::write(
                probe.folder.path().join("probe.toml"),
                flows(idle, 100 + change),
            )
            .expect("a file");
            if change < 3 {
                let _done = probe.ctl(&["reload"]).success();
            } else {
                probe.running.signal(Signal::HUP);
                probe
                    .running
                    .wait_for_stderr("the configuration is in force", LIMIT);
            }
            let _done = probe.ctl(&["disable", "sizes"]).success();
            let _done = probe.ctl(&["period", "sizes", "2s"]).success();
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
    let probe = start_on("probe_losses", "tap:rx0?direction=in&pool=1MiB", config);
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
    let probe = start("probe_ctl", config);
    let unknown = probe.ctl(&["enable", "dns"]);
    assert!(!unknown.status.success());
    assert!(
        unknown
            .stderr
            .contains("no analysis \"dns\"; the analyses are: sizes, flows"),
        "{}",
        unknown.stderr
    );
    // All workers have switched it on when the answer comes.
    let _done = probe.ctl(&["enable", "sizes"]).success();
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
        let status = probe.status();
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
        .arg(probe.folder.path().join("ctl"))
        .uid(65_534);
    let refused = Running::start(other).wait(LIMIT);
    assert!(
        refused.stderr.contains("PermissionError"),
        "{}",
        refused.stderr
    );
    std::fs::write(
        probe.folder.path().join("probe.toml"),
        "[[analysis]]\nkind = \"flow\"\n",
    )
    .expect("a file");
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
    assert_eq!(counted, sent);
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
    let probe = start("probe_actions", config);
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
    // On a fast machine all packets so far are in one snapshot: these come after it.
    std::thread::sleep(Duration::from_millis(1100));
    probe.send(1);
    sent += 50;
    let objects = probe.end();
    let raised = values(&objects, "busy", "raised");
    // Once, unless the machine stood still between two packets.
    let states: Vec<_> = [1, 0].into_iter().cycle().take(raised.len()).collect();
    assert!(raised.len() > 1 && raised == states, "{raised:?}");
    let sizes = values(&objects, "sizes", "packets");
    assert!(sizes.len() > 1, "a snapshot each second: {sizes:?}");
    assert_eq!(sizes.iter().sum::<u64>(), sent);
}

#[test]
fn what_is_captured_is_analysed_and_the_ledger_says_so_for_each_analysis() {
    require_root!();
    let config = "[[analysis]]\nkind = \"sizes\"\n[[analysis]]\nkind = \"flows\"\n\
                  [[analysis]]\nkind = \"top\"\nby = \"source\"\nenabled = false\n";
    let probe = start_on("probe_congest", "tap:rx0?direction=in&pool=1MiB", config);
    // Workers that stand still fill the pool; then all that it holds comes at once.
    probe.running.signal(Signal::STOP);
    probe.send(600);
    settle_everywhere();
    probe.running.signal(Signal::CONT);
    let objects = probe.end();
    let counters = of_type(&objects, "counters")[0];
    let (captured, skipped) = (&counters["delivered"], &counters["dropped"]["pool_full"]);
    assert_eq!(counters["dropped"]["overrun"], 0, "{counters}");
    let number = |value: &Value| value.as_u64().expect("a number");
    assert!(number(captured) > 0 && number(skipped) > 0, "{counters}");
    assert_eq!(number(captured) + number(skipped), 30_000, "{counters}");
    let ledger = of_type(&objects, "probe")[0];
    for (one, name, is_on) in [
        (0, "sizes", true),
        (1, "flows", true),
        (2, "top source", false),
    ] {
        let account = &ledger["analyses"][one];
        assert_eq!(account["name"], name, "{ledger}");
        assert_eq!(&account["captured"], captured, "{account}");
        assert_eq!(&account["skipped"]["not_captured"], skipped, "{account}");
        let found = [&account["analysed"], &account["skipped"]["disabled"]].map(number);
        let all = number(captured);
        let expected = if is_on { [all, 0] } else { [0, all] };
        assert_eq!(found, expected, "{account}");
    }
    let flows = of_type(&objects, "flow").into_iter();
    let packets = flows.filter_map(|flow| flow["orig_pkts"].as_u64());
    assert_eq!(packets.sum::<u64>(), number(captured));
}

#[test]
fn the_marks_of_the_file_pause_the_capture() {
    require_root!();
    // The chunk that a worker reads is in use: with these marks, no packet comes after the first few.
    let config = "congestion = \"100:100\"\n[[analysis]]\nkind = \"sizes\"\n";
    let probe = start("probe_marks", config);
    let deadline = Instant::now() + LIMIT;
    loop {
        probe.send(1);
        let status = probe.status();
        if status["skipped"]["not_captured"].as_u64() > Some(0) {
            break;
        }
        assert!(Instant::now() < deadline, "{status}");
    }
    let _objects = probe.end();
}
