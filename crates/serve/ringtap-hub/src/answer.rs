// SPDX-License-Identifier: MIT OR Apache-2.0
//! Answers of the control thread to the threads that ask it.

use std::sync::mpsc::{self, Receiver, Sender};

use ringtap_ipc::event::Event;
use ringtap_ipc::protocol::{Refusal, Refused};
use ringtap_pool::wake::Signal as _;

/// Sends one answer, at once or later, to the thread that asked.
pub(crate) struct Responder<T> {
    answer: Option<Sender<Result<T, Refused>>>,
    /// Signalled when the answer is there, or when none will come.
    event: Option<Event>,
}

impl<T> Responder<T> {
    /// A responder that signals this event after the answer; absent: for a thread that waits only for
    /// the answer.
    pub(crate) fn new(event: Option<Event>) -> (Self, Receiver<Result<T, Refused>>) {
        let (answer, receiver) = mpsc::channel();
        let answer = Some(answer);
        (Responder { answer, event }, receiver)
    }

    /// Sends the answer; returns whether the receiver still exists.
    pub(crate) fn send(mut self, answer: Result<T, Refused>) -> bool {
        let to = self.answer.take();
        to.is_some_and(|to| to.send(answer).is_ok())
    }
}

impl<T> Drop for Responder<T> {
    fn drop(&mut self) {
        // Without an answer the receiver finds the channel closed.
        drop(self.answer.take());
        if let Some(event) = &self.event {
            event.signal();
        }
    }
}

/// The refusal of every request once the hub ends.
pub(crate) fn ending() -> Refused {
    Refused::new(Refusal::Failed, "the hub is ending")
}

pub(crate) fn not_subscribed() -> Refused {
    Refused::new(Refusal::BadRequest, "this reader has no subscription")
}
