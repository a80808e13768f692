// SPDX-License-Identifier: MIT OR Apache-2.0
//! TLS, HTTP and DNS of real programs, as `ringtap probe` and tshark tell them.

use std::fs;
use std::process::Command;

use ringtap_testkit::{
    LIMIT, LoCapture, Namespace, Running, require_root, require_tool, say_skipped,
};
use serde_json::Value;

const BINARY: &str = env!("CARGO_BIN_EXE_ringtap");
const SCRIPT: &str = include_str!("applications.py");

#[test]
fn applications_of_real_programs_are_told_as_tshark_tells_them() {
    require_root!();
    require_tool!("openssl", "curl", "tcpdump", "tshark", "python3", "ethtool");
    let folder = tempfile::tempdir().expect("a folder");
    let path = |name: &str| format!("{}/{name}", folder.path().display());
    let file = path("talk.pcap");
    let net = Namespace::new("applications");
    // Hello messages of several segments.
    net.ip(&["link", "set", "lo", "mtu", "300"]);
    let _whole = net
        .run(
            "ethtool",
            &["-K", "lo", "tso", "off", "gso", "off", "gro", "off"],
        )
        .success();
    let capture = LoCapture::start(&net, &file);
    let _talked = net
        .run("python3", &["-c", SCRIPT, "talk", &path("")])
        .success();
    capture.finish_when(|bytes| contains(bytes, b"GET /the-last "));

    let mut tshark = Command::new("python3");
    tshark.args(["-c", SCRIPT, "read", &file]);
    let fields = Running::start(tshark).wait(LIMIT).success().stdout;
    let want: Value = serde_json::from_str(&fields).expect("JSON");
    let (printed, lines) = probe(&["-r", &file]);
    let service = |service: &str| {
        let service = Value::from(service);
        lines.iter().filter(move |line| line["service"] == service)
    };

    let want_tls = want["tls"].as_object().expect("an object");
    assert_eq!(
        (want_tls.len(), service("tls").count()),
        (4, 4),
        "{printed}"
    );
    for flow in service("tls") {
        let want = &want_tls[&flow["id.orig_p"].to_string()];
        for field in ["server_name", "next_protocol", "ja4", "version"] {
            assert_eq!(flow[field], want[field], "{field} of {flow}");
        }
        assert!(
            flow["cipher"]
                .as_str()
                .is_some_and(|name| name.starts_with("TLS_")),
            "{flow}"
        );
    }
    let hosts: Vec<_> = service("http").map(|flow| &flow["server_name"]).collect();
    assert_eq!(
        hosts,
        want["hosts"]
            .as_array()
            .expect("a list")
            .iter()
            .collect::<Vec<_>>()
    );

    let dns: Vec<_> = lines.iter().filter(|line| line["type"] == "dns").collect();
    assert_eq!(dns.len(), 3, "{printed}");
    let want_dns = want["dns"].as_array().expect("a list");
    assert_eq!(want_dns.len(), 2);
    for want in want_dns {
        let found = dns.iter().find(|one| one["trans_id"] == want["trans_id"]);
        let one = found.expect("a record");
        assert_eq!(
            (&one["query"], &one["answers"]),
            (&want["query"], &want["answers"])
        );
        let code = if want["rcode"] == 0 {
            "NOERROR"
        } else {
            "NXDOMAIN"
        };
        assert_eq!(one["rcode_name"], code);
        let [got, want] = [&one["rtt"], &want["rtt"]].map(|rtt| rtt.as_f64().expect("seconds"));
        assert!((got - want).abs() < 2e-6, "{one}");
    }
    let silent = dns
        .iter()
        .find(|one| one["query"] == "silent.example.org")
        .expect("a record");
    assert!(
        silent.get("rcode_name").is_none() && silent.get("rtt").is_none(),
        "{silent}"
    );
    ndpi_agrees(&file, &path("ndpi.toml"));
    let ledger = lines.last().expect("a ledger");
    assert_eq!(
        (
            &ledger["flows"]["payload_unread"],
            &ledger["flows"]["payload_no_room"]
        ),
        (&0.into(), &0.into())
    );
}

/// A QUIC client: its first packet has the name in a TLS message that only nDPI decrypts.
const QUIC_CLIENT: &str = "echo 127.0.0.1 quic.example.org > $0 && mount --bind $0 /etc/hosts && \
    gtlsclient --handshake-timeout=1s quic.example.org 443 https://quic.example.org/";
/// Takes the datagrams, so that no ICMP message ends the client early.
const QUIC_SINK: &str = "import socket, sys\n\
    sink = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)\n\
    sink.bind((\"127.0.0.1\", 443))\n\
    print(\"bound\", flush=True)\n\
    sink.recv(2000)\n\
    print(\"received\", flush=True)\n\
    sys.stdin.read()\n";

#[test]
fn the_server_name_of_quic_is_that_of_tshark_where_ndpi_is_installed() {
    require_root!();
    require_tool!("gtlsclient", "tcpdump", "tshark", "python3", "unshare");
    if let Err(why) = ringtap_probe::application::require_ndpi() {
        return say_skipped(&why.to_string());
    }
    let folder = tempfile::tempdir().expect("a folder");
    let path = |name: &str| format!("{}/{name}", folder.path().display());
    let (file, config) = (path("quic.pcap"), path("ndpi.toml"));
    let net = Namespace::new("probe_quic");
    let capture = LoCapture::start(&net, &file);
    let sink = net.spawn("python3", &["-c", QUIC_SINK]);
    sink.wait_for_stdout("bound", LIMIT);
    // Nobody answers: the client fails.
    let words = ["-m", "sh", "-c", QUIC_CLIENT, &path("hosts")];
    let _failed = net.run("unshare", &words);
    sink.wait_for_stdout("received", LIMIT);
    // The first datagram has at least 1200 bytes.
    capture.finish_when(|bytes| bytes.len() >= 1200);

    let mut tshark = Command::new("tshark");
    let fields = [
        "-Y",
        "quic",
        "-T",
        "fields",
        "-e",
        "tls.handshake.extensions_server_name",
    ];
    tshark.args(["-n", "-r", &file]).args(fields);
    let names = Running::start(tshark).wait(LIMIT).success().stdout;
    assert_eq!(names.lines().next(), Some("quic.example.org"), "{names}");
    fs::write(&config, "[[analysis]]\nkind = \"flows\"\nndpi = true\n").expect("a file");
    let (printed, lines) = probe(&["-r", &file, "--config", &config]);
    let flow = lines.iter().find(|line| line["id.resp_p"] == 443);
    let flow = flow.unwrap_or_else(|| panic!("{printed}"));
    assert_eq!(
        (&flow["ndpi"], &flow["server_name"]),
        (&"QUIC".into(), &"quic.example.org".into()),
        "{flow}"
    );
}

/// The lines of a probe, also as objects.
fn probe(words: &[&str]) -> (String, Vec<Value>) {
    let mut probe = Command::new(BINARY);
    probe.args(["probe", "--json"]).args(words);
    let printed = Running::start(probe).wait(LIMIT).success().stdout;
    let lines = printed
        .lines()
        .map(|line| serde_json::from_str(line).expect("JSON"));
    let lines = lines.collect();
    (printed, lines)
}

/// nDPI, where it is installed, names the same protocols.
fn ndpi_agrees(file: &str, config: &str) {
    fs::write(config, "[[analysis]]\nkind = \"flows\"\nndpi = true\n").expect("a file");
    if let Err(why) = ringtap_probe::application::require_ndpi() {
        let mut probe = Command::new(BINARY);
        probe.args(["probe", "-r", file, "--config", config]);
        let refused = Running::start(probe).wait(LIMIT);
        assert!(
            refused.stderr.contains("line 3, ndpi: ndpi needs libndpi"),
            "{}",
            refused.stderr
        );
        return say_skipped(&why.to_string());
    }
    let (printed, lines) = probe(&["-r", file, "--config", config]);
    for (service, name) in [("tls", "TLS"), ("http", "HTTP"), ("dns", "DNS")] {
        let of_service = || lines.iter().filter(|line| line["service"] == service);
        assert!(of_service().count() > 0, "{printed}");
        for flow in of_service() {
            assert!(
                flow["ndpi"]
                    .as_str()
                    .is_some_and(|ndpi| ndpi.starts_with(name)),
                "{flow}"
            );
        }
    }
}

fn contains(bytes: &[u8], part: &[u8]) -> bool {
    bytes.windows(part.len()).any(|window| window == part)
}
