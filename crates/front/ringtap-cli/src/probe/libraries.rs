// SPDX-License-Identifier: MIT OR Apache-2.0
//! Processes for users' own analyses: `ringtap probe-libraries`, which only a probe starts.

use std::io;
use std::os::fd::AsFd as _;
use std::path::Path;
use std::process::ExitCode;

use anyhow::{Result, bail};
use clap::Args;
use ringtap::{CapabilitySet, Confinement, User};
use ringtap_device::Kind;
use ringtap_ipc::socket::Socket;
use ringtap_probe::ProbePlan;
use ringtap_probe::library;
use rustix::process::{Signal, set_parent_process_death_signal};
use rustix::thread::set_name;

use crate::{UsageError, interrupt};

/// Word of the verb that hosts libraries.
pub(super) const VERB: &str = "probe-libraries";

/// Hosts libraries for the probe at the other end of standard input, or runs one.
#[derive(Args, Debug)]
pub(crate) struct LibrariesArgs {
    /// Become the user with this number first.
    #[arg(long)]
    user: Option<u32>,

    /// Setup of one process, as JSON; without it, this process is the supervisor.
    setup: Option<String>,
}

pub(crate) fn run(args: &LibrariesArgs) -> Result<ExitCode> {
    let input = io::stdin().as_fd().try_clone_to_owned()?;
    let Ok(socket) = Socket::inherited(input) else {
        bail!("`probe-libraries` is for `ringtap probe` only");
    };
    // These processes end with the probe, which Ctrl-C ends in good order.
    interrupt::outlive()?;
    if let Some(setup) = &args.setup {
        // The link that the supervisor started it by is called `exe`.
        set_name(c"ringtap")?;
        library::run(&serde_json::from_str(setup)?, &socket)?;
        return Ok(ExitCode::SUCCESS);
    }
    // The processes enter a sandbox, in which they start no programs.
    let keeps = Confinement {
        user: args.user.map(User::from_id),
        starts_programs: true,
        ..Confinement::keeping(CapabilitySet::empty())
    };
    keeps.enter()?;
    // Only now: the kernel forgets it when a process becomes another user.
    set_parent_process_death_signal(Some(Signal::KILL))?;
    // Without rights, the folder of the program may be closed; this link leads to the file itself.
    library::serve(socket, Path::new("/proc/self/exe"), &[VERB])?;
    Ok(ExitCode::SUCCESS)
}

/// Refuses libraries unless the probe captures an interface; `live` is the kind of a live capture.
///
/// # Errors
///
/// [`UsageError`].
pub(super) fn require_interface(
    plan: &ProbePlan,
    live: Option<&'static Kind>,
) -> Result<(), UsageError> {
    if plan.libraries.is_empty() || live.is_some_and(|kind| !kind.names_a_group()) {
        return Ok(());
    }
    let text = "analyses of kind \"library\" need a probe that captures an interface itself (-i eth0): \
                their processes join the probe's own hub";
    Err(UsageError(text.to_owned()))
}
