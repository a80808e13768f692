// SPDX-License-Identifier: MIT OR Apache-2.0
//! `top` on a pseudo-terminal: drawn, resized, quit, interrupted, left alone by its hub.

use std::{path::Path, process::Command, thread, time::Duration};

use ringtap_testkit::{Running, require_tool};
use serde_json::Value;

use crate::served::{LIMIT, ServedFile};

const SCRIPT: &str = include_str!("on_terminal.py");

/// `top` on a terminal of 80 columns, taken through these steps.
fn top(socket: &Path, steps: &[&str]) -> Running {
    let mut command = Command::new("python3");
    command.args(["-c", SCRIPT]).args(steps);
    command.args([
        "--",
        env!("CARGO_BIN_EXE_ringtap"),
        "top",
        "--interval",
        "0.2",
        "--socket",
    ]);
    command
        .arg(socket)
        .env("TERM", "xterm-256color")
        .env_remove("NO_COLOR");
    Running::start(command)
}

#[track_caller]
fn outcome(running: Running) -> Value {
    let end = running.wait(LIMIT * 2).success();
    let value: Value = serde_json::from_str(&end.stdout).expect("the script prints JSON");
    assert_eq!(value["restored"], true, "the terminal's modes are changed");
    assert_eq!(value["left"], true, "the other screen is still there");
    value
}

#[test]
fn top_draws_follows_the_size_and_quits_at_q() {
    require_tool!("python3");
    let served = ServedFile::open();
    let steps = [
        "wait:readers",
        "size:120x40",
        "wait:FILTERED/s",
        "size:30x6",
        "wait:below",
        "keys:q",
    ];
    let end = outcome(top(&served.socket(), &steps));
    assert_eq!(end["code"], 0, "{end}");
}

#[test]
fn control_c_and_signals_give_the_terminal_back() {
    require_tool!("python3");
    let served = ServedFile::open();
    for last in [
        "keys:\\x03",
        "keys:\\x1b",
        "signal:SIGTERM",
        "signal:SIGINT",
        "signal:SIGHUP",
    ] {
        let end = outcome(top(&served.socket(), &["wait:SOURCE", last]));
        assert_eq!(end["code"], 0, "{last}: {end}");
    }
}

#[test]
fn top_ends_with_its_terminal_also_without_a_signal() {
    require_tool!("python3");
    let served = ServedFile::open();
    let end = top(&served.socket(), &["wait:SOURCE", "close:"])
        .wait(LIMIT * 2)
        .success();
    let value: Value = serde_json::from_str(&end.stdout).expect("the script prints JSON");
    assert_eq!(value["code"], 1, "{value}");
}

#[test]
fn a_hub_that_goes_is_said_after_the_terminal_is_given_back() {
    require_tool!("python3");
    let mut served = ServedFile::open();
    let flag = served.socket().with_extension("drawn");
    let touch = format!("touch:{}", flag.display());
    let running = top(&served.socket(), &["wait:SOURCE", &touch]);
    for _ in 0..LIMIT.as_millis() / 20 {
        if flag.exists() {
            break;
        }
        thread::sleep(Duration::from_millis(20));
    }
    served.close();
    let end = outcome(running);
    assert_eq!(end["code"], 1, "{end}");
    let after = end["after"].as_str().expect("text");
    assert!(after.contains("ringtap: "), "{after:?}");
}
