// SPDX-License-Identifier: MIT OR Apache-2.0
//! A process of a library: reads its share of the packets, and runs the library on them.
//!
//! Invariants
//! - The library's first instruction runs in the sandbox, after the subscription.
//! - The process ends with the supervisor that started it, and can start no other process.

use std::io;
use std::time::{Duration, Instant};

use ringtap::{Batch, Capture, FileLimits, Next, OpenOptions, Sandbox};
use ringtap_ipc::socket::Socket;
use ringtap_ipc::time::now_ns;
use rustix::process::{Signal, set_parent_process_death_signal};

use super::copy::loadable;
use super::loaded::{LoadedAnalysis, PacketView};
use super::messages::{ProcessMessage, ProcessResult, ProcessSetup, receive_with, send};
use crate::interval::Interval;

/// Longest time without a look at the clock.
const TICK: Duration = Duration::from_millis(50);
/// Time between two messages that the process works.
const ALIVE: Duration = Duration::from_millis(500);

struct LibraryProcess<'a> {
    setup: &'a ProcessSetup,
    socket: &'a Socket,
    library: LoadedAnalysis,
    interval: Interval,
    seen: Interval,
    packets: u64,
}

/// Runs the process at the other end of the supervisor's socket to the end of the capture.
///
/// # Errors
///
/// The supervisor has left, or the capture failed.
pub fn run(setup: &ProcessSetup, socket: &Socket) -> io::Result<()> {
    set_parent_process_death_signal(Some(Signal::KILL))?;
    let Some(((), copies)) = receive_with(socket, &mut Vec::new())? else {
        return Ok(());
    };
    let copy = copies
        .into_iter()
        .next()
        .ok_or(io::ErrorKind::InvalidData)?;
    let refuse = |why: String| send(socket, &ProcessMessage::Refused(why));
    let options = OpenOptions::new()
        .name(format!("{} {}", setup.plan.name, setup.worker))
        .filter(&setup.filter)
        .socket(&setup.socket);
    let capture = options.open(&format!("hub:{}", setup.group));
    let mut capture = match capture {
        Ok(capture) => capture,
        Err(error) => return refuse(error.to_string()),
    };
    let plan = &setup.plan;
    let mut sandbox = Sandbox {
        reads: plan.reads.clone(),
    };
    sandbox.reads.push(plan.library.clone());
    let files = match sandbox.enter() {
        Ok(files) => files,
        Err(error) => return refuse(error.to_string()),
    };
    let numbers = (setup.worker, setup.starts, capture.facts().link_type);
    let path = loadable(&plan.library, &copy);
    let library = match LoadedAnalysis::start(&path, &plan.settings, numbers) {
        Ok(library) => library,
        Err(why) => return refuse(format!("{}: {why}", plan.library.display())),
    };
    let has_listed_files = files == FileLimits::Listed;
    send(socket, &ProcessMessage::Ready { has_listed_files })?;
    let mut process = LibraryProcess {
        setup,
        socket,
        library,
        interval: Interval::NONE,
        seen: Interval::NONE,
        packets: 0,
    };
    let mut told = Instant::now();
    loop {
        match capture.next(Some(TICK)).map_err(io::Error::other)? {
            Next::Batch(batch) => process.batch(&mut capture, &batch)?,
            Next::Empty => {}
            Next::Ended => break,
        }
        let now_ns = now_ns();
        process.follow(now_ns)?;
        process.library.periodic(now_ns);
        if told.elapsed() >= ALIVE {
            told = Instant::now();
            send(socket, &ProcessMessage::Alive)?;
        }
    }
    process.report()?;
    send(socket, &ProcessMessage::Ended)
}

impl LibraryProcess<'_> {
    fn batch(&mut self, capture: &mut Capture, batch: &Batch) -> io::Result<()> {
        let mut views = Vec::new();
        for packet in capture.packets(batch) {
            let packet = packet.map_err(|error| io::Error::other(*error))?;
            let slot = packet.slot();
            if !self.interval.holds(slot.time_ns) {
                self.library.packets(&views);
                views.clear();
                self.follow(slot.time_ns)?;
            }
            self.seen.add(slot.time_ns);
            self.packets += 1;
            views.push(PacketView::new(slot.time_ns, packet.data, slot.wire_length));
        }
        self.library.packets(&views);
        Ok(())
    }

    /// Begins the interval that holds `time_ns`, after the results of the one before.
    fn follow(&mut self, time_ns: u64) -> io::Result<()> {
        if self.interval.holds(time_ns) {
            return Ok(());
        }
        self.report()?;
        self.interval = Interval::around(time_ns, self.setup.plan.every);
        Ok(())
    }

    fn report(&mut self) -> io::Result<()> {
        if self.interval == Interval::NONE {
            return Ok(());
        }
        let values = self.library.results();
        let part = ProcessResult {
            interval: self.interval,
            seen: std::mem::replace(&mut self.seen, Interval::NONE),
            packets: std::mem::take(&mut self.packets),
            values: values.values,
            left_out: values.left_out,
        };
        send(self.socket, &ProcessMessage::Part(part))
    }
}
