// SPDX-License-Identifier: MIT OR Apache-2.0
//! The page of promises: numbered without gaps, and every named test exists.
//!
//! A row is `| number | promise | evidence, evidence | last result |`. Evidence is a test's name or a
//! file's path in backquotes; a promise without one says `no test yet`.

use crate::files::Source;

pub(crate) fn faults(page: &str, sources: &[Source]) -> Vec<String> {
    let rows: Vec<_> = page.lines().filter_map(Row::parse).collect();
    if rows.is_empty() {
        return vec!["docs/internals/promises.md holds no promise".to_owned()];
    }
    let mut faults = Vec::new();
    for (index, row) in rows.iter().enumerate() {
        if row.number != index + 1 {
            faults.push(format!(
                "promise {} stands in place {}",
                row.number,
                index + 1
            ));
        }
        if !row.text.contains(|c: char| c.is_ascii_digit()) {
            faults.push(format!("promise {} has no number in it", row.number));
        }
        if row.evidence.is_empty() && !row.says_none {
            faults.push(format!("promise {} names no test", row.number));
        }
        if row.result.is_empty() {
            faults.push(format!("promise {} states no last result", row.number));
        }
        for evidence in &row.evidence {
            if !exists(evidence, sources) {
                faults.push(format!("promise {}: there is no {evidence}", row.number));
            }
        }
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
            Source::new("lab/bench.py", b"".to_vec()),
        ]
    }

    fn count(page: &str) -> usize {
        faults(page, &sources()).len()
    }

    #[test]
    fn a_promise_with_a_real_holder_or_an_open_one_is_fine() {
        assert_eq!(
            count("| 1 | 0 lost | `nothing_is_lost`, `lab/bench.py` | passes |\n"),
            0
        );
        assert_eq!(count("| 1 | 0 lost | no test yet | – |\n"), 0);
    }

    #[test]
    fn a_holder_that_does_not_exist_is_a_fault() {
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
    fn a_promise_without_a_last_result_is_a_fault() {
        assert_eq!(count("| 1 | 0 lost | `nothing_is_lost` | |\n"), 1);
    }
}
