// SPDX-License-Identifier: MIT OR Apache-2.0
//! Answers on their way from the threads of commands and relays to the thread of the guest.
#![forbid(unsafe_code)]

use std::sync::mpsc::{Receiver as Inbox, Sender};

use ringtap_ipc::event::Event;
use ringtap_pool::wake::Signal as _;

use crate::messages::HostMessage;

/// An answer for the guest's agent of this number.
pub(super) struct GuestAnswer {
    pub(super) agent: u64,
    pub(super) request: u32,
    pub(super) message: HostMessage,
}

/// Takes answers to the thread of the guest.
#[derive(Clone)]
pub(super) struct Answers {
    pub(super) sender: Sender<GuestAnswer>,
    /// Wakes that thread.
    pub(super) waker: Event,
}

impl Answers {
    pub(super) fn send(&self, agent: u64, request: u32, message: HostMessage) {
        let answer = GuestAnswer {
            agent,
            request,
            message,
        };
        // Fails if the guest is being detached.
        let _late = self.sender.send(answer);
        self.waker.signal();
    }
}

/// Answers that have arrived for this agent.
pub(super) fn answers_of(
    inbox: &Inbox<GuestAnswer>,
    agent: u64,
) -> impl Iterator<Item = GuestAnswer> {
    inbox.try_iter().filter(move |answer| answer.agent == agent)
}
