// SPDX-License-Identifier: MIT OR Apache-2.0
//! A second capture of an interface that a hub captures already.

use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt as _;
use std::os::unix::process::CommandExt as _;

use ringtap_testkit::{Running, require_root, require_tool};

use crate::support::{Account, BINARY, LIMIT, RunningHub};

/// A user without rights that the hub admits, and one that it does not.
const ALICE: u32 = 3001;
const MALLORY: u32 = 3003;

/// `ringtap count` of the interface, as a user types it.
fn count(hub: &RunningHub, user: u32) -> Running {
    let mut command = hub.net.command("setpriv");
    let user = user.to_string();
    command.args(["--reuid", &user, "--regid", &user, "--clear-groups", BINARY]);
    command.args(["count", "-q", "--json", "-i", "rx0"]);
    command.env("RINGTAP_SOCKET", &hub.socket).process_group(0);
    Running::start(command)
}

#[test]
fn a_plain_interface_is_read_through_the_hub_that_captures_it() {
    require_root!();
    require_tool!("setpriv");
    let args = ["-g", "all:users=3001"];
    let hub = RunningHub::with("beside", "tap:rx0?exclusive&direction=in", &args);
    fs::set_permissions(hub.path(""), Permissions::from_mode(0o755)).expect("it is ours");
    let readers = [0, ALICE].map(|user| count(&hub, user));
    hub.wait_until("both read the group", |status| status.readers.len() == 2);
    let sent = hub.send(5_000, 1_000);
    hub.wait_until("both have all packets", |status| {
        status
            .readers
            .iter()
            .all(|one| one.counters.delivered >= sent)
    });
    for reader in readers {
        reader.wait_for_stderr("rx0 is read through hub:all, which captures it", LIMIT);
        let (account, _) = Account::of(reader);
        assert_eq!(account.0["delivered"], sent, "{account:?}");
    }
    let refused = count(&hub, MALLORY).wait(LIMIT);
    assert_eq!(refused.status.code(), Some(1), "{}", refused.stderr);
    let advice = "a hub runs here, which may capture rx0: user 3003 may not see this hub: join";
    assert!(refused.stderr.contains(advice), "{}", refused.stderr);
    assert!(
        !refused.stderr.contains("no process holds it"),
        "{}",
        refused.stderr
    );
    let _end = hub.finish();
}

#[test]
fn a_hub_whose_groups_do_not_fit_is_named_instead() {
    require_root!();
    require_tool!("setpriv");
    let args = [
        "-g",
        "ids:4:flow:users=3001",
        "-g",
        "web:users=3001:tcp port 80",
    ];
    let hub = RunningHub::with("beside-named", "tap:rx0?exclusive&direction=in", &args);
    fs::set_permissions(hub.path(""), Permissions::from_mode(0o755)).expect("it is ours");
    for user in [0, ALICE] {
        let refused = count(&hub, user).wait(LIMIT);
        assert_eq!(refused.status.code(), Some(1), "{}", refused.stderr);
        let advice = "a hub captures rx0: read -i hub:ids, -i hub:web (tcp port 80)";
        assert!(refused.stderr.contains(advice), "{}", refused.stderr);
        assert!(
            !refused.stderr.contains("no process holds it"),
            "{}",
            refused.stderr
        );
    }
    let _end = hub.finish();
}
