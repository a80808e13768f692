// SPDX-License-Identifier: MIT OR Apache-2.0
//! Checks that every path named in a document or an eBPF source exists.

use crate::files::Source;

/// Folders of the repository that paths begin with.
const FOLDERS: [&str; 8] = [
    "bench/", "bpf/", "checks/", "crates/", "docs/", "fuzz/", "lab/", "scripts/",
];

/// One fault for each named path that does not exist.
pub(crate) fn faults(sources: &[Source]) -> Vec<String> {
    let names_paths =
        |source: &&Source| source.name.ends_with(".md") || source.name.starts_with("bpf/");
    let mut faults = Vec::new();
    for source in sources.iter().filter(names_paths) {
        for path in paths(&source.text()) {
            let exists = |other: &Source| {
                let rest = other.name.strip_prefix(path);
                rest.is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
            };
            if !sources.iter().any(exists) {
                faults.push(format!("{}: {path} does not exist", source.name));
            }
        }
    }
    faults
}

/// Paths in a text that begin with one of [`FOLDERS`]; patterns with `*` are left out.
fn paths(text: &str) -> Vec<&str> {
    let is_path = |c: char| c.is_ascii_alphanumeric() || "._-/*".contains(c);
    // Headers of other projects.
    let lines = text.lines().filter(|line| !line.starts_with("#include"));
    let words = lines.flat_map(|line| line.split(move |c: char| !is_path(c)));
    let ours = words.filter(|word| FOLDERS.iter().any(|folder| word.starts_with(folder)));
    let trimmed = ours.map(|word| word.trim_end_matches(['.', '/', '-']));
    trimmed.filter(|word| !word.contains('*')).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_path_that_does_not_exist_is_found() {
        let page = b"`lab/good.py`, crates/*/tests, (lab/page.py). lab/".to_vec();
        let sources = [
            Source::new("docs/a.md", page),
            Source::new("lab/good.py", vec![]),
        ];
        assert_eq!(faults(&sources), ["docs/a.md: lab/page.py does not exist"]);
    }
}
