// SPDX-License-Identifier: MIT OR Apache-2.0
//! The demo's readers, each on a thread of its own.
#![forbid(unsafe_code)]

use std::thread::{Scope, ScopedJoinHandle};
use std::time::Duration;

use anyhow::{Context, Result, anyhow, bail};
use ringtap_client::{Batch, Receiver, Tally};
use ringtap_ipc::time::now_ns;
use ringtap_pool::counters::Counters;
use ringtap_pool::source::Facts;

use super::FILTER;
use super::board::{Board, Progress, Watched};
use super::places::Places;
use crate::affinity;
use crate::print::line as say;
use crate::reading::{Reading, ReadingArgs};
use crate::record::{self, FileOptions, Recorder, Writer, Written};
use crate::session::{self, Consumer, Flow};

/// Longest time between two ticks of the recorder.
const TICK: Duration = Duration::from_millis(200);

/// Counts all packets of its subscription.
struct Counter<'a>(Reading<'a>);

impl Consumer for Counter<'_> {
    fn batch(&mut self, batch: &Batch) -> Result<Flow> {
        self.0.batch(batch, |_, _| Ok(()))
    }

    fn tally(&self) -> &Tally {
        self.0.tally()
    }

    fn tick(&mut self) -> Result<Flow> {
        Ok(Flow::Go)
    }
}

impl Progress for Counter<'_> {
    fn packets(&self) -> u64 {
        self.0.packets()
    }
}

impl Progress for Recorder<'_> {
    fn packets(&self) -> u64 {
        Recorder::packets(self)
    }
}

/// All readers before they start.
pub(super) struct Readers<'a> {
    counter: Watched<'a, Counter<'a>>,
    recorder: Watched<'a, Recorder<'a>>,
    members: [Watched<'a, Counter<'a>>; 2],
}

/// A reader's thread; it returns the reader and the outcome of reading.
type Done<'scope, R> = ScopedJoinHandle<'scope, (R, Result<()>)>;

/// All readers while they run.
pub(super) struct Running<'scope, 'a> {
    counter: Done<'scope, Counter<'a>>,
    recorder: Done<'scope, Recorder<'a>>,
    members: [Done<'scope, Counter<'a>>; 2],
}

/// The results of all readers.
pub(super) struct Outcome {
    pub(super) counted: Counters,
    pub(super) recorded: Counters,
    pub(super) members: [Counters; 2],
    pub(super) file: Written,
}

/// Creates the readers and the file.
pub(super) fn prepare<'a>(
    args: &'a ReadingArgs,
    facts: &Facts,
    receivers: &[Receiver],
    board: &'a Board,
    file: &str,
) -> Result<Readers<'a>> {
    let [first, second, third, fourth] = receivers else {
        bail!("{} readers have a subscription, not four", receivers.len());
    };
    let options = FileOptions {
        file: file.to_owned(),
        ..FileOptions::default()
    };
    let start_ns = now_ns();
    let writer = Writer::create(
        &options,
        record::origin(),
        record::interface(facts, FILTER),
        start_ns,
    )?;
    let recording = Reading::new(args, second, facts, "record");
    let counter = |receiver, name, place| Watched {
        consumer: Counter(Reading::new(args, receiver, facts, name)),
        place,
    };
    Ok(Readers {
        counter: counter(first, "count", &board.counted),
        recorder: Watched {
            consumer: Recorder::new(recording, writer, start_ns, false),
            place: &board.recorded,
        },
        members: [
            counter(third, "member 1", &board.shared[0]),
            counter(fourth, "member 2", &board.shared[1]),
        ],
    })
}

impl<'a> Readers<'a> {
    /// Starts a thread for each.
    pub(super) fn start<'scope>(
        self,
        scope: &'scope Scope<'scope, '_>,
        receivers: &'scope mut [Receiver],
        places: &Places,
    ) -> Result<Running<'scope, 'a>>
    where
        'a: 'scope,
    {
        let [first, second, third, fourth] = receivers else {
            bail!("{} readers have a subscription, not four", receivers.len());
        };
        let [one, other] = self.members;
        Ok(Running {
            counter: start(scope, self.counter, first, places.counter),
            recorder: start(scope, self.recorder, second, places.recorder),
            members: [
                start(scope, one, third, places.counter),
                start(scope, other, fourth, places.recorder),
            ],
        })
    }
}

fn start<'scope, C: Progress + Send + 'scope>(
    scope: &'scope Scope<'scope, '_>,
    mut watched: Watched<'scope, C>,
    receiver: &'scope mut Receiver,
    cpu: Option<usize>,
) -> Done<'scope, C> {
    scope.spawn(move || {
        let read = affinity::pin(cpu).and_then(|()| session::receive(receiver, TICK, &mut watched));
        (watched.consumer, read)
    })
}

impl Running<'_, '_> {
    /// Whether a reader has ended already.
    pub(super) fn is_any_over(&self) -> bool {
        let members = self.members.iter().any(ScopedJoinHandle::is_finished);
        members || self.counter.is_finished() || self.recorder.is_finished()
    }

    /// Waits for all readers, prints their counters, closes the file.
    pub(super) fn join(self) -> Result<Outcome> {
        let counted = counters(self.counter, "The reader that counts")?;
        let gone = |_panic| anyhow!("the thread of the reader that records is gone");
        let (recorder, recording) = self.recorder.join().map_err(gone)?;
        say("\nThe reader that records:")?;
        let (recorded, file) = recorder.finish(recording)?;
        let [one, other] = self.members;
        let members = [
            counters(one, "The group's first member")?,
            counters(other, "The group's second member")?,
        ];
        Ok(Outcome {
            counted,
            recorded,
            members,
            file,
        })
    }
}

/// The final counters of a reader that counts.
fn counters(done: Done<'_, Counter<'_>>, title: &str) -> Result<Counters> {
    let (counter, counting) = done
        .join()
        .map_err(|_| anyhow!("{title}: its thread is gone"))?;
    say(format_args!("\n{title}:"))?;
    let counters = counter.0.finish(&[])?;
    counting.with_context(|| title.to_owned())?;
    Ok(counters)
}

impl Outcome {
    /// Whether all counters add up, no reader is without packets, and the file has all of its own.
    pub(super) fn is_good(&self) -> bool {
        let [one, other] = &self.members;
        let counters = [&self.counted, &self.recorded, one, other];
        counters
            .iter()
            .all(|counters| counters.balance().holds() && counters.delivered > 0)
            && self.file.packets == self.recorded.delivered
    }
}
