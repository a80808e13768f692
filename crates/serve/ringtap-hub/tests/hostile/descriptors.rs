// SPDX-License-Identifier: MIT OR Apache-2.0
//! Descriptors that a reader sends, and whose closing takes for ever, do not stop the server; nor does
//! a reader that takes no answers.

use std::io::Write as _;
use std::net::{TcpListener, TcpStream};
use std::os::fd::{AsFd as _, OwnedFd};
use std::time::{Duration, Instant};

use ringtap_hub::server::{Server, ServerOptions};
use ringtap_ipc::protocol::Reply;
use ringtap_ipc::socket::{Listener, Socket};
use ringtap_ipc::transport::Transport as _;
use ringtap_testkit::LIMIT;
use rustix::net::sockopt::set_socket_linger;

use crate::server::{ATTACH, HELLO, STATUS, ask, connect, quiet_hub};

/// Longer than any test.
const FOR_EVER: Duration = Duration::from_secs(30_000);

/// A TCP connection whose last copy takes for ever to close, and its other end.
fn lingering() -> (TcpStream, TcpStream) {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port is free");
    let address = listener.local_addr().expect("it has an address");
    let near = TcpStream::connect(address).expect("it listens");
    let (far, _) = listener.accept().expect("it came");
    near.set_nonblocking(true).expect("a socket");
    while (&near).write(&[7; 65_536]).is_ok() {}
    set_socket_linger(&near, Some(FOR_EVER)).expect("a socket");
    (near, far)
}

/// Sends messages with lingering connections, as many as find room; returns the other ends.
fn attack(socket: &Socket, message: &[u8]) -> Vec<TcpStream> {
    (0..3)
        .filter_map(|_| {
            let (near, far) = lingering();
            let near = OwnedFd::from(near);
            if socket.send(message, &[near.as_fd()]).is_err() {
                set_socket_linger(&near, None).expect("a socket");
                return None;
            }
            Some(far)
        })
        .collect()
}

#[derive(Clone, Copy, PartialEq)]
enum Kernel {
    RefusesDescriptors,
    PassesDescriptors,
}

fn serves_others_while_descriptors_come(kernel: Kernel) {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("hub.sock");
    let hub = quiet_hub();
    let mut listener = Listener::bind(&path).expect("a socket");
    if kernel == Kernel::PassesDescriptors {
        listener = listener.accepting_descriptors();
    }
    // The server starts when the messages are there and every other copy of the descriptors is closed.
    let mut far_ends = Vec::new();
    let attackers: Vec<_> = [&[][..], &[HELLO], &[HELLO, ATTACH]]
        .into_iter()
        .map(|before| {
            let socket = connect(&path);
            for message in before {
                socket.send(message, &[]).expect("there is room");
            }
            far_ends.extend(attack(&socket, STATUS));
            socket
        })
        .collect();
    // These messages lie in the queue of a connection that ends before the server reads them.
    let left_at_once = connect(&path);
    far_ends.extend(attack(&left_at_once, HELLO));
    drop(left_at_once);
    match kernel {
        Kernel::RefusesDescriptors => assert!(far_ends.is_empty(), "the kernel refuses them"),
        Kernel::PassesDescriptors => assert_eq!(far_ends.len(), 12),
    }
    let _server = Server::open(listener, &hub, ServerOptions::default()).expect("a thread");
    for _ in 0..3 {
        let honest = connect(&path);
        assert!(matches!(ask(&honest, HELLO), Some(Reply::Hello { .. })));
        assert!(matches!(ask(&honest, ATTACH), Some(Reply::Attached(_))));
        assert!(matches!(ask(&honest, STATUS), Some(Reply::Status(_))));
    }
    drop(attackers);
    let after = connect(&path);
    assert!(matches!(ask(&after, HELLO), Some(Reply::Hello { .. })));
}

#[test]
fn the_kernel_refuses_descriptors_of_readers_and_the_server_serves_others() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("hub.sock");
    let listener = Listener::bind(&path).expect("a socket");
    let near = Socket::connect(&path).expect("it listens");
    let far = listener
        .accept()
        .expect("descriptors are left")
        .expect("it came");
    // Linux before 6.16 passes them.
    if far.refuses_descriptors() {
        assert!(near.send(b"x", &[near.as_fd()]).is_err());
        serves_others_while_descriptors_come(Kernel::RefusesDescriptors);
    }
}

#[test]
fn where_the_kernel_passes_descriptors_another_thread_closes_them() {
    serves_others_while_descriptors_come(Kernel::PassesDescriptors);
}

#[test]
fn a_reader_that_takes_no_answers_is_cut_off() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("hub.sock");
    let hub = quiet_hub();
    let listener = Listener::bind(&path).expect("a socket");
    let _server = Server::open(listener, &hub, ServerOptions::default()).expect("a thread");
    let silent = connect(&path);
    silent.send(HELLO, &[]).expect("there is room");
    let until = Instant::now() + LIMIT;
    while silent.send(STATUS, &[]).is_ok() {
        assert!(Instant::now() < until, "the hub goes on answering");
    }
    let honest = connect(&path);
    assert!(matches!(ask(&honest, HELLO), Some(Reply::Hello { .. })));
}
