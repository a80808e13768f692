// SPDX-License-Identifier: MIT OR Apache-2.0
//! A device as its user named it.

use std::{fmt, ops::Range};

use ringtap_filter::{MAX_SNAP_LENGTH, caret};
use ringtap_net::interface::{Interface, InterfaceError};

use super::{
    escape,
    keys::OptionError,
    kind::Kind,
    kinds::{self, AUTO, PCAP},
    options::{Direction, Options},
    queues::Queues,
};

/// A device as the user named it, checked.
///
/// # Examples
///
/// ```
/// use ringtap_device::{DeviceSpec, Queues, Size};
///
/// let device: DeviceSpec = "tap:eth0@0-3?pool=1GiB&exclusive".parse()?;
/// assert_eq!((device.kind.word, &*device.name), ("tap", "eth0"));
/// assert_ne!(device.queues, Queues::All);
/// assert_eq!(device.options.pool, Some(Size(1 << 30)));
/// assert!(device.options.exclusive);
///
/// let error = "packet:eth0?exclusive".parse::<DeviceSpec>().unwrap_err();
/// assert!(error.to_string().contains("exclusive is for tap only"));
/// # Ok::<(), ringtap_device::DeviceError>(())
/// ```
#[derive(Debug, Clone, PartialEq)]
pub struct DeviceSpec {
    /// Kind of source.
    pub kind: &'static Kind,
    /// Interface, file or group.
    pub name: String,
    /// Chosen receive queues.
    pub queues: Queues,
    /// Options after the question mark, and those of flags.
    pub options: Options,
}

/// Reason why a text is not a device.
#[expect(missing_docs, reason = "messages show what each field means")]
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum DeviceError {
    /// The text does not follow the syntax.
    #[error("{}", describe(.text, .message, .place))]
    Syntax {
        text: String,
        message: String,
        place: Range<usize>,
    },
    /// A flag and an option of the device differ.
    #[error("{device} says {option}, but the flag says {flag}: give only one of them")]
    Conflict {
        device: String,
        option: String,
        flag: String,
    },
    /// A flag with an invalid value.
    #[error("{flag}: {error}")]
    BadFlag { flag: String, error: OptionError },
    /// A flag that this kind of source does not have.
    #[error("{flag} has no meaning for {device}: only for {kinds}")]
    Pointless {
        device: String,
        flag: String,
        kinds: String,
    },
}

impl DeviceSpec {
    /// A device without queues and options.
    #[must_use]
    pub fn new(kind: &'static Kind, name: impl Into<String>) -> Self {
        Self {
            kind,
            name: name.into(),
            queues: Queues::All,
            options: Options::default(),
        }
    }

    /// A capture file by its path, as `-r FILE` gives it: no sign in it has a special meaning.
    #[must_use]
    pub fn file(path: impl Into<String>) -> Self {
        Self::new(&PCAP, path)
    }

    /// An interface, by the best source that works.
    #[must_use]
    pub fn interface(name: impl Into<String>) -> Self {
        Self::new(&AUTO, name)
    }

    /// The kind that a device's text begins with; the text need not be a correct device.
    #[must_use]
    pub fn kind_of(text: &str) -> Option<&'static Kind> {
        kinds::with_word(text.split_once(':')?.0)
    }

    /// The device with what command-line flags add to its options.
    ///
    /// # Errors
    ///
    /// - [`DeviceError::Conflict`]: a flag contradicts the device's own option.
    /// - [`DeviceError::Pointless`]: a flag that this kind of source does not know.
    /// - [`DeviceError::BadFlag`]: a flag's value is out of range.
    pub fn with_flags(&self, flags: &Options) -> Result<Self, DeviceError> {
        let mut merged = self.clone();
        for key in kinds::keys() {
            let Some(by_flag) = key.get(flags) else {
                continue;
            };
            let flag = key.flag_for(&by_flag);
            if !self.kind.has_key(key.name) {
                return Err(DeviceError::Pointless {
                    device: self.to_string(),
                    flag,
                    kinds: kinds::with_key(key.name),
                });
            }
            match key.get(&self.options) {
                Some(own) if own != by_flag => {
                    return Err(DeviceError::Conflict {
                        device: self.to_string(),
                        option: format!("{}={own}", key.name),
                        flag,
                    });
                }
                _ => key
                    .set(&mut merged.options, &by_flag)
                    .map_err(|error| DeviceError::BadFlag { flag, error })?,
            }
        }
        Ok(merged)
    }

    /// Whether a source of another kind can do all that the device's text asks for.
    #[must_use]
    pub fn suits(&self, kind: &Kind) -> bool {
        let mut keys = self.kind.keys.iter();
        (kind.selects_queues || self.queues == Queues::All)
            && keys.all(|key| key.get(&self.options).is_none() || kind.has_key(key.name))
    }

    /// Why the interface of the device cannot be opened yet, if it is missing or down.
    #[must_use]
    pub fn absence(&self) -> Option<String> {
        let found = Interface::find(&self.name);
        let ready = found.and_then(|interface| {
            if self.kind.opens_when_down {
                Ok(())
            } else {
                interface.require_up()
            }
        });
        let error = ready.err().filter(InterfaceError::is_absence)?;
        Some(error.to_string())
    }

    /// Whether a reader of the device gets every packet of its interface, and all bytes of it.
    #[must_use]
    pub fn is_whole(&self) -> bool {
        let options = &self.options;
        self.kind.names_an_interface()
            && self.queues == Queues::All
            && matches!(options.direction, None | Some(Direction::InOut))
            && options.promiscuous != Some(false)
            && matches!(options.snap_length, None | Some(MAX_SNAP_LENGTH))
    }
}

impl fmt::Display for DeviceSpec {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if !self.kind.is_default() {
            write!(f, "{}:", self.kind)?;
        }
        write!(f, "{}{}", escape::escape(&self.name), self.queues)?;
        let mut sign = '?';
        for key in self.kind.keys {
            if let Some(value) = key.get(&self.options) {
                write!(f, "{sign}{}", key.with_value(&value))?;
                sign = '&';
            }
        }
        Ok(())
    }
}

fn describe(text: &str, message: &str, place: &Range<usize>) -> String {
    let column = caret::column(text, place.start);
    let shown = caret::show(text, place);
    format!("bad device: {message} (character {column})\n{shown}")
}
