// SPDX-License-Identifier: MIT OR Apache-2.0
//! Rights are asked at each request; configurations that others can change are refused.

use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt as _;
use std::os::unix::process::CommandExt as _;
use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

use ringtap_testkit::{Running, require_root, require_tool};
use rustix::fs::{CWD, FileType, Mode, mknodat};
use rustix::process::Signal;
use serde_json::Value;
use tempfile::TempDir;

use crate::attacks::{OUTSIDER, attack, public_file};
use crate::reload::reload;
use crate::support::{BINARY, LARGE_POOL, LIMIT, RunningHub};

const ALICE: u32 = 3001;
const BOB: u32 = 3002;
/// Groups of two tenants.
const TENANTS: &str = "[[group]]\nname = \"all\"\nusers = [\"3001\"]\n[[group]]\nname = \"b\"\n\
                       users = [\"3002\"]\nfilter = \"udp port 7\"\ndelivery = \"private\"\n";

/// A hub with this file, whose socket every user reaches.
fn hub_with(test: &str, file: &Path, text: &str) -> RunningHub {
    fs::write(file, text).expect("a file of the test");
    let hub = RunningHub::with(test, LARGE_POOL, &["-c", &file.display().to_string()]);
    fs::set_permissions(hub.path(""), Permissions::from_mode(0o755)).expect("it is ours");
    hub
}

/// A command of this user, with this hub.
pub(crate) fn as_user(uid: u32, hub: &RunningHub, words: &[&str]) -> Running {
    let mut command = Command::new(BINARY);
    command.args(words).uid(uid).gid(uid);
    command.env("RINGTAP_SOCKET", &hub.socket);
    Running::start(command)
}

fn status_as(uid: u32, hub: &RunningHub) -> Value {
    let status = as_user(uid, hub, &["status", "--json"])
        .wait(LIMIT)
        .success();
    serde_json::from_str(&status.stdout).expect("an object")
}

fn names<'a>(status: &'a Value, list: &str, key: &str) -> Vec<&'a str> {
    let list = status[list].as_array().expect("a list").iter();
    list.filter_map(|one| one[key].as_str()).collect()
}

#[test]
fn a_member_sees_its_own_groups_and_root_sees_all() {
    require_root!();
    let folder = TempDir::new().expect("a folder can be made");
    let hub = hub_with("hub-view", &folder.path().join("hub.toml"), TENANTS);
    let read = |uid, device, name| {
        let before = hub.status().readers.len();
        let words = ["count", "-q", "-i", device, "--name", name];
        let reader = as_user(uid, &hub, &words);
        hub.wait_until("a reader attaches", |status| status.readers.len() > before);
        reader
    };
    let first = read(BOB, "hub:b", "bobs-first");
    first.interrupt();
    let _end = first.wait(LIMIT).success();
    hub.wait_until("it has left", |status| !status.departed.is_empty());
    let _readers = [read(ALICE, "hub:all", "alices"), read(BOB, "hub:b", "bobs")];

    let all = status_as(0, &hub);
    assert_eq!(names(&all, "groups", "name"), ["all", "b"]);
    assert_eq!(names(&all, "readers", "name"), ["alices", "bobs"]);
    assert_eq!(names(&all, "departed", "name"), ["bobs-first"]);
    assert_eq!(
        (&all["hash_seed"], &all["partial"]),
        (&1.into(), &false.into())
    );

    let part = status_as(ALICE, &hub);
    assert_eq!(names(&part, "groups", "name"), ["all"]);
    assert_eq!(names(&part, "readers", "name"), ["alices"]);
    assert_eq!(part["sources"].as_array().map(Vec::len), Some(1));
    assert_eq!(part["partial"], true);
    let text = part.to_string();
    for hidden in ["bobs", "port 7", "hash_seed", "3002"] {
        assert!(!text.contains(hidden), "{hidden}: {text}");
    }
    // A name that does not exist does not tell those of others either.
    let wrong = as_user(ALICE, &hub, &["count", "-i", "hub:none"]).wait(LIMIT);
    assert!(
        wrong.stderr.contains("the groups are: all\n"),
        "{}",
        wrong.stderr
    );

    let only = "Only the groups that this user may join are shown: all.";
    let answer = |uid| {
        as_user(uid, &hub, &["why", "--interval", "0.1"])
            .wait(LIMIT)
            .success()
    };
    assert!(answer(ALICE).stdout.contains(only));
    assert!(!answer(0).stdout.contains("Only the groups"));
}

#[test]
fn a_user_that_a_reload_removed_gets_no_further_answer() {
    require_root!();
    require_tool!("python3");
    let folder = TempDir::new().expect("a folder can be made");
    let file = folder.path().join("hub.toml");
    let hub = hub_with("hub-removed", &file, TENANTS);
    let watch = |uid| {
        let watcher = as_user(uid, &hub, &["status", "--json", "--interval", "0.1"]);
        watcher.wait_for_stdout("\"partial\":true", LIMIT);
        watcher
    };
    let (alices, bobs) = (watch(ALICE), watch(BOB));
    let program = public_file(OUTSIDER);
    let member = attack(&program, &hub.socket, "removed", &[ALICE]);
    member.wait_for_stdout("attached", LIMIT);

    // The filter stays, because the group has a reader; the users do not.
    let text = TENANTS.replace("users = [\"3001\"]", "users = [\"3003\"]\nfilter = \"tcp\"");
    fs::write(&file, text).expect("a file of the test");
    let _asked = reload(&hub).wait(LIMIT).success();
    let end = alices.wait(LIMIT);
    assert!(!end.status.success());
    assert!(
        end.stderr.contains("may not see this hub"),
        "{}",
        end.stderr
    );
    let told = member.wait(LIMIT).success().stdout;
    for request in ["statistics", "credit", "filter", "status"] {
        assert!(told.contains(&format!("{request} not_allowed")), "{told}");
    }
    // Who stays sees what it saw.
    assert_eq!(names(&status_as(BOB, &hub), "groups", "name"), ["b"]);
    bobs.interrupt();
    assert!(!bobs.wait(LIMIT).stdout.is_empty());
    hub.finish();
}

/// Each verb that reads a configuration as root, with a file and nothing to capture.
fn verbs(file: &Path) -> [Vec<String>; 3] {
    let file = file.display().to_string();
    let words = |text: &str| {
        let words = text.split(' ').map(str::to_owned);
        words.chain([file.clone()]).collect::<Vec<_>>()
    };
    [
        words("hub -i tap:missing0 -c"),
        words("probe -i tap:missing0 --config"),
        words("vm attach --name vm1 -c"),
    ]
}

#[test]
fn a_configuration_that_others_can_change_is_refused() {
    require_root!();
    let folder = TempDir::new().expect("a folder can be made");
    let (file, fifo) = (folder.path().join("own.toml"), folder.path().join("fifo"));
    fs::write(&file, "").expect("a file of the test");
    mknodat(CWD, &fifo, FileType::Fifo, Mode::from_raw_mode(0o600), 0).expect("a fifo");
    let told = |words: Vec<String>| {
        let mut command = Command::new(BINARY);
        command.args(words);
        let end = Running::start(command).wait(LIMIT);
        assert!(!end.status.success());
        end.stderr
    };
    for (file_mode, folder_mode, is_refused) in [
        (0o644, 0o755, false),
        (0o646, 0o755, true),
        (0o644, 0o777, true),
        (0o644, 0o1777, false),
    ] {
        let set = |path, mode| fs::set_permissions(path, Permissions::from_mode(mode));
        set(&*file, file_mode).expect("it is ours");
        set(folder.path(), folder_mode).expect("it is ours");
        for words in verbs(&file) {
            let shown = format!("{words:?} with {file_mode:o} in {folder_mode:o}");
            let text = told(words);
            assert_eq!(text.contains("chmod go-w"), is_refused, "{shown}: {text}");
        }
    }
    for words in verbs(&fifo) {
        let text = told(words);
        assert!(text.contains("is no regular file"), "{text}");
    }
}

#[test]
fn a_fifo_in_the_place_of_the_configuration_holds_no_hub_up() {
    require_root!();
    let folder = TempDir::new().expect("a folder can be made");
    let file = folder.path().join("hub.toml");
    let hub = hub_with("hub-fifo", &file, TENANTS);
    fs::remove_file(&file).expect("it is ours");
    mknodat(CWD, &file, FileType::Fifo, Mode::from_raw_mode(0o600), 0).expect("a fifo");
    let asked = reload(&hub).wait(LIMIT);
    assert_eq!(asked.status.code(), Some(2), "{}", asked.stderr);
    let told = asked.stderr;
    assert!(told.contains("is no regular file"), "{told}");
    assert_eq!(hub.status().groups.len(), 2);
    hub.hub.signal(Signal::TERM);
    let begun = Instant::now();
    let end = hub.hub.wait(LIMIT);
    assert!(end.status.success(), "{}", end.stderr);
    assert!(begun.elapsed() < LIMIT - Duration::from_secs(1));
}
