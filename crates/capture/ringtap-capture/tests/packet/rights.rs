// SPDX-License-Identifier: MIT OR Apache-2.0
//! Reduced rights: no capability at all, and root in a user namespace only.

use std::{env, process::Command};

use ringtap_capture::packet;
use ringtap_testkit::{LIMIT, Namespace, PublicProgram, Running, require_root, say_skipped};
use rustix::thread::{CapabilitySet, CapabilitySets, set_capabilities};

use super::capture::Capture;

/// Set in the process that runs inside the user namespace.
const INSIDE: &str = "RINGTAP_TEST_INSIDE_USER_NAMESPACE";
const NAME: &str = "rights::a_user_namespace_is_enough";

#[test]
fn without_cap_net_raw_the_error_names_it() {
    require_root!();
    let net = Namespace::with_veth("packet_rights");
    let opened = net.enter(|| {
        let none = CapabilitySets {
            effective: CapabilitySet::empty(),
            permitted: CapabilitySet::empty(),
            inheritable: CapabilitySet::empty(),
        };
        // Of this thread only, which ends with the closure.
        set_capabilities(None, none).unwrap();
        packet::open(&packet::options("rx0"))
    });
    let error = opened.err().unwrap().to_string();
    assert!(
        error.starts_with("the packet source needs CAP_NET_RAW"),
        "{error}"
    );
    assert!(error.contains("setcap cap_net_raw+ep"), "{error}");
}

const PING: &str = "
import socket
s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
for _ in range(10): s.sendto(b'ping', ('127.0.0.1', 9))
";

#[test]
fn a_user_namespace_is_enough() {
    if env::var_os(INSIDE).is_some() {
        inside();
        return;
    }
    let mut command = Command::new("unshare");
    // Who is root in a namespace only cannot enter every folder in which tests are built.
    let myself = PublicProgram::copy_of(env::current_exe().unwrap());
    command
        .args(["--user", "--map-root-user", "--net"])
        .arg(myself.path())
        .current_dir(myself.folder());
    command
        .args(["--exact", NAME, "--nocapture"])
        .env(INSIDE, "1");
    let finished = Running::start(command).wait(LIMIT);
    if finished.stderr.contains("unshare failed") {
        say_skipped("this machine does not allow user namespaces");
        return;
    }
    let finished = finished.success();
    assert!(finished.stdout.contains("1 passed"), "{}", finished.stdout);
}

fn inside() {
    let run = |program: &str, arguments: &[&str]| {
        let status = Command::new(program).args(arguments).status();
        assert!(status.is_ok_and(|status| status.success()), "{program}");
    };
    run("ip", &["link", "set", "lo", "up"]);
    let source = packet::open(&packet::options("lo")).expect("no real root is needed");
    let mut capture = Capture::of(source);
    run("python3", &["-c", PING]);
    capture.read_until(10);
    capture.finish();
}
