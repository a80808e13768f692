// SPDX-License-Identifier: MIT OR Apache-2.0
//! Senders that fill several lanes of a tap, and the check that their packets come in time order.

use std::collections::BTreeMap;

use crate::{Namespace, Running};

/// Packets that each sender sends before its end mark.
pub const LANE_PACKETS: u64 = 60_000;

/// Offsets of the sender's number, the packet's number and the end mark in a frame.
const SENDER: usize = 14;
const NUMBER: usize = 18;
const END: usize = 26;

/// Sends numbered packets, moves to the next CPU of the list after each 500th, and then repeats
/// its last packet with an end mark until it is killed: any single packet may be lost on the way. The
/// kernel refuses a packet while the interface's queue is full.
const SEND: &str = "
import os, socket, struct, sys, time
cpus = [int(cpu) for cpu in sys.argv[2].split(',')]
s = socket.socket(socket.AF_PACKET, socket.SOCK_RAW)
s.bind(('tx0', 0))
head = bytes(12) + b'\\x88\\xb5' + struct.pack('>I', int(sys.argv[1]))
count = int(sys.argv[3])
def send(n, end):
    while True:
        try: return s.send(head + struct.pack('>QB', n, end) + bytes(40))
        except OSError: time.sleep(0.001)
for n in range(count):
    if n % 500 == 0: os.sched_setaffinity(0, [cpus[n // 500 % len(cpus)]])
    send(n, 0)
while True:
    time.sleep(0.05)
    send(count, 1)
";

/// Starts sender `number` on `tx0`; it sends on each of `cpus` in turn, with EtherType 0x88b5.
#[must_use]
pub fn send_on(net: &Namespace, number: usize, cpus: &[usize]) -> Running {
    let cpus: Vec<_> = cpus.iter().map(ToString::to_string).collect();
    let (number, count) = (number.to_string(), LANE_PACKETS.to_string());
    net.spawn("python3", &["-c", SEND, &number, &cpus.join(","), &count])
}

/// Packets of these senders, in the order in which a reader got them.
#[derive(Debug, Default)]
pub struct LaneOrder {
    last_time: u64,
    /// Per sender: the next number, the packets, and whether the end mark came.
    senders: BTreeMap<u64, (u64, u64, bool)>,
    /// Number of packets that are earlier than one before them.
    pub late: u64,
}

impl LaneOrder {
    /// Adds a packet with this time, in any unit.
    pub fn add(&mut self, time: u64, frame: &[u8]) {
        let number = |from: usize, to: usize| {
            let bytes = frame[from..to].iter();
            bytes.fold(0, |all, byte| all << 8 | u64::from(*byte))
        };
        let (next, packets, ended) = self.senders.entry(number(SENDER, NUMBER)).or_default();
        let (this, is_end) = (number(NUMBER, END), frame[END] == 1);
        self.late += u64::from(time < self.last_time || this < *next);
        self.last_time = self.last_time.max(time);
        *next = this + u64::from(!is_end);
        *packets += u64::from(!is_end);
        *ended |= is_end;
    }

    /// Whether this many senders' end marks came.
    #[must_use]
    pub fn has_ended(&self, senders: usize) -> bool {
        let ended = self.senders.values().filter(|(_, _, ended)| *ended);
        ended.count() == senders
    }

    /// Checks that no packet was late, and that most packets of each sender came.
    ///
    /// # Panics
    ///
    /// When that is not so.
    pub fn check(&self) {
        assert_eq!(self.late, 0, "late packets: {self:?}");
        for (_, packets, _) in self.senders.values() {
            assert!(*packets > LANE_PACKETS / 2, "{self:?}");
        }
    }
}
