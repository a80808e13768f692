// SPDX-License-Identifier: MIT OR Apache-2.0
//! Behaviour that differs from libpcap's on Linux, and the reader chosen for an interface.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::os::unix::process::ExitStatusExt as _;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use ringtap_testkit::{Finished, Namespace, Running, require_root, require_tool};

use crate::programs::{text, watched};
use crate::same::{build, run};
use crate::support::{LIMIT, Tags, exec, frames, hub, prefix, ringtap};

#[test]
fn a_time_out_ends_a_read_on_which_nothing_comes() {
    require_root!();
    let Some(prefix) = prefix() else { return };
    let built = build("waiting");
    let net = Namespace::with_veth("pcap_nothing");
    for device in ["tap:rx0", "packet:rx0", "xdp:rx0", "rx0"] {
        let program = exec(&net, prefix, &[built.to_str().expect("text")]);
        let found = run(&net, program, device, "nothing_comes");
        let wanted = [
            "next_ex 0",
            "dispatch 0",
            "next 0",
            "each waited 1",
            "setnonblock 0",
            "a loop is broken -2",
            "setnonblock 0",
            "a loop goes on after its time-out -2",
            "afterwards 200",
            "end",
        ];
        assert_eq!(found, wanted, "{device}");
    }
    let _built = fs::remove_file(built);
}

#[test]
fn time_stamps_of_an_adapter_are_refused_with_a_warning() {
    require_root!();
    let Some(prefix) = prefix() else { return };
    let built = build("settings");
    let net = Namespace::with_veth("pcap_adapter");
    for device in ["tap:rx0", "packet:rx0", "xdp:rx0"] {
        let program = exec(&net, prefix, &[built.to_str().expect("text")]);
        let found = run(&net, program, device, "adapter");
        let wanted = ["set_tstamp_type 3", "activate 0", "loop 0", "end"];
        assert_eq!(found, wanted, "{device}");
    }
    let _built = fs::remove_file(built);
}

/// Over libpcap the same program hangs: a jump breaks its view of the ring.
#[test]
fn alarms_that_jump_at_any_instruction_leave_a_handle_that_reads() {
    require_root!();
    let Some(prefix) = prefix() else { return };
    let built = build("leaves");
    let net = Namespace::with_veth("pcap_alarms");
    for device in ["tap:rx0", "packet:rx0"] {
        let program = exec(&net, prefix, &[built.to_str().expect("text")]);
        let found = run(&net, program, device, "jump_under_traffic");
        let wanted = ["jumped 600", "reads on 1", "stats 0", "end"];
        assert_eq!(found, wanted, "{device}");
    }
    let _built = fs::remove_file(built);
}

#[test]
fn a_thousand_closed_handles_of_a_group_leave_no_descriptor() {
    require_root!();
    let Some(prefix) = prefix() else { return };
    let built = build("handles");
    let net = Namespace::with_veth("pcap_thousand");
    let folder = tempfile::tempdir().expect("a folder");
    let socket = folder.path().join("hub.sock");
    let _hub = hub(&net, prefix, &socket, &["-i", "packet:rx0"]);
    let mut program = exec(&net, prefix, &[built.to_str().expect("text")]);
    program.env("RINGTAP_SOCKET", &socket);
    let found = run(&net, program, "hub:all", "thousand");
    assert_eq!(found, ["left open 0", "end"]);
    let _built = fs::remove_file(built);
}

#[test]
fn a_program_has_one_library_by_every_name_of_libpcap() {
    let Some(prefix) = prefix() else { return };
    let source = r#"
#include <dlfcn.h>
#include <stdio.h>
int main(int argc, char **argv) {
    for (int at = 1; at < argc; at++) {
        void *library = dlopen(argv[at], RTLD_NOW);
        const char *(*version)(void) = library ? dlsym(library, "pcap_lib_version") : NULL;
        printf("%s %s\n", argv[at], version ? version() : dlerror());
    }
}
"#;
    let folder = tempfile::tempdir().expect("a folder");
    let (file, program) = (folder.path().join("names.c"), folder.path().join("names"));
    fs::write(&file, source).expect("a file");
    let mut compiler = Command::new("cc");
    compiler.arg("-o").args([&program, &file]);
    assert!(compiler.status().expect("a C compiler").success());
    let names = [
        "libpcap.so.1",
        "libpcap.so.0.8",
        "libpcap.so",
        "libpcap.so.0.8",
    ];
    let mut command = Command::new(ringtap(prefix));
    command.args(["exec", "--"]).arg(&program).args(names);
    let told = Running::start(command).wait(LIMIT).success().stdout;
    assert_eq!(
        told.matches("through Ringtap").count(),
        names.len(),
        "{told}"
    );
}

#[test]
fn any_is_read_through_libpcap_whatever_interfaces_are_read_by() {
    require_root!();
    require_tool!("tcpdump");
    let Some(prefix) = prefix() else { return };
    let net = Namespace::with_veth("pcap_any");
    let words = ["tcpdump", "-lni", "any", "-c", "3", "udp"];
    let mut command = exec(&net, prefix, &words);
    command.env("RINGTAP_VIA", "hub:rec");
    let dump = Running::start(command);
    dump.wait_for_stderr("listening on any", LIMIT);
    watched(&net);
    net.inject("tx0", &frames(10, Tags::None));
    let end = dump.wait(LIMIT).success();
    assert_eq!(end.stdout.lines().count(), 3, "{}", end.stdout);
    let said = "any is read through libpcap, not by hub:rec";
    assert!(end.stderr.contains(said), "{}", end.stderr);
}

/// Fixture for tests of an interface without a prefix.
struct Plain {
    net: Namespace,
    folder: tempfile::TempDir,
    program: PathBuf,
    prefix: &'static Path,
}

impl Plain {
    fn new(name: &str) -> Option<Self> {
        let prefix = prefix()?;
        let folder = tempfile::tempdir().expect("a folder");
        let everybody = fs::Permissions::from_mode(0o755);
        fs::set_permissions(folder.path(), everybody).expect("ours");
        Some(Plain {
            net: Namespace::with_veth(name),
            folder,
            program: build("plain"),
            prefix,
        })
    }

    fn socket(&self) -> PathBuf {
        self.folder.path().join("hub.sock")
    }

    /// Runs a program that reads `rx0`, and sends the frames that the program waits for.
    fn read(&self, mut command: Command, case: &str) -> Finished {
        command.args(["rx0", case]);
        command.env("RINGTAP_SOCKET", self.socket());
        let mut program = Running::start(command);
        let sent = frames(200, Tags::None);
        let mut served = 0;
        let begun = Instant::now();
        while program.is_running() {
            let told = program.stdout() + &program.stderr();
            assert!(begun.elapsed() < LIMIT, "{case} hangs:\n{told}");
            if program.stdout().matches("# ready").count() > served {
                self.net.inject("tx0", &sent);
                served += 1;
            }
            std::thread::sleep(Duration::from_millis(10));
        }
        program.wait(LIMIT)
    }

    fn exec(&self, words: &[&str]) -> Command {
        let mut command = self.net.command(ringtap(self.prefix));
        command.arg("exec").args(words).arg("--").arg(&self.program);
        command
    }

    /// Ringtap's lines on standard error; both readings must give the same packets.
    fn told(&self, words: &[&str], case: &str) -> Vec<String> {
        let end = self.read(self.exec(words), case).success();
        let read: Vec<_> = end.stdout.lines().filter(|l| l.contains("182")).collect();
        assert_eq!(read.len(), 2, "{words:?}\n{}{}", end.stdout, end.stderr);
        assert_eq!(read[0], read[1], "{words:?}\n{}", end.stderr);
        let lines = end.stderr.lines().map(str::to_owned);
        lines.filter(|line| line.starts_with("ringtap:")).collect()
    }
}

impl Drop for Plain {
    fn drop(&mut self) {
        let _built = fs::remove_file(&self.program);
    }
}

#[test]
fn a_plain_interface_is_a_hubs_or_captured_or_libpcaps_and_that_is_said_once() {
    require_root!();
    let Some(plain) = Plain::new("pcap_plain") else {
        return;
    };
    let ours = plain.told(&[], "usual");
    assert_eq!(ours, ["ringtap: rx0 is captured by tap:rx0"]);
    let theirs = plain.told(&[], "protocol");
    assert_eq!(
        theirs,
        [
            "ringtap: rx0 is read through libpcap: the program asks for a protocol of the packet socket"
        ]
    );
    let hub = hub(
        &plain.net,
        plain.prefix,
        &plain.socket(),
        &["-i", "tap:rx0"],
    );
    let hubs = plain.told(&[], "usual");
    assert_eq!(hubs, ["ringtap: rx0 is read through hub:all"]);
    let theirs = plain.told(&[], "protocol");
    assert!(theirs[0].contains("is read through libpcap"), "{theirs:?}");
    // No message if the user chose the reader, or asked for none.
    for words in [
        &["--via", "hub:all"][..],
        &["--via", "packet"],
        &["--via", "libpcap"],
        &["--quiet"],
    ] {
        assert_eq!(plain.told(words, "usual"), [""; 0], "{words:?}");
    }
    hub.interrupt();
    let told = hub.wait(LIMIT).success().stdout;
    assert!(told.contains(": balanced"), "{told}");
    assert_eq!(plain.told(&["--quiet"], "usual"), [""; 0]);
    assert_eq!(plain.told(&["--quiet"], "protocol"), [""; 0]);
    assert_eq!(plain.told(&["--quiet", "--via", "xdp"], "usual"), [""; 0]);
    let mut silenced = plain.exec(&[]);
    silenced.env("RINGTAP_QUIET", "1");
    assert_eq!(plain.read(silenced, "usual").success().stderr, "");
}

#[test]
fn a_hub_that_lets_the_user_in_serves_it_and_one_that_does_not_is_told_of() {
    require_root!();
    require_tool!("setpriv");
    let Some(plain) = Plain::new("pcap_nobody") else {
        return;
    };
    // Every user can read this folder.
    let own = plain.folder.path().join("ringtap");
    fs::create_dir_all(own.join("bin")).expect("a folder");
    fs::create_dir_all(own.join("lib/ringtap")).expect("a folder");
    let place = |from: &Path, to: &str| {
        let to = own.join(to);
        if fs::hard_link(from, &to).is_err() {
            fs::copy(from, &to).expect("a file");
        }
        to
    };
    let ringtap = place(&plain.prefix.join("bin/ringtap"), "bin/ringtap");
    place(&crate::support::library(), "lib/ringtap/libpcap.so.1");
    let program = place(&plain.program, "program");
    let as_nobody = || {
        let mut command = plain.net.command("setpriv");
        command.args(["--reuid=65534", "--regid=65534", "--clear-groups"]);
        command.arg(&ringtap).args(["exec", "--"]).arg(&program);
        command
    };
    let config = plain.folder.path().join("hub.toml");
    for (users, lets_in) in [("[\"nobody\"]", true), ("[\"daemon\"]", false)] {
        let text = format!(
            "[[source]]\ndevice = \"tap:rx0\"\n\n[[group]]\nname = \"all\"\nusers = {users}\n"
        );
        fs::write(&config, text).expect("a file");
        let words = ["-c", config.to_str().expect("text")];
        let hub = hub(&plain.net, plain.prefix, &plain.socket(), &words);
        let end = plain.read(as_nobody(), "usual").success();
        let told = format!("{}{}", end.stdout, end.stderr);
        let read = end.stdout.matches("udp: 182 packets").count();
        if lets_in {
            assert_eq!(read, 2, "{told}");
            assert_eq!(end.stderr, "ringtap: rx0 is read through hub:all\n");
        } else {
            // Without rights, neither a capture process nor libpcap can open the interface.
            assert!(told.contains("rx0: not through the hub: "), "{told}");
            assert!(told.contains("rx0 is read through libpcap: "), "{told}");
            assert!(told.contains("activate -8 "), "{told}");
        }
        hub.interrupt();
        let _ended = hub.wait(LIMIT).success();
    }
}

#[test]
fn without_rights_the_number_says_so() {
    require_root!();
    require_tool!("setpriv");
    let Some(plain) = Plain::new("pcap_rights") else {
        return;
    };
    for device in ["tap:rx0", "packet:rx0", "xdp:rx0", "rx0"] {
        // The program starts as root, without rights other than to read files.
        let mut command = plain.net.command("setpriv");
        command.args(["--reuid=65534", "--regid=65534", "--clear-groups"]);
        command.args([
            "--inh-caps=-all,+dac_override",
            "--ambient-caps=+dac_override",
        ]);
        command
            .arg(ringtap(plain.prefix))
            .args(["exec", "--quiet", "--"]);
        command.arg(&plain.program).args([device, "usual"]);
        command.env("RINGTAP_SOCKET", plain.socket());
        let end = Running::start(command).wait(LIMIT);
        let told = format!("{device}: {}{}", end.stdout, end.stderr);
        assert!(end.status.success(), "{told}");
        assert!(end.stdout.starts_with("activate -8 \""), "{told}");
    }
}

#[test]
fn what_one_program_writes_no_other_reads() {
    require_root!();
    let Some(prefix) = prefix() else { return };
    let built = build("busy");
    let net = Namespace::with_veth("pcap_beside");
    let folder = tempfile::tempdir().expect("a folder");
    let socket = folder.path().join("hub.sock");
    let hub = hub(&net, prefix, &socket, &["-i", "tap:rx0"]);
    let mut program = exec(&net, prefix, &[built.to_str().expect("text")]);
    program.env("RINGTAP_SOCKET", &socket);
    let of_libpcap = run(&net, net.command(&built), "rx0", "written_beside");
    let found = run(&net, program, "hub:all", "written_beside");
    assert_eq!(found, of_libpcap);
    hub.interrupt();
    let told = hub.wait(LIMIT).success().stdout;
    assert!(told.contains(": balanced"), "{told}");
    let _built = fs::remove_file(built);
}

#[test]
fn packets_are_copied_unless_a_variable_asks_for_them_in_place() {
    require_root!();
    let Some(prefix) = prefix() else { return };
    let built = build("busy");
    let net = Namespace::with_veth("pcap_in_place");
    let program = |in_place: &str| {
        let mut program = exec(&net, prefix, &[built.to_str().expect("text")]);
        program.env("RINGTAP_IN_PLACE", in_place);
        program
    };
    for device in ["tap:rx0", "packet:rx0", "xdp:rx0"] {
        for (variable, packets) in [("0", 0), ("1", 200)] {
            let found = run(&net, program(variable), device, "in_place");
            let wanted = ["loop 0", &format!("in the pool {packets}"), "end"];
            assert_eq!(found, wanted, "{device}");
        }
        let mut writing = program("1");
        writing.args([device, "written"]);
        let writing = Running::start(writing);
        writing.wait_for_stdout("# ready", LIMIT);
        net.inject("tx0", &frames(1, Tags::None));
        let status = writing.wait(LIMIT).status;
        assert_eq!(status.signal(), Some(libc::SIGSEGV), "{device}");
    }
    let _built = fs::remove_file(built);
}

#[test]
fn a_variable_leaves_out_the_descriptor_and_nothing_is_said_to_other_programs() {
    require_root!();
    let Some(plain) = Plain::new("pcap_variables") else {
        return;
    };
    let built = build("waiting");
    let mut program = exec(&plain.net, plain.prefix, &[text(&built)]);
    program.env("RINGTAP_NO_SELECT", "1");
    let found = run(&plain.net, program, "packet:rx0", "no_descriptor");
    assert_eq!(found, ["selectable fd -1", "loop 0", "end"]);
    let _built = fs::remove_file(built);
    // Like Wireshark, the shell gives the program another standard error.
    let mut command = plain.net.command(ringtap(plain.prefix));
    command.args([
        "exec",
        "--",
        "sh",
        "-c",
        "\"$0\" \"$@\" 2>channel; cat channel",
    ]);
    command.arg(&plain.program).current_dir(&plain.folder);
    let end = plain.read(command, "usual").success();
    assert!(end.stdout.contains("182 packets"), "{}", end.stdout);
    let told = end.stdout + &end.stderr;
    assert!(!told.contains("ringtap:"), "{told}");
}

#[test]
fn a_program_that_is_tied_to_a_processor_has_it_to_itself() {
    require_root!();
    require_tool!("tcpdump", "taskset");
    let Some(prefix) = prefix() else { return };
    if std::thread::available_parallelism().is_ok_and(|cores| cores.get() < 2) {
        ringtap_testkit::say_skipped("needs two processors");
        return;
    }
    let net = Namespace::with_veth("pcap_tied");
    let mut command = net.command("taskset");
    command.args(["-c", "0", &ringtap(prefix), "exec", "--"]);
    command.args(["tcpdump", "-Z", "root", "-ni", "tap:rx0", "-w", "/dev/null"]);
    let dump = Running::start(command);
    dump.wait_for_stderr("listening on", LIMIT);
    let pids = Command::new("ip")
        .args(["netns", "pids", net.name()])
        .output();
    let pids = String::from_utf8(pids.expect("ip is there").stdout).expect("numbers");
    let told = |pid: &str, what: &str| fs::read_to_string(format!("/proc/{pid}/{what}"));
    let captures =
        |pid: &&str| told(pid, "cmdline").is_ok_and(|text| text.contains("\0serve-one\0"));
    let helper = pids.lines().find(captures).expect("a process captures");
    let status = told(helper, "status").expect("it runs");
    let list = status
        .lines()
        .find_map(|line| line.strip_prefix("Cpus_allowed_list:\t"));
    let first = list.and_then(|list| list.split(['-', ',']).next());
    assert!(first.is_some_and(|first| first != "0"), "{status}");
    dump.interrupt();
    let _ended = dump.wait(LIMIT).success();
}
