// SPDX-License-Identifier: MIT OR Apache-2.0
//! A private network namespace that disappears with its guard.
//!
//! Invariants
//! - The name is `rt-t<pid>-<number>-<test>`: no two tests share one, and a namespace whose
//!   process has ended can be recognised and removed.
//! - Interfaces inside send nothing by themselves: no IPv6, no ARP.

use std::{
    fmt::Write as _,
    fs,
    io::Write as _,
    os::fd::AsFd as _,
    path::Path,
    process::{self, Command, Stdio},
    sync::atomic::{AtomicBool, AtomicU32, Ordering::Relaxed},
    thread,
};

use rustix::{
    process::{Pid, Signal, kill_process},
    thread::{LinkNameSpaceType, move_into_link_name_space},
};

use crate::settle::{sending_cpu, settle};
use crate::{Finished, LIMIT, Running, leftovers::stale_namespaces};

/// Sends each line of hex digits on standard input as one frame, from these CPUs in turn.
const INJECT: &str = "
import os, socket, sys
cpus, every = [int(cpu) for cpu in sys.argv[2].split(',')], int(sys.argv[3])
s = socket.socket(socket.AF_PACKET, socket.SOCK_RAW)
s.bind((sys.argv[1], 0))
for number, line in enumerate(sys.stdin):
    if number % every == 0: os.sched_setaffinity(0, [cpus[number // every % len(cpus)]])
    s.send(bytes.fromhex(line))
";

/// A network namespace; removed, with all processes inside, when dropped.
#[derive(Debug)]
pub struct Namespace {
    name: String,
}

impl Namespace {
    /// Makes an empty namespace with `lo` up, after removing those of killed tests.
    ///
    /// # Panics
    ///
    /// When `ip` refuses: call [`require_root!`](crate::require_root) first.
    #[must_use]
    pub fn new(test: &str) -> Self {
        static NUMBER: AtomicU32 = AtomicU32::new(0);
        for stale in stale_namespaces() {
            remove(&stale);
        }
        let number = NUMBER.fetch_add(1, Relaxed);
        let test: String = test.chars().filter(|c| c.is_ascii_graphic()).collect();
        let name = format!("rt-t{}-{number}-{}", process::id(), test.replace('/', "_"));
        ip(&["netns", "add", &name]);
        let this = Self { name };
        // Before any link exists, so that links made later inherit it.
        this.sysctl("net.ipv6.conf.all.disable_ipv6", "1");
        this.sysctl("net.ipv6.conf.default.disable_ipv6", "1");
        this.ip(&["link", "set", "lo", "up"]);
        this
    }

    /// Makes a namespace with a veth pair, `tx0` to `rx0`, both up and silent.
    ///
    /// # Panics
    ///
    /// As [`Namespace::new`].
    #[must_use]
    pub fn with_veth(test: &str) -> Self {
        let this = Self::new(test);
        this.add_veth("tx0", "rx0");
        this
    }

    /// Adds a veth pair with both ends in this namespace.
    ///
    /// # Panics
    ///
    /// When `ip` refuses, for instance because a name is taken.
    pub fn add_veth(&self, one: &str, other: &str) {
        self.ip(&["link", "add", one, "type", "veth", "peer", "name", other]);
        for end in [one, other] {
            self.ip(&["link", "set", end, "arp", "off"]);
            self.ip(&["link", "set", end, "up"]);
        }
    }

    /// Moves `device` from here into `other`, and sets it up there.
    ///
    /// # Panics
    ///
    /// When `ip` refuses.
    pub fn move_device(&self, device: &str, other: &Self) {
        self.ip(&["link", "set", device, "netns", &other.name]);
        other.ip(&["link", "set", device, "up"]);
    }

    /// Name as `ip netns` shows it.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    /// A command that will run `program` inside.
    #[must_use]
    pub fn command(&self, program: impl AsRef<std::ffi::OsStr>) -> Command {
        let mut command = Command::new("ip");
        command.args(["netns", "exec", &self.name]).arg(program);
        command
    }

    /// Starts `program` inside and returns at once.
    ///
    /// # Panics
    ///
    /// When it cannot be started.
    #[must_use]
    pub fn spawn(&self, program: &str, args: &[&str]) -> Running {
        let mut command = self.command(program);
        command.args(args);
        Running::start(command)
    }

    /// Runs `program` inside to its end, within [`LIMIT`].
    ///
    /// # Panics
    ///
    /// When it takes longer.
    #[must_use]
    pub fn run(&self, program: &str, args: &[&str]) -> Finished {
        self.spawn(program, args).wait(LIMIT)
    }

    /// Runs `ip` inside and gives what it printed.
    ///
    /// # Panics
    ///
    /// When it fails.
    pub fn ip(&self, args: &[&str]) -> String {
        let mut all = vec!["-n", &self.name];
        all.extend(args);
        ip(&all)
    }

    /// Runs `work` on a thread of its own that sees this namespace's interfaces.
    ///
    /// Only the network changes: `/sys/class/net` still shows the host's interfaces. Sockets and
    /// links made inside keep belonging to this namespace.
    ///
    /// # Panics
    ///
    /// When the namespace cannot be entered, and with whatever `work` panics with.
    pub fn enter<R: Send>(&self, work: impl FnOnce() -> R + Send) -> R {
        let path = Path::new("/run/netns").join(&self.name);
        let file = fs::File::open(&path)
            .unwrap_or_else(|error| panic!("{} cannot be opened: {error}", path.display()));
        let inside = move || {
            move_into_link_name_space(file.as_fd(), Some(LinkNameSpaceType::Network))
                .expect("root may enter a namespace");
            work()
        };
        thread::scope(|scope| match scope.spawn(inside).join() {
            Ok(value) => value,
            Err(panic) => std::panic::resume_unwind(panic),
        })
    }

    /// Sends `frames`, each from its Ethernet header on, out of `device`, in order, all from one
    /// CPU; when this returns they have arrived.
    ///
    /// # Panics
    ///
    /// When a frame is refused, for instance because it is longer than the MTU.
    pub fn inject(&self, device: &str, frames: &[Vec<u8>]) {
        self.inject_from(&[sending_cpu()], frames.len().max(1), device, frames);
    }

    /// As [`Namespace::inject`], on another thread while `work` runs. The flag is set once all frames have arrived.
    ///
    /// # Panics
    ///
    /// As [`Namespace::inject`].
    pub fn inject_during(&self, device: &str, frames: &[Vec<u8>], work: impl FnOnce(&AtomicBool)) {
        let all_arrived = AtomicBool::new(false);
        thread::scope(|scope| {
            scope.spawn(|| {
                self.inject(device, frames);
                all_arrived.store(true, Relaxed);
            });
            work(&all_arrived);
        });
    }

    /// As [`Namespace::inject`], from several CPUs in turn, `every` frames from each.
    ///
    /// # Panics
    ///
    /// As [`Namespace::inject`].
    pub fn inject_from(&self, cpus: &[usize], every: usize, device: &str, frames: &[Vec<u8>]) {
        let list: Vec<_> = cpus.iter().map(ToString::to_string).collect();
        let mut command = self.command("python3");
        let mut child = command
            .args(["-c", INJECT, device, &list.join(","), &every.to_string()])
            .stdin(Stdio::piped())
            .spawn()
            .expect("python3 can be started");
        let mut lines = String::new();
        for frame in frames {
            for byte in frame {
                let _ = write!(lines, "{byte:02x}");
            }
            lines.push('\n');
        }
        let mut stdin = child.stdin.take().expect("standard input is piped");
        stdin
            .write_all(lines.as_bytes())
            .expect("python3 reads its input");
        drop(stdin);
        let status = child.wait().expect("a child can be waited for");
        assert!(status.success(), "sending out of {device}: {status}");
        cpus.iter().copied().for_each(settle);
    }

    /// A counter of `device` from the kernel, for instance `rx_packets` or `tx_dropped`.
    ///
    /// # Panics
    ///
    /// When there is no such device or counter.
    #[must_use]
    pub fn counter(&self, device: &str, name: &str) -> u64 {
        let path = format!("/sys/class/net/{device}/statistics/{name}");
        let text = self.run("cat", &[&path]).success().stdout;
        text.trim().parse().expect("a counter is a number")
    }

    /// Whether `device` carries an XDP program, in any mode.
    ///
    /// # Panics
    ///
    /// When there is no such device.
    #[must_use]
    pub fn has_xdp(&self, device: &str) -> bool {
        let text = self.ip(&["-j", "-details", "link", "show", "dev", device]);
        let links: serde_json::Value = serde_json::from_str(&text).expect("ip prints JSON");
        links[0].get("xdp").is_some()
    }

    fn sysctl(&self, name: &str, value: &str) {
        let path = format!("/proc/sys/{}", name.replace('.', "/"));
        // A kernel without IPv6 has nothing to switch off.
        self.enter(|| {
            if Path::new(&path).exists() {
                fs::write(&path, value).unwrap_or_else(|error| panic!("{path}: {error}"));
            }
        });
    }
}

impl Drop for Namespace {
    fn drop(&mut self) {
        remove(&self.name);
    }
}

/// Kills every process inside the namespace and removes it, if it exists.
fn remove(name: &str) {
    let inside = Command::new("ip").args(["netns", "pids", name]).output();
    for pid in inside
        .iter()
        .flat_map(|output| output.stdout.split(|byte| *byte == b'\n'))
        .filter_map(|line| std::str::from_utf8(line).ok()?.parse().ok())
        .filter_map(Pid::from_raw)
    {
        let _ = kill_process(pid, Signal::KILL);
    }
    let _ = Command::new("ip")
        .args(["netns", "delete", name])
        .stderr(Stdio::null())
        .status();
}

fn ip(args: &[&str]) -> String {
    let mut command = Command::new("ip");
    command.args(args);
    Running::start(command).wait(LIMIT).success().stdout
}
