// SPDX-License-Identifier: MIT OR Apache-2.0
//! `ringtap inline`: an inline reader, which decides by filter and content which packets pass a bridge.

use std::collections::HashMap;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use anyhow::{Result, ensure};
use clap::Args;
use ringtap::{Batch, Capture};
use ringtap_client::{
    Connection, Lasting, PacketVerdict, Receiver, SubscriptionRequest, Verdict, VerdictSender,
    default_socket,
};
use ringtap_device::{DeviceSpec, Options};
use ringtap_explain::report;
use ringtap_explain::text;
use ringtap_filter::Program;
use ringtap_filter::flow::{FlowId, FlowPacket};
use ringtap_filter::hash::Link;
use ringtap_net::affinity::Steered;

use crate::completion;
use crate::interrupt::EndRequests;
use crate::print;
use crate::seeing::HubSocketArgs;
use crate::session::{BatchConsumer, Flow, receive};
use crate::{UsageError, bridge, reading};

/// Decides which packets pass a bridge that was started with `--inline`.
#[derive(Args, Debug)]
#[command(after_help = EXAMPLES)]
pub(crate) struct InlineArgs {
    /// The bridge's group, `hub:NAME`, with `?socket=PATH` if need be.
    #[arg(short = 'i', long = "interface", value_name = "DEVICE", add = completion::devices())]
    device: DeviceSpec,

    #[command(flatten)]
    hub: HubSocketArgs,

    /// Drop what this filter takes (pcap-filter syntax).
    #[arg(long, value_name = "FILTER")]
    drop: Option<String>,

    /// Drop packets that contain these bytes anywhere, headers included; more than once if need be.
    #[arg(long, value_name = "TEXT")]
    drop_text: Vec<String>,

    /// Drop all further packets of a flow of which a packet was dropped; the kernel does.
    #[arg(long)]
    drop_flows: bool,

    /// Pass all further packets of a flow once this many of its packets have passed; the kernel does.
    #[arg(long, value_name = "PACKETS", value_parser = clap::value_parser!(u32).range(1..))]
    pass_after: Option<u32>,

    /// A verdict on a flow ends when the flow has no packets for so long.
    #[arg(long, value_name = "SECONDS", default_value = "300", value_parser = crate::reading::seconds)]
    flow_idle: Duration,

    /// Stop after this many seconds; the bridge then does as its --no-verdict says.
    #[arg(long, value_name = "SECONDS", value_parser = crate::reading::seconds)]
    duration: Option<Duration>,

    /// The counters as one JSON object.
    #[arg(long)]
    json: bool,
}

const EXAMPLES: &str = "\
Examples:
  ringtap bridge eth0 eth1 --inline ips                 in one terminal, and in another:
  ringtap inline -i hub:ips --drop-text 'cmd.exe'
  ringtap inline -i hub:ips --drop 'tcp port 23' --drop-flows
  ringtap inline -i hub:ips --drop-text 'cmd.exe' --drop-flows --pass-after 100

A program of your own does the same by the Rust library (examples/inline_ips.rs), the C library
(ringtap.h, examples/inline_ips.c) or the protocol.";

/// Decides about packets and counts the verdicts.
struct Decider {
    verdicts: VerdictSender,
    capture: Capture,
    filter: Option<Program>,
    texts: Vec<Vec<u8>>,
    dropped: u64,
    lasting: Lasting,
    drops_flows: bool,
    pass_after: Option<u32>,
    /// Packets of flows that passed, with `pass_after`.
    passed: HashMap<FlowId, u32>,
}

/// Flows whose packets are counted; with more, all counts begin again.
const MAX_COUNTED: usize = 65_536;

pub(crate) fn run(args: &InlineArgs) -> Result<ExitCode> {
    let device = &args.device;
    ensure!(
        device.kind.names_a_group() && !device.kind.is_of_host,
        UsageError(format!(
            "{device} is no group of a bridge: expected hub:NAME"
        ))
    );
    let others = Options {
        socket: None,
        ..device.options.clone()
    };
    ensure!(
        others == Options::default(),
        UsageError(format!(
            "{device}: an inline reader has no option but socket"
        ))
    );
    ensure!(
        args.drop_text.iter().all(|text| !text.is_empty()),
        UsageError("--drop-text needs a text: every packet contains an empty one".to_owned())
    );
    let filter = args
        .drop
        .as_ref()
        .map(|text| ringtap::compile(text, &bridge::ethernet()));
    let requests = EndRequests::new()?;
    let request = SubscriptionRequest::new(&device.name, "inline");
    let own = device.options.socket.as_ref().map(PathBuf::from);
    let socket = args
        .hub
        .socket
        .clone()
        .or(own)
        .unwrap_or_else(default_socket);
    let (subscription, connection) = Connection::attach(&socket, &request)?;
    let mut decider = Decider {
        capture: Capture::new(Receiver::new(subscription, connection.clone())?),
        filter: filter.transpose()?,
        texts: args
            .drop_text
            .iter()
            .map(|text| text.as_bytes().to_vec())
            .collect(),
        dropped: 0,
        lasting: Lasting::UntilIdle(args.flow_idle),
        drops_flows: args.drop_flows,
        pass_after: args.pass_after,
        passed: HashMap::new(),
        verdicts: connection.inline()?,
    };
    let control = decider.capture.control();
    requests.stop(control, args.duration, &Steered::default())?;
    let passes_all = args.drop.is_none() && args.drop_text.is_empty();
    print::note(format_args!(
        "ringtap: deciding for {device}{}",
        if passes_all {
            "; every packet passes: --drop and --drop-text name packets to drop"
        } else {
            ""
        }
    ));
    receive(Duration::from_secs(1), &mut decider)?;
    let counters = decider.capture.counters()?;
    let device = device.to_string();
    print::line(if args.json {
        report::json(&device, "inline", None, &counters)?
    } else {
        report::counters(&device, "the bridge", &counters)
    })?;
    print::note(format_args!(
        "ringtap: dropped: {}",
        text::packets(decider.dropped)
    ));
    reading::require_balance(&counters)?;
    Ok(ExitCode::SUCCESS)
}

impl Decider {
    fn decide(&self, data: &[u8], wire_length: u32) -> Verdict {
        let filter = self.filter.as_ref();
        let is_taken = filter.is_some_and(|filter| filter.matches(data, wire_length));
        let contains = |text: &Vec<u8>| data.windows(text.len()).any(|bytes| bytes == text);
        if is_taken || self.texts.iter().any(contains) {
            Verdict::Drop
        } else {
            Verdict::Pass
        }
    }

    /// Whether the verdict on a packet is one on its flow.
    fn is_for_flow(&mut self, data: &[u8], wire_length: u32, verdict: Verdict) -> bool {
        let Some(most) = self.pass_after.filter(|_| verdict == Verdict::Pass) else {
            return verdict == Verdict::Drop && self.drops_flows;
        };
        let Some(packet) = FlowPacket::from_bytes(data, wire_length, Link::Ethernet) else {
            return false;
        };
        if self.passed.len() >= MAX_COUNTED {
            self.passed.clear();
        }
        let passed = self.passed.entry(packet.key).or_default();
        *passed += 1;
        let is_enough = *passed >= most;
        if is_enough {
            self.passed.remove(&packet.key);
        }
        is_enough
    }
}

impl BatchConsumer for Decider {
    fn capture(&mut self) -> &mut Capture {
        &mut self.capture
    }

    fn batch(&mut self, batch: &Batch) -> Result<Flow> {
        let lane = batch.lane();
        for packet in batch.packets() {
            let packet = packet?.packet;
            let verdict = self.decide(packet.data, packet.slot().wire_length);
            self.dropped += u64::from(verdict == Verdict::Drop);
            let wire_length = packet.slot().wire_length;
            let is_for_flow = self.is_for_flow(packet.data, wire_length, verdict);
            let sequence = packet.sequence;
            self.verdicts.push(PacketVerdict {
                lane,
                sequence,
                verdict,
                for_flow: is_for_flow.then_some(self.lasting),
            })?;
        }
        self.verdicts.send();
        let _counted = self.capture.packets(batch).count();
        Ok(Flow::Go)
    }
}
