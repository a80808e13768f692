// SPDX-License-Identifier: MIT OR Apache-2.0
//! Misuse by programs, the end of a hub, and exit statuses of `ringtap exec`.

use std::process::Command;

use ringtap_testkit::{Namespace, Running, require_root, require_tool};
use rustix::process::Signal;

use crate::same::build;
use crate::support::{LIMIT, Tags, exec, frames, hub, prefix, real, ringtap};

#[test]
fn mistakes_are_refused_and_a_dead_hub_is_told() {
    require_root!();
    let Some(prefix) = prefix() else { return };
    let net = Namespace::with_veth("pcap_misuse");
    let folder = tempfile::tempdir().expect("a folder");
    let socket = folder.path().join("hub.sock");
    let hub = hub(&net, prefix, &socket, &["-i", "tap:tx0?direction=out"]);
    let built = build("misuse");
    let mut command = exec(&net, prefix, &[built.to_str().expect("text")]);
    command.args(["tap:rx0", "hub:all"]);
    command.env("RINGTAP_SOCKET", &socket);
    let program = Running::start(command);
    program.wait_for_stdout("# ready", LIMIT);
    net.inject("tx0", &frames(200, Tags::None));
    program.wait_for_stdout("# waiting", LIMIT);
    hub.signal(Signal::KILL);
    let end = program.wait(LIMIT);
    let told = format!("{}{}", end.stdout, end.stderr);
    assert!(end.status.success(), "{told}");
    assert!(told.contains("hub:all: the hub ended"), "{told}");
    assert!(told.contains("all refused\n"), "{told}");
    let _built = std::fs::remove_file(built);
}

#[test]
fn the_programs_status_and_signals_are_its_own() {
    let Some(prefix) = prefix() else { return };
    let run = |words: &[&str]| {
        let mut command = Command::new(ringtap(prefix));
        command.arg("exec").args(words);
        Running::start(command).wait(LIMIT)
    };
    assert_eq!(run(&["--", "sh", "-c", "exit 7"]).status.code(), Some(7));
    let killed = run(&["--", "sh", "-c", "kill -TERM $$"]).status;
    assert_eq!(
        std::os::unix::process::ExitStatusExt::signal(&killed),
        Some(15)
    );
    let missing = run(&["no-such-program"]);
    assert_eq!(missing.status.code(), Some(127));
    assert!(
        missing.stderr.contains("no-such-program"),
        "{}",
        missing.stderr
    );
    assert_eq!(run(&["--", "/etc/passwd"]).status.code(), Some(126));
    let wrong = run(&["--via", "eth0", "true"]);
    assert!(
        wrong.stderr.contains("expected hub:GROUP"),
        "{}",
        wrong.stderr
    );
    let version = run(&["--", "tcpdump", "--version"]).success();
    let told = version.stdout + &version.stderr;
    assert!(told.contains("through Ringtap"), "{told}");
}

#[test]
fn without_the_systems_libpcap_the_error_says_so() {
    let Some(prefix) = prefix() else { return };
    let mut command = Command::new(ringtap(prefix));
    command.args(["exec", "--", "tcpdump", "-r", "/nonexistent.pcap"]);
    command.env("RINGTAP_LIBPCAP", "/nonexistent/libpcap.so.1");
    let told = Running::start(command).wait(LIMIT).stderr;
    assert!(
        told.contains("RINGTAP_LIBPCAP=/nonexistent/libpcap.so.1"),
        "{told}"
    );
}

#[test]
fn where_there_is_no_libpcap_the_error_says_what_to_install() {
    require_root!();
    require_tool!("tcpdump", "unshare");
    let Some(prefix) = prefix() else { return };
    let folder = real().canonicalize().expect("it is there");
    let folder = folder.parent().expect("in a folder");
    // Hides the folder of libpcap in this mount namespace.
    const HIDE: &str = "
mount -t tmpfs none /mnt && mkdir /mnt/upper /mnt/work &&
mount -t overlay none -o lowerdir=$1,upperdir=/mnt/upper,workdir=/mnt/work $1 && rm $1/libpcap.so.* || exit 77
LD_PRELOAD=$2 exec tcpdump -r /nonexistent.pcap";
    let mut command = Command::new("unshare");
    command.args(["-m", "sh", "-c", HIDE, "sh"]).arg(folder);
    command.arg(prefix.join("lib/ringtap/libpcap.so.1"));
    command.env("LD_LIBRARY_PATH", prefix.join("lib/ringtap"));
    let end = Running::start(command).wait(LIMIT);
    if end.status.code() == Some(77) {
        ringtap_testkit::say_skipped("needs an overlay file system over the libraries' folder");
        return;
    }
    assert!(!end.status.success());
    assert!(
        end.stderr.contains("install it (libpcap0.8"),
        "{}",
        end.stderr
    );
}

#[test]
fn a_name_of_ringtap_that_is_none_is_refused_with_the_place() {
    let Some(prefix) = prefix() else { return };
    let tell = |device: &str| {
        let mut command = Command::new(ringtap(prefix));
        command.args(["exec", "--", "tcpdump", "-i", device]);
        command.env("RINGTAP_SOCKET", "/nonexistent/hub.sock");
        let end = Running::start(command).wait(LIMIT);
        assert!(!end.status.success());
        end.stderr
    };
    let told = tell("tap:lo?exclusiv");
    assert!(told.contains("bad device"), "{told}");
    let told = tell("hub:web");
    assert!(told.contains("no hub is running"), "{told}");
}
