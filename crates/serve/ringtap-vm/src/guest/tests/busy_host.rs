// SPDX-License-Identifier: MIT OR Apache-2.0
//! An agent whose host takes its time. The host is this test, behind a pair of sockets.

use std::os::fd::OwnedFd;
use std::path::Path;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

use ringtap_hub::{AccessList, Limits};
use ringtap_vnplug::ctrl::frame::{Deframer, encode};
use ringtap_vnplug::ctrl::message::Message;
use ringtap_vnplug::guest::{GuestError, HostLink};
use rustix::net::{AddressFamily, SocketFlags, SocketType, socketpair};

use super::*;
use crate::guest::{Agent, AgentOptions, STATUS_FILE, is_agent_running};
use crate::messages::pack;

/// Time that the host takes for its welcome.
const DELAY: Duration = Duration::from_secs(3);

/// The host's end of a link.
struct HostEnd {
    socket: OwnedFd,
    deframer: Deframer,
}

impl HostEnd {
    /// The agent's next message; `None` after the end of the link.
    fn next(&mut self) -> Option<Message> {
        let mut bytes = [0; 1];
        loop {
            match rustix::io::read(&self.socket, &mut bytes) {
                Ok(1) => {}
                _ => return None,
            }
            if let Some(body) = self.deframer.next(&mut &bytes[..]) {
                return Some(Message::decode(&body).unwrap());
            }
        }
    }

    fn send(&self, message: &Message) {
        let frame = encode(&message.encode());
        // Fails if the agent has left.
        let _left = rustix::io::write(&self.socket, &frame);
    }

    /// Serves one agent, late; returns when it leaves.
    fn serve(mut self) {
        while let Some(message) = self.next() {
            let Message::Hello {
                newest, instance, ..
            } = message
            else {
                continue;
            };
            std::thread::sleep(DELAY);
            self.send(&Message::Welcome {
                version: newest,
                instance,
            });
            let groups = vec![granted()];
            let message = pack(&HostMessage::Granted { groups }, 0).unwrap();
            self.send(&Message::Application(message));
        }
    }
}

/// A link, and the host's end of it.
fn link() -> Result<(HostEnd, HostLink), GuestError> {
    let (family, kind) = (AddressFamily::UNIX, SocketType::STREAM);
    let pair = socketpair(family, kind, SocketFlags::CLOEXEC, None);
    let (socket, port) = pair.map_err(std::io::Error::from)?;
    rustix::io::ioctl_fionbio(&port, true).map_err(std::io::Error::from)?;
    let deframer = Deframer::default();
    Ok((HostEnd { socket, deframer }, HostLink::over(port)?))
}

fn options(folder: &Path) -> AgentOptions {
    AgentOptions {
        folder: folder.to_owned(),
        access: AccessList::default(),
        limits: Limits::default(),
    }
}

#[test]
fn an_agent_waits_for_a_busy_host_and_does_not_begin_anew() {
    let folder = tempfile::tempdir().unwrap();
    assert!(!is_agent_running(folder.path()));
    let mut agent = Agent::new(options(folder.path())).unwrap();
    assert!(is_agent_running(folder.path()));
    let second = Agent::new(options(folder.path()));
    assert!(second.is_err(), "a second agent");
    let (stop, links) = (agent.stopper(), AtomicUsize::new(0));
    let status = || std::fs::read_to_string(folder.path().join(STATUS_FILE)).unwrap_or_default();
    std::thread::scope(|scope| {
        let (agent, links) = (&mut agent, &links);
        let open = move || {
            links.fetch_add(1, Relaxed);
            let (host, link) = link()?;
            scope.spawn(|| host.serve());
            Ok(link)
        };
        let run = scope.spawn(move || agent.run_on(open));
        let deadline = Instant::now() + LIMIT;
        while !(status().contains("host: attached") && status().contains("host:ids")) {
            let is_late = Instant::now() > deadline;
            assert!(!is_late && !run.is_finished(), "{}", status());
            std::thread::sleep(Duration::from_millis(20));
        }
        assert_eq!(links.load(Relaxed), 1);
        stop();
        run.join().unwrap().unwrap();
    });
    drop(agent);
    assert!(!is_agent_running(folder.path()));
}

#[test]
fn an_agent_of_another_version_ends() {
    let folder = tempfile::tempdir().unwrap();
    let mut agent = Agent::new(options(folder.path())).unwrap();
    let open = || {
        let (mut host, link) = link()?;
        std::thread::spawn(move || {
            if let Some(Message::Hello { instance, .. }) = host.next() {
                let (oldest, newest) = (7, 9);
                host.send(&Message::Refuse {
                    oldest,
                    newest,
                    instance,
                });
            }
            // Until the agent leaves.
            host.next();
        });
        Ok(link)
    };
    let error = agent.run_on(open).unwrap_err();
    assert!(error.to_string().contains("versions 7 to 9"), "{error}");
}
