// SPDX-License-Identifier: MIT OR Apache-2.0
//! The two readers of the one capture, each on a thread of its own.
#![forbid(unsafe_code)]

use std::thread::{Scope, ScopedJoinHandle};
use std::time::Duration;

use anyhow::{Context, Result, anyhow, bail};
use ringtap_pool::ledger::Ledger;
use ringtap_pool::reader::Batch;

use super::FILTER;
use super::board::{Board, Progress, Watched, say};
use super::places::Places;
use crate::affinity;
use crate::input;
use crate::reading::{Reading, ReadingArgs};
use crate::record::{self, FileOptions, Origin, Recorder, Writer, Written};
use crate::report::now_ns;
use crate::session::{Attached, Consumer, Flow, Session};

/// How often the recorder looks whether something is due.
const TICK: Duration = Duration::from_millis(200);

/// Counts everything.
struct Counter<'a>(Reading<'a>);

impl Consumer for Counter<'_> {
    fn batch(&mut self, batch: &Batch<'_>) -> Result<Flow> {
        self.0.batch(batch, |_, _| Ok(()))
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

/// Both readers before they start.
pub(super) struct Readers<'a> {
    counter: Watched<'a, Counter<'a>>,
    recorder: Watched<'a, Recorder<'a>>,
}

/// Both readers at work; what each thread gives back is the reader and how its reading ended.
pub(super) struct Running<'scope, 'a> {
    counter: ScopedJoinHandle<'scope, (Counter<'a>, Result<()>)>,
    recorder: ScopedJoinHandle<'scope, (Recorder<'a>, Result<()>)>,
}

/// What came of it.
pub(super) struct Outcome {
    pub(super) counted: Ledger,
    pub(super) recorded: Ledger,
    pub(super) file: Written,
}

/// Makes the readers and the file.
pub(super) fn prepare<'a>(
    args: &'a ReadingArgs,
    session: &'a Session,
    attached: &[Attached],
    board: &'a Board,
    file: &str,
) -> Result<Readers<'a>> {
    let [first, second] = attached else {
        bail!("{} readers were attached, not two", attached.len());
    };
    let options = FileOptions {
        file: file.to_owned(),
        ..FileOptions::default()
    };
    let start_ns = now_ns();
    let interface = record::interface(session.facts(), FILTER);
    let writer = Writer::create(&options, Origin::here(), interface, start_ns)?;
    let filter = input::compile(FILTER, session.facts())?;
    let counting = Reading::new(args, session, first.id(), "count", None);
    let recording = Reading::new(args, session, second.id(), "record", Some(filter));
    Ok(Readers {
        counter: Watched {
            consumer: Counter(counting),
            place: &board.counted,
        },
        recorder: Watched {
            consumer: Recorder::new(recording, writer, start_ns, false),
            place: &board.recorded,
        },
    })
}

impl<'a> Readers<'a> {
    /// Starts both threads.
    pub(super) fn start<'scope>(
        self,
        scope: &'scope Scope<'scope, '_>,
        attached: &'scope mut [Attached],
        places: &Places,
    ) -> Result<Running<'scope, 'a>>
    where
        'a: 'scope,
    {
        let [first, second] = attached else {
            bail!("{} readers were attached, not two", attached.len());
        };
        Ok(Running {
            counter: start(scope, self.counter, first, places.counter),
            recorder: start(scope, self.recorder, second, places.recorder),
        })
    }
}

fn start<'scope, C: Progress + Send + 'scope>(
    scope: &'scope Scope<'scope, '_>,
    mut watched: Watched<'scope, C>,
    attached: &'scope mut Attached,
    cpu: Option<usize>,
) -> ScopedJoinHandle<'scope, (C, Result<()>)> {
    scope.spawn(move || {
        let read = affinity::pin(cpu).and_then(|()| attached.receive(TICK, &mut watched));
        (watched.consumer, read)
    })
}

impl Running<'_, '_> {
    /// Whether a reader has ended already.
    pub(super) fn is_any_over(&self) -> bool {
        self.counter.is_finished() || self.recorder.is_finished()
    }

    /// Waits for both, prints their ledgers, closes the file.
    pub(super) fn join(self) -> Result<Outcome> {
        let gone = |name| move |_panic| anyhow!("the thread of the reader that {name} is gone");
        let (counter, counting) = self.counter.join().map_err(gone("counts"))?;
        let (recorder, recording) = self.recorder.join().map_err(gone("records"))?;
        say("\nThe reader that counts:")?;
        let counted = counter.0.finish(&[])?;
        counting.context("the reader that counts")?;
        say("\nThe reader that records:")?;
        let (recorded, file) = recorder.finish(recording)?;
        Ok(Outcome {
            counted,
            recorded,
            file,
        })
    }
}

impl Outcome {
    /// Whether both ledgers balance, and there is something in them and in the file.
    pub(super) fn is_good(&self) -> bool {
        let ledgers = [&self.counted, &self.recorded];
        ledgers
            .iter()
            .all(|ledger| ledger.balance().holds() && ledger.delivered > 0)
            && self.file.packets == self.recorded.delivered
    }
}
