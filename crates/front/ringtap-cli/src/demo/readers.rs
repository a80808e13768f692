// SPDX-License-Identifier: MIT OR Apache-2.0
//! The demo's readers, each on a thread of its own.

use std::thread::{Scope, ScopedJoinHandle};
use std::time::Duration;

use anyhow::{Context, Result, anyhow, bail};
use ringtap::{Capture, Counters};
use ringtap_net::affinity;
use ringtap_record::{RecordOptions, Recorder, WrittenFiles};

use super::FILTER;
use super::places::DemoCpus;
use super::probe::{self, ProbeResult, RunningProbe};
use crate::count::{CountReader, Extras};
use crate::print::line as say;
use crate::reading::{Reading, ReadingArgs};
use crate::record::{Recording, plain};
use crate::session::{self, BatchConsumer};

/// Longest interval between two ticks of the recorder.
const TICK: Duration = Duration::from_millis(200);

/// A reader's thread, which returns the reader and the outcome of reading.
type Done<'scope, R> = ScopedJoinHandle<'scope, (R, Result<()>)>;

pub(super) struct RunningReaders<'scope, 'a> {
    counter: Done<'scope, CountReader<'a>>,
    recorder: Done<'scope, Recording<'a>>,
    members: [Done<'scope, CountReader<'a>>; 2],
    probe: RunningProbe<'scope>,
}

pub(super) struct DemoOutcome {
    pub(super) counted: Counters,
    pub(super) recorded: Counters,
    pub(super) members: [Counters; 2],
    pub(super) probe: ProbeResult,
    pub(super) file: WrittenFiles,
}

/// Creates the file and starts a thread for each reader.
pub(super) fn start_all<'scope, 'a: 'scope>(
    scope: &'scope Scope<'scope, '_>,
    args: &'a ReadingArgs,
    captures: Vec<Capture>,
    (places, file): (&DemoCpus, &str),
) -> Result<RunningReaders<'scope, 'a>> {
    let captures: Result<[Capture; 5], _> = captures.try_into();
    let Ok([first, second, third, fourth, fifth]) = captures else {
        bail!("the hub did not give five subscriptions");
    };
    let options = RecordOptions {
        filter: FILTER.to_owned(),
        ..RecordOptions::to_file(file)
    };
    let recorder = Recording {
        recorder: Recorder::new(&second, &options, None).map_err(plain)?,
        reading: Reading::new(args, second, "record"),
        progress: false,
    };
    let count = |capture, name, cpu| {
        let counter = CountReader {
            reading: Reading::new(args, capture, name),
            extras: Extras::default(),
        };
        start(scope, counter, cpu)
    };
    Ok(RunningReaders {
        counter: count(first, "count", places.counter),
        recorder: start(scope, recorder, places.recorder),
        members: [
            count(third, "member 1", places.counter),
            count(fourth, "member 2", places.recorder),
        ],
        probe: probe::start(scope, fifth, places.recorder),
    })
}

fn start<'scope, C: BatchConsumer + Send + 'scope>(
    scope: &'scope Scope<'scope, '_>,
    mut consumer: C,
    cpu: Option<usize>,
) -> Done<'scope, C> {
    scope.spawn(move || {
        let pinned = affinity::pin(cpu).map_err(Into::into);
        let read = pinned.and_then(|()| session::receive(TICK, &mut consumer));
        (consumer, read)
    })
}

impl RunningReaders<'_, '_> {
    /// Whether a reader has ended already.
    pub(super) fn is_any_over(&self) -> bool {
        let members = self.members.iter().any(ScopedJoinHandle::is_finished);
        members
            || self.counter.is_finished()
            || self.recorder.is_finished()
            || self.probe.is_finished()
    }

    /// Waits for all readers, prints their counters and closes the file.
    pub(super) fn join(self) -> Result<DemoOutcome> {
        let counted = counters(self.counter, "The reader that counts")?;
        let gone = |_panic| anyhow!("the thread of the reader that records has ended");
        let (mut recorder, recording) = self.recorder.join().map_err(gone)?;
        say("\nThe reader that records:")?;
        let (recorded, recorded_files) = recorder.finish(recording)?;
        let [one, other] = self.members;
        let members = [
            counters(one, "The group's first member")?,
            counters(other, "The group's second member")?,
        ];
        Ok(DemoOutcome {
            counted,
            recorded,
            members,
            probe: self.probe.join()?,
            file: recorded_files.files,
        })
    }
}

/// The final counters of a counting reader.
fn counters(done: Done<'_, CountReader<'_>>, title: &str) -> Result<Counters> {
    let (counter, counting) = done
        .join()
        .map_err(|_| anyhow!("{title}: its thread has ended"))?;
    say(format_args!("\n{title}:"))?;
    let counters = counter.finish()?;
    counting.with_context(|| title.to_owned())?;
    Ok(counters)
}

impl DemoOutcome {
    /// Whether all counters balance, each reader has packets, and the file has all of its reader's.
    pub(super) fn is_good(&self) -> bool {
        let [one, other] = &self.members;
        let counters = [&self.counted, &self.recorded, one, other];
        counters
            .iter()
            .all(|counters| counters.balance().holds() && counters.delivered > 0)
            && self.file.packets == self.recorded.delivered
            && self.probe.is_good()
    }
}
