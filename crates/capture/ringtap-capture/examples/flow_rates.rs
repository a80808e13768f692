// SPDX-License-Identifier: MIT OR Apache-2.0
//! `flow_rates TAPPED SENDING RULES`: rate of a tap for 64-byte packets of 65,536 flows without a table of flows and with
//! RULES rules of which none matches, in turn, and the rules set in a second; prints JSON.

use std::env;
use std::net::IpAddr;
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use ringtap_capture::tap::{Direction, Taking, Tap, TapOptions};
use ringtap_device::Rate;
use ringtap_filter::flow::{CutOff, FlowAction, FlowId, FlowRule, FlowSettings, StandingCutOff};
use ringtap_filter::{Rule, Rules};
use ringtap_packet::Traffic;
use ringtap_pool::distributor::{Distributor, ReaderOptions};
use ringtap_pool::reader::NextBatch;
use ringtap_pool::source::SourceError;
use ringtap_pool::wake::NoSignal;
use ringtap_send::{Load, Sender, SenderOptions};

const UDP: u8 = 17;
const ROUNDS: u32 = 5;
const ROUND: Duration = Duration::from_secs(2);
/// Of a round, until the sender runs evenly.
const WARM_UP: Duration = Duration::from_millis(500);
const FLOWS: u32 = 65_536;

fn main() -> Result<(), SourceError> {
    let usage = "usage: flow_rates TAPPED SENDING RULES";
    let mut arguments = env::args().skip(1);
    let tapped = arguments.next().ok_or(usage)?;
    let sending = arguments.next().ok_or(usage)?;
    let count: u32 = arguments.next().ok_or(usage)?.parse()?;
    let mut options = TapOptions::new(tapped);
    options.on.direction = Direction::In;
    options.taking = Taking::Exclusive;
    let mut tap = Tap::attach(&options)?;
    let mut distributor = Distributor::new(
        tap.pool.clone(),
        std::mem::take(&mut tap.lanes),
        Arc::new(NoSignal),
    );
    let (_, mut reader) = distributor.add_reader(&ReaderOptions::default())?;
    thread::spawn(move || {
        loop {
            let mut any = distributor.step().unwrap_or(false);
            while let Ok(NextBatch::Batch(_)) = reader.try_next() {
                any = true;
            }
            if !any {
                thread::sleep(Duration::from_micros(250));
            }
        }
    });
    let traffic = Traffic {
        flows: FLOWS,
        ..Traffic::default()
    };
    let load = Load::Made {
        traffic,
        rate: Rate::Max,
    };
    let plain = Rules::from(vec![Rule::everything(1)]);
    let settings = FlowSettings {
        capacity: 2 * count.max(FLOWS),
        ..FlowSettings::default()
    };
    let with = |settings: &FlowSettings| Rules {
        flows: Some(settings.clone()),
        ..plain.clone()
    };
    let standing = FlowSettings {
        standing: vec![StandingCutOff {
            members: 1,
            cut: CutOff {
                packets: Some(20),
                bytes: None,
            },
        }],
        ..settings.clone()
    };
    let mut rule_rates = Vec::new();
    let mut rates = [const { Vec::new() }; 3];
    for _ in 0..ROUNDS {
        tap.rules.classify(&plain)?;
        rates[0].push(rate(&mut tap, &sending, &load)?);
        tap.rules.classify(&with(&settings))?;
        let table = tap.rules.flow_rules().ok_or("no table")?;
        let begin = Instant::now();
        for number in 0..count {
            table.set(&rule(number)?, 1.into())?;
        }
        rule_rates.push(f64::from(count) / begin.elapsed().as_secs_f64());
        rates[1].push(rate(&mut tap, &sending, &load)?);
        tap.rules.classify(&with(&standing))?;
        rates[2].push(rate(&mut tap, &sending, &load)?);
    }
    println!(
        "{{\"without_pps\":{:.0?},\"with_rules_pps\":{:.0?},\"cut_off_pps\":{:.0?},\"rules_per_s\":{rule_rates:.0?}}}",
        rates[0], rates[1], rates[2]
    );
    std::process::exit(0)
}

/// A rule for a flow that is not sent.
fn rule(number: u32) -> Result<FlowRule, SourceError> {
    let [_, a, b, c] = number.to_be_bytes();
    let ends: [(IpAddr, u16); 2] = [([10, a, b, c].into(), 1000), ([11, 0, 0, 1].into(), 53)];
    Ok(FlowRule {
        flow: FlowId::new(ends[0], ends[1], UDP, [0; 2])?,
        action: FlowAction::Ignore,
        lasts_ns: None,
    })
}

/// Packets per second that the tap sees.
fn rate(tap: &mut Tap, sending: &str, load: &Load) -> Result<f64, SourceError> {
    let sender = Sender::start(SenderOptions::new(sending, load.clone()))?;
    thread::sleep(WARM_UP);
    let mut offered = || -> u64 { tap.counts().lanes.iter().map(|lane| lane.offered).sum() };
    let (before, begin) = (offered(), Instant::now());
    thread::sleep(ROUND);
    let (after, time) = (offered(), begin.elapsed().as_secs_f64());
    sender.stop();
    sender.finish()?;
    Ok((after - before) as f64 / time)
}
