// SPDX-License-Identifier: MIT OR Apache-2.0
//! Sends the packets of a capture out of an interface, as they come.

use std::io;
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::Instant;

use anyhow::Result;
use ringtap::{Capture, Next, OpenOptions};
use ringtap_send::{PacketInjector, SendError};

use super::report::Report;
use super::{SendArgs, TICK, ended, qdisc};
use crate::UsageError;
use crate::interrupt;
use crate::print;
use crate::signals;

/// Sends the packets of `device` until it ends, is interrupted, or reaches a limit.
pub(super) fn run(device: &str, args: &SendArgs) -> Result<ExitCode> {
    let injector = PacketInjector::open(&args.interface, qdisc(args))?;
    let capture = OpenOptions::new().name("ringtap send").open(device)?;
    let captures_itself = capture.sources().any(|facts| {
        facts.sent_from.is_some() && facts.interface.as_deref() == Some(&args.interface)
    });
    if captures_itself {
        let text = format!(
            "{device} captures what leaves by {}: it would capture its own packets again; use another interface, or \
             direction=in",
            args.interface
        );
        return Err(UsageError(text).into());
    }
    let stop = Arc::new(AtomicBool::new(false));
    let stopped = Arc::clone(&stop);
    interrupt::on_interrupt(move || stopped.store(true, Relaxed))?;
    let mut forwarder = Forwarder {
        injector,
        report: Report::new(args.interface.clone(), args.json),
        next: Instant::now() + super::INTERVAL,
        is_quiet: args.quiet,
    };
    let deadline = args.duration.map(|time| Instant::now() + time);
    let outcome = forwarder.run(capture, args.count, deadline, &stop);
    let counters = forwarder.injector.counters();
    let printed = forwarder.report.last(counters);
    match outcome {
        Err(ForwardError::Printed(error)) => ended(Err(error), counters),
        Err(ForwardError::Capture(error)) => Err(error.into()),
        Err(ForwardError::Send(error)) => Err(error.into()),
        Ok(()) => ended(printed, counters),
    }
}

/// Why no more packets are sent.
enum ForwardError {
    Capture(ringtap::Error),
    Send(SendError),
    Printed(io::Error),
}

struct Forwarder {
    injector: PacketInjector,
    report: Report,
    /// Time of the next line.
    next: Instant,
    is_quiet: bool,
}

impl Forwarder {
    fn run(
        &mut self,
        mut capture: Capture,
        count: Option<u64>,
        deadline: Option<Instant>,
        stop: &AtomicBool,
    ) -> Result<(), ForwardError> {
        let mut left = count.unwrap_or(u64::MAX);
        let is_over = || deadline.is_some_and(|end| Instant::now() >= end);
        while left > 0 && !stop.load(Relaxed) && !is_over() {
            match capture.next(Some(TICK)).map_err(ForwardError::Capture)? {
                Next::Batch(batch) => {
                    // A packet that cannot be read any more is in the capture's counters.
                    let packets = capture.packets(&batch).filter_map(Result::ok);
                    let packets = packets.take(usize::try_from(left).unwrap_or(usize::MAX));
                    let packets: Vec<_> = packets.map(|packet| packet.data).collect();
                    left -= packets.len() as u64;
                    let sent = self.injector.send(packets, stop);
                    sent.map_err(ForwardError::Send)?;
                }
                Next::Ended => break,
                _ => {}
            }
            self.show().map_err(ForwardError::Printed)?;
        }
        let closed = capture.close().map_err(ForwardError::Capture)?;
        if closed.dropped.total() > 0 {
            print::note(format!(
                "ringtap: {} packets were lost before they could be sent",
                closed.dropped.total()
            ));
        }
        Ok(())
    }

    /// The line of each second, and the one that a signal asks for.
    fn show(&mut self) -> io::Result<()> {
        if signals::wants_counters() {
            print::note(self.report.so_far(self.injector.counters())?);
        }
        if Instant::now() >= self.next {
            self.next += super::INTERVAL;
            if !self.is_quiet {
                self.report.line(self.injector.counters())?;
            }
        }
        Ok(())
    }
}
