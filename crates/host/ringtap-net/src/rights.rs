// SPDX-License-Identifier: MIT OR Apache-2.0
//! Capabilities of this process, and advice if a source needs more.

use std::{fmt, fs};

pub use rustix::thread::CapabilitySet;

/// What a capture on an interface needs while it runs: to load programs for new filters, and to
/// attach again after a change of the interface.
pub const WHILE_CAPTURING: CapabilitySet = CapabilitySet::BPF
    .union(CapabilitySet::NET_ADMIN)
    .union(CapabilitySet::PERFMON)
    .union(CapabilitySet::NET_RAW)
    .union(CapabilitySet::IPC_LOCK);

/// Names of capabilities such as `CAP_BPF`, the newest first.
fn names(capabilities: CapabilitySet) -> Vec<String> {
    let names = capabilities.iter_names();
    let mut names: Vec<_> = names.map(|(name, _)| format!("CAP_{name}")).collect();
    names.reverse();
    names
}

/// A use of the network that needs rights.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Purpose {
    /// XDP and tc programs that write into the pool.
    Tap,
    /// AF_XDP.
    Xdp,
    /// A packet socket.
    Packet,
    /// Sending by XDP live frames.
    LiveFrames,
}

impl Purpose {
    /// The capabilities that it needs.
    fn needs(self) -> CapabilitySet {
        let programs = CapabilitySet::BPF | CapabilitySet::NET_ADMIN;
        match self {
            Self::Tap | Self::LiveFrames => programs | CapabilitySet::PERFMON,
            Self::Xdp => programs | CapabilitySet::NET_RAW,
            Self::Packet => CapabilitySet::NET_RAW,
        }
    }
}

impl fmt::Display for Purpose {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Tap => "the tap source",
            Self::Xdp => "the xdp source",
            Self::Packet => "the packet source",
            Self::LiveFrames => "sending live frames",
        })
    }
}

/// The rights of this process.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Rights {
    held: CapabilitySet,
    in_initial_namespace: bool,
}

/// The process lacks rights for a purpose.
#[expect(missing_docs, reason = "messages show what each field means")]
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum RightsError {
    /// The process lacks capabilities.
    #[error("{}", advise(*.purpose, *.missing))]
    Missing {
        purpose: Purpose,
        missing: CapabilitySet,
    },
    /// The process is in a user namespace, where it cannot load BPF programs.
    #[error(
        "{purpose} takes BPF programs, which no process inside a user namespace may load: run \
         outside of it (with sudo){}",
        if *.purpose == Purpose::LiveFrames { "" } else { ", or use packet:INTERFACE" }
    )]
    UserNamespace { purpose: Purpose },
}

impl Rights {
    /// The rights of the calling thread.
    #[must_use]
    pub fn current() -> Self {
        let effective = rustix::thread::capabilities(None).map(|sets| sets.effective);
        Self {
            held: effective.unwrap_or(CapabilitySet::empty()),
            in_initial_namespace: in_initial_user_namespace(),
        }
    }

    /// Whether the process has the capabilities, themselves or by `CAP_SYS_ADMIN`.
    #[must_use]
    pub fn has(&self, capabilities: CapabilitySet) -> bool {
        self.lacks(capabilities).is_empty()
    }

    fn lacks(&self, needed: CapabilitySet) -> CapabilitySet {
        let implied = if self.held.contains(CapabilitySet::SYS_ADMIN) {
            CapabilitySet::BPF | CapabilitySet::PERFMON
        } else {
            CapabilitySet::empty()
        };
        needed - self.held - implied
    }

    /// Fails if the process lacks rights that the purpose needs.
    ///
    /// # Errors
    ///
    /// - [`RightsError::Missing`]: names the capabilities, and the command that grants them.
    /// - [`RightsError::UserNamespace`]: BPF inside a user namespace.
    pub fn require(&self, purpose: Purpose) -> Result<(), RightsError> {
        let missing = self.lacks(purpose.needs());
        if !missing.is_empty() {
            return Err(RightsError::Missing { purpose, missing });
        }
        if purpose.needs().contains(CapabilitySet::BPF) && !self.in_initial_namespace {
            return Err(RightsError::UserNamespace { purpose });
        }
        Ok(())
    }
}

fn advise(purpose: Purpose, missing: CapabilitySet) -> String {
    let program = std::env::current_exe();
    let program = program.map_or_else(|_| "PROGRAM".into(), |path| path.display().to_string());
    format!(
        "{purpose} needs {}: run it with sudo, or once `sudo setcap {}+ep {program}`",
        names(missing).join(" and "),
        names(purpose.needs()).join(",").to_lowercase(),
    )
}

/// The initial namespace maps every user id to itself; no other can.
fn in_initial_user_namespace() -> bool {
    fs::read_to_string("/proc/self/uid_map").is_ok_and(|map| {
        let mut fields = map.split_whitespace();
        fields.by_ref().take(3).eq(["0", "0", "4294967295"]) && fields.next().is_none()
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rights(held: CapabilitySet, in_initial_namespace: bool) -> Rights {
        Rights {
            held,
            in_initial_namespace,
        }
    }

    #[test]
    fn packet_needs_net_raw_only_and_works_in_a_user_namespace() {
        let none = rights(CapabilitySet::empty(), true);
        let error = none.require(Purpose::Packet).unwrap_err();
        let text = error.to_string();
        assert!(text.starts_with("the packet source needs CAP_NET_RAW: run it with sudo"));
        assert!(text.contains("setcap cap_net_raw+ep "), "{text}");
        let inside = rights(CapabilitySet::NET_RAW, false);
        assert_eq!(inside.require(Purpose::Packet), Ok(()));
    }

    #[test]
    fn bpf_is_refused_inside_a_user_namespace() {
        let purpose = Purpose::Tap;
        let all = rights(CapabilitySet::all(), false);
        assert_eq!(
            all.require(purpose),
            Err(RightsError::UserNamespace { purpose })
        );
        assert_eq!(rights(CapabilitySet::all(), true).require(purpose), Ok(()));
    }

    #[test]
    fn sys_admin_includes_bpf_and_perfmon_but_not_net_admin() {
        let missing = CapabilitySet::NET_ADMIN;
        let purpose = Purpose::Tap;
        assert_eq!(
            rights(CapabilitySet::SYS_ADMIN, true).require(purpose),
            Err(RightsError::Missing { purpose, missing })
        );
    }

    #[test]
    fn the_own_rights_can_be_read() {
        let rights = Rights::current();
        if rustix::process::geteuid().is_root() && rights.in_initial_namespace {
            assert!(rights.has(CapabilitySet::NET_RAW));
        }
    }
}
