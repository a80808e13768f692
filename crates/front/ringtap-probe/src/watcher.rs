// SPDX-License-Identifier: MIT OR Apache-2.0
//! Runs the plan's actions on the probe's thread: looks at results and counters, and carries commands out.

use std::sync::Arc;
use std::time::{Duration, Instant};

use ringtap::Dropped;
use ringtap_ipc::rate::LineLimit;
use ringtap_ipc::time::now_ns;

use crate::action::{ActionEvent, ActionManager};
use crate::condition::{Condition, ProbeCounter};
use crate::control::ProbeControl;
use crate::ledger::ProbeLedger;
use crate::merge::IntervalResult;
use crate::record::{Measurement, Record, as_value};

/// Time between two looks at the counters.
const SECOND: Duration = Duration::from_secs(1);

/// The actions of the plan in force.
pub(crate) struct ActionRunner {
    control: Arc<ProbeControl>,
    /// Changes of the plan that were followed; `None` before the first look.
    generation: Option<u64>,
    manager: ActionManager,
    due: Instant,
    /// The ledger and the losses of the capture at the last look, and its time.
    before: ProbeLedger,
    dropped: u64,
    looked_ns: u64,
    /// Lines of each action: packets can make a condition begin and end all the time.
    lines: LineLimit<String>,
}

impl ActionRunner {
    pub(crate) fn new(control: Arc<ProbeControl>) -> Self {
        ActionRunner {
            control,
            generation: None,
            manager: ActionManager::default(),
            due: Instant::now() + SECOND,
            before: ProbeLedger::default(),
            dropped: 0,
            looked_ns: now_ns(),
            lines: LineLimit::default(),
        }
    }

    /// Passes results on as records, and does what follows from them, from the clock and from counters.
    pub(crate) fn act(
        &mut self,
        results: &mut Vec<IntervalResult>,
        records: &mut Vec<Record>,
        note: &mut impl FnMut(String),
    ) {
        let now = Instant::now();
        let generation = Some(self.control.board.generation());
        if self.generation != generation {
            self.generation = generation;
            self.manager.replace(&self.control.plan().actions, now);
        }
        let mut events = Vec::new();
        for result in results.drain(..) {
            let value =
                |condition: &Condition| condition.value_of(&result.analysis, &result.measurements);
            events.extend(self.manager.look(now, value));
            let measurements = result.measurements.into_iter();
            records.extend(measurements.map(|one| Record::Measurement(Box::new(one))));
        }
        if now >= self.due {
            events.extend(self.look(now, records));
            // Results that wait come before the next look, however long one takes.
            self.due = Instant::now() + SECOND;
        }
        for (name, event) in events {
            let mut say = |text: String| {
                let line = self.lines.pass(name.clone(), text, now);
                line.into_iter().for_each(&mut *note);
            };
            let outcome = match event {
                ActionEvent::Do(command) => self.control.carry_out(&command),
                ActionEvent::Undo(command) => self.control.undo(&command),
                ActionEvent::Alarm { raised, value } => {
                    records.push(alarm_record(&name, raised, value));
                    let state = if raised { "raised" } else { "over" };
                    say(format!("alarm {name}: {state} at {value}"));
                    continue;
                }
            };
            match outcome {
                Ok(done) => say(format!("action {name}: {done}")),
                Err(error) => say(format!("action {name}: {error}")),
            }
        }
    }

    /// Adds the losses since the last look to the records.
    pub(crate) fn add_losses(&mut self, records: &mut Vec<Record>) {
        self.add(&self.control.losses(), records);
    }

    /// Adds a record of the packets that were lost since the last look, if there are any, and returns their number;
    /// `losses` are all of the captures so far.
    fn add(&mut self, losses: &Dropped, records: &mut Vec<Record>) -> u64 {
        let (dropped, now_ns) = (losses.total(), now_ns());
        let lost = dropped.saturating_sub(self.dropped);
        if lost > 0 {
            records.push(loss_record(lost, self.looked_ns, now_ns));
        }
        self.dropped += lost;
        self.looked_ns = now_ns;
        lost
    }

    fn look(&mut self, now: Instant, records: &mut Vec<Record>) -> Vec<(String, ActionEvent)> {
        let losses = self.control.losses();
        let ledger = self.control.ledger_with(&losses);
        let lost = self.add(&losses, records);
        let since =
            |count: fn(&ProbeLedger) -> u64| count(&ledger).saturating_sub(count(&self.before));
        let value = |counter| {
            as_value(match counter {
                ProbeCounter::Captured => since(|ledger| ledger.captured),
                ProbeCounter::Dropped => lost,
                ProbeCounter::Evicted => since(|ledger| ledger.flows.evicted),
                ProbeCounter::Lost => since(ProbeLedger::records_lost),
                ProbeCounter::Flows => ledger.flows.flows,
            })
        };
        let events = self
            .manager
            .look(now, |condition| condition.counter().map(value));
        self.before = ledger;
        events
    }
}

/// Packets that the capture lost between two times.
fn loss_record(lost: u64, from_ns: u64, to_ns: u64) -> Record {
    Record::Measurement(Box::new(Measurement {
        analysis: "ledger".to_owned(),
        name: "capture".to_owned(),
        key: None,
        from_ns,
        to_ns,
        values: vec![("dropped", as_value(lost))],
    }))
}

fn alarm_record(name: &str, raised: bool, value: f64) -> Record {
    let now_ns = now_ns();
    Record::Measurement(Box::new(Measurement {
        analysis: name.to_owned(),
        name: "alarm".to_owned(),
        key: None,
        from_ns: now_ns,
        to_ns: now_ns,
        values: vec![("raised", f64::from(u8::from(raised))), ("value", value)],
    }))
}
