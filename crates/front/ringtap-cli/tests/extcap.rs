// SPDX-License-Identifier: MIT OR Apache-2.0
//! Wireshark's command line captures through the extcap program.

use std::fs;
use std::path::Path;

use ringtap_testkit::{LIMIT, Namespace, Running, require_root, require_tool};
use tempfile::TempDir;

#[test]
fn tshark_lists_and_captures_devices_of_ringtap() {
    require_root!();
    require_tool!("tshark");
    let net = Namespace::with_veth("extcap");
    let home = TempDir::new().expect("a folder");
    let program = Path::new(env!("CARGO_MANIFEST_DIR")).join("extcap/ringtap-extcap");
    // Wireshark 4.0 looks into the first one, later versions into the second one.
    for folder in [".config/wireshark/extcap", ".local/lib/wireshark/extcap"] {
        let folder = home.path().join(folder);
        fs::create_dir_all(&folder).expect("a folder");
        fs::copy(&program, folder.join("ringtap-extcap")).expect("the program can be copied");
    }
    let tshark = |args: &[&str]| {
        let mut command = net.command("tshark");
        command.args(args);
        command.env("HOME", home.path());
        command.env("RINGTAP", env!("CARGO_BIN_EXE_ringtap"));
        Running::start(command)
    };
    let listed = tshark(&["-D"]).wait(LIMIT).success().stdout;
    assert!(listed.contains("ringtap-rx0 (Ringtap: rx0)"), "{listed}");
    let capture = tshark(&[
        "-i",
        "ringtap-rx0",
        "-f",
        "udp",
        "-c",
        "20",
        "-T",
        "fields",
        "-e",
        "frame.len",
    ]);
    // Sends until tshark has its packets: when the capture began is not to be seen from here.
    let sender = net.spawn(
        env!("CARGO_BIN_EXE_ringtap"),
        &[
            "send", "-i", "tx0", "--size", "200", "--rate", "200pps", "--quiet",
        ],
    );
    let end = capture.wait(LIMIT).success();
    drop(sender);
    assert_eq!(end.stdout.lines().count(), 20, "{}", end.stderr);
    assert!(
        end.stdout
            .lines()
            .all(|line| line.trim() == "196" || line.trim() == "200"),
        "{}",
        end.stdout
    );
}
