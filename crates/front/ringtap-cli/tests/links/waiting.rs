// SPDX-License-Identifier: MIT OR Apache-2.0
//! Interfaces, hubs and groups that come after the programs that need them, as when a machine boots.

use std::fs;
use std::os::unix::net::UnixDatagram;
use std::path::{Path, PathBuf};

use ringtap_testkit::{LIMIT, Namespace, Running, require_root, require_tool, settle_everywhere};
use tempfile::TempDir;

use crate::support::{
    BINARY, MARKED, last_json, lines, marked, number, start_count, wait_until, wait_until_active,
};

/// A hub with a file, its service manager's socket, and a folder for both.
struct Boot {
    net: Namespace,
    folder: TempDir,
    manager: UnixDatagram,
}

impl Boot {
    /// A namespace without interfaces but the loopback; the file names these sources.
    fn new(name: &str, sources: &str) -> Self {
        let folder = TempDir::new().expect("a folder can be made");
        let text = format!("{sources}\n[[group]]\nname = \"rec\"\n");
        fs::write(folder.path().join("hub.toml"), text).expect("a file");
        let manager = UnixDatagram::bind(folder.path().join("notify")).expect("a socket");
        manager.set_read_timeout(Some(LIMIT)).expect("a time-out");
        Boot {
            net: Namespace::new(name),
            folder,
            manager,
        }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    fn socket(&self) -> String {
        self.path("hub.sock").display().to_string()
    }

    fn group(&self) -> String {
        format!("hub:rec?socket={}", self.socket())
    }

    fn hub(&self) -> Running {
        let mut command = self.net.command(BINARY);
        command.args(["hub", "--socket", &self.socket(), "-c"]);
        command.arg(self.path("hub.toml"));
        command.env("NOTIFY_SOCKET", self.path("notify"));
        Running::start(command)
    }

    /// Reads messages to the service manager up to one that contains this text.
    fn until_notified(&self, text: &str) {
        let mut buffer = [0; 4096];
        loop {
            let length = self.manager.recv(&mut buffer).unwrap_or_else(|error| {
                panic!("the service manager never gets {text}: {error}");
            });
            if String::from_utf8_lossy(&buffer[..length]).contains(text) {
                return;
            }
        }
    }

    fn record(&self, file: &Path) -> Running {
        let file = file.display().to_string();
        let group = self.group();
        let args = [
            "record", "-q", "--json", "--wait", "-i", &group, "-w", &file,
        ];
        self.net.spawn(BINARY, &[&args[..], &[MARKED]].concat())
    }
}

#[test]
fn a_machine_that_boots_with_a_late_interface_records_its_packets() {
    require_root!();
    require_tool!("ip", "python3");
    for (device, hub_first) in [
        ("tap:rx0?direction=in", true),
        ("packet:rx0?direction=in", false),
    ] {
        let source = format!("[[source]]\ndevice = \"{device}\"\nwait = true\n");
        let boot = Boot::new("links_boot", &source);
        let file = boot.path("all.pcapng");
        // Whichever order the machine starts them in.
        let (hub, recorder) = if hub_first {
            let hub = boot.hub();
            boot.until_notified("READY=1");
            (hub, boot.record(&file))
        } else {
            let recorder = boot.record(&file);
            recorder.wait_for_stderr("no hub is running", LIMIT);
            (boot.hub(), recorder)
        };
        hub.wait_for_stderr("waiting: no interface \"rx0\" here", LIMIT);
        recorder.wait_for_stderr("waiting: the hub waits: no interface \"rx0\"", LIMIT);
        boot.net.add_veth("tx0", "rx0");
        boot.until_notified("STATUS=capturing");
        wait_until("the recorder has a file", || file.exists());
        wait_until_active(&boot.net, "tx0");
        boot.net.inject("tx0", &marked(100));
        settle_everywhere();
        recorder.interrupt();
        let counters = last_json(&recorder.wait(LIMIT).success());
        assert_eq!(number(&counters, "delivered"), 100, "{counters}");
        assert_eq!(lines(&hub, "waiting: "), 1, "one line for one reason");
        hub.interrupt();
        let end = hub.wait(LIMIT).success();
        assert!(end.stdout.contains(": balanced"), "{}", end.stdout);
    }
}

#[test]
fn a_hub_waits_for_all_its_interfaces_before_any_reader_attaches() {
    require_root!();
    require_tool!("ip", "python3");
    let sources = "[[source]]\ndevice = \"tap:rx0?direction=in\"\n\
                   [[source]]\ndevice = \"tap:rx1?direction=in\"\nwait = true\n";
    let boot = Boot::new("links_boot_two", sources);
    boot.net.add_veth("tx0", "rx0");
    let hub = boot.hub();
    boot.until_notified("READY=1");
    // A reader that does not wait says why there is no group.
    let refused = boot
        .net
        .spawn(BINARY, &["count", "-i", &boot.group()])
        .wait(LIMIT);
    assert_eq!(refused.status.code(), Some(1), "{}", refused.stderr);
    let reason = "the hub waits: no interface \"rx1\" here";
    assert!(refused.stderr.contains(reason), "{}", refused.stderr);
    let why = ["why", "--interval", "0.1", "--socket", &boot.socket()];
    let why = boot.net.spawn(BINARY, &why).wait(LIMIT);
    assert!(
        why.stdout.contains("no interface \"rx1\" here"),
        "{}",
        why.stdout
    );
    // Created, but still down.
    boot.net
        .ip(&["link", "add", "rx1", "type", "veth", "peer", "name", "tx1"]);
    hub.wait_for_stderr("waiting: interface rx1 is down", LIMIT);
    boot.net.ip(&["link", "set", "tx1", "up"]);
    boot.net.ip(&["link", "set", "rx1", "up"]);
    boot.until_notified("STATUS=capturing");
    let count = start_count(&boot.net, &boot.group(), &[MARKED]);
    wait_until_active(&boot.net, "tx1");
    boot.net.inject("tx0", &marked(50));
    boot.net.inject("tx1", &marked(70));
    settle_everywhere();
    count.interrupt();
    let counters = last_json(&count.wait(LIMIT).success());
    assert_eq!(number(&counters, "delivered"), 120, "{counters}");
    hub.interrupt();
    let _ended = hub.wait(LIMIT).success();
}

#[test]
fn a_hub_that_waits_reads_its_file_again_and_ends_at_a_signal() {
    require_root!();
    require_tool!("ip");
    let boot = Boot::new(
        "links_boot_file",
        "[[source]]\ndevice = \"tap:eht0\"\nwait = true\n",
    );
    let hub = boot.hub();
    hub.wait_for_stderr("waiting: no interface \"eht0\" here", LIMIT);
    // The name was misspelt.
    let text = "[[source]]\ndevice = \"tap:eth0\"\nwait = true\n[[group]]\nname = \"rec\"\n";
    fs::write(boot.path("hub.toml"), text).expect("a file");
    hub.signal(rustix::process::Signal::HUP);
    hub.wait_for_stderr("waiting: no interface \"eth0\" here", LIMIT);
    hub.interrupt();
    let _ended = hub.wait(LIMIT).success();
}

#[test]
fn a_reader_that_waits_for_an_interface_ends_at_a_signal_or_begins_with_it() {
    require_root!();
    require_tool!("ip", "python3");
    let net = Namespace::new("links_boot_count");
    let count = |args: &[&str]| {
        let fixed = ["count", "--json", "--interval", "0.05"];
        let count = net.spawn(BINARY, &[&fixed[..], args].concat());
        count.wait_for_stderr("waiting: no interface \"rx0\" here", LIMIT);
        count
    };
    let never = count(&["--wait", "-i", "rx0"]);
    never.interrupt();
    let end = never.wait(LIMIT).success();
    assert!(end.stderr.contains("ended while waiting"), "{}", end.stderr);
    let late = count(&["-i", "tap:rx0?direction=in&wait", MARKED]);
    net.add_veth("tx0", "rx0");
    late.wait_for_stdout("\"offered\"", LIMIT);
    wait_until_active(&net, "tx0");
    net.inject("tx0", &marked(30));
    settle_everywhere();
    late.interrupt();
    let counters = last_json(&late.wait(LIMIT).success());
    assert_eq!(number(&counters, "delivered"), 30, "{counters}");
    // Without `wait`, a missing interface is an error at once.
    let refused = net.spawn(BINARY, &["count", "-i", "rx9"]).wait(LIMIT);
    assert_eq!(refused.status.code(), Some(1), "{}", refused.stderr);
}
