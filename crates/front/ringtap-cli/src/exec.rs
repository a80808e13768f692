// SPDX-License-Identifier: MIT OR Apache-2.0
//! `ringtap exec`: runs a program that uses libpcap with Ringtap's library instead.
//!
//! Invariants
//! - The program replaces this process, so it gets the signals and returns the exit status.

use std::env;
use std::ffi::{OsStr, OsString};
use std::io;
use std::os::unix::fs::MetadataExt as _;
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};

use anyhow::{Context, Result, bail};
use clap::Args;
use ringtap_device::{DeviceSpec, kinds};
use ringtap_ipc::environment;
use ringtap_net::preload::{self, Unfit};

use crate::seeing::HubSocketArgs;
use crate::{UsageError, print};

/// Names of the library in cargo's folder and as installed.
const LIBRARY: [&str; 3] = [
    "libringtap_pcap.so",
    "deps/libringtap_pcap.so",
    "../lib/ringtap/libpcap.so.1",
];
/// Shells' exit statuses for a program that cannot run and one that does not exist.
const CANNOT_RUN: u8 = 126;
const NOT_FOUND: u8 = 127;

/// Runs a program that uses libpcap with Ringtap under it: tcpdump, tshark, suricata, ...
#[derive(Args, Debug)]
#[command(after_help = EXAMPLES)]
pub(crate) struct ExecArgs {
    /// Where plain interfaces are read: hub:GROUP, tap, packet, xdp, auto, or libpcap for none
    /// of Ringtap. Default: a hub that captures the interface, else a tap, else libpcap.
    #[arg(long, value_name = "DEVICE", value_parser = via)]
    via: Option<String>,

    #[command(flatten)]
    hub: HubSocketArgs,

    /// Do not print how a device is read.
    #[arg(short, long)]
    quiet: bool,

    /// Only say whether the program would read through Ringtap; status 1 if not.
    #[arg(long)]
    check: bool,

    /// The program and its arguments.
    #[arg(
        required = true,
        trailing_var_arg = true,
        allow_hyphen_values = true,
        value_name = "PROGRAM"
    )]
    command: Vec<OsString>,
}

const EXAMPLES: &str = "\
Examples:
  ringtap exec -- tcpdump -i eth0 -w all.pcap          by a tap, or a hub that captures eth0
  ringtap exec -- tcpdump -i hub:web port 80           a group of a hub, as any user it lets in
  ringtap exec --via hub:web -- tshark -i eth0         what asks for eth0 gets hub:web

  ringtap exec --check dumpcap                         would it read through Ringtap?

Devices are those of every other verb. RINGTAP_PCAP names the library, if it is not beside this
program. A program that is statically linked, or that has file capabilities or a set-user-id bit,
ignores it; `exec` says so and what to do (docs/libpcap.md).";

fn via(text: &str) -> Result<String> {
    let mut words = kinds::of_interfaces().map(|kind| kind.word);
    if ["auto", "libpcap"].contains(&text) || words.any(|word| word == text) {
        return Ok(text.to_owned());
    }
    if !text.contains(':') {
        bail!("expected {}, auto or libpcap", kinds::ways());
    }
    let device: DeviceSpec = text.parse()?;
    Ok(device.to_string())
}

/// Runs the verb; returns only if the program cannot be run.
pub(crate) fn run(args: &ExecArgs) -> Result<ExitCode> {
    let (program, arguments) = args
        .command
        .split_first()
        .context("no program to run: give one after --")?;
    if program.as_encoded_bytes().starts_with(b"-") {
        let flag = program.display();
        let text =
            format!("{flag}: `exec` has no such option; a program's options follow its name");
        return Err(UsageError(text).into());
    }
    let own = env::current_exe().context("cannot find the path of the ringtap program")?;
    let library = library(&own)?;
    let unfit = preload::find(Path::new(program)).map(|path| preload::unfit(&path));
    if args.check {
        return check(program, unfit);
    }
    if let Some(Ok(Some(unfit))) = unfit
        && !args.quiet
    {
        print::note(format_args!("ringtap: {} {unfit}", program.display()));
    }
    let mut command = Command::new(program);
    command.args(arguments);
    command.env("LD_PRELOAD", first(library.as_os_str(), "LD_PRELOAD"));
    // For programs that load libpcap by name at run time.
    if let Some(folder) = folder_of_names(&library) {
        command.env(
            "LD_LIBRARY_PATH",
            first(folder.as_os_str(), "LD_LIBRARY_PATH"),
        );
    }
    command.env("RINGTAP_PROGRAM", &own);
    if let Some(via) = &args.via {
        command.env("RINGTAP_VIA", via);
    }
    if let Some(socket) = &args.hub.socket {
        command.env("RINGTAP_SOCKET", std::path::absolute(socket)?);
    }
    if args.quiet {
        command.env("RINGTAP_QUIET", "1");
    }
    // The library prints to this standard error only, not to another one of the program's children.
    if let Ok(stderr) = std::fs::metadata("/proc/self/fd/2") {
        command.env(
            "RINGTAP_STDERR",
            format!("{}:{}", stderr.dev(), stderr.ino()),
        );
    }
    let error = command.exec();
    print::note(format_args!("ringtap: {}: {error}", program.display()));
    Ok(ExitCode::from(match error.kind() {
        io::ErrorKind::NotFound => NOT_FOUND,
        _ => CANNOT_RUN,
    }))
}

/// Prints whether a program would use the library.
fn check(program: &OsStr, unfit: Option<io::Result<Option<Unfit>>>) -> Result<ExitCode> {
    let name = program.display();
    let found = unfit.with_context(|| format!("{name}: there is no such program"))?;
    Ok(match found.with_context(|| name.to_string())? {
        None => {
            print::line(format_args!("{name} would use Ringtap's libpcap"))?;
            ExitCode::SUCCESS
        }
        Some(unfit) => {
            print::note(format_args!("ringtap: {name} {unfit}"));
            ExitCode::FAILURE
        }
    })
}

/// Path of the library that belongs to this program.
fn library(own: &Path) -> Result<PathBuf> {
    if let Some(named) = environment::variable("RINGTAP_PCAP") {
        let named = PathBuf::from(named);
        if !named.is_file() {
            bail!("RINGTAP_PCAP={}: there is no such file", named.display());
        }
        return named.canonicalize().context("RINGTAP_PCAP");
    }
    let folder = own.parent().unwrap_or(Path::new("/"));
    let mut places = LIBRARY.iter().map(|name| folder.join(name));
    match places.find(|place| place.is_file()) {
        // Does not resolve a symbolic link: libpcap's names are beside the link.
        Some(place) => std::path::absolute(place).context("the library has no path"),
        None => bail!(
            "Ringtap's libpcap is not there: `make build` or `make install` puts it beside {}, or \
             name it in RINGTAP_PCAP",
            own.display()
        ),
    }
}

/// The folder in which the library has libpcap's names.
fn folder_of_names(library: &Path) -> Option<PathBuf> {
    let folder = library.parent()?;
    let places = [folder.to_owned(), folder.join("library/pcap")];
    let has_both = |folder: &PathBuf| {
        ["libpcap.so.1", "libpcap.so.0.8"]
            .iter()
            .all(|name| folder.join(name).is_file())
    };
    places.into_iter().find(has_both)
}

/// A variable's list of paths with `path` in front.
fn first(path: &OsStr, variable: &str) -> OsString {
    let mut list = path.to_owned();
    if let Some(more) = environment::variable(variable).filter(|more| !more.is_empty()) {
        list.push(":");
        list.push(more);
    }
    list
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_way_is_a_word_or_a_device() {
        assert_eq!(via("tap").unwrap(), "tap");
        assert_eq!(via("hub:web").unwrap(), "hub:web");
        assert!(via("eth0").is_err() && via("hub:").is_err() && via("hup:web").is_err());
    }
}
