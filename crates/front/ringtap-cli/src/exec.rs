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
use std::path::Path;
use std::process::{Command, ExitCode};

use anyhow::{Context, Result, bail};
use clap::Args;
use ringtap_device::{DeviceSpec, kinds};
use ringtap_net::preload::{self, DropIn, Unfit};

use crate::seeing::HubSocketArgs;
use crate::{UsageError, print};

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
    let mut words = kinds::interface_kinds().map(|kind| kind.word);
    if ["auto", "libpcap"].contains(&text) || words.any(|word| word == text) {
        return Ok(text.to_owned());
    }
    if !text.contains(':') {
        bail!("expected {}, auto or libpcap", kinds::substitutes());
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
    let drop_in = DropIn::beside(&own)?;
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
    drop_in.preload(&mut command);
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
