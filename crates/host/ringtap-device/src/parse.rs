// SPDX-License-Identifier: MIT OR Apache-2.0
//! The parser: `[KIND:]NAME[@QUEUES][?OPTION[&OPTION...]]`.

use std::{ops::Range, str::FromStr};

use ringtap_net::meant;

use super::{
    escape,
    keys::OptionKey,
    kind::{Kind, NameOf},
    kinds,
    options::Options,
    queues::Queues,
    rate::Rate,
    spec::{DeviceError, DeviceSpec},
};

/// Linux keeps 16 bytes for the name of an interface, the last one a NUL.
const INTERFACE_NAME_BYTES: usize = 15;

/// Position of a device in a text, for errors.
#[derive(Clone, Copy)]
struct TextSpan<'a> {
    text: &'a str,
    start: usize,
    end: usize,
}

impl<'a> TextSpan<'a> {
    fn str(self) -> &'a str {
        &self.text[self.start..self.end]
    }

    /// The parts before and after the first `sign`, without it.
    fn split_at(self, sign: char) -> (Self, Option<Self>) {
        match self.str().find(sign) {
            None => (self, None),
            Some(at) => {
                let end = self.start + at;
                let start = end + sign.len_utf8();
                (Self { end, ..self }, Some(Self { start, ..self }))
            }
        }
    }

    /// The parts that `sign` separates; one empty part for an empty text.
    fn split(self, sign: char) -> impl Iterator<Item = Self> {
        let mut rest = Some(self);
        std::iter::from_fn(move || {
            let (part, after) = rest?.split_at(sign);
            rest = after;
            Some(part)
        })
    }

    fn error(self, message: impl Into<String>) -> DeviceError {
        DeviceError::Syntax {
            text: self.text.to_owned(),
            message: message.into(),
            place: self.start..self.end,
        }
    }
}

impl FromStr for DeviceSpec {
    type Err = DeviceError;

    fn from_str(text: &str) -> Result<Self, DeviceError> {
        device(text, 0..text.len())
    }
}

/// The device at `place` of `text`.
pub(super) fn device(text: &str, place: Range<usize>) -> Result<DeviceSpec, DeviceError> {
    let whole = TextSpan {
        text,
        start: place.start,
        end: place.end,
    };
    let (target, options) = whole.split_at('?');
    let (kind, target) = split_kind(target)?;
    let (name, queues) = if kind.names_an_interface() {
        target.split_at('@')
    } else {
        (target, None)
    };
    let queues = match queues {
        Some(queues) => parse_queues(name, queues)?,
        None => Queues::All,
    };
    Ok(DeviceSpec {
        kind,
        name: parse_name(kind, name)?,
        queues,
        options: match options {
            Some(given) => parse_options(kind, given)?,
            None => Options::default(),
        },
    })
}

fn split_kind(target: TextSpan<'_>) -> Result<(&'static Kind, TextSpan<'_>), DeviceError> {
    let (prefix, rest) = target.split_at(':');
    match (rest, DeviceSpec::kind_of(target.str())) {
        (Some(rest), Some(kind)) => Ok((kind, rest)),
        (None, _) => Ok((&kinds::AUTO, target)),
        (Some(_), None) => Err(unknown_kind(prefix)),
    }
}

fn unknown_kind(prefix: TextSpan<'_>) -> DeviceError {
    let known: Vec<_> = kinds::prefixed().map(|kind| kind.word).collect();
    let meant = meant(prefix.str(), known.iter().copied());
    let known = known.join(", ");
    prefix.error(format!(
        "there is no source \"{}\"{meant} (sources: {known}; an interface's name has no colon)",
        prefix.str()
    ))
}

fn parse_name(kind: &Kind, place: TextSpan<'_>) -> Result<String, DeviceError> {
    let Some(name) = escape::unescape(place.str()) else {
        return Err(place.error("the name is not UTF-8 once its %XX are replaced"));
    };
    match kind.name_of {
        NameOf::Interface => check_interface(&name, place)?,
        NameOf::File if name.is_empty() => {
            return Err(place.error("expected the name of a file, or - for standard input"));
        }
        NameOf::File if name.contains('\0') => {
            return Err(place.error("a file's name has no NUL byte"));
        }
        NameOf::Group if name.is_empty() => {
            return Err(place.error("expected the name of a group"));
        }
        NameOf::Link => {
            let rate: Result<Rate, _> = name.parse();
            rate.map_err(|error| place.error(format!("the simulated link: {error}")))?;
        }
        NameOf::File | NameOf::Group => {}
    }
    Ok(name)
}

/// Checks the name of an interface by the rules of Linux.
fn check_interface(name: &str, place: TextSpan<'_>) -> Result<(), DeviceError> {
    let bytes = name.len();
    let is_bad = |sign: char| sign == '/' || sign == ':' || sign == '\0' || sign.is_whitespace();
    if name.is_empty() {
        Err(place.error("expected the name of an interface"))
    } else if name == "." || name == ".." {
        Err(place.error(format!("\"{name}\" cannot be the name of an interface")))
    } else if let Some(sign) = name.chars().find(|sign| is_bad(*sign)) {
        let file = match sign {
            '/' => format!("; is it a file? then write pcap:{name}"),
            _ => String::new(),
        };
        Err(place.error(format!("an interface's name cannot contain {sign:?}{file}")))
    } else if bytes > INTERFACE_NAME_BYTES {
        Err(place.error(format!(
            "an interface's name has at most {INTERFACE_NAME_BYTES} bytes, this has {bytes}"
        )))
    } else {
        Ok(())
    }
}

fn parse_queues(name: TextSpan<'_>, place: TextSpan<'_>) -> Result<Queues, DeviceError> {
    let starts_as_number = place.str().starts_with(|sign: char| sign.is_ascii_digit());
    if !starts_as_number && !place.str().is_empty() {
        return Err(place.error(format!(
            "queues are numbers, as in \"{name}@0-3\"; if \"@{}\" came from `ip link`, it names \
             the other end and is no part of the name: write \"{name}\"",
            place.str(),
            name = name.str(),
        )));
    }
    let ranges: Result<Vec<_>, _> = place.split(',').map(parse_range).collect();
    Ok(Queues::chosen(ranges?))
}

fn parse_range(place: TextSpan<'_>) -> Result<std::ops::RangeInclusive<u16>, DeviceError> {
    let (first, last) = place.split_at('-');
    let from = parse_queue(first)?;
    let to = last.map_or(Ok(from), parse_queue)?;
    if from <= to {
        Ok(from..=to)
    } else {
        Err(place.error(format!(
            "queue {from} comes after queue {to}: write {to}-{from}"
        )))
    }
}

fn parse_queue(place: TextSpan<'_>) -> Result<u16, DeviceError> {
    let is_number = place.str().bytes().all(|byte| byte.is_ascii_digit());
    match place.str().parse() {
        Ok(queue) if is_number => Ok(queue),
        _ if place.str().is_empty() => Err(place.error("expected the number of a queue")),
        _ => Err(place.error(format!(
            "\"{}\" is not the number of a queue (0 to {})",
            place.str(),
            u16::MAX
        ))),
    }
}

/// The options of a device of this kind.
fn parse_options(kind: &Kind, place: TextSpan<'_>) -> Result<Options, DeviceError> {
    let mut options = Options::default();
    for part in place.split('&') {
        let (name, value) = match part.str().split_once('=') {
            Some((name, value)) => (name, Some(value)),
            None => (part.str(), None),
        };
        let key = find(kind, name, part)?;
        if key.get(&options).is_some() {
            return Err(part.error(format!("{name} is given twice")));
        }
        match (key.value, value) {
            ("", Some(_)) => return Err(part.error(format!("{name} takes no value"))),
            (form, None) if !form.is_empty() => {
                return Err(part.error(format!("{name} needs a value: {name}={form}")));
            }
            (_, value) => key
                .set(&mut options, value.unwrap_or_default())
                .map_err(|error| part.error(format!("{name}: {error}")))?,
        }
    }
    Ok(options)
}

fn find(kind: &Kind, name: &str, place: TextSpan<'_>) -> Result<&'static OptionKey, DeviceError> {
    let mut known = kind.keys.iter().copied();
    if let Some(key) = known.find(|key| key.name == name) {
        return Ok(key);
    }
    let list: Vec<_> = kind.keys.iter().map(|key| key.written()).collect();
    let list = format!("options of {kind}: {}", list.join(", "));
    let message = match kinds::with_key(name) {
        only if !only.is_empty() => {
            let why = kind.lacks.iter().find(|(lacking, _)| *lacking == name);
            let why = why.map_or_else(String::new, |(_, why)| format!(": {why}"));
            format!("{name} is for {only} only{why} ({list})")
        }
        _ if name.is_empty() => format!("expected an option ({list})"),
        _ if name.contains('@') => "queues come before options: eth0@0?exclusive".to_owned(),
        _ => {
            let meant = meant(name, kind.keys.iter().map(|key| key.name));
            format!("no option \"{name}\"{meant} ({list})")
        }
    };
    Err(place.error(message))
}
