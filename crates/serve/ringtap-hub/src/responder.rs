// SPDX-License-Identifier: MIT OR Apache-2.0
//! Sends the answer to a command back to the thread that sent the command.

use std::sync::mpsc::{self, Receiver, Sender};

use ringtap_ipc::event::Event;
use ringtap_pool::wake::Signal;

/// Sends one answer, at once or later.
pub(crate) struct Responder<T> {
    answer: Option<Sender<T>>,
    /// Signalled when the answer is there, or when none will come.
    event: Option<Event>,
}

impl<T> Responder<T> {
    /// A responder for a thread that waits only for the answer.
    pub(crate) fn new() -> (Self, Receiver<T>) {
        let (answer, receiver) = mpsc::channel();
        let responder = Responder {
            answer: Some(answer),
            event: None,
        };
        (responder, receiver)
    }

    /// A responder that signals this event after the answer.
    pub(crate) fn with_event(event: Event) -> (Self, Receiver<T>) {
        let (mut responder, receiver) = Responder::new();
        responder.event = Some(event);
        (responder, receiver)
    }

    /// Sends the answer; returns whether the receiver still exists.
    pub(crate) fn send(mut self, answer: T) -> bool {
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
