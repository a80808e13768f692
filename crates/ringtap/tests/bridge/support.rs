// SPDX-License-Identifier: MIT OR Apache-2.0
//! Two hosts in namespaces of their own, and a bridge in a third between them.

use std::path::PathBuf;
use std::time::Duration;

use ringtap_testkit::{Namespace, Running};
use tempfile::TempDir;

pub(crate) const BINARY: &str = env!("CARGO_BIN_EXE_ringtap");
/// More than anything here takes on a machine that does other things as well.
pub(crate) const LIMIT: Duration = Duration::from_secs(60);

/// Whether the hosts' ends take packets from XDP.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Ends {
    /// They do: GRO is on.
    Napi,
    /// They do not, so the bridge has to use the stack's buffers.
    Plain,
}

/// `left` (10.9.0.1) and `right` (10.9.0.2) with a wire that ends in `middle`.
pub(crate) struct Wire {
    pub(crate) left: Namespace,
    pub(crate) middle: Namespace,
    pub(crate) right: Namespace,
    folder: TempDir,
}

impl Wire {
    /// All interfaces have this MTU.
    pub(crate) fn new(test: &str, mtu: u32, ends: Ends) -> Self {
        let [left, middle, right] = [
            Namespace::new(test),
            Namespace::new(test),
            Namespace::new(test),
        ];
        for (host, near, far, address) in [
            (&left, "a0", "a1", "10.9.0.1/24"),
            (&right, "b0", "b1", "10.9.0.2/24"),
        ] {
            middle.add_veth(near, far);
            middle.move_device(near, host);
            host.ip(&["link", "set", near, "mtu", &mtu.to_string(), "arp", "on"]);
            middle.ip(&["link", "set", far, "mtu", &mtu.to_string()]);
            host.ip(&["address", "add", address, "dev", near]);
            if ends == Ends::Napi {
                let done = host.run("ethtool", &["-K", near, "gro", "on"]);
                assert!(done.status.success(), "{}", done.stderr);
            }
        }
        Wire {
            left,
            middle,
            right,
            folder: TempDir::new().expect("a folder can be made"),
        }
    }

    fn socket(&self) -> PathBuf {
        self.folder.path().join("hub.sock")
    }

    /// A bridge that forwards when this returns.
    pub(crate) fn bridge(&self, args: &[&str]) -> Running {
        let mut all = vec!["bridge", "a1", "b1", "--json", "--quiet"];
        all.extend(args);
        let bridge = self.middle.spawn(BINARY, &all);
        bridge.wait_for_stderr("bridge of a1 and b1", LIMIT);
        bridge
    }

    /// The same, with a reader that counts what is mirrored.
    pub(crate) fn mirrored(&self, args: &[&str]) -> (Running, Running) {
        let socket = self.socket();
        let path = socket.display().to_string();
        let mut all = vec!["--mirror", "wire", "--socket", &path];
        all.extend(args);
        let bridge = self.bridge(&all);
        let device = format!("hub:wire?socket={path}");
        let reader = self
            .middle
            .spawn(BINARY, &["count", "-q", "--json", "-i", &device]);
        // Its seat is the hub's first.
        for _ in 0..600 {
            let status = self.middle.run(BINARY, &["status", "--socket", &path]);
            if status.stdout.contains("\"name\":\"count\"") {
                return (bridge, reader);
            }
            std::thread::sleep(Duration::from_millis(50));
        }
        panic!("the reader got no seat");
    }

    /// A bridge that asks a reader of the group `ips`.
    pub(crate) fn judged(&self, args: &[&str]) -> Running {
        let path = self.socket().display().to_string();
        let mut all = vec!["--judge", "ips", "--socket", &path];
        all.extend(args);
        self.bridge(&all)
    }

    /// The group of the judge, as a device.
    pub(crate) fn judges(&self) -> String {
        format!("hub:ips?socket={}", self.socket().display())
    }

    /// A process that decides about the bridge's packets when this returns.
    pub(crate) fn judge(&self, args: &[&str]) -> Running {
        let device = self.judges();
        let mut all = vec!["judge", "--json", "-i", &device];
        all.extend(args);
        let judge = self.middle.spawn(BINARY, &all);
        judge.wait_for_stderr("ringtap: judging", LIMIT);
        judge
    }

    /// Sends each word in a UDP packet from left to right; gives those that arrive.
    pub(crate) fn words(&self, words: &[String]) -> Vec<String> {
        let server = self.right.spawn("python3", &["-c", HEAR]);
        server.wait_for_stderr("listening", LIMIT);
        let sent = self
            .left
            .run("python3", &["-c", SAY, "10.9.0.2", &words.join(",")]);
        assert!(sent.status.success(), "{}", sent.stderr);
        let heard = server.wait(LIMIT);
        assert!(heard.status.success(), "{}", heard.stderr);
        heard.stdout.lines().map(String::from).collect()
    }

    /// Sends `bytes` by TCP from one host to the other and fails unless the same arrive.
    pub(crate) fn tcp(&self, from: &Namespace, to: &Namespace, address: &str, bytes: u32) {
        let server = to.spawn("python3", &["-c", RECEIVE]);
        server.wait_for_stderr("listening", LIMIT);
        let sent = from.run("python3", &["-c", SEND, address, &bytes.to_string()]);
        assert!(sent.status.success(), "{}", sent.stderr);
        let received = server.wait(LIMIT);
        assert!(received.status.success(), "{}", received.stderr);
        assert_eq!(received.stdout, sent.stdout, "length and digest");
    }

    /// Sends `count` pings with `bytes` of data; gives how many were answered, with the same data.
    pub(crate) fn ping(&self, from: &Namespace, address: &str, count: u32, bytes: u32) -> u32 {
        let (count, bytes) = (count.to_string(), bytes.to_string());
        let done = from.run("python3", &["-c", PING, address, &count, &bytes]);
        assert!(done.status.success(), "{}", done.stderr);
        done.stdout.trim().parse().expect("a number")
    }

    /// Packets with wrong checksums that the hosts received.
    pub(crate) fn wrong_checksums(&self) -> u64 {
        [&self.left, &self.right]
            .into_iter()
            .map(|host| {
                let text = host.run("python3", &["-c", WRONG]).stdout;
                text.trim().parse::<u64>().expect("a number")
            })
            .sum()
    }
}

/// The last two lines of a bridge: the ledgers of a1>b1 and of b1>a1.
pub(crate) fn ledgers(bridge: Running) -> [serde_json::Value; 2] {
    bridge.interrupt();
    let end = bridge.wait(LIMIT);
    assert!(end.status.success(), "{}", end.stderr);
    let parse = |line: &str| serde_json::from_str(line).expect("a line of JSON");
    let mut last = end.stdout.lines().rev().map(parse);
    let back = last.next().expect("two ledgers");
    let forth = last.next().expect("two ledgers");
    [forth, back]
}

const RECEIVE: &str = "
import socket, sys, hashlib
s = socket.create_server(('0.0.0.0', 5001))
print('listening', file=sys.stderr, flush=True)
c, _ = s.accept()
h, n = hashlib.sha256(), 0
while True:
    d = c.recv(1 << 20)
    if not d: break
    h.update(d); n += len(d)
print(n, h.hexdigest())
";

const SEND: &str = "
import socket, sys, hashlib, random
c = socket.create_connection((sys.argv[1], 5001), 20)
h, n, r = hashlib.sha256(), 0, random.Random(7)
while n < int(sys.argv[2]):
    d = r.randbytes(65536); c.sendall(d); h.update(d); n += len(d)
c.close()
print(n, h.hexdigest())
";

/// Prints what it hears until the other side has nothing more to say, over and over so that the
/// end is heard.
const HEAR: &str = "
import socket, sys
s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
s.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1 << 20)
s.bind(('0.0.0.0', 5002))
print('listening', file=sys.stderr, flush=True)
while True:
    word, peer = s.recvfrom(2048)
    if word == b'end': break
    print(word.decode())
s.sendto(b'heard', peer)
";

const SAY: &str = "
import socket, sys
s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
s.settimeout(0.5)
peer = (sys.argv[1], 5002)
for word in sys.argv[2].split(','): s.sendto(word.encode(), peer)
for _ in range(20):
    s.sendto(b'end', peer)
    try:
        if s.recv(10) == b'heard': break
    except (TimeoutError, ConnectionRefusedError): pass
";

const PING: &str = "
import socket, struct, sys
s = socket.socket(socket.AF_INET, socket.SOCK_RAW, socket.IPPROTO_ICMP)
s.setsockopt(socket.IPPROTO_IP, 10, 2)  # IP_MTU_DISCOVER, IP_PMTUDISC_DO: no fragments
s.settimeout(2)
address, count, size = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
def checksum(b):
    t = sum(struct.unpack('!%dH' % (len(b) // 2), b))
    while t >> 16: t = (t & 0xffff) + (t >> 16)
    return ~t & 0xffff
answered = 0
for n in range(count):
    data = bytes((n + i) & 255 for i in range(size))
    head = struct.pack('!BBHHH', 8, 0, 0, 77, n)
    s.sendto(struct.pack('!BBHHH', 8, 0, checksum(head + data), 77, n) + data, (address, 0))
    try:
        while True:
            p = s.recv(65536)[20:]
            if p[0] == 0 and struct.unpack('!HH', p[4:8]) == (77, n): break
        answered += p[8:] == data
    except TimeoutError: pass
print(answered)
";

const WRONG: &str = "
lines = [l.split() for l in open('/proc/net/snmp')]
print(sum(int(v[k.index('InCsumErrors')]) for k, v in zip(lines[::2], lines[1::2]) if 'InCsumErrors' in k))
";
