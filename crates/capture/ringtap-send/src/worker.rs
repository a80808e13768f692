// SPDX-License-Identifier: MIT OR Apache-2.0
//! The sending thread: passes due packets to the output, and sleeps until more are due.
//!
//! Invariants
//! - Deadlines are absolute: later slices make up for late packets, but not for those of an outage of
//!   the interface.
//! - A run lasts until its last packet left and the time of that packet is over. A late wake-up of
//!   the thread after that does not count.

use std::{num::NonZeroU64, sync::Arc};

use ringtap_device::Speed;
use ringtap_ipc::time::nanoseconds;
use ringtap_net::{cpu, interface::Interface};
use ringtap_packet::{MacAddress, Plan, Sizes};
use ringtap_pool::number::to_usize;
use rustix::{io::Errno, thread::set_current_timer_slack};

use super::{
    batch::PacketBatch,
    clock::RunClock,
    error::SendError,
    feed::Feed,
    options::{Load, SenderOptions},
    output::SendOutput,
    pace::SteadyPace,
    shared::SharedRun,
};

/// Time between two runs at a steady rate, if the due packets fit into one run. Every run takes one
/// of the kernel's 65,534 numbers of page pools, which the kernel frees after an RCU grace period.
const SLICE_NS: u64 = 200_000;
/// Time between two batches of a file at recorded speed: short, to keep recorded gaps.
const FINE_SLICE_NS: u64 = 100_000;
/// Time after the duration of a run in which it may send packets that were due before.
pub(super) const GRACE_NS: u64 = 100_000_000;
/// Most packets of one run: few, so that stopping and counting never wait long.
const MAX_AT_ONCE: u64 = 8192;

/// Binds the calling thread to one CPU and lets it wake up on time.
fn settle(cpu: Option<usize>) -> Result<(), SendError> {
    // Without it sleeps are a little longer, which absolute deadlines make up for.
    let _refused: Result<(), Errno> = set_current_timer_slack(NonZeroU64::new(1));
    let Some(cpu) = cpu else { return Ok(()) };
    cpu::bind(None, &[cpu]).map_err(|_| SendError::Cpu { cpu })
}

/// Sends the packets of one run.
pub(super) struct SendWorker {
    output: SendOutput,
    shared: Arc<SharedRun>,
    /// Most packets, sent or refused.
    count: u64,
    duration_ns: u64,
    clock: RunClock,
    span: Span,
}

/// The packets of a run.
pub(super) enum RunPackets {
    /// Generated packets.
    Made(Box<Plan>, SteadyPace),
    /// Packets of a file, and whether they keep their recorded gaps.
    File(Box<Feed>, bool),
}

/// End of a run, in nanoseconds since it began.
#[derive(Clone, Copy, Debug)]
struct Span {
    /// Departure of the latest packet.
    last_ns: u64,
    /// End of the time of all packets; the maximum while unknown.
    end_ns: u64,
}

impl Default for Span {
    fn default() -> Self {
        Self {
            last_ns: 0,
            end_ns: u64::MAX,
        }
    }
}

impl Span {
    /// Duration of a run that ends at `now_ns`.
    fn until(self, now_ns: u64) -> u64 {
        now_ns.min(self.end_ns.max(self.last_ns))
    }
}

impl SendWorker {
    /// Opens everything that the run needs, on the sending thread.
    pub(super) fn prepare(
        options: SenderOptions,
        interface: Interface,
        shared: Arc<SharedRun>,
    ) -> Result<(Self, RunPackets), SendError> {
        settle(options.cpu)?;
        let (output, packets) = match &options.load {
            Load::Made { traffic, rate } => {
                let own_mac = interface.mac.filter(|mac| *mac != [0; 6]);
                let plan = Plan::new(traffic, MacAddress(own_mac.unwrap_or([2, 0, 0, 0, 0, 1])))?;
                let min_bytes = traffic.min_size_bytes();
                if traffic.sizes == Sizes::Imix && min_bytes > 64 {
                    shared.say(format!(
                        "the mix's 64-byte packets are {min_bytes} bytes: headers and stamp need that"
                    ));
                }
                let (packets, bits) = plan.cycle();
                let pace = SteadyPace::new(*rate, packets, bits);
                let output =
                    SendOutput::open(&options, interface, Arc::clone(&shared), Some(&plan))?;
                (output, RunPackets::Made(Box::new(plan), pace))
            }
            Load::File {
                path,
                repeat,
                speed,
            } => {
                let feed = Feed::open(path, *repeat, *speed, Arc::clone(&shared))?;
                let is_recorded = matches!(speed, Speed::Recorded { .. });
                let output = SendOutput::open(&options, interface, Arc::clone(&shared), None)?;
                (output, RunPackets::File(Box::new(feed), is_recorded))
            }
        };
        let worker = SendWorker {
            output,
            shared,
            count: options.count.unwrap_or(u64::MAX),
            duration_ns: options.duration.map_or(u64::MAX, nanoseconds),
            clock: RunClock::start(),
            span: Span::default(),
        };
        Ok((worker, packets))
    }

    /// Sends until the packets end or a limit is reached, and publishes the final counters.
    pub(super) fn run(mut self, packets: RunPackets) -> Result<(), SendError> {
        self.clock = RunClock::start();
        let (outcome, short) = match packets {
            RunPackets::Made(plan, pace) => (self.run_made(&plan, pace), 0),
            RunPackets::File(mut feed, is_recorded) => {
                (self.run_file(&mut feed, is_recorded), feed.short())
            }
        };
        self.publish(short);
        outcome
    }

    fn run_made(&mut self, plan: &Plan, pace: SteadyPace) -> Result<(), SendError> {
        let within = self.duration_ns.saturating_sub(1);
        let most = self.count.min(pace.due(within));
        let grace_ns = if most < u64::MAX { GRACE_NS } else { 0 };
        loop {
            let sequence = self.output.counters().attempted();
            if sequence >= most {
                break;
            }
            if self.is_over(grace_ns) {
                return Ok(());
            }
            let now_ns = self.sending_ns();
            let due = pace.due(now_ns).min(most).saturating_sub(sequence);
            if due > 0 {
                let done = self.output.make(plan, sequence, due.min(MAX_AT_ONCE));
                self.span.last_ns = self.clock.elapsed_ns();
                self.publish(0);
                done?;
            }
            let next = self.output.counters().attempted();
            if due < MAX_AT_ONCE && next < most {
                let slice_ns = next_slice(now_ns, SLICE_NS);
                self.sleep_until(self.with_outages(pace.due_ns(next).max(slice_ns)));
            }
        }
        let counted_out = self.count == most;
        let end_ns = if counted_out {
            pace.due_ns(most)
        } else {
            u64::MAX
        };
        self.sleep_to_end(self.with_outages(end_ns));
        Ok(())
    }

    fn run_file(&mut self, feed: &mut Feed, is_recorded: bool) -> Result<(), SendError> {
        let slice_ns = if is_recorded { FINE_SLICE_NS } else { SLICE_NS };
        let most = self.count;
        let mut batch = PacketBatch::default();
        loop {
            let so_far = self.output.counters().attempted() + feed.short();
            let room = to_usize(most - so_far.min(most));
            if room == 0 {
                break;
            }
            if self.is_over(0) {
                return Ok(());
            }
            let now_ns = self.sending_ns();
            batch.clear();
            let next_ns = feed.fill(&mut batch, now_ns, room);
            let done = self.output.send(&batch);
            self.span.last_ns = self.clock.elapsed_ns();
            self.publish(feed.short());
            done?;
            match next_ns {
                None => break,
                Some(due_ns) if due_ns > now_ns => {
                    let wake_ns = due_ns.max(next_slice(now_ns, slice_ns));
                    self.sleep_until(self.with_outages(wake_ns));
                }
                Some(_) => {}
            }
        }
        feed.outcome()?;
        self.sleep_to_end(self.with_outages(feed.end_ns()));
        Ok(())
    }

    /// Time of the run without the outages of the interface: packets are not made up for.
    fn sending_ns(&self) -> u64 {
        let outages_ns = self.output.outages_ns();
        self.clock.elapsed_ns().saturating_sub(outages_ns)
    }

    fn with_outages(&self, sending_ns: u64) -> u64 {
        sending_ns.saturating_add(self.output.outages_ns())
    }

    fn is_over(&self, grace_ns: u64) -> bool {
        let end_ns = self.duration_ns.saturating_add(grace_ns);
        self.shared.is_stopped() || self.clock.elapsed_ns() >= end_ns
    }

    fn sleep_until(&self, elapsed_ns: u64) {
        let end_ns = elapsed_ns.min(self.duration_ns);
        self.clock.sleep_until(end_ns, &self.shared.stop);
    }

    fn sleep_to_end(&mut self, elapsed_ns: u64) {
        self.span.end_ns = elapsed_ns.min(self.duration_ns);
        self.sleep_until(elapsed_ns);
    }

    fn publish(&self, short: u64) {
        let mut counters = self.output.counters();
        counters.refused += short;
        counters.elapsed_ns = self.span.until(self.clock.elapsed_ns());
        self.shared.publish(counters);
    }
}

fn next_slice(now_ns: u64, slice_ns: u64) -> u64 {
    (now_ns / slice_ns + 1) * slice_ns
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_run_lasts_as_long_as_its_packets_not_as_its_thread() {
        let span = |last_ns, end_ns| Span { last_ns, end_ns };
        assert_eq!(span(990, 1000).until(1024), 1000, "woke up late");
        assert_eq!(span(1010, 1000).until(1024), 1010, "sent late");
        assert_eq!(span(500, 1000).until(700), 700, "stopped early");
        assert_eq!(Span::default().until(700), 700, "still running");
    }
}
