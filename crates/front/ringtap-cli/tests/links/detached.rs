// SPDX-License-Identifier: MIT OR Apache-2.0
//! Programs that somebody else detaches.

use std::process::Command;

use ringtap_testkit::{
    LIMIT, Namespace, Running, bpftool, ebpf_objects_of, require_root, require_tool,
    settle_everywhere,
};
use rustix::process::Signal;
use serde_json::Value;
use tempfile::TempDir;

use crate::support::{BINARY, MARKED, last_json, lines, marked, number, start_count, wait_until};

/// Detaches all links of a process, as `bpftool link detach` of an administrator does.
fn detach_links_of(process: &Running) {
    let tool = bpftool().expect("bpftool is installed");
    let objects = ebpf_objects_of(process.pid());
    let links = objects.iter().filter_map(|one| one.strip_prefix("link "));
    for link in links {
        let mut command = Command::new(&tool);
        let done = command.args(["link", "detach", "id", link]).output();
        let done = done.expect("bpftool can be run");
        assert!(done.status.success(), "{done:?}");
    }
}

fn delivered(count: &Running) -> u64 {
    let stdout = count.stdout();
    let whole = stdout.rfind('\n').map_or("", |end| &stdout[..end]);
    let line = whole.lines().last().unwrap_or_default();
    let line: Option<Value> = serde_json::from_str(line).ok();
    line.map_or(0, |line| number(&line, "delivered"))
}

/// 100 packets, 50 while the program is detached, and 100 after it is attached again.
fn is_attached_again(device: &str, note: &str, unseen: u64) {
    let net = Namespace::with_veth("links_detached");
    let count = start_count(&net, device, &[MARKED]);
    net.inject("tx0", &marked(100));
    wait_until("packets are delivered", || delivered(&count) == 100);
    // Stopped, it cannot attach its program again before the packets have passed.
    count.signal(Signal::STOP);
    detach_links_of(&count);
    net.inject("tx0", &marked(50));
    settle_everywhere();
    count.signal(Signal::CONT);
    count.wait_for_stderr("it is attached again", LIMIT);
    net.inject("tx0", &marked(100));
    settle_everywhere();
    count.interrupt();
    let end = count.wait(LIMIT).success();
    assert!(end.stderr.contains(note), "{device}: {}", end.stderr);
    let counters = last_json(&end);
    assert_eq!(counters["balanced"], true, "{counters}");
    assert_eq!(number(&counters, "delivered"), 200, "{device}: {counters}");
    assert_eq!(number(&counters, "offered"), 200 + unseen, "{counters}");
    assert_eq!(number(&counters["dropped"], "kernel"), unseen, "{counters}");
}

#[test]
fn a_detached_program_is_attached_again_and_what_passed_is_counted() {
    require_root!();
    require_tool!("ip", "python3");
    if bpftool().is_none() {
        return ringtap_testkit::say_skipped("needs bpftool");
    }
    let counted = "50 packets passed unseen and count as dropped.kernel";
    is_attached_again("tap:rx0?mode=native&direction=in", counted, 50);
    let unknown = "packets that passed meanwhile are neither captured nor counted";
    is_attached_again("tap:rx0?mode=tc&direction=in", unknown, 0);
    is_attached_again("xdp:rx0", unknown, 0);
}

#[test]
fn a_program_that_is_detached_again_and_again_ends_the_capture() {
    require_root!();
    require_tool!("ip");
    if bpftool().is_none() {
        return ringtap_testkit::say_skipped("needs bpftool");
    }
    let net = Namespace::with_veth("links_detached_twice");
    let mut count = start_count(&net, "tap:rx0?mode=native&direction=in", &[MARKED]);
    let mut rounds = 0;
    while count.is_running() {
        rounds += 1;
        assert!(rounds <= 100, "it is attached again without end");
        detach_links_of(&count);
        wait_until("it is attached again, or ends", || {
            lines(&count, "it is attached again") == rounds || !count.is_running()
        });
    }
    let end = count.wait(LIMIT);
    assert_eq!(end.status.code(), Some(1), "{}", end.stderr);
    let reason = "another program detaches the capture program";
    assert!(end.stderr.contains(reason), "{}", end.stderr);
}

#[test]
fn why_does_not_say_that_nothing_was_lost_after_a_detachment() {
    require_root!();
    require_tool!("ip");
    if bpftool().is_none() {
        return ringtap_testkit::say_skipped("needs bpftool");
    }
    let net = Namespace::with_veth("links_detached_hub");
    let folder = TempDir::new().expect("a folder can be made");
    let socket = folder.path().join("hub.sock").display().to_string();
    let device = "tap:rx0?mode=tc&direction=in";
    let hub = net.spawn(BINARY, &["hub", "-i", device, "--socket", &socket]);
    hub.wait_for_stderr("hub of", LIMIT);
    detach_links_of(&hub);
    hub.wait_for_stderr("it is attached again", LIMIT);
    let why = net.run(BINARY, &["why", "--socket", &socket]);
    assert!(!why.stdout.contains("Nothing was lost"), "{}", why.stdout);
    assert!(why.stdout.contains("passed unseen"), "{}", why.stdout);
    hub.interrupt();
    let _ended = hub.wait(LIMIT).success();
}
