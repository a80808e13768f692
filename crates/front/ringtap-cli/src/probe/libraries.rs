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
use rustix::process::{Signal, geteuid, set_parent_process_death_signal};
use rustix::thread::set_name;

use super::ctl;
use crate::confine::UserArgs;
use crate::{UsageError, interrupt, print};

/// Hosts libraries for the probe at the other end of standard input, or runs one.
#[derive(Args, Debug)]
pub(crate) struct LibrariesArgs {
    /// Become the user with this number first.
    #[arg(long)]
    user: Option<u32>,

    /// Setup of one process, as JSON; without it, this process is the host.
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
        // The link that the host started it by is called `exe`.
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
    library::serve(socket, Path::new("/proc/self/exe"), &["probe-libraries"])?;
    Ok(ExitCode::SUCCESS)
}

/// The libraries of a probe that starts.
pub(super) struct Libraries {
    host: LibraryHost,
    hub: PathBuf,
    workers: u32,
    /// The user of the host and its processes, if it is another one than that of the probe.
    user: Option<User>,
}

impl Libraries {
    /// Starts the host if the plan has libraries; `live` is the kind of a live capture.
    pub(super) fn spawn(
        plan: &ProbePlan,
        live: Option<&'static Kind>,
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
        let own = geteuid().is_root().then(User::nameless);
        if let Some(own) = &own {
            words.extend(["--user".to_owned(), own.name.clone()]);
        }
        let program = env::current_exe().context("cannot find the path of the ringtap program")?;
        Ok(Some(Libraries {
            host: LibraryHost::spawn(&program, &words, plan.libraries.clone())?,
            hub: folder(user)?.join(format!("probe-{}.sock", std::process::id())),
            workers: 0,
            user: own,
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
        let user = self.user.as_ref().map(|user| user.uid);
        options.serving(&self.hub, groups.collect(), processes.sum(), user)
    }

    /// Starts the processes, and waits until they read packets.
    pub(super) fn start(mut self, filter: &str) -> Result<LibraryHost> {
        self.host.start(self.workers, &self.hub, filter)?;
        if !self.host.has_listed_files() {
            print::note(
                "ringtap: this kernel has no Landlock: libraries can read all files that their user may read",
            );
        }
        Ok(self.host)
    }
}

/// Folder for the socket of the probe's hub.
fn folder(user: &UserArgs) -> Result<PathBuf> {
    let own = ctl::folder(user)?;
    let own = own.or_else(environment::runtime_folder);
    Ok(own.unwrap_or_else(environment::temporary_folder))
}
