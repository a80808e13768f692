// SPDX-License-Identifier: MIT OR Apache-2.0
//! Captures beside a hub that captures the same interface: its groups instead of a second capture.

use ringtap_client::{Connection, ControlError, default_socket};
use ringtap_device::{DeviceSpec, Options};
use ringtap_ipc::protocol::{GroupStatus, HubStatus, SourceState};

/// Groups of the machine's hub that this user may join, if the hub captures the interface.
pub(crate) struct HubBeside {
    /// Whether the hub captures the whole interface and nothing else.
    is_whole: bool,
    groups: Vec<GroupStatus>,
}

impl HubBeside {
    /// The hub that captures `interface`.
    ///
    /// # Errors
    ///
    /// There is a hub that this user may not see.
    pub(crate) fn of(interface: &str) -> Result<Option<Self>, ControlError> {
        let Ok(hub) = Connection::open(&default_socket(), "beside") else {
            return Ok(None);
        };
        Ok(HubBeside::in_status(hub.status()?, interface))
    }

    fn in_status(status: HubStatus, interface: &str) -> Option<Self> {
        let capturing = status.sources.iter();
        let capturing = capturing.filter(|source| source.state != SourceState::Ended);
        let mut devices = capturing.filter_map(|source| source.device.parse::<DeviceSpec>().ok());
        let device =
            devices.find(|device| device.kind.names_an_interface() && device.name == interface)?;
        Some(HubBeside {
            is_whole: status.sources.len() == 1 && device.is_whole(),
            groups: status.groups,
        })
    }

    /// The group whose members get all packets of the interface, and no others.
    pub(crate) fn whole(&self) -> Option<&str> {
        let mut groups = self.groups.iter();
        let group = groups.find(|group| group.admits_to_everything());
        group.filter(|_| self.is_whole).map(|group| &*group.name)
    }

    /// What a user reads instead of the interface.
    pub(crate) fn advice(&self, interface: &str) -> String {
        let groups = self.groups.iter().map(|group| {
            let filter = match &*group.filter {
                "" => String::new(),
                filter => format!(" ({filter})"),
            };
            format!("-i hub:{}{filter}", group.name)
        });
        match groups.collect::<Vec<_>>().join(", ") {
            none if none.is_empty() => format!(
                "a hub captures {interface}, and this user may join none of its groups: add the user to `users` of a \
                 group in hub.toml"
            ),
            groups => format!("a hub captures {interface}: read {groups}"),
        }
    }
}

/// Whether a device names an interface and nothing else, so that a group can take its place.
pub(crate) fn is_plain(device: &DeviceSpec, flags: &Options) -> bool {
    *device == DeviceSpec::interface(&device.name) && *flags == Options::default()
}

#[cfg(test)]
mod tests {
    use ringtap_ipc::protocol::{Division, SourceStatus};

    use super::*;

    fn status(devices: &[&str], filter: &str, balance: &str) -> HubStatus {
        let source = |device: &&str| SourceStatus {
            device: (*device).into(),
            ..SourceStatus::default()
        };
        HubStatus {
            sources: devices.iter().map(source).collect(),
            groups: vec![GroupStatus {
                name: "web".into(),
                division: Division::from_word(balance).unwrap_or_default(),
                filter: filter.into(),
                max_members: 2,
                ..GroupStatus::default()
            }],
            ..HubStatus::default()
        }
    }

    #[test]
    fn only_a_group_with_exactly_the_packets_of_the_interface_takes_its_place() {
        let whole = |devices: &[&str], filter, balance| {
            let hub = HubBeside::in_status(status(devices, filter, balance), "eth0");
            hub.map(|hub| hub.whole().map(str::to_owned))
        };
        let web = Some(Some("web".to_owned()));
        assert_eq!(whole(&["tap:eth0"], "", "broadcast"), web);
        assert_eq!(whole(&["tap:eth0"], "udp", "broadcast"), Some(None));
        assert_eq!(whole(&["tap:eth0"], "", "flow"), Some(None));
        assert_eq!(
            whole(&["tap:eth0", "tap:eth1"], "", "broadcast"),
            Some(None)
        );
        assert_eq!(whole(&["tap:eth1"], "", "broadcast"), None);
        for part in ["tap:eth0?snap=64", "tap:eth0?direction=in", "tap:eth0@1"] {
            assert_eq!(whole(&[part], "", "broadcast"), Some(None), "{part}");
        }
    }

    #[test]
    fn the_advice_names_each_group_with_its_filter() {
        let hub = HubBeside::in_status(status(&["tap:eth0"], "udp", "flow"), "eth0");
        let advice = hub.expect("it captures eth0").advice("eth0");
        assert_eq!(advice, "a hub captures eth0: read -i hub:web (udp)");
        let stranger = HubStatus {
            groups: Vec::new(),
            ..status(&["xdp:eth0"], "", "")
        };
        let advice = HubBeside::in_status(stranger, "eth0").expect("it captures eth0");
        assert!(advice.advice("eth0").contains("may join none"));
    }
}
