// SPDX-License-Identifier: MIT OR Apache-2.0
//! The `ringtap` command: parses arguments, calls the library and prints.
#![forbid(unsafe_code)]
// These macros panic on a closed pipe; `print` does not.
#![cfg_attr(not(test), deny(clippy::print_stdout, clippy::print_stderr))]

mod bridge;
mod completion;
mod confine;
mod count;
mod demo;
mod devices;
mod doctor;
mod exec;
mod find;
mod guest;
mod hub;
mod index;
mod inline;
mod input;
mod interrupt;
mod manual;
mod packets;
mod print;
mod probe;
mod reading;
mod record;
mod reports;
mod rules;
mod seeing;
mod send;
mod serve_one;
mod session;
mod signals;
mod sim;
mod statuses;
mod vm;
mod waiting;

use std::process::ExitCode;

use anyhow::Result;
use clap::error::{ContextKind, ContextValue};
use clap::{CommandFactory, Parser, Subcommand};
use clap_complete::CompleteEnv;
use ringtap_net::interface::InterfaceError;
use ringtap_probe::config::ConfigError;
use ringtap_send::SendError;

/// Packet capture for Linux: capture once, deliver everywhere, account for every packet.
#[derive(Parser)]
#[command(
    name = "ringtap",
    version,
    propagate_version = true,
    arg_required_else_help = true
)]
struct Cli {
    #[command(subcommand)]
    verb: Verb,
}

/// The verbs.
#[derive(Subcommand)]
enum Verb {
    /// Count packets: one line per second, at the end all counters.
    Count(count::CountArgs),
    /// Show packets, one line each, or write their headers as Parquet, Arrow or CSV.
    Packets(Box<packets::PacketsArgs>),
    /// Record packets to pcapng files, with rotation; each file has the counters.
    Record(Box<record::RecordArgs>),
    /// Find packets in recordings, by their indexes.
    Find(find::FindArgs),
    /// Write indexes of capture files for `find`.
    Index(index::IndexArgs),
    /// Capture once for many readers in separate processes.
    Hub(hub::HubArgs),
    /// Measure traffic: flow records, largest talkers, sizes.
    Probe(probe::ProbeArgs),
    /// Make a page with plots from the Parquet files of a probe.
    Report(reports::ReportArgs),
    /// Run a libpcap program over Ringtap: `ringtap exec -- tcpdump -i eth0`.
    Exec(exec::ExecArgs),
    /// Send generated packets or those of a file, at a given rate, and count them.
    #[command(long_about = send::LONG_ABOUT)]
    Send(Box<send::SendArgs>),
    /// Forward packets between two interfaces, inside the kernel, with an optional mirror for readers.
    Bridge(bridge::BridgeArgs),
    /// Decide in a separate process which packets pass a bridge.
    Inline(inline::InlineArgs),
    /// In a virtual machine, serve groups of the host's hub as `host:GROUP`.
    Guest(guest::GuestArgs),
    /// Show all counters of a running hub, as JSON.
    Status(seeing::status::StatusArgs),
    /// Show a running hub on the terminal, live: rates, lag, losses.
    Top(seeing::top::TopArgs),
    /// Explain where a running hub lost packets, since when, and what to change.
    Why(seeing::why::WhyArgs),
    /// Withhold packets of single flows from readers, and show the ends of flows.
    Rules(rules::RulesArgs),
    /// Let a virtual machine read groups of the hub on this machine.
    Vm(vm::VmArgs),
    /// Check machine and interface for captures; explain, fix and restore settings.
    Doctor(doctor::DoctorArgs),
    /// List what can stand after -i: interfaces, and groups of a running hub.
    Devices(devices::DevicesArgs),
    /// Show a hub in a private network: a sender, one capture, five readers, their counters.
    Demo(demo::DemoArgs),
    /// Open a device for a program that reads through libringtap-pcap.
    #[command(hide = true)]
    ServeOne(serve_one::ServeOneArgs),
    /// Run users' own analyses for a probe.
    #[command(hide = true)]
    ProbeLibraries(probe::LibrariesArgs),
    /// Simulate a NIC, the capture and its readers in virtual time.
    Sim(sim::SimArgs),
    /// Write man pages and completions for packages.
    #[command(hide = true)]
    Manual(manual::ManualArgs),
}

/// Arguments that contradict each other; ends the program with [`statuses::USAGE`].
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub(crate) struct UsageError(pub(crate) String);

/// Flags of tcpdump and dumpcap that no verb has, and what to use instead.
const INSTEAD: [(&str, &str); 9] = [
    (
        "-J",
        "`ringtap devices` lists the time stamp types of each device",
    ),
    (
        "-U",
        "lines are written at once: leave -U out; `ringtap record -U` writes packets at once",
    ),
    (
        "-I",
        "Ringtap has no monitor mode: `iw` sets it, then capture the interface",
    ),
    (
        "-L",
        "a device has one link type: `ringtap exec -- tcpdump -L -i DEVICE` prints it",
    ),
    ("-l", "lines are never buffered: leave -l out"),
    (
        "-D",
        "`ringtap devices` lists interfaces and the groups of a hub",
    ),
    ("-b", "`ringtap record` begins new files"),
    ("-a", "stop with -c PACKETS or --duration SECONDS"),
    (
        "-xXAetSKE",
        "Ringtap does not dissect: `ringtap exec -- tcpdump` or `tshark` does",
    ),
];

/// The command line; clap's error names what to use instead of a flag of tcpdump.
fn arguments() -> Cli {
    Cli::try_parse().unwrap_or_else(|mut error| {
        if let Some(ContextValue::String(flag)) = error.get(ContextKind::InvalidArg) {
            let is_meant = |known: &str| flag.len() == 2 && known.contains(&flag[1..]);
            if let Some((_, instead)) = INSTEAD.iter().find(|(known, _)| is_meant(known)) {
                // In place of clap's own tip, which takes the flag for a value.
                let tip = ContextValue::StyledStrs(vec![(*instead).into()]);
                error.insert(ContextKind::Suggested, tip);
            }
        }
        let _unread = error.print();
        std::process::exit(error.exit_code())
    })
}

fn main() -> ExitCode {
    // Ends the process if a shell asks for completions.
    CompleteEnv::with_factory(Cli::command).complete();
    let cli = arguments();
    // The hub has a log of its own; what `serve-one` prints would mix with its program's output.
    if !matches!(cli.verb, Verb::Hub(_) | Verb::Guest(_) | Verb::ServeOne(_)) {
        print::show_source_notes();
    }
    let result = signals::catch().and_then(|()| run(cli.verb));
    result.unwrap_or_else(ended)
}

fn run(verb: Verb) -> Result<ExitCode> {
    match verb {
        Verb::Count(args) => count::run(&args),
        Verb::Packets(args) => packets::run(&args),
        Verb::Record(args) => record::run(&args),
        Verb::Find(args) => find::run(&args),
        Verb::Index(args) => index::run(&args),
        Verb::Hub(args) => hub::run(&args),
        Verb::Probe(args) => probe::run(&args),
        Verb::Report(args) => reports::run(&args),
        Verb::Exec(args) => exec::run(&args),
        Verb::Guest(args) => guest::run(&args),
        Verb::Bridge(args) => bridge::run(&args),
        Verb::Inline(args) => inline::run(&args),
        Verb::Send(args) => send::run(*args),
        Verb::Status(args) => seeing::status::run(&args),
        Verb::Top(args) => seeing::top::run(&args),
        Verb::Why(args) => seeing::why::run(&args),
        Verb::Rules(args) => rules::run(&args),
        Verb::Vm(args) => vm::run(&args),
        Verb::Doctor(args) => doctor::run(&args),
        Verb::Devices(args) => devices::run(&args),
        Verb::Demo(args) => demo::run(&args),
        Verb::ServeOne(args) => serve_one::run(&args),
        Verb::ProbeLibraries(args) => probe::run_libraries(&args),
        Verb::Sim(args) => sim::run(&args),
        Verb::Manual(args) => manual::run(&args, Cli::command()),
    }
}

/// Prints why a verb ended; returns the exit status.
fn ended(error: anyhow::Error) -> ExitCode {
    if error.is::<waiting::EndedWaiting>() {
        print::note(format_args!("ringtap: {error}"));
        return ExitCode::SUCCESS;
    }
    // Like `head`, the program that reads the lines needs no more.
    if error.is::<print::NobodyReads>() {
        return ExitCode::SUCCESS;
    }
    print::error(describe(&error));
    match (is_removal(&error), is_usage(&error)) {
        (true, _) => ExitCode::from(statuses::INTERFACE_REMOVED),
        (false, true) => ExitCode::from(statuses::USAGE),
        _ => ExitCode::FAILURE,
    }
}

/// Whether the error is the removal of an interface in use.
fn is_removal(error: &anyhow::Error) -> bool {
    use ringtap::Error::InterfaceRemoved;
    let sending = error.downcast_ref();
    matches!(error.downcast_ref(), Some(InterfaceRemoved(_)))
        || matches!(
            sending,
            Some(SendError::Interface(InterfaceError::Removed { .. }))
        )
}

/// Whether other arguments are needed.
fn is_usage(error: &anyhow::Error) -> bool {
    use ringtap::Error::{Device, Filter};
    use ringtap_hub::config::HubConfigError;
    error.is::<UsageError>()
        || error.is::<ConfigError>()
        || matches!(error.downcast_ref(), Some(Device(_) | Filter(_)))
        || matches!(error.downcast_ref(), Some(HubConfigError::Filter(_)))
}

/// An error and its causes on one line, without causes that repeat a text.
fn describe(error: &anyhow::Error) -> String {
    let mut text = error.to_string();
    for cause in error.chain().skip(1).map(ToString::to_string) {
        if !text.contains(&cause) {
            text.push_str(": ");
            text.push_str(&cause);
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory;

    #[test]
    fn a_cause_is_said_once() {
        let cause = anyhow::anyhow!("no such file");
        let told = cause.context("a.pcap: no such file").context("cannot read");
        assert_eq!(super::describe(&told), "cannot read: a.pcap: no such file");
    }

    #[test]
    fn the_command_line_does_not_contradict_itself() {
        super::Cli::command().debug_assert();
    }

    #[test]
    fn a_file_is_there_already() {
        let line = ["ringtap", "count", "--wait", "-r", "x"];
        let refused = super::Cli::command()
            .try_get_matches_from(line)
            .unwrap_err();
        assert_eq!(refused.kind(), clap::error::ErrorKind::ArgumentConflict);
    }

    #[test]
    fn the_help_of_each_verb_has_examples() {
        fn without(command: &clap::Command, found: &mut Vec<String>) {
            for verb in command.get_subcommands().filter(|verb| !verb.is_hide_set()) {
                let help = verb.get_after_help().unwrap_or_default().to_string();
                if !help.contains("Examples:") {
                    found.push(format!("{} {}", command.get_name(), verb.get_name()));
                }
                without(verb, found);
            }
        }
        let mut found = Vec::new();
        without(&super::Cli::command(), &mut found);
        assert_eq!(found, [""; 0]);
    }

    #[test]
    fn a_heading_has_only_its_own_options() {
        let command = super::Cli::command();
        let record = command.find_subcommand("record").expect("it is there");
        let events = record
            .get_arguments()
            .filter(|one| one.get_help_heading() == Some("Events"));
        let names: Vec<_> = events.map(|one| one.get_id().to_string()).collect();
        assert_eq!(names, ["before", "after", "trigger", "before_size"]);
        for flag in ["count", "json", "quiet", "user"] {
            let found = record.get_arguments().find(|one| one.get_id() == flag);
            assert_eq!(found.and_then(clap::Arg::get_help_heading), None, "{flag}");
        }
    }

    #[test]
    fn every_verb_that_runs_until_it_is_ended_is_in_the_table_of_signals() {
        // These end by themselves.
        const SHORT: [&str; 7] = ["report", "find", "index", "why", "doctor", "devices", "sim"];
        let command = super::Cli::command();
        let verbs = command.get_subcommands().filter(|verb| !verb.is_hide_set());
        for verb in verbs.map(clap::Command::get_name) {
            let is_there = super::signals::row(verb).is_some();
            assert_ne!(is_there, SHORT.contains(&verb), "{verb}");
        }
    }
}
