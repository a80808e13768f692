// SPDX-License-Identifier: MIT OR Apache-2.0
//! Starts the hub's thread, and sends it work from the control thread.

use std::io;
use std::sync::mpsc::{self, Sender};
use std::thread::JoinHandle;

use ringtap_ipc::event::Event;
use ringtap_ipc::protocol::Refused;
use ringtap_ipc::thread::join;
use ringtap_pool::wake::Signal as _;

use super::{Engine, EngineWork};
use crate::answer::ending;

/// The hub's thread, which ends when this is dropped. It moves no chunk before [`Engine::begin`].
pub(crate) struct EngineThread {
    work: Option<Sender<EngineWork>>,
    event: Event,
    thread: Option<JoinHandle<()>>,
}

impl EngineThread {
    /// Starts the thread.
    ///
    /// # Errors
    ///
    /// The system's, when no thread can start.
    pub(crate) fn start(engine: Engine) -> io::Result<Self> {
        let event = engine.event.clone();
        let (work, inbox) = mpsc::channel();
        let thread = std::thread::Builder::new().name("hub".into());
        let thread = thread.spawn(move || engine.run(&inbox))?;
        Ok(EngineThread {
            work: Some(work),
            event,
            thread: Some(thread),
        })
    }

    /// Lets the thread do this work and returns the result.
    ///
    /// # Errors
    ///
    /// The refusal of a hub that is [`ending`] if the thread has ended.
    pub(crate) fn call<T: Send + 'static>(
        &self,
        work: impl FnOnce(&mut Engine) -> T + Send + 'static,
    ) -> Result<T, Refused> {
        let (to, from) = mpsc::channel();
        let work: EngineWork = Box::new(move |engine| drop(to.send(work(engine))));
        // A thread that has ended drops the work, which ends the wait.
        let _gone = self.work.as_ref().map(|thread| thread.send(work));
        self.event.signal();
        from.recv().map_err(|_| ending())
    }
}

impl Drop for EngineThread {
    fn drop(&mut self) {
        self.work = None;
        self.event.signal();
        if let Some(thread) = self.thread.take() {
            join(thread);
        }
    }
}
