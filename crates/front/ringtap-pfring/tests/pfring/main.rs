// SPDX-License-Identifier: MIT OR Apache-2.0
//! A program like pfcount, compiled with our header, receives the packets of a group.

use std::env;
use std::mem::offset_of;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;

use ringtap_pfring::abi::{BurstPacket, RingPacketHeader, RingStatistics};
use ringtap_testkit::{LIMIT, Namespace, Running, require_root, say_skipped};

fn deps() -> PathBuf {
    let exe = env::current_exe().expect("a test has a file");
    exe.parent().expect("in a folder").to_owned()
}

/// The program, and the folder of its library.
fn built() -> &'static (PathBuf, PathBuf) {
    static BUILT: OnceLock<(PathBuf, PathBuf)> = OnceLock::new();
    BUILT.get_or_init(|| {
        let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join("pfring");
        std::fs::create_dir_all(&folder).expect("a folder");
        let library = folder.join("libpfring.so.8");
        std::fs::copy(deps().join("libringtap_pfring.so"), &library).expect("the library");
        let program = folder.join("count");
        let home = Path::new(env!("CARGO_MANIFEST_DIR"));
        // A program of PF_RING's users may name its header's folder here.
        let header = env::var("PFRING_HEADER").map_or_else(|_| home.join("include"), PathBuf::from);
        let output = Command::new("cc")
            .args(["-std=gnu11", "-Wall", "-O1", "-pthread", "-o"])
            .args([&program, &home.join("tests/pfring/count.c"), &library])
            .arg("-I")
            .arg(header)
            .output()
            .expect("a C compiler is installed");
        let errors = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{errors}");
        (program, folder)
    })
}

fn count(socket: &Path, args: &[&str]) -> Running {
    let (program, folder) = built();
    let mut command = Command::new(program);
    command.env("LD_LIBRARY_PATH", folder);
    command
        .env("RINGTAP_SOCKET", socket)
        .env("TZ", "UTC0")
        .args(args);
    Running::start(command)
}

#[test]
fn a_pfcount_like_program_receives_a_group_in_every_way() {
    let ringtap = deps().join("../ringtap");
    if !ringtap.exists() {
        say_skipped("needs the ringtap program: cargo build --bin ringtap");
        return;
    }
    let folder = tempfile::tempdir().expect("a folder");
    let socket = folder.path().join("hub.sock");
    let mut command = Command::new(ringtap);
    command.args(["hub", "--duration", "300", "-i", "sim:5000pps?flows=16"]);
    command.args(["-g", "all", "-g", "two:2:flow", "--socket"]);
    let hub = Running::start({
        command.arg(&socket);
        command
    });
    hub.wait_for_stderr("ringtap: hub of", LIMIT);
    for way in ["recv", "copy", "burst", "loop"] {
        let told = count(&socket, &["hub:all", way, "2000"]).wait(LIMIT);
        let told = told.success().stdout;
        assert!(told.contains(" packets\n"), "{way}: {told}");
    }
    let filtered = count(&socket, &["hub:two", "recv", "10", "udp"]).wait(LIMIT);
    let _counted = filtered.success();
    let _withheld = count(&socket, &["hub:all", "rules", "0"])
        .wait(LIMIT)
        .success();
    let named = format!("hub:all?socket={}", socket.display());
    let nowhere = Path::new("/nowhere");
    let _named = count(nowhere, &[&named, "recv", "10"])
        .wait(LIMIT)
        .success();
    // Captures of the program's own, whose threads get no signals of the program.
    for way in ["copy", "rules", "handlers"] {
        let args = ["sim:5000pps?flows=16", way, "500"];
        let _done = count(nowhere, &args).wait(LIMIT).success();
    }
    for args in [
        &["hub:all", "threads", "0", "tcp port 9"][..],
        &["hub:all", "handlers", "0"],
        &["clusters", "hub:all", "hub:two"],
    ] {
        let _done = count(&socket, args).wait(LIMIT).success();
    }
    // A signal handler ends a loop that waits for packets.
    let endless = count(&socket, &["hub:all", "loop", "100000000"]);
    endless.wait_for_stderr("loops", LIMIT);
    endless.interrupt();
    let _ended = endless.wait(LIMIT).success();
    hub.interrupt();
    let _ended = hub.wait(LIMIT).success();
}

#[test]
fn a_ring_of_an_interface_receives_what_another_sends() {
    require_root!();
    let net = Namespace::with_veth("pfring");
    let (program, folder) = built();
    let mut command = net.command(program.to_str().expect("a plain path"));
    command.args(["send", "tx0", "rx0"]);
    command.env("LD_LIBRARY_PATH", folder);
    let _sent = Running::start(command).wait(LIMIT).success();
}

#[test]
fn the_header_needs_no_other_and_no_extension_of_c() {
    let home = Path::new(env!("CARGO_MANIFEST_DIR"));
    let folder = tempfile::tempdir().expect("a folder");
    let source = folder.path().join("header.c");
    // As Suricata's configure script does.
    let text =
        "#include <pfring.h>\nint main(void) { return pfring_recv_chunk(NULL, NULL, 0, 0); }\n";
    std::fs::write(&source, text).expect("a file");
    for words in ["-std=c11 -pedantic", "-x c++ -std=c++11"] {
        let mut command = Command::new("cc");
        command
            .args(words.split(' '))
            .args(["-Wall", "-Werror", "-fsyntax-only", "-I"]);
        command.arg(home.join("include")).arg(&source);
        let output = command.output().expect("a C compiler is installed");
        let errors = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{words}: {errors}");
    }
}

#[test]
fn structures_have_the_sizes_and_offsets_that_pf_ring_8_has() {
    let told = count(Path::new("/nowhere"), &["sizes"]).wait(LIMIT);
    let told = told.success().stdout;
    assert_eq!(told, "70 230 94 209 16 20 24 36 40 44 40 24 32 24 16\n");
    let own = [
        // Rules are read as bytes.
        70,
        230,
        94,
        size_of::<RingPacketHeader>(),
        offset_of!(RingPacketHeader, caplen),
        offset_of!(RingPacketHeader, len),
        offset_of!(RingPacketHeader, timestamp_ns),
        offset_of!(RingPacketHeader, rx_direction),
        offset_of!(RingPacketHeader, if_index),
        offset_of!(RingPacketHeader, pkt_hash),
        size_of::<BurstPacket>(),
        offset_of!(BurstPacket, caplen),
        offset_of!(BurstPacket, hash),
        size_of::<RingStatistics>(),
        offset_of!(RingStatistics, shunt),
    ];
    let own = own.map(|number| number.to_string()).join(" ");
    assert_eq!(told.trim_end(), own);
}
