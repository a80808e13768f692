// SPDX-License-Identifier: MIT OR Apache-2.0
//! The shape of the repository: which crate may use which, and what every file must look like.
//!
//! Each rule is a function from plain data to a list of faults, so that each is also shown to
//! fail on made-up input. To allow a new crate, dependency or unsafe module, change the table
//! in `arrows.rs` or the list in `unsafe_modules.txt` or `restricted.txt`, with a reason.

mod arrows;
mod circles;
mod files;
mod names;
mod paths;
mod promises;
mod restricted;

use std::{fs, path::PathBuf, process::Command};

use files::Source;

fn root() -> PathBuf {
    let here = PathBuf::from(env!("CARGO_MANIFEST_DIR"));
    here.join("../../..")
        .canonicalize()
        .expect("the repository is there")
}

/// Every file that git tracks or would track, with its bytes.
fn sources() -> Vec<Source> {
    let root = root();
    let output = Command::new("git")
        // The repository may belong to somebody else, for instance in CI.
        .args(["-c", "safe.directory=*", "-C"])
        .arg(&root)
        .args([
            "ls-files",
            "-z",
            "--cached",
            "--others",
            "--exclude-standard",
        ])
        .output()
        .expect("git can be run");
    assert!(
        output.status.success(),
        "the layout test needs git: {output:?}"
    );
    let names = String::from_utf8(output.stdout).expect("names are UTF-8");
    names
        .split_terminator('\0')
        // A file removed but not yet committed is still listed.
        .filter_map(|name| Some(Source::new(name, fs::read(root.join(name)).ok()?)))
        .collect()
}

fn no_faults(faults: &[String]) {
    assert!(faults.is_empty(), "\n{}\n", faults.join("\n"));
}

#[test]
fn arrows_between_crates_go_down_only() {
    let metadata = cargo_metadata::MetadataCommand::new()
        .manifest_path(root().join("Cargo.toml"))
        .no_deps()
        .exec()
        .unwrap();
    let crates = arrows::crates(&metadata);
    assert!(crates.len() >= 3, "cargo metadata lists the workspace");
    no_faults(&arrows::faults(&crates));
}

#[test]
fn no_more_than_three_files_import_each_other_in_a_circle() {
    no_faults(&circles::faults(&sources()));
}

#[test]
fn every_file_keeps_the_house_style() {
    let sources = sources();
    assert!(sources.len() > 20, "git lists the repository");
    no_faults(&files::faults(&sources));
}

#[test]
fn every_promise_names_a_test_that_exists_or_says_that_there_is_none() {
    let sources = sources();
    let page = sources
        .iter()
        .find(|source| source.name == "docs/internals/promises.md")
        .expect("the promises are written down");
    no_faults(&promises::faults(&page.text(), &sources));
}

#[test]
fn every_type_has_a_name_of_its_own() {
    no_faults(&names::faults(&sources()));
}

#[test]
fn only_listed_modules_touch_files_by_path_read_the_environment_or_parse_json() {
    no_faults(&restricted::faults(&sources()));
}

#[test]
fn every_path_in_the_documents_exists() {
    no_faults(&paths::faults(&sources()));
}

#[test]
fn the_version_is_the_same_everywhere() {
    let after = |file: &str, start: &str| {
        let text = fs::read_to_string(root().join(file)).expect("the file is there");
        let rest = text.lines().find_map(|line| line.strip_prefix(start));
        let version = |c: char| c.is_ascii_digit() || c == '.';
        let rest = rest.unwrap_or_else(|| panic!("{file} has no line with {start:?}"));
        rest.trim_matches(|c| !version(c)).to_owned()
    };
    let version = after("Cargo.toml", "version = ");
    assert_eq!(after("CITATION.cff", "version: "), version);
    // The newest section names the version, then its date: `## [0.2.0] – unreleased`.
    let newest = after("CHANGELOG.md", "## [");
    assert!(newest.starts_with(&version), "{newest} is not {version}");
}
