// SPDX-License-Identifier: MIT OR Apache-2.0
//! The host's half of the protocol: what each message of a guest changes.
//!
//! Invariants
//! - No message makes this allocate more than its own payload and one answer per device.
#![forbid(unsafe_code)]

use std::collections::BTreeMap;

use crate::ctrl::VERSION;
use crate::ctrl::message::{ApplicationId, ApplicationMessage, Message};
use crate::device::{DeviceHeader, MappingKind, SharedId};

/// An action of a guest.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum FromGuest {
    /// An agent started; it learns of all devices.
    Arrived,
    /// The agent is gone; nothing is mapped any more.
    Left,
    /// An agent of other versions (oldest, newest) asked; it was refused.
    Incompatible(u8, u8),
    /// The guest has mapped the device.
    Ready {
        /// The device.
        device: SharedId,
        /// How the guest maps it.
        mapping: MappingKind,
        /// Whether signals interrupt the guest; otherwise they are messages.
        interrupts: bool,
    },
    /// The guest cannot map the device.
    Failed(SharedId),
    /// The guest has unmapped the device.
    Released(SharedId),
    /// The guest signalled on a vector of a device.
    Signal(SharedId, u16),
    /// An application's message.
    Message(ApplicationMessage),
    /// The device is unplugged; its memory is no longer the guest's.
    Unplugged(SharedId),
    /// libvirt, or QEMU's QMP socket, does not answer, while QEMU runs on. Nothing can be plugged or unplugged until
    /// [`FromGuest::Reconnected`].
    Disconnected,
    /// libvirt, or QEMU's QMP socket, answers again.
    Reconnected,
    /// QEMU has ended.
    Gone,
}

/// Messages and devices of one guest, without input and output.
#[derive(Debug, Default)]
pub struct HostSession {
    /// Instance of the agent, if one is there.
    agent: Option<u64>,
    devices: BTreeMap<SharedId, Announced>,
}

#[derive(Debug)]
struct Announced {
    application: ApplicationId,
    vectors: u16,
    leaving: bool,
    /// Whether signals interrupt the guest, once it has mapped the device.
    interrupts: Option<bool>,
}

/// Effects of a message of the guest.
#[derive(Debug, Default)]
pub struct SessionOutcome {
    /// Actions of the guest, in order.
    pub events: Vec<FromGuest>,
    /// Messages to send to the guest.
    pub answers: Vec<Message>,
    /// Whether messages that are not sent yet were for another agent.
    pub is_new_agent: bool,
}

impl HostSession {
    /// Whether an agent is there.
    #[must_use]
    pub fn has_agent(&self) -> bool {
        self.agent.is_some()
    }

    /// Adds a device; returns the message for the guest if an agent is there.
    pub fn add(&mut self, header: &DeviceHeader) -> Option<Message> {
        let DeviceHeader {
            device,
            application,
            ..
        } = *header;
        let announced = Announced {
            application,
            vectors: header.kind.vectors(),
            leaving: false,
            interrupts: None,
        };
        self.devices.insert(device, announced);
        self.agent.map(|_| Message::DeviceAdded {
            device,
            application,
        })
    }

    /// Marks a device as leaving; returns the message for the guest if an agent is there.
    pub fn leave(&mut self, device: SharedId) -> Option<Message> {
        let announced = self.devices.get_mut(&device)?;
        announced.leaving = true;
        self.agent.map(|_| Message::DeviceLeaving { device })
    }

    /// Forgets a device.
    pub fn remove(&mut self, device: SharedId) {
        self.devices.remove(&device);
    }

    /// How the guest takes signals of a device: by interrupt or not; `None` if it has not mapped it.
    #[must_use]
    pub fn interrupts(&self, device: SharedId) -> Option<bool> {
        self.devices.get(&device)?.interrupts
    }

    /// Notes that the agent is gone; returns whether one was there.
    pub fn agent_left(&mut self) -> bool {
        for announced in self.devices.values_mut() {
            announced.interrupts = None;
        }
        self.agent.take().is_some()
    }

    /// Takes in a message of the guest.
    pub fn receive(&mut self, message: Message) -> SessionOutcome {
        let mut outcome = SessionOutcome::default();
        match message {
            Message::Hello {
                oldest,
                newest,
                instance,
            } => self.hello(oldest, newest, instance, &mut outcome),
            _ if self.agent.is_none() => {}
            Message::DeviceReady {
                device,
                mapping,
                interrupts,
            } => {
                if let Some(announced) = self.devices.get_mut(&device) {
                    // A device without events cannot interrupt.
                    let interrupts = interrupts && announced.vectors > 0;
                    announced.interrupts = Some(interrupts);
                    outcome.events.push(FromGuest::Ready {
                        device,
                        mapping,
                        interrupts,
                    });
                    if announced.leaving {
                        outcome.answers.push(Message::DeviceLeaving { device });
                    }
                }
            }
            Message::DeviceFailed { device } if self.devices.contains_key(&device) => {
                outcome.events.push(FromGuest::Failed(device));
            }
            Message::DeviceReleased { device } => {
                if let Some(announced) = self.devices.get_mut(&device) {
                    announced.interrupts = None;
                    outcome.events.push(FromGuest::Released(device));
                }
            }
            Message::Signal { device, vector } => {
                let announced = self.devices.get(&device);
                if announced.is_some_and(|one| vector < one.vectors) {
                    outcome.events.push(FromGuest::Signal(device, vector));
                }
            }
            Message::Application(message) => outcome.events.push(FromGuest::Message(message)),
            // Messages that only a host sends, and those about unknown devices.
            _ => {}
        }
        outcome
    }

    fn hello(&mut self, oldest: u8, newest: u8, instance: u64, outcome: &mut SessionOutcome) {
        if self.agent_left() {
            outcome.events.push(FromGuest::Left);
        }
        outcome.is_new_agent = true;
        if !(oldest..=newest).contains(&VERSION) {
            outcome.events.push(FromGuest::Incompatible(oldest, newest));
            outcome.answers.push(Message::Refuse {
                oldest: VERSION,
                newest: VERSION,
                instance,
            });
            return;
        }
        self.agent = Some(instance);
        outcome.events.push(FromGuest::Arrived);
        outcome.answers.push(Message::Welcome {
            version: VERSION,
            instance,
        });
        let staying = self.devices.iter().filter(|(_, one)| !one.leaving);
        let added = staying.map(|(device, one)| Message::DeviceAdded {
            device: *device,
            application: one.application,
        });
        outcome.answers.extend(added);
    }
}

#[cfg(test)]
mod tests;
