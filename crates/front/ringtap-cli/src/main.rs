// SPDX-License-Identifier: MIT OR Apache-2.0
//! The `ringtap` command: parses arguments, calls the library and prints.
#![forbid(unsafe_code)]
// These macros panic on a closed pipe; `print` does not.
#![cfg_attr(not(test), deny(clippy::print_stdout, clippy::print_stderr))]

mod affinity;
mod bridge;
mod confine;
mod count;
mod demo;
mod devices;
mod doctor;
mod exec;
mod guest;
mod hub;
mod inline;
mod input;
mod interrupt;
mod manual;
mod print;
mod probe;
mod reading;
mod record;
mod report;
mod reports;
mod seeing;
mod send;
mod serve_one;
mod session;
mod sim;
mod vm;
mod waiting;

use std::process::ExitCode;

use clap::error::{ContextKind, ContextValue};
use clap::{CommandFactory, Parser, Subcommand};
use ringtap_net::interface::InterfaceError;
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
    /// Record packets to pcapng files, with rotation; each file has the counters.
    Record(Box<record::RecordArgs>),
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

/// Exit status of usage errors, the same as that of clap.
pub(crate) const USAGE: u8 = 2;
/// Exit status when a source or a sender ends because its interface was removed.
pub(crate) const INTERFACE_REMOVED: u8 = 3;

/// Arguments that contradict each other; ends the program with [`USAGE`].
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub(crate) struct UsageError(pub(crate) String);

/// Flags of tcpdump and dumpcap that no verb has, and what to use instead.
const INSTEAD: [(&str, &str); 7] = [
    (
        "-J",
        "`ringtap devices` lists the time stamp types of each device",
    ),
    ("-n", "addresses and ports are never resolved: leave -n out"),
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
    let cli = arguments();
    // The hub has a log of its own; what `serve-one` prints would mix with its program's output.
    if !matches!(cli.verb, Verb::Hub(_) | Verb::Guest(_) | Verb::ServeOne(_)) {
        print::show_source_notes();
    }
    let result = match cli.verb {
        Verb::Count(args) => count::run(&args),
        Verb::Record(args) => record::run(&args),
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
        Verb::Vm(args) => vm::run(&args),
        Verb::Doctor(args) => doctor::run(&args),
        Verb::Devices(args) => devices::run(&args),
        Verb::Demo(args) => demo::run(&args),
        Verb::ServeOne(args) => serve_one::run(&args),
        Verb::ProbeLibraries(args) => probe::run_libraries(&args),
        Verb::Sim(args) => sim::run(&args),
        Verb::Manual(args) => manual::run(&args, Cli::command()),
    };
    result.unwrap_or_else(|error| {
        if error.is::<waiting::EndedWaiting>() {
            print::note(format_args!("ringtap: {error}"));
            return ExitCode::SUCCESS;
        }
        print::error(describe(&error));
        match (is_removal(&error), is_usage(&error)) {
            (true, _) => ExitCode::from(INTERFACE_REMOVED),
            (false, true) => ExitCode::from(USAGE),
            _ => ExitCode::FAILURE,
        }
    })
}

/// Whether the error is the removal of an interface in use.
fn is_removal(error: &anyhow::Error) -> bool {
    matches!(
        error.downcast_ref(),
        Some(ringtap::Error::InterfaceRemoved(_))
    ) || matches!(
        error.downcast_ref(),
        Some(SendError::Interface(InterfaceError::Removed { .. }))
    )
}

/// Whether other arguments are needed.
fn is_usage(error: &anyhow::Error) -> bool {
    use ringtap::Error::{Device, Filter};
    error.is::<UsageError>() || matches!(error.downcast_ref(), Some(Device(_) | Filter(_)))
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
    fn the_help_of_each_verb_has_examples() {
        let command = super::Cli::command();
        let verbs = command.get_subcommands().filter(|verb| !verb.is_hide_set());
        let help = |verb: &clap::Command| verb.get_after_help().unwrap_or_default().to_string();
        let without: Vec<_> = verbs
            .filter(|verb| !help(verb).contains("Examples:"))
            .map(clap::Command::get_name)
            .collect();
        assert_eq!(without, [""; 0]);
    }
}
