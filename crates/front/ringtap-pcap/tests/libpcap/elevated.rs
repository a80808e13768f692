// SPDX-License-Identifier: MIT OR Apache-2.0
//! Programs with more rights than their user, and hubs that lie in texts.

use std::fs::{self, Permissions};
use std::os::unix::fs::{PermissionsExt as _, chown};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::thread;
use std::time::Duration;

use ringtap_ipc::protocol::{Refusal, Refused, Reply, encode};
use ringtap_ipc::socket::Listener;
use ringtap_ipc::transport::{MAX_BYTES, Transport as _};
use ringtap_testkit::{Finished, LIMIT, NOBODY, Namespace, Running, require_root, require_tool};
use tempfile::TempDir;

use crate::support::{crate_folder, library};

/// A user that is neither root nor the caller.
const DAEMON: u32 = 1;
/// Escape codes that change a terminal's title, clear it, and turn texts around.
const HOSTILE: &str = "\u{1b}]0;owned\u{7}\u{1b}[2J\u{9b}2J\u{202e}\r owned";

/// A folder that every user may enter, with the program and the library.
struct Elevated {
    folder: TempDir,
    net: Namespace,
    connections: Arc<AtomicUsize>,
}

impl Elevated {
    fn new(name: &str) -> Self {
        let folder = TempDir::new().expect("a folder");
        let path = |name: &str| folder.path().join(name);
        fs::set_permissions(folder.path(), Permissions::from_mode(0o755)).expect("ours");
        for name in ["libpcap.so.1", "libpcap.so.0.8", "libpcap.so"] {
            let copied = fs::copy(library(), path(name)).expect("the library");
            assert!(copied > 0);
        }
        let source = crate_folder().join("tests/libpcap/c/elevated.c");
        let built = Command::new("cc")
            .arg("-o")
            .args([path("program"), source])
            .arg(format!("-Wl,-rpath,{0}", folder.path().display()))
            .arg(path("libpcap.so.1"))
            .output()
            .expect("a C compiler is installed");
        assert!(built.status.success(), "{built:?}");
        let elevated = Elevated {
            folder,
            net: Namespace::new(name),
            connections: Arc::default(),
        };
        elevated.set_owner(0, 0o755);
        elevated
    }

    /// Who owns the program, and whether it runs as its owner.
    fn set_owner(&self, owner: u32, mode: u32) {
        let program = self.folder.path().join("program");
        chown(&program, Some(owner), None).expect("root may");
        fs::set_permissions(&program, Permissions::from_mode(mode)).expect("root may");
    }

    /// A hub of the caller, which refuses everybody with escape codes.
    fn hostile_hub(&self, name: &str) -> PathBuf {
        let path = self.folder.path().join(name);
        let listener = Listener::bind(&path).expect("a socket");
        let connections = Arc::clone(&self.connections);
        thread::spawn(move || {
            loop {
                if let Ok(Some(socket)) = listener.accept() {
                    connections.fetch_add(1, Relaxed);
                    let refused = Refused::new(Refusal::Failed, HOSTILE);
                    let _left = socket.send(&encode(&Reply::Refused(refused)), &[]);
                    let _request = socket.receive(&mut vec![0; MAX_BYTES]);
                }
                thread::sleep(Duration::from_millis(1));
            }
        });
        path
    }

    /// Runs the program as nobody, with an empty `/run`, and this variable.
    fn run(&self, variable: &str, value: &Path) -> (Finished, usize) {
        let before = self.connections.load(Relaxed);
        let script = format!(
            "mount -t tmpfs -o mode=755 tmpfs /run; exec setpriv --reuid {NOBODY} --regid {NOBODY} \
             --clear-groups env {variable}={} RINGTAP_QUIET=1 {}/program",
            value.display(),
            self.folder.path().display()
        );
        let mut command = self.net.command("sh");
        command.args(["-c", &script]);
        let end = Running::start(command).wait(LIMIT);
        (end, self.connections.load(Relaxed) - before)
    }
}

#[test]
fn a_set_user_id_program_connects_to_no_hub_of_its_callers_choice() {
    require_root!();
    require_tool!("ip", "setpriv", "cc");
    let elevated = Elevated::new("pcap_elevated");
    let named = elevated.hostile_hub("any.sock");
    let _usual = elevated.hostile_hub("ringtap.sock");
    for (variable, value) in [
        ("RINGTAP_SOCKET", named.as_path()),
        ("XDG_RUNTIME_DIR", elevated.folder.path()),
    ] {
        // The control: without more rights, the caller chooses.
        elevated.set_owner(0, 0o755);
        let (end, connections) = elevated.run(variable, value);
        assert!(connections > 0, "{variable}: {} {}", end.stdout, end.stderr);
        assert!(end.stdout.contains("owned"), "{variable}: {}", end.stdout);
        for owner in [0, DAEMON] {
            elevated.set_owner(owner, 0o4755);
            let (end, connections) = elevated.run(variable, value);
            assert_eq!(connections, 0, "{variable} {owner}: {}", end.stdout);
            let says = "/run/ringtap/hub.sock: no hub is running there";
            assert!(end.stdout.contains(says), "{variable}: {}", end.stdout);
        }
    }
}

#[test]
fn no_escape_code_of_a_hub_reaches_the_programs_error() {
    require_root!();
    require_tool!("ip", "setpriv", "cc");
    let elevated = Elevated::new("pcap_escapes");
    let socket = elevated.hostile_hub("any.sock");
    let (end, connections) = elevated.run("RINGTAP_SOCKET", &socket);
    assert!(
        connections > 0 && end.stdout.contains("]0;owned"),
        "{}",
        end.stdout
    );
    let hostile = |c: &char| (c.is_control() && *c != '\n') || *c == '\u{202e}';
    assert_eq!(end.stdout.chars().find(hostile), None, "{:?}", end.stdout);
}
