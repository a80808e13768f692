// SPDX-License-Identifier: MIT OR Apache-2.0
//! Finds known words that are spelled nearly like an unknown one.

/// `; did you mean "a" or "b"?` with the candidates that look like `word`, or nothing.
pub fn meant<'a>(word: &str, candidates: impl Iterator<Item = &'a str>) -> String {
    match &*near(word, candidates) {
        [] => String::new(),
        near => format!("; did you mean \"{}\"?", near.join("\" or \"")),
    }
}

/// At most three candidates that look like `word`, the nearest first.
fn near<'a>(word: &str, candidates: impl Iterator<Item = &'a str>) -> Vec<String> {
    let word = word.to_lowercase();
    let allowed = (word.chars().count() / 3).clamp(1, 2);
    let mut close: Vec<_> = candidates
        .map(|name| {
            (
                strsim::damerau_levenshtein(&word, &name.to_lowercase()),
                name,
            )
        })
        .filter(|(distance, name)| *distance <= allowed && *distance < name.chars().count())
        .collect();
    close.sort_by_key(|(distance, _)| *distance);
    let names = close.into_iter().take(3);
    names.map(|(_, name)| name.to_owned()).collect()
}

#[cfg(test)]
mod tests {
    use super::near;

    #[test]
    fn slips_are_near_and_other_words_are_not() {
        let names = ["lo", "eth0", "eth1", "wlan0"];
        assert_eq!(near("eht0", names.into_iter()), ["eth0"]);
        assert_eq!(near("ETH1", names.into_iter()), ["eth1", "eth0"]);
        assert_eq!(near("wlna0", names.into_iter()), ["wlan0"]);
        assert!(near("bond0", names.into_iter()).is_empty());
        assert!(near("x", names.into_iter()).is_empty());
    }
}
