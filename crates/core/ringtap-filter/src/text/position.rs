// SPDX-License-Identifier: MIT OR Apache-2.0
//! Finds the word at which libpcap rejected an expression; libpcap does not report the position.
//!
//! First choice is a word that the message quotes. Otherwise the shortest prefix that no ending
//! repairs, found by compiling prefixes.

use std::{
    ops::Range,
    time::{Duration, Instant},
};

/// Time limit, since compiling may look up names.
const BUDGET: Duration = Duration::from_millis(300);

/// Endings that complete the prefix of a valid expression, in this order.
const ENDINGS: [&str; 9] = [
    "",
    " 1",
    " 1.1.1.1",
    " ip",
    " host 1",
    " = 1",
    " ] = 1",
    " 1 ] = 1",
    " 1:1:1:1:1:1",
];

/// Range of the wrong part of `expression`; empty at the end if something is missing.
pub(super) fn find(
    expression: &str,
    message: &str,
    parses: impl Fn(&str) -> bool,
) -> Option<Range<usize>> {
    if parses(expression) {
        return None;
    }
    let words = words(expression);
    quoted(expression, message, &words).or_else(|| unrepairable(expression, &words, parses))
}

/// Range of a word that the message quotes, if the expression contains it once.
fn quoted(expression: &str, message: &str, words: &[Range<usize>]) -> Option<Range<usize>> {
    let named = message
        .split(['\'', '"'])
        .skip(1)
        .step_by(2)
        .chain(message.split_whitespace().last());
    for name in named {
        let mut places = words
            .iter()
            .filter(|word| &expression[(*word).clone()] == name);
        if let (Some(place), None) = (places.next(), places.next()) {
            return Some(place.clone());
        }
    }
    None
}

/// Range of the last word of the shortest prefix that no ending repairs.
fn unrepairable(
    expression: &str,
    words: &[Range<usize>],
    parses: impl Fn(&str) -> bool,
) -> Option<Range<usize>> {
    let started = Instant::now();
    for word in words {
        if started.elapsed() > BUDGET {
            return None;
        }
        let beginning = &expression[..word.end];
        let open = beginning.matches('(').count();
        let open = open.saturating_sub(beginning.matches(')').count());
        let closing = ")".repeat(open);
        let repaired = ENDINGS
            .iter()
            .any(|ending| parses(&format!("{beginning}{ending}{closing}")));
        if !repaired {
            return Some(word.clone());
        }
    }
    Some(expression.len()..expression.len())
}

/// Byte ranges of words and single signs.
fn words(expression: &str) -> Vec<Range<usize>> {
    let mut words = Vec::new();
    let mut start = None;
    for (at, sign) in expression.char_indices() {
        let is_word = sign.is_alphanumeric() || matches!(sign, '.' | '-' | '_' | ':' | '/' | '\\');
        match (is_word, start) {
            (true, None) => start = Some(at),
            (false, Some(from)) => {
                words.push(from..at);
                start = None;
            }
            _ => {}
        }
        if !is_word && !sign.is_whitespace() {
            words.push(at..at + sign.len_utf8());
        }
    }
    words.extend(start.map(|from| from..expression.len()));
    words
}
