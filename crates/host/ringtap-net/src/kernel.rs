// SPDX-License-Identifier: MIT OR Apache-2.0
//! Features of the running kernel, by its version.

use std::fmt;

/// A kernel version: major, minor.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Version(pub u16, pub u16);

impl Version {
    /// The running kernel's version; 0.0 if unknown.
    #[must_use]
    pub fn running() -> Self {
        let name = rustix::system::uname();
        Self::parse(&name.release().to_string_lossy()).unwrap_or(Self(0, 0))
    }

    /// The first two numbers of a release name such as `6.1.0-18-amd64`.
    #[must_use]
    pub fn parse(release: &str) -> Option<Self> {
        let mut numbers = release.split(|sign: char| !sign.is_ascii_digit());
        let major = numbers.next()?.parse().ok()?;
        let minor = numbers.next()?.parse().ok()?;
        Some(Self(major, minor))
    }
}

impl fmt::Display for Version {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}", self.0, self.1)
    }
}

/// A feature that older kernels lack.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum Feature {
    /// Memory-mapped BPF arrays that can be frozen.
    MappedMaps,
    /// `bpf_xdp_load_bytes` and packets in several buffers.
    XdpMultiBuffer,
    /// XDP programs that send (`BPF_F_TEST_XDP_LIVE_FRAMES`).
    XdpLiveFrames,
    /// `bpf_ktime_get_tai_ns`.
    TaiClock,
    /// tcx links.
    Tcx,
    /// `bpf_xdp_metadata_rx_vlan_tag`.
    RxVlanMetadata,
}

impl Feature {
    /// First version with the feature.
    #[must_use]
    pub fn since(self) -> Version {
        match self {
            Self::MappedMaps => Version(5, 5),
            Self::XdpMultiBuffer | Self::XdpLiveFrames => Version(5, 18),
            Self::TaiClock => Version(6, 1),
            Self::Tcx => Version(6, 6),
            Self::RxVlanMetadata => Version(6, 8),
        }
    }

    /// Advice for kernels without the feature.
    fn instead(self) -> &'static str {
        match self {
            Self::XdpLiveFrames => "send through a packet socket",
            Self::Tcx => "capture one direction with --direction in, or use packet:INTERFACE",
            _ => "use packet:INTERFACE",
        }
    }
}

impl fmt::Display for Feature {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::MappedMaps => "memory-mapped BPF maps",
            Self::XdpMultiBuffer => "bpf_xdp_load_bytes",
            Self::XdpLiveFrames => "XDP live frames",
            Self::TaiClock => "bpf_ktime_get_tai_ns",
            Self::Tcx => "tcx links",
            Self::RxVlanMetadata => "VLAN tags as XDP metadata",
        })
    }
}

/// The running kernel lacks a feature.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("needs Linux {} ({feature}); this is {running}: {}", .feature.since(), .feature.instead())]
pub struct TooOld {
    /// The feature that is missing.
    pub feature: Feature,
    /// The kernel that runs.
    pub running: Version,
}

/// Fails if the kernel's version is older than the feature.
///
/// Distributions backport features: call this to explain a failure, or where a failure costs more
/// than an unnecessary refusal.
///
/// # Errors
///
/// - [`TooOld`]: names the first version with the feature, and an alternative.
pub fn require(feature: Feature) -> Result<(), TooOld> {
    require_in(feature, Version::running())
}

fn require_in(feature: Feature, running: Version) -> Result<(), TooOld> {
    if running >= feature.since() {
        Ok(())
    } else {
        Err(TooOld { feature, running })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn release_names_of_distributions_are_understood() {
        for (release, version) in [
            ("6.1.0-18-amd64", Version(6, 1)),
            ("5.15.153.1-microsoft-standard-WSL2", Version(5, 15)),
            ("6.18.44-fc-v669", Version(6, 18)),
            ("6.9-rc3", Version(6, 9)),
        ] {
            assert_eq!(Version::parse(release), Some(version), "{release}");
        }
        assert_eq!(Version::parse("unknown"), None);
    }

    #[test]
    fn an_old_kernel_is_told_what_to_use_instead() {
        let error = require_in(Feature::MappedMaps, Version(4, 19)).unwrap_err();
        assert_eq!(
            error.to_string(),
            "needs Linux 5.5 (memory-mapped BPF maps); this is 4.19: use packet:INTERFACE"
        );
        assert_eq!(require_in(Feature::Tcx, Version(6, 6)), Ok(()));
        assert!(require_in(Feature::Tcx, Version(6, 5)).is_err());
    }
}
