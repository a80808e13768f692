// SPDX-License-Identifier: MIT OR Apache-2.0
//! The way back to the thread that sent the hub a command.
#![forbid(unsafe_code)]

use std::sync::mpsc::{self, Receiver, Sender};

use ringtap_ipc::event::Event;
use ringtap_pool::wake::Signal;

/// Sends one answer, at once or later.
pub(crate) struct Responder<T> {
    answer: Option<Sender<T>>,
    /// Signalled when the answer is there, or will never be.
    event: Option<Event>,
}

impl<T> Responder<T> {
    /// A responder for a thread that waits for nothing else.
    pub(crate) fn new() -> (Self, Receiver<T>) {
        let (answer, receiver) = mpsc::channel();
        let responder = Responder {
            answer: Some(answer),
            event: None,
        };
        (responder, receiver)
    }

    /// A responder that signals this event.
    pub(crate) fn with_event(event: Event) -> (Self, Receiver<T>) {
        let (mut responder, receiver) = Responder::new();
        responder.event = Some(event);
        (responder, receiver)
    }

    /// Sends the answer; returns whether anybody can receive it.
    pub(crate) fn send(mut self, answer: T) -> bool {
        let to = self.answer.take();
        to.is_some_and(|to| to.send(answer).is_ok())
    }
}

impl<T> Drop for Responder<T> {
    fn drop(&mut self) {
        // The receiver finds the channel closed when it looks.
        drop(self.answer.take());
        if let Some(event) = &self.event {
            event.signal();
        }
    }
}
