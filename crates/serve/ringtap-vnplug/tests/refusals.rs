// SPDX-License-Identifier: MIT OR Apache-2.0
//! QMP sockets on which a guest cannot be served: each is refused in a sentence of its own.
#![allow(clippy::unwrap_used, reason = "in a test a panic is the report")]

use std::io::{BufRead as _, BufReader, Write as _};
use std::os::unix::net::UnixListener;
use std::thread;

use ringtap_vnplug::host::{GuestLimits, GuestVm, Monitor, QmpError, VmError};
use serde_json::{Value, json};

const GREETING: &str = r#"{"QMP": {"version": {"qemu": {"major": 7, "minor": 2}}}}"#;

/// What attaching to a socket yields that greets so and answers commands so.
fn attach(greeting: &str, answer: fn(&str) -> Value) -> VmError {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("qmp");
    let listener = UnixListener::bind(&path).unwrap();
    let greeting = format!("{greeting}\n");
    let server = thread::spawn(move || {
        let (mut socket, _) = listener.accept().unwrap();
        // The other end may leave at any time.
        let _ = socket.write_all(greeting.as_bytes());
        let reader = socket.try_clone().unwrap();
        for byte in BufReader::new(reader).split(b'}') {
            let text = String::from_utf8(byte.unwrap_or_default()).unwrap();
            let command = text.split("\"execute\":\"").nth(1);
            if let Some(name) = command.and_then(|rest| rest.split('"').next()) {
                let _ = socket.write_all(format!("{}\n", answer(name)).as_bytes());
            }
        }
    });
    let refused = GuestVm::attach(&Monitor::Qmp(path), "test", GuestLimits::default());
    server.join().unwrap();
    refused.err().expect("this is no QEMU")
}

fn machine(command: &str) -> Value {
    match command {
        "device_add" | "object-add" => panic!("QEMU was asked"),
        "query-status" => json!({ "return": { "status": "running" } }),
        "qom-list" | "query-chardev" => json!({ "return": [] }),
        _ => json!({ "return": {} }),
    }
}

#[test]
fn a_socket_that_is_missing_or_not_of_qemu_is_refused() {
    let missing = GuestVm::attach(
        &Monitor::Qmp("/nowhere/qmp".into()),
        "test",
        GuestLimits::default(),
    );
    let text = missing.err().unwrap().to_string();
    assert!(
        text.contains("/nowhere/qmp") && text.contains("-qmp"),
        "{text}"
    );
    let long = format!("\"{}\"", "x".repeat(2 << 20));
    for greeting in ["SSH-2.0", "{}", r#"{"QMP": {}}"#, &long] {
        let refused = attach(greeting, machine);
        assert!(
            matches!(refused, VmError::Qmp(QmpError::NotQmp)),
            "{refused}"
        );
    }
}

#[test]
fn an_old_qemu_a_paused_machine_and_one_without_ports_are_refused() {
    let old = GREETING.replace("7", "6");
    assert!(matches!(attach(&old, machine), VmError::TooOld(6, 2)));
    let paused = attach(GREETING, |command| match command {
        "query-status" => json!({ "return": { "status": "paused" } }),
        other => machine(other),
    });
    assert!(matches!(paused, VmError::NotRunning(state) if state == "paused"));
    assert!(matches!(attach(GREETING, machine), VmError::NoPort));
    let refuses = attach(GREETING, |command| match command {
        "query-status" => json!({ "error": { "desc": "not today" } }),
        other => machine(other),
    });
    assert!(refuses.to_string().contains("not today"), "{refuses}");
}
