// SPDX-License-Identifier: MIT OR Apache-2.0
//! Readers in containers, as docs/recipes.md has them.

use std::process::Command;

use ringtap_testkit::{Running, require_tool};

use crate::support::{Account, BINARY, LARGE_POOL, RunningHub};

const PACKETS: u64 = 2_000;

#[test]
fn a_reader_in_other_namespaces_reads_a_hub() {
    require_tool!("setpriv");
    let hub = RunningHub::with("container", LARGE_POOL, &["-g", "rec"]);
    let mut command = Command::new("unshare");
    command.args(["--net", "--ipc", "--uts", "--mount", "--pid", "--fork"]);
    command.args([
        "setpriv",
        "--bounding-set=-all",
        "--inh-caps=-all",
        "--no-new-privs",
    ]);
    command.args([BINARY, "count", "-q", "--json", "-i", &hub.device("rec")]);
    command.args(["-c", &PACKETS.to_string()]);
    let reader = Running::start(command);
    hub.wait_until("the reader attaches", |status| status.readers.len() == 1);
    hub.send(20_000, PACKETS);
    let (account, _end) = Account::of_ended(reader);
    assert_eq!(account.0["delivered"], PACKETS, "{account:?}");
    let _end = hub.finish();
}
