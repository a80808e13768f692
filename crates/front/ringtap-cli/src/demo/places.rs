// SPDX-License-Identifier: MIT OR Apache-2.0
//! The CPUs of the demo's threads, and the path of its file.

use std::fs::OpenOptions;
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::Path;

use anyhow::{Context, Result};
use ringtap_ipc::environment;
use ringtap_ipc::folder::link_flags;
use ringtap_net::cpu;

const FILE: &str = "ringtap-demo.pcapng";

/// A CPU for each thread; absent on a machine with one CPU.
pub(super) struct DemoCpus {
    /// CPU of the sender and, in its softirq, the capture.
    pub(super) sender: Option<usize>,
    /// CPU of the counting reader and the hub.
    pub(super) counter: Option<usize>,
    /// CPU of the recording reader.
    pub(super) recorder: Option<usize>,
}

impl DemoCpus {
    /// Chooses among the CPUs that this process may use.
    pub(super) fn choose() -> Result<Self> {
        let cpus = cpu::allowed().context("cannot read the CPUs of this process")?;
        Ok(Self::among(&cpus))
    }

    fn among(cpus: &[usize]) -> Self {
        let (sender, others) = match cpus {
            [first, others @ ..] if !others.is_empty() => (Some(*first), others),
            _ => (None, &[][..]),
        };
        let counter = others.first().copied();
        DemoCpus {
            sender,
            counter,
            recorder: others.get(1).copied().or(counter),
        }
    }
}

/// The path that the user gave, else the first writable default.
pub(super) fn file(wanted: Option<&str>) -> Result<String> {
    let name = match wanted {
        Some(name) => name.to_owned(),
        None => usual_file()?,
    };
    let file = std::path::absolute(&name).with_context(|| format!("\"{name}\" names no file"))?;
    Ok(file.display().to_string())
}

fn usual_file() -> Result<String> {
    let temporary = environment::temporary_folder().join(FILE);
    let candidates = [FILE.to_owned(), temporary.display().to_string()];
    let can_be_written = |file: &String| {
        let mut options = OpenOptions::new();
        let options = options.append(true).create(true);
        let opened = options.custom_flags(link_flags(Path::new(file))).open(file);
        opened.is_ok()
    };
    let found = candidates.iter().find(|file| can_be_written(file));
    found.cloned().with_context(|| {
        format!(
            "neither {} nor {} can be written: choose another file with --write",
            candidates[0], candidates[1]
        )
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn places(cpus: &[usize]) -> [Option<usize>; 3] {
        let places = DemoCpus::among(cpus);
        [places.sender, places.counter, places.recorder]
    }

    #[test]
    fn the_sender_shares_its_cpu_with_no_reader_where_there_are_two() {
        assert_eq!(places(&[3]), [None; 3]);
        assert_eq!(places(&[0, 1]), [Some(0), Some(1), Some(1)]);
        assert_eq!(places(&[2, 5, 7, 9]), [Some(2), Some(5), Some(7)]);
    }
}
