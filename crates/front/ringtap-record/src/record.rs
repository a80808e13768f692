// SPDX-License-Identifier: MIT OR Apache-2.0
//! Records a capture to its end.

use std::ops::ControlFlow;
use std::time::{Duration, Instant};

use ringtap::{Capture, Next};

use crate::error::RecordError;
use crate::options::RecordOptions;
use crate::recorder::{Recorded, Recorder};

/// Time between two ticks.
const TICK: Duration = Duration::from_secs(1);

/// Records captures.
pub trait RecordExt {
    /// Records until the capture ends, or as [`StopAt`](crate::StopAt) says; waits for the commands of closed files.
    ///
    /// [`Control::stop`](ringtap::Control::stop) ends it from another thread. The capture's counters then say what
    /// became of each packet, also after an error.
    ///
    /// # Examples
    ///
    /// ```
    /// use ringtap_record::{RecordExt, RecordOptions};
    ///
    /// # let folder = tempfile::tempdir()?;
    /// # let file = folder.path().join("trace.pcapng").display().to_string();
    /// let mut capture = ringtap::open("sim:max?burst=1000")?;
    /// let recorded = capture.record(&RecordOptions::to_file(file))?;
    /// println!("{} packets in {}", recorded.files.packets, recorded.files.file);
    /// assert_eq!(capture.close()?.delivered, recorded.files.packets);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    ///
    /// [`RecordError`]; files that are closed stay valid.
    fn record(&mut self, options: &RecordOptions) -> Result<Recorded, RecordError>;
}

impl RecordExt for Capture {
    fn record(&mut self, options: &RecordOptions) -> Result<Recorded, RecordError> {
        let commands = options.start_commands(None)?;
        let mut recorder = Recorder::new(self, options, commands)?;
        let received = receive(self, &mut recorder, options.stop_at.duration);
        let (mut recorded, outcome) = recorder.finish(self, received);
        recorder.wait_for_commands();
        recorded.notes.append(&mut recorder.take_notes());
        outcome?;
        self.outcome()?;
        Ok(recorded)
    }
}

/// Passes all batches to the recorder; ends the capture after `duration`.
fn receive(
    capture: &mut Capture,
    recorder: &mut Recorder,
    duration: Option<Duration>,
) -> Result<(), RecordError> {
    let mut due = Instant::now() + TICK;
    let mut end = duration.and_then(|duration| Instant::now().checked_add(duration));
    loop {
        let found = match capture.try_next()? {
            Next::Empty => {
                if recorder.idle(capture)?.is_break() {
                    return Ok(());
                }
                let wake = end.map_or(due, |end| end.min(due));
                capture.next(Some(wake.saturating_duration_since(Instant::now())))?
            }
            found => found,
        };
        let mut flow = match found {
            Next::Batch(batch) => recorder.batch(capture, &batch)?,
            Next::Empty => ControlFlow::Continue(()),
            Next::Ended => return Ok(()),
        };
        let now = Instant::now();
        if end.take_if(|end| *end <= now).is_some() {
            capture.control().stop();
        }
        if flow.is_continue() && due <= now {
            due = now + TICK;
            flow = recorder.tick(capture)?;
        }
        if flow.is_break() {
            return Ok(());
        }
    }
}
