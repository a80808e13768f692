// SPDX-License-Identifier: MIT OR Apache-2.0
//! The parser: `[KIND:]NAME[@QUEUES][?OPTION[&OPTION...]]`.

use std::ops::Range;

use ringtap_net::meant;

use super::{DeviceError, DeviceSpec, Kind, Options, Queues, Rate, escape, options};

/// Linux keeps 16 bytes for the name of an interface, the last one a NUL.
const INTERFACE_NAME_BYTES: usize = 15;

/// Position of a device in a text, for errors.
#[derive(Clone, Copy)]
pub(super) struct TextPlace<'a> {
    text: &'a str,
    start: usize,
    end: usize,
}

impl<'a> TextPlace<'a> {
    pub(super) fn str(self) -> &'a str {
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
    pub(super) fn split(self, sign: char) -> impl Iterator<Item = Self> {
        let mut rest = Some(self);
        std::iter::from_fn(move || {
            let (part, after) = rest?.split_at(sign);
            rest = after;
            Some(part)
        })
    }

    pub(super) fn error(self, message: impl Into<String>) -> DeviceError {
        DeviceError::Syntax {
            text: self.text.to_owned(),
            message: message.into(),
            place: self.start..self.end,
        }
    }
}

/// The device at `place` of `text`.
pub(super) fn device(text: &str, place: Range<usize>) -> Result<DeviceSpec, DeviceError> {
    let whole = TextPlace {
        text,
        start: place.start,
        end: place.end,
    };
    let (target, options) = whole.split_at('?');
    let (kind, target) = split_kind(target)?;
    let (name, queues) = if kind.has_queues() {
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
            Some(given) => options::parse(kind, given)?,
            None => Options::default(),
        },
    })
}

/// The kind that a text begins with, and the offset of the name.
pub(super) fn kind(text: &str) -> Option<(Kind, usize)> {
    let (prefix, _) = text.split_once(':')?;
    let kind = Kind::PREFIXED
        .into_iter()
        .find(|kind| kind.prefix() == prefix)?;
    Some((kind, prefix.len() + 1))
}

fn split_kind(target: TextPlace<'_>) -> Result<(Kind, TextPlace<'_>), DeviceError> {
    if let Some((kind, skip)) = kind(target.str()) {
        let start = target.start + skip;
        return Ok((kind, TextPlace { start, ..target }));
    }
    let (prefix, rest) = target.split_at(':');
    match rest {
        None => Ok((Kind::Auto, target)),
        Some(_) => Err(unknown_kind(prefix)),
    }
}

fn unknown_kind(prefix: TextPlace<'_>) -> DeviceError {
    let known: Vec<_> = Kind::PREFIXED.iter().map(|kind| kind.prefix()).collect();
    let meant = meant(prefix.str(), known.iter().copied());
    let known = known.join(", ");
    prefix.error(format!(
        "there is no source \"{}\"{meant} (sources: {known}; an interface's name has no colon)",
        prefix.str()
    ))
}

fn parse_name(kind: Kind, place: TextPlace<'_>) -> Result<String, DeviceError> {
    let Some(name) = escape::unescape(place.str()) else {
        return Err(place.error("the name is not UTF-8 once its %XX are replaced"));
    };
    if let (true, Err(message)) = (kind.names_an_interface(), check_interface(&name)) {
        return Err(place.error(message));
    }
    match kind {
        Kind::Pcap if name.is_empty() => {
            Err(place.error("expected the name of a file, or - for standard input"))
        }
        Kind::Pcap if name.contains('\0') => Err(place.error("a file's name has no NUL byte")),
        Kind::Hub | Kind::Host if name.is_empty() => {
            Err(place.error("expected the name of a group"))
        }
        Kind::Sim => match name.parse::<Rate>() {
            Ok(_) => Ok(name),
            Err(error) => Err(place.error(format!("the simulated link: {error}"))),
        },
        _ => Ok(name),
    }
}

/// Checks the name of an interface by the rules of Linux.
fn check_interface(name: &str) -> Result<(), String> {
    let bytes = name.len();
    let is_bad = |sign: char| sign == '/' || sign == ':' || sign == '\0' || sign.is_whitespace();
    if name.is_empty() {
        Err("expected the name of an interface".to_owned())
    } else if name == "." || name == ".." {
        Err(format!("\"{name}\" cannot be the name of an interface"))
    } else if let Some(sign) = name.chars().find(|sign| is_bad(*sign)) {
        let file = match sign {
            '/' => format!("; is it a file? then write pcap:{name}"),
            _ => String::new(),
        };
        Err(format!("an interface's name cannot contain {sign:?}{file}"))
    } else if bytes > INTERFACE_NAME_BYTES {
        Err(format!(
            "an interface's name has at most {INTERFACE_NAME_BYTES} bytes, this has {bytes}"
        ))
    } else {
        Ok(())
    }
}

fn parse_queues(name: TextPlace<'_>, place: TextPlace<'_>) -> Result<Queues, DeviceError> {
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

fn parse_range(place: TextPlace<'_>) -> Result<std::ops::RangeInclusive<u16>, DeviceError> {
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

fn parse_queue(place: TextPlace<'_>) -> Result<u16, DeviceError> {
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
