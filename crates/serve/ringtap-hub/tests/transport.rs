// SPDX-License-Identifier: MIT OR Apache-2.0
//! The hub's server over a transport in memory, without a UNIX socket.

#[path = "shared/fed.rs"]
mod fed;

use std::collections::VecDeque;
use std::io;
use std::os::fd::{AsFd as _, BorrowedFd, OwnedFd};
use std::sync::{Arc, Mutex};

use ringtap_hub::server::{refuse, serve_one};
use ringtap_hub::{Group, Hub, HubOptions};
use ringtap_ipc::event::{Event, sleep_until_readable};
use ringtap_ipc::peer::Peer;
use ringtap_ipc::protocol::{HubStatus, Refusal, Refused, Reply, Request, VERSION, decode, encode};
use ringtap_ipc::subscription::SubscriptionRequest;
use ringtap_ipc::transport::{MAX_BYTES, Transport};
use ringtap_pool::wake::Signal as _;
use ringtap_testkit::LIMIT;

use fed::FedSource;

/// One direction of the channel.
struct Queue {
    state: Mutex<QueueState>,
    news: Event,
}

#[derive(Default)]
struct QueueState {
    messages: VecDeque<(Vec<u8>, Vec<OwnedFd>)>,
    is_finished: bool,
}

struct MemoryEnd {
    incoming: Arc<Queue>,
    outgoing: Arc<Queue>,
}

impl MemoryEnd {
    fn pair() -> (Self, Self) {
        let queue = || {
            Arc::new(Queue {
                state: Mutex::default(),
                news: Event::new().expect("a descriptor"),
            })
        };
        let (there, back) = (queue(), queue());
        let one = MemoryEnd {
            incoming: Arc::clone(&back),
            outgoing: Arc::clone(&there),
        };
        let other = MemoryEnd {
            incoming: there,
            outgoing: back,
        };
        (one, other)
    }
}

impl Transport for MemoryEnd {
    fn send(&self, message: &[u8], fds: &[BorrowedFd<'_>]) -> io::Result<()> {
        let fds = fds.iter().map(|fd| fd.try_clone_to_owned());
        let fds = fds.collect::<io::Result<_>>()?;
        let mut state = self.outgoing.state.lock().expect("no panic");
        state.messages.push_back((message.to_vec(), fds));
        self.outgoing.news.signal();
        Ok(())
    }

    fn receive<'a>(&self, buffer: &'a mut [u8]) -> io::Result<(&'a [u8], Vec<OwnedFd>)> {
        let mut state = self.incoming.state.lock().expect("no panic");
        let next = state.messages.pop_front();
        if state.messages.is_empty() && !state.is_finished {
            self.incoming.news.clear();
        }
        match next {
            Some((message, fds)) => {
                buffer[..message.len()].copy_from_slice(&message);
                Ok((&buffer[..message.len()], fds))
            }
            None if state.is_finished => Ok((&[], Vec::new())),
            None => Err(io::ErrorKind::WouldBlock.into()),
        }
    }

    fn fd(&self) -> BorrowedFd<'_> {
        self.incoming.news.as_fd()
    }

    fn finish(&self) {
        self.outgoing.state.lock().expect("no panic").is_finished = true;
        self.outgoing.news.signal();
    }
}

impl Drop for MemoryEnd {
    fn drop(&mut self) {
        self.finish();
    }
}

/// The next reply and its descriptors; `None` if the hub left.
fn reply(reader: &MemoryEnd) -> Option<(Reply, Vec<OwnedFd>)> {
    let mut buffer = vec![0; MAX_BYTES];
    loop {
        let ready = sleep_until_readable(&[reader.fd()], Some(LIMIT)).expect("a descriptor");
        assert!(ready, "the hub does not answer");
        match reader.receive(&mut buffer) {
            Ok(([], _)) => return None,
            Ok((bytes, fds)) => return Some((decode(bytes).expect("a reply"), fds)),
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
            Err(error) => panic!("{error}"),
        }
    }
}

fn ask(reader: &MemoryEnd, request: &Request) -> (Reply, Vec<OwnedFd>) {
    reader.send(&encode(request), &[]).expect("it is in memory");
    reply(reader).expect("the hub is there")
}

fn status(reader: &MemoryEnd) -> Box<HubStatus> {
    match ask(reader, &Request::Status { after: 0 }).0 {
        Reply::Status(status) => status,
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_reader_subscribes_changes_its_filter_and_leaves() {
    let groups = vec![Group::new("all")];
    let (hub, _) = Hub::start(
        vec![FedSource::quiet()],
        groups,
        HubOptions::default(),
        Vec::new(),
    )
    .expect("a hub starts");
    let (reader, server) = MemoryEnd::pair();
    std::thread::scope(|scope| {
        let served = scope.spawn(|| serve_one(Box::new(server), Peer::this_process(), &hub));
        let hello = Request::Hello {
            protocol: VERSION,
            features: Vec::new(),
            name: "in memory".into(),
        };
        assert!(matches!(ask(&reader, &hello).0, Reply::Hello { .. }));
        let request = SubscriptionRequest {
            credit_chunks: Some(3),
            ..SubscriptionRequest::new("all", "")
        };
        let (Reply::Attached(attached), fds) = ask(&reader, &Request::Attach(request)) else {
            panic!("no subscription");
        };
        let subscription = attached.open(fds).expect("memory and a doorbell");
        assert_eq!(subscription.endpoints.len(), 1);
        assert_eq!(subscription.endpoints[0].facts.device, "fed");
        let here = status(&reader);
        assert_eq!(here.readers[0].name, "in memory");
        assert_eq!(here.readers[0].reader, subscription.id.0);
        assert_eq!(here.readers[0].credit_chunks, 3);
        let filter = Request::Filter {
            program: ringtap_filter::Program::everything(),
        };
        assert!(matches!(ask(&reader, &filter).0, Reply::Filtered { .. }));
        assert_eq!(ask(&reader, &Request::Detach).0, Reply::Done);
        assert!(status(&reader).readers.is_empty());
        reader.finish();
        served.join().expect("no panic").expect("it can wait");
    });
    assert!(reply(&reader).is_none(), "the server hung up");
}

#[test]
fn a_refused_reader_reads_why() {
    let (reader, server) = MemoryEnd::pair();
    reader.send(b"{}", &[]).expect("it is in memory");
    refuse(&server, "not here");
    let Some((Reply::Refused(refused), _)) = reply(&reader) else {
        panic!("no refusal");
    };
    assert_eq!(refused, Refused::new(Refusal::TooMuch, "not here"));
}
