// SPDX-License-Identifier: MIT OR Apache-2.0
//! What reaches the host's network stack behind the programs of an interface.

use ringtap_testkit::{LIMIT, Namespace, Running};

/// Lets the host look at a packet although it is not for the host's MAC address.
pub(crate) fn for_everyone(mut frame: Vec<u8>) -> Vec<u8> {
    frame[..6].fill(0xff);
    frame
}

/// Number of IP packets that the host has received. Packet sockets see more: those that a program at traffic
/// control drops later.
pub(crate) fn received(net: &Namespace) -> u64 {
    let mut command = net.command("cat");
    command.arg("/proc/net/snmp");
    let table = Running::start(command).wait(LIMIT).success().stdout;
    let numbers = table.lines().filter(|line| line.starts_with("Ip: ")).nth(1);
    let number = numbers.and_then(|line| line.split_whitespace().nth(3));
    number.and_then(|number| number.parse().ok()).expect(&table)
}
