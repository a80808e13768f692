// SPDX-License-Identifier: MIT OR Apache-2.0
//! `ringtap manual`: man pages and shell completions, made from the arguments.

use std::fs;
use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::{Context, Result};
use clap::{Args, Command};
use clap_complete::Shell;

/// Writes man pages and completions into a folder.
#[derive(Args, Debug)]
pub(crate) struct ManualArgs {
    /// The folder; `man1` and `completions` are made in it.
    folder: PathBuf,
}

pub(crate) fn run(args: &ManualArgs, command: Command) -> Result<ExitCode> {
    let made = |name: &str| {
        let folder = args.folder.join(name);
        let made = fs::create_dir_all(&folder);
        made.with_context(|| format!("cannot create {}", folder.display()))
            .map(|()| folder)
    };
    clap_mangen::generate_to(command.clone(), made("man1")?)?;
    let (mut command, folder) = (command, made("completions")?);
    for shell in [Shell::Bash, Shell::Fish, Shell::Zsh] {
        clap_complete::generate_to(shell, &mut command, "ringtap", &folder)?;
    }
    Ok(ExitCode::SUCCESS)
}
