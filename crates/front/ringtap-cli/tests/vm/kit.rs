// SPDX-License-Identifier: MIT OR Apache-2.0
//! A hub on a veth pair, and a virtual machine with Ringtap, a shell and tcpdump.

use std::cell::Cell;
use std::collections::BTreeSet;
use std::ffi::OsStr;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Instant;

use ringtap_client::Connection;
use ringtap_ipc::protocol::HubStatus;
use ringtap_testkit::{GUEST_LIMIT, Namespace, Running, VirtualMachine, say_skipped, tool_exists};
use rustix::process::Signal;
use tempfile::TempDir;

pub(crate) const BINARY: &str = env!("CARGO_BIN_EXE_ringtap");
/// The device of a hub.
const FIRST: &str = "tap:rx0?direction=in";
/// Why a test ends early.
pub(crate) const HANGS: &str = "the emulated guest's kernel did not come back from an unplug";
/// Runs a program as an ordinary user that the agent lets read.
pub(crate) const NOBODY: &str = "setpriv --reuid 65534 --regid 65534 --clear-groups";
/// Programs of this machine that the guest gets beside Ringtap.
const TOOLS: [&str; 8] = [
    "sh", "mount", "insmod", "setpriv", "sleep", "cat", "mkdir", "tcpdump",
];

/// The guest's first program. `gate PORT` waits for a packet to this port, `readers N` for N readers.
const INIT: &str = r#"#!/bin/sh
export PATH=/bin
mkdir -p /proc /sys /dev /run /tmp
mount -t proc proc /proc
mount -t sysfs sysfs /sys
mount -t devtmpfs dev /dev
while read module; do insmod /modules/$module; done </modules/list
gate() { ringtap count -q -c 1 -i host:all udp port $1 >/dev/null; }
readers() {
    until case "$(ringtap guest --status 2>&1)" in *": $1 reader"*) true ;; *) false ;; esac
    do sleep 0.2; done
}
agent() {
    ringtap guest --users 65534 & agent=$!
    readers 0
}
for one in /lib*/libpcap.so.* /lib*/*/libpcap.so.* /usr/lib*/libpcap.so.* /usr/lib*/*/libpcap.so.*
do [ -e $one ] && export RINGTAP_LIBPCAP=$one; done
echo GUEST started
agent
. /plan
while true; do sleep 100; done
"#;

/// A hub whose group `all` the guest may read.
pub(crate) struct GuestAndHub {
    pub(crate) machine: VirtualMachine,
    net: Namespace,
    hub: Running,
    socket: PathBuf,
    /// Interface through which packets reach the hub.
    to_hub: &'static str,
    folder: TempDir,
    /// Packets that were sent.
    sent: Cell<u64>,
}

/// Path of a program of this machine, links resolved.
fn tool(name: &str) -> Option<PathBuf> {
    let places = ["/usr/bin", "/usr/sbin", "/bin", "/sbin"];
    let paths = places.iter().map(|place| Path::new(place).join(name));
    paths.into_iter().find_map(|path| path.canonicalize().ok())
}

/// The program without its symbols, which the guest's memory need not hold.
fn stripped(built: &Path, folder: &Path) -> PathBuf {
    let to = folder.join(built.file_name().unwrap());
    let done = Command::new("strip").arg("-o").arg(&to).arg(built).status();
    assert!(
        done.is_ok_and(|status| status.success()),
        "strip {}",
        built.display()
    );
    to
}

/// Boots a machine that carries out `plan`; `None`, with a line that says why, where that cannot be done.
pub(crate) fn boot_machine(
    plan: &str,
    options: &[&str],
    kernel_options: &str,
) -> Option<VirtualMachine> {
    let ports = [
        "id=p1,chassis=1",
        "id=p2,chassis=2,pref64-reserve=64M",
        "id=p3,chassis=3,pref64-reserve=64M",
        "id=p4,chassis=4",
    ];
    let ports = ports.map(|port| format!("pcie-root-port,{port}"));
    let ports = ports.iter().flat_map(|port| ["-device", port]);
    let options: Vec<_> = ["-M", "q35"]
        .into_iter()
        .chain(options.iter().copied())
        .chain(ports)
        .collect();
    with_guest_files(plan, |files| {
        VirtualMachine::boot(files, &options, kernel_options)
    })
}

/// Boots with the files (path in the guest, file of this machine) of a guest that carries out `plan`.
pub(crate) fn with_guest_files<M>(
    plan: &str,
    boot: impl FnOnce(&[(&str, &Path)]) -> Option<M>,
) -> Option<M> {
    let missing = TOOLS.into_iter().find(|name| tool(name).is_none());
    if let Some(missing) = missing.or((!tool_exists("strip")).then_some("strip")) {
        say_skipped(&format!("needs {missing}"));
        return None;
    }
    let folder = TempDir::new().unwrap();
    let write = |name: &str, text: &str| {
        let path = folder.path().join(name);
        fs::write(&path, text).unwrap();
        path
    };
    // `cargo test` builds it in `deps` only, where it is never older.
    let built = ["deps", ""].map(|folder| Path::new(BINARY).with_file_name(folder));
    let libraries = built.map(|folder| folder.join("libringtap_pcap.so"));
    let library = libraries.into_iter().find(|path| path.exists());
    let library = library.expect("cargo build -p ringtap-pcap");
    let intruder = Path::new(BINARY).with_file_name("examples/vm_intruder");
    assert!(intruder.exists(), "cargo build -p ringtap-cli --examples");
    let telemetry = Path::new(BINARY).with_file_name("examples/telemetry");
    assert!(
        telemetry.exists(),
        "cargo build -p ringtap-vnplug --examples"
    );
    let program = |path: &Path| stripped(path, folder.path());
    let mut files = vec![
        ("init".to_owned(), write("init", INIT)),
        ("plan".to_owned(), write("plan", plan)),
        ("bin/ringtap".to_owned(), program(Path::new(BINARY))),
        ("bin/libringtap_pcap.so".to_owned(), program(&library)),
        ("bin/vm_intruder".to_owned(), program(&intruder)),
        ("bin/telemetry".to_owned(), program(&telemetry)),
    ];
    files.extend(TOOLS.map(|name| (format!("bin/{name}"), tool(name).unwrap())));
    let files: Vec<_> = files.iter().map(|(to, from)| (&**to, &**from)).collect();
    boot(&files)
}

/// Sends UDP packets to a port.
pub(crate) fn inject_port(net: &Namespace, port: u16, packets: usize) {
    inject(net, "tx0", port, packets, 0);
}

/// Sends UDP packets whose payloads repeat a byte.
fn inject(net: &Namespace, device: &str, port: u16, packets: usize, byte: u8) {
    let mut frame = vec![byte; 200];
    frame[..42].fill(0);
    frame[..12].copy_from_slice(&[2, 0, 0, 0, 0, 1, 2, 0, 0, 0, 0, 2]);
    frame[12..24].copy_from_slice(&[8, 0, 0x45, 0, 0, 186, 0, 0, 0, 0, 9, 17]);
    frame[26..36].copy_from_slice(&[10, 0, 0, 1, 10, 0, 0, 2, 0x30, 0x39]);
    frame[36..38].copy_from_slice(&port.to_be_bytes());
    frame[39] = 166;
    net.inject(device, &vec![frame; packets]);
}

fn start_hub(net: &Namespace, device: &str, socket: &Path, groups: &[&str]) -> Running {
    let mut command = net.command(BINARY);
    command.args(["hub", "-i", device, "--socket"]).arg(socket);
    for group in groups {
        command.args(["-g", group]);
    }
    let hub = Running::start(command);
    hub.wait_for_stderr("ringtap: hub of", GUEST_LIMIT);
    hub
}

/// The JSON behind this text on a machine's console, once it is whole. Records of gaps before it are passed over.
pub(crate) fn said_by(machine: &VirtualMachine, text: &str) -> serde_json::Value {
    machine.qemu.wait_for_stdout(text, GUEST_LIMIT);
    let deadline = Instant::now() + GUEST_LIMIT;
    loop {
        let console = machine.qemu.stdout();
        let (_, rest) = console.split_once(text).expect("the guest said it");
        let values = serde_json::Deserializer::from_str(rest).into_iter();
        let mut values = values.map_while(Result::<serde_json::Value, _>::ok);
        match values.find(|value| value["type"] != "capture_gap") {
            Some(value) => return value,
            None => assert!(Instant::now() < deadline, "{rest}"),
        }
        std::thread::sleep(std::time::Duration::from_millis(20));
    }
}

impl GuestAndHub {
    /// Starts both; the guest carries out `plan`, lines of a shell. `None`, with a line that says why,
    /// where that cannot be done.
    pub(crate) fn boot(test: &str, plan: &str) -> Option<Self> {
        let iommu = ["-device", "intel-iommu,intremap=on"];
        let machine = boot_machine(plan, &iommu, "intel_iommu=on iommu=pt")?;
        Some(Self::with(test, machine, &["all"]))
    }

    /// Starts a hub with these groups for a machine.
    pub(crate) fn with(test: &str, machine: VirtualMachine, groups: &[&str]) -> Self {
        GuestAndHub::of_device(test, machine, FIRST, groups)
    }

    /// Starts a hub of this device with these groups for a machine.
    pub(crate) fn of_device(
        test: &str,
        machine: VirtualMachine,
        device: &str,
        groups: &[&str],
    ) -> Self {
        let folder = TempDir::new().unwrap();
        let net = Namespace::with_veth(test);
        let socket = folder.path().join("hub.sock");
        GuestAndHub {
            machine,
            hub: start_hub(&net, device, &socket, groups),
            net,
            socket,
            to_hub: "tx0",
            folder,
            sent: Cell::new(0),
        }
    }

    /// Starts a hub on another interface, which is in use from then on; returns the hub before.
    pub(crate) fn change_hub(&mut self) -> Running {
        self.net.add_veth("tx1", "rx1");
        self.to_hub = "tx1";
        self.socket = self.folder.path().join("other.sock");
        let device = "tap:rx1?direction=in";
        let new = start_hub(&self.net, device, &self.socket, &["all"]);
        std::mem::replace(&mut self.hub, new)
    }

    /// Kills the hub, and starts it again.
    pub(crate) fn kill_hub(&mut self) {
        self.restart_hub(Signal::KILL);
    }

    /// Ends the hub by a signal, and starts it again.
    pub(crate) fn restart_hub(&mut self, signal: Signal) {
        self.hub.signal(signal);
        while self.hub.is_running() {
            std::thread::sleep(std::time::Duration::from_millis(5));
        }
        self.hub = start_hub(&self.net, FIRST, &self.socket, &["all"]);
    }

    /// Packets that the hub delivered to guests that have left.
    pub(crate) fn delivered_to_guests(&self) -> u64 {
        let status = self.status();
        let guests = status.departed.iter();
        let guests = guests.filter(|one| one.name.ends_with("/guest"));
        guests.map(|one| one.counters.delivered).sum()
    }

    /// Runs `ringtap vm` with these words.
    pub(crate) fn vm(&self, words: &[impl AsRef<OsStr>]) -> Running {
        let mut command = Command::new(BINARY);
        command.arg("vm").args(words);
        command.arg("--folder").arg(self.vms());
        Running::start(command)
    }

    /// Waits until `ringtap vm list` tells that so many packets of the only machine's first group were copied, and so
    /// many shunted.
    pub(crate) fn wait_for_account(&self, copied: u64, shunted: u64) {
        let deadline = Instant::now() + GUEST_LIMIT;
        loop {
            let listed = self.vm(&["list", "--json"]).wait(GUEST_LIMIT).success();
            let report: serde_json::Value = serde_json::from_str(&listed.stdout).unwrap();
            let counters = &report["groups"][0]["counters"];
            if (&counters["copied"], &counters["shunted"]) == (&copied.into(), &shunted.into()) {
                return;
            }
            assert!(Instant::now() < deadline, "{counters}\n{}", self.console());
        }
    }

    /// Folder of the sockets of attached machines.
    pub(crate) fn vms(&self) -> PathBuf {
        self.folder.path().join("vm")
    }

    /// Runs `ringtap` beside the hub.
    pub(crate) fn ringtap(&self, words: &[&str]) -> Running {
        let mut command = self.net.command(BINARY);
        command.args(words).env("RINGTAP_SOCKET", &self.socket);
        Running::start(command)
    }

    /// Descriptors and mappings of vNPlug's memory that QEMU has.
    pub(crate) fn held_by_qemu(&self) -> usize {
        let process = PathBuf::from(format!("/proc/{}", self.machine.qemu.pid()));
        let maps = fs::read_to_string(process.join("maps")).unwrap();
        let entries = fs::read_dir(process.join("fd")).unwrap();
        let links = entries.filter_map(|entry| fs::read_link(entry.ok()?.path()).ok());
        let links = links.filter(|to| to.to_string_lossy().contains("ringtap-vnplug"));
        maps.matches("ringtap-vnplug").count() + links.count()
    }

    /// Gives the machine the group `all`.
    pub(crate) fn attach(&self) -> Running {
        self.attach_as("vm1", &self.machine, &["all"])
    }

    /// Gives a machine groups.
    pub(crate) fn attach_as(
        &self,
        name: &str,
        machine: &VirtualMachine,
        groups: &[&str],
    ) -> Running {
        self.vm(&self.attaching(name, machine, groups))
    }

    /// Gives the machine the group `all` under another name, through another QMP socket.
    pub(crate) fn attach_by(&self, name: &str, qmp: &Path) -> Running {
        let mut words = self.attaching(name, &self.machine, &["all"]);
        let socket = words.iter_mut().skip_while(|word| *word != "--qmp").nth(1);
        *socket.unwrap() = qmp.display().to_string();
        self.vm(&words)
    }

    /// Gives a machine groups once it has migrated to its QEMU.
    pub(crate) fn attach_later(
        &self,
        name: &str,
        machine: &VirtualMachine,
        groups: &[&str],
    ) -> Running {
        let mut words = self.attaching(name, machine, groups);
        words.push("--resume".to_owned());
        self.vm(&words)
    }

    fn attaching(&self, name: &str, machine: &VirtualMachine, groups: &[&str]) -> Vec<String> {
        let (qmp, socket) = (machine.qmp(), &self.socket);
        let mut words = vec!["attach", "--name", name, "--memory", "16MiB"];
        words.extend(["--qmp", qmp.to_str().unwrap()]);
        words.extend(["--socket", socket.to_str().unwrap()]);
        words.extend(groups.iter().flat_map(|group| ["--group", group]));
        words.into_iter().map(str::to_owned).collect()
    }

    /// Reads a group on the host until it is interrupted, and then prints its counters.
    pub(crate) fn host_reader(&self, group: &str) -> Running {
        let mut command = Command::new(BINARY);
        command.args(["count", "-q", "--json", "-i"]);
        command.arg(format!("hub:{group}?socket={}", self.socket.display()));
        Running::start(command)
    }

    pub(crate) fn console(&self) -> String {
        self.machine.qemu.stdout()
    }

    pub(crate) fn wait_for(&self, text: &str) {
        self.machine.qemu.wait_for_stdout(text, GUEST_LIMIT);
    }

    /// The JSON behind this text on the console, once it is whole.
    pub(crate) fn said(&self, text: &str) -> serde_json::Value {
        said_by(&self.machine, text)
    }

    /// Sends UDP packets to a port.
    pub(crate) fn send(&self, port: u16, packets: usize) {
        self.send_filled(port, packets, 0);
    }

    /// Sends UDP packets to a port whose payloads repeat a byte.
    pub(crate) fn send_filled(&self, port: u16, packets: usize, byte: u8) {
        inject(&self.net, self.to_hub, port, packets, byte);
        self.sent.set(self.sent.get() + packets as u64);
    }

    fn status(&self) -> HubStatus {
        let connection = Connection::open(&self.socket, "test").expect("the hub answers");
        connection.status().expect("the hub tells")
    }

    fn until<T>(&self, what: &str, mut found: impl FnMut(&HubStatus) -> Option<T>) -> T {
        let deadline = Instant::now() + GUEST_LIMIT;
        loop {
            let status = self.status();
            if let Some(found) = found(&status) {
                return found;
            }
            assert!(
                Instant::now() < deadline,
                "{what}: {status:#?}\n{}",
                self.console()
            );
            std::thread::sleep(std::time::Duration::from_millis(20));
        }
    }

    /// Waits until the guest reads, so that the hub has this many readers; `false` if its kernel does not come back
    /// from an unplug, so that the process of the machine ends.
    pub(crate) fn is_read(&self, vm: &mut Running, readers: usize) -> bool {
        self.until("the guest reads", |status| match status.readers.len() {
            now if now == readers => Some(true),
            _ => (!vm.is_running()).then(|| {
                say_skipped(HANGS);
                false
            }),
        })
    }

    /// Number of the hub's readers.
    pub(crate) fn readers(&self) -> usize {
        self.status().readers.len()
    }

    pub(crate) fn hub_pid(&self) -> u32 {
        self.hub.pid()
    }

    /// Processes whose command lines have the folder of this hub's sockets.
    pub(crate) fn processes(&self) -> BTreeSet<u32> {
        let folder = self.folder.path().to_str().unwrap();
        let processes = fs::read_dir("/proc").unwrap();
        let numbers = processes.filter_map(|entry| entry.ok()?.file_name().to_str()?.parse().ok());
        let is_ours = |pid: &u32| {
            let words = fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
            String::from_utf8_lossy(&words).contains(folder)
        };
        numbers.filter(is_ours).collect()
    }

    pub(crate) fn wait_for_readers(&self, readers: usize) {
        self.until("readers", |status| {
            (status.readers.len() == readers).then_some(())
        });
    }

    /// Packets of those sent that the hub's only reader, the guest, wants.
    pub(crate) fn wanted(&self) -> u64 {
        self.until("the hub classifies all packets", |status| {
            let lanes = &status.sources[0].lanes;
            let wanted = lanes
                .iter()
                .map(|lane| lane.counters.delivered)
                .sum::<u64>();
            let filtered = lanes.iter().map(|lane| lane.counters.filtered).sum::<u64>();
            (wanted + filtered == self.sent.get()).then_some(wanted)
        })
    }

    /// Sends packets to a port, one by one, until the guest's filters no longer ask for them: a reader that has ended,
    /// or has set its filter, is known in the guest before the host's kernel has the new rules.
    pub(crate) fn wait_until_unwanted(&self, port: u16) {
        let mut wanted = self.wanted();
        self.until("the host has the guest's rules", |_| {
            self.send(port, 1);
            let before = std::mem::replace(&mut wanted, self.wanted());
            (wanted == before).then_some(())
        });
    }

    /// Detaches the guest, and checks the hub's account.
    pub(crate) fn finish(self, vm: Running) {
        let _detached = detach(vm);
        self.finish_hub();
    }

    pub(crate) fn finish_hub(self) {
        self.hub.interrupt();
        let end = self.hub.wait(GUEST_LIMIT).success();
        assert!(end.stdout.contains(": balanced"), "{}", end.stdout);
    }
}

/// Ends the process of a machine; `false` if the emulated guest's kernel did not come back from an unplug.
pub(crate) fn detach(vm: Running) -> bool {
    vm.interrupt();
    let ended = vm.wait(GUEST_LIMIT);
    let is_usual = matches!(ended.status.code(), Some(0 | 18));
    assert!(is_usual, "{}", ended.stderr);
    ended.status.success()
}
