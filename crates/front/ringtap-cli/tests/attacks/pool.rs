// SPDX-License-Identifier: MIT OR Apache-2.0
//! Who can write the pool of a tap: every way that an ordinary process has, tried.

use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt as _;

use ringtap_testkit::{LIMIT, Namespace, Running, require_root, require_tool};
use serde_json::Value;
use tempfile::TempDir;

use crate::{BINARY, project};

const CONFIG: &str = "
[[source]]
device = \"DEVICE\"
[[group]]
name = \"all\"
users = [\"nobody\"]
";

/// A hub whose group `all` admits nobody.
struct OpenHub {
    _net: Namespace,
    hub: Running,
    folder: TempDir,
}

impl OpenHub {
    fn of(test: &str, device: &str) -> Self {
        let net = Namespace::with_veth(test);
        let folder = TempDir::new().expect("a folder can be made");
        fs::set_permissions(folder.path(), Permissions::from_mode(0o755)).expect("our folder");
        let config = folder.path().join("hub.toml");
        fs::write(&config, CONFIG.replace("DEVICE", device)).expect("our folder");
        let mut command = net.command(BINARY);
        command.args(["hub", "-c"]).arg(&config);
        command.arg("--socket").arg(folder.path().join("hub.sock"));
        let hub = Running::start(command);
        hub.wait_for_stderr("ringtap: hub of", LIMIT);
        OpenHub {
            _net: net,
            hub,
            folder,
        }
    }

    /// Tries every way to write the pool, in a process with these rights.
    fn attempts(&self, rights: &[&str]) -> Attempts {
        let mut command = std::process::Command::new(project!("scripts/checks"));
        command.arg("attack.pool").args(rights);
        command
            .arg("--socket")
            .arg(self.folder.path().join("hub.sock"));
        let end = Running::start(command).wait(LIMIT).success();
        Attempts(serde_json::from_str(&end.stdout).expect("one object"))
    }

    fn finish(self) {
        self.hub.interrupt();
        let _balanced = self.hub.wait(LIMIT).success();
    }
}

/// What came of each way.
struct Attempts(Value);

impl Attempts {
    fn of(&self, way: &str) -> &str {
        let outcome = &self.0["ways"][way];
        outcome.as_str().unwrap_or_else(|| panic!("{way}: {self}"))
    }

    /// Requires that each way but these was refused.
    fn all_refused_but(&self, others: &[&str]) {
        let ways = self.0["ways"].as_object().expect("an object");
        assert!(ways.len() >= 9, "{self}");
        for (way, outcome) in ways {
            let refused = outcome
                .as_str()
                .is_some_and(|text| text.starts_with("refused"));
            assert!(refused || others.contains(&way.as_str()), "{way}: {self}");
        }
    }

    fn is_private(&self) -> bool {
        self.0["notes"].to_string().contains("private delivery")
    }
}

impl std::fmt::Display for Attempts {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.0.fmt(f)
    }
}

/// Whether the kernel lets every process load BPF programs.
fn everybody_may_load() -> bool {
    let setting = fs::read_to_string("/proc/sys/kernel/unprivileged_bpf_disabled");
    !matches!(setting.as_deref().map(str::trim), Ok("1" | "2"))
}

#[test]
fn no_ordinary_user_can_write_the_pool_of_a_tap() {
    require_root!();
    require_tool!("python3");
    let hub = OpenHub::of("pool-nobody", "tap:rx0?exclusive&pool=8MiB");
    let attempts = hub.attempts(&["--user", "nobody"]);
    attempts.all_refused_but(&[]);
    assert_eq!(attempts.is_private(), everybody_may_load(), "{attempts}");
    hub.finish();
}

/// The program is the one that writes the pool for root: it works, and the hub gives the pool
/// to no process that may load it.
#[test]
fn a_reader_with_cap_bpf_gets_copies_and_cannot_write_the_pool_by_a_program() {
    require_root!();
    require_tool!("python3");
    let hub = OpenHub::of("pool-bpf", "tap:rx0?exclusive&pool=8MiB");
    let attempts = hub.attempts(&["--user", "nobody", "--bpf"]);
    attempts.all_refused_but(&[]);
    assert!(attempts.is_private(), "{attempts}");
    let roots = hub.attempts(&[]);
    assert_eq!(roots.of("by_program"), "written", "{roots}");
    assert!(!roots.is_private(), "{roots}");
    hub.finish();
}

#[test]
fn not_even_root_can_write_a_pool_in_a_sealed_memfd() {
    require_root!();
    require_tool!("python3");
    let hub = OpenHub::of("pool-memfd", "packet:rx0?pool=8MiB");
    hub.attempts(&[]).all_refused_but(&[]);
    let attempts = hub.attempts(&["--user", "nobody", "--bpf"]);
    attempts.all_refused_but(&[]);
    assert!(!attempts.is_private(), "{attempts}");
    hub.finish();
}
