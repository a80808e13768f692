// SPDX-License-Identifier: MIT OR Apache-2.0
//! `tap_rules INTERFACE SECONDS|- [exclusive] [generic] [FILTER]...`: a tap with one rule per filter (in
//! pcap-filter syntax); prints in JSON the number of packets for each rule and of filtered packets.
//!
//! Without filters there are no rules, and everything is captured. With `-` it runs until standard
//! input closes.

use std::env;
use std::io;
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::thread;
use std::time::{Duration, Instant};

use ringtap_capture::tap::{Direction, Mode, Taking, Tap, TapOptions};
use ringtap_filter::{FilterLocation, LinkType, Rule, Rules, text};
use ringtap_pool::counters::Counters;
use ringtap_pool::distributor::{Distributor, ReaderOptions};
use ringtap_pool::reader::{NextBatch, Reader};
use ringtap_pool::source::SourceError;
use ringtap_pool::wake::NoSignal;

fn main() -> ExitCode {
    match run() {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("tap_rules: {error}");
            ExitCode::FAILURE
        }
    }
}

fn run() -> Result<(), SourceError> {
    let usage = "usage: tap_rules INTERFACE SECONDS|- [exclusive] [generic] [FILTER]...";
    let mut arguments = env::args().skip(1).peekable();
    let mut options = TapOptions::new(arguments.next().ok_or(usage)?);
    options.on.direction = Direction::In;
    let seconds: Option<f64> = match arguments.next().ok_or(usage)?.as_str() {
        "-" => None,
        number => Some(number.parse().map_err(|_| usage)?),
    };
    if arguments.next_if(|word| word == "exclusive").is_some() {
        options.taking = Taking::Exclusive;
    }
    if arguments.next_if(|word| word == "generic").is_some() {
        options.on.mode = Mode::Generic;
    }
    let filters: Vec<_> = arguments.collect();
    let mut tap = Tap::attach(&options)?;
    if !filters.is_empty() {
        let rules = (0..).zip(&filters).map(|(number, it)| rule(it, number));
        let places = tap
            .rules
            .classify(&Rules::from(rules.collect::<Result<Vec<_>, _>>()?))?;
        for (filter, place) in filters.iter().zip(places) {
            if let FilterLocation::Reader(reason) = place {
                eprintln!("note: \"{filter}\" does not run in the kernel: {reason}");
            }
        }
    }
    let mut distributor = Distributor::new(
        tap.pool.clone(),
        std::mem::take(&mut tap.lanes),
        Arc::new(NoSignal),
    );
    let (_, mut reader) = distributor.add_reader(&ReaderOptions::default())?;
    eprintln!("ready");
    let end = end_after(seconds)?;
    let mut wanted = vec![0_u64; filters.len()];
    while !end.load(Relaxed) {
        if !(distributor.step()? | read(&mut reader, &mut wanted)?) {
            thread::sleep(Duration::from_micros(250));
        }
    }
    tap.stop();
    while distributor.step()? | read(&mut reader, &mut wanted)? {}
    let lanes = tap.counts().lanes;
    let sum = |of: fn(&Counters) -> u64| lanes.iter().map(of).sum::<u64>();
    println!(
        "{{\"offered\":{},\"captured\":{},\"filtered\":{},\"pool_full\":{},\"wanted\":{wanted:?}}}",
        sum(|lane| lane.offered),
        sum(|lane| lane.delivered),
        sum(|lane| lane.filtered),
        sum(|lane| lane.dropped.pool_full),
    );
    Ok(())
}

fn rule(filter: &str, number: u32) -> Result<Rule, SourceError> {
    let member = 1_u64.checked_shl(number).ok_or("at most 64 filters")?;
    Ok(Rule {
        filter: text::compile(filter, LinkType(1), 65_535)?,
        ..Rule::everything(member)
    })
}

/// Becomes true after this many seconds, or when standard input closes.
fn end_after(seconds: Option<f64>) -> Result<Arc<AtomicBool>, SourceError> {
    let end = Arc::new(AtomicBool::new(false));
    let (set, start) = (Arc::clone(&end), Instant::now());
    let time = seconds.map(Duration::try_from_secs_f64).transpose()?;
    thread::spawn(move || {
        match time {
            Some(time) => thread::sleep(time.saturating_sub(start.elapsed())),
            None => drop(io::copy(&mut io::stdin(), &mut io::sink())),
        }
        set.store(true, Relaxed);
    });
    Ok(end)
}

/// Counts all packets by rule.
fn read(reader: &mut Reader, wanted: &mut [u64]) -> Result<bool, SourceError> {
    let mut any = false;
    while let NextBatch::Batch(batch) = reader.try_next()? {
        any = true;
        for packet in batch.packets() {
            let mask = packet?.slot().mask;
            for (number, count) in (0..).zip(wanted.iter_mut()) {
                *count += mask >> number & 1;
            }
        }
    }
    Ok(any)
}
