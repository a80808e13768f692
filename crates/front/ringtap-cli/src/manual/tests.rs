// SPDX-License-Identifier: MIT OR Apache-2.0
//! The man pages and the tables of the documents have what the program has.

use clap::CommandFactory as _;

use super::*;

const COMMAND_LINE: &str = include_str!("../../../../../docs/command-line.md");

fn pages() -> Vec<(String, String)> {
    let mut command = crate::Cli::command();
    command.build();
    let mut pages = Vec::new();
    verb_pages(&command, &mut pages).expect("they can be made");
    pages
}

fn page(name: &str) -> String {
    let mut pages = pages().into_iter().chain(file_pages());
    let found = pages.find(|(file, _)| file == name);
    found.unwrap_or_else(|| panic!("no page {name}")).1
}

#[test]
fn a_page_keeps_the_lines_of_its_examples_and_has_the_usual_sections() {
    let count = page("ringtap-count.1");
    for wanted in [
        "\\&  ringtap count \\-r first.pcapng                 a file, at top speed\n",
        ".SH \"EXIT STATUS\"\n",
        ".SH SIGNALS\n",
        ".SH ENVIRONMENT\n",
        ".SH FILES\n",
    ] {
        assert!(count.contains(wanted), "{wanted:?} is not in\n{count}");
    }
}

#[test]
fn no_page_shows_a_hidden_verb() {
    let pages = pages();
    assert!(
        pages
            .iter()
            .any(|(name, _)| name == "ringtap-probe-ctl-enable.1")
    );
    for (name, text) in pages {
        for hidden in [
            "serve",
            "probe\\-libraries",
            "ringtap\\-manual",
            "serve\\-one",
        ] {
            let is_there = text
                .lines()
                .any(|line| line.starts_with(&format!("ringtap\\-{hidden}")));
            assert!(!is_there && !name.contains("manual"), "{hidden} in {name}");
        }
    }
}

#[test]
fn the_pages_of_the_files_have_every_key_that_the_files_may_have() {
    let (hub, probe) = (page("hub.toml.5"), page("ringtap-probe.toml.5"));
    for key in ringtap_hub::config::keys() {
        let shown = escaped_key(&key);
        assert!(hub.contains(&shown), "{key} is not in hub.toml(5)");
    }
    for key in [
        "idle",
        "active",
        "max_flows",
        "sampling",
        "by",
        "count",
        "every",
        "where",
        "when",
        "until",
    ] {
        assert!(
            probe.contains(&escaped_key(key)),
            "{key} is not in the page of the probe's file"
        );
    }
    assert!(hub.contains(".SH \"LIMITS\""), "{hub}");
}

fn escaped_key(key: &str) -> String {
    roff::escaped(key)
}

#[test]
fn the_documents_have_the_tables_of_statuses_and_signals() {
    for (status, meaning) in statuses::TABLE {
        let row = format!("| {status} | {meaning} |");
        assert!(
            COMMAND_LINE.contains(&row),
            "docs/command-line.md has no row\n{row}"
        );
    }
    for row in signals::TABLE {
        let verbs: Vec<_> = row.verbs.iter().map(|verb| format!("`{verb}`")).collect();
        let row = format!(
            "| {} | {} | {} | {} |",
            verbs.join(", "),
            row.hangup,
            row.usr1,
            row.usr2
        );
        assert!(
            COMMAND_LINE.contains(&row),
            "docs/command-line.md has no row\n{row}"
        );
    }
}
