// SPDX-License-Identifier: MIT OR Apache-2.0
//! Interfaces that do not fit together, of kinds that no software device can imitate.

use super::*;
use ringtap_filter::LinkType;
use ringtap_net::interface::{Offloads, Stats64};

fn interface(name: &str) -> Interface {
    Interface {
        index: 1,
        name: name.to_owned(),
        mac: None,
        mtu_bytes: 1500,
        is_up: true,
        has_carrier: true,
        is_loopback: false,
        link_type: LinkType::ETHERNET,
        kind: None,
        driver: None,
        largest_merged_bytes: 65_536,
        rx_queue_count: 1,
        offloads: Offloads::default(),
        counters: Stats64::default(),
    }
}

#[test]
fn a_nic_that_merges_packets_is_refused_with_the_command_that_helps() {
    for (lro, is_refused) in [(Some(true), true), (Some(false), false), (None, false)] {
        let mut other = interface("eth1");
        other.offloads.lro = lro;
        let refused = check(&[interface("eth0"), other]).err();
        assert_eq!(refused.is_some(), is_refused, "{lro:?}");
        if let Some(error) = refused {
            let says = error.to_string();
            assert!(says.contains("`ethtool -K eth1 lro off`"), "{says}");
        }
    }
}

#[test]
fn interfaces_of_different_mtu_are_refused_whichever_comes_first() {
    let mut small = interface("eth1");
    small.mtu_bytes = 1400;
    for both in [
        [interface("eth0"), small.clone()],
        [small, interface("eth0")],
    ] {
        let says = check(&both).expect_err("they differ").to_string();
        assert!(says.contains("`ip link set eth1 mtu 1500`"), "{says}");
    }
}
