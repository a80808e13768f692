// SPDX-License-Identifier: MIT OR Apache-2.0
//! Answers to scrapers, and to clients that are faulty, silent or too many.

use std::collections::HashSet;
use std::io::{Read as _, Write as _};
use std::net::{Ipv4Addr, TcpListener, TcpStream};
use std::time::Duration;

use ringtap_ipc::protocol::{
    DepartedStatus, Division, GroupStatus, HubStatus, LaneStatus, ReaderStatus, SourceState,
    SourceStatus,
};
use ringtap_pool::congestion::Congestion;
use ringtap_pool::distributor::Policy;
use ringtap_pool::source::Counters;

use super::exposition::exposition;
use super::*;

/// A hub with two lanes, two readers and every kind of loss.
fn hub() -> HubStatus {
    let lane = |lane| LaneStatus {
        lane,
        counts: Counters {
            offered: 100,
            captured: 80,
            bytes: 8000,
            filtered: 10,
            pool_full: 7,
            kernel: 3,
        },
        chunks: 64,
        chunks_in_use: 5,
        paused: lane == 1,
    };
    let source = SourceStatus {
        device: "tap:eth0".into(),
        state: SourceState::Paused,
        pool_bytes: 4096,
        nic: 11,
        kernel: 2,
        lanes: vec![lane(0), lane(1)],
        balanced: true,
        congestion: Some(Congestion {
            low_percent: 10,
            high_percent: 30,
        }),
        ..SourceStatus::default()
    };
    let reader = |reader| ReaderStatus {
        reader,
        name: "a \"b\"\\c\nd".into(),
        group: "ids".into(),
        delivered: 60,
        filtered: 4,
        other_members: 5,
        bytes: 6000,
        overrun: 9,
        lag_chunks: 3,
        lag_ms: 1500,
        credit_chunks: 56,
        unread: 17,
        helped_chunks: 21,
        buckets: 128,
        ..ReaderStatus::default()
    };
    HubStatus {
        started_ns: 1_500_000_000,
        version: "0.2.0".into(),
        pid: 7,
        sources: vec![source.clone(), source],
        groups: vec![GroupStatus {
            name: "ids".into(),
            members: 2,
            division: Division::Lanes,
            policy: Policy::Sample { one_in: 10 },
            offload_percent: Some(60),
            offloaded_chunks: 42,
            offloaded_packets: 4200,
            disordered_packets: 99,
            ..GroupStatus::default()
        }],
        readers: vec![reader(1), reader(2)],
        departed_overrun: 13,
        departed: vec![DepartedStatus {
            name: "old".into(),
            group: "ids".into(),
            uid: 7,
            delivered: 40,
            overrun: 13,
            unread: 6,
            ..DepartedStatus::default()
        }],
        ..HubStatus::default()
    }
}

fn start(status: impl Fn() -> Option<HubStatus> + Send + 'static) -> MetricsServer {
    let any = "127.0.0.1:0".parse().unwrap();
    serve(any, Reach::Loopback, move || {
        status().map(|status| exposition(&status))
    })
    .unwrap()
}

fn ask(server: &MetricsServer, request: &[u8]) -> String {
    let mut stream = TcpStream::connect(server.address).unwrap();
    stream
        .set_read_timeout(Some(Duration::from_secs(60)))
        .unwrap();
    stream.write_all(request).unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    answer
}

#[test]
fn every_counter_has_its_line() {
    let text = exposition(&hub()).unwrap();
    let name = r#"name="a \"b\"\\c\nd""#;
    for line in [
        r#"ringtap_hub_info{version="0.2.0",pid="7"} 1"#.to_owned(),
        "ringtap_start_time_seconds 1.5".to_owned(),
        r#"ringtap_offered_packets_total{source="tap:eth0",lane="1"} 100"#.to_owned(),
        r#"ringtap_captured_packets_total{source="tap:eth0",lane="0"} 80"#.to_owned(),
        r#"ringtap_filtered_packets_total{source="tap:eth0",lane="0"} 10"#.to_owned(),
        r#"ringtap_lost_packets_total{source="tap:eth0",lane="0",reason="pool_full"} 7"#.to_owned(),
        r#"ringtap_lost_packets_total{source="tap:eth0",lane="0",reason="kernel"} 3"#.to_owned(),
        r#"ringtap_lost_packets_total{source="tap:eth0",reason="kernel"} 2"#.to_owned(),
        r#"ringtap_lost_packets_total{source="tap:eth0",reason="nic"} 11"#.to_owned(),
        r#"ringtap_chunks{source="tap:eth0",lane="0"} 64"#.to_owned(),
        r#"ringtap_chunks_in_use{source="tap:eth0",lane="0"} 5"#.to_owned(),
        r#"ringtap_paused{source="tap:eth0",lane="1"} 1"#.to_owned(),
        r#"ringtap_source_up{source="tap:eth0"} 1"#.to_owned(),
        r#"ringtap_source_balanced{source="tap:eth0"} 1"#.to_owned(),
        r#"ringtap_pool_bytes{source="tap:eth0"} 4096"#.to_owned(),
        r#"ringtap_group_members{group="ids"} 2"#.to_owned(),
        r#"ringtap_captured_wire_bytes_total{source="tap:eth0",lane="1"} 8000"#.to_owned(),
        r#"ringtap_source_congestion_percent{source="tap:eth0",mark="low"} 10"#.to_owned(),
        r#"ringtap_source_congestion_percent{source="tap:eth0#2",mark="high"} 30"#.to_owned(),
        r#"ringtap_group_info{balance="lanes",delivery="shared",policy="sample:10",group="ids"} 1"#
            .to_owned(),
        r#"ringtap_group_offload_percent{group="ids"} 60"#.to_owned(),
        r#"ringtap_group_offloaded_chunks_total{group="ids"} 42"#.to_owned(),
        r#"ringtap_group_offloaded_packets_total{group="ids"} 4200"#.to_owned(),
        r#"ringtap_group_disordered_packets_total{group="ids"} 99"#.to_owned(),
        format!(r#"ringtap_reader_unread_packets{{group="ids",reader="1",{name}}} 17"#),
        r#"ringtap_departed_reader_unread_packets_total{group="ids",name="old",uid="7"} 6"#
            .to_owned(),
        format!(r#"ringtap_reader_helped_chunks_total{{group="ids",reader="2",{name}}} 21"#),
        format!(r#"ringtap_reader_buckets{{group="ids",reader="2",{name}}} 128"#),
        format!(r#"ringtap_reader_delivered_packets_total{{group="ids",reader="1",{name}}} 60"#),
        format!(r#"ringtap_reader_filtered_packets_total{{group="ids",reader="1",{name}}} 4"#),
        format!(r#"ringtap_reader_other_members_packets_total{{group="ids",reader="1",{name}}} 5"#),
        format!(
            r#"ringtap_reader_delivered_wire_bytes_total{{group="ids",reader="1",{name}}} 6000"#
        ),
        format!(
            r#"ringtap_reader_lost_packets_total{{group="ids",reader="2",{name},reason="overrun"}} 9"#
        ),
        r#"ringtap_departed_readers_lost_packets_total{reason="overrun"} 13"#.to_owned(),
        r#"ringtap_departed_reader_lost_packets_total{group="ids",name="old",uid="7"} 13"#
            .to_owned(),
        format!(r#"ringtap_reader_lag_chunks{{group="ids",reader="1",{name}}} 3"#),
        format!(r#"ringtap_reader_credit_chunks{{group="ids",reader="1",{name}}} 56"#),
        format!(r#"ringtap_reader_lag_seconds{{group="ids",reader="1",{name}}} 1.5"#),
        format!(r#"ringtap_reader_corrupt{{group="ids",reader="1",{name}}} 0"#),
    ] {
        assert!(text.lines().any(|one| one == line), "no {line} in\n{text}");
    }
    assert!(text.ends_with("# EOF\n"));
}

#[test]
fn no_sample_is_there_twice_and_every_metric_is_explained() {
    let text = exposition(&hub()).unwrap();
    let mut samples = HashSet::new();
    let mut documented = HashSet::new();
    for line in text.lines() {
        if let Some(help) = line.strip_prefix("# HELP ") {
            documented.insert(help.split(' ').next().unwrap());
        } else if !line.starts_with('#') {
            let sample = line.rsplit_once(' ').unwrap().0;
            assert!(samples.insert(sample), "{sample} is there twice");
            let name = sample.split('{').next().unwrap();
            let name = name.trim_end_matches("_total").trim_end_matches("_info");
            assert!(documented.contains(name), "{name} has no help");
        }
    }
    assert!(samples.iter().any(|one| one.contains("tap:eth0#2")));
}

#[test]
fn every_metric_is_in_the_documentation() {
    let page = include_str!("../../../../../../docs/counters.md");
    let text = exposition(&hub()).unwrap();
    for line in text.lines().filter(|line| !line.starts_with('#')) {
        let name = line.split(['{', ' ']).next().unwrap();
        assert!(
            page.contains(&format!("`{name}`")),
            "{name} is not in docs/counters.md"
        );
    }
}

#[test]
fn a_scraper_gets_the_metrics_of_that_moment() {
    let server = start(|| Some(hub()));
    let answer = ask(&server, b"GET /metrics HTTP/1.1\r\nHost: x\r\n\r\n");
    assert!(answer.starts_with("HTTP/1.1 200 OK\r\n"), "{answer}");
    assert!(answer.contains("content-type: application/openmetrics-text; version=1.0.0"));
    let (head, body) = answer.split_once("\r\n\r\n").unwrap();
    assert!(head.contains(&format!("content-length: {}", body.len())));
    assert_eq!(body, exposition(&hub()).unwrap());
    let head = ask(&server, b"HEAD /metrics HTTP/1.1\r\n\r\n");
    assert!(head.ends_with("\r\n\r\n") && head.contains("200 OK"));
}

#[test]
fn what_is_no_scrape_is_refused() {
    let server = start(|| Some(hub()));
    let long = [b"GET /".as_slice(), &[b'a'; 20_000], b" HTTP/1.1\r\n\r\n"].concat();
    for (request, status) in [
        (b"GET / HTTP/1.1\r\n\r\n".as_slice(), "200"),
        (b"GET /etc/passwd HTTP/1.1\r\n\r\n", "404"),
        (b"POST /metrics HTTP/1.1\r\n\r\n", "405"),
        (b"\x16\x03\x01\x00\r\n\r\n", "400"),
        (b"GET /metrics\r\n\r\n", "400"),
        (&long, "431"),
    ] {
        let answer = ask(&server, request);
        assert!(
            answer.starts_with(&format!("HTTP/1.1 {status} ")),
            "{answer}"
        );
    }
}

#[test]
fn a_silent_client_and_one_that_leaves_do_not_keep_others_out() {
    let server = start(|| Some(hub()));
    let silent = TcpStream::connect(server.address).unwrap();
    drop(TcpStream::connect(server.address).unwrap());
    let answer = ask(&server, b"GET /metrics HTTP/1.0\r\n\r\n");
    assert!(answer.contains("200 OK"));
    drop(silent);
}

/// A server at all addresses of the loopback network whose time-outs never pass.
fn start_patient(text: String) -> MetricsServer {
    let hour = Duration::from_secs(3600);
    let (head, all) = (hour, hour);
    let listener = TcpListener::bind("0.0.0.0:0").unwrap();
    let pages = Pages {
        exposition: Box::new(move || Some(Ok(text.clone()))),
        last: None,
    };
    super::start(listener, pages, Timeouts { head, all }).unwrap()
}

/// Connects to a server at another address of the loopback network, from that address.
fn connect(server: &MetricsServer, last_byte: u8) -> TcpStream {
    let address = (Ipv4Addr::new(127, 0, 0, last_byte), server.address.port());
    let stream = TcpStream::connect(address).unwrap();
    let timeout = Some(Duration::from_secs(60));
    stream.set_read_timeout(timeout).unwrap();
    stream
}

fn scrape(mut stream: TcpStream) -> String {
    let request = b"GET /metrics HTTP/1.1\r\nHost: x\r\n\r\n";
    stream.write_all(request).unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    answer
}

/// Whether the server has closed a connection.
fn is_closed(client: &mut TcpStream) -> bool {
    client.set_nonblocking(true).unwrap();
    let read = client.read(&mut [0; 1]);
    !read.is_err_and(|error| error.kind() == io::ErrorKind::WouldBlock)
}

#[test]
fn two_hundred_clients_that_do_not_ask_keep_no_scraper_waiting() {
    for (clients, from) in [(0, 1..2), (200, 1..2), (200, 1..21)] {
        let server = start_patient(exposition(&hub()).unwrap());
        let mut open: Vec<_> = from
            .cycle()
            .take(clients)
            .map(|byte| connect(&server, byte))
            .collect();
        for at in 0..20 {
            // Some are silent. Others send a byte now and then, which is no request.
            for client in open.iter_mut().skip(at % 2).step_by(3) {
                let _ended = client.write_all(&b"GET /metrics HTTP/1.1"[at..=at]);
            }
            let scraper = connect(&server, if at % 4 == 0 { 99 } else { 1 });
            let answer = scrape(scraper);
            assert!(answer.starts_with("HTTP/1.1 200 OK\r\n"), "{answer}");
        }
        let closed = open.iter_mut().map(is_closed).filter(|closed| *closed);
        let still_open = clients - closed.count();
        assert!(still_open <= connections::MAX_CONNECTIONS, "{still_open}");
        let expected = match clients {
            0 => 0,
            _ => connections::MAX_PER_ADDRESS - 1,
        };
        assert!(still_open >= expected, "{still_open} of {clients}");
    }
}

#[test]
fn clients_that_take_no_answer_keep_no_scraper_waiting() {
    // More than the kernel keeps for a connection.
    let server = start_patient("x".repeat(12 << 20));
    let mut deaf: Vec<_> = (0..20).map(|_| connect(&server, 1)).collect();
    for client in &mut deaf {
        let _ended = client.write_all(b"GET /metrics HTTP/1.1\r\n\r\n");
    }
    for last_byte in [1, 99] {
        let answer = scrape(connect(&server, last_byte));
        assert!(answer.contains("200 OK"), "{answer}");
    }
}

#[test]
fn a_client_without_a_whole_request_is_cut_off() {
    let server = start(|| Some(hub()));
    let mut silent = TcpStream::connect(server.address).unwrap();
    let mut slow = TcpStream::connect(server.address).unwrap();
    slow.write_all(b"GET /metrics HTTP/1.1\r\nHost: ").unwrap();
    for stream in [&mut silent, &mut slow] {
        let timeout = Some(Duration::from_secs(60));
        stream.set_read_timeout(timeout).unwrap();
        let mut rest = Vec::new();
        stream.read_to_end(&mut rest).unwrap();
        assert!(!rest.starts_with(b"HTTP/1.1 200"), "{rest:?}");
    }
}

#[test]
fn without_a_hub_there_is_an_error_and_without_a_server_no_port() {
    let server = start(|| None);
    let answer = ask(&server, b"GET /metrics HTTP/1.1\r\n\r\n");
    assert!(answer.starts_with("HTTP/1.1 503 "), "{answer}");
    let address = server.address;
    drop(server);
    assert!(TcpStream::connect(address).is_err());
}

#[test]
fn other_machines_are_kept_out_unless_the_user_lets_them_in() {
    for address in ["0.0.0.0:0", "[::]:0", "192.0.2.1:0", "[::ffff:192.0.2.1]:0"] {
        let refused = serve(address.parse().unwrap(), Reach::Loopback, || None)
            .err()
            .unwrap();
        let refused = refused.to_string();
        assert!(
            refused.contains("could be read by other machines"),
            "{refused}"
        );
        assert!(refused.contains("--metrics-anywhere"), "{refused}");
    }
    serve("0.0.0.0:0".parse().unwrap(), Reach::Anywhere, || None).unwrap();
}

#[test]
fn an_address_that_is_taken_is_named() {
    let taken = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = taken.local_addr().unwrap();
    let refused = serve(address, Reach::Loopback, || None).err().unwrap();
    let refused = crate::describe(&refused);
    assert!(refused.starts_with(&format!("metrics at {address}: ")));
}
