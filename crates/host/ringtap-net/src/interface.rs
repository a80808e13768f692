// SPDX-License-Identifier: MIT OR Apache-2.0
//! Facts about the network interfaces of the current network namespace.
//!
//! Each call queries the kernel (rtnetlink, ethtool); nothing is cached.
#![deny(unsafe_code)]

mod error;
mod ethtool;
mod veth;
mod watch;

use std::io;
use std::net::Ipv4Addr;

use netlink_packet_route::link::{LinkAttribute, LinkFlags, LinkInfo, LinkMessage, Prop};

use ringtap_filter::LinkType;

use crate::netlink;

pub use crate::packet_socket::Promiscuous;
pub use error::InterfaceError;
pub use netlink_packet_route::link::Stats64;
pub use veth::add_veth;
pub use watch::{Arrival, InterfaceChange, Watch};

const LARGEST_IP_PACKET: u32 = 65_535;

/// One network interface, as the kernel described it at the time of the query.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Interface {
    /// The kernel's number of the interface, unique in its namespace.
    pub index: u32,
    /// Name, at most 15 bytes.
    pub name: String,
    /// Ethernet address, if it has one.
    pub mac: Option<[u8; 6]>,
    /// Largest payload of a frame, without the link header.
    pub mtu_bytes: u32,
    /// The administrator set it up (`ip link set up`).
    pub is_up: bool,
    /// It has a carrier: a cable with a device at its other end.
    pub has_carrier: bool,
    /// The loopback interface: each packet passes twice, once out and once in.
    pub is_loopback: bool,
    /// Type of the header that its packets start with.
    pub link_type: LinkType,
    /// Kind of a software interface: `veth`, `vlan`, `bridge`, ...; none for hardware.
    pub kind: Option<String>,
    /// Driver, if ethtool knows it.
    pub driver: Option<String>,
    /// Largest packet that GRO may merge, or that the host lets the NIC segment, in bytes.
    pub largest_merged_bytes: u32,
    /// Receive queues that exist.
    pub rx_queue_count: u32,
    /// Receive offloads, which change packets before capture.
    pub offloads: Offloads,
    /// Counters since the interface exists.
    pub counters: Stats64,
}

/// Receive offloads; `None` if unknown.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[non_exhaustive]
pub struct Offloads {
    /// The NIC removes VLAN tags from received frames and passes them as metadata.
    pub rx_vlan: Option<bool>,
    /// The kernel merges received packets of one connection.
    pub gro: Option<bool>,
    /// The NIC merges received packets, irreversibly.
    pub lro: Option<bool>,
}

/// Received packets that the NIC stamps with its own clock.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum NicStamps {
    /// None of them, as far as the driver tells.
    #[default]
    None,
    /// Those of the Precision Time Protocol.
    Ptp,
    /// All.
    All,
}

/// Netmask of the first IPv4 address of an interface, if it has one.
#[must_use]
pub fn netmask(interface: &str) -> Option<Ipv4Addr> {
    let addresses = nix::ifaddrs::getifaddrs().ok()?;
    let mut own = addresses.filter(|one| one.interface_name == interface);
    own.find_map(|one| Some(one.netmask?.as_sockaddr_in()?.ip()))
}

impl Interface {
    /// Finds an interface by its name or one of its alternative names.
    ///
    /// # Errors
    ///
    /// - [`InterfaceError::NotFound`]: names similar interfaces and all interfaces.
    pub fn find(name: &str) -> Result<Self, InterfaceError> {
        let mut all = netlink::links()?;
        let is_it = |link: &LinkMessage| name_of(link) == name;
        let known_as = |link: &LinkMessage| other_names(link).iter().any(|other| other == name);
        match all.iter().position(is_it).or(all.iter().position(known_as)) {
            Some(at) => Ok(Self::from_link(&all.swap_remove(at))),
            None => {
                let existing: Vec<_> = all.iter().map(name_of).collect();
                Err(InterfaceError::NotFound {
                    meant: crate::meant(name, existing.iter().map(String::as_str)),
                    name: name.to_owned(),
                    existing,
                })
            }
        }
    }

    /// Every interface of this namespace, in the order of their indexes.
    ///
    /// # Errors
    ///
    /// - [`InterfaceError::Kernel`]: the query failed.
    pub fn list() -> Result<Vec<Self>, InterfaceError> {
        Ok(netlink::links()?.iter().map(Self::from_link).collect())
    }

    /// Queries the interface again, by its index.
    ///
    /// # Errors
    ///
    /// - [`InterfaceError::Removed`]: the interface was removed.
    pub fn refresh(&self) -> Result<Self, InterfaceError> {
        match netlink::link(self.index)? {
            Some(link) => Ok(Self::from_link(&link)),
            None => Err(self.removed()),
        }
    }

    /// Fails if the interface is down.
    ///
    /// # Errors
    ///
    /// - [`InterfaceError::Down`]: with the command that sets it up.
    pub fn require_up(&self) -> Result<(), InterfaceError> {
        if self.is_up {
            Ok(())
        } else {
            Err(InterfaceError::Down {
                name: self.name.clone(),
            })
        }
    }

    /// Bytes of the largest frame that fits the MTU, with link header and two VLAN tags.
    #[must_use]
    pub fn largest_frame_bytes(&self) -> u32 {
        const ETHERNET_AND_TWO_TAGS: u32 = 14 + 2 * 4;
        self.mtu_bytes.saturating_add(ETHERNET_AND_TWO_TAGS)
    }

    /// Received packets that the NIC can stamp.
    #[must_use]
    pub fn nic_stamps(&self) -> NicStamps {
        ethtool::nic_stamps(&self.name)
    }

    /// Makes the NIC stamp every received packet, until another program changes that.
    ///
    /// # Errors
    ///
    /// The driver's; `PermissionDenied` without `CAP_NET_ADMIN`.
    pub fn stamp_received(&self) -> io::Result<()> {
        ethtool::stamp_received(&self.name)
    }

    /// Whether packets may arrive that were never on a wire, and so may lack a checksum.
    #[must_use]
    pub fn is_virtual(&self) -> bool {
        /// Drivers of virtual machines: neighbours on the same host leave checksums out.
        const PARAVIRTUAL: [&str; 4] = ["virtio_net", "vmxnet3", "hv_netvsc", "vif"];
        let driver = self.driver.as_deref();
        self.kind.is_some() || driver.is_some_and(|driver| PARAVIRTUAL.contains(&driver))
    }

    /// The error for the removal of this interface.
    #[must_use]
    pub fn removed(&self) -> InterfaceError {
        InterfaceError::Removed {
            name: self.name.clone(),
            index: self.index,
        }
    }

    fn from_link(link: &LinkMessage) -> Self {
        let name = name_of(link);
        let flags = link.header.flags;
        let mut interface = Self {
            index: link.header.index,
            mac: None,
            mtu_bytes: 0,
            is_up: flags.contains(LinkFlags::Up),
            has_carrier: flags.contains(LinkFlags::LowerUp),
            is_loopback: flags.contains(LinkFlags::Loopback),
            link_type: LinkType::from_hardware(link.header.link_layer_type.into()),
            kind: None,
            driver: ethtool::driver(&name),
            largest_merged_bytes: LARGEST_IP_PACKET,
            rx_queue_count: 1,
            offloads: ethtool::offloads(&name),
            counters: Stats64::default(),
            name,
        };
        for attribute in &link.attributes {
            match attribute {
                LinkAttribute::Address(mac) => interface.mac = mac.as_slice().try_into().ok(),
                LinkAttribute::Mtu(mtu) => interface.mtu_bytes = *mtu,
                LinkAttribute::GroMaxSize(bytes) | LinkAttribute::GsoMaxSize(bytes) => {
                    interface.largest_merged_bytes = interface.largest_merged_bytes.max(*bytes);
                }
                LinkAttribute::NumRxQueues(count) => interface.rx_queue_count = *count,
                LinkAttribute::Stats64(stats) => interface.counters = *stats,
                LinkAttribute::LinkInfo(infos) => interface.kind = kind_of(infos),
                _ => {}
            }
        }
        // Netlink has the number of possible queues.
        if let Some(count) = ethtool::receive_queues(&interface.name) {
            interface.rx_queue_count = count;
        }
        interface
    }
}

fn name_of(link: &LinkMessage) -> String {
    let name = link
        .attributes
        .iter()
        .find_map(|attribute| match attribute {
            LinkAttribute::IfName(name) => Some(name.clone()),
            _ => None,
        });
    name.unwrap_or_default()
}

fn other_names(link: &LinkMessage) -> Vec<String> {
    let lists = link
        .attributes
        .iter()
        .filter_map(|attribute| match attribute {
            LinkAttribute::PropList(list) => Some(list),
            _ => None,
        });
    let names = lists.flatten().filter_map(|property| match property {
        Prop::AltIfName(name) => Some(name.clone()),
        _ => None,
    });
    names.collect()
}

fn kind_of(infos: &[LinkInfo]) -> Option<String> {
    infos.iter().find_map(|info| match info {
        LinkInfo::Kind(kind) => Some(kind.to_string()),
        _ => None,
    })
}
