// SPDX-License-Identifier: MIT OR Apache-2.0
//! Points in time as users write them.

use jiff::civil::{DateTime, Time};
use jiff::tz::TimeZone;
use jiff::{SignedDuration, Timestamp, ToSpan as _, Zoned};

/// Units of a duration and their seconds.
const UNITS: [(&str, f64); 5] = [
    ("min", 60.0),
    ("s", 1.0),
    ("m", 60.0),
    ("h", 3600.0),
    ("d", 86400.0),
];

/// A point in time, in nanoseconds since 1970.
pub(super) fn point(text: &str) -> Result<u64, String> {
    let zone = TimeZone::system();
    let time = parse(text.trim(), &Timestamp::now().to_zoned(zone));
    let time = time.and_then(|time| u64::try_from(time.as_nanosecond()).ok());
    time.ok_or_else(|| {
        "expected a time: \"2026-01-31 14:00\", 14:00, 2026-01-31T14:00:00Z, a duration ago as in 30min or 2h, or \
         seconds since 1970"
            .to_owned()
    })
}

fn parse(text: &str, now: &Zoned) -> Option<Timestamp> {
    if let Ok(time) = text.parse::<Timestamp>() {
        return Some(time);
    }
    let zone = now.time_zone();
    // A time of day may have a date in front of it, which it would lose.
    let has_date = text.get(4..5) == Some("-");
    if has_date && let Ok(time) = text.parse::<DateTime>() {
        return Some(time.to_zoned(zone.clone()).ok()?.timestamp());
    }
    if let Ok(time) = text
        .parse::<Time>()
        .or_else(|_| format!("{text}:00").parse())
        && text.contains(':')
        && text.len() <= 18
    {
        let today = now.date().to_datetime(time).to_zoned(zone.clone()).ok()?;
        let last = if today > *now {
            today.checked_sub(1.day()).ok()?
        } else {
            today
        };
        return Some(last.timestamp());
    }
    let digits = text.trim_end_matches(|letter: char| letter.is_ascii_alphabetic());
    let number: f64 = digits.parse().ok().filter(|number: &f64| *number >= 0.0)?;
    let unit = &text[digits.len()..];
    if unit.is_empty() {
        let since = SignedDuration::try_from_secs_f64(number).ok()?;
        return Timestamp::from_duration(since).ok();
    }
    let (_, seconds) = UNITS.iter().find(|(name, _)| *name == unit)?;
    let ago = SignedDuration::try_from_secs_f64(number * seconds).ok()?;
    now.timestamp().checked_sub(ago).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_local_absolute_or_ago() {
        let zone = TimeZone::fixed(jiff::tz::offset(2));
        let now: Timestamp = "2026-01-31T13:00:00Z".parse().unwrap();
        let now = now.to_zoned(zone);
        for (text, expected) in [
            ("14:00", "2026-01-31T12:00:00Z"),
            ("14:00:30.5", "2026-01-31T12:00:30.5Z"),
            // Later than now: yesterday's.
            ("23:30", "2026-01-30T21:30:00Z"),
            ("2026-01-30 14:00", "2026-01-30T12:00:00Z"),
            ("2026-01-30", "2026-01-29T22:00:00Z"),
            ("2026-01-30T14:00:00Z", "2026-01-30T14:00:00Z"),
            ("2026-01-30T14:00:00+01:00", "2026-01-30T13:00:00Z"),
            ("2h", "2026-01-31T11:00:00Z"),
            ("30min", "2026-01-31T12:30:00Z"),
            ("1700000000.25", "2023-11-14T22:13:20.25Z"),
        ] {
            let found = parse(text, &now).map(|time| time.to_string());
            assert_eq!(found.as_deref(), Some(expected), "{text}");
        }
        for wrong in ["", "noon", "25:00", "-3h", "2 weeks", "3x", "1e300d"] {
            assert_eq!(parse(wrong, &now), None, "{wrong}");
        }
    }
}
