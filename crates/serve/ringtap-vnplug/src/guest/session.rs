// SPDX-License-Identifier: MIT OR Apache-2.0
//! The guest's half of the protocol: what each message of the host means.
#![forbid(unsafe_code)]

use crate::ctrl::VERSION;
use crate::ctrl::message::{ApplicationId, ApplicationMessage, Message};
use crate::device::SharedId;

/// What the host did.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum FromHost {
    /// The host serves this agent.
    Welcome,
    /// The host has other versions (oldest, newest) and does not serve this agent.
    Refused(u8, u8),
    /// A device of an application is plugged.
    DeviceAdded(SharedId, ApplicationId),
    /// The host takes a device away: drop all that maps it, then
    /// [`release`](crate::guest::HostLink::release) it.
    DeviceLeaving(SharedId),
    /// The host signalled on a vector of a device.
    Signal(SharedId, u16),
    /// An application's message.
    Message(ApplicationMessage),
    /// The host process is gone, and with it the link.
    Left,
}

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

    /// Takes in a message. What the host sent to an earlier agent is ignored.
    pub fn receive(&mut self, message: Message) -> Option<FromHost> {
        match message {
            Message::Welcome { version, instance } => {
                self.is_welcome = version == VERSION && instance == self.instance;
                self.is_welcome.then_some(FromHost::Welcome)
            }
            Message::Refuse {
                oldest,
                newest,
                instance,
            } if instance == self.instance => Some(FromHost::Refused(oldest, newest)),
            _ if !self.is_welcome => None,
            Message::DeviceAdded {
                device,
                application,
                ..
            } => Some(FromHost::DeviceAdded(device, application)),
            Message::DeviceLeaving { device } => Some(FromHost::DeviceLeaving(device)),
            Message::Signal { device, vector } => Some(FromHost::Signal(device, vector)),
            Message::Application(message) => Some(FromHost::Message(message)),
            // Messages that only a guest sends.
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_sent_to_an_earlier_agent_is_ignored() {
        let mut session = GuestSession::new(5);
        let device = SharedId(3);
        let leaving = Message::DeviceLeaving { device };
        let welcome = |version, instance| Message::Welcome { version, instance };
        for early in [leaving.clone(), welcome(VERSION, 4), welcome(9, 5)] {
            assert_eq!(session.receive(early), None);
        }
        let arrived = session.receive(welcome(VERSION, 5));
        assert_eq!(arrived, Some(FromHost::Welcome));
        let event = session.receive(leaving);
        assert_eq!(event, Some(FromHost::DeviceLeaving(device)));
        assert_eq!(session.receive(session.hello()), None);
    }
}
