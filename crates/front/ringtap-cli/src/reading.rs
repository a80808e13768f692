// SPDX-License-Identifier: MIT OR Apache-2.0
//! What every reading verb does alike: filter, tally, limits, lines, the final counters.
#![forbid(unsafe_code)]

use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Result, bail};
use clap::Args;
use ringtap_client::{Batch, Control, ControlError, Receiver, Tally};
use ringtap_ipc::protocol::Snapshot;
use ringtap_pool::counters::Counters;
use ringtap_pool::reader::Packet;
use ringtap_pool::source::Facts;

use crate::affinity::Placement;
use crate::print;
use crate::report;
use crate::session::Flow;

/// Where the numbers of counters come from whose hub cannot be asked any more.
const ALONE: &str =
    "by this reader's own count: what was lost before it is not known, the hub left";

/// When to stop, where to run, what to print.
#[derive(Args, Debug, Clone)]
pub(crate) struct ReadingArgs {
    /// Stop after this many packets that pass the filter.
    #[arg(short = 'c', long, value_name = "PACKETS", value_parser = clap::value_parser!(u64).range(1..))]
    count: Option<u64>,

    /// Stop after this many seconds.
    #[arg(long, value_name = "SECONDS", value_parser = seconds)]
    pub(crate) duration: Option<Duration>,

    /// Seconds between lines.
    #[arg(long, value_name = "SECONDS", default_value = "1", value_parser = seconds)]
    pub(crate) interval: Duration,

    /// Give packets of all lanes in the order of their times; one waits at most so many
    /// milliseconds for an earlier one, and later ones are counted.
    #[arg(long, value_name = "MILLISECONDS")]
    in_order: Option<u32>,

    /// What `ringtap top` and `why` call this reader.
    #[arg(long, value_name = "NAME")]
    pub(crate) name: Option<String>,

    /// CPUs: `1`, `reader=1,capture=0`, or `auto`. `irq=0` moves the interface's interrupts, and
    /// `napi=threaded` has it polled by threads; both go back at the end.
    #[arg(long, value_name = "CPUS", default_value = "")]
    pub(crate) cpu: Placement,

    /// One JSON object a line instead of text.
    #[arg(long)]
    pub(crate) json: bool,

    /// Also the counters of every lane.
    #[arg(short, long)]
    verbose: bool,

    /// Only the final counters.
    #[arg(short, long)]
    pub(crate) quiet: bool,
}

impl ReadingArgs {
    /// The receiver as these ask for it.
    pub(crate) fn arrange(&self, receiver: Receiver) -> Receiver {
        match self.in_order {
            None => receiver,
            Some(window) => receiver.in_order(Duration::from_millis(window.into())),
        }
    }

    /// Without limits, and only the final counters is printed.
    pub(crate) fn silent() -> Self {
        ReadingArgs {
            count: None,
            duration: None,
            interval: Duration::from_secs(1),
            in_order: None,
            name: None,
            cpu: Placement::default(),
            json: false,
            verbose: false,
            quiet: true,
        }
    }
}

/// A positive number of seconds.
pub(crate) fn seconds(text: &str) -> Result<Duration> {
    match text.parse().map(Duration::try_from_secs_f64) {
        Ok(Ok(duration)) if !duration.is_zero() => Ok(duration),
        _ => bail!("want a number of seconds above 0"),
    }
}

/// What the hub counted for a reader; `None` once it has left.
fn counts(control: &dyn Control) -> Result<Option<Snapshot>> {
    match control.snapshot() {
        Ok(counts) => Ok(Some(counts)),
        Err(ControlError::Gone(_)) => Ok(None),
        Err(refused) => Err(refused.into()),
    }
}

/// The counters that follows.
fn counters_of(tally: &Tally, counts: Option<&Snapshot>) -> Counters {
    counts.map_or_else(|| tally.alone(), |counts| tally.total(counts))
}

/// How well the order was kept, for the end of counters.
pub(crate) fn order_kept(receiver: &Receiver) -> Option<String> {
    let order = receiver.order()?;
    let share = report::as_f64(order.late) / report::as_f64(order.packets.max(1));
    Some(format!(
        "in order of time: {} packets, {} later than the window allows ({:.4} %)",
        report::grouped(order.packets),
        report::grouped(order.late),
        share * 100.0
    ))
}

/// One reader at work.
pub(crate) struct Reading<'a> {
    args: &'a ReadingArgs,
    control: Arc<dyn Control>,
    facts: Facts,
    name: &'static str,
    tally: Tally,
    begun: Instant,
    last: (Instant, Counters),
    sink: Sink,
    /// Packets that were delivered and then lost, and their bytes on the wire.
    lost: (u64, u64),
}

/// Where lines go.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Sink {
    /// As usual.
    Stdout,
    /// When standard output carries packets.
    Stderr,
}

impl Sink {
    fn say(self, line: &str) -> Result<()> {
        match self {
            Sink::Stdout => print::line(line)?,
            Sink::Stderr => print::note(line),
        }
        Ok(())
    }
}

impl<'a> Reading<'a> {
    /// A reader called `name` in counters.
    pub(crate) fn new(
        args: &'a ReadingArgs,
        receiver: &Receiver,
        facts: &Facts,
        name: &'static str,
    ) -> Self {
        let now = Instant::now();
        let last = (now, Counters::default());
        Reading {
            args,
            control: Arc::clone(receiver.control()),
            facts: facts.clone(),
            name,
            tally: Tally::new(receiver.lanes()),
            begun: now,
            last,
            sink: Sink::Stdout,
            lost: (0, 0),
        }
    }

    /// Prints to this sink from now on.
    pub(crate) fn to(self, sink: Sink) -> Self {
        Reading { sink, ..self }
    }

    /// Hands each packet that passes the filter to `each`, counts all, and minds the limit.
    ///
    /// `each` may ask for the counters before that packet. A packet is delivered once `each` took
    /// it without an error.
    #[inline]
    pub(crate) fn batch(
        &mut self,
        batch: &Batch,
        mut each: impl FnMut(Packet<'_>, &dyn Fn() -> Result<Counters>) -> Result<()>,
    ) -> Result<Flow> {
        let lane = batch.lane();
        let mut left = self
            .args
            .count
            .map_or(u64::MAX, |limit| limit - self.tally.packets());
        self.tally.begin(batch);
        for packet in batch.packets() {
            let judged = packet?;
            if !judged.is_ours() {
                self.tally.at(lane).count(&judged);
                continue;
            }
            let packet = judged.packet;
            let counters = || Ok(counters_of(&self.tally, counts(&*self.control)?.as_ref()));
            // By value: a packet in memory would be written in other pieces than it is read, for
            // which the processor waits.
            each(packet, &counters)?;
            self.tally
                .at(lane)
                .delivered(packet.sequence, packet.slot().wire_length);
            left -= 1;
            if left == 0 {
                return Ok(Flow::Stop);
            }
        }
        Ok(Flow::Go)
    }

    /// What was counted so far.
    pub(crate) fn tally(&self) -> &Tally {
        &self.tally
    }

    /// Packets that passed the filter so far.
    pub(crate) fn packets(&self) -> u64 {
        self.tally.packets()
    }

    /// The counters now.
    pub(crate) fn counters(&self) -> Result<Counters> {
        Ok(self.total(counts(&*self.control)?.as_ref()))
    }

    /// Counts all but so many of the delivered packets as not written; returns how many those are.
    ///
    /// For what took packets and lost them afterwards. Ledgers of single lanes do not know of it.
    pub(crate) fn keep_only(&mut self, (packets, wire_bytes): (u64, u64)) -> u64 {
        let bytes = self.tally.bytes().saturating_sub(wire_bytes);
        self.lost = (self.packets().saturating_sub(packets), bytes);
        self.lost.0
    }

    fn total(&self, counts: Option<&Snapshot>) -> Counters {
        let mut counters = counters_of(&self.tally, counts);
        counters.delivered -= self.lost.0;
        counters.bytes -= self.lost.1;
        counters.dropped.not_written += self.lost.0;
        counters
    }

    /// Prints what changed since the last tick, unless quiet.
    pub(crate) fn tick(&mut self) -> Result<Flow> {
        if self.args.quiet {
            return Ok(Flow::Go);
        }
        let now = Instant::now();
        let counters = self.counters()?;
        if self.args.json {
            self.sink.say(&report::json(
                &self.facts.device,
                self.name,
                None,
                &counters,
            )?)?;
        } else {
            let (then, before) = self.last;
            self.sink
                .say(&report::live_line(&counters, &before, now - then))?;
        }
        self.last = (now, counters);
        Ok(Flow::Go)
    }

    /// Seconds since this reader began.
    pub(crate) fn seconds(&self) -> f64 {
        self.begun.elapsed().as_secs_f64()
    }

    /// Prints the final counters, of each lane too if asked for, and `extras` below it.
    pub(crate) fn finish(&self, extras: &[String]) -> Result<Counters> {
        let counts = counts(&*self.control)?;
        let total = self.total(counts.as_ref());
        let facts = &self.facts;
        let whence = match counts {
            Some(_) => &facts.offered_from,
            None => ALONE,
        };
        let lanes = match counts.filter(|_| self.args.verbose) {
            Some(counts) => self.tally.lanes(&counts),
            None => Vec::new(),
        };
        for (lane, counters) in lanes {
            if self.args.json {
                self.sink.say(&report::json(
                    &facts.device,
                    self.name,
                    Some(lane),
                    &counters,
                )?)?;
            } else {
                let title = format!("{} {lane}:", facts.device);
                self.sink
                    .say(&report::counters(&title, "seen on this lane", &counters))?;
            }
        }
        if self.args.json {
            self.sink
                .say(&report::json(&facts.device, self.name, None, &total)?)?;
        } else {
            let title = format!("{} {:.1} s:", facts.device, self.seconds());
            self.sink.say(&report::counters(&title, whence, &total))?;
        }
        for line in extras {
            // Beside the JSON, not in it: its names are promised.
            if self.args.json {
                print::note(line);
            } else {
                self.sink.say(&format!("  {line}"))?;
            }
        }
        Ok(total)
    }
}
