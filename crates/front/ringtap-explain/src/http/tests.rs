// SPDX-License-Identifier: MIT OR Apache-2.0
//! Answers to scrapers, and to clients that are faulty, silent or too many.

use std::io::{Read as _, Write as _};
use std::net::{Ipv4Addr, TcpListener, TcpStream};
use std::time::Duration;

use ringtap_ipc::protocol::{GroupStatus, HubStatus};

use super::*;
use crate::exposition;

/// The metrics of a hub with two groups.
fn metrics() -> Result<String, fmt::Error> {
    let group = |name: &str| GroupStatus {
        name: name.into(),
        ..GroupStatus::default()
    };
    exposition(&HubStatus {
        groups: vec![group("ids"), group("rec")],
        ..HubStatus::default()
    })
}

fn start(metrics: impl Fn() -> Option<Exposition> + Send + 'static) -> MetricsServer {
    serve("127.0.0.1:0".parse().unwrap(), Reach::Loopback, metrics).unwrap()
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
fn a_scraper_gets_the_metrics_of_that_moment() {
    let server = start(|| Some(metrics()));
    let answer = ask(&server, b"GET /metrics HTTP/1.1\r\nHost: x\r\n\r\n");
    assert!(answer.starts_with("HTTP/1.1 200 OK\r\n"), "{answer}");
    assert!(answer.contains("content-type: application/openmetrics-text; version=1.0.0"));
    let (head, body) = answer.split_once("\r\n\r\n").unwrap();
    assert!(head.contains(&format!("content-length: {}", body.len())));
    assert_eq!(body, metrics().unwrap());
    let head = ask(&server, b"HEAD /metrics HTTP/1.1\r\n\r\n");
    assert!(head.ends_with("\r\n\r\n") && head.contains("200 OK"));
}

#[test]
fn what_is_no_scrape_is_refused() {
    let server = start(|| Some(metrics()));
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
    let server = start(|| Some(metrics()));
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
        let server = start_patient(metrics().unwrap());
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
    let server = start(|| Some(metrics()));
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
    }
    serve("0.0.0.0:0".parse().unwrap(), Reach::Anywhere, || None).unwrap();
}

#[test]
fn an_address_that_is_taken_is_named() {
    let taken = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = taken.local_addr().unwrap();
    let refused = serve(address, Reach::Loopback, || None).err().unwrap();
    let refused = refused.to_string();
    assert!(refused.starts_with(&format!("metrics at {address}: ")));
}
