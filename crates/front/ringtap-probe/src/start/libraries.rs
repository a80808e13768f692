// SPDX-License-Identifier: MIT OR Apache-2.0
//! Start of a probe's libraries: their supervisor, the groups that they read, and their processes.

use std::env;
use std::io;
use std::path::PathBuf;

use ringtap::{Balance, OpenOptions, User};
use ringtap_ipc::environment;
use ringtap_ipc::folder::FolderError;
use ringtap_ipc::trusted::{TrustError, open_trusted};
use rustix::process::geteuid;

use crate::folder::folder_of;
use crate::library::{LibraryError, LibrarySupervisor, group};
use crate::plan::ProbePlan;

/// Why the supervisor of a probe's libraries did not start.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum LibraryStartError {
    /// Other users can change a library.
    #[error("a library that analyses packets: {0}")]
    Untrusted(#[from] TrustError),
    /// The path of this program is unknown.
    #[error("cannot find the path of this program: {0}")]
    Program(io::Error),
    /// No folder for the socket of the probe's hub.
    #[error(transparent)]
    Folder(#[from] FolderError),
    /// The supervisor does not start.
    #[error(transparent)]
    Supervisor(#[from] LibraryError),
}

/// The libraries of a probe that starts.
pub struct LibraryStart {
    supervisor: LibrarySupervisor,
    hub: PathBuf,
    workers: u32,
    /// The user of the supervisor and its processes, if it is another one than that of the probe.
    user: Option<User>,
}

impl LibraryStart {
    /// Starts the supervisor if the plan has libraries: this program with the argument `verb`, and `--user UID` if this
    /// process is root. `becomes` is the user that the probe becomes.
    ///
    /// # Errors
    ///
    /// Every [`LibraryStartError`].
    pub fn spawn(
        plan: &ProbePlan,
        verb: &str,
        becomes: Option<u32>,
    ) -> Result<Option<Self>, LibraryStartError> {
        if plan.libraries.is_empty() {
            return Ok(None);
        }
        for library in &plan.libraries {
            open_trusted(&library.library)?;
        }
        let mut words = vec![verb.to_owned()];
        let own = geteuid().is_root().then(User::nameless);
        if let Some(own) = &own {
            words.extend(["--user".to_owned(), own.name.clone()]);
        }
        let program = env::current_exe().map_err(LibraryStartError::Program)?;
        let folder = folder_of(becomes)?.or_else(environment::runtime_folder);
        let folder = folder.unwrap_or_else(environment::temporary_folder);
        Ok(Some(LibraryStart {
            supervisor: LibrarySupervisor::spawn(&program, &words, plan.libraries.clone())?,
            hub: folder.join(format!("probe-{}.sock", std::process::id())),
            workers: 0,
            user: own,
        }))
    }

    /// Options of a capture that serves the processes. Libraries without a number of processes have as many as
    /// the probe has workers.
    pub fn served(&mut self, options: OpenOptions, plan: &ProbePlan, workers: u32) -> OpenOptions {
        self.workers = workers;
        let libraries = plan.libraries.iter();
        let processes = libraries.map(|one| one.processes.unwrap_or(workers));
        let balance = || Balance::Flow(plan.headers);
        let groups = (0..plan.libraries.len()).map(|at| (group(at), balance()));
        let user = self.user.as_ref().map(|user| user.uid);
        options.serving(&self.hub, groups.collect(), processes.sum(), user)
    }

    /// Starts the processes, and waits until they read packets that pass the filter.
    ///
    /// # Errors
    ///
    /// Every [`LibraryError`].
    pub fn start(mut self, filter: &str) -> Result<LibrarySupervisor, LibraryError> {
        self.supervisor.start(self.workers, &self.hub, filter)?;
        Ok(self.supervisor)
    }
}
