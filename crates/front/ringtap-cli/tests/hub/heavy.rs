// SPDX-License-Identifier: MIT OR Apache-2.0
//! Filters made to hold up the hub, from a user without rights, beside an honest reader.

use std::fs::Permissions;
use std::os::unix::fs::PermissionsExt as _;

use ringtap_client::{ConnectError, Connection, Receiver, SubscriptionRequest};
use ringtap_filter::Program;
use ringtap_ipc::protocol::{Refused, Reply, decode};
use ringtap_ipc::socket::Socket;
use ringtap_ipc::transport::{MAX_BYTES, Transport as _};
use ringtap_testkit::{NOBODY, require_root};
use rustix::process::Uid;
use rustix::thread::set_thread_res_uid;

use crate::support::{
    Account, LARGE_POOL, LIMIT, RunningHub, lost_nothing, missing_stamps, request,
};

/// The hub captures with a packet socket: a thread of the hub runs the filters.
const BY_A_THREAD: &str = "packet:rx0?direction=in&pool=256MiB";
/// Number of attackers with the largest filter that makes that thread too slow for the packets.
const ATTACKERS: usize = 16;
/// More than the kernel's ring holds.
const PACKETS: u64 = 400_000;
const RATE_PPS: u64 = 100_000;

/// A hub whose group `all` admits the user without rights.
fn hub(test: &str, device: &str, more: &str) -> RunningHub {
    let folder = tempfile::tempdir().expect("a folder");
    let file = folder.path().join("hub.toml");
    let text = format!("[[group]]\nname = \"all\"\nusers = [\"{NOBODY}\"]\n{more}");
    std::fs::write(&file, text).expect("it is written");
    let hub = RunningHub::with(test, device, &["-c", file.to_str().expect("text")]);
    let socket_folder = hub.socket.parent().expect("it has one");
    std::fs::set_permissions(socket_folder, Permissions::from_mode(0o755)).expect("ours");
    hub
}

/// Runs on a thread without rights.
fn as_nobody<T: Send>(action: impl FnOnce() -> T + Send) -> T {
    let run = || {
        let nobody = Some(Uid::from_raw(NOBODY));
        set_thread_res_uid(nobody, nobody, nobody).expect("root may");
        action()
    };
    std::thread::scope(|scope| scope.spawn(run).join().expect("it ends"))
}

fn attach(hub: &RunningHub, request: &SubscriptionRequest) -> Result<Receiver, ConnectError> {
    let attach = || Connection::attach(&hub.socket, request);
    let (subscription, connection) = as_nobody(attach)?;
    Ok(Receiver::new(subscription, connection).expect("the subscription is good"))
}

/// `jeq` to the next instruction in either case, so often that a stack of calls would be too deep.
fn comparisons(last: u64) -> Program {
    let mut all = vec![0x15 | 5 << 32; 4094];
    all.push(last << 32 | 0x06);
    Program::from_entries(&all).expect("it is valid")
}

fn protochain() -> Program {
    let filter = ringtap_filter::text::compile(
        "ip protochain 99",
        ringtap_filter::LinkType::ETHERNET,
        65_535,
    );
    filter.expect("it is a filter")
}

/// The most that one reader may ask of a packet, in many readers, and loops.
fn heavy() -> Vec<Program> {
    let mut all: Vec<_> = (1..u64::try_from(ATTACKERS).expect("few"))
        .map(comparisons)
        .collect();
    all.push(protochain());
    all
}

/// Requests with all heavy filters.
fn attacks() -> impl Iterator<Item = SubscriptionRequest> {
    heavy().into_iter().map(|filter| SubscriptionRequest {
        filter,
        ..request("all")
    })
}

#[test]
fn heavy_filters_of_others_cost_a_reader_nothing_where_a_thread_captures() {
    require_root!();
    let hub = hub("hub-heavy", BY_A_THREAD, "");
    let honest = hub.count("all", &["--stamps"]);
    let attackers = attacks().map(|request| attach(&hub, &request));
    let attackers: Vec<_> = attackers
        .collect::<Result<_, _>>()
        .expect("the readers run these filters");
    let status = hub.status();
    let outside = status
        .readers
        .iter()
        .filter(|one| one.not_in_source.is_some());
    assert_eq!(outside.count(), ATTACKERS, "{status:#?}");
    let sent = hub.send(RATE_PPS, PACKETS);
    let (account, end) = Account::of(honest);
    assert!(account.number("delivered") >= sent, "{account:?}");
    assert_eq!(
        (account.lost(), missing_stamps(&end)),
        (0, 0),
        "{account:?}"
    );
    drop(attackers);
    hub.finish();
}

#[test]
fn a_hub_survives_the_deepest_filters_in_its_translator() {
    require_root!();
    // The owner allows what the defaults refuse.
    let limits = "[limits]\nfilter_percent = 5000\nfilter_percent_per_user = 100000\n\
                  filter_percent_of_users = 100000\n\
                  private_memory_per_user = \"4GiB\"\nprivate_memory = \"4GiB\"\n";
    let hub = hub("hub-deep", LARGE_POOL, limits);
    let honest = hub.count("all", &["--stamps"]);
    // Root maps the pool of a tap; other users get private delivery, without loops.
    let attackers: Vec<_> = attacks().map(|request| hub.attach(&request)).collect();
    let sent = hub.send(RATE_PPS, 100_000);
    let (account, end) = Account::of(honest);
    assert!(account.number("delivered") >= sent, "{account:?}");
    assert_eq!(
        (account.lost(), missing_stamps(&end)),
        (0, 0),
        "{account:?}"
    );
    drop(attackers);
    hub.finish();
}

#[test]
fn filters_that_a_private_reader_would_have_the_hub_run_are_refused_by_name() {
    require_root!();
    let hub = hub("hub-own-heavy", LARGE_POOL, "");
    for (filter, told) in [
        (comparisons(1), "filter_percent"),
        (protochain(), "protochain"),
    ] {
        let request = SubscriptionRequest {
            filter,
            private: true,
            ..request("all")
        };
        let refused = attach(&hub, &request)
            .err()
            .expect("it is refused")
            .to_string();
        assert!(refused.contains(told), "{refused}");
    }
    // The loop of the issue, which is not protochain, is no filter at all.
    let mut entries: Vec<u64> = vec![12 << 32 | 0x30; 4090];
    entries.extend([u64::from(4091_u32.wrapping_neg()) << 32 | 0x05, 0x06]);
    let socket = as_nobody(|| Socket::connect(&hub.socket)).expect("it listens");
    let mut buffer = vec![0; MAX_BYTES];
    let hello = br#"{"ask":"hello","protocol":1,"name":"x"}"#;
    let attach = serde_json::json!({"ask": "attach", "group": "all", "filter": entries});
    for message in [&hello[..], attach.to_string().as_bytes()] {
        socket.send(message, &[]).expect("it listens");
        let (bytes, _) = socket.receive(&mut buffer).expect("it answers");
        if message != hello {
            let reply = decode::<Reply>(bytes).expect("a reply");
            let Reply::Refused(Refused { message, .. }) = reply else {
                panic!("{reply:?}")
            };
            assert!(message.contains("jumps back"), "{message}");
        }
    }
    hub.finish();
}

#[test]
fn filters_that_change_all_the_time_slow_down_their_own_user_only() {
    require_root!();
    let hub = hub("hub-restless", LARGE_POOL, "");
    let honest = hub.count("all", &["--stamps"]);
    let mut restless = attach(&hub, &request("all")).expect("it may");
    let sending = hub.start_sending(RATE_PPS, 200_000);
    let started = std::time::Instant::now();
    // At once: one second's worth, which are ten changes. After them, ten a second.
    for steps in 10..40 {
        let mut all = vec![0x87; steps];
        all.push(1 << 32 | 6);
        let filter = Program::from_entries(&all).expect("it is valid");
        restless.set_filter(&filter).expect("the hub does it later");
    }
    let least = std::time::Duration::from_millis(1500);
    assert!(started.elapsed() > least, "{:?}", started.elapsed());
    assert!(sending.wait(LIMIT).status.success());
    lost_nothing(honest);
    drop(restless);
    hub.finish();
}

#[test]
fn private_readers_that_come_and_go_leave_nothing_and_cost_nothing() {
    require_root!();
    // Readers that left count until their memory is free.
    let limits = "[limits]\nprivate_memory_per_user = \"4GiB\"\nprivate_memory = \"4GiB\"\n";
    let hub = hub("hub-own-gone", LARGE_POOL, limits);
    let honest = hub.count("all", &["--stamps"]);
    let before = hub.settled_resources();
    let sending = hub.start_sending(RATE_PPS, 200_000);
    for _ in 0..20 {
        let request = SubscriptionRequest {
            filter: Program::from_entries(&[[0x87; 500].as_slice(), &[1 << 32 | 6]].concat())
                .expect("it is valid"),
            private: true,
            ..request("all")
        };
        drop(attach(&hub, &request).expect("it is little work"));
    }
    assert!(sending.wait(LIMIT).status.success());
    hub.wait_until("the readers have left", |status| status.readers.len() == 1);
    assert_eq!(hub.settled_resources(), before);
    lost_nothing(honest);
    hub.finish();
}
