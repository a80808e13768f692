// SPDX-License-Identifier: MIT OR Apache-2.0
//! A real hub on a real interface, and a reader that somebody stopped: everybody names it.

use std::{
    io::{Read as _, Write as _},
    net::TcpStream,
    process::Command,
};

use ringtap_testkit::{Namespace, Running, require_root};
use rustix::process::{Pid, Signal, kill_process};
use tempfile::TempDir;

use crate::served::{LIMIT, seen, status_when};

const BINARY: &str = env!("CARGO_BIN_EXE_ringtap");

fn scrape(network: &Namespace, port: &str) -> String {
    network.enter(|| {
        let mut stream = TcpStream::connect(format!("127.0.0.1:{port}")).expect("metrics");
        stream.set_read_timeout(Some(LIMIT)).expect("a time limit");
        stream
            .write_all(b"GET /metrics HTTP/1.1\r\nHost: x\r\n\r\n")
            .expect("a request");
        let mut answer = String::new();
        stream.read_to_string(&mut answer).expect("an answer");
        answer
    })
}

#[test]
fn a_stopped_reader_is_named_by_why_and_by_the_metrics() {
    require_root!();
    let network = Namespace::with_veth("a_stopped_reader_is_named");
    let folder = TempDir::new().expect("a folder");
    let socket = folder.path().join("hub.sock");
    let path = socket.to_str().expect("UTF-8");
    let port = "19464";
    // Only the one that is stopped can lose: to the other and to the pool all of it is little.
    let config = folder.path().join("hub.toml");
    let groups = "[[group]]\nname = \"slow\"\ncredit = 4\n[[group]]\nname = \"fast\"\n";
    std::fs::write(&config, groups).expect("a file");
    let hub = network.spawn(
        BINARY,
        &[
            "hub",
            "-i",
            "tap:rx0?exclusive&direction=in",
            "-c",
            config.to_str().expect("UTF-8"),
            "--socket",
            path,
            "--metrics",
            &format!("127.0.0.1:{port}"),
        ],
    );
    hub.wait_for_stderr("hub of", LIMIT);
    let reader = |group: &str| {
        let mut command = Command::new(BINARY);
        command
            .args(["count", "-i", group])
            .env("RINGTAP_SOCKET", path);
        Running::start(command)
    };
    let (_slow, _fast) = (reader("hub:slow"), reader("hub:fast"));
    let both = status_when(&socket, |status| status.readers.len() == 2);
    let slow = both
        .readers
        .iter()
        .find(|one| one.group == "slow")
        .expect("it reads")
        .pid;
    let well = seen(&socket, &["why", "--interval", "0.1"]).success();
    assert!(
        well.stdout.starts_with("Nothing was lost"),
        "{}",
        well.stdout
    );

    let stopped = Pid::from_raw(slow).expect("a process");
    kill_process(stopped, Signal::STOP).expect("it is ours");
    let sent = network.run(
        BINARY,
        &["send", "-i", "tx0", "--rate", "50kpps", "-c", "100000"],
    );
    drop(sent.success());
    // The reader without a loss read its last packet after the other reader's last loss.
    let status = status_when(&socket, |status| {
        let mut readers = status.readers.iter();
        readers.any(|one| one.group == "fast" && one.counters.delivered == 100_000)
    });
    let of = |group: &str| {
        status
            .readers
            .iter()
            .find(|one| one.group == group)
            .expect("it reads")
    };
    let lost = of("slow").counters.dropped.overrun;
    assert!(
        lost > 0 && of("fast").counters.dropped.overrun == 0,
        "{status:?}"
    );

    let why = seen(&socket, &["why", "--interval", "0.2"]);
    assert_eq!(why.status.code(), Some(4), "{}", why.stdout);
    for words in [
        "Packets were lost in ",
        &format!("(group slow, process {slow}) could not keep up"),
        &format!("Process {slow} is stopped: continue it with `kill -CONT {slow}`"),
        "No loss in the last",
        "offered = delivered + filtered + dropped.kernel + dropped.pool_full holds: 100,000 = 100,000 + 0 + 0 + 0",
    ] {
        assert!(
            why.stdout.contains(words),
            "no {words:?} in\n{}",
            why.stdout
        );
    }
    let text = scrape(&network, port);
    let line = text
        .lines()
        .find(|line| line.starts_with("ringtap_reader_lost_packets_total{group=\"slow\""));
    let value = line
        .and_then(|line| line.rsplit(' ').next())
        .and_then(|value| value.parse().ok());
    assert_eq!(value, Some(lost), "{text}");
    kill_process(stopped, Signal::CONT).expect("it is ours");
    status_when(&socket, |status| {
        status.readers.iter().all(|one| one.lag_chunks == 0)
    });
}

#[test]
fn a_hub_that_was_stopped_is_named_by_why_and_not_its_reader() {
    require_root!();
    let network = Namespace::with_veth("a_late_hub_is_named");
    let folder = TempDir::new().expect("a folder");
    let socket = folder.path().join("hub.sock");
    let path = socket.to_str().expect("UTF-8");
    let config = folder.path().join("hub.toml");
    std::fs::write(&config, "[[group]]\nname = \"all\"\ncredit = 2\n").expect("a file");
    let mut args = vec!["hub", "-i", "tap:rx0?exclusive&direction=in"];
    args.extend(["--socket", path, "-c", config.to_str().expect("UTF-8")]);
    let hub = network.spawn(BINARY, &args);
    hub.wait_for_stderr("hub of", LIMIT);
    let mut command = Command::new(BINARY);
    command.args(["count", "-i", "hub:all"]);
    command.env("RINGTAP_SOCKET", path);
    let _reader = Running::start(command);
    status_when(&socket, |status| status.readers.len() == 1);

    // The packets fill more chunks than the reader may hold, before the hub runs again.
    hub.signal(Signal::STOP);
    let sent = network.run(
        BINARY,
        &["send", "-i", "tx0", "--rate", "20kpps", "-c", "10000"],
    );
    drop(sent.success());
    hub.signal(Signal::CONT);
    let status = status_when(&socket, |status| {
        status.readers[0].counters.dropped.overrun > 0
    });
    assert!(status.sources[0].longest_wait_ms >= 100, "{status:?}");
    let why = seen(&socket, &["why", "--interval", "0.2"]);
    for words in ["was not slow", "the hub's thread came late (by up to "] {
        assert!(
            why.stdout.contains(words),
            "no {words:?} in\n{}",
            why.stdout
        );
    }
}

#[test]
fn metrics_for_everybody_must_be_asked_for() {
    require_root!();
    let network = Namespace::with_veth("metrics_for_everybody_must_be_asked_for");
    let folder = TempDir::new().expect("a folder");
    let socket = folder.path().join("hub.sock");
    let path = socket.to_str().expect("UTF-8");
    let hub = |more: &[&str]| {
        let mut args = vec![
            "hub",
            "-i",
            "tap:rx0",
            "--socket",
            path,
            "--duration",
            "0.3",
        ];
        args.extend(more);
        network.run(BINARY, &args)
    };
    let refused = hub(&["--metrics", "0.0.0.0:9464"]);
    assert_eq!(refused.status.code(), Some(1));
    assert!(
        refused.stderr.contains("could be read by other machines"),
        "{}",
        refused.stderr
    );
    assert!(!network.has_xdp("rx0"));
    let allowed = hub(&["--metrics", "0.0.0.0:9464", "--metrics-anywhere"]).success();
    assert!(
        allowed
            .stderr
            .contains("metrics at http://0.0.0.0:9464/metrics")
    );
}
