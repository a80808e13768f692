// SPDX-License-Identifier: MIT OR Apache-2.0
//! Capabilities of this process, and advice if a source needs more.

use std::{fmt, fs};

use rustix::thread::CapabilitySet;

/// A Linux capability that a source may need.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[non_exhaustive]
pub enum Capability {
    /// Packet sockets.
    NetRaw,
    /// Attaching programs to interfaces.
    NetAdmin,
    /// Loading BPF programs and making maps.
    Bpf,
    /// BPF programs with pointer arithmetic.
    Perfmon,
    /// Administration; includes BPF and PERFMON.
    SysAdmin,
    /// Memory beyond RLIMIT_MEMLOCK.
    IpcLock,
    /// Files of any owner and mode.
    DacOverride,
    /// CPUs of the kernel's threads.
    SysNice,
    /// Physical memory, for devices of a virtual machine's host.
    SysRawIo,
}

impl Capability {
    const ALL: [Self; 9] = [
        Self::NetRaw,
        Self::NetAdmin,
        Self::Bpf,
        Self::Perfmon,
        Self::SysAdmin,
        Self::IpcLock,
        Self::DacOverride,
        Self::SysNice,
        Self::SysRawIo,
    ];

    /// Name in the notation of setcap(8).
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::NetRaw => "cap_net_raw",
            Self::NetAdmin => "cap_net_admin",
            Self::Bpf => "cap_bpf",
            Self::Perfmon => "cap_perfmon",
            Self::SysAdmin => "cap_sys_admin",
            Self::IpcLock => "cap_ipc_lock",
            Self::DacOverride => "cap_dac_override",
            Self::SysNice => "cap_sys_nice",
            Self::SysRawIo => "cap_sys_rawio",
        }
    }

    pub(crate) fn bit(self) -> CapabilitySet {
        match self {
            Self::NetRaw => CapabilitySet::NET_RAW,
            Self::NetAdmin => CapabilitySet::NET_ADMIN,
            Self::Bpf => CapabilitySet::BPF,
            Self::Perfmon => CapabilitySet::PERFMON,
            Self::SysAdmin => CapabilitySet::SYS_ADMIN,
            Self::IpcLock => CapabilitySet::IPC_LOCK,
            Self::DacOverride => CapabilitySet::DAC_OVERRIDE,
            Self::SysNice => CapabilitySet::SYS_NICE,
            Self::SysRawIo => CapabilitySet::SYS_RAWIO,
        }
    }
}

impl fmt::Display for Capability {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.name().to_uppercase())
    }
}

/// What a capture on an interface needs while it runs: to load programs for new filters, and to
/// attach again after a change of the interface.
pub const WHILE_CAPTURING: &[Capability] = &[
    Capability::Bpf,
    Capability::NetAdmin,
    Capability::Perfmon,
    Capability::NetRaw,
    Capability::IpcLock,
];

/// A source that needs rights.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Purpose {
    /// XDP and tc programs that write into the pool.
    Tap,
    /// AF_XDP.
    Xdp,
    /// A packet socket.
    Packet,
}

impl Purpose {
    /// The capabilities that the source needs.
    #[must_use]
    pub fn needs(self) -> &'static [Capability] {
        use Capability::{Bpf, NetAdmin, NetRaw, Perfmon};
        match self {
            Self::Tap => &[Bpf, NetAdmin, Perfmon],
            Self::Xdp => &[Bpf, NetAdmin, NetRaw],
            Self::Packet => &[NetRaw],
        }
    }
}

impl fmt::Display for Purpose {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Tap => "tap",
            Self::Xdp => "xdp",
            Self::Packet => "packet",
        })
    }
}

/// The rights of this process.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Rights {
    held: Vec<Capability>,
    in_initial_namespace: bool,
}

/// The process lacks rights that a source needs.
#[expect(missing_docs, reason = "messages show what each field means")]
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum RightsError {
    /// The process lacks capabilities.
    #[error("{}", advise(*.purpose, .missing))]
    Missing {
        purpose: Purpose,
        missing: Vec<Capability>,
    },
    /// The process is in a user namespace, where it cannot load BPF programs.
    #[error(
        "the {purpose} source loads BPF programs, which no process inside a user namespace may do: \
         run outside of it (with sudo), or use packet:INTERFACE"
    )]
    UserNamespace { purpose: Purpose },
}

impl Rights {
    /// The rights of the calling thread.
    #[must_use]
    pub fn of_this_process() -> Self {
        let effective = rustix::thread::capabilities(None).map(|sets| sets.effective);
        let effective = effective.unwrap_or(CapabilitySet::empty());
        let held = Capability::ALL.into_iter();
        Self {
            held: held.filter(|one| effective.contains(one.bit())).collect(),
            in_initial_namespace: in_initial_user_namespace(),
        }
    }

    /// Whether the process has the capability, itself or by `CAP_SYS_ADMIN`.
    #[must_use]
    pub fn has(&self, capability: Capability) -> bool {
        let implied = matches!(capability, Capability::Bpf | Capability::Perfmon);
        self.held.contains(&capability) || implied && self.held.contains(&Capability::SysAdmin)
    }

    /// Whether the process is in the machine's initial user namespace; elsewhere it cannot load BPF.
    #[must_use]
    pub fn in_initial_namespace(&self) -> bool {
        self.in_initial_namespace
    }

    /// Capabilities that a source needs and this process lacks.
    #[must_use]
    pub fn missing_for(&self, purpose: Purpose) -> Vec<Capability> {
        let needed = purpose.needs().iter().copied();
        needed.filter(|one| !self.has(*one)).collect()
    }

    /// Fails if the process lacks rights that the source needs.
    ///
    /// # Errors
    ///
    /// - [`RightsError::Missing`]: names the capabilities, and the command that grants them.
    /// - [`RightsError::UserNamespace`]: BPF inside a user namespace.
    pub fn require(&self, purpose: Purpose) -> Result<(), RightsError> {
        let missing = self.missing_for(purpose);
        if !missing.is_empty() {
            return Err(RightsError::Missing { purpose, missing });
        }
        if purpose.needs().contains(&Capability::Bpf) && !self.in_initial_namespace {
            return Err(RightsError::UserNamespace { purpose });
        }
        Ok(())
    }
}

fn advise(purpose: Purpose, missing: &[Capability]) -> String {
    let list: Vec<_> = missing.iter().map(ToString::to_string).collect();
    let names: Vec<_> = purpose.needs().iter().map(|one| one.name()).collect();
    let program = std::env::current_exe();
    let program = program.map_or_else(|_| "PROGRAM".into(), |path| path.display().to_string());
    format!(
        "the {purpose} source needs {}: run it with sudo, or once `sudo setcap {}+ep {program}`",
        list.join(" and "),
        names.join(","),
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

    fn rights(held: &[Capability], in_initial_namespace: bool) -> Rights {
        Rights {
            held: held.to_vec(),
            in_initial_namespace,
        }
    }

    #[test]
    fn packet_needs_net_raw_only_and_works_in_a_user_namespace() {
        let error = rights(&[], true).require(Purpose::Packet).unwrap_err();
        let text = error.to_string();
        assert!(text.starts_with("the packet source needs CAP_NET_RAW: run it with sudo"));
        assert!(text.contains("setcap cap_net_raw+ep "), "{text}");
        let inside = rights(&[Capability::NetRaw], false);
        assert_eq!(inside.require(Purpose::Packet), Ok(()));
    }

    #[test]
    fn bpf_is_refused_inside_a_user_namespace() {
        let purpose = Purpose::Tap;
        let all = rights(&Capability::ALL, false);
        assert_eq!(
            all.require(purpose),
            Err(RightsError::UserNamespace { purpose })
        );
        assert_eq!(rights(&Capability::ALL, true).require(purpose), Ok(()));
    }

    #[test]
    fn sys_admin_includes_bpf_and_perfmon_but_not_net_admin() {
        let missing = rights(&[Capability::SysAdmin], true).missing_for(Purpose::Tap);
        assert_eq!(missing, [Capability::NetAdmin]);
    }

    #[test]
    fn the_own_rights_can_be_read() {
        let rights = Rights::of_this_process();
        if rustix::process::geteuid().is_root() && rights.in_initial_namespace() {
            assert!(rights.has(Capability::NetRaw));
        }
    }
}
