// SPDX-License-Identifier: MIT OR Apache-2.0
//! Two hosts, each in its own namespace, and a namespace between them for a bridge.

use std::sync::atomic::{AtomicU16, Ordering::Relaxed};

use crate::{LIMIT, Namespace, sending_cpu};

/// Whether the hosts' interfaces accept packets from XDP.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ends {
    /// They accept packets from XDP: GRO is on.
    Napi,
    /// They do not: a bridge has to use the stack's buffers.
    Plain,
}

/// `left` (10.9.0.1) and `right` (10.9.0.2), whose wires end in `middle` as `a1` and `b1`.
pub struct Wire {
    /// One host.
    pub left: Namespace,
    /// The namespace of the bridge.
    pub middle: Namespace,
    /// The other host.
    pub right: Namespace,
}

impl Wire {
    /// All interfaces have this MTU.
    #[must_use]
    pub fn new(test: &str, mtu: u32, ends: Ends) -> Self {
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
        }
    }

    /// Sends each word in a UDP packet from left to right; returns the words that arrive.
    ///
    /// The hosts resolve their addresses first, and all words leave from one CPU: else packets that
    /// wait for an address could be overtaken. Each call uses another port, so that no word of an
    /// earlier call arrives.
    pub fn words(&self, words: &[String]) -> Vec<String> {
        assert!(self.answers(), "the hosts do not reach each other");
        let port = PORT.fetch_add(1, Relaxed).to_string();
        let server = self.right.spawn("python3", &["-c", HEAR, &port]);
        server.wait_for_stderr("listening", LIMIT);
        let (cpu, words) = (sending_cpu().to_string(), words.join(","));
        let say = ["-c", SAY, "10.9.0.2", &port, &cpu, &words];
        let sent = self.left.run("python3", &say);
        assert!(sent.status.success(), "{}", sent.stderr);
        let heard = server.wait(LIMIT);
        assert!(heard.status.success(), "{}", heard.stderr);
        heard.stdout.lines().map(String::from).collect()
    }

    /// Sends each flow's words in UDP packets from a socket of its own, from left to right, with a second between two
    /// words; returns the words that arrive.
    pub fn flows(&self, flows: &[&[&str]]) -> Vec<String> {
        assert!(self.answers(), "the hosts do not reach each other");
        let port = PORT.fetch_add(1, Relaxed).to_string();
        let server = self.right.spawn("python3", &["-c", HEAR, &port]);
        server.wait_for_stderr("listening", LIMIT);
        let flows: Vec<_> = flows.iter().map(|words| words.join(",")).collect();
        let say = ["-c", SAY_APART, "10.9.0.2", &port, &flows.join(";")];
        let sent = self.left.run("python3", &say);
        assert!(sent.status.success(), "{}", sent.stderr);
        let heard = server.wait(LIMIT).success();
        heard.stdout.lines().map(String::from).collect()
    }

    /// Sends 100 words; fails unless the 34 words that begin with `forbidden` are dropped, and the
    /// others arrive in order.
    pub fn drops_34_forbidden_words_of_100(&self) {
        let words: Vec<_> = (0..100)
            .map(|number| match number % 3 {
                0 => format!("forbidden {number}"),
                _ => format!("allowed {number}"),
            })
            .collect();
        let allowed = words.iter().filter(|word| word.starts_with('a'));
        let allowed: Vec<_> = allowed.cloned().collect();
        assert_eq!(self.words(&words), allowed, "in order, and nothing else");
    }

    /// Sends `bytes` by TCP from one host to the other; fails unless the same bytes arrive.
    pub fn tcp(&self, from: &Namespace, to: &Namespace, address: &str, bytes: u32) {
        let server = to.spawn("python3", &["-c", RECEIVE]);
        server.wait_for_stderr("listening", LIMIT);
        let sent = from.run("python3", &["-c", SEND, address, &bytes.to_string()]);
        assert!(sent.status.success(), "{}", sent.stderr);
        let received = server.wait(LIMIT);
        assert!(received.status.success(), "{}", received.stderr);
        assert_eq!(received.stdout, sent.stdout, "length and digest");
    }

    /// Sends `count` pings with `bytes` of data; returns the number of correct answers.
    ///
    /// Waits long for each answer, and ends after the first missing one.
    pub fn ping(&self, from: &Namespace, address: &str, count: u32, bytes: u32) -> u32 {
        echo(from, address, count, bytes, Wait::Long)
    }

    /// As [`ping`](Self::ping), but expects no answers: waits only a moment for each.
    pub fn ping_in_vain(&self, from: &Namespace, address: &str, count: u32, bytes: u32) -> u32 {
        echo(from, address, count, bytes, Wait::Short)
    }

    /// Whether `right` answers `left` within 30 tries: hosts repeat address requests only slowly.
    pub fn answers(&self) -> bool {
        (0..30).any(|_| self.ping_in_vain(&self.left, "10.9.0.2", 1, 56) == 1)
    }

    /// Packets with wrong checksums that the hosts received.
    pub fn wrong_checksums(&self) -> u64 {
        [&self.left, &self.right]
            .into_iter()
            .map(|host| {
                let text = host.run("python3", &["-c", WRONG]).stdout;
                text.trim().parse::<u64>().expect("a number")
            })
            .sum()
    }
}

/// The next port to which words go.
static PORT: AtomicU16 = AtomicU16::new(10_000);

/// Time that a ping waits for its answer.
enum Wait {
    Long,
    Short,
}

fn echo(from: &Namespace, address: &str, count: u32, bytes: u32, wait: Wait) -> u32 {
    let seconds = match wait {
        Wait::Long => "40",
        Wait::Short => "2",
    };
    let (count, bytes) = (count.to_string(), bytes.to_string());
    let done = from.run("python3", &["-c", PING, address, &count, &bytes, seconds]);
    assert!(done.status.success(), "{}", done.stderr);
    done.stdout.trim().parse().expect("a number")
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
c = socket.create_connection((sys.argv[1], 5001), 50)
h, n, r = hashlib.sha256(), 0, random.Random(7)
while n < int(sys.argv[2]):
    d = r.randbytes(65536); c.sendall(d); h.update(d); n += len(d)
c.close()
print(n, h.hexdigest())
";

/// Prints received words until the sender's end mark, which the sender repeats until confirmed.
const HEAR: &str = "
import socket, sys
s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
s.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1 << 20)
s.bind(('0.0.0.0', int(sys.argv[1])))
print('listening', file=sys.stderr, flush=True)
while True:
    word, peer = s.recvfrom(2048)
    if word == b'end': break
    print(word.decode())
s.sendto(b'heard', peer)
";

const SAY: &str = "
import os, socket, sys
os.sched_setaffinity(0, [int(sys.argv[3])])
s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
s.settimeout(0.5)
peer = (sys.argv[1], int(sys.argv[2]))
for word in sys.argv[4].split(','): s.sendto(word.encode(), peer)
for _ in range(80):
    s.sendto(b'end', peer)
    try:
        if s.recv(10) == b'heard': break
    except (TimeoutError, ConnectionRefusedError): pass
";

const SAY_APART: &str = "
import socket, sys, time
peer = (sys.argv[1], int(sys.argv[2]))
for flow in sys.argv[3].split(';'):
    s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    for word in flow.split(','):
        s.sendto(word.encode(), peer)
        time.sleep(1)
s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
s.settimeout(0.5)
for _ in range(80):
    s.sendto(b'end', peer)
    try:
        if s.recv(10) == b'heard': break
    except (TimeoutError, ConnectionRefusedError): pass
";

const PING: &str = "
import socket, struct, sys
s = socket.socket(socket.AF_INET, socket.SOCK_RAW, socket.IPPROTO_ICMP)
s.setsockopt(socket.IPPROTO_IP, 10, 2)  # IP_MTU_DISCOVER, IP_PMTUDISC_DO: no fragments
address, count, size = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
wait = float(sys.argv[4])
s.settimeout(wait)
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
    except TimeoutError:
        if wait > 2: break
print(answered)
";

const WRONG: &str = "
lines = [l.split() for l in open('/proc/net/snmp')]
print(sum(int(v[k.index('InCsumErrors')]) for k, v in zip(lines[::2], lines[1::2]) if 'InCsumErrors' in k))
";
