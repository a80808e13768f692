// SPDX-License-Identifier: MIT OR Apache-2.0
//! Ticks of axes, and numbers and times as people write them.

use ringtap_explain::text;

/// Steps between ticks of a time axis, in seconds.
const TIME_STEPS: [i64; 17] = [
    1, 2, 5, 10, 15, 30, 60, 120, 300, 600, 900, 1800, 3600, 7200, 21_600, 43_200, 86_400,
];
/// Most ticks of a time axis.
const MAX_TIMES: i64 = 8;
/// Most ticks of an axis of numbers above 0.
const MAX_NUMBERS: f64 = 5.0;

/// Ticks from 0 up, of which the last is not below `top`.
pub(super) fn number_ticks(top: f64) -> Vec<f64> {
    if top <= 0.0 {
        return vec![0.0, 1.0];
    }
    let least = top / MAX_NUMBERS;
    let power = 10_f64.powf(least.log10().floor());
    let steps = [1.0, 2.0, 5.0, 10.0].map(|step| step * power);
    // A quotient that is slightly above a step is that step.
    let step = steps
        .into_iter()
        .find(|step| *step >= least * (1.0 - 1e-9))
        .unwrap_or(10.0 * power);
    let mut ticks = vec![0.0];
    for number in 1_u8..=10 {
        if ticks.last().is_some_and(|last| *last >= top * (1.0 - 1e-9)) {
            break;
        }
        ticks.push(step * f64::from(number));
    }
    ticks
}

/// Seconds since 1970 at the ticks of a time axis, and the time between two.
pub(super) fn time_ticks(first: i64, last: i64) -> (Vec<i64>, i64) {
    let least = (last.saturating_sub(first)) / MAX_TIMES + 1;
    let days = || (least / 86_400 + 1).saturating_mul(86_400);
    let step = TIME_STEPS.into_iter().find(|step| *step >= least);
    let step = step.unwrap_or_else(days);
    let begin = first.div_euclid(step).saturating_mul(step);
    let ticks = (0..=MAX_TIMES + 1).map(|number| number.saturating_mul(step));
    let ticks = ticks
        .map(|after| begin.saturating_add(after))
        .filter(|tick| (first..=last).contains(tick));
    (ticks.collect(), step)
}

/// A second since 1970 as UTC, as precise as ticks with this step need.
pub(super) fn clock(second: i64, step: i64, is_one_day: bool) -> String {
    let form = match step {
        86_400.. => "%Y-%m-%d",
        _ if !is_one_day => "%d %b %H:%M",
        60.. => "%H:%M",
        _ => "%H:%M:%S",
    };
    let time = jiff::Timestamp::from_second(second);
    time.map_or_else(
        |_| second.to_string(),
        |time| time.strftime(form).to_string(),
    )
}

/// A second since 1970 as a date and time in UTC.
pub(super) fn utc(second: i64) -> String {
    let time = jiff::Timestamp::from_second(second);
    time.map_or_else(
        |_| second.to_string(),
        |time| time.strftime("%Y-%m-%d %H:%M:%S").to_string(),
    )
}

/// A number of seconds: `2 h 5 min`, `40 s`.
pub(super) fn lasting(seconds: i64) -> String {
    let units = [(86_400, "d"), (3600, "h"), (60, "min"), (1, "s")];
    let first = units.iter().position(|(unit, _)| seconds >= *unit);
    let Some(first) = first else {
        return "0 s".to_owned();
    };
    let (unit, name) = units[first];
    let mut text = format!("{} {name}", seconds / unit);
    if let Some((smaller, name)) = units.get(first + 1)
        && seconds % unit >= *smaller
    {
        text.push_str(&format!(" {} {name}", seconds % unit / smaller));
    }
    text
}

/// A number with a prefix of the SI and three digits that count.
pub(super) fn short(number: f64) -> String {
    let prefixes = [(1e12, " T"), (1e9, " G"), (1e6, " M"), (1e3, " k")];
    let fitting = prefixes.into_iter().find(|(unit, _)| number >= *unit);
    let (unit, prefix) = fitting.unwrap_or((1.0, ""));
    let scaled = number / unit;
    let behind = if scaled > 0.0 {
        2.0 - scaled.log10().floor()
    } else {
        0.0
    };
    let factor = 10_f64.powf(behind.max(0.0));
    let rounded = (scaled * factor).round() / factor;
    format!("{rounded}{prefix}")
}

/// A whole number with commas between thousands.
pub(super) fn grouped(number: f64) -> String {
    text::grouped(text::rounded(number))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ticks_are_round_numbers_up_to_the_top() {
        let texts = |top| -> Vec<_> { number_ticks(top).into_iter().map(short).collect() };
        assert_eq!(texts(1.0), ["0", "0.2", "0.4", "0.6", "0.8", "1"]);
        assert_eq!(
            texts(2_300_000.0),
            ["0", "500 k", "1 M", "1.5 M", "2 M", "2.5 M"]
        );
        assert_eq!(texts(7.0), ["0", "2", "4", "6", "8"]);
        assert_eq!(number_ticks(0.0).len(), 2, "an axis without values");
    }

    #[test]
    fn times_are_at_whole_minutes_and_hours() {
        // 2026-01-01 00:00:07 to 00:10:02.
        let first = 1_767_225_607;
        let (ticks, step) = time_ticks(first, first + 595);
        let texts: Vec<_> = ticks.iter().map(|at| clock(*at, step, true)).collect();
        assert_eq!(texts, ["00:02", "00:04", "00:06", "00:08", "00:10"]);
        let (ticks, step) = time_ticks(first, first + 5);
        assert_eq!(clock(ticks[0], step, true), "00:00:07");
        let (ticks, step) = time_ticks(first, first + 370_000_000);
        assert!(ticks.len() <= 9 && step % 86_400 == 0, "{ticks:?}");
        assert_eq!(time_ticks(i64::MIN, i64::MAX).1 % 86_400, 0);
    }

    #[test]
    fn numbers_have_units_and_thousands_stand_apart() {
        assert_eq!(short(0.1 + 0.2), "0.3");
        assert_eq!(short(922_983.0), "923 k");
        assert_eq!(short(0.000_2), "0.0002");
        assert_eq!(grouped(1_234_567.0), "1,234,567");
        assert_eq!(grouped(999.0), "999");
        let texts = [0, 59, 60, 7500, 90_000].map(lasting);
        assert_eq!(texts, ["0 s", "59 s", "1 min", "2 h 5 min", "1 d 1 h"]);
    }
}
