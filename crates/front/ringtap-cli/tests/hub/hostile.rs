// SPDX-License-Identifier: MIT OR Apache-2.0
//! A reader that lies: in its own memory, on the socket, and in the files that it received.

use std::collections::HashMap;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::atomic::{AtomicU16, Ordering::Relaxed};
use std::time::{Duration, Instant};

use ringtap_ipc::mapping::{Access, Mapping, fill};
use ringtap_ipc::protocol::{Reply, Request, decode, encode};
use ringtap_ipc::socket::Socket;
use ringtap_ipc::subscription::SubscriptionRequest;
use ringtap_ipc::subscription::{Attached, AttachedEndpoint};
use ringtap_ipc::transport::{MAX_BYTES, Transport as _};
use ringtap_testkit::require_root;
use rustix::fs::{SealFlags, fcntl_add_seals, ftruncate};

use crate::support::{Account, BINARY, LARGE_POOL, LIMIT, RunningHub, missing_stamps};

/// Longer by hand: `RINGTAP_HOSTILE_SECONDS=300 cargo test -p ringtap-cli --test hub hostile`.
fn duration() -> Duration {
    let wanted = std::env::var("RINGTAP_HOSTILE_SECONDS").ok();
    Duration::from_secs(wanted.and_then(|text| text.parse().ok()).unwrap_or(6))
}

/// xorshift64*: what it gives is odd enough, and the same every time.
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        self.0.wrapping_mul(0x2545_f491_4f6c_dd1d)
    }

    fn bytes(&mut self, count: usize) -> Vec<u8> {
        let words = (0..count.div_ceil(8)).flat_map(|_| self.next().to_le_bytes());
        words.take(count).collect()
    }
}

/// The descriptors that an attached reader received.
struct EndpointFiles {
    _socket: Socket,
    facts: AttachedEndpoint,
    pool: OwnedFd,
    control: OwnedFd,
    /// Readable when there is news.
    news: OwnedFd,
    /// Wakes the hub.
    doorbell: OwnedFd,
    /// The source's own, unless the pool is private.
    signals: Option<OwnedFd>,
}

fn endpoint_files(hub: &RunningHub, group: &str) -> EndpointFiles {
    let socket = Socket::connect(&hub.socket).expect("it listens");
    let mut buffer = vec![0; MAX_BYTES];
    let hello = Request::Hello {
        protocol: 1,
        features: vec![],
        name: "liar".into(),
    };
    let attach = Request::Attach(SubscriptionRequest::new(group, ""));
    socket.send(&encode(&hello), &[]).expect("it listens");
    let _hello = socket.receive(&mut buffer).expect("it answers");
    socket.send(&encode(&attach), &[]).expect("it listens");
    let (bytes, fds) = socket.receive(&mut buffer).expect("it answers");
    let Ok(Reply::Attached(Attached { mut endpoints, .. })) = decode(bytes) else {
        panic!("no subscription: {}", String::from_utf8_lossy(bytes))
    };
    let mut fds = fds.into_iter();
    let mut next = || fds.next().expect("a doorbell, a pool, a control region");
    let (news, doorbell, pool, control) = (next(), next(), next(), next());
    assert_eq!(endpoints[0].wakes, group != "own", "no signals of the tap");
    let signals = fds.next();
    assert_eq!(endpoints[0].wakes, signals.is_some());
    EndpointFiles {
        _socket: socket,
        facts: endpoints.remove(0),
        pool,
        control,
        news,
        doorbell,
        signals,
    }
}

#[test]
fn a_hostile_reader_harms_only_itself() {
    require_root!();
    let groups = ["-g", "all", "-g", "own:private", "-g", "ids:4:flow"];
    let hub = RunningHub::with("hub-liar", LARGE_POOL, &groups);
    let honest = [
        hub.count("all", &["--stamps"]),
        hub.count("own", &["--stamps"]),
    ];
    // As many as the private pool holds, unless it is asked to last longer.
    let sending = hub.start_sending(25_000, 25_000 * duration().as_secs());
    let mut random = Random(0x9e37_79b9_7f4a_7c15);
    let until = Instant::now() + duration();
    while Instant::now() < until {
        for group in ["all", "own", "ids"] {
            lie_in_memory(&endpoint_files(&hub, group), &mut random);
        }
        lie_on_the_socket(&hub, &mut random);
    }
    assert!(sending.wait(LIMIT + duration()).status.success());
    for reader in honest {
        let (account, end) = Account::of(reader);
        assert_eq!(
            (account.lost(), missing_stamps(&end)),
            (0, 0),
            "{account:?}"
        );
    }
    hub.wait_until("every hostile reader's subscription is free", |status| {
        status.readers.is_empty()
    });
    hub.finish();
}

/// Offset of a reader's own counters in its control region: `docs/internals/format.md`.
const PROGRESS: usize = 144;

#[test]
fn numbers_of_a_reader_never_exceed_those_of_its_sources() {
    require_root!();
    let groups = ["-g", "all", "-g", "own:private"];
    let hub = RunningHub::with("hub-boaster", LARGE_POOL, &groups);
    let liars = ["all", "own"].map(|group| endpoint_files(&hub, group));
    let lies = [u64::MAX, u64::MAX - 5, 26_690_053, u64::MAX / 2];
    for liar in &liars {
        let bytes = usize::try_from(liar.facts.control_bytes).expect("it fits");
        let lies: Vec<u8> = lies.iter().flat_map(|lie| lie.to_le_bytes()).collect();
        let end = PROGRESS + lies.len();
        fill(&liar.control, bytes, |memory| {
            memory[PROGRESS..end].copy_from_slice(&lies)
        })
        .expect("its own memory is its own");
    }
    let honest = [hub.count("all", &[]), hub.count("own", &[])];
    let sending = hub.start_sending(20_000, 40_000);
    let until = Instant::now() + Duration::from_secs(2);
    while Instant::now() < until {
        let status = hub.status();
        let captured = status.sources[0].lanes.iter().map(|lane| lane.counters);
        let (packets, bytes) = captured.fold((0, 0), |(packets, bytes), lane| {
            (packets + lane.delivered, bytes + lane.bytes)
        });
        for reader in &status.readers {
            let counted = [
                reader.counters.delivered,
                reader.counters.filtered,
                reader.counters.other_members,
                reader.counters.dropped.overrun,
            ];
            let all = counted
                .iter()
                .fold(0, |sum: u64, one| sum.saturating_add(*one));
            // Some packets more may be captured between two counters of one reading.
            assert!(all <= packets + 1000, "{packets} packets: {reader:?}");
            assert!(
                reader.counters.bytes <= bytes + 1_000_000,
                "{bytes} bytes: {reader:?}"
            );
            assert_eq!(reader.impossible, reader.name == "liar", "{reader:?}");
        }
    }
    let _sent = sending.wait(LIMIT).success();
    let mut command = std::process::Command::new(BINARY);
    command.args(["why", "--json", "--interval", "0.1", "--socket"]);
    command.arg(&hub.socket);
    let why = ringtap_testkit::Running::start(command).wait(LIMIT).stdout;
    let answer: serde_json::Value = serde_json::from_str(&why).expect("an object");
    let findings = answer["findings"].as_array().expect("a list");
    let is_lie = |one: &&serde_json::Value| one["kind"] == "impossible";
    assert_eq!(findings.iter().filter(is_lie).count(), 2, "{answer:#}");
    drop(liars);
    let status = hub.wait_until("the liars have left", |status| status.departed.len() == 2);
    for one in &status.departed {
        let all = one.counters.delivered.saturating_add(one.counters.filtered);
        assert!(
            all.saturating_add(one.counters.other_members) <= 40_000,
            "{one:?}"
        );
    }
    for reader in honest {
        let (account, _) = Account::of(reader);
        assert_eq!((account.lost(), account.number("delivered")), (0, 40_000));
    }
    hub.finish();
}

/// Random bytes wherever it may write, for a moment, with signals.
fn lie_in_memory(files: &EndpointFiles, random: &mut Random) {
    let bytes = usize::try_from(files.facts.control_bytes).expect("it fits");
    for _ in 0..20 {
        let from = usize::try_from(random.next()).unwrap_or(0) % bytes;
        let lies = random.bytes(64);
        fill(&files.control, bytes, |memory| {
            let end = (from + lies.len()).min(bytes);
            memory[from..end].copy_from_slice(&lies[..end - from]);
        })
        .expect("its own memory is its own");
        let _sent = rustix::io::write(&files.doorbell, &random.bytes(8));
        let _sent = rustix::io::write(&files.news, &random.bytes(100));
        std::thread::sleep(Duration::from_millis(1));
    }
}

/// Random datagrams, and true ones with random insides.
fn lie_on_the_socket(hub: &RunningHub, random: &mut Random) {
    let seeds: [&[u8]; 4] = [
        br#"{"ask":"hello","protocol":1,"name":"x"}"#,
        br#"{"ask":"attach","group":"all","filter":[],"credit_chunks":4294967295}"#,
        br#"{"ask":"filter","program":[18446744073709551615]}"#,
        br#"{"ask":"statistics"}"#,
    ];
    for round in 0..10 {
        let socket = Socket::connect(&hub.socket).expect("it listens");
        for seed in seeds {
            let mut message = seed.to_vec();
            if round % 2 == 1 {
                let at = usize::try_from(random.next()).unwrap_or(0) % message.len();
                message[at] = random.bytes(1)[0];
            }
            // Shown out earlier is well deserved.
            let _refused = socket.send(&message, &[socket.as_fd()]);
            let _gone = socket.send(&message, &[]);
        }
        let _gone = socket.send(&random.bytes(1000), &[]);
    }
}

#[test]
fn a_reader_that_never_answers_or_rings_without_end_delays_nobody() {
    require_root!();
    let hub = RunningHub::with(
        "hub-unanswered",
        LARGE_POOL,
        &["-g", "all", "-g", "own:private"],
    );
    let honest = [
        hub.count("all", &["--stamps"]),
        hub.count("own", &["--stamps"]),
    ];
    let (shut, loud, full, deaf) = (
        endpoint_files(&hub, "all"),
        endpoint_files(&hub, "own"),
        endpoint_files(&hub, "all"),
        endpoint_files(&hub, "own"),
    );
    for one in [&shut, &deaf] {
        rustix::net::shutdown(&one.news, rustix::net::Shutdown::Both).expect("it is ours");
    }
    // The hub would wait if it read or wrote an eventfd like these.
    for one in [&loud, &full] {
        let flags = rustix::fs::fcntl_getfl(&one.doorbell).expect("it is open");
        rustix::fs::fcntl_setfl(&one.doorbell, flags - rustix::fs::OFlags::NONBLOCK).expect("ours");
    }
    rustix::io::write(&full.doorbell, &(u64::MAX - 1).to_ne_bytes()).expect("the count has room");
    let stop = std::sync::atomic::AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            while !stop.load(Relaxed) {
                rustix::io::write(&loud.doorbell, &1_u64.to_ne_bytes())
                    .expect("the count has room");
            }
        });
        let sent = hub.send(50_000, 50_000);
        stop.store(true, Relaxed);
        for reader in honest {
            let (account, end) = Account::of(reader);
            assert!(account.number("delivered") >= sent, "{account:?}");
            let lost = (account.lost(), missing_stamps(&end));
            assert_eq!(lost, (0, 0), "{account:?}");
        }
    });
    drop((shut, loud, full, deaf));
    hub.wait_until("their subscriptions are free", |status| {
        status.readers.is_empty()
    });
    hub.finish();
}

/// How often the hub's thread has slept.
fn sleeps(hub: &RunningHub) -> u64 {
    let tasks = std::fs::read_dir(format!("/proc/{}/task", hub.hub.pid())).expect("it runs");
    let statuses = tasks.filter_map(|task| {
        let folder = task.expect("it runs").path();
        let name = std::fs::read_to_string(folder.join("comm")).ok()?;
        let status = std::fs::read_to_string(folder.join("status")).ok()?;
        (name.trim() == "hub").then_some(status)
    });
    let status = statuses.last().expect("the hub's thread");
    let mut lines = status.lines();
    let line = lines.find_map(|line| line.strip_prefix("voluntary_ctxt_switches:"));
    line.and_then(|number| number.trim().parse().ok())
        .expect("a number")
}

#[test]
fn a_reader_that_rings_in_a_loop_wakes_the_hub_at_a_bounded_rate() {
    require_root!();
    let hub = RunningHub::new("hub-rings", &["all"]);
    let loud = endpoint_files(&hub, "all");
    let (begun, before) = (Instant::now(), sleeps(&hub));
    while begun.elapsed() < Duration::from_secs(2) {
        for _ in 0..100 {
            rustix::io::write(&loud.doorbell, &1_u64.to_ne_bytes()).expect("the count has room");
        }
    }
    let slept = sleeps(&hub) - before;
    // A wake-up of no use costs 10 µs at least, and 5 % of the time are allowed.
    let most = begun.elapsed().as_micros() * 7_000 / 1_000_000 + 1_000;
    assert!(
        u128::from(slept) <= most,
        "{slept} wake-ups, at most {most}"
    );
    drop(loud);
    hub.finish();
}

#[test]
fn nobody_can_write_where_packets_lie() {
    require_root!();
    let hub = RunningHub::new("hub-write", &["all", "own:private"]);
    for group in ["all", "own"] {
        let files = endpoint_files(&hub, group);
        let pool = &files.pool;
        assert!(
            Mapping::new(pool, 4096, Access::Read).is_ok(),
            "{group}: it can be read"
        );
        assert!(
            Mapping::new(pool, 4096, Access::ReadWrite).is_err(),
            "{group}: mapped"
        );
        assert!(
            rustix::io::pwrite(pool, &[0; 8], 0).is_err(),
            "{group}: written"
        );
        assert!(ftruncate(pool, 0).is_err(), "{group}: cut");
        assert!(
            fcntl_add_seals(pool, SealFlags::SHRINK).is_err(),
            "{group}: sealed anew"
        );
        let again = format!("/proc/self/fd/{}", std::os::fd::AsRawFd::as_raw_fd(pool));
        let reopened = std::fs::OpenOptions::new()
            .read(true)
            .write(true)
            .open(again);
        let written = reopened.and_then(|file| {
            Mapping::new(&file, 4096, Access::ReadWrite)?;
            Ok(())
        });
        assert!(written.is_err(), "{group}: opened anew and mapped");
        if let Some(signals) = &files.signals {
            assert!(
                Mapping::new(signals, 4096, Access::ReadWrite).is_err(),
                "{group}: signals mapped"
            );
        }
        assert!(
            ftruncate(&files.control, 0).is_err(),
            "{group}: its control region is cut"
        );
    }
    hub.finish();
}

#[test]
fn a_private_reader_never_sees_what_is_not_its_own() {
    require_root!();
    let hub = RunningHub::new("hub-own", &["own:private:udp src port 10003", "all"]);
    let keeps_all_wanted = hub.count("all", &[]);
    let files = endpoint_files(&hub, "own");
    hub.send(100_000, 160_000);
    let bytes = usize::try_from(files.facts.pool_bytes).expect("it fits");
    // Each packet's UDP ports lie next to each other; the sender has one destination port.
    let pairs = || {
        let mapping = std::sync::Arc::new(Mapping::new(&files.pool, bytes, Access::Read).unwrap());
        let words = mapping.words::<AtomicU16>(0, bytes / 2).unwrap();
        let words: Vec<_> = words
            .iter()
            .map(|word| u16::from_be(word.load(Relaxed)))
            .collect();
        let pairs = words.windows(2).map(|pair| (pair[0], pair[1]));
        let mut count = HashMap::new();
        for pair in pairs {
            *count.entry(pair).or_insert(0_u64) += 1;
        }
        count
    };
    let most = |pairs: &HashMap<(u16, u16), u64>| {
        let own = pairs.iter().filter(|((source, _), _)| *source == 10_003);
        own.map(|((_, destination), count)| (*count, *destination))
            .max()
    };
    // They are copied while time passes.
    let deadline = Instant::now() + LIMIT;
    let (pairs, destination) = loop {
        let pairs = pairs();
        match most(&pairs) {
            Some((101.., destination)) => break (pairs, destination),
            few => assert!(Instant::now() < deadline, "its own packets: {few:?}"),
        }
    };
    let count = |port| pairs.get(&(port, destination)).copied().unwrap_or(0);
    for other in (10_000..10_016).filter(|port| *port != 10_003) {
        assert_eq!(count(other), 0, "not a trace of port {other}");
    }
    drop(files);
    let _account = Account::of(keeps_all_wanted);
    hub.finish();
}
