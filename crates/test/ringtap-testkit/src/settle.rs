// SPDX-License-Identifier: MIT OR Apache-2.0
//! Waits until the kernel has delivered packets that were sent from one CPU.
//!
//! A packet that enters a veth pair waits in the backlog of its CPU. The kernel processes the backlog
//! before the sending call returns or, on a busy machine, later in a thread. A datagram over the
//! loopback interface enters the same backlog: its arrival proves that earlier packets are processed.

use std::net::UdpSocket;
use std::thread;

use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};

/// More than the number of interfaces on any packet's way in tests.
const ROUNDS: usize = 8;

/// CPUs that this process may use, in ascending order.
///
/// # Panics
///
/// When the system does not tell.
#[must_use]
pub fn usable_cpus() -> Vec<usize> {
    let allowed = sched_getaffinity(None).expect("a process may ask for its CPUs");
    let numbers = 0..CpuSet::MAX_CPU;
    numbers.filter(|cpu| allowed.is_set(*cpu)).collect()
}

/// The CPU from which the tests send: the first that this process may use.
///
/// # Panics
///
/// As [`usable_cpus`].
#[must_use]
pub fn sending_cpu() -> usize {
    usable_cpus()[0]
}

/// Waits until packets that were sent from any CPU that this process may use have arrived.
///
/// # Panics
///
/// As [`settle`].
pub fn settle_everywhere() {
    usable_cpus().into_iter().for_each(settle);
}

/// Waits until packets that were sent from `cpu` have arrived where they go.
///
/// # Panics
///
/// When the loopback does not carry a datagram.
pub fn settle(cpu: usize) {
    let wait = move || {
        let mut only = CpuSet::new();
        only.set(cpu);
        sched_setaffinity(None, &only).expect("the CPU may be used");
        let socket = UdpSocket::bind("127.0.0.1:0").expect("the loopback is up");
        let own = socket.local_addr().expect("a bound socket has an address");
        for _ in 0..ROUNDS {
            socket.send_to(&[0], own).expect("the loopback takes it");
            socket.recv(&mut [0]).expect("the loopback gives it back");
        }
    };
    thread::spawn(wait).join().expect("the CPU was settled");
}
