// SPDX-License-Identifier: MIT OR Apache-2.0
//! Which capabilities this thread lacks to attach a tap.
#![forbid(unsafe_code)]

use std::fs;

const NET_ADMIN: u32 = 12;
const SYS_ADMIN: u32 = 21;
const PERFMON: u32 = 38;
const BPF: u32 = 39;

/// What is missing, in words; `None` if nothing is.
pub(super) fn missing() -> Option<String> {
    let status = fs::read_to_string("/proc/thread-self/status").unwrap_or_default();
    let effective = status
        .lines()
        .find_map(|line| line.strip_prefix("CapEff:"))
        .and_then(|hex| u64::from_str_radix(hex.trim(), 16).ok())
        .unwrap_or(0);
    let users = fs::read_to_string("/proc/self/uid_map").unwrap_or_default();
    lacking(effective, &users)
}

fn lacking(effective: u64, uid_map: &str) -> Option<String> {
    let has = |bit: u32| effective & (1 << bit) != 0;
    let mut missing = Vec::new();
    if !has(SYS_ADMIN) {
        missing.extend((!has(BPF)).then_some("CAP_BPF"));
        missing.extend((!has(PERFMON)).then_some("CAP_PERFMON"));
    }
    missing.extend((!has(NET_ADMIN)).then_some("CAP_NET_ADMIN"));
    if !missing.is_empty() {
        return Some(missing.join(" and "));
    }
    // A user namespace grants capabilities that the kernel does not accept for eBPF.
    let all = uid_map.split_whitespace().eq(["0", "0", "4294967295"]);
    (!all).then(|| "CAP_BPF outside of this user namespace".to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    const HOST: &str = "         0          0 4294967295\n";

    #[test]
    fn each_missing_capability_is_named() {
        assert_eq!(lacking(u64::MAX, HOST), None);
        assert_eq!(lacking(1 << SYS_ADMIN | 1 << NET_ADMIN, HOST), None);
        let none = lacking(0, HOST).unwrap();
        assert_eq!(none, "CAP_BPF and CAP_PERFMON and CAP_NET_ADMIN");
        assert_eq!(
            lacking(1 << BPF | 1 << PERFMON, HOST).as_deref(),
            Some("CAP_NET_ADMIN")
        );
    }

    #[test]
    fn root_of_a_user_namespace_has_no_rights() {
        assert!(
            lacking(u64::MAX, "0 1000 1\n")
                .unwrap()
                .contains("user namespace")
        );
    }
}
