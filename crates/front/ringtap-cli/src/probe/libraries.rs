// SPDX-License-Identifier: MIT OR Apache-2.0
//! Processes for users' own analyses: `ringtap probe-libraries`, which only a probe starts.

use std::env;
use std::io;
use std::os::fd::AsFd as _;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::{Context, Result, bail};
use clap::Args;
use ringtap::{Balance, CapabilitySet, Confinement, OpenOptions, User};
use ringtap_device::Kind;
use ringtap_ipc::environment;
use ringtap_ipc::socket::Socket;
use ringtap_ipc::trusted::open_trusted;
use ringtap_probe::ProbePlan;
use ringtap_probe::library::{self, LibraryHost};
use rustix::thread::set_name;

use super::ctl;
use crate::confine::UserArgs;
use crate::{UsageError, interrupt};

/// Hosts libraries for the probe at the other end of standard input, or runs one.
#[derive(Args, Debug)]
pub(crate) struct LibrariesArgs {
    /// Become this user first.
    #[arg(long)]
    user: Option<User>,

    /// Setup of one process, as JSON; without it, this process is the host.
    setup: Option<String>,
}

pub(crate) fn run(args: &LibrariesArgs) -> Result<ExitCode> {
    let input = io::stdin().as_fd().try_clone_to_owned()?;
    let Ok(socket) = Socket::from_fd(input) else {
        bail!("`probe-libraries` is for `ringtap probe` only");
    };
    // These processes end with the probe, which Ctrl-C ends in good order.
    interrupt::outlive()?;
    if let Some(setup) = &args.setup {
        // The link that the host started it by is called `exe`.
        set_name(c"ringtap")?;
        library::run(&serde_json::from_str(setup)?, &socket)?;
        return Ok(ExitCode::SUCCESS);
    }
    // The processes give up the right to start programs themselves.
    let keeps = Confinement {
        user: args.user.clone(),
        starts_programs: true,
        ..Confinement::keeping(CapabilitySet::empty())
    };
    keeps.enter()?;
    // Without rights, the folder of the program may be closed; this link leads to the file itself.
    library::serve(socket, Path::new("/proc/self/exe"), &["probe-libraries"])?;
    Ok(ExitCode::SUCCESS)
}

/// The libraries of a probe that starts.
pub(super) struct Libraries {
    host: LibraryHost,
    hub: PathBuf,
    workers: u32,
}

impl Libraries {
    /// Starts the host if the plan has libraries; `live` is the kind of a live capture.
    pub(super) fn spawn(
        plan: &ProbePlan,
        live: Option<Kind>,
        user: &UserArgs,
    ) -> Result<Option<Self>> {
        if plan.libraries.is_empty() {
            return Ok(None);
        }
        if live.is_none_or(Kind::names_a_group) {
            let text = "analyses of kind \"library\" need a probe that captures an interface itself (-i eth0): \
                        their processes join the probe's own hub";
            return Err(UsageError(text.to_owned()).into());
        }
        for library in plan.libraries.iter().map(|one| &one.library) {
            open_trusted(library).context("a library that analyses packets")?;
        }
        let mut words = vec!["probe-libraries".to_owned()];
        if let Some(user) = user.user() {
            words.extend(["--user".to_owned(), user.name.clone()]);
        }
        let program = env::current_exe().context("cannot find the path of the ringtap program")?;
        Ok(Some(Libraries {
            host: LibraryHost::spawn(&program, &words)?,
            hub: folder(user)?.join(format!("probe-{}.sock", std::process::id())),
            workers: 0,
        }))
    }

    /// Options of a capture that serves the processes. Libraries without a number of processes have as many as
    /// the probe has workers.
    pub(super) fn served(
        &mut self,
        options: OpenOptions,
        plan: &ProbePlan,
        workers: u32,
    ) -> OpenOptions {
        self.workers = workers;
        let processes = plan
            .libraries
            .iter()
            .map(|one| one.processes.unwrap_or(workers));
        let balance = || Balance::Flow(plan.headers);
        let groups = (0..plan.libraries.len()).map(|at| (library::group(at), balance()));
        options.serving(&self.hub, groups.collect(), processes.sum())
    }

    /// Starts the processes, and waits until they read packets.
    pub(super) fn start(mut self, plan: &ProbePlan, filter: &str) -> Result<LibraryHost> {
        self.host
            .start(plan.libraries.clone(), self.workers, &self.hub, filter)?;
        Ok(self.host)
    }
}

/// Folder for a socket that only the probe's user may use.
fn folder(user: &UserArgs) -> Result<PathBuf> {
    let own = ctl::folder(user)?;
    let own = own.or_else(environment::runtime_folder);
    Ok(own.unwrap_or_else(environment::temporary_folder))
}
