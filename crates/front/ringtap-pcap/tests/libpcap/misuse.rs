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
fn a_program_that_ignores_the_library_is_told_of_before_it_starts() {
    use std::os::unix::fs::PermissionsExt as _;
    require_root!();
    require_tool!("setpriv");
    let Some(prefix) = prefix() else { return };
    let folder = crate::programs::open_folder();
    let program = folder.path().join("static");
    let source = folder.path().join("static.c");
    std::fs::write(&source, "int main(void) { return 7; }\n").expect("a file");
    let compile = |kind: &str| {
        let mut compiler = Command::new("cc");
        compiler.args([kind, "-o"]).arg(&program).arg(&source);
        assert!(compiler.status().expect("a C compiler").success());
    };
    let run = |user: &str, words: &[&str]| {
        let mut command = Command::new("setpriv");
        command.args(["--clear-groups", "--reuid", user, "--regid", user]);
        command
            .arg(ringtap(prefix))
            .arg("exec")
            .args(words)
            .arg(&program);
        Running::start(command).wait(LIMIT)
    };
    compile("-static");
    let end = run("0", &["--"]);
    assert_eq!(end.status.code(), Some(7));
    assert!(
        end.stderr.contains("is statically linked"),
        "{}",
        end.stderr
    );
    assert_eq!(run("0", &["--quiet", "--"]).stderr, "");
    assert_eq!(run("0", &["--check"]).status.code(), Some(1));
    compile("-no-pie");
    assert!(run("0", &["--check"]).status.success());
    let elevated = std::fs::Permissions::from_mode(0o4755);
    std::fs::set_permissions(&program, elevated).expect("ours");
    assert!(
        run("0", &["--check"]).status.success(),
        "root has these rights already"
    );
    let end = run("65534", &["--check"]);
    assert_eq!(end.status.code(), Some(1));
    assert!(end.stderr.contains("set-user-id"), "{}", end.stderr);
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
