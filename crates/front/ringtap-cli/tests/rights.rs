// SPDX-License-Identifier: MIT OR Apache-2.0
//! The rights that a verb keeps while it runs, as the kernel lists them, and that it works with them.

use std::fs;
use std::os::unix::fs::MetadataExt as _;
use std::os::unix::process::CommandExt as _;
use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

use ringtap_client::{Connection, Receiver, SubscriptionRequest};
use ringtap_filter::LinkType;
use ringtap_filter::text;
use ringtap_testkit::{Finished, LIMIT, NOBODY, Namespace, PublicProgram, Running, require_root};
use rustix::process::Signal;
use serde_json::Value;

const BINARY: &str = env!("CARGO_BIN_EXE_ringtap");

/// Bits of CAP_NET_ADMIN, CAP_NET_RAW, CAP_IPC_LOCK, CAP_PERFMON and CAP_BPF.
const CAPTURING: u64 = 1 << 12 | 1 << 13 | 1 << 14 | 1 << 38 | 1 << 39;
/// Bits of CAP_SETGID and CAP_SETUID, which threads of sources have; the system calls are forbidden.
const BECOME_USER: u64 = 1 << 6 | 1 << 7;
/// Bit of CAP_DAC_OVERRIDE.
const ANY_FILE: u64 = 1 << 1;
/// `CAP_SYS_RAWIO` and `CAP_SYS_ADMIN`.
const HOSTS_DEVICES: u64 = 1 << 17 | 1 << 21;

/// What the kernel says of one thread.
#[derive(Debug)]
struct Thread {
    name: String,
    uid: u64,
    permitted: u64,
    no_new_privs: u64,
    seccomp: u64,
}

impl Thread {
    fn of(task: &Path) -> Option<Self> {
        let status = fs::read_to_string(task.join("status")).ok()?;
        let field = |name: &str, radix: u32| {
            let line = status.lines().find_map(|line| line.strip_prefix(name))?;
            u64::from_str_radix(line.split_whitespace().next()?, radix).ok()
        };
        Some(Thread {
            name: fs::read_to_string(task.join("comm")).ok()?,
            uid: field("Uid:", 10)?,
            permitted: field("CapPrm:", 16)?,
            no_new_privs: field("NoNewPrivs:", 10)?,
            seccomp: field("Seccomp:", 10)?,
        })
    }
}

/// The threads of a process.
fn threads(process: &Running) -> Vec<Thread> {
    let tasks = fs::read_dir(format!("/proc/{}/task", process.pid())).expect("it runs");
    let tasks = tasks.flatten().map(|task| Thread::of(&task.path()));
    tasks.flatten().collect()
}

/// Waits until the process has given up what it does not need, then checks every thread.
fn require_confined(process: &Running, uid: u64, may_keep: u64) {
    let deadline = Instant::now() + LIMIT;
    // Each thread limits itself when it begins to run; system calls are the last step.
    let is_limited = |one: &Thread| one.seccomp == 2 && one.permitted & !may_keep == 0;
    while !threads(process).iter().all(is_limited) {
        assert!(Instant::now() < deadline, "{:?}", threads(process));
        std::thread::sleep(Duration::from_millis(20));
    }
    for thread in threads(process) {
        assert_eq!(
            thread.permitted & !may_keep,
            0,
            "{}: {thread:?}",
            thread.name
        );
        assert_eq!((thread.uid, thread.no_new_privs), (uid, 1), "{thread:?}");
    }
}

fn start(net: &Namespace, args: &[&str]) -> Running {
    let mut command = net.command(BINARY);
    command.args(args);
    Running::start(command)
}

fn send(net: &Namespace, packets: &str) {
    let args = ["send", "-i", "tx0", "--rate", "10kpps", "-c", packets, "-q"];
    let _sent = net.run(BINARY, &args).success();
}

/// The last line of JSON.
fn counters(end: &Finished) -> Value {
    let line = end.stdout.lines().last().expect("counters");
    serde_json::from_str(line).expect("JSON")
}

#[test]
fn running_verbs_keep_only_the_capabilities_that_they_use() {
    require_root!();
    let net = Namespace::with_veth("rights-kept");
    let folder = tempfile::tempdir().expect("a folder can be made");
    let path = |name: &str| folder.path().join(name).display().to_string();
    let (socket, file) = (path("hub.sock"), path("all.pcapng"));
    let hub = start(&net, &["hub", "-i", "tap:rx0", "--socket", &socket]);
    hub.wait_for_stderr("ringtap: hub of", LIMIT);
    let group = format!("hub:all?socket={socket}");
    let count = start(&net, &["count", "-q", "--json", "-i", &group, "udp"]);
    let record = start(&net, &["record", "-q", "-i", "packet:rx0", "-w", &file]);
    let sender = start(&net, &["send", "-i", "tx0", "--rate", "1kpps"]);
    let agent = start(&net, &["guest", "--folder", &path("host")]);
    agent.wait_for_stderr("serving the host's groups", LIMIT);
    require_confined(&agent, 0, HOSTS_DEVICES);
    require_confined(&hub, 0, CAPTURING | BECOME_USER);
    require_confined(&count, 0, 0);
    require_confined(&record, 0, CAPTURING | BECOME_USER | ANY_FILE);
    require_confined(&sender, 0, CAPTURING);
    for process in [agent, sender, record, count, hub] {
        process.interrupt();
        let _ended_well = process.wait(LIMIT).success();
    }
    let mode = fs::metadata(&file).expect("a recording").mode();
    assert_eq!(mode & 0o777, 0o600);
    assert!(!net.has_xdp("rx0"), "nothing is left on the interface");
}

#[test]
fn a_hub_that_became_another_user_loads_new_filters_and_ends_in_good_order() {
    require_root!();
    let net = Namespace::with_veth("rights-hub");
    // A folder that the hub's new user may enter and write.
    let public = PublicProgram::copy_of("/bin/true");
    let socket = public.folder().join("hub.sock");
    let named = socket.display().to_string();
    let hub = start(
        &net,
        &["hub", "-i", "tap:rx0", "-Z", "nobody", "--socket", &named],
    );
    hub.wait_for_stderr("ringtap: hub of", LIMIT);
    require_confined(&hub, u64::from(NOBODY), CAPTURING | BECOME_USER);
    let request = SubscriptionRequest::new("all", "test");
    let (subscription, connection) = Connection::attach(&socket, &request).expect("a subscription");
    let mut receiver = Receiver::new(subscription, connection).expect("a receiver");
    let nothing = text::compile("host 192.0.2.254", LinkType(1), 65_535).expect("a filter");
    receiver
        .set_filter(&nothing)
        .expect("the hub may load programs");
    send(&net, "1000");
    let asking = Connection::open(&socket, "test").expect("the hub is there");
    let status = asking.status().expect("the hub answers");
    assert_eq!(status.readers[0].not_in_source, None, "{status:?}");
    let filtered = status.sources[0]
        .lanes
        .iter()
        .map(|lane| lane.counters.filtered);
    assert!(filtered.sum::<u64>() >= 1000, "{status:?}");
    drop(receiver);
    hub.signal(Signal::TERM);
    let end = hub.wait(LIMIT).success();
    assert!(end.stdout.contains(": balanced"), "{}", end.stdout);
    assert!(!net.has_xdp("rx0"), "nothing is left on the interface");
}

#[test]
fn a_probe_that_became_a_user_listens_to_the_user_and_leaves_no_socket() {
    require_root!();
    let net = Namespace::with_veth("rights-probe");
    let probe = start(&net, &["probe", "-i", "tap:rx0", "-Z", "nobody"]);
    probe.wait_for_stderr("ringtap: probe of", LIMIT);
    let socket = format!("/run/ringtap-root/probe-{NOBODY}/probe.sock");
    let connects = "import socket, sys\nsocket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET).connect(sys.argv[1])";
    let mut user = Command::new("python3");
    user.args(["-c", connects, &socket]).uid(NOBODY);
    let _connected = Running::start(user).wait(LIMIT).success();
    probe.interrupt();
    let _ended_well = probe.wait(LIMIT).success();
    assert!(!Path::new(&socket).exists());
    // The folder is for the user's next probe.
    let _removed = std::fs::remove_dir(Path::new(&socket).parent().expect("a folder"));
}

/// A capture file in the classic format with packets of 60 bytes, one every 50 ms.
fn capture_file(packets: u32) -> Vec<u8> {
    let header = [0xa1b2_c3d4, 0x0004_0002, 0, 0, 65_535, 1_u32];
    let mut file: Vec<u8> = header.into_iter().flat_map(u32::to_le_bytes).collect();
    for number in 0..packets {
        let (seconds, micros) = (number / 20, number % 20 * 50_000);
        file.extend(
            [seconds, micros, 60, 60]
                .into_iter()
                .flat_map(u32::to_le_bytes),
        );
        file.extend([0; 60]);
    }
    file
}

#[test]
fn roots_readers_of_a_file_are_users_without_files_and_still_read_it() {
    require_root!();
    let net = Namespace::with_veth("rights-reader");
    // Only root may enter the folder.
    let folder = tempfile::tempdir().expect("a folder can be made");
    let file = folder.path().join("all.pcap").display().to_string();
    fs::write(&file, capture_file(200)).expect("an own folder");
    for verb in ["count", "probe"] {
        let args = [verb, "--json", "-r", &file, "--speed", "1x", "less 100"];
        let reader = start(&net, &args);
        let uid = 61_184 + u64::from(reader.pid()) % 4_336;
        require_confined(&reader, uid, 0);
        let counters = reader.wait(LIMIT).success().stdout;
        let read = counters.contains("\"delivered\":200") && counters.contains("\"balanced\":true");
        assert!(read, "{verb}: {counters}");
    }
}

#[test]
fn workers_and_exporters_of_a_probe_have_no_capabilities() {
    require_root!();
    let net = Namespace::with_veth("rights-workers");
    let folder = tempfile::tempdir().expect("a folder can be made");
    let export = format!("json:{}", folder.path().join("out.jsonl").display());
    let args = [
        "probe",
        "-i",
        "tap:rx0",
        "--workers",
        "2",
        "--export",
        &export,
    ];
    let probe = start(&net, &args);
    probe.wait_for_stderr("ringtap: probe of", LIMIT);
    let foreign = |one: &&Thread| one.name.starts_with("worker") || one.name.starts_with("export");
    let deadline = Instant::now() + LIMIT;
    // Each thread limits itself when it begins to run.
    loop {
        let threads = threads(&probe);
        let foreign: Vec<_> = threads.iter().filter(foreign).collect();
        // Standard output is an exporter, too.
        if foreign.len() == 4 && foreign.iter().all(|one| one.permitted == 0) {
            // The others can attach again.
            assert!(threads.iter().any(|one| one.permitted & CAPTURING != 0));
            break;
        }
        assert!(Instant::now() < deadline, "{threads:?}");
        std::thread::sleep(Duration::from_millis(20));
    }
    send(&net, "1000");
    probe.interrupt();
    let _ended_well = probe.wait(LIMIT).success();
}

#[test]
fn files_of_a_recorder_belong_to_its_user_alone() {
    require_root!();
    let net = Namespace::with_veth("rights-files");
    let public = PublicProgram::copy_of("/bin/true");
    let file = public.folder().join("all.pcapng").display().to_string();
    let args = [
        "record", "-q", "--json", "-i", "tap:rx0", "-Z", "nobody", "-C", "100kB", "-w",
    ];
    let recorder = start(&net, &[&args[..], &[&file]].concat());
    require_confined(&recorder, u64::from(NOBODY), CAPTURING | BECOME_USER);
    send(&net, "10000");
    recorder.signal(Signal::TERM);
    let end = recorder.wait(LIMIT).success();
    let counters = counters(&end);
    assert_eq!(counters["balanced"], true, "{counters}");
    assert_eq!(counters["dropped"]["not_written"], 0, "{counters}");
    let files = fs::read_dir(public.folder()).expect("the folder");
    let files: Vec<_> = files
        .flatten()
        .filter(|file| file.file_name().to_string_lossy().ends_with(".pcapng"))
        .map(|file| file.metadata().expect("a file"))
        .collect();
    assert!(files.len() > 2, "{} files", files.len());
    for file in files {
        assert_eq!((file.uid(), file.mode() & 0o777), (NOBODY, 0o600));
    }
}

#[test]
fn a_bridge_keeps_only_the_capabilities_that_it_uses() {
    require_root!();
    let net = Namespace::new("rights-bridge");
    net.add_veth("tx0", "one");
    net.add_veth("other", "rx0");
    for more in [
        &["--mode", "tc"][..],
        &["--inline", "ips", "--no-verdict", "pass"],
    ] {
        let folder = tempfile::tempdir().expect("a folder can be made");
        let socket = folder.path().join("hub.sock").display().to_string();
        let args = [
            "bridge", "one", "other", "--mirror", "all", "--socket", &socket, "-q", "--json",
        ];
        let bridge = start(&net, &[&args[..], more].concat());
        bridge.wait_for_stderr("ringtap: bridge of", LIMIT);
        require_confined(&bridge, 0, CAPTURING | BECOME_USER);
        send(&net, "1000");
        bridge.interrupt();
        let end = bridge.wait(LIMIT).success();
        let there = end.stdout.lines().filter(|line| line.contains("1000"));
        assert!(there.count() > 0, "{}", end.stdout);
    }
}

#[test]
fn every_source_counts_for_another_user() {
    require_root!();
    let net = Namespace::with_veth("rights-sources");
    for device in ["tap:rx0", "packet:rx0", "xdp:rx0"] {
        let count = start(
            &net,
            &["count", "-q", "--json", "-i", device, "-Z", "nobody"],
        );
        require_confined(&count, u64::from(NOBODY), CAPTURING | BECOME_USER);
        send(&net, "1000");
        count.interrupt();
        let counters = counters(&count.wait(LIMIT).success());
        assert_eq!(counters["balanced"], true, "{device}: {counters}");
        assert!(
            counters["delivered"].as_u64() >= Some(1000),
            "{device}: {counters}"
        );
        assert!(!net.has_xdp("rx0"), "nothing is left on the interface");
    }
}

#[test]
fn a_user_that_cannot_be_is_refused_with_its_name() {
    let run = |args: &[&str]| {
        let mut command = Command::new(BINARY);
        command.args(args);
        Running::start(command).wait(LIMIT)
    };
    let end = run(&["count", "-i", "sim:1000pps", "-Z", "no-such-user-here"]);
    assert_eq!(end.status.code(), Some(2), "{}", end.stderr);
    assert!(end.stderr.contains("no-such-user-here"), "{}", end.stderr);
    let args = ["count", "-i", "rt-none0", "-Z", "nobody", "--cpu", "irq=0"];
    let end = run(&args);
    assert_eq!(end.status.code(), Some(2), "{}", end.stderr);
    assert!(end.stderr.contains("irq="), "{}", end.stderr);
}
