// SPDX-License-Identifier: MIT OR Apache-2.0
//! The page of promises: each area numbers its rows without gaps, and every named test exists.
//!
//! An area begins with a line `## NAME`. A row is `| number | promise | evidence, evidence | last
//! result |`. Evidence is a test's name or a file's path in backquotes; a promise without one says
//! `no test yet`.

use crate::files::Source;

pub(crate) fn faults(page: &str, sources: &[Source]) -> Vec<String> {
    let mut faults = Vec::new();
    let (mut area, mut number, mut count) = ("", 0, 0);
    for line in page.lines() {
        if let Some(name) = line.strip_prefix("## ") {
            (area, number) = (name, 0);
        } else if let Some(row) = Row::parse(line) {
            (number, count) = (number + 1, count + 1);
            let found = row.faults(number, sources);
            let place = |fault: &String| format!("{area}, promise {}: {fault}", row.number);
            faults.extend(found.iter().map(place));
        }
    }
    if count == 0 {
        faults.push("docs/internals/promises.md holds no promise".to_owned());
    }
    faults
}

struct Row<'a> {
    number: usize,
    text: &'a str,
    evidence: Vec<&'a str>,
    says_none: bool,
    result: &'a str,
}

impl<'a> Row<'a> {
    fn parse(line: &'a str) -> Option<Self> {
        let mut cells = line.strip_prefix('|')?.split('|').map(str::trim);
        let number = cells.next()?.parse().ok()?;
        let text = cells.next()?;
        let evidence = cells.next()?;
        Some(Self {
            number,
            text,
            evidence: evidence.split('`').skip(1).step_by(2).collect(),
            says_none: evidence.contains("no test yet"),
            result: cells.next()?,
        })
    }

    fn faults(&self, number: usize, sources: &[Source]) -> Vec<String> {
        let rules = [
            (self.number != number, format!("stands in place {number}")),
            (
                !self.text.contains(|c: char| c.is_ascii_digit()),
                "states no number".to_owned(),
            ),
            (
                self.evidence.is_empty() && !self.says_none,
                "names no test".to_owned(),
            ),
            (self.result.is_empty(), "states no last result".to_owned()),
        ];
        let broken = rules.into_iter().filter(|(is_broken, _)| *is_broken);
        let missing = self.evidence.iter().filter(|name| !exists(name, sources));
        broken
            .map(|(_, fault)| fault)
            .chain(missing.map(|name| format!("there is no {name}")))
            .collect()
    }
}

fn exists(evidence: &str, sources: &[Source]) -> bool {
    let function = format!("fn {evidence}(");
    sources.iter().any(|source| {
        source.name == evidence || source.name.ends_with(".rs") && source.text().contains(&function)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sources() -> Vec<Source> {
        vec![
            Source::new("x.rs", b"fn nothing_is_lost() {}".to_vec()),
            Source::new("lab/ringtap_lab/good.py", b"".to_vec()),
        ]
    }

    fn count(page: &str) -> usize {
        faults(page, &sources()).len()
    }

    #[test]
    fn a_promise_with_a_real_test_or_an_open_one_is_fine() {
        assert_eq!(
            count("| 1 | 0 lost | `nothing_is_lost`, `lab/ringtap_lab/good.py` | passes |\n"),
            0
        );
        assert_eq!(count("| 1 | 0 lost | no test yet | – |\n"), 0);
    }

    #[test]
    fn a_test_that_does_not_exist_is_a_fault() {
        assert_eq!(count("| 1 | 0 lost | `something_is_lost` | passes |\n"), 1);
        assert_eq!(count("| 1 | 0 lost | soon | – |\n"), 1);
    }

    #[test]
    fn a_gap_in_the_numbers_and_a_promise_without_a_figure_are_faults() {
        assert_eq!(count("| 2 | 0 lost | no test yet | – |\n"), 1);
        assert_eq!(count("| 1 | it is fast | no test yet | – |\n"), 1);
        assert_eq!(count("nothing here\n"), 1);
    }

    #[test]
    fn each_area_begins_with_number_one() {
        let row = |number| format!("| {number} | 0 lost | no test yet | – |\n");
        let page = |second| format!("## A\n{}## B\n{}", row(1), row(second));
        assert_eq!(count(&page(1)), 0);
        assert_eq!(
            faults(&page(2), &sources()),
            ["B, promise 2: stands in place 1"]
        );
    }

    #[test]
    fn a_promise_without_a_last_result_is_a_fault() {
        assert_eq!(count("| 1 | 0 lost | `nothing_is_lost` | |\n"), 1);
    }
}
