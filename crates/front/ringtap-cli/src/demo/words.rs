// SPDX-License-Identifier: MIT OR Apache-2.0
//! The demo's text before and after the run.

use std::time::Duration;

use anyhow::Result;
use ringtap_device::DeviceSpec;
use ringtap_explain::text::{bits_per_second, grouped, rounded};
use ringtap_net::interface::Stats64;
use ringtap_net::private::Standing;
use ringtap_send::SendCounters;

use super::readers::DemoOutcome;
use super::{FILTER, FLOWS, HALF, RX, TX};
use crate::print::line as say;

pub(super) fn begin(standing: Standing, device: &str, seconds: u64, file: &str) -> Result<()> {
    let namespace = match standing {
        Standing::AsBefore => "a network namespace",
        Standing::UserNamespace => "a user and network namespace",
    };
    let taking = if DeviceSpec::kind_of(device).is_some_and(|kind| !kind.hooks.is_empty()) {
        "an XDP program writes them into the pool; the host stack does not get them"
    } else {
        "AF_PACKET gives them to a thread that copies them into the pool"
    };
    say(format_args!(
        "network   {TX} -> {RX}, a veth pair in {namespace} that only this process is in\n\
         sender    64-byte packets of {FLOWS} flows at 1 Gbit/s (1,488,095/s), or what this \
         machine can, for {seconds} s\n\
         capture   {device}: {taking}\n\
         reader 1  counts all packets\n\
         reader 2  records one flow of {FLOWS}, \"{FILTER}\",\n          \
         to {file}; all of them would be 150 MB a second\n\
         group     two readers that share \"{HALF}\" by flow\n\
         probe     makes a record of each flow\n\
         the hub captures once; each reader's filter runs in the capture and says which packets \
         are its own"
    ))
}

/// Compares sent with captured packets, and suggests next steps.
pub(super) fn end(
    outcome: &DemoOutcome,
    counters: SendCounters,
    kernel: &Stats64,
    standing: Standing,
) -> Result<()> {
    let seconds = Duration::from_nanos(counters.elapsed_ns).as_secs_f64();
    let rates = counters.rates_since(&SendCounters::default());
    say(format_args!(
        "\nSent in {seconds:.1} s: {} packets, {}/s, {} L1.",
        grouped(counters.sent),
        grouped(rounded(rates.pps)),
        bits_per_second(rates.bps),
    ))?;
    say(comparison(kernel, outcome.counted.offered))?;
    let file = &outcome.file.file;
    say(format_args!(
        "The file: {file}. Read it with `ringtap count -r {file}`, `tcpdump -r {file}` or Wireshark."
    ))?;
    if standing == Standing::UserNamespace {
        say(
            "With root (`sudo ringtap demo`) packets are captured by the tap instead: an XDP \
             program that\nwrites them into the pool at a small part of AF_PACKET's cost, and the \
             sender uses XDP as well.\n`make bench` measures both.",
        )?;
    }
    if outcome.is_good() {
        return say("The namespace ends with this process; nothing else was changed.");
    }
    say("The demo FAILED: see the counters above.")
}

/// Compares the kernel's counter of sent packets with the capture's counter of offered packets.
fn comparison(kernel: &Stats64, offered: u64) -> String {
    let (tx_packets, dropped) = (kernel.tx_packets, kernel.tx_dropped);
    let counts = format!(
        "Kernel's counter of packets out of {TX}: {}; offered to the capture at {RX}: {}; difference: ",
        grouped(tx_packets),
        grouped(offered),
    );
    let why = if tx_packets == offered {
        "none.".to_owned()
    } else if offered > tx_packets {
        let more = grouped(offered - tx_packets);
        format!("{more} more came than {TX} counts.")
    } else {
        let fewer = grouped(tx_packets - offered);
        format!("{fewer} left {TX} and did not reach the capture: {RX} dropped them before it.")
    };
    let refused = match dropped {
        0 => String::new(),
        _ => format!(
            "\n{} more never left: {RX} had no room for them ({TX} counts them as tx_dropped).",
            grouped(dropped)
        ),
    };
    format!("{counts}{why}{refused}")
}
