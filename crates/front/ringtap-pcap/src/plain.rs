// SPDX-License-Identifier: MIT OR Apache-2.0
//! Which way a device is read: as Ringtap's own, as a plain interface, or by the real library.
#![forbid(unsafe_code)]

use std::path::Path;

use ringtap_client::{ConnectError, Connection, default_socket};
use ringtap_device::{DeviceSpec, Direction, Kind, Queues};
use ringtap_ipc::protocol::{HubStatus, SourceState};

use crate::error::Refused;
use crate::real::trusted_variable;

/// Beginnings of the names that are Ringtap's.
const PREFIXES: [&str; 7] = ["hub:", "tap:", "packet:", "xdp:", "pcap:", "sim:", "host:"];
/// Kernel types of interfaces whose packets begin with an Ethernet header or are bare IP.
const KNOWN_TYPES: [u16; 7] = [1, 772, 65534, 768, 769, 776, 778];
/// `IFF_UP`.
const UP: u32 = 1;

/// What a device's name asks for.
#[derive(Debug, PartialEq)]
pub(crate) enum Target {
    /// This device of Ringtap's.
    Device(Box<DeviceSpec>),
    /// An interface, by whatever way is best.
    Plain(String),
    /// The real library's.
    Real,
}

impl Target {
    /// What `name` means, given what `ringtap exec --via` said.
    pub(crate) fn of(name: Option<&str>, via: Option<&str>) -> Result<Self, Refused> {
        let parse = |text: &str| {
            let device = text.parse::<DeviceSpec>();
            device.map_err(|error| Refused::general(error.to_string()))
        };
        if let Some(name) = name.filter(|name| has_prefix(name)) {
            return Ok(Target::Device(Box::new(parse(name)?)));
        }
        let interface = name.filter(|name| *name != "any" && is_interface(name));
        match (via, interface) {
            (Some("libpcap"), _) => Ok(Target::Real),
            (Some(device), _) if has_prefix(device) => Ok(Target::Device(Box::new(parse(device)?))),
            (Some(kind @ ("tap" | "packet" | "xdp")), Some(name)) => {
                let kind = match kind {
                    "tap" => Kind::Tap,
                    "xdp" => Kind::Xdp,
                    _ => Kind::Packet,
                };
                Ok(Target::Device(Box::new(DeviceSpec::new(kind, name))))
            }
            (Some("tap" | "packet" | "xdp"), None) | (None | Some("" | "auto"), None) => {
                Ok(Target::Real)
            }
            (None | Some("" | "auto"), Some(name)) => Ok(Target::Plain(name.to_owned())),
            (Some(other), _) => Err(Refused::general(format!(
                "RINGTAP_VIA={other}: want hub:GROUP, tap, packet, xdp, auto or libpcap"
            ))),
        }
    }
}

/// What `ringtap exec --via` said.
pub(crate) fn via() -> Option<String> {
    trusted_variable("RINGTAP_VIA")?.into_string().ok()
}

pub(crate) fn has_prefix(name: &str) -> bool {
    PREFIXES.iter().any(|prefix| name.starts_with(prefix))
}

fn is_interface(name: &str) -> bool {
    !name.contains('/') && Path::new("/sys/class/net").join(name).exists()
}

/// One of the numbers that the kernel tells of an interface.
fn number_of(name: &str, what: &str) -> Option<u32> {
    let path = Path::new("/sys/class/net").join(name).join(what);
    let text = std::fs::read_to_string(path).ok()?;
    let text = text.trim();
    match text.strip_prefix("0x") {
        Some(hex) => u32::from_str_radix(hex, 16).ok(),
        None => text.parse().ok(),
    }
}

/// Whether an interface is up; `None` if there is none.
pub(crate) fn is_up(name: &str) -> Option<bool> {
    Some(number_of(name, "flags")? & UP != 0)
}

/// Whether packets of this interface are of a type that Ringtap knows.
pub(crate) fn is_known_type(name: &str) -> bool {
    let kind = number_of(name, "type").and_then(|kind| u16::try_from(kind).ok());
    kind.is_some_and(|kind| KNOWN_TYPES.contains(&kind))
}

/// The group of the machine's hub in which a reader gets exactly what `interface` gives, if there
/// is a hub and such a group.
///
/// # Errors
///
/// The hub does not tell this user.
pub(crate) fn group_for(interface: &str) -> Result<Option<String>, Refused> {
    let hub = match Connection::open(&default_socket(), "libpcap") {
        Ok(hub) => hub,
        Err(ConnectError::NoHub { .. }) => return Ok(None),
        Err(error) => return Err(error.into()),
    };
    Ok(group_in(&hub.status()?, interface))
}

fn group_in(status: &HubStatus, interface: &str) -> Option<String> {
    let [source] = &status.sources[..] else {
        return None;
    };
    let device: DeviceSpec = source.device.parse().ok()?;
    let whole = device.kind.names_an_interface()
        && device.name == interface
        && device.queues == Queues::All
        && matches!(device.options.direction, None | Some(Direction::InOut));
    if !whole || source.state == SourceState::Ended {
        return None;
    }
    let mut groups = status.groups.iter();
    let group = groups.find(|group| {
        group.balance == "broadcast"
            && group.filter.is_empty()
            && group.members < group.most_members
    });
    Some(group?.name.clone())
}

#[cfg(test)]
mod tests {
    use ringtap_ipc::protocol::{GroupStatus, SourceStatus};

    use super::*;

    #[test]
    fn a_name_of_ringtap_is_its_device_and_others_are_the_real_librarys() {
        let of = |name, via| Target::of(Some(name), via).map_err(|refused| refused.text);
        let device = |text: &str| Ok(Target::Device(Box::new(text.parse().unwrap())));
        assert_eq!(of("hub:web", None), device("hub:web"));
        assert_eq!(of("tap:lo@0", Some("libpcap")), device("tap:lo@0"));
        assert_eq!(of("lo", None), Ok(Target::Plain("lo".into())));
        assert_eq!(of("lo", Some("libpcap")), Ok(Target::Real));
        assert_eq!(of("lo", Some("hub:web")), device("hub:web"));
        assert_eq!(of("lo", Some("packet")), device("packet:lo"));
        assert_eq!(of("usbmon0", None), Ok(Target::Real));
        assert_eq!(of("any", None), Ok(Target::Real));
        assert_eq!(of("eth0:1", None), Ok(Target::Real));
        assert!(
            of("lo", Some("tape"))
                .unwrap_err()
                .contains("want hub:GROUP")
        );
        assert!(of("hub:", None).is_err());
    }

    #[test]
    fn a_group_that_gives_less_than_the_interface_is_not_taken() {
        let status = |device: &str, filter: &str| HubStatus {
            sources: vec![SourceStatus {
                device: device.into(),
                ..SourceStatus::default()
            }],
            groups: vec![GroupStatus {
                name: "web".into(),
                balance: "broadcast".into(),
                filter: filter.into(),
                most_members: 2,
                ..GroupStatus::default()
            }],
            ..HubStatus::default()
        };
        assert_eq!(
            group_in(&status("tap:eth0", ""), "eth0"),
            Some("web".into())
        );
        assert_eq!(group_in(&status("tap:eth0", "udp"), "eth0"), None);
        assert_eq!(group_in(&status("tap:eth1", ""), "eth0"), None);
        assert_eq!(group_in(&status("tap:eth0@1", ""), "eth0"), None);
        assert_eq!(group_in(&status("tap:eth0?direction=in", ""), "eth0"), None);
    }
}
