// SPDX-License-Identifier: MIT OR Apache-2.0
//! A hub on a veth pair in a namespace of its own, and readers of it.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use ringtap_client::{Connection, Next, Receiver, SubscriptionRequest, Tally};
use ringtap_ipc::protocol::HubStatus;
use ringtap_pool::counters::Counters;
pub(crate) use ringtap_testkit::LIMIT;
use ringtap_testkit::{Finished, Namespace, Running};
use tempfile::TempDir;

/// A tap whose lanes hold all packets of a test, so that a busy machine costs no reader a packet.
pub(crate) const LARGE_POOL: &str = "tap:rx0?exclusive&direction=in&pool=256MiB";

pub(crate) const BINARY: &str = env!("CARGO_BIN_EXE_ringtap");

/// A running hub.
pub(crate) struct RunningHub {
    pub(crate) net: Namespace,
    pub(crate) hub: Running,
    pub(crate) socket: PathBuf,
    folder: TempDir,
}

/// What a reader's last line of JSON says.
#[derive(Debug)]
pub(crate) struct Account(pub(crate) serde_json::Value);

impl RunningHub {
    /// A hub of `tap:rx0` that takes all packets, with these groups.
    pub(crate) fn new(test: &str, groups: &[&str]) -> Self {
        let args: Vec<_> = groups.iter().flat_map(|group| ["-g", group]).collect();
        Self::with(test, "tap:rx0?exclusive&direction=in", &args)
    }

    pub(crate) fn with(test: &str, device: &str, args: &[&str]) -> Self {
        let net = Namespace::with_veth(test);
        let folder = TempDir::new().expect("a folder can be made");
        let socket = folder.path().join("hub.sock");
        let hub = start(&net, &socket, device, args);
        RunningHub {
            net,
            hub,
            socket,
            folder,
        }
    }

    /// Another hub after the first one died.
    pub(crate) fn restart(&mut self, args: &[&str]) {
        self.hub = start(
            &self.net,
            &self.socket,
            "tap:rx0?exclusive&direction=in",
            args,
        );
    }

    pub(crate) fn device(&self, group: &str) -> String {
        format!("hub:{group}?socket={}", self.socket.display())
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    /// `ringtap count` of a group; it has its subscription when this returns.
    pub(crate) fn count(&self, group: &str, args: &[&str]) -> Running {
        self.reader("count", group, args)
    }

    /// `ringtap record` of a group; it has its subscription when this returns.
    pub(crate) fn record(&self, group: &str, file: &Path) -> Running {
        self.reader("record", group, &["-w", file.to_str().expect("text")])
    }

    pub(crate) fn reader(&self, verb: &str, group: &str, args: &[&str]) -> Running {
        let before = self.status().readers.len();
        let mut command = Command::new(BINARY);
        command
            .args([verb, "-q", "--json", "-i", &self.device(group)])
            .args(args);
        let reader = Running::start(command);
        self.wait_until("a reader attaches", |status| status.readers.len() > before);
        reader
    }

    /// Sends stamped packets of 16 flows and tells how many.
    pub(crate) fn send(&self, rate_pps: u64, packets: u64) -> u64 {
        sent(&self.start_sending(rate_pps, packets).wait(LIMIT).success())
    }

    pub(crate) fn start_sending(&self, rate_pps: u64, packets: u64) -> Running {
        let (rate, count) = (format!("{rate_pps}pps"), packets.to_string());
        let args = [
            "send", "-i", "tx0", "--size", "64", "--flows", "16", "--stamp", "--json",
        ];
        let mut command = self.net.command(BINARY);
        command.args(args).args(["--rate", &rate, "-c", &count]);
        Running::start(command)
    }

    pub(crate) fn status(&self) -> HubStatus {
        let connection = Connection::open(&self.socket, "test").expect("the hub answers");
        connection.status().expect("the hub tells")
    }

    pub(crate) fn wait_until(&self, what: &str, is_so: impl Fn(&HubStatus) -> bool) -> HubStatus {
        let deadline = Instant::now() + LIMIT;
        loop {
            let status = self.status();
            if is_so(&status) {
                return status;
            }
            assert!(Instant::now() < deadline, "{what}: {status:#?}");
            std::thread::sleep(Duration::from_millis(5));
        }
    }

    /// A subscription in this process.
    pub(crate) fn attach(&self, request: &SubscriptionRequest) -> Receiver {
        let attached = Connection::attach(&self.socket, request);
        let (subscription, connection) = attached.expect("the hub gives a subscription");
        Receiver::new(subscription, connection).expect("the subscription is good")
    }

    pub(crate) fn receiver(&self, group: &str) -> Receiver {
        self.attach(&request(group))
    }

    /// Ends the hub and checks its own account.
    pub(crate) fn finish(self) -> Finished {
        self.hub.interrupt();
        let end = self.hub.wait(LIMIT);
        let shown = format!("{}\n{}", end.stdout, end.stderr);
        assert!(end.status.success(), "{shown}");
        assert!(end.stdout.contains(": balanced"), "{shown}");
        assert!(!self.net.has_xdp("rx0"), "nothing is left on the interface");
        end
    }

    /// Descriptors of the hub's process, and its mappings of pools.
    pub(crate) fn resources(&self) -> Resources {
        let folder = format!("/proc/{}", self.hub.pid());
        let fds = std::fs::read_dir(format!("{folder}/fd")).expect("it runs");
        let maps = std::fs::read_to_string(format!("{folder}/maps")).expect("it runs");
        let is_pool = |line: &&str| line.contains("ringtap-");
        Resources {
            descriptors: fds.count(),
            mappings: maps.lines().filter(is_pool).count(),
        }
    }

    /// Waits until the hub's resources stop changing, and returns them. The server closes a connection
    /// some time after its client left.
    pub(crate) fn settled_resources(&self) -> Resources {
        let mut last = self.resources();
        let mut same = 0;
        while same < 5 {
            std::thread::sleep(Duration::from_millis(100));
            let now = self.resources();
            same = if now == last { same + 1 } else { 0 };
            last = now;
        }
        last
    }
}

/// Resources of the hub's process in which a leak shows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Resources {
    pub(crate) descriptors: usize,
    mappings: usize,
}

fn start(net: &Namespace, socket: &Path, device: &str, args: &[&str]) -> Running {
    let mut command = net.command(BINARY);
    command
        .args(["hub", "-i", device, "--socket"])
        .arg(socket)
        // The same division in every run.
        .args(["--hash-seed", "1"])
        .args(args);
    let hub = Running::start(command);
    hub.wait_for_stderr("ringtap: hub of", LIMIT);
    hub
}

pub(crate) fn request(group: &str) -> SubscriptionRequest {
    SubscriptionRequest::new(group, "test")
}

/// Reads until nothing came for a while.
pub(crate) fn drain(receiver: &mut Receiver, tally: &mut Tally) {
    read(receiver, tally, Duration::from_millis(500));
}

/// Reads until this many packets were delivered and the hub's account of them is settled.
pub(crate) fn read_all(receiver: &mut Receiver, packets: u64) -> Counters {
    let deadline = Instant::now() + LIMIT;
    let mut tally = Tally::new(receiver.lanes());
    loop {
        read(receiver, &mut tally, Duration::from_millis(1));
        let counters = tally.total(&receiver.snapshot().expect("the hub answers"));
        if counters.delivered >= packets && counters.balance().holds() {
            return counters;
        }
        assert!(Instant::now() < deadline, "{packets} packets: {counters:?}");
    }
}

/// Reads until nothing came for so long.
pub(crate) fn read(receiver: &mut Receiver, tally: &mut Tally, pause: Duration) {
    while let Next::Batch(batch) = receiver.next(Some(pause)).expect("the hub is there") {
        let counted = tally.count_batch(&batch, |_| true);
        counted.expect("the pool is good");
    }
}

/// How many packets `ringtap send --json` sent.
pub(crate) fn sent(sender: &Finished) -> u64 {
    let report = last_line(&sender.stdout);
    report["sent"]
        .as_u64()
        .unwrap_or_else(|| panic!("no \"sent\" in {report}"))
}

fn last_line(text: &str) -> serde_json::Value {
    let line = text
        .lines()
        .last()
        .unwrap_or_else(|| panic!("nothing was printed"));
    serde_json::from_str(line).unwrap_or_else(|error| panic!("{error}: {line}"))
}

impl Account {
    /// A reader's account after it was told to end.
    pub(crate) fn of(reader: Running) -> (Self, Finished) {
        reader.interrupt();
        Self::of_ended(reader)
    }

    pub(crate) fn of_ended(reader: Running) -> (Self, Finished) {
        Self::with_status(reader, 0)
    }

    /// A reader's account after it ended by itself with this exit status.
    pub(crate) fn with_status(reader: Running, status: i32) -> (Self, Finished) {
        let end = reader.wait(LIMIT);
        let told = format!("{}\n{}", end.stdout, end.stderr);
        assert_eq!(end.status.code(), Some(status), "{told}");
        let account = Account(last_line(&end.stdout));
        assert_eq!(account.0["balanced"], true, "{account:?}");
        (account, end)
    }

    pub(crate) fn number(&self, name: &str) -> u64 {
        let value = match name.split_once('.') {
            Some((outer, inner)) => &self.0[outer][inner],
            None => &self.0[name],
        };
        value
            .as_u64()
            .unwrap_or_else(|| panic!("no {name} in {self:?}"))
    }

    pub(crate) fn lost(&self) -> u64 {
        ["nic", "kernel", "pool_full", "overrun", "not_written"]
            .iter()
            .map(|reason| self.number(&format!("dropped.{reason}")))
            .sum()
    }
}

/// Ends an honest reader with `--stamps`, which must have lost nothing.
#[track_caller]
pub(crate) fn lost_nothing(honest: Running) {
    let (account, end) = Account::of(honest);
    let lost = (account.lost(), missing_stamps(&end));
    assert_eq!(lost, (0, 0), "{account:?}");
}

/// Numbers that `count --stamps` says are missing.
pub(crate) fn missing_stamps(end: &Finished) -> u64 {
    let text = format!("{}{}", end.stdout, end.stderr);
    let line = text.lines().find(|line| line.contains("stamps:"));
    let line = line.unwrap_or_else(|| panic!("no stamps in {text}"));
    let before = line
        .split(" missing")
        .next()
        .and_then(|start| start.rsplit(' ').next());
    let number = before.map(|number| number.replace(',', ""));
    number
        .and_then(|number| number.parse().ok())
        .unwrap_or_else(|| panic!("{line}"))
}
