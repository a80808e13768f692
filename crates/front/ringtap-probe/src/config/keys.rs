// SPDX-License-Identifier: MIT OR Apache-2.0
//! A table of the configuration, whose keys are read by name.
//!
//! Errors have the line of the key. A key that nothing has read means nothing in its table, and is refused.

use std::fmt::Display;
use std::ops::RangeInclusive;
use std::path::PathBuf;
use std::time::Duration;

use toml::de::{DeTable, DeValue};

use super::ConfigError;

/// Form of a time, for messages.
pub(super) const TIME: &str = "a time above 0, like 500ms, 5s, 10m or 1h";

/// One table.
pub(super) struct KeyTable<'a> {
    /// Name and text of the file.
    file: (&'a str, &'a str),
    table: &'a DeTable<'a>,
    /// Keys that were read, whether the table has them or not.
    known: Vec<&'static str>,
}

type Read<T> = Result<Option<T>, ConfigError>;

impl<'a> KeyTable<'a> {
    /// The table of the whole file.
    pub(super) fn new(name: &'a str, text: &'a str, table: &'a DeTable<'a>) -> Self {
        KeyTable {
            file: (name, text),
            table,
            known: Vec::new(),
        }
    }

    pub(super) fn text(&mut self, key: &'static str) -> Read<&'a str> {
        self.value(key, "a text in quotes", DeValue::as_str)
    }

    pub(super) fn flag(&mut self, key: &'static str) -> Read<bool> {
        self.value(key, "true or false", DeValue::as_bool)
    }

    pub(super) fn number(&mut self, key: &'static str, range: RangeInclusive<u32>) -> Read<u32> {
        let expected = format!("a number from {} to {}", range.start(), range.end());
        self.value(key, &expected, |value| {
            let digits = value.as_integer()?;
            let number = u32::from_str_radix(digits.as_str(), digits.radix()).ok()?;
            range.contains(&number).then_some(number)
        })
    }

    pub(super) fn time(&mut self, key: &'static str) -> Read<Duration> {
        self.value(key, TIME, |value| duration(value.as_str()?))
    }

    /// As [`KeyTable::time`], refused if it is shorter than `least`.
    pub(super) fn long_time(&mut self, key: &'static str, least: Duration) -> Read<Duration> {
        let time = self.time(key)?;
        if time.is_some_and(|time| time < least) {
            Err(self.error(key, format!("expected {least:?} or longer")))
        } else {
            Ok(time)
        }
    }

    /// A text that `parse` understands; its error becomes the message.
    pub(super) fn parsed<T, E: Display>(
        &mut self,
        key: &'static str,
        parse: impl FnOnce(&'a str) -> Result<T, E>,
    ) -> Read<T> {
        let parsed = self.text(key)?.map(parse).transpose();
        parsed.map_err(|why| self.error(key, why))
    }

    /// A list of absolute paths.
    pub(super) fn paths(&mut self, key: &'static str) -> Read<Vec<PathBuf>> {
        self.value(key, "a list of absolute paths in quotes", |value| {
            value
                .as_array()?
                .iter()
                .map(|one| one.get_ref().as_str().map(PathBuf::from))
                .map(|path| path.filter(|it| it.is_absolute()))
                .collect()
        })
    }

    /// The tables `[[key]]`.
    pub(super) fn tables(&mut self, key: &'static str) -> Result<Vec<Self>, ConfigError> {
        let expected = format!("tables [[{key}]]");
        let array = self.value(key, &expected, DeValue::as_array)?;
        array
            .into_iter()
            .flatten()
            .map(|one| match one.get_ref().as_table() {
                Some(table) => Ok(self.inner(table)),
                None => Err(self.error(key, format!("expected {expected}"))),
            })
            .collect()
    }

    /// The table `[key]`.
    pub(super) fn table(&mut self, key: &'static str) -> Read<Self> {
        let table = self.value(key, "a table", DeValue::as_table)?;
        Ok(table.map(|table| self.inner(table)))
    }

    fn inner(&self, table: &'a DeTable<'a>) -> Self {
        KeyTable::new(self.file.0, self.file.1, table)
    }

    fn value<T>(
        &mut self,
        key: &'static str,
        expected: &str,
        read: impl FnOnce(&'a DeValue<'a>) -> Option<T>,
    ) -> Read<T> {
        self.known.push(key);
        let Some(value) = self.table.get(key) else {
            return Ok(None);
        };
        match read(value.get_ref()) {
            Some(read) => Ok(Some(read)),
            None => Err(self.error(key, format!("expected {expected}"))),
        }
    }

    pub(super) fn has(&self, key: &str) -> bool {
        self.table.contains_key(key)
    }

    /// An error in the line of the key; of the table's first key if the table has no such key.
    pub(super) fn error(&self, key: &str, why: impl Display) -> ConfigError {
        let first = || self.table.keys().map(|key| key.span().start).min();
        let own = self.table.get(key).map(|value| value.span().start);
        let at = own.or_else(first).unwrap_or_default();
        let (name, text) = self.file;
        let line = text.get(..at).unwrap_or(text).matches('\n').count() + 1;
        ConfigError(format!("{name}, line {line}, {key}: {why}"))
    }

    /// Refuses keys that nothing has read.
    pub(super) fn finish(&self, place: &str) -> Result<(), ConfigError> {
        let keys = self
            .table
            .keys()
            .map(|key| (key.span().start, key.get_ref()));
        let unknown = keys.filter(|(_, key)| !self.known.contains(&&***key)).min();
        let Some((_, key)) = unknown else {
            return Ok(());
        };
        let known = self.known.join(", ");
        Err(self.error(key, format!("means nothing for {place}: expected {known}")))
    }
}

/// A number above 0 with `ms`, `s`, `m` or `h`; `None` for another text.
pub(super) fn duration(text: &str) -> Option<Duration> {
    let digits = text.find(|c: char| !c.is_ascii_digit())?;
    let (number, unit) = text.split_at(digits);
    let milliseconds = match unit {
        "ms" => 1,
        "s" => 1000,
        "m" => 60_000,
        "h" => 3_600_000,
        _ => return None,
    };
    let number: u64 = number.parse().ok().filter(|number| *number > 0)?;
    Some(Duration::from_millis(number.checked_mul(milliseconds)?))
}
