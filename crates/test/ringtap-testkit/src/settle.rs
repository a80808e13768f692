// SPDX-License-Identifier: MIT OR Apache-2.0
//! Waiting until the kernel has handed on what was sent from one CPU.
//!
//! A packet that is sent into a veth pair waits in its CPU's list of work, and is done before the
//! sending call returns, or, when the machine is busy, later in a thread of the kernel. A datagram
//! to oneself over the loopback joins the same list: when it is back, what stood before it is done.

use std::net::UdpSocket;
use std::thread;

use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};

/// More than a packet of the tests has interfaces on its way.
const ROUNDS: usize = 8;

/// The CPU from which the tests send: the first that this process may use.
///
/// # Panics
///
/// When the system does not tell.
#[must_use]
pub fn sending_cpu() -> usize {
    let allowed = sched_getaffinity(None).expect("a process may ask for its CPUs");
    let mut numbers = 0..CpuSet::MAX_CPU;
    let first = numbers.find(|cpu| allowed.is_set(*cpu));
    first.expect("a process that runs has a CPU")
}

/// Waits until packets that were sent from any CPU that this process may use have arrived.
///
/// # Panics
///
/// As [`settle`].
pub fn settle_everywhere() {
    let allowed = sched_getaffinity(None).expect("a process may ask for its CPUs");
    let numbers = 0..CpuSet::MAX_CPU;
    numbers.filter(|cpu| allowed.is_set(*cpu)).for_each(settle);
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
