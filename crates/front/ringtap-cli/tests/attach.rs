// SPDX-License-Identifier: MIT OR Apache-2.0
//! `ringtap vm` refuses what cannot work, each in a sentence and with a status of its own.
#![allow(clippy::unwrap_used, reason = "in a test a panic is the report")]

use std::io::{ErrorKind, Read as _, Write as _};
use std::os::unix::net::UnixListener;
use std::path::Path;
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};

use ringtap_testkit::{Finished, LIMIT, Namespace, Running, require_root};
use ringtap_vm::host::{StatusServer, VmReport};
use tempfile::TempDir;

const BINARY: &str = env!("CARGO_BIN_EXE_ringtap");

/// A hub with the group `ids`, and a folder.
struct Setup {
    _net: Namespace,
    _hub: Running,
    folder: TempDir,
}

impl Setup {
    fn new(test: &str) -> Self {
        let (net, folder) = (Namespace::with_veth(test), TempDir::new().unwrap());
        let mut command = net.command(BINARY);
        command.args(["hub", "-i", "packet:rx0", "-g", "ids", "--socket"]);
        command.arg(folder.path().join("hub.sock"));
        let hub = Running::start(command);
        hub.wait_for_stderr("ringtap: hub of", LIMIT);
        Setup {
            _net: net,
            _hub: hub,
            folder,
        }
    }

    fn path(&self, name: &str) -> String {
        self.folder.path().join(name).display().to_string()
    }

    fn vm(&self, args: &[&str]) -> Finished {
        let mut command = Command::new(BINARY);
        command
            .args(["vm", "--folder", &self.path("vms")])
            .args(args);
        Running::start(command).wait(LIMIT)
    }

    fn attach(&self, args: &[&str]) -> Finished {
        self.attach_by("qmp", args)
    }

    fn attach_by(&self, qmp: &str, args: &[&str]) -> Finished {
        let (hub, qmp) = (self.path("hub.sock"), self.path(qmp));
        let all = ["attach", "--socket", &hub, "--qmp", &qmp, "-g", "ids"];
        self.vm(&[&all, args].concat())
    }

    /// Plays the process of an attached VM; returns whether it was asked to detach.
    fn play_attached(&self, name: &str, qmp: Option<&str>) -> (StatusServer, Arc<AtomicBool>) {
        let server = StatusServer::bind(Path::new(&self.path("vms")), name).unwrap();
        let report = VmReport {
            kind: "vm".to_owned(),
            name: name.to_owned(),
            pid: 4711,
            qmp: qmp.map(|qmp| self.path(qmp).into()),
            hub: self.path("hub.sock").into(),
            agent: false,
            devices: Vec::new(),
            groups: Vec::new(),
            refused_messages: 0,
            lost_answers: 0,
            advice: Vec::new(),
        };
        let detached = Arc::new(AtomicBool::new(false));
        let detach = Arc::clone(&detached);
        let served = server.start(move || report.clone(), move || detach.store(true, SeqCst));
        served.unwrap();
        (server, detached)
    }

    /// What attaching yields to a QMP socket that greets so.
    fn attach_to(&self, greeting: &'static str) -> Finished {
        let listener = UnixListener::bind(self.path("qmp")).unwrap();
        let server = std::thread::spawn(move || {
            let (mut socket, _) = listener.accept().unwrap();
            socket.write_all(greeting.as_bytes()).unwrap();
        });
        let end = self.attach(&[]);
        server.join().unwrap();
        std::fs::remove_file(self.path("qmp")).unwrap();
        end
    }
}

fn assert_refusal(end: &Finished, status: i32, text: &str) {
    let shown = format!("{} {}", end.status, end.stderr);
    assert_eq!(end.status.code(), Some(status), "{shown}");
    assert!(end.stderr.contains(text), "{shown}");
}

#[test]
fn what_the_hub_cannot_give_is_refused_before_qemu_is_asked() {
    require_root!();
    let setup = Setup::new("vm_refusals");
    let listener = UnixListener::bind(setup.path("qmp")).unwrap();
    assert_refusal(
        &setup.attach(&["-g", "none"]),
        1,
        "no group none: it has ids",
    );
    assert_refusal(&setup.attach(&["-g", "ids"]), 1, "given twice");
    assert_refusal(
        &setup.attach(&["--memory", "48MiB"]),
        1,
        "use 32MiB or 64MiB",
    );
    assert_refusal(&setup.attach(&["--memory", "1MiB"]), 1, "too few");
    let elsewhere = setup.attach(&["--socket", "/nowhere.sock"]);
    assert_refusal(&elsewhere, 2, "cannot be used multiple times");
    assert_refusal(&setup.attach(&["--name", "a/b"]), 2, "no name");
    let both = setup.attach(&["--libvirt", "vm1"]);
    assert_refusal(&both, 2, "cannot be used with");
    let file = setup.path("hub.toml");
    let vm = format!("[[vm]]\nname = \"vm1\"\nqmp = \"{}\"\n", setup.path("qmp"));
    std::fs::write(&file, format!("{vm}groups = [\"other\"]\n")).unwrap();
    let attach = |name| {
        let hub = setup.path("hub.sock");
        let all = ["attach", "--socket", &hub, "-c", &file, "--name", name];
        setup.vm(&all)
    };
    assert_refusal(&attach("vm1"), 1, "no group other: it has ids");
    assert_refusal(&attach("vm2"), 1, "no [[vm]] vm2");
    listener.set_nonblocking(true).unwrap();
    let asked = listener.accept();
    assert_eq!(asked.unwrap_err().kind(), ErrorKind::WouldBlock);
    let left = std::fs::read_dir(setup.path("vms")).unwrap().count();
    assert_eq!(left, 0, "no refused VM leaves a socket");
}

#[test]
fn sockets_of_no_usable_qemu_have_a_status_of_their_own() {
    require_root!();
    let setup = Setup::new("vm_sockets");
    assert_refusal(&setup.attach(&[]), 10, "is QEMU running");
    assert_refusal(&setup.attach_to("SSH-2.0\n"), 11, "does not speak QMP");
    assert_refusal(&setup.attach_by("hub.sock", &[]), 11, "does not speak QMP");
    let end = setup.vm(&["detach", "vm1"]);
    assert_refusal(&end, 1, "no VM vm1 is attached");
    let list = setup.vm(&["list", "--json"]).success();
    assert_eq!(list.stdout, "");
    assert!(!Path::new(&setup.path("vms/vm1.sock")).exists());
}

#[test]
fn a_qmp_socket_in_use_is_told_soon_and_by_whom_it_is_used() {
    require_root!();
    let setup = Setup::new("vm_busy");
    let (_server, detached) = setup.play_attached("appliance", Some("qmp"));
    let listener = UnixListener::bind(setup.path("qmp")).unwrap();
    let server = std::thread::spawn(move || {
        let (mut socket, _) = listener.accept().unwrap();
        // A program that waits for the limit of QEMU's answers is here after this time.
        let patience = std::time::Duration::from_secs(20);
        socket.set_read_timeout(Some(patience)).unwrap();
        socket.read(&mut [0])
    });
    let end = setup.attach(&[]);
    assert_refusal(&end, 11, "another program uses this QMP socket");
    assert_refusal(&end, 11, "attached as appliance by process 4711");
    let read = server.join().unwrap();
    assert_eq!(read.expect("it leaves before"), 0);
    assert!(!detached.load(SeqCst));
}

#[test]
fn a_domain_of_libvirt_that_ringtap_cannot_migrate_stays_attached() {
    require_root!();
    let setup = Setup::new("vm_libvirt_out");
    let (_server, detached) = setup.play_attached("appliance", None);
    let end = setup.vm(&["migrate-out", "appliance", "--to", "tcp:there:4444"]);
    assert_refusal(&end, 1, "virsh migrate");
    assert!(!detached.load(SeqCst));
    let end = setup.vm(&["migrate-out", "other", "--to", "tcp:there:4444"]);
    assert_refusal(&end, 1, "no VM other is attached");
}
