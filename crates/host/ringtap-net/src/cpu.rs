// SPDX-License-Identifier: MIT OR Apache-2.0
//! CPUs: which a process may use, and where threads run.

use std::{fs, io};

use rustix::thread::{CpuSet, Pid, sched_getaffinity, sched_setaffinity};

/// The file that lists CPUs in use.
pub const ONLINE: &str = "/sys/devices/system/cpu/online";

/// CPUs that the calling thread may use, in ascending order.
pub fn allowed() -> io::Result<Vec<usize>> {
    let set = sched_getaffinity(None::<Pid>)?;
    let all = 0..CpuSet::MAX_CPU;
    Ok(all.filter(|cpu| set.is_set(*cpu)).collect())
}

/// Binds a thread, or with `None` the calling one, to these CPUs.
///
/// # Errors
///
/// The kernel's, for instance because none of the CPUs exists.
pub fn bind(thread: Option<Pid>, cpus: &[usize]) -> io::Result<()> {
    let mut set = CpuSet::new();
    let known = cpus.iter().filter(|cpu| **cpu < CpuSet::MAX_CPU);
    known.for_each(|cpu| set.set(*cpu));
    Ok(sched_setaffinity(thread, &set)?)
}

/// Whether a CPU is in use; true if the kernel does not list CPUs.
#[must_use]
pub fn is_online(cpu: usize) -> bool {
    fs::read_to_string(ONLINE).map_or(true, |text| list(&text).contains(&cpu))
}

/// CPUs that share the last cache with this one.
#[must_use]
pub fn sharing_cache(cpu: usize) -> Vec<usize> {
    let folder = format!("/sys/devices/system/cpu/cpu{cpu}/cache");
    let file = |index| format!("{folder}/index{index}/shared_cpu_list");
    let last = (0..8)
        .rev()
        .find_map(|index| fs::read_to_string(file(index)).ok());
    last.map(|text| list(&text)).unwrap_or_default()
}

/// Parses a list of CPUs such as `0-3,8`.
pub(crate) fn list(text: &str) -> Vec<usize> {
    let range = |part: &str| {
        let (first, last) = part.split_once('-').unwrap_or((part, part));
        let numbers = first.parse().ok().zip(last.parse().ok());
        numbers.map_or(0..0, |(first, last): (usize, usize)| first..last + 1)
    };
    text.trim().split(',').flat_map(range).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lists_of_cpus_are_parsed() {
        assert_eq!(list("0-2,7\n"), [0, 1, 2, 7]);
        assert!(list("").is_empty());
    }

    #[test]
    fn a_cpu_that_does_not_exist_is_refused() {
        assert!(bind(None, &[CpuSet::MAX_CPU]).is_err());
        assert!(!allowed().unwrap().is_empty());
    }
}
