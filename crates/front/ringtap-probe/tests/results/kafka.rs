// SPDX-License-Identifier: MIT OR Apache-2.0
//! Records in a real broker of Apache Kafka, which is killed and comes back.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

use ringtap_probe::export::Exporter as _;
use ringtap_probe::export::kafka::KafkaExporter;
use ringtap_testkit::{LIMIT, Namespace, Running, require_root, require_tool, say_skipped};
use serde_json::Value;

use crate::flows::{flows, records};

const BROKER: &str = "127.0.0.1:9092";
/// Longer than any outage in a test.
const PATIENT: [(&str, &str); 1] = [("message.timeout.ms", "600000")];

#[test]
fn a_broker_that_is_killed_and_comes_back_gets_every_record() {
    require_root!();
    require_tool!("java", "kcat");
    let Some(jars) = jars() else { return };
    if !library_exists() {
        return;
    }
    let net = Namespace::new("kafka");
    let folder = tempfile::tempdir().expect("a folder");
    let config = config(folder.path());
    let _formatted = java(
        &net,
        &jars,
        "kafka.tools.StorageTool",
        &["format", "-t", "AAAAAAAAAAAAAAAAAAAAAA", "-c", &config],
    )
    .wait(LIMIT)
    .success();
    let broker = start(&net, &jars, &config);
    let flows = flows(6000);
    let _again = net.enter(|| {
        let mut exporter = KafkaExporter::new(BROKER, "flows", &PATIENT).expect("librdkafka");
        let thirds: Vec<_> = flows.chunks(2000).map(records).collect();
        exporter.write(&thirds[0]).expect("a backlog");
        exporter.flush().expect("the broker acknowledges");
        broker.signal(rustix::process::Signal::KILL);
        let _killed = broker.wait(LIMIT);
        exporter.write(&thirds[1]).expect("a backlog");
        let again = start(&net, &jars, &config);
        exporter.write(&thirds[2]).expect("a backlog");
        exporter.flush().expect("the broker acknowledges");
        assert_eq!(exporter.lost(), 0);
        again
    });
    let words = [
        "-C",
        "-b",
        BROKER,
        "-t",
        "flows",
        "-o",
        "beginning",
        "-e",
        "-q",
    ];
    let lines = net.run("kcat", &words).success().stdout;
    let got: BTreeSet<_> = lines
        .lines()
        .map(|line| {
            let flow: Value = serde_json::from_str(line).expect("JSON");
            (flow["id.orig_p"].as_u64(), flow["orig_ip_bytes"].as_u64())
        })
        .collect();
    let want = flows
        .iter()
        .map(|flow| (Some(flow.key.source_port.into()), Some(flow.forward.bytes)));
    assert_eq!(got, want.collect());
}

#[test]
fn without_a_broker_every_record_is_counted_as_lost() {
    require_root!();
    if !library_exists() {
        return;
    }
    let net = Namespace::new("kafka_gone");
    net.enter(|| {
        let mut exporter = KafkaExporter::new(BROKER, "flows", &[("message.timeout.ms", "1000")])
            .expect("librdkafka");
        exporter.write(&records(&flows(500))).expect("a backlog");
        let _counted = exporter.flush();
        assert_eq!(exporter.lost(), 500);
        let failure = exporter.tick().expect_err("no broker").to_string();
        assert!(failure.contains(BROKER), "{failure}");
    });
}

#[test]
fn a_wrong_setting_is_refused_by_name() {
    if !library_exists() {
        return;
    }
    let refused = KafkaExporter::new(BROKER, "flows", &[("no.such.setting", "1")]);
    let refused = refused.err().expect("there is none").to_string();
    assert!(refused.contains("no.such.setting"), "{refused}");
}

fn library_exists() -> bool {
    match KafkaExporter::new(BROKER, "flows", &[]) {
        Ok(_) => true,
        Err(error) => {
            say_skipped(&error.to_string());
            false
        }
    }
}

/// The broker's programs, where `scripts/prepare test` put them.
fn jars() -> Option<PathBuf> {
    let home = std::env::var("HOME").unwrap_or_default();
    let jars = Path::new(&home).join(".cache/ringtap/kafka");
    if jars.is_dir() {
        return Some(jars);
    }
    say_skipped("needs Apache Kafka in ~/.cache/ringtap/kafka");
    None
}

fn config(folder: &Path) -> String {
    let lines = format!(
        "process.roles=broker,controller\nnode.id=1\ncontroller.quorum.voters=1@127.0.0.1:9093\n\
         listeners=PLAINTEXT://{BROKER},CONTROLLER://127.0.0.1:9093\n\
         controller.listener.names=CONTROLLER\nlog.dirs={}\n\
         offsets.topic.replication.factor=1\nnum.partitions=3\n",
        folder.join("log").display()
    );
    let path = folder.join("config");
    fs::write(&path, lines).expect("a file");
    path.to_str().expect("text").to_owned()
}

fn start(net: &Namespace, jars: &Path, config: &str) -> Running {
    let broker = java(net, jars, "kafka.Kafka", &[config]);
    // kcat has its own patience with a broker that does not listen yet.
    let begun = std::time::Instant::now();
    while !net.run("kcat", &["-L", "-b", BROKER]).status.success() {
        assert!(
            begun.elapsed() < LIMIT,
            "{}{}",
            broker.stdout(),
            broker.stderr()
        );
    }
    broker
}

fn java(net: &Namespace, jars: &Path, class: &str, words: &[&str]) -> Running {
    let mut command = net.command("java");
    command
        .args(["-Xmx256m", "-XX:+UseSerialGC", "-cp"])
        .arg(jars.join("*"))
        .arg(class)
        .args(words);
    Running::start(command)
}
