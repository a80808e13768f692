// SPDX-License-Identifier: MIT OR Apache-2.0
//! What a hub does not grant, and what it says then.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::CommandExt as _;
use std::process::Command;

use ringtap_client::{Connection, SubscriptionRequest, Watermark};
use ringtap_ipc::protocol::{Refusal, Reply, Request, decode, encode};
use ringtap_ipc::socket::Socket;
use ringtap_ipc::transport::{MAX_BYTES, Transport as _};
use ringtap_testkit::{Finished, NOBODY, PublicProgram, Running, require_root};

use crate::support::{Account, BINARY, LIMIT, RunningHub, request};

fn config(bench_name: &str, text: &str) -> (tempfile::NamedTempFile, RunningHub) {
    let file = tempfile::NamedTempFile::new().expect("a file can be made");
    fs::write(file.path(), text).expect("it can be written");
    let path = file.path().display().to_string();
    let hub = RunningHub::with(bench_name, "tap:rx0?exclusive&direction=in", &["-c", &path]);
    (file, hub)
}

fn refusal(hub: &RunningHub, request: &SubscriptionRequest) -> String {
    match Connection::attach(&hub.socket, request) {
        Ok(_) => panic!("it was granted"),
        Err(error) => error.to_string(),
    }
}

#[test]
fn a_user_without_rights_is_told_of_them_before_the_socket() {
    require_root!();
    let program = PublicProgram::copy_of(BINARY);
    for device in ["lo", "tap:lo", "packet:lo", "xdp:lo"] {
        let mut hub = program.as_nobody();
        hub.args(["hub", "-i", device, "--socket", "/nonexistent/hub.sock"]);
        let end = Running::start(hub).wait(LIMIT);
        assert_eq!(end.status.code(), Some(1), "{}", end.stderr);
        let is_of_rights = end.stderr.contains("source needs CAP_");
        assert!(
            is_of_rights && !end.stderr.contains("/nonexistent"),
            "{}",
            end.stderr
        );
    }
}

#[test]
fn more_than_is_allowed_is_refused_with_both_numbers() {
    require_root!();
    let text = "[[group]]\nname = \"small\"\ncredit = 4\nwatermark = 10\nmembers = 1\n";
    let (_file, hub) = config("hub-much", text);
    let credit = refusal(
        &hub,
        &SubscriptionRequest {
            credit_chunks: Some(5),
            ..request("small")
        },
    );
    assert!(credit.contains('5') && credit.contains('4'), "{credit}");
    let mark = refusal(
        &hub,
        &SubscriptionRequest {
            watermark: Watermark {
                packets: 11,
                ..Watermark::default()
            },
            ..request("small")
        },
    );
    assert!(mark.contains("11") && mark.contains("10"), "{mark}");
    let attached = Connection::attach(&hub.socket, &request("small"));
    let (subscription, connection) = attached.expect("a subscription");
    let more = connection.set_credit(9).expect_err("too much").to_string();
    assert!(more.contains('9') && more.contains('4'), "{more}");
    let second = refusal(&hub, &request("small"));
    assert!(second.contains("readers"), "{second}");
    let unknown = refusal(&hub, &request("other"));
    assert!(unknown.contains("small"), "tells what there is: {unknown}");
    drop((subscription, connection));
    hub.finish();
}

/// One message and its answer.
fn ask(socket: &Socket, message: &[u8]) -> Reply {
    socket.send(message, &[]).expect("the hub listens");
    let mut buffer = vec![0; MAX_BYTES];
    let (bytes, _) = socket.receive(&mut buffer).expect("the hub answers");
    decode(bytes).expect("in its protocol")
}

fn code(reply: &Reply) -> Refusal {
    match reply {
        Reply::Refused(refused) => refused.code,
        other => panic!("granted: {other:?}"),
    }
}

#[test]
fn an_invalid_request_is_refused_and_the_next_one_served() {
    require_root!();
    let hub = RunningHub::new("hub-rude", &["all", "more"]);
    let connect = || Socket::connect(&hub.socket).expect("it listens");
    let hello = |protocol| {
        encode(&Request::Hello {
            protocol,
            features: vec![],
            name: "test".into(),
        })
    };
    let attach = |group: &str| encode(&Request::Attach(SubscriptionRequest::new(group, "")));
    let rude = connect();
    assert_eq!(
        code(&ask(&rude, &attach("all"))),
        Refusal::BadRequest,
        "hello comes first"
    );
    assert_eq!(code(&ask(&rude, &hello(9))), Refusal::Version);
    assert!(matches!(ask(&rude, &hello(1)), Reply::Hello { .. }));
    assert!(matches!(ask(&rude, &attach("all")), Reply::Attached(_)));
    assert_eq!(
        code(&ask(&rude, &attach("more"))),
        Refusal::TooMuch,
        "one group a connection"
    );
    let filter = br#"{"ask":"filter","program":[18446744073709551615]}"#;
    assert_eq!(code(&ask(&rude, filter)), Refusal::BadRequest);
    assert_eq!(code(&ask(&rude, b"{]")), Refusal::BadRequest);
    assert_eq!(ask(&rude, &encode(&Request::Detach)), Reply::Done);
    hub.wait_until("its subscription is free", |status| {
        status.readers.is_empty()
    });
    hub.finish();
}

/// Runs the program as a user without rights, who can reach the hub's socket.
fn as_nobody(hub: &RunningHub, program: &PublicProgram, args: &[&str]) -> Finished {
    let folder = hub.path("");
    fs::set_permissions(&folder, fs::Permissions::from_mode(0o777)).expect("it is ours");
    let mut command = program.as_nobody();
    command.args(args);
    Running::start(command).wait(LIMIT)
}

#[test]
fn only_listed_users_and_groups_get_in_and_they_need_no_rights() {
    require_root!();
    let text = "[[group]]\nname = \"open\"\nusers = [\"65534\"]\n\
                [[group]]\nname = \"theirs\"\ngroups = [\"65534\"]\n\
                [[group]]\nname = \"others\"\nusers = [\"65533\"]\ngroups = [\"65533\"]\n\
                [[group]]\nname = \"closed\"\n";
    let (_file, hub) = config("hub-users", text);
    let program = PublicProgram::copy_of(BINARY);
    for group in ["closed", "others"] {
        let refused = as_nobody(&hub, &program, &["count", "-q", "-i", &hub.device(group)]);
        assert_eq!(refused.status.code(), Some(1));
        assert!(refused.stderr.contains("65534"), "{}", refused.stderr);
    }
    // Longer than the readers need.
    let sending = hub.start_sending(1_000, 1_000_000);
    for group in ["open", "theirs"] {
        let device = hub.device(group);
        let args = ["count", "-q", "--json", "-c", "100", "-i", &device];
        let end = as_nobody(&hub, &program, &args).success();
        assert!(end.stdout.contains("\"delivered\":100"), "{}", end.stdout);
    }
    drop(sending);
    hub.finish();
}

#[test]
fn a_second_hub_on_the_same_socket_is_refused() {
    require_root!();
    let hub = RunningHub::new("hub-twice", &["all"]);
    let mut command = hub.net.command(BINARY);
    command
        .args(["hub", "-i", "packet:rx0", "--socket"])
        .arg(&hub.socket);
    let end = Running::start(command).wait(LIMIT);
    assert_eq!(end.status.code(), Some(1));
    assert!(
        end.stderr.contains(
            "a running program of ringtap uses this socket already: choose another --socket"
        ),
        "{}",
        end.stderr
    );
    let reader = hub.count("all", &[]);
    let sent = hub.send(10_000, 1_000);
    assert!(
        Account::of(reader).0.number("delivered") >= sent,
        "the first one is unharmed"
    );
    hub.finish();
}

#[test]
fn what_is_found_wrong_as_the_hub_starts_is_told_with_line_and_key() {
    require_root!();
    let net = ringtap_testkit::Namespace::with_veth("hub-wrong");
    let folder = tempfile::TempDir::new().expect("a folder can be made");
    let path = folder.path().join("hub.toml");
    let source = "[[source]]\ndevice = \"tap:rx0\"\n";
    for (text, told, status) in [
        (
            format!("{source}[[group]]\nname = \"a\"\nfilter = \"tcp prot 80\"\n"),
            "hub.toml, line 5, filter: ",
            2,
        ),
        (
            format!("{source}[[group]]\nname = \"a\"\nbalance = \"program:/no/such.o\"\n"),
            "hub.toml, line 5, balance: /no/such.o: ",
            1,
        ),
        (
            "[[source]]\ndevice = \"tap:no0\"\n".to_owned(),
            "hub.toml, line 2, device: ",
            1,
        ),
        (
            "[[source]]\ndevice = \"rx0?pool=1KiB\"\n".to_owned(),
            "hub.toml, line 2, device: rx0: 1 chunks for ",
            1,
        ),
    ] {
        fs::write(&path, &text).expect("it can be written");
        let mut command = net.command(BINARY);
        command.args(["hub", "-c"]).arg(&path).arg("--socket");
        command.arg(folder.path().join("hub.sock"));
        let end = Running::start(command).wait(LIMIT);
        assert_eq!(end.status.code(), Some(status), "{text}");
        assert!(end.stderr.contains(told), "{text}: {}", end.stderr);
    }
}

#[test]
fn users_of_a_group_and_else_the_user_of_sudo_may_join() {
    require_root!();
    let program = PublicProgram::copy_of(BINARY);
    let socket = program.folder().join("hub.sock");
    let groups = ["-g", &format!("rec:users={NOBODY}"), "-g", "open"];
    let mut command = Command::new(BINARY);
    command.args(["hub", "-i", "sim:1kpps", "--socket"]);
    command.arg(&socket).args(groups).env("SUDO_UID", "1");
    let hub = Running::start(command);
    hub.wait_for_stderr("ringtap: hub of", LIMIT);
    for (uid, group, status) in [
        (NOBODY, "rec", 0),
        (NOBODY, "open", 1),
        (1, "rec", 1),
        (1, "open", 0),
        (2, "open", 1),
    ] {
        let mut command = Command::new(program.path());
        command.args([
            "count",
            "-q",
            "-c",
            "1",
            "-i",
            &format!("hub:{group}"),
            "--socket",
        ]);
        command.arg(&socket).uid(uid).gid(uid);
        let end = Running::start(command).wait(LIMIT);
        let told = format!("{uid} {group}: {}", end.stderr);
        assert_eq!(end.status.code(), Some(status), "{told}");
        assert!(
            status == 0 || end.stderr.contains(&format!("{group}:users={uid}")),
            "{told}"
        );
    }
    hub.interrupt();
    let _end = hub.wait(LIMIT).success();
}
