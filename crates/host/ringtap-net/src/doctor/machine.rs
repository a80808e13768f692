// SPDX-License-Identifier: MIT OR Apache-2.0
//! Findings about the machine: kernel, rights, limits.

use std::fs;
use std::path::Path;
use std::thread;

use crate::kernel::{Feature, Version};
use crate::rights::{Purpose, Rights};
use rustix::process::{Resource, getrlimit};
use rustix::thread::CapabilitySet;

use super::findings::{Diagnosis, Remedy};

/// Open files that a hub with a hundred readers needs.
const FILES: u64 = 4_096;
/// Locked memory that a pool of AF_XDP needs, in bytes.
const LOCKED: u64 = 256 << 20;

/// Diagnoses of the running machine.
pub(super) fn diagnose(purposes: &[Purpose]) -> Vec<Diagnosis> {
    let rights = Rights::current();
    let mut all = kernel(Version::running());
    all.extend(rights_for(purposes, &rights));
    all.extend(settings(Path::new("/")));
    all.extend(limits(&rights));
    let cpus = thread::available_parallelism().map_or(1, usize::from);
    all.push(match cpus {
        1 => Diagnosis::note("CPUs", "one", "capture and readers take it from each other"),
        _ => Diagnosis::good("CPUs", cpus.to_string()),
    });
    all
}

/// Features that this version lacks.
fn kernel(running: Version) -> Vec<Diagnosis> {
    let features = [
        (
            Feature::TaiClock,
            "`tap` and `xdp` do not work: use packet:INTERFACE",
        ),
        (
            Feature::Tcx,
            "`tap` sees received packets only, and has no tc hook",
        ),
        (
            Feature::RxVlanMetadata,
            "VLAN tags that a NIC strips make `tap` use the tc hook",
        ),
    ];
    let lacks = features
        .into_iter()
        .filter(|(feature, _)| running < feature.since());
    let mut all: Vec<_> = lacks
        .map(|(feature, why)| {
            let found = format!("{running} lacks {feature} ({})", feature.since());
            match feature {
                Feature::TaiClock => Diagnosis::bad("kernel", found, why),
                _ => Diagnosis::note("kernel", found, why),
            }
        })
        .collect();
    if all.is_empty() {
        all.push(Diagnosis::good(
            "kernel",
            format!("{running} has everything that sources use"),
        ));
    }
    all
}

fn rights_for(purposes: &[Purpose], rights: &Rights) -> Vec<Diagnosis> {
    let each = purposes.iter();
    each.map(|purpose| match rights.require(*purpose) {
        Ok(()) => Diagnosis::good("rights", format!("enough for {purpose}")),
        Err(error) => Diagnosis::note(
            "rights",
            format!("not enough for {purpose}"),
            error.to_string(),
        ),
    })
    .collect()
}

/// Settings of the kernel, below this root.
fn settings(root: &Path) -> Vec<Diagnosis> {
    let read = |path: &str| fs::read_to_string(root.join(path)).unwrap_or_default();
    let mut all = Vec::new();
    match read("proc/sys/net/core/bpf_jit_enable").trim() {
        "0" => {
            let remedy = Remedy::new(
                "sysctl -w net.core.bpf_jit_enable=1",
                "sysctl -w net.core.bpf_jit_enable=0",
            );
            let why = "programs of `tap` and filters run several times slower";
            let found = "the compiler of BPF programs is off";
            all.push(Diagnosis::bad("BPF", found, why).with(remedy));
        }
        "" => {}
        _ => all.push(Diagnosis::good("BPF", "programs are compiled")),
    }
    if read("proc/sys/net/core/bpf_jit_harden").trim() == "2" {
        let why = "programs of `tap` are slower; a choice of security, which --fix leaves alone";
        all.push(Diagnosis::note(
            "BPF",
            "constants are blinded (bpf_jit_harden=2)",
            why,
        ));
    }
    if read("sys/kernel/security/lockdown").contains("[confidentiality]") {
        let why =
            "the kernel refuses programs that read packets' times and memory: use packet:INTERFACE";
        all.push(Diagnosis::bad("lockdown", "confidentiality", why));
    }
    if read("sys/devices/system/cpu/cpu0/cpufreq/scaling_governor").trim() == "powersave" {
        let why = "cores may need milliseconds to speed up for a burst: `cpupower frequency-set -g performance`";
        all.push(Diagnosis::note("CPU governor", "powersave", why));
    }
    all
}

fn limits(rights: &Rights) -> Vec<Diagnosis> {
    let mut all = Vec::new();
    let enough = |now: Option<u64>, wanted| now.is_none_or(|now| now >= wanted);
    let files = getrlimit(Resource::Nofile).current;
    if !enough(files, FILES) {
        let found = format!("{} open files", files.unwrap_or_default());
        let why =
            "a hub needs several for each reader: `ulimit -n 4096`, or LimitNOFILE= of its unit";
        all.push(Diagnosis::note("limits", found, why));
    }
    let locked = getrlimit(Resource::Memlock).current;
    if !enough(locked, LOCKED) && !rights.has(CapabilitySet::IPC_LOCK) {
        let found = format!("{} KiB of locked memory", locked.unwrap_or_default() / 1024);
        let why = "`xdp` locks its pool: `ulimit -l unlimited`, or CAP_IPC_LOCK";
        all.push(Diagnosis::note("limits", found, why));
    }
    if all.is_empty() {
        all.push(Diagnosis::good(
            "limits",
            "open files and locked memory suffice",
        ));
    }
    all
}

#[cfg(test)]
mod tests {
    use super::super::findings::Severity;
    use super::*;

    #[test]
    fn an_old_kernel_is_told_what_it_lacks() {
        assert_eq!(kernel(Version(6, 18))[0].severity, Severity::Good);
        let debian_12 = kernel(Version(6, 1));
        assert_eq!(debian_12.len(), 2);
        assert!(debian_12.iter().all(|one| one.severity == Severity::Note));
        assert_eq!(kernel(Version(5, 10))[0].severity, Severity::Bad);
    }

    #[test]
    fn settings_that_slow_captures_down_are_found() {
        let root = tempfile::tempdir().unwrap();
        for (path, text) in [
            ("proc/sys/net/core/bpf_jit_enable", "0\n"),
            ("proc/sys/net/core/bpf_jit_harden", "2\n"),
            (
                "sys/kernel/security/lockdown",
                "none integrity [confidentiality]\n",
            ),
            (
                "sys/devices/system/cpu/cpu0/cpufreq/scaling_governor",
                "powersave\n",
            ),
        ] {
            let path = root.path().join(path);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        }
        let found = settings(root.path());
        let topics: Vec<_> = found.iter().map(|one| one.topic).collect();
        assert_eq!(topics, ["BPF", "BPF", "lockdown", "CPU governor"]);
        assert!(found[0].remedy.is_some());
        assert!(settings(Path::new("/no such folder")).is_empty());
    }
}
