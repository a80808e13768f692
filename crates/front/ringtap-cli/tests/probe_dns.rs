// SPDX-License-Identifier: MIT OR Apache-2.0
//! DNS of real resolvers and a real server, as `ringtap probe` and tshark tell it.

use std::collections::BTreeMap;
use std::fs;
use std::process::Command;

use ringtap_testkit::{Finished, LIMIT, LoCapture, Namespace, Running, require_root, require_tool};
use serde_json::Value;

const BINARY: &str = env!("CARGO_BIN_EXE_ringtap");

/// A server for `example.org`, which refuses other names.
const SERVER: &[&str] = &[
    "--no-daemon",
    "--conf-file=/dev/null",
    "--user=root",
    "--pid-file=",
    "--no-resolv",
    "--no-hosts",
    "--listen-address=127.0.0.1",
    "--bind-interfaces",
    "--local=/example.org/",
    "--host-record=www.example.org,192.0.2.1,2001:db8::1",
    "--cname=alias.example.org,www.example.org",
    "--mx-host=example.org,www.example.org,10",
    "--txt-record=text.example.org,one,two",
    "--srv-host=_sip._udp.example.org,www.example.org,5060",
];
/// Questions of dig; glibc asks for both addresses of a name at once, from one port.
const QUESTIONS: &[&[&str]] = &[
    &["www.example.org", "A"],
    &["WWW.example.org", "AAAA"],
    &["example.org", "MX"],
    &["alias.example.org", "A"],
    &["text.example.org", "TXT"],
    &["_sip._udp.example.org", "SRV"],
    &["-x", "192.0.2.1"],
    &["none.example.org", "A", "+dnssec"],
    &["elsewhere.test", "A"],
    &["www.example.org", "A", "+tcp"],
    &["none.example.org", "TXT"],
];
const GLIBC: &str = "echo nameserver 127.0.0.1 > $0 && mount --bind $0 /etc/resolv.conf && getent ahosts alias.example.org";
const FIELDS: &[&str] = &[
    "dns.flags.response",
    "dns.id",
    "dns.qry.name",
    "dns.qry.type",
    "dns.flags.rcode",
    "dns.time",
    "dns.a",
    "dns.aaaa",
    "udp.srcport",
];

/// One message, as tshark tells it.
struct Message {
    is_answer: bool,
    id: u64,
    name: String,
    kind: u16,
    code: String,
    rtt: f64,
    addresses: Vec<String>,
    is_datagram: bool,
}

/// Captures the talk of `dig`, glibc and `dnsmasq`.
fn talk(file: &str, resolver: &str) {
    let net = Namespace::new("probe_dns");
    let capture = LoCapture::start(&net, file);
    let server = net.spawn("dnsmasq", SERVER);
    server.wait_for_stderr("started", LIMIT);
    for question in QUESTIONS {
        let words = [&["@127.0.0.1", "+tries=1", "+time=30"], *question].concat();
        let _answer = net.run("dig", &words).success();
    }
    let words = ["-m", "sh", "-c", GLIBC, resolver];
    let answer = net.run("unshare", &words).success();
    assert!(answer.stdout.contains("192.0.2.1"), "{}", answer.stdout);
    let words = ["@127.0.0.1", "+tries=1", "the-last.example.org", "A"];
    let _answer = net.run("dig", &words).success();
    // The question, and its answer.
    capture.finish_when(|bytes| count(bytes, b"\x08the-last") >= 2);
    server.interrupt();
    let _ended: Finished = server.wait(LIMIT);
}

fn count(bytes: &[u8], part: &[u8]) -> usize {
    let windows = bytes.windows(part.len());
    windows.filter(|window| *window == part).count()
}

fn tshark(file: &str) -> Vec<Message> {
    let mut command = Command::new("tshark");
    command.args(["-n", "-r", file, "-Y", "dns", "-T", "fields"]);
    for field in FIELDS {
        command.args(["-e", field]);
    }
    let printed = Running::start(command).wait(LIMIT).success().stdout;
    let message = |line: &str| {
        let fields: Vec<_> = line.split('\t').collect();
        let list = |at: usize| fields[at].split(',').filter(|one| !one.is_empty());
        Message {
            is_answer: fields[0] == "1" || fields[0] == "True",
            id: u64::from_str_radix(fields[1].trim_start_matches("0x"), 16).expect("a number"),
            name: fields[2].to_lowercase(),
            kind: fields[3].parse().expect("a number"),
            code: fields[4].into(),
            rtt: fields[5].parse().unwrap_or_default(),
            addresses: list(6).chain(list(7)).map(str::to_owned).collect(),
            is_datagram: !fields[8].is_empty(),
        }
    };
    printed.lines().map(message).collect()
}

#[test]
fn questions_of_real_resolvers_are_told_and_counted_as_tshark_tells_them() {
    require_root!();
    require_tool!("dig", "dnsmasq", "tcpdump", "tshark", "unshare", "getent");
    let folder = tempfile::tempdir().expect("a folder");
    let path = |name: &str| format!("{}/{name}", folder.path().display());
    let (file, config) = (path("dns.pcap"), path("dns.toml"));
    talk(&file, &path("resolv.conf"));
    let want = tshark(&file);

    fs::write(
        &config,
        "[[analysis]]\nkind = \"flows\"\n[[analysis]]\nkind = \"dns\"\n",
    )
    .expect("a file");
    let mut probe = Command::new(BINARY);
    probe.args(["probe", "--json", "-r", &file, "--config", &config]);
    let printed = Running::start(probe).wait(LIMIT).success().stdout;
    let lines = printed
        .lines()
        .map(|line| serde_json::from_str::<Value>(line).expect("JSON"));
    let lines: Vec<_> = lines.collect();

    // Two questions may have the same number, which is random.
    let key = |line: &Value| {
        let name = line["query"].as_str().expect("a name");
        (
            line["trans_id"].as_u64().expect("a number"),
            name.to_owned(),
        )
    };
    let mut records: BTreeMap<_, _> = lines
        .iter()
        .filter(|line| line["type"] == "dns")
        .map(|line| (key(line), line))
        .collect();
    for answer in want.iter().filter(|message| message.is_answer) {
        let of_answer = (answer.id, answer.name.clone());
        let one = records.remove(&of_answer).expect("a record");
        let kind = match answer.kind {
            1 => "A",
            12 => "PTR",
            15 => "MX",
            16 => "TXT",
            28 => "AAAA",
            33 => "SRV",
            other => panic!("type {other}"),
        };
        assert_eq!(one["qtype_name"], kind, "{one}");
        let code = match &*answer.code {
            "0" => "NOERROR",
            "3" => "NXDOMAIN",
            "5" => "REFUSED",
            other => panic!("code {other}"),
        };
        assert_eq!(one["rcode_name"], code, "{one}");
        let rtt = one["rtt"].as_f64().expect("seconds");
        assert!((rtt - answer.rtt).abs() < 2e-6, "{one}");
        // Of MX and SRV, tshark also tells the addresses beside the answer.
        if matches!(answer.kind, 1 | 28) {
            let answers = one["answers"].as_array().cloned().unwrap_or_default();
            let answers = answers.iter().filter_map(Value::as_str);
            let answers: Vec<_> = answers
                .filter(|text| text.parse::<std::net::IpAddr>().is_ok())
                .collect();
            assert_eq!(answers, answer.addresses, "{one}");
        }
    }
    assert!(records.is_empty(), "{records:?}");

    let mut names: BTreeMap<_, (u64, u64)> = BTreeMap::new();
    for message in want.iter().filter(|message| message.is_datagram) {
        let counts = names.entry(message.name.clone()).or_default();
        if message.is_answer {
            counts.1 += u64::from(message.code != "0")
        } else {
            counts.0 += 1
        }
    }
    assert_eq!(
        (names["none.example.org"], names["elsewhere.test"]),
        ((2, 2), (1, 1))
    );
    let counted = lines.iter().filter(|line| line["analysis"] == "dns");
    let counted: BTreeMap<_, _> = counted
        .map(|line| {
            let value = |name: &str| line["values"][name].as_u64().expect("a number");
            let key = line["key"].as_str().expect("a name").to_owned();
            (key, (value("questions"), value("failures")))
        })
        .collect();
    assert_eq!(counted, names);
}
