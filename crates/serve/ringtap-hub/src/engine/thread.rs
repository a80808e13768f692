// SPDX-License-Identifier: MIT OR Apache-2.0
//! Starts the hub's thread, and sends it work from the control thread.

use std::io;
use std::sync::mpsc::{self, Sender};
use std::thread::JoinHandle;

use ringtap_ipc::event::Event;
use ringtap_ipc::protocol::Refused;
use ringtap_pool::wake::Signal as _;

use super::{Engine, EngineWork};
use crate::control::ending;

/// The hub's thread, which ends when this is dropped.
pub(crate) enum EngineThread {
    /// No chunk moves yet; work is done by the caller's thread.
    NotStarted(Box<Engine>),
    Running(RunningEngine),
}

pub(crate) struct RunningEngine {
    work: Option<Sender<EngineWork>>,
    event: Event,
    thread: Option<JoinHandle<()>>,
}

impl EngineThread {
    pub(crate) fn new(engine: Engine) -> Self {
        EngineThread::NotStarted(Box::new(engine))
    }

    /// Starts the thread, which then moves chunks.
    ///
    /// # Errors
    ///
    /// The system's, when no thread can start.
    pub(crate) fn start(self) -> io::Result<Self> {
        let EngineThread::NotStarted(engine) = self else {
            return Ok(self);
        };
        let event = engine.event.clone();
        let (work, inbox) = mpsc::channel();
        let thread = std::thread::Builder::new().name("hub".into());
        let thread = thread.spawn(move || engine.run(&inbox))?;
        Ok(EngineThread::Running(RunningEngine {
            work: Some(work),
            event,
            thread: Some(thread),
        }))
    }

    /// Lets the thread do this work and returns the result.
    ///
    /// # Errors
    ///
    /// The refusal of a hub that is [`ending`] if the thread has ended.
    pub(crate) fn call<T: Send + 'static>(
        &mut self,
        work: impl FnOnce(&mut Engine) -> T + Send + 'static,
    ) -> Result<T, Refused> {
        let running = match self {
            EngineThread::NotStarted(engine) => return Ok(work(engine)),
            EngineThread::Running(running) => running,
        };
        let (to, from) = mpsc::channel();
        let work: EngineWork = Box::new(move |engine| drop(to.send(work(engine))));
        // A thread that has ended drops the work, which ends the wait.
        let _gone = running.work.as_ref().map(|thread| thread.send(work));
        running.event.signal();
        from.recv().map_err(|_| ending())
    }
}

impl Drop for RunningEngine {
    fn drop(&mut self) {
        self.work = None;
        self.event.signal();
        if let Some(thread) = self.thread.take() {
            let _panicked = thread.join();
        }
    }
}
