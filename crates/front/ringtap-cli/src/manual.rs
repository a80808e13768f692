// SPDX-License-Identifier: MIT OR Apache-2.0
//! `ringtap manual`: man pages and shell completions, made from the arguments, the tables of signals and exit
//! statuses, and the documents.

mod roff;

use std::fs;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::{Context, Result};
use clap::{Args, Command};
use clap_complete::env::Shells;
use clap_mangen::Man;

use crate::{signals, statuses};
use roff::{from_markdown, tagged, verbatim};

const HUB: &str = include_str!("../../../../docs/hub.md");
const PROBE: &str = include_str!("../../../../docs/probe.md");

const ENVIRONMENT: [(&str, &str); 5] = [
    (
        "RINGTAP_SOCKET",
        "socket of the hub, instead of /run/ringtap/hub.sock",
    ),
    (
        "XDG_RUNTIME_DIR",
        "folder of the sockets of hubs and probes without root",
    ),
    (
        "RINGTAP_PCAP",
        "library that `ringtap exec` puts in place of libpcap",
    ),
    (
        "LIBVIRT_DEFAULT_URI",
        "libvirt of `ringtap vm attach --libvirt`",
    ),
    ("NO_COLOR", "`ringtap top` without colours"),
];

const FILES: [(&str, &str); 5] = [
    (
        "/etc/ringtap/hub.toml",
        "configuration of the hub's service, see hub.toml(5)",
    ),
    (
        "/run/ringtap/hub.sock",
        "socket at which readers join the hub",
    ),
    (
        "/run/ringtap-root/",
        "settings of interrupts to restore; sockets of root's probes",
    ),
    (
        "/var/lib/ringtap/GROUP/",
        "recordings of the service ringtap-record@GROUP",
    ),
    ("/usr/share/doc/ringtap/", "the documents"),
];

/// Writes man pages and completions into a folder.
#[derive(Args, Debug)]
pub(crate) struct ManualArgs {
    /// The folder; `man1`, `man5` and `completions` are made in it.
    folder: PathBuf,
}

pub(crate) fn run(args: &ManualArgs, mut command: Command) -> Result<ExitCode> {
    command.build();
    let mut pages = Vec::new();
    verb_pages(&command, &mut pages)?;
    pages.extend(file_pages());
    for (name, text) in pages {
        let section = name.rsplit('.').next().unwrap_or("1");
        write(
            &args.folder.join(format!("man{section}")),
            &name,
            text.as_bytes(),
        )?;
    }
    for (shell, file) in [
        ("bash", "ringtap.bash"),
        ("fish", "ringtap.fish"),
        ("zsh", "_ringtap"),
    ] {
        let shells = Shells::builtins();
        let shell = shells.completer(shell).context("clap has no such shell")?;
        let mut script = Vec::new();
        shell.write_registration("COMPLETE", "ringtap", "ringtap", "ringtap", &mut script)?;
        write(&args.folder.join("completions"), file, &script)?;
    }
    Ok(ExitCode::SUCCESS)
}

fn write(folder: &Path, name: &str, text: &[u8]) -> Result<()> {
    let path = folder.join(name);
    let written = fs::create_dir_all(folder).and_then(|()| fs::write(&path, text));
    written.with_context(|| format!("cannot write {}", path.display()))
}

/// The pages of a verb and of its own verbs: file and text.
fn verb_pages(verb: &Command, pages: &mut Vec<(String, String)>) -> Result<()> {
    // `help` of a built command describes the other verbs.
    let visible = |one: &&Command| !one.is_hide_set() && one.get_name() != "help";
    for own in verb.get_subcommands().filter(visible) {
        verb_pages(own, pages)?;
    }
    let name = verb
        .get_display_name()
        .unwrap_or(verb.get_name())
        .to_owned();
    let mut shown = verb.clone().display_name(name.clone());
    for hidden in verb.get_subcommands().filter(|one| !visible(one)) {
        shown = shown.mut_subcommand(hidden.get_name(), |one| one.hide(true));
    }
    pages.push((format!("{name}.1"), verb_page(shown)?));
    Ok(())
}

fn verb_page(verb: Command) -> Result<String> {
    let examples = verb.get_after_help().map(ToString::to_string);
    let name = verb.get_display_name().unwrap_or_default().to_owned();
    let has_verbs = verb.has_subcommands();
    let man = Man::new(verb);
    let mut page = Vec::new();
    man.render_title(&mut page)?;
    man.render_name_section(&mut page)?;
    man.render_synopsis_section(&mut page)?;
    man.render_description_section(&mut page)?;
    man.render_options_section(&mut page)?;
    if has_verbs {
        man.render_subcommands_section(&mut page)?;
    }
    let mut page = String::from_utf8(page)?;
    if let Some(examples) = examples {
        page += ".SH EXAMPLES\n";
        page += &verbatim(examples.trim_start_matches("Examples:\n"));
    }
    page += ".SH \"EXIT STATUS\"\n";
    page += &tagged(statuses::TABLE);
    let verb = name.split('-').nth(1).unwrap_or_default();
    if let Some(row) = signals::row(verb) {
        page += ".SH SIGNALS\n";
        page += &tagged([
            (
                "SIGINT, SIGTERM",
                "end in good order; a second one half a second later ends at once",
            ),
            ("SIGHUP", row.hangup),
            ("SIGUSR1", row.usr1),
            ("SIGUSR2", row.usr2),
        ]);
    }
    page += ".SH ENVIRONMENT\n";
    page += &tagged(ENVIRONMENT);
    page += ".SH FILES\n";
    page += &tagged(FILES);
    page += ".SH \"SEE ALSO\"\nringtap(1), hub.toml(5), ringtap\\-probe.toml(5), pcap\\-filter(7), tcpdump(8)\n";
    Ok(page)
}

/// Pages about configuration files, from the documents.
fn file_pages() -> [(String, String); 2] {
    let hub = from_markdown(
        HUB,
        &["Configuration file", "Groups", "Slow readers", "Limits"],
    );
    let probe = from_markdown(PROBE, &["Configuration", "Actions"]);
    [
        file_page("hub.toml", "configuration of the Ringtap hub", &hub),
        file_page(
            "ringtap-probe.toml",
            "configuration of a Ringtap probe, for --config",
            &probe,
        ),
    ]
}

fn file_page(name: &str, what: &str, text: &str) -> (String, String) {
    let title = name.to_uppercase();
    let page = format!(
        ".TH {title} 5 \"\" \"ringtap {}\"\n.SH NAME\n{} \\- {what}\n{text}.SH \"SEE ALSO\"\nringtap(1)\n",
        env!("CARGO_PKG_VERSION"),
        roff::escaped(name),
    );
    (format!("{name}.5"), page)
}

#[cfg(test)]
mod tests;
