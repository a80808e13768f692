// SPDX-License-Identifier: MIT OR Apache-2.0
//! Which CPU runs what: `--cpu reader=1,capture=0`.
#![forbid(unsafe_code)]

use std::str::FromStr;

use anyhow::{Context, Result};
use rustix::thread::{CpuSet, Pid, sched_getaffinity, sched_setaffinity};

/// CPUs that the user chose.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Placement {
    /// For the reader: the thread that takes packets out of the pool.
    pub(crate) reader: Option<usize>,
    /// For the capture side: the hub thread and a source's own threads.
    pub(crate) capture: Option<usize>,
}

impl FromStr for Placement {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let mut placement = Placement::default();
        if text.is_empty() {
            return Ok(placement);
        }
        for part in text.split(',') {
            let (side, number) = part.split_once('=').unwrap_or(("reader", part));
            let cpu = number
                .parse()
                .map_err(|_| format!("\"{number}\" is not the number of a CPU"))?;
            match side {
                "reader" => placement.reader = Some(cpu),
                "capture" => placement.capture = Some(cpu),
                other => return Err(format!("\"{other}\" is neither reader nor capture")),
            }
        }
        Ok(placement)
    }
}

/// Binds the calling thread to one CPU, if one is given.
pub(crate) fn pin(cpu: Option<usize>) -> Result<()> {
    let Some(cpu) = cpu else { return Ok(()) };
    let mut set = CpuSet::new();
    if cpu < CpuSet::MAX_CPU {
        set.set(cpu);
    }
    sched_setaffinity(None::<Pid>, &set)
        .with_context(|| format!("CPU {cpu} cannot be used: see /sys/devices/system/cpu/online"))
}

/// Does something on one CPU, if one is given; threads started meanwhile stay there.
pub(crate) fn on<T>(cpu: Option<usize>, work: impl FnOnce() -> Result<T>) -> Result<T> {
    if cpu.is_none() {
        return work();
    }
    let before = sched_getaffinity(None::<Pid>).context("cannot ask for the CPUs in use")?;
    pin(cpu)?;
    let done = work();
    sched_setaffinity(None::<Pid>, &before).context("cannot go back to the CPUs in use")?;
    done
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_bare_number_is_the_readers_cpu() {
        assert_eq!(
            "1".parse(),
            Ok(Placement {
                reader: Some(1),
                capture: None
            })
        );
    }

    #[test]
    fn both_sides_can_be_placed() {
        let both = Placement {
            reader: Some(1),
            capture: Some(0),
        };
        assert_eq!("capture=0,reader=1".parse(), Ok(both));
    }

    #[test]
    fn other_sides_are_refused() {
        assert!("sender=1".parse::<Placement>().is_err());
        assert!("reader=x".parse::<Placement>().is_err());
    }
}
