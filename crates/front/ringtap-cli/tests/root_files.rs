// SPDX-License-Identifier: MIT OR Apache-2.0
//! Files that root obeys, creates or gives away, and users that may write around them; needs root.
//!
//! Each attack runs in a mount namespace with a `/run` of its own.

use std::fs;
use std::os::unix::fs::MetadataExt as _;
use std::path::PathBuf;

use ringtap_testkit::{
    Finished, LIMIT, NOBODY, Namespace, PublicProgram, Running, require_root, require_tool,
};
use tempfile::TempDir;

const BINARY: &str = env!("CARGO_BIN_EXE_ringtap");

/// An empty `/run`; `nobody COMMAND` runs as the attacker; `$here` is the network namespace.
const BEGINNING: &str = "
set -eu
mount -t tmpfs -o mode=755 tmpfs /run
nobody() { setpriv --reuid 65534 --regid 65534 --clear-groups \"$@\"; }
here=$(stat -L -c %i /proc/self/ns/net)
";

/// A file of root that no attack may change.
struct Victim {
    _folder: TempDir,
    path: PathBuf,
}

impl Victim {
    fn new() -> Self {
        let folder = TempDir::new().expect("a folder can be made");
        let path = folder.path().join("victim");
        fs::write(&path, "kept").expect("a file can be made");
        Self {
            _folder: folder,
            path,
        }
    }

    fn require_unchanged(&self, end: &Finished) {
        let text = fs::read_to_string(&self.path).expect("it is there");
        assert_eq!(text, "kept", "{}", end.stderr);
        let found = fs::metadata(&self.path).expect("it is there");
        assert_eq!(
            (found.uid(), found.mode() & 0o777),
            (0, 0o644),
            "{}",
            end.stderr
        );
    }
}

/// Runs the script as root in the namespace; `$1` is the program, `$2` the victim.
fn attack(net: &Namespace, victim: &Victim, script: &str) -> Finished {
    let mut command = net.command("sh");
    command.arg("-c").arg(format!("{BEGINNING}{script}"));
    command.args(["sh", BINARY]).arg(&victim.path);
    Running::start(command).wait(LIMIT)
}

#[test]
fn a_file_of_the_hubs_user_makes_root_write_nothing() {
    require_root!();
    require_tool!("ip", "setpriv");
    let net = Namespace::with_veth("files-settings");
    let victim = Victim::new();
    // As systemd makes the folder for a hub with User=.
    let end = attack(
        &net,
        &victim,
        "mkdir /run/ringtap; chown 65534 /run/ringtap; chmod 666 \"$2\"; chmod 644 \"$2\"
        nobody sh -c 'mkdir /run/ringtap/settings
            echo \"{\\\"namespace\\\":$1,\\\"path\\\":\\\"$2\\\",\\\"text\\\":\\\"owned\\\"}\" \\
                >/run/ringtap/settings/4000000' sh \"$here\" \"$2\"
        \"$1\" count -q -i rx0 --duration 0.1",
    );
    let end = end.success();
    victim.require_unchanged(&end);
}

#[test]
fn settings_below_a_folder_of_another_user_are_refused_and_reported() {
    require_root!();
    require_tool!("ip", "setpriv");
    let net = Namespace::with_veth("files-folder");
    let victim = Victim::new();
    let setting = |name: &str, text: &str| {
        format!(
            "echo \"{{\\\"namespace\\\":$here,\\\"setting\\\":{{\\\"name\\\":{{\\\"threaded\\\":\\\"{name}\\\"}},\
             \\\"text\\\":\\\"{text}\\\"}}}}\" >/run/ringtap-root/settings/4000000\n"
        )
    };
    let count = "\"$1\" count -q -i rx0 --duration 0.1; cat /sys/class/net/rx0/threaded\n";
    let make = "mkdir -m 755 /run/ringtap-root; mkdir -m 700 /run/ringtap-root/settings\n";
    let napi = "ethtool -K rx0 gro on\n";
    // The control: root's own file is obeyed.
    let own = format!("{make}{napi}{}{count}", setting("rx0", "1"));
    let end = attack(&net, &victim, &own).success();
    assert!(
        end.stderr.contains("rx0/threaded: restored to 1"),
        "{}",
        end.stderr
    );
    assert_eq!(end.stdout.lines().last(), Some("1"), "{}", end.stderr);
    let back = attack(
        &net,
        &victim,
        &format!("{make}{}{count}", setting("rx0", "0")),
    )
    .success();
    assert_eq!(back.stdout.lines().last(), Some("0"), "{}", back.stderr);
    for (change, says) in [
        (
            "chown 65534 /run/ringtap-root",
            "/run/ringtap-root: belongs to user 65534",
        ),
        (
            "chown 65534 /run/ringtap-root/settings",
            "settings: belongs to user 65534",
        ),
        (
            "chmod 777 /run/ringtap-root/settings",
            "settings: others may write it (mode 777)",
        ),
        (
            "chown 65534 /run/ringtap-root/settings/*",
            "settings/4000000: belongs to user 65534",
        ),
        (
            "chmod 666 /run/ringtap-root/settings/*",
            "settings/4000000: others may write it",
        ),
    ] {
        let script = format!("{make}{}{change}\n{count}", setting("rx0", "1"));
        let end = attack(&net, &victim, &script).success();
        assert!(end.stderr.contains(says), "{change}: {}", end.stderr);
        assert_eq!(
            end.stdout.lines().last(),
            Some("0"),
            "{change}: {}",
            end.stderr
        );
    }
    // A link, and a name that leads elsewhere.
    let up = "../../../../../../../$2";
    let outside = format!("{make}{}{count}", setting(up, "1"));
    let end = attack(&net, &victim, &outside).success();
    assert!(
        end.stderr.contains("1 lines are no settings"),
        "{}",
        end.stderr
    );
    victim.require_unchanged(&end);
    let link = format!("{make}ln -s \"$2\" /run/ringtap-root/settings/4000000\n{count}");
    let end = attack(&net, &victim, &link).success();
    assert!(
        end.stderr.contains("no setting is restored from there"),
        "{}",
        end.stderr
    );
    victim.require_unchanged(&end);
}

#[test]
fn doctor_restores_by_its_own_commands_from_roots_own_file_only() {
    require_root!();
    require_tool!("ip", "sysctl");
    let net = Namespace::with_veth("files-doctor");
    let victim = Victim::new();
    let file = |command: &str| {
        format!(
            "mkdir -m 755 /run/ringtap-root; sysctl -qw net.ipv4.ip_forward=0
            echo \"{{\\\"namespace\\\":$here,\\\"command\\\":[{command}]}}\" >/run/ringtap-root/doctor\n"
        )
    };
    let restore = "\"$1\" doctor --restore || true; cat /proc/sys/net/ipv4/ip_forward\n";
    let foreign = file("\\\"sysctl\\\",\\\"-w\\\",\\\"net.ipv4.ip_forward=1\\\"");
    let end = attack(&net, &victim, &format!("{foreign}{restore}")).success();
    assert!(
        end.stderr.contains("not a command that restores"),
        "{}",
        end.stderr
    );
    assert_eq!(end.stdout.lines().last(), Some("0"), "{}", end.stdout);
    let usual = file("\\\"ethtool\\\",\\\"-K\\\",\\\"rx0\\\",\\\"lro\\\",\\\"off\\\"");
    let end = attack(&net, &victim, &format!("{usual}{restore}")).success();
    assert!(
        end.stdout.contains("+ ethtool -K rx0 lro off"),
        "{}",
        end.stdout
    );
    for change in ["chown 65534", "chmod 666"] {
        let script = format!("{usual}{change} /run/ringtap-root/doctor\n{restore}");
        let end = attack(&net, &victim, &script).success();
        assert!(
            end.stderr.contains("/run/ringtap-root/doctor: "),
            "{}",
            end.stderr
        );
        assert!(!end.stdout.contains("+ ethtool"), "{}", end.stdout);
    }
}

#[test]
fn a_probe_for_a_user_gives_away_nothing_behind_a_link() {
    require_root!();
    require_tool!("ip", "setpriv");
    let net = Namespace::with_veth("files-probe");
    let victim = Victim::new();
    let probe = "timeout -s INT 1 \"$1\" probe -i packet:rx0 -Z nobody || true\n";
    // In the folder of the hub's user, and where root should never let anybody.
    for folder in ["ringtap", "ringtap-root"] {
        let plant = format!(
            "mkdir /run/{folder}; chown 65534 /run/{folder}
            nobody ln -s \"$2\" /run/{folder}/probe-65534\n"
        );
        let end = attack(&net, &victim, &format!("{plant}{probe}")).success();
        victim.require_unchanged(&end);
        assert!(
            end.stderr.contains("ringtap: probe of"),
            "it runs: {}",
            end.stderr
        );
    }
    let end = attack(
        &net,
        &victim,
        &format!("{probe}stat -c %u /run/ringtap-root/probe-65534"),
    )
    .success();
    assert_eq!(
        end.stdout.lines().last(),
        Some("65534"),
        "the control: {}",
        end.stderr
    );
}

/// Puts a link to the victim (`$2`) in the place of each new file in the folder `$1`.
const SWAPS: &str = "
import os, sys
folder, victim = sys.argv[1:]
done = open(folder + '/ready', 'w')
while True:
    for name in os.listdir(folder):
        path = folder + '/' + name
        if name == 'ready' or os.path.islink(path) or name.endswith('.gone'):
            continue
        try:
            os.rename(path, path + '.gone')
            os.symlink(victim, path)
        except OSError:
            pass
";

#[test]
fn whatever_a_user_swaps_in_its_folder_root_gives_it_no_file() {
    require_root!();
    require_tool!("ip", "strace", "python3");
    let net = Namespace::with_veth("files-race");
    let victim = Victim::new();
    let public = PublicProgram::copy_of("/bin/true");
    let folder = public.folder().join("own");
    fs::create_dir(&folder).expect("a folder");
    std::os::unix::fs::chown(&folder, Some(NOBODY), Some(NOBODY)).expect("root may");
    let mut swaps = std::process::Command::new("python3");
    swaps.args(["-c", SWAPS]).arg(&folder).arg(&victim.path);
    std::os::unix::process::CommandExt::uid(&mut swaps, NOBODY);
    let swaps = Running::start(swaps);
    let deadline = std::time::Instant::now() + LIMIT;
    while !folder.join("ready").exists() {
        assert!(std::time::Instant::now() < deadline, "the attacker starts");
        std::thread::sleep(std::time::Duration::from_millis(10));
    }
    // Time for the attacker after each call that a folder or a file's owner and mode depend on.
    let delays = "bind,mkdir,mkdirat,chmod,fchmodat,?fchmodat2,chown,lchown,fchownat,rename,renameat,renameat2";
    let inject = format!("inject={delays}:delay_exit=100000");
    let program = format!(
        "timeout -s INT 20 strace -f -qq -o /dev/null -e trace={delays} -e {inject} \"$1\" \
         probe -i packet:rx0 --duration 1 -Z nobody --control"
    );
    let script = format!("{program} {}/ctl || true\n", folder.display());
    let end = attack(&net, &victim, &script).success();
    swaps.signal(rustix::process::Signal::TERM);
    let _ended = swaps.wait(LIMIT);
    victim.require_unchanged(&end);
    let swapped = fs::read_dir(&folder).expect("a folder").count();
    assert!(
        swapped > 1,
        "the attacker swapped something: {}",
        end.stderr
    );
}

#[test]
fn an_agent_writes_no_file_in_a_folder_of_another_user() {
    require_root!();
    require_tool!("ip", "setpriv");
    let net = Namespace::with_veth("files-agent");
    let victim = Victim::new();
    let agent = "timeout -s INT 1 \"$1\" guest --folder /run/own || true\n";
    let plant = "mkdir /run/own; chown 65534 /run/own
        nobody ln -s \"$2\" /run/own/.status.new; nobody ln -s \"$2\" /run/own/status\n";
    let end = attack(&net, &victim, &format!("{plant}{agent}")).success();
    victim.require_unchanged(&end);
    let says = "/run/own: belongs to user 65534";
    assert!(end.stderr.contains(says), "{}", end.stderr);
    let control = attack(&net, &victim, &format!("mkdir /run/own\n{agent}")).success();
    let says = "serving the host's groups in /run/own";
    assert!(control.stderr.contains(says), "{}", control.stderr);
}

#[test]
fn a_recorder_of_root_follows_no_link_in_a_folder_that_others_can_write() {
    require_root!();
    require_tool!("ip", "setpriv");
    let net = Namespace::with_veth("files-record");
    let victim = Victim::new();
    let record = |file: &str| {
        format!("\"$1\" record -q -i packet:rx0 --duration 0.1 -w {file} || echo refused\n")
    };
    let plant = "mkdir /run/own; ln -s \"$2\" /run/own/x\n";
    for owner in ["chown 65534 /run/own", "chmod 777 /run/own"] {
        let script = format!("{plant}{owner}\n{}", record("/run/own/x"));
        let end = attack(&net, &victim, &script).success();
        victim.require_unchanged(&end);
        assert!(end.stdout.contains("refused"), "{owner}: {}", end.stderr);
        let says = "root does not follow it";
        assert!(end.stderr.contains(says), "{owner}: {}", end.stderr);
    }
    let own = format!(
        "mkdir /run/own; ln -s /run/target /run/own/x\n{}test -s /run/target",
        record("/run/own/x")
    );
    let _followed = attack(&net, &victim, &own).success();
}
