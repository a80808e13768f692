// SPDX-License-Identifier: MIT OR Apache-2.0
//! A domain of libvirt for tests, whose daemon and QEMU belong to an ordinary user and run in a PID
//! namespace of their own, with which they end.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal};
use tempfile::TempDir;

use crate::machine::{file_in, initial_files, kernel_folder};
use crate::{GUEST_LIMIT, GUEST_STARTED, Running, say_skipped, tool_exists};

/// Name of the domain.
pub const DOMAIN: &str = "appliance";
const USER: &str = "65534";

/// A running domain; killed with its daemon when dropped.
#[derive(Debug)]
pub struct LibvirtDomain {
    /// A program that prints the serial console.
    pub console: Running,
    /// The daemon's address for `virsh`.
    pub uri: String,
    _daemon: Running,
    folder: TempDir,
}

impl LibvirtDomain {
    /// Boots a domain with these files (path in the guest, file of this machine), one of which is `init`.
    /// `None`, with a line that says why, where that cannot be done.
    ///
    /// # Panics
    ///
    /// When the guest does not start. A guest whose kernel panics is started again by libvirt.
    #[must_use]
    pub fn boot(files: &[(&str, &Path)]) -> Option<Self> {
        let tools = ["virsh", "libvirtd", "qemu-system-x86_64", "setpriv", "tail"];
        if let Some(missing) = tools.into_iter().find(|tool| !tool_exists(tool)) {
            say_skipped(&format!("needs {missing}"));
            return None;
        }
        let Some(kernel) = kernel_folder() else {
            say_skipped("needs a guest kernel: scripts/prepare test downloads it");
            return None;
        };
        let folder = TempDir::new().expect("a folder can be made");
        let path = |name: &str| folder.path().join(name);
        for name in ["run", "cache", "config/libvirt"] {
            fs::create_dir_all(path(name)).expect("a folder can be made");
        }
        let write = |name: &str, bytes: &[u8]| {
            fs::write(path(name), bytes).expect("there is room");
        };
        write("image", &initial_files(&kernel, files));
        // The user may not read the folder of root.
        let kernel = fs::read(file_in(&kernel.join("boot"), "vmlinuz")).expect("a kernel");
        write("kernel", &kernel);
        write("console", b"");
        write("config/libvirt/qemu.conf", b"stdio_handler = \"file\"\n");
        write("domain.xml", description(folder.path()).as_bytes());
        let mut chown = Command::new("chown");
        let owned = chown.args(["-R", USER]).arg(folder.path()).status();
        assert!(owned.expect("chown starts").success());
        let mut daemon = start_daemon(folder.path());
        let socket = path("run/libvirt/libvirt-sock");
        let deadline = Instant::now() + GUEST_LIMIT;
        while !socket.exists() {
            if !daemon.is_running() {
                say_skipped(&format!("libvirtd does not run here: {}", daemon.stderr()));
                return None;
            }
            let is_early = Instant::now() < deadline;
            assert!(is_early, "no libvirtd: {}", daemon.stderr());
            std::thread::sleep(Duration::from_millis(20));
        }
        let uri = format!("qemu+unix:///session?socket={}", socket.display());
        let mut create = Command::new("virsh");
        create.args(["-c", &uri, "create"]).arg(path("domain.xml"));
        let created = Running::start(create).wait(GUEST_LIMIT);
        if !created.status.success() {
            say_skipped(&format!("libvirt starts no domain: {}", created.stderr));
            return None;
        }
        let mut console = Command::new("tail");
        console.args(["-n", "+1", "-f"]).arg(path("console"));
        let console = Running::start(console);
        console.wait_for_stdout(GUEST_STARTED, GUEST_LIMIT);
        Some(LibvirtDomain {
            console,
            uri,
            _daemon: daemon,
            folder,
        })
    }

    /// Ends the daemon, which is started again some seconds later.
    ///
    /// # Panics
    ///
    /// If there is no daemon.
    pub fn restart_daemon(&self) {
        let home = format!("HOME={}", self.folder.path().display());
        let entries = fs::read_dir("/proc").expect("there is /proc");
        let processes = entries.filter_map(|entry| Some(entry.ok()?.path()));
        let is_daemon = |process: &PathBuf| {
            let name = fs::read_to_string(process.join("comm")).unwrap_or_default();
            let environment = fs::read(process.join("environ")).unwrap_or_default();
            name.trim() == "libvirtd" && String::from_utf8_lossy(&environment).contains(&home)
        };
        let mut daemons = processes.filter(is_daemon);
        let process = daemons.next().expect("the daemon runs");
        let number = process
            .file_name()
            .and_then(|name| name.to_str()?.parse().ok());
        let pid = number.and_then(Pid::from_raw).expect("a process");
        rustix::process::kill_process(pid, Signal::TERM).expect("it has not ended");
        while is_daemon(&process) {
            std::thread::sleep(Duration::from_millis(10));
        }
    }
}

/// Starts the daemon of a user's session, again when it ends.
fn start_daemon(folder: &Path) -> Running {
    let mut command = Command::new("unshare");
    command.args("--pid --fork --kill-child --mount-proc setpriv --clear-groups".split(' '));
    command.args(["--reuid", USER, "--regid", USER, "--pdeathsig", "KILL"]);
    // A daemon that does not start ends with a failure.
    let forever = "while libvirtd; do sleep 3; done";
    command.args(["sh", "-c", forever]).env("HOME", folder);
    for (name, place) in [
        ("XDG_RUNTIME_DIR", "run"),
        ("XDG_CACHE_HOME", "cache"),
        ("XDG_CONFIG_HOME", "config"),
    ] {
        command.env(name, folder.join(place));
    }
    Running::start(command)
}

/// The domain, with four free ports for hot-plug.
fn description(folder: &Path) -> String {
    let folder = folder.display();
    let port = "<controller type='pci' model='pcie-root-port'/>";
    format!(
        "<domain type='qemu' xmlns:qemu='http://libvirt.org/schemas/domain/qemu/1.0'>
          <name>{DOMAIN}</name><memory unit='MiB'>512</memory><vcpu>2</vcpu>
          <os><type arch='x86_64' machine='q35'>hvm</type>
            <kernel>{folder}/kernel</kernel><initrd>{folder}/image</initrd>
            <cmdline>console=ttyS0 quiet panic=-1 no_timer_check</cmdline></os>
          <features><acpi/></features>
          <devices>
            <controller type='pci' model='pcie-root'/>{port}{port}{port}{port}
            <controller type='usb' model='none'/><memballoon model='none'/>
            <serial type='file'><source path='{folder}/console'/><target port='0'/></serial>
          </devices>
          <qemu:commandline>
            <qemu:arg value='-global'/><qemu:arg value='pcie-root-port.pref64-reserve=64M'/>
          </qemu:commandline>
        </domain>"
    )
}
