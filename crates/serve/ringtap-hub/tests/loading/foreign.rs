// SPDX-License-Identifier: MIT OR Apache-2.0
//! A reader of another user makes neither the hub's thread nor a source do the kernel's work for its
//! signals, which takes as long as the reader likes.

use std::fs;
use std::thread::sleep;
use std::time::{Duration, Instant};

use ringtap_hub::AccessList;
use ringtap_hub::Group;
use ringtap_hub::server::serve_one;
use ringtap_ipc::event::sleep_until_readable;
use ringtap_ipc::peer::Peer;
use ringtap_ipc::protocol::{Reply, decode};
use ringtap_ipc::socket::Socket;
use ringtap_ipc::transport::{MAX_BYTES, Transport as _};
use ringtap_pool::reader::NextBatch;
use ringtap_testkit::LIMIT;

use crate::{ATTACH, Connection, HELLO, Setup, read, reader_of};

const OTHER_USER: u32 = 65_534;

/// Number of threads of this process that signal one reader each.
fn signal_threads() -> usize {
    let threads = fs::read_dir("/proc/self/task").expect("this process");
    let name = |thread: fs::DirEntry| fs::read_to_string(thread.path().join("comm"));
    let names = threads.filter_map(|thread| name(thread.ok()?).ok());
    names.filter(|name| name.trim() == "doorbell").count()
}

fn wait_for_signal_threads(count: usize) {
    let until = Instant::now() + LIMIT;
    while signal_threads() != count {
        assert!(Instant::now() < until, "not {count} threads");
        sleep(Duration::from_millis(1));
    }
}

#[test]
fn a_reader_of_another_user_is_woken_by_a_thread_of_its_own() {
    let setup = Setup::with(Group {
        access: AccessList {
            uids: vec![OTHER_USER],
            ..AccessList::default()
        },
        ..Group::new("all")
    });
    let peer = Peer {
        pid: 1,
        uid: OTHER_USER,
        gids: Vec::new(),
    };
    let (near, far) = Socket::pair().expect("two descriptors");
    std::thread::scope(|scope| {
        let served = scope.spawn(|| serve_one(Box::new(far), peer, &setup.hub));
        let reader = Connection(near);
        assert!(matches!(reader.ask(HELLO), Reply::Hello { .. }));
        setup.gate.open(1);
        reader.send(ATTACH);
        let mut buffer = vec![0; MAX_BYTES];
        let (bytes, fds) = reader.0.receive(&mut buffer).expect("the hub answers");
        let Reply::Attached(attached) = decode(bytes).expect("an answer") else {
            panic!("no subscription");
        };
        let mut subscription = attached.open(fds).expect("memory and a doorbell");
        let has_signal = subscription.endpoints[0].wake.is_some();
        assert!(!has_signal, "the source would do the kernel's work");
        wait_for_signal_threads(1); // a thread names itself once it runs

        let doorbell = subscription.doorbell.clone();
        let mut packets = reader_of(&mut subscription);
        for _ in 0..3 {
            packets.sleeper().arm();
            assert!(matches!(packets.try_next(), Ok(NextBatch::Empty)));
            setup.gate.write(1);
            let is_woken = sleep_until_readable(&[doorbell.fd()], Some(LIMIT));
            assert!(is_woken.expect("a descriptor"), "nobody woke the reader");
            doorbell.clear();
            read(&mut packets, 1);
        }
        setup.gate.open(1);
        drop(reader);
        served.join().expect("no panic").expect("it can wait");
    });
    wait_for_signal_threads(0);
}
