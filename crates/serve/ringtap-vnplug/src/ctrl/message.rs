// SPDX-License-Identifier: MIT OR Apache-2.0
//! Framework layer and application header: the messages.
//!
//! All numbers are little-endian. `docs/internals/vnplug.md` lists the bytes.
#![forbid(unsafe_code)]

use thiserror::Error;

use super::VERSION;
use super::frame::MAX_BODY_BYTES;
use crate::device::{MappingKind, SharedId};

/// Bytes of the framework header.
const HEADER_BYTES: usize = 8;
/// Bytes of the application header.
const APPLICATION_HEADER_BYTES: usize = 8;
/// Most bytes of an application's payload in one message.
pub const MAX_PAYLOAD_BYTES: usize = MAX_BODY_BYTES - HEADER_BYTES - APPLICATION_HEADER_BYTES;

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
    /// At most [`MAX_PAYLOAD_BYTES`].
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
        let application = match self {
            Message::DeviceAdded { application, .. } => *application,
            Message::Application(message) => message.application,
            _ => 0,
        };
        let (kind, number, rest) = match self {
            Message::Hello {
                oldest,
                newest,
                instance,
            } => (1, *instance, vec![*oldest, *newest]),
            Message::Welcome { version, instance } => (2, *instance, vec![*version]),
            Message::Refuse {
                oldest,
                newest,
                instance,
            } => (3, *instance, vec![*oldest, *newest]),
            Message::DeviceAdded { device, .. } => (4, device.0, Vec::new()),
            Message::DeviceLeaving { device } => (5, device.0, Vec::new()),
            Message::DeviceReady {
                device,
                mapping,
                interrupts,
            } => (6, device.0, vec![*mapping as u8, u8::from(*interrupts)]),
            Message::DeviceFailed { device } => (7, device.0, Vec::new()),
            Message::DeviceReleased { device } => (8, device.0, Vec::new()),
            Message::Signal { device, vector } => (9, device.0, vector.to_le_bytes().to_vec()),
            Message::Application(message) => {
                let header = u64::from(message.kind) | u64::from(message.request) << 32;
                (10, header, message.payload.clone())
            }
        };
        let mut bytes = vec![VERSION, kind, 0, 0];
        bytes.extend(application.to_le_bytes());
        bytes.extend(number.to_le_bytes());
        bytes.extend(rest);
        bytes
    }

    /// The message of a frame's body.
    ///
    /// # Errors
    ///
    /// [`DecodeError`] for any other bytes.
    pub fn decode(body: &[u8]) -> Result<Self, DecodeError> {
        let length = DecodeError::Length(body.len());
        let (header, fields) = body.split_first_chunk::<HEADER_BYTES>().ok_or(length)?;
        let [version, kind, reserved @ .., a, b, c, d] = *header;
        // The versions of agent and host differ: only the header of these two is agreed for ever.
        if version != VERSION && !matches!(kind, 1 | 3) {
            return Err(DecodeError::Version(version));
        }
        let unknown = DecodeError::Unknown(kind);
        let application = u32::from_le_bytes([a, b, c, d]);
        let of_application = matches!(kind, 4 | 10);
        if reserved != [0, 0] || (application == 0) == of_application {
            return Err(unknown);
        }
        let (number, rest) = fields.split_first_chunk::<8>().ok_or(length)?;
        let instance = u64::from_le_bytes(*number);
        let device = SharedId(instance);
        Ok(match (kind, rest) {
            (1, &[oldest, newest]) => Message::Hello {
                oldest,
                newest,
                instance,
            },
            (2, &[version]) => Message::Welcome { version, instance },
            (3, &[oldest, newest]) => Message::Refuse {
                oldest,
                newest,
                instance,
            },
            (4, []) => Message::DeviceAdded {
                device,
                application,
            },
            (5, []) => Message::DeviceLeaving { device },
            (6, &[mapping, interrupts]) => Message::DeviceReady {
                device,
                mapping: MappingKind::from_number(mapping).ok_or(unknown)?,
                interrupts: match interrupts {
                    0 => false,
                    1 => true,
                    _ => return Err(unknown),
                },
            },
            (7, []) => Message::DeviceFailed { device },
            (8, []) => Message::DeviceReleased { device },
            (9, &[low, high]) => Message::Signal {
                device,
                vector: u16::from_le_bytes([low, high]),
            },
            (10, payload) => {
                let &[low, high, 0, 0, a, b, c, d] = number else {
                    return Err(unknown);
                };
                Message::Application(ApplicationMessage {
                    application,
                    kind: u16::from_le_bytes([low, high]),
                    request: u32::from_le_bytes([a, b, c, d]),
                    payload: payload.to_vec(),
                })
            }
            (1..=9, _) => return Err(length),
            _ => return Err(unknown),
        })
    }
}
