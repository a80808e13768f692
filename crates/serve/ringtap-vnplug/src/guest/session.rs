// SPDX-License-Identifier: MIT OR Apache-2.0
//! The guest's half of the protocol: what each message of the host means.
#![forbid(unsafe_code)]

use crate::ctrl::VERSION;
use crate::ctrl::message::Message;

/// Messages of one agent, without input and output.
#[derive(Debug)]
pub struct GuestSession {
    instance: u64,
    is_welcome: bool,
}

impl GuestSession {
    /// An agent that just started, with a number that no other agent has.
    #[must_use]
    pub fn new(instance: u64) -> Self {
        GuestSession {
            instance,
            is_welcome: false,
        }
    }

    /// The agent's first message.
    #[must_use]
    pub fn hello(&self) -> Message {
        Message::Hello {
            oldest: VERSION,
            newest: VERSION,
            instance: self.instance,
        }
    }

    /// The message, if it is one of the host for this agent. What the host sent to an earlier agent is ignored.
    pub fn receive(&mut self, message: Message) -> Option<Message> {
        let is_for_this = match message {
            Message::Welcome { version, instance } => {
                self.is_welcome = version == VERSION && instance == self.instance;
                self.is_welcome
            }
            Message::Refuse { instance, .. } => instance == self.instance,
            Message::DeviceAdded { .. }
            | Message::DeviceLeaving { .. }
            | Message::Signal { .. }
            | Message::Application(_) => self.is_welcome,
            // Messages that only a guest sends.
            _ => false,
        };
        is_for_this.then_some(message)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::device::SharedId;

    #[test]
    fn what_was_sent_to_an_earlier_agent_is_ignored() {
        let mut session = GuestSession::new(5);
        let device = SharedId(3);
        let leaving = Message::DeviceLeaving { device };
        let welcome = |version, instance| Message::Welcome { version, instance };
        for early in [leaving.clone(), welcome(VERSION, 4), welcome(9, 5)] {
            assert_eq!(session.receive(early), None);
        }
        let welcome = welcome(VERSION, 5);
        assert_eq!(session.receive(welcome.clone()), Some(welcome));
        assert_eq!(session.receive(leaving.clone()), Some(leaving));
        assert_eq!(session.receive(session.hello()), None);
    }
}
