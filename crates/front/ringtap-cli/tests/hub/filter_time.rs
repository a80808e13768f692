// SPDX-License-Identifier: MIT OR Apache-2.0
//! The time that users' filters take in the capture program, for every packet.

use std::collections::BTreeMap;
use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt as _;

use ringtap_client::{Connection, Receiver, SubscriptionRequest};
use ringtap_filter::{FilterTime, LinkType, Program};
use ringtap_testkit::require_root;
use rustix::process::Uid;
use rustix::thread::set_thread_res_uid;

use crate::support::{LARGE_POOL, RunningHub};

const STATISTICS: &str = "/proc/sys/kernel/bpf_stats_enabled";
const USERS: std::ops::Range<u32> = 3001..3009;
/// Indexed loads in the filters of each user: the largest of 512 instructions, and smaller ones that use up
/// what is left.
const LOADS: [u64; 4] = [511, 10, 4, 1];
/// Limits by which all those filters run in the source.
const NO_LIMITS: &str = "[limits]\nfilter_percent = 100000\nfilter_percent_per_user = 1000000\n\
                         filter_percent_of_users = 1000000\nfilter_verifier_steps = 900000\n";
/// Of private delivery, which readers get where their processes might write the pool.
const SMALL_POOLS: &str = "private_pool = \"2MiB\"\n";
const ROUNDS: usize = 3;
const PACKETS: u64 = 60_000;

/// The kernel measures its programs while this lives.
struct Measured(String);

impl Measured {
    fn begin() -> Self {
        let before = fs::read_to_string(STATISTICS).expect("the kernel has it");
        fs::write(STATISTICS, "1").expect("root may");
        Measured(before)
    }
}

impl Drop for Measured {
    fn drop(&mut self) {
        let _kept = fs::write(STATISTICS, self.0.trim());
    }
}

/// A hub whose group `all` admits all users.
fn hub(test: &str, limits: &str) -> RunningHub {
    let folder = tempfile::tempdir().expect("a folder");
    let file = folder.path().join("hub.toml");
    let users: Vec<_> = USERS.map(|uid| format!("\"{uid}\"")).collect();
    let users = users.join(", ");
    let text = format!("[[group]]\nname = \"all\"\nusers = [{users}]\n{SMALL_POOLS}{limits}");
    fs::write(&file, text).expect("it is written");
    let hub = RunningHub::with(test, LARGE_POOL, &["-c", file.to_str().expect("text")]);
    let folder = hub.socket.parent().expect("it has one");
    fs::set_permissions(folder, Permissions::from_mode(0o755)).expect("ours");
    hub
}

/// Attaches a user's reader with this filter and name; fails with the hub's reason.
fn attach(hub: &RunningHub, uid: u32, filter: Program, name: &str) -> Result<Receiver, String> {
    let request = SubscriptionRequest {
        filter,
        ..SubscriptionRequest::new("all", name)
    };
    let as_user = || {
        let user = Some(Uid::from_raw(uid));
        set_thread_res_uid(user, user, user).expect("root may");
        Connection::attach(&hub.socket, &request)
    };
    let attached = std::thread::scope(|scope| scope.spawn(as_user).join().expect("it ends"));
    let (subscription, connection) = attached.map_err(|refused| refused.to_string())?;
    Ok(Receiver::new(subscription, connection).expect("the subscription is good"))
}

/// Indexed loads, each user's at another place, then a match.
fn costly(loads: u64, uid: u32) -> Program {
    let load = 0x50 | u64::from(uid - USERS.start) << 32;
    let mut all: Vec<_> = (0..loads).map(|at| load + ((at % 4 * 8) << 32)).collect();
    all.push(1 << 32 | 0x06);
    Program::from_entries(&all).expect("it is valid")
}

/// The readers of all users, and why filters of theirs do not run in the source.
fn all_attack(hub: &RunningHub) -> (Vec<Receiver>, Vec<String>) {
    let all = USERS.flat_map(|uid| LOADS.map(|loads| (uid, loads)));
    let attached = all.map(|(uid, loads)| attach(hub, uid, costly(loads, uid), &loads.to_string()));
    let (readers, refused): (Vec<_>, Vec<_>) = attached.partition(Result::is_ok);
    let mut reasons: Vec<_> = refused.into_iter().filter_map(Result::err).collect();
    let outside = hub.status().readers.into_iter();
    reasons.extend(outside.filter_map(|reader| reader.not_in_source));
    (readers.into_iter().flatten().collect(), reasons)
}

/// The estimated time of all users' filters that run in the source.
fn time_in_source(hub: &RunningHub) -> FilterTime {
    let readers = hub.status().readers.into_iter();
    let in_source = readers.filter(|reader| reader.not_in_source.is_none());
    let attackers = in_source.filter(|reader| USERS.contains(&reader.uid));
    let times = attackers.map(|reader| {
        let loads = reader.name.parse().expect("named by its loads");
        let filter = costly(loads, USERS.start);
        filter.longest_time().expect("it does not loop")
    });
    times.fold(FilterTime::default(), FilterTime::and)
}

/// Nanoseconds and runs of the process's XDP programs, by program.
fn runs(pid: u32) -> BTreeMap<u64, (u64, u64)> {
    let folder = fs::read_dir(format!("/proc/{pid}/fdinfo")).expect("it runs");
    let texts = folder.filter_map(|entry| fs::read_to_string(entry.ok()?.path()).ok());
    let program = |text: String| {
        let field = |name: &str| -> Option<u64> {
            let mut lines = text.lines().filter_map(|line| line.split_once(":\t"));
            lines.find(|(key, _)| *key == name)?.1.parse().ok()
        };
        let is_xdp = field("prog_type") == Some(6);
        is_xdp.then_some(())?;
        let figures = (field("run_time_ns")?, field("run_cnt")?);
        Some((field("prog_id")?, figures))
    };
    texts.filter_map(program).collect()
}

/// Nanoseconds a packet in the capture program, the smallest of several rounds.
fn time_per_packet(hub: &RunningHub) -> u64 {
    let round = |_| {
        let before = runs(hub.hub.pid());
        let sent = hub.send(100_000, PACKETS);
        let after = runs(hub.hub.pid());
        let mut sum = (0, 0);
        for (id, (ns, count)) in after {
            let (old_ns, old_count) = before.get(&id).copied().unwrap_or_default();
            sum = (sum.0 + ns - old_ns, sum.1 + count - old_count);
        }
        assert!(sum.1 >= sent, "{sum:?} of {sent}");
        sum.0 / sum.1
    };
    (0..ROUNDS).map(round).min().expect("several rounds")
}

#[test]
fn eight_users_with_the_costliest_filters_take_the_time_that_the_limits_allow() {
    require_root!();
    let _measured = Measured::begin();
    let hub_of = |name, limits| {
        let hub = hub(name, limits);
        let honest = hub.count("all", &[]);
        (hub, honest)
    };
    let (limited, _honest) = hub_of("hub-time", "");
    let (attackers, reasons) = all_attack(&limited);
    let attacked = time_per_packet(&limited);
    println!("{attacked} ns a packet: {reasons:#?}");
    assert!(reasons.iter().all(|why| why.contains("filter_percent")));
    let all = USERS.len() * LOADS.len();
    // Some filters run in the source, and some do not.
    assert!((1..all).contains(&reasons.len()), "{reasons:#?}");
    let in_source = time_in_source(&limited);
    println!("{in_source} of a packet's time in the source");
    assert!(in_source <= FilterTime::from_percent(200), "{in_source}");
    drop(attackers);

    // Without the limits, the attack is seen: about ten times as long on a quiet machine.
    let (unlimited, _honest) = hub_of("hub-untimed", NO_LIMITS);
    let (_attackers, _) = all_attack(&unlimited);
    let without = time_per_packet(&unlimited);
    let in_source = time_in_source(&unlimited);
    println!("{without} ns a packet and {in_source} without the limits");
    assert!(in_source > FilterTime::from_percent(2000), "{in_source}");
    assert!(2 * without > 3 * attacked, "{attacked} ns, then {without}");
}

/// Twenty hosts.
fn hosts() -> String {
    let hosts: Vec<_> = (1..=20).map(|host| format!("host 10.0.0.{host}")).collect();
    hosts.join(" or ")
}

#[test]
fn ordinary_filters_of_a_user_run_in_the_source() {
    require_root!();
    let hub = hub("hub-ordinary", "");
    let hosts = hosts();
    for text in [
        "tcp port 443 and host 10.0.0.1",
        "udp port 53",
        "port 53 or port 853",
        &hosts,
        "vlan",
        "vlan 7 and tcp port 80",
        "tcp portrange 1000-2000",
        "net 10.0.0.0/8 and not port 22",
        "icmp or arp",
        "tcp[tcpflags] & (tcp-syn|tcp-fin) != 0",
        "ip6 and udp port 546",
        "greater 1000",
        "ether host 02:00:00:00:00:01",
        "src net 192.168.0.0/16 and dst port 80",
        "tcp port 80 and (((ip[2:2] - ((ip[0]&0xf)<<2)) - ((tcp[12]&0xf0)>>2)) != 0)",
    ] {
        let filter = ringtap_filter::text::compile(text, LinkType::ETHERNET, 65_535);
        let filter = filter.expect("it is a filter");
        let time = filter.longest_time();
        let reader = attach(&hub, USERS.start, filter, text).expect("the reader may attach");
        let status = hub.status();
        println!("{text}: {}", time.expect("it does not loop"));
        assert_eq!(status.readers[0].not_in_source, None, "{text}");
        drop(reader);
        hub.wait_until("the reader has left", |status| status.readers.is_empty());
    }
    hub.finish();
}
