// SPDX-License-Identifier: MIT OR Apache-2.0
//! Conditions of actions: `dropped > 0`, `top source.bps > 1G`.

use std::str::FromStr;

use crate::record::{Measurement, as_value};

/// A comparison of one value with a limit.
#[derive(Clone, Debug, PartialEq)]
pub struct Condition {
    pub(crate) subject: Subject,
    is_above: bool,
    limit: f64,
}

/// Quantity that a condition compares.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Subject {
    /// A counter of the probe.
    Counter(ProbeCounter),
    /// A value of an analysis, the largest of all its keys: names of the analysis and the value.
    Value(String, String),
}

/// Counters of the probe that conditions can name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ProbeCounter {
    /// Packets that the workers received in the last second.
    Captured,
    /// Packets that were lost before the workers in the last second.
    Dropped,
    /// Flows in the table.
    Flows,
    /// Flows that were evicted in the last second.
    Evicted,
    /// Records that exporters lost in the last second.
    Lost,
}

impl ProbeCounter {
    const WORDS: [(&'static str, ProbeCounter); 5] = [
        ("captured", ProbeCounter::Captured),
        ("dropped", ProbeCounter::Dropped),
        ("flows", ProbeCounter::Flows),
        ("evicted", ProbeCounter::Evicted),
        ("lost", ProbeCounter::Lost),
    ];
}

/// Why a text is no condition.
#[derive(Debug, thiserror::Error)]
#[error(
    "expected NAME > NUMBER or NAME < NUMBER, with NAME one of {words}, or ANALYSIS.VALUE like top \
     source.bps, and NUMBER like 10, 1.5k, 2M or 1G", words = ProbeCounter::WORDS.map(|(word, _)| word).join(", ")
)]
pub struct ConditionError;

impl FromStr for Condition {
    type Err = ConditionError;

    fn from_str(text: &str) -> Result<Self, ConditionError> {
        let at = text.find(['<', '>']).ok_or(ConditionError)?;
        let (name, limit) = (text[..at].trim(), number(text[at + 1..].trim()));
        let counter = ProbeCounter::WORDS.iter().find(|(word, _)| *word == name);
        let subject = match (counter, name.rsplit_once('.')) {
            (Some((_, counter)), _) => Subject::Counter(*counter),
            (None, Some((analysis, value))) if !analysis.is_empty() && !value.is_empty() => {
                Subject::Value(analysis.to_owned(), value.to_owned())
            }
            _ => return Err(ConditionError),
        };
        Ok(Condition {
            subject,
            is_above: text.as_bytes()[at] == b'>',
            limit: limit.ok_or(ConditionError)?,
        })
    }
}

/// A number with a decimal prefix.
fn number(text: &str) -> Option<f64> {
    let (digits, factor) = match text.char_indices().last()? {
        (at, 'k') => (&text[..at], 1e3),
        (at, 'M') => (&text[..at], 1e6),
        (at, 'G') => (&text[..at], 1e9),
        _ => (text, 1.0),
    };
    let is_plain = digits
        .bytes()
        .all(|byte| byte.is_ascii_digit() || byte == b'.');
    let number = digits.parse::<f64>().ok().filter(|_| is_plain)?;
    Some(number * factor)
}

impl Condition {
    /// Whether the condition holds for a value.
    pub(crate) fn holds(&self, value: f64) -> bool {
        if self.is_above {
            value > self.limit
        } else {
            value < self.limit
        }
    }

    /// The counter that the condition compares; `None` if it compares something else.
    pub(crate) fn counter(&self) -> Option<ProbeCounter> {
        match self.subject {
            Subject::Counter(counter) => Some(counter),
            Subject::Value(..) => None,
        }
    }

    /// The value of an interval's results, of all keys the largest; 0 without results, `None` if the
    /// condition compares something else.
    pub(crate) fn value_of(&self, analysis: &str, results: &[Measurement]) -> Option<f64> {
        let Subject::Value(own, value) = &self.subject else {
            return None;
        };
        let values = results.iter().filter_map(|one| value_of(one, value));
        (own == analysis).then(|| values.fold(0.0, f64::max))
    }
}

/// A value by name; `bps` and `pps` are computed from bytes and packets.
fn value_of(measurement: &Measurement, name: &str) -> Option<f64> {
    let (source, factor) = match name {
        "bps" => ("bytes", 8.0),
        "pps" => ("packets", 1.0),
        _ => (name, 1.0),
    };
    let mut values = measurement.values.iter();
    let value = values.find(|(own, _)| *own == source)?.1 * factor;
    let seconds = as_value(measurement.to_ns.saturating_sub(measurement.from_ns)) / 1e9;
    Some(if source == name {
        value
    } else {
        value / seconds.max(1e-9)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_condition_compares_a_counter_or_the_largest_value_of_an_analysis() {
        let rate: Condition = "top source.bps > 1.5k".parse().expect("a condition");
        let result = |bytes| Measurement {
            analysis: "top source".into(),
            name: "source".into(),
            key: None,
            from_ns: 0,
            to_ns: 2_000_000_000,
            values: vec![("bytes", bytes)],
        };
        let value = |results: &[Measurement]| rate.value_of("top source", results);
        assert_eq!(value(&[result(100.0), result(400.0)]), Some(1600.0));
        assert!(rate.holds(1600.0) && !rate.holds(1500.0));
        assert_eq!(value(&[]), Some(0.0), "no traffic");
        assert_eq!(rate.value_of("sizes", &[result(400.0)]), None);
        let lost: Condition = "dropped<1".parse().expect("a condition");
        assert_eq!(lost.subject, Subject::Counter(ProbeCounter::Dropped));
        assert!(lost.holds(0.0) && !lost.holds(1.0));
    }

    #[test]
    fn what_is_no_condition_is_refused() {
        for text in [
            "",
            "dropped",
            "dropped > ",
            "> 1",
            "droped > 1",
            ".bps > 1",
            "a. > 1",
            "flows > 1e3",
            "flows = 3",
            "flows > -1",
        ] {
            assert!(text.parse::<Condition>().is_err(), "{text}");
        }
    }
}
