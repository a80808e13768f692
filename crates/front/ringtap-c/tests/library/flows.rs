// SPDX-License-Identifier: MIT OR Apache-2.0
//! A C program ignores a flow, and learns what the flow had.

use std::process::Command;

use ringtap_testkit::{Namespace, Running, require_root, require_tool};

use crate::support::{LIMIT, build, crate_folder, hub, ringtap, with_library};

/// A frame of the UDP flow 10.0.0.1:1000 and 10.0.0.2:`port`.
pub(crate) fn frame(port: u8) -> Vec<u8> {
    let mut frame = vec![2, 0, 0, 0, 0, 1, 2, 0, 0, 0, 0, 2, 8, 0];
    frame.extend([0x45, 0, 0, 46, 0, 0, 0, 0, 64, 17, 0, 0]);
    frame.extend([10, 0, 0, 1, 10, 0, 0, 2, 3, 232, 0, port]);
    frame.resize(60, 0);
    frame
}

#[test]
fn a_c_program_ignores_a_flow_and_learns_what_it_had() {
    require_root!();
    require_tool!("ip", "python3");
    let Some(ringtap) = ringtap() else { return };
    let network = Namespace::with_veth("c_flows");
    let folder = tempfile::tempdir().expect("a folder");
    let socket = folder.path().join("hub.sock");
    let groups = ["-i", "tap:rx0?exclusive&direction=in", "-g", "all"];
    let hub = hub(&ringtap, Some(&network), &socket, &groups);
    let program = build(&crate_folder().join("tests/library/flows.c"));
    let mut command = with_library(Command::new(program), &socket);
    command.arg("30");
    let reader = Running::start(command);
    reader.wait_for_stdout("ready", LIMIT);
    let ports = [7, 8, 7].repeat(10);
    let frames: Vec<_> = ports.into_iter().map(frame).collect();
    network.inject("tx0", &frames);
    let told = reader.wait(LIMIT).success().stdout;
    assert!(told.contains("10 delivered, 20 shunted\n"), "{told}");
    let end = "udp 10.0.0.1:1000 10.0.0.2:7: 4, 20 packets, 1200 bytes\n";
    assert!(told.contains(end), "{told}");
    hub.interrupt();
    let _ended = hub.wait(LIMIT).success();
}
