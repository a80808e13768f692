// SPDX-License-Identifier: MIT OR Apache-2.0
//! Captures beside a hub that captures the same interface: its groups instead of a second capture.

use ringtap_device::DeviceSpec;
use ringtap_ipc::protocol::{GroupStatus, HubStatus, SourceState};

use crate::connection::{ConnectError, Connection, default_socket};

/// A hub of this machine that captures an interface, with the groups that this user may join.
///
/// # Examples
///
/// ```no_run
/// use ringtap_client::HubBeside;
///
/// if let Some(hub) = HubBeside::find("eth0", "mine")?
///     && let Some(group) = hub.whole()
/// {
///     println!("hub:{group} has all packets of eth0");
/// }
/// # Ok::<(), ringtap_client::ConnectError>(())
/// ```
#[derive(Debug)]
pub struct HubBeside {
    /// Whether the hub captures the whole interface and nothing else.
    is_whole: bool,
    groups: Vec<GroupStatus>,
}

impl HubBeside {
    /// The hub that captures `interface`; it knows the caller by `name`.
    ///
    /// # Errors
    ///
    /// There is a hub that does not tell this user what it captures.
    pub fn find(interface: &str, name: &str) -> Result<Option<Self>, ConnectError> {
        let hub = match Connection::open(&default_socket(), name) {
            Err(ConnectError::NoHub { .. }) => return Ok(None),
            hub => hub?,
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
    #[must_use]
    pub fn whole(&self) -> Option<&str> {
        let mut groups = self.groups.iter();
        let group = groups.find(|group| group.admits_to_everything());
        group.filter(|_| self.is_whole).map(|group| &*group.name)
    }

    /// What a user reads instead of the interface.
    #[must_use]
    pub fn advice(&self, interface: &str) -> String {
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
        assert_eq!(whole(&["tap:eth0?snap=0"], "", "broadcast"), web);
        for options in ["?snap=64", "?direction=in", "?promisc=off", "@1"] {
            let part = format!("tap:eth0{options}");
            assert_eq!(whole(&[&part], "", "broadcast"), Some(None), "{part}");
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
