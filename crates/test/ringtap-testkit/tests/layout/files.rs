// SPDX-License-Identifier: MIT OR Apache-2.0
//! What every file must look like: licence line, first sentence, size, and no unsafe code
//! outside the few modules that are named here.

mod rust;

/// Modules that may hold `unsafe`, each with what for.
const UNSAFE_MODULES: &str = include_str!("unsafe_modules.txt");

/// Longest file of any kind, tests included.
const LINES_OF_ANY_FILE: usize = 600;
/// Longest eBPF program or header.
const LINES_OF_EBPF: usize = 400;

/// Files whose text is not ours to write or to cut.
const NOT_OURS: [&str; 4] = [
    "Cargo.lock",
    "fuzz/Cargo.lock",
    "LICENSE-APACHE",
    "LICENSE-MIT",
];
/// Results of runs: text, but as long as they are.
const RESULTS: [&str; 2] = ["bench/results/", "docs/figures/"];

/// Endings of what a program made: it belongs into `target`, not into the history.
const GENERATED: [&str; 11] = [
    ".o",
    ".a",
    ".so",
    ".pyc",
    ".pcap",
    ".pcapng",
    ".skel.rs",
    "vmlinux.h",
    ".whl",
    ".gz",
    ".zip",
];

/// One file of the repository.
#[derive(Debug)]
pub(crate) struct Source {
    /// Path from the repository's root.
    pub(crate) name: String,
    bytes: Vec<u8>,
}

impl Source {
    pub(crate) fn new(name: &str, bytes: Vec<u8>) -> Self {
        Self {
            name: name.to_owned(),
            bytes,
        }
    }

    pub(crate) fn text(&self) -> String {
        String::from_utf8_lossy(&self.bytes).into_owned()
    }
}

pub(crate) fn faults(sources: &[Source]) -> Vec<String> {
    let mut faults: Vec<_> = sources.iter().flat_map(faults_of).collect();
    for name in unsafe_modules() {
        if !sources.iter().any(|source| source.name == name) {
            faults.push(format!(
                "{name}: is gone: take it off the list of unsafe modules"
            ));
        }
    }
    faults
}

fn faults_of(source: &Source) -> Vec<String> {
    let name = source.name.as_str();
    if source.bytes.contains(&0) || GENERATED.iter().any(|end| name.ends_with(end)) {
        return vec![format!(
            "{name}: binary and generated files stay out of git"
        )];
    }
    if NOT_OURS.contains(&name) {
        return Vec::new();
    }
    let text = source.text();
    let mut faults = match language(name, &text) {
        Language::Rust => rust::faults(&text, unsafety(name)),
        Language::Ebpf => ebpf_faults(&text),
        Language::Hash => hash_faults(&text),
        Language::Other => Vec::new(),
    };
    let lines = text.lines().count();
    if lines > LINES_OF_ANY_FILE && !RESULTS.iter().any(|folder| name.starts_with(folder)) {
        faults.push(format!("{lines} lines: at most {LINES_OF_ANY_FILE}"));
    }
    faults
        .into_iter()
        .map(|fault| format!("{name}: {fault}"))
        .collect()
}

fn unsafe_modules() -> impl Iterator<Item = &'static str> {
    let lines = UNSAFE_MODULES.lines().filter(|line| !line.starts_with('#'));
    lines.filter_map(|line| line.split_whitespace().next())
}

fn unsafety(name: &str) -> rust::Unsafe {
    if name.contains("/tests/") || name.ends_with("/tests.rs") {
        rust::Unsafe::Free
    } else if unsafe_modules().any(|module| module == name) {
        rust::Unsafe::Listed
    } else {
        rust::Unsafe::Forbidden
    }
}

enum Language {
    Rust,
    Ebpf,
    /// Comments start with a hash: shell, Python, make.
    Hash,
    Other,
}

fn language(name: &str, text: &str) -> Language {
    let ends = |end: &str| name.ends_with(end);
    if ends(".rs") {
        Language::Rust
    } else if name.starts_with("bpf/") && (ends(".c") || ends(".h")) {
        Language::Ebpf
    } else if ends(".py") || ends(".sh") || ends("Makefile") || text.starts_with("#!") {
        Language::Hash
    } else {
        Language::Other
    }
}

fn ebpf_faults(text: &str) -> Vec<String> {
    let mut faults = Vec::new();
    let first = text.lines().next().unwrap_or_default();
    if !first.contains("SPDX-License-Identifier: Dual MIT/GPL") {
        faults.push("the first line must be the SPDX line (Dual MIT/GPL)".to_owned());
    }
    let lines = text.lines().count();
    if lines > LINES_OF_EBPF {
        faults.push(format!("{lines} lines of eBPF: at most {LINES_OF_EBPF}"));
    }
    faults
}

fn hash_faults(text: &str) -> Vec<String> {
    let spdx = "# SPDX-License-Identifier: MIT OR Apache-2.0";
    if text.lines().take(2).any(|line| line == spdx) {
        Vec::new()
    } else {
        vec![format!(
            "`{spdx}` must be the first line, or the second after #!"
        )]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn count(name: &str, text: &str) -> usize {
        faults_of(&Source::new(name, text.as_bytes().to_vec())).len()
    }

    #[test]
    fn binary_and_generated_files_are_faults() {
        assert_eq!(count("x.bin", "a\0b"), 1);
        assert_eq!(count("examples/x.pcap", "text"), 1);
        assert_eq!(count("bpf/vmlinux.h", "/* text */"), 1);
        assert_eq!(count("docs/x.md", "text"), 0);
    }

    #[test]
    fn a_script_without_a_licence_is_a_fault() {
        assert_eq!(count("scripts/x", "#!/bin/sh\necho\n"), 1);
        assert_eq!(count("lab/x.py", "print()\n"), 1);
        let good = "#!/bin/sh\n# SPDX-License-Identifier: MIT OR Apache-2.0\n";
        assert_eq!(count("scripts/x", good), 0);
    }

    #[test]
    fn an_ebpf_file_that_is_too_long_or_has_no_licence_is_a_fault() {
        let licence = "/* SPDX-License-Identifier: Dual MIT/GPL */\n";
        assert_eq!(count("bpf/x.bpf.c", licence), 0);
        assert_eq!(count("bpf/x.bpf.c", "int x;\n"), 1);
        assert_eq!(count("bpf/x.h", &licence.repeat(LINES_OF_EBPF + 1)), 1);
    }

    #[test]
    fn a_file_of_any_kind_that_is_too_long_is_a_fault() {
        assert_eq!(count("docs/x.md", &"line\n".repeat(600)), 0);
        assert_eq!(count("docs/x.md", &"line\n".repeat(601)), 1);
        assert_eq!(count("bench/results/x.json", &"line\n".repeat(601)), 0);
        assert_eq!(count("docs/figures/x.svg", &"line\n".repeat(601)), 0);
    }
}
