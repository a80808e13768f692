// SPDX-License-Identifier: MIT OR Apache-2.0
//! Description of the machine, for a file's header.

use std::fs;

use ringtap_file::write::Origin;

/// Description of this program and this machine, from /proc.
pub(crate) fn origin() -> Origin {
    let release = fs::read_to_string("/proc/sys/kernel/osrelease").ok();
    Origin {
        hardware: processor(&fs::read_to_string("/proc/cpuinfo").unwrap_or_default()),
        os: release.map(|release| format!("Linux {}", release.trim())),
        application: format!("ringtap {}", env!("CARGO_PKG_VERSION")),
    }
}

/// Name of the processor; the kernel reports none on arm64.
fn processor(cpuinfo: &str) -> Option<String> {
    let line = cpuinfo
        .lines()
        .find(|line| line.starts_with("model name"))?;
    let (_, name) = line.split_once(':')?;
    Some(name.trim().to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn processor_name_is_found_where_there_is_one() {
        let x86 = "processor\t: 0\nmodel name\t: Some CPU @ 2 GHz\nflags\t: fpu\n";
        assert_eq!(processor(x86).as_deref(), Some("Some CPU @ 2 GHz"));
        assert_eq!(processor("processor\t: 0\nBogoMIPS\t: 50.00\n"), None);
    }
}
