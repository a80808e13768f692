// SPDX-License-Identifier: MIT OR Apache-2.0
//! A process that puts an interface's settings back if the one that changed them is killed.
//!
//! It is told each setting before that is changed, a JSON object on a line of its standard input, and
//! at an orderly end that all is as it was. If its input ends without that, it puts them back.
//!
//! Invariants
//! - It has nothing of the capture but standard error: what ends with the killed process does.
//! - It outlives signals to the group or the service of the process that it belongs to.
#![forbid(unsafe_code)]

use std::env;
use std::io::{self, BufRead, Write as _};
use std::os::unix::process::CommandExt as _;
use std::path::PathBuf;
use std::process::{Child, ChildStdin, Command, ExitCode, Stdio};

use anyhow::{Context, Result};
use ringtap_net::interrupts::Setting;
use serde::{Deserialize, Serialize};

use crate::{interrupt, print};

/// The hidden verb that it runs.
const VERB: &str = "put-back";

/// What it is told.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
enum Word {
    /// A setting that will be changed, and what it is now.
    Keep { path: PathBuf, text: String },
    /// All is as it was.
    Dismissed,
}

/// The process, as the one sees it that may be killed.
pub(super) struct Keeper {
    process: Child,
    ear: ChildStdin,
}

impl Keeper {
    /// Starts it: before the first change.
    pub(super) fn start() -> Result<Self> {
        let own = env::current_exe().context("cannot find out where ringtap lies")?;
        let mut process = Command::new(own)
            .arg(VERB)
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            // Ctrl-C is for the one that captures.
            .process_group(0)
            .spawn()
            .context("cannot start the process that puts interrupts and NAPI back")?;
        let ear = process.stdin.take().context("it has no standard input")?;
        Ok(Keeper { process, ear })
    }

    /// Tells it of a setting.
    pub(super) fn keep(&mut self, setting: &Setting) -> io::Result<()> {
        self.tell(&Word::Keep {
            path: setting.path.clone(),
            text: setting.text.clone(),
        })
    }

    /// All is as it was: it ends.
    pub(super) fn dismiss(mut self) {
        // One that has ended needs to be told nothing.
        let _gone = self.tell(&Word::Dismissed);
        drop(self.ear);
        let _gone = self.process.wait();
    }

    fn tell(&mut self, word: &Word) -> io::Result<()> {
        let mut line = serde_json::to_vec(word)?;
        line.push(b'\n');
        self.ear.write_all(&line)
    }
}

/// Runs the verb: keeps settings until standard input ends.
pub(crate) fn put_back() -> Result<ExitCode> {
    interrupt::outlive()?;
    for setting in to_put_back(io::stdin().lock())?.iter().rev() {
        let path = setting.path.display();
        let was = &setting.text;
        match setting.put_back() {
            Ok(()) => print::note(format_args!("ringtap: killed: {path} is {was} again")),
            // The interface has gone with its settings.
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            Err(error) => print::note(format_args!(
                "ringtap: killed: {path} was {was} and cannot be put back: {error}"
            )),
        }
    }
    Ok(ExitCode::SUCCESS)
}

/// The settings that are left to put back, in the order of their changes.
fn to_put_back(told: impl BufRead) -> Result<Vec<Setting>> {
    let mut kept = Vec::new();
    for line in told.lines() {
        // A line that was cut off by the end is of a setting that was not changed.
        match serde_json::from_str(&line?) {
            Ok(Word::Keep { path, text }) => kept.push(Setting { path, text }),
            Ok(Word::Dismissed) => kept.clear(),
            Err(_) => break,
        }
    }
    Ok(kept)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn paths(told: &str) -> Vec<String> {
        let kept = to_put_back(told.as_bytes()).unwrap();
        let paths = kept.iter().map(|kept| kept.path.display().to_string());
        paths.collect()
    }

    #[test]
    fn only_what_was_told_whole_and_not_dismissed_is_put_back() {
        let one = r#"{"keep":{"path":"/one","text":"0"}}"#;
        let two = r#"{"keep":{"path":"/two","text":"0-3"}}"#;
        assert_eq!(paths(&format!("{one}\n{two}\n")), ["/one", "/two"]);
        assert_eq!(paths(&format!("{one}\n{}", &two[..20])), ["/one"]);
        assert!(paths(&format!("{one}\n{two}\n\"dismissed\"\n")).is_empty());
        assert!(paths("").is_empty());
    }
}
