// SPDX-License-Identifier: MIT OR Apache-2.0
//! Common parts of all reading verbs: filter, tally, limits, lines, the final counters.

use std::time::{Duration, Instant};

use anyhow::{Result, bail, ensure};
use clap::Args;
use ringtap::{
    AllCounters, Batch, Capture, CaptureGap, Counted, Counters, CutOff, OpenOptions, Order, Packet,
};
use ringtap_device::cut_off;
use ringtap_explain::report;
use ringtap_explain::text;
use ringtap_filter::GroupName;
use ringtap_net::affinity::Placement;
use ringtap_pool::ids::LaneId;
use serde_json::{Value, json};

use crate::UsageError;
use crate::print;
use crate::session::Flow;

/// Origin of the counters after the hub has left.
const ALONE: &str =
    "by this reader's own count: the hub ended, and losses before the reader are unknown";

/// Attempts to read final counters that balance, and the pause between two.
const STEADY_TRIES: u32 = 20;
const STEADY_PAUSE: Duration = Duration::from_millis(10);

/// Most capture gaps that the final lines have.
const MAX_GAPS: usize = 64;

/// When to stop, where to run, what to print.
#[derive(Args, Debug, Clone, Default)]
pub(crate) struct ReadingArgs {
    /// Stop after this many packets that pass the filter.
    #[arg(short = 'c', long, value_name = "PACKETS", value_parser = clap::value_parser!(u64).range(1..))]
    pub(crate) count: Option<u64>,

    /// Stop after this many seconds.
    #[arg(long, value_name = "SECONDS", value_parser = seconds)]
    pub(crate) duration: Option<Duration>,

    /// Seconds between lines.
    #[arg(long, value_name = "SECONDS", default_value = "1", value_parser = seconds)]
    pub(crate) interval: Duration,

    /// Deliver packets of all lanes in time-stamp order. Hold each packet for up to MILLISECONDS
    /// to wait for earlier ones; packets that come even later are counted. 0: lanes in turn.
    /// [default: 100 for `record`, 0 for `count`]
    #[arg(long, value_name = "MILLISECONDS")]
    in_order: Option<u32>,

    /// Only the start of every flow: this many packets or bytes of each direction, `20 packets` or `16KiB`. The
    /// others count as shunted.
    #[arg(long, value_name = "LIMIT", value_parser = cut_off)]
    cutoff: Option<CutOff>,

    /// Mark the packets that flow rules give to this group of the hub, too: `packets` shows the mark.
    #[arg(long, value_name = "GROUP")]
    marks: Option<GroupName>,

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
    pub(crate) verbose: bool,

    /// Only the final counters.
    #[arg(short, long)]
    pub(crate) quiet: bool,
}

/// Refuses the CPU of a reader, for verbs that are none.
///
/// # Errors
///
/// A CPU is named for the reader.
pub(crate) fn require_no_reader(placement: &Placement) -> Result<(), UsageError> {
    match placement.reader {
        None => Ok(()),
        Some(cpu) => Err(UsageError(format!(
            "--cpu: this verb has no reader to place on CPU {cpu}: name the capture side, capture={cpu}"
        ))),
    }
}

impl ReadingArgs {
    /// The capture options in these arguments; `verb` is the reader's default name, and `window` its
    /// default window for packets in time-stamp order.
    pub(crate) fn open_options(&self, verb: &str, window: Duration) -> OpenOptions {
        let own = self.in_order.map(|own| Duration::from_millis(own.into()));
        let options = OpenOptions::new()
            .name(self.name.as_deref().unwrap_or(verb))
            .in_order(own.unwrap_or(window));
        let options = match self.cutoff {
            Some(cut) => options.cutoff(cut),
            None => options,
        };
        match self.marks {
            Some(group) => options.marks(group),
            None => options,
        }
    }

    /// Arguments without limits, of which only the final counters are printed.
    pub(crate) fn silent() -> Self {
        ReadingArgs {
            quiet: true,
            ..ReadingArgs::default()
        }
    }
}

/// Parses a positive number of seconds.
pub(crate) fn seconds(text: &str) -> Result<Duration> {
    match text.parse().map(Duration::try_from_secs_f64) {
        Ok(Ok(duration)) if !duration.is_zero() => Ok(duration),
        _ => bail!("expected a number of seconds above 0"),
    }
}

/// Fails if the final counters do not balance, so that the exit status tells.
pub(crate) fn require_balance(counters: &Counters) -> Result<()> {
    ensure!(
        counters.balance().holds(),
        "the counters do not balance: a packet was counted twice or not at all; please report this"
    );
    Ok(())
}

/// A result beside the counters: a line of text, or a JSON object with the same text.
pub(crate) struct Extra {
    kind: &'static str,
    pub(crate) text: String,
    figures: Value,
}

impl Extra {
    /// `figures` is a JSON object.
    pub(crate) fn new(kind: &'static str, text: String, figures: Value) -> Self {
        Extra {
            kind,
            text,
            figures,
        }
    }

    pub(crate) fn json(&self) -> String {
        let mut line = self.figures.clone();
        line["type"] = self.kind.into();
        line["text"] = self.text.as_str().into();
        line.to_string()
    }
}

/// How well time-stamp order was kept.
pub(crate) fn order_kept(order: Order) -> Extra {
    let share = text::as_f64(order.late) / text::as_f64(order.packets.max(1));
    let text = format!(
        "in time order: {}, {} later than the window allows ({:.4} %)",
        text::packets(order.packets),
        text::grouped(order.late),
        share * 100.0
    );
    let figures = json!({"packets": order.packets, "late": order.late});
    Extra::new("order", text, figures)
}

/// The reader of a verb: its capture, and what it prints.
pub(crate) struct Reading<'a> {
    args: &'a ReadingArgs,
    pub(crate) capture: Capture,
    name: &'static str,
    begun: Instant,
    last: (Instant, Counters),
    sink: Sink,
    /// The first capture gaps, and the number of all.
    gaps: (Vec<Extra>, u64),
}

/// Destination of lines.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Sink {
    /// Standard output.
    Stdout,
    /// Standard error, for when standard output carries packets.
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
    /// A reader with this name in the printed counters.
    pub(crate) fn new(args: &'a ReadingArgs, capture: Capture, name: &'static str) -> Self {
        let now = Instant::now();
        Reading {
            args,
            capture,
            name,
            begun: now,
            last: (now, Counters::default()),
            sink: Sink::Stdout,
            gaps: (Vec::new(), 0),
        }
    }

    /// Prints to this sink from now on.
    pub(crate) fn to(self, sink: Sink) -> Self {
        Reading { sink, ..self }
    }

    /// Gives each packet that passes the filter to `each`, with access to the counters up to that packet;
    /// stops at the limit, and when `each` has enough.
    #[inline]
    pub(crate) fn batch(
        &mut self,
        batch: &Batch,
        mut each: impl FnMut(Packet<'_>, &mut Counted<'_>) -> Result<Flow>,
    ) -> Result<Flow> {
        self.note_gap(batch);
        let most = self.args.count.unwrap_or(u64::MAX);
        let mut left = most - self.capture.delivered();
        let mut packets = self.capture.packets(batch);
        while let Some(packet) = packets.next() {
            // By value: storing a packet in memory and reloading it would stall the processor.
            let flow = each(packet?, &mut packets)?;
            left -= 1;
            if left == 0 || flow == Flow::Stop {
                return Ok(Flow::Stop);
            }
        }
        Ok(Flow::Go)
    }

    /// Keeps the capture gap before a batch for the final lines.
    #[inline]
    pub(crate) fn note_gap(&mut self, batch: &Batch) {
        if let Some(gap) = batch.capture_gap() {
            self.keep_gap(gap);
        }
    }

    #[cold]
    fn keep_gap(&mut self, gap: CaptureGap) {
        let (kept, number) = &mut self.gaps;
        *number += 1;
        let text = format!("gap {number}: {gap}");
        if !self.args.quiet {
            print::note(&text);
        }
        if kept.len() < MAX_GAPS {
            let figures = json!({"number": *number, "sequence": gap.sequence,
                                 "duration_ns": gap.duration_ns, "after": gap.after});
            kept.push(Extra::new("capture_gap", text, figures));
        }
    }

    /// Prints the changes since the last tick, unless quiet.
    pub(crate) fn tick(&mut self) -> Result<Flow> {
        if self.args.quiet {
            return Ok(Flow::Go);
        }
        let now = Instant::now();
        let counters = self.capture.counters()?;
        let (then, before) = self.last;
        self.sink.say(&if self.args.json {
            self.json(None, &counters)?
        } else {
            report::live_line(&counters, &before, now - then)
        })?;
        self.last = (now, counters);
        Ok(Flow::Go)
    }

    /// Prints the counters so far on standard error.
    pub(crate) fn show(&self) -> Result<()> {
        let counters = self.capture.counters()?;
        let facts = self.capture.facts();
        let title = format!("{} so far, {:.1} s:", facts.device, self.seconds());
        print::note(if self.args.json {
            self.json(None, &counters)?
        } else {
            report::counters(&title, &facts.offered_from, &counters)
        });
        Ok(())
    }

    /// Seconds since this reader began.
    pub(crate) fn seconds(&self) -> f64 {
        self.begun.elapsed().as_secs_f64()
    }

    /// The counters once no packet is half counted: other readers' packets may still come.
    fn steady_counters(&self) -> Result<AllCounters> {
        let mut counters = self.capture.all_counters()?;
        for _ in 0..STEADY_TRIES {
            if counters.total.balance().holds() {
                break;
            }
            std::thread::sleep(STEADY_PAUSE);
            counters = self.capture.all_counters()?;
        }
        Ok(counters)
    }

    /// Prints the final counters, those of each lane if requested, and `extras`: after the counters as
    /// text, before them as JSON, whose last line is the counters.
    pub(crate) fn finish(&self, extras: &[Extra]) -> Result<Counters> {
        let AllCounters {
            total,
            lanes,
            hub_left,
            sources: _,
        } = self.steady_counters()?;
        let facts = self.capture.facts();
        let whence = if hub_left { ALONE } else { &facts.offered_from };
        let lanes = lanes.into_iter().filter(|_| self.args.verbose);
        for (lane, counters) in lanes {
            let title = format!("{} {lane}:", facts.device);
            self.sink.say(&if self.args.json {
                self.json(Some(lane), &counters)?
            } else {
                report::counters(&title, "seen on this lane", &counters)
            })?;
        }
        let mut extras = self.gaps.0.iter().chain(extras);
        if self.args.json {
            extras.try_for_each(|extra| self.sink.say(&extra.json()))?;
            self.sink.say(&self.json(None, &total)?)?;
            return Ok(total);
        }
        let title = format!("{} {:.1} s:", facts.device, self.seconds());
        self.sink.say(&report::counters(&title, whence, &total))?;
        extras.try_for_each(|extra| self.sink.say(&format!("  {}", extra.text)))?;
        Ok(total)
    }

    /// A line of JSON with counters of this reader.
    fn json(&self, lane: Option<LaneId>, counters: &Counters) -> Result<String> {
        let device = &self.capture.facts().device;
        Ok(report::json(device, self.name, lane, counters)?)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_packet_that_no_counter_has_is_a_failure() {
        let counters = Counters {
            offered: 2,
            delivered: 1,
            ..Counters::default()
        };
        assert!(require_balance(&counters).is_err());
    }
}
