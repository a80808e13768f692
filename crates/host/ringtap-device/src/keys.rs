// SPDX-License-Identifier: MIT OR Apache-2.0
//! One option of a device: its documentation, and how to parse and print its value.

use std::{fmt, str::FromStr};

use ringtap_filter::MAX_SNAP_LENGTH;

use super::options::Options;
use super::rate::SpeedError;
use super::shaping::SkewError;
use super::size::SizeError;

/// One option.
pub struct OptionKey {
    /// Its name.
    pub name: &'static str,
    /// Form of the value after `=`; empty for an option without a value.
    pub value: &'static str,
    /// Its effect.
    pub meaning: &'static str,
    /// The value without the option.
    pub default: &'static str,
    /// The flag of the command line that sets it.
    pub flag: Option<FlagName>,
    field: OptionField,
}

/// Names of a flag of the command line.
#[derive(Clone, Copy)]
pub struct FlagName {
    /// After one dash.
    pub short: Option<char>,
    /// After two dashes.
    pub long: &'static str,
}

/// Reason why an option refuses a value.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum OptionError {
    /// The value is none of these words.
    #[error("expected {}", .0.join(", "))]
    Words(Vec<&'static str>),
    /// The value does not have this form.
    #[error("expected {0}")]
    Form(&'static str),
    /// The number of bytes to keep of each packet is too large, or no number.
    #[error("expected 1 to {MAX_SNAP_LENGTH} bytes, or 0 for all")]
    SnapLength,
    /// `adapter`: a NIC's time in the system's clock.
    #[error(
        "Linux does not convert the NIC's time: use adapter_unsynced, and `phc2sys` to set the NIC's clock"
    )]
    AdapterStamps,
    /// The value is not a size.
    #[error(transparent)]
    Size(#[from] SizeError),
    /// The value is not a speed.
    #[error(transparent)]
    Speed(#[from] SpeedError),
    /// The value does not divide packets among queues.
    #[error(transparent)]
    Skew(#[from] SkewError),
}

/// The field of [`Options`] that an option sets.
enum OptionField {
    /// Present or absent.
    Flag(fn(&mut Options) -> &mut bool),
    /// `on` or `off`.
    Switch(fn(&mut Options) -> &mut Option<bool>),
    /// A number above 0.
    Number(fn(&mut Options) -> &mut Option<u32>),
    /// Any other type: parses and prints the value.
    Other(SetValue, GetValue),
}

type SetValue = fn(&mut Options, &str) -> Result<(), OptionError>;
type GetValue = fn(&Options) -> Option<String>;

impl OptionKey {
    /// Sets the option from the text of its value.
    ///
    /// # Errors
    ///
    /// [`OptionError`]: the value has another form.
    pub fn set(&self, options: &mut Options, text: &str) -> Result<(), OptionError> {
        match self.field {
            OptionField::Flag(field) => *field(options) = true,
            OptionField::Switch(field) => return choose(field(options), &SWITCH, text),
            OptionField::Number(field) => return set_number(field(options), text),
            OptionField::Other(set, _) => return set(options, text),
        }
        Ok(())
    }

    /// The canonical text of the value, if the option is set.
    #[must_use]
    pub fn get(&self, options: &Options) -> Option<String> {
        let mut copy = options.clone();
        match self.field {
            OptionField::Flag(field) => field(&mut copy).then(String::new),
            OptionField::Switch(field) => named(*field(&mut copy), &SWITCH),
            OptionField::Number(field) => field(&mut copy).map(|number| number.to_string()),
            OptionField::Other(_, get) => get(options),
        }
    }

    /// Whether its flag takes a value; the flag of a switch turns it off.
    #[must_use]
    pub fn takes_words(&self) -> bool {
        !matches!(self.field, OptionField::Flag(_) | OptionField::Switch(_))
    }

    /// The option with its value, as documents write it.
    #[must_use]
    pub fn written(&self) -> String {
        self.with_value(self.value)
    }

    pub(super) fn with_value(&self, value: &str) -> String {
        match self.value {
            "" => self.name.to_owned(),
            _ => format!("{}={value}", self.name),
        }
    }

    /// The flag that sets this value.
    pub(super) fn flag_for(&self, value: &str) -> String {
        let value = if self.takes_words() { value } else { "" };
        let flag = match self.flag {
            Some(FlagName {
                short: Some(short),
                long,
            }) if long != self.name => format!("-{short} {value}"),
            _ => format!("--{} {value}", self.name),
        };
        flag.trim_end().to_owned()
    }

    pub(super) const fn with_flag(mut self, short: Option<char>, long: &'static str) -> Self {
        self.flag = Some(FlagName { short, long });
        self
    }

    const fn new(
        name: &'static str,
        value: &'static str,
        meaning: &'static str,
        default: &'static str,
        field: OptionField,
    ) -> Self {
        Self {
            name,
            value,
            meaning,
            default,
            flag: None,
            field,
        }
    }

    pub(super) const fn number(
        name: &'static str,
        value: &'static str,
        meaning: &'static str,
        default: &'static str,
        field: fn(&mut Options) -> &mut Option<u32>,
    ) -> Self {
        Self::new(name, value, meaning, default, OptionField::Number(field))
    }

    pub(super) const fn flag(
        name: &'static str,
        meaning: &'static str,
        default: &'static str,
        field: fn(&mut Options) -> &mut bool,
    ) -> Self {
        Self::new(name, "", meaning, default, OptionField::Flag(field))
    }

    pub(super) const fn switch(
        name: &'static str,
        meaning: &'static str,
        default: &'static str,
        field: fn(&mut Options) -> &mut Option<bool>,
    ) -> Self {
        Self::new(name, "on|off", meaning, default, OptionField::Switch(field))
    }

    pub(super) const fn other(
        name: &'static str,
        value: &'static str,
        meaning: &'static str,
        default: &'static str,
        set: SetValue,
        get: GetValue,
    ) -> Self {
        Self::new(name, value, meaning, default, OptionField::Other(set, get))
    }
}

const SWITCH: [(&str, bool); 2] = [("on", true), ("off", false)];

/// Sets `target` to the value that `text` names.
pub(super) fn choose<T: Copy>(
    target: &mut Option<T>,
    values: &[(&'static str, T)],
    text: &str,
) -> Result<(), OptionError> {
    match values.iter().find(|(name, _)| *name == text) {
        Some((_, value)) => {
            *target = Some(*value);
            Ok(())
        }
        None => {
            let names = values.iter().map(|(name, _)| *name);
            Err(OptionError::Words(names.collect()))
        }
    }
}

pub(super) fn named<T: Copy + PartialEq>(value: Option<T>, values: &[(&str, T)]) -> Option<String> {
    let (name, _) = values.iter().find(|(_, one)| Some(*one) == value)?;
    Some((*name).to_owned())
}

pub(super) fn text(value: Option<impl fmt::Display>) -> Option<String> {
    value.map(|value| value.to_string())
}

pub(super) fn parsed<T: FromStr<Err: Into<OptionError>>>(
    target: &mut Option<T>,
    text: &str,
) -> Result<(), OptionError> {
    *target = Some(text.parse().map_err(T::Err::into)?);
    Ok(())
}

pub(super) fn set_number<T: FromStr + Default + PartialOrd>(
    target: &mut Option<T>,
    text: &str,
) -> Result<(), OptionError> {
    let number = text.parse().ok().filter(|number| *number > T::default());
    *target = Some(number.ok_or(OptionError::Form("a number above 0"))?);
    Ok(())
}
