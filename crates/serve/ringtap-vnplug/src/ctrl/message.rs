// SPDX-License-Identifier: MIT OR Apache-2.0
//! Framework layer and application header: the messages.
//!
//! All numbers are little-endian. `docs/internals/vnplug.md` lists the bytes.
#![forbid(unsafe_code)]

use thiserror::Error;

use super::VERSION;
use super::frame::MOST_BODY_BYTES;
use crate::device::{FIRST_WORDS, ForeignMemory, MappingKind, SharedId};

/// Bytes of the framework header.
const HEADER_BYTES: usize = 8;
/// Bytes of the application header.
const APPLICATION_HEADER_BYTES: usize = 8;
/// Most bytes of an application's payload in one message.
pub const MOST_PAYLOAD_BYTES: usize = MOST_BODY_BYTES - HEADER_BYTES - APPLICATION_HEADER_BYTES;

/// Number of an application, chosen by its author; 0 is the framework itself.
pub type ApplicationId = u32;

/// An application's message: application header and payload.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ApplicationMessage {
    /// The application, at both ends.
    pub application: ApplicationId,
    /// Kind of the message, as the application defines it.
    pub kind: u16,
    /// Number that an answer repeats, as the application defines it.
    pub request: u32,
    /// At most [`MOST_PAYLOAD_BYTES`].
    pub payload: Vec<u8>,
}

/// A message between host and guest.
#[derive(Clone, Debug, PartialEq, Eq)]
#[expect(missing_docs, reason = "docs/internals/vnplug.md describes the fields")]
pub enum Message {
    /// Guest: an agent started. The host answers `Welcome` or `Refuse`.
    Hello {
        oldest: u8,
        newest: u8,
        instance: u64,
    },
    /// Host: messages from here on are for this instance of the agent.
    Welcome { version: u8, instance: u64 },
    /// Host: no common version.
    Refuse {
        oldest: u8,
        newest: u8,
        instance: u64,
    },
    /// Host: the device is plugged.
    DeviceAdded {
        device: SharedId,
        application: ApplicationId,
        foreign: Option<ForeignMemory>,
    },
    /// Host: the device will be unplugged; the guest unmaps it and answers `DeviceReleased`.
    DeviceLeaving { device: SharedId },
    /// Guest: the device is mapped; it takes signals by interrupt, or as `Signal`.
    DeviceReady {
        device: SharedId,
        mapping: MappingKind,
        interrupts: bool,
    },
    /// Guest: the device was not found, or cannot be mapped.
    DeviceFailed { device: SharedId },
    /// Guest: the device is not mapped any more.
    DeviceReleased { device: SharedId },
    /// Either end: a signal of a device without interrupts.
    Signal { device: SharedId, vector: u16 },
    /// Either end: a message of an application.
    Application(ApplicationMessage),
}

/// Why bytes are no message.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum DecodeError {
    /// Too few or too many bytes for the kind of message.
    #[error("{0} bytes: the wrong length for this kind of message")]
    Length(usize),
    /// Another version of the framework header.
    #[error("version {0} of the framework header, instead of {VERSION}")]
    Version(u8),
    /// A kind that this version does not have, or a field with a value that it does not have.
    #[error("kind {0}, or a field of it, has a value that version {VERSION} does not have")]
    Unknown(u8),
}

impl Message {
    /// The body of the message's frame.
    #[must_use]
    pub fn encode(&self) -> Vec<u8> {
        let (kind, application) = match self {
            Message::Hello { .. } => (1, 0),
            Message::Welcome { .. } => (2, 0),
            Message::Refuse { .. } => (3, 0),
            Message::DeviceAdded { application, .. } => (4, *application),
            Message::DeviceLeaving { .. } => (5, 0),
            Message::DeviceReady { .. } => (6, 0),
            Message::DeviceFailed { .. } => (7, 0),
            Message::DeviceReleased { .. } => (8, 0),
            Message::Signal { .. } => (9, 0),
            Message::Application(message) => (10, message.application),
        };
        let mut bytes = vec![VERSION, kind, 0, 0];
        bytes.extend(application.to_le_bytes());
        match self {
            Message::Hello {
                oldest,
                newest,
                instance,
            }
            | Message::Refuse {
                oldest,
                newest,
                instance,
            } => {
                bytes.extend(instance.to_le_bytes());
                bytes.extend([*oldest, *newest]);
            }
            Message::Welcome { version, instance } => {
                bytes.extend(instance.to_le_bytes());
                bytes.push(*version);
            }
            Message::DeviceReady {
                device,
                mapping,
                interrupts,
            } => {
                bytes.extend(device.0.to_le_bytes());
                bytes.extend([*mapping as u8, u8::from(*interrupts)]);
            }
            Message::DeviceAdded {
                device, foreign, ..
            } => {
                bytes.extend(device.0.to_le_bytes());
                if let Some(memory) = foreign {
                    bytes.extend(memory.bytes.to_le_bytes());
                    bytes.extend(memory.first.iter().flat_map(|word| word.to_le_bytes()));
                }
            }
            Message::DeviceLeaving { device }
            | Message::DeviceFailed { device }
            | Message::DeviceReleased { device } => bytes.extend(device.0.to_le_bytes()),
            Message::Signal { device, vector } => {
                bytes.extend(device.0.to_le_bytes());
                bytes.extend(vector.to_le_bytes());
            }
            Message::Application(message) => {
                bytes.extend(message.kind.to_le_bytes());
                bytes.extend([0, 0]);
                bytes.extend(message.request.to_le_bytes());
                bytes.extend(&message.payload);
            }
        }
        bytes
    }

    /// The message of a frame's body.
    ///
    /// # Errors
    ///
    /// [`DecodeError`] for any other bytes.
    pub fn decode(body: &[u8]) -> Result<Self, DecodeError> {
        let short = DecodeError::Length(body.len());
        let mut fields = Fields(body);
        let [version, kind, low, high] = fields.take::<4>().ok_or(short)?;
        // The versions of agent and host differ: only the header of these two is agreed for ever.
        if version != VERSION && !matches!(kind, 1 | 3) {
            return Err(DecodeError::Version(version));
        }
        let unknown = DecodeError::Unknown(kind);
        let application = fields.u32().ok_or(short)?;
        let of_application = matches!(kind, 4 | 10);
        if [low, high] != [0, 0] || (application == 0) == of_application {
            return Err(unknown);
        }
        if kind == 10 {
            let [kind_low, kind_high, low, high] = fields.take::<4>().ok_or(short)?;
            let request = fields.u32().ok_or(short)?;
            if [low, high] != [0, 0] {
                return Err(unknown);
            }
            return Ok(Message::Application(ApplicationMessage {
                application,
                kind: u16::from_le_bytes([kind_low, kind_high]),
                request,
                payload: fields.0.to_vec(),
            }));
        }
        let number = u64::from_le_bytes(fields.take::<8>().ok_or(short)?);
        let device = SharedId(number);
        let message = match kind {
            1 | 3 => {
                let [oldest, newest] = fields.take::<2>().ok_or(short)?;
                let instance = number;
                match kind {
                    1 => Message::Hello {
                        oldest,
                        newest,
                        instance,
                    },
                    _ => Message::Refuse {
                        oldest,
                        newest,
                        instance,
                    },
                }
            }
            2 => {
                let [version] = fields.take::<1>().ok_or(short)?;
                Message::Welcome {
                    version,
                    instance: number,
                }
            }
            4 => Message::DeviceAdded {
                device,
                application,
                foreign: match fields.0.is_empty() {
                    true => None,
                    false => Some(fields.foreign().ok_or(short)?),
                },
            },
            5 => Message::DeviceLeaving { device },
            6 => {
                let [mapping, interrupts] = fields.take::<2>().ok_or(short)?;
                Message::DeviceReady {
                    device,
                    mapping: MappingKind::of(mapping).ok_or(unknown)?,
                    interrupts: match interrupts {
                        0 => false,
                        1 => true,
                        _ => return Err(unknown),
                    },
                }
            }
            7 => Message::DeviceFailed { device },
            8 => Message::DeviceReleased { device },
            9 => Message::Signal {
                device,
                vector: u16::from_le_bytes(fields.take::<2>().ok_or(short)?),
            },
            _ => return Err(unknown),
        };
        if fields.0.is_empty() {
            Ok(message)
        } else {
            Err(short)
        }
    }
}

/// The bytes that are not decoded yet.
struct Fields<'a>(&'a [u8]);

impl Fields<'_> {
    fn take<const N: usize>(&mut self) -> Option<[u8; N]> {
        let (first, rest) = self.0.split_first_chunk::<N>()?;
        self.0 = rest;
        Some(*first)
    }

    fn foreign(&mut self) -> Option<ForeignMemory> {
        let bytes = u64::from_le_bytes(self.take()?);
        let mut first = [0; FIRST_WORDS];
        for word in &mut first {
            *word = u64::from_le_bytes(self.take()?);
        }
        Some(ForeignMemory { bytes, first })
    }

    fn u32(&mut self) -> Option<u32> {
        self.take::<4>().map(u32::from_le_bytes)
    }
}
