// SPDX-License-Identifier: MIT OR Apache-2.0
//! The hub serves while rules are loaded: no reader waits for another reader's filter.

mod counting;
#[path = "../shared/fed.rs"]
mod fed;
mod foreign;
mod gated;

use std::collections::BTreeSet;
use std::os::fd::AsFd as _;
use std::path::Path;
use std::time::{Duration, Instant};

use gated::{Gate, gated};
use ringtap_hub::server::{Server, ServerOptions};
use ringtap_hub::{Group, Handle, Hub, HubOptions};
use ringtap_ipc::event::sleep_until_readable;
use ringtap_ipc::protocol::{HubStatus, Refusal, Refused, Reply, decode};
use ringtap_ipc::socket::{Listener, Socket};
use ringtap_ipc::subscription::{Subscription, SubscriptionRequest};
use ringtap_ipc::transport::{MAX_BYTES, Transport as _};
use ringtap_pool::reader::{NextBatch, Reader};
use ringtap_testkit::LIMIT;
use rustix::net::sockopt::{Timeout, set_socket_timeout};

const HELLO: &str = r#"{"ask":"hello","protocol":1,"name":"test"}"#;
const ATTACH: &str = r#"{"ask":"attach","group":"all"}"#;
/// The filter `ret 0` takes no packet.
const ATTACH_WITH_FILTER: &str = r#"{"ask":"attach","group":"all","filter":[6]}"#;
const CREDIT: &str = r#"{"ask":"credit","chunks":2}"#;
const STATUS: &str = r#"{"ask":"status"}"#;

/// A hub on a gated source, with a server.
struct Setup {
    gate: Gate,
    socket: tempfile::TempDir,
    _server: Server,
    hub: Hub,
}

impl Setup {
    fn new() -> Self {
        Setup::with(Group::new("all"))
    }

    fn with(group: Group) -> Self {
        let (source, gate) = gated();
        let groups = vec![group];
        let started = Hub::start(
            vec![Box::new(source)],
            groups,
            HubOptions::default(),
            Vec::new(),
        );
        let (hub, _) = started.expect("a hub starts");
        let socket = tempfile::tempdir().expect("a folder");
        let listener = Listener::bind(&socket.path().join("hub.sock")).expect("a socket");
        let server = Server::open(listener, &hub, ServerOptions::default());
        Setup {
            gate,
            socket,
            _server: server.expect("a thread"),
            hub,
        }
    }

    fn connect(&self) -> Connection {
        let connection = Connection::new(&self.socket.path().join("hub.sock"));
        assert!(matches!(connection.ask(HELLO), Reply::Hello { .. }));
        connection
    }

    /// Waits until the hub has every request that was sent before. The server may see several ready
    /// connections in any order, and the last one a turn earlier: a third answer comes after all.
    fn wait_for_requests(&self, other: &Connection) {
        for _ in 0..3 {
            let _answer = other.status();
        }
    }

    fn handle(&self) -> &Handle {
        self.hub.handle()
    }

    /// Number of rules in the next set that is being loaded.
    fn rules_of_next_set(&self) -> usize {
        let begun = self.gate.begun.recv_timeout(LIMIT);
        begun.expect("rules are being loaded").each.len()
    }
}

impl Drop for Setup {
    fn drop(&mut self) {
        // The hub waits for its loader threads; refuse the sets that they still load.
        for _ in 0..100 {
            let _gone = self.gate.outcome.send(Err("the test is over".to_owned()));
        }
    }
}

struct Connection(Socket);

impl Connection {
    fn new(path: &Path) -> Self {
        let socket = Socket::connect(path).expect("the hub listens");
        set_socket_timeout(&socket, Timeout::Recv, Some(LIMIT)).expect("a socket");
        Connection(socket)
    }

    fn send(&self, message: &str) {
        self.0
            .send(message.as_bytes(), &[])
            .expect("the hub listens");
    }

    fn answer(&self) -> Reply {
        let mut buffer = vec![0; MAX_BYTES];
        let (bytes, _) = self.0.receive(&mut buffer).expect("the hub answers");
        decode(bytes).expect("an answer of the protocol")
    }

    fn ask(&self, message: &str) -> Reply {
        self.send(message);
        self.answer()
    }

    fn has_answer(&self) -> bool {
        sleep_until_readable(&[self.0.as_fd()], Some(Duration::ZERO)).expect("a socket")
    }

    fn status(&self) -> Box<HubStatus> {
        match self.ask(STATUS) {
            Reply::Status(status) => status,
            other => panic!("{other:?}"),
        }
    }
}

/// Reads until this many packets have come.
fn read(reader: &mut Reader, packets: usize) {
    let until = Instant::now() + LIMIT;
    let mut read = 0;
    while read < packets {
        match reader.try_next().expect("the pool is well") {
            NextBatch::Batch(batch) => read += batch.len(),
            NextBatch::Empty => assert!(Instant::now() < until, "{read} of {packets} packets"),
            NextBatch::Ended => panic!("the source ended"),
        }
    }
    assert_eq!(read, packets);
}

fn reader_of(subscription: &mut Subscription) -> Reader {
    let endpoint = subscription.endpoints.remove(0);
    let hub = subscription.doorbell.clone();
    Reader::open(endpoint.pool, &endpoint.control, endpoint.facts.policy, hub).expect("its memory")
}

#[test]
fn readers_are_served_while_rules_for_another_are_loaded() {
    let setup = Setup::new();
    setup.gate.open(2);
    let request = SubscriptionRequest::new("all", "first");
    let attached = setup.handle().attach(request);
    let mut subscription = attached.expect("a subscription");
    let mut reader = reader_of(&mut subscription);
    let other = setup.connect();
    assert!(matches!(other.ask(ATTACH), Reply::Attached(_)));
    assert_eq!(
        [setup.rules_of_next_set(), setup.rules_of_next_set()],
        [1, 1]
    );

    let late = setup.connect();
    late.send(ATTACH_WITH_FILTER);
    assert_eq!(setup.rules_of_next_set(), 2);
    for round in 1..=10 {
        setup.gate.write(20);
        read(&mut reader, 20);
        assert_eq!(other.ask(CREDIT), Reply::Done);
        let status = other.status();
        assert_eq!(status.sources[0].lanes[0].counters.delivered, 20 * round);
        assert_eq!(status.readers.len(), 2);
        setup
            .handle()
            .set_credit(subscription.id, 3)
            .expect("it may");
    }
    assert!(!late.has_answer(), "its rules are not yet in force");
    setup.gate.open(1);
    assert!(matches!(late.answer(), Reply::Attached(_)));
    assert_eq!(other.status().readers.len(), 3);
    setup.gate.write(1);
    read(&mut reader, 1);
}

#[test]
fn changes_that_come_while_rules_are_loaded_are_loaded_together() {
    let setup = Setup::new();
    let readers: Vec<_> = (0..4).map(|_| setup.connect()).collect();
    let other = setup.connect();
    readers[0].send(ATTACH_WITH_FILTER);
    assert_eq!(setup.rules_of_next_set(), 1);
    for reader in &readers[1..] {
        reader.send(ATTACH_WITH_FILTER);
    }
    setup.wait_for_requests(&other);
    assert!(other.status().readers.is_empty());
    setup.gate.open(2);
    for reader in &readers {
        assert!(matches!(reader.answer(), Reply::Attached(_)));
    }
    assert_eq!(setup.rules_of_next_set(), 4);
    assert!(setup.gate.begun.try_recv().is_err(), "two sets were enough");
}

#[test]
fn a_refusal_is_for_the_reader_whose_change_is_refused() {
    let setup = Setup::new();
    let readers: Vec<_> = (0..4).map(|_| setup.connect()).collect();
    let other = setup.connect();
    readers[0].send(ATTACH);
    assert_eq!(setup.rules_of_next_set(), 1);
    readers[1].send(ATTACH);
    readers[2].send(ATTACH_WITH_FILTER);
    readers[3].send(ATTACH);
    setup.wait_for_requests(&other);
    assert!(other.status().readers.is_empty());
    setup.gate.open(1);
    // A set with the filter has two rules.
    let gate = &setup.gate;
    std::thread::scope(|scope| {
        let answers = scope.spawn(|| readers.iter().map(Connection::answer).collect::<Vec<_>>());
        while !answers.is_finished() {
            let Ok(rules) = gate.begun.recv_timeout(Duration::from_millis(20)) else {
                continue;
            };
            let outcome = match rules.each.len() {
                1 => Ok(()),
                _ => Err("no such filter".to_owned()),
            };
            gate.outcome.send(outcome).expect("the source is there");
        }
        let answers = answers.join().expect("answers");
        let is_attached = |at: usize| matches!(answers[at], Reply::Attached(_));
        assert!(
            is_attached(0) && is_attached(1) && is_attached(3),
            "{answers:?}"
        );
        let Reply::Refused(Refused { code, message }) = &answers[2] else {
            panic!("{answers:?}")
        };
        assert_eq!(
            (*code, &**message),
            (Refusal::Failed, "fed: no such filter")
        );
    });
    assert_eq!(other.status().groups[0].members, 3);
}

#[test]
fn however_often_readers_ask_the_hubs_thread_reads_its_figures_at_a_bounded_rate() {
    let setup = Setup::new();
    let handle = setup.handle();
    let ask = || {
        let status = || handle.status().expect("the hub is there");
        (0..50).map(|_| status().time_ns).collect::<Vec<_>>()
    };
    let readings: BTreeSet<u64> = std::thread::scope(|scope| {
        let readers: Vec<_> = (0..4).map(|_| scope.spawn(ask)).collect();
        let readers = readers.into_iter().map(|reader| reader.join());
        readers.flat_map(|times| times.expect("no panic")).collect()
    });
    let readings: Vec<_> = readings.into_iter().collect();
    assert!(
        readings.len() >= 50,
        "each answer is newer than the request"
    );
    let apart = readings.windows(2).map(|pair| pair[1] - pair[0]);
    assert!(apart.min() > Some(9_000_000), "{readings:?}");
}
