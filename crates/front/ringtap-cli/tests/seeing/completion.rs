// SPDX-License-Identifier: MIT OR Apache-2.0
//! What a shell offers, as the completions of the packages ask for it.

use ringtap_testkit::Running;

use crate::served::{LIMIT, ServedFile, command};

/// The words that bash gets for the last of these words.
fn offered(served: &ServedFile, words: &[&str]) -> Vec<String> {
    let mut shell = std::process::Command::new(command(&served.socket(), &[]).get_program());
    shell.args(["--", "ringtap"]).args(words);
    shell.env("COMPLETE", "bash");
    shell.env("_CLAP_COMPLETE_INDEX", words.len().to_string());
    shell.env("_CLAP_IFS", "\n");
    shell.env("RINGTAP_SOCKET", served.socket());
    let end = Running::start(shell).wait(LIMIT).success();
    end.stdout
        .lines()
        .map(|line| line.trim().to_owned())
        .collect()
}

#[test]
fn a_shell_offers_interfaces_groups_and_the_words_of_options() {
    let served = ServedFile::open();
    let offered = |words: &[&str]| offered(&served, words);
    let devices = offered(&["count", "-i", ""]);
    for wanted in ["lo", "hub:all"] {
        assert!(
            devices.iter().any(|one| one == wanted),
            "{wanted}: {devices:?}"
        );
    }
    assert_eq!(offered(&["count", "-i", "hub:"]), ["hub:all"]);
    assert_eq!(offered(&["record", "-i", "tap:l"]), ["tap:lo"]);
    assert_eq!(offered(&["send", "-i", "l"]), ["lo"]);
    assert_eq!(offered(&["count", "--mode", "na"]), ["native"]);
    assert_eq!(offered(&["record", "-F", ""]), ["pcapng", "pcap"]);
}

#[test]
fn a_shell_offers_no_hidden_verb() {
    let served = ServedFile::open();
    let verbs = offered(&served, &[""]);
    assert!(verbs.iter().any(|one| one == "record"), "{verbs:?}");
    for hidden in ["serve-one", "probe-libraries", "manual"] {
        assert!(
            !verbs.iter().any(|one| one == hidden),
            "{hidden}: {verbs:?}"
        );
    }
}
