// SPDX-License-Identifier: MIT OR Apache-2.0
//! Facts and watching of interfaces, in private network namespaces.

use std::time::Duration;

use ringtap_net::interface::{Interface, InterfaceChange, InterfaceError, Promiscuous, Watch};
use ringtap_testkit::{LIMIT, Namespace, require_root};

const SOON: Option<Duration> = Some(LIMIT);
const AT_ONCE: Option<Duration> = Some(Duration::ZERO);

#[test]
fn facts_are_those_that_ip_shows() {
    require_root!();
    let net = Namespace::new("facts");
    let veth = [
        "link",
        "add",
        "tx0",
        "numrxqueues",
        "3",
        "mtu",
        "9000",
        "type",
        "veth",
    ];
    net.ip(&[&veth[..], &["peer", "name", "rx0"]].concat());
    net.ip(&["link", "property", "add", "dev", "tx0", "altname", "uplink"]);
    let (tx, lo) = net.enter(|| (Interface::find("tx0"), Interface::find("lo")));
    let (tx, lo) = (tx.unwrap(), lo.unwrap());
    assert_eq!((tx.mtu_bytes, tx.rx_queue_count), (9000, 3));
    assert_eq!(tx.kind.as_deref(), Some("veth"));
    assert_eq!(tx.driver.as_deref(), Some("veth"));
    assert!(!tx.is_up && !tx.is_loopback);
    assert!(lo.is_up && lo.is_loopback && lo.kind.is_none());
    assert_eq!(
        net.enter(|| Interface::find("uplink")).unwrap().index,
        tx.index
    );
    let names: Vec<_> = net.enter(Interface::list).unwrap();
    let names: Vec<_> = names.into_iter().map(|one| one.name).collect();
    assert_eq!(names, ["lo", "rx0", "tx0"]);
}

#[test]
fn an_offload_that_is_switched_off_is_seen() {
    require_root!();
    ringtap_testkit::require_tool!("ethtool");
    let net = Namespace::with_veth("offloads");
    for (setting, expected) in [("off", Some(false)), ("on", Some(true))] {
        let switched = net.run("ethtool", &["-K", "rx0", "gro", setting]);
        drop(switched.success());
        let found = net.enter(|| Interface::find("rx0")).unwrap();
        assert_eq!(found.offloads.gro, expected);
    }
}

#[test]
fn a_wrong_name_is_answered_with_near_ones_and_all_others() {
    require_root!();
    let net = Namespace::with_veth("near_names");
    let error = net.enter(|| Interface::find("xr0")).unwrap_err();
    let InterfaceError::NotFound {
        meant, existing, ..
    } = &error
    else {
        panic!("{error}");
    };
    assert!(meant.contains("\"rx0\""), "{meant}");
    assert_eq!(existing, &["lo", "rx0", "tx0"]);
    let error = net.enter(|| Interface::find("rx00")).unwrap_err();
    assert_eq!(
        error.to_string(),
        "no interface \"rx00\" here; did you mean \"rx0\"? (there are: lo, rx0, tx0)"
    );
}

#[test]
fn an_interface_that_is_down_is_refused_with_the_command_that_helps() {
    require_root!();
    let net = Namespace::with_veth("down");
    net.ip(&["link", "set", "rx0", "down"]);
    let error = net.enter(|| Interface::find("rx0")).unwrap().require_up();
    assert_eq!(
        error.unwrap_err().to_string(),
        "interface rx0 is down: set it up with `ip link set rx0 up`"
    );
}

#[test]
fn counters_count_what_was_sent() {
    require_root!();
    let net = Namespace::with_veth("counters");
    let before = net.enter(|| Interface::find("rx0")).unwrap();
    net.inject("tx0", &vec![vec![0xff; 100]; 7]);
    let now = net.enter(|| before.refresh()).unwrap().counters;
    assert_eq!(now.rx_packets - before.counters.rx_packets, 7);
    assert_eq!(now.rx_bytes - before.counters.rx_bytes, 700);
    assert_eq!((now.rx_missed_errors, now.rx_fifo_errors), (0, 0));
}

#[test]
fn a_watch_tells_down_up_and_removed_of_its_interface_only() {
    require_root!();
    let net = Namespace::with_veth("watch");
    net.add_veth("other0", "other1");
    let watched = net.enter(|| Interface::find("rx0")).unwrap();
    let mut watch = net.enter(|| Watch::new(&watched)).unwrap();
    assert_eq!(watch.wait(AT_ONCE).unwrap(), None);
    net.ip(&["link", "set", "other0", "down"]);
    assert_eq!(watch.wait(Some(Duration::from_millis(50))).unwrap(), None);
    net.ip(&["link", "set", "rx0", "down"]);
    assert_eq!(watch.wait(SOON).unwrap(), Some(InterfaceChange::Down));
    net.ip(&["link", "set", "rx0", "up"]);
    assert_eq!(watch.wait(SOON).unwrap(), Some(InterfaceChange::Up));
    net.ip(&["link", "set", "rx0", "name", "renamed"]);
    net.ip(&["link", "delete", "tx0"]);
    let mut changes = Vec::new();
    while changes.last() != Some(&InterfaceChange::Removed) {
        changes.push(watch.wait(SOON).unwrap().expect("the removal is told"));
    }
    assert_eq!(watch.wait(AT_ONCE).unwrap(), None);
    let gone = net.enter(|| watched.refresh()).unwrap_err();
    assert!(matches!(gone, InterfaceError::Removed { .. }), "{gone}");
}

#[test]
fn a_watch_tells_first_what_changed_before_it_began() {
    require_root!();
    let net = Namespace::with_veth("watch_late");
    let found = net.enter(|| (Interface::find("rx0"), Interface::find("tx0")));
    let (down, removed) = (found.0.unwrap(), found.1.unwrap());
    net.ip(&["link", "set", "rx0", "down"]);
    let mut watch = net.enter(|| Watch::new(&down)).unwrap();
    assert_eq!(watch.take().unwrap(), Some(InterfaceChange::Down));
    net.ip(&["link", "delete", "rx0"]);
    let mut watch = net.enter(|| Watch::new(&removed)).unwrap();
    assert_eq!(watch.take().unwrap(), Some(InterfaceChange::Removed));
}

#[test]
fn leaving_a_bridge_is_not_a_removal() {
    require_root!();
    let net = Namespace::with_veth("watch_bridge");
    net.ip(&["link", "add", "br0", "type", "bridge"]);
    net.ip(&["link", "set", "rx0", "master", "br0"]);
    let port = net.enter(|| Interface::find("rx0")).unwrap();
    let mut watch = net.enter(|| Watch::new(&port)).unwrap();
    net.ip(&["link", "set", "rx0", "nomaster"]);
    assert_eq!(watch.wait(Some(Duration::from_millis(100))).unwrap(), None);
}

#[test]
fn moving_an_interface_away_is_a_removal() {
    require_root!();
    let (net, other) = (
        Namespace::with_veth("watch_from"),
        Namespace::new("watch_to"),
    );
    let moved = net.enter(|| Interface::find("rx0")).unwrap();
    let mut watch = net.enter(|| Watch::new(&moved)).unwrap();
    net.move_device("rx0", &other);
    let mut last = None;
    while last != Some(InterfaceChange::Removed) {
        last = watch.wait(SOON).unwrap();
        assert!(last.is_some(), "the removal is told");
    }
}

#[test]
fn promiscuous_mode_ends_with_its_owner() {
    require_root!();
    let net = Namespace::with_veth("promiscuous");
    let index = net.enter(|| Interface::find("rx0")).unwrap().index;
    let is_on = || {
        net.ip(&["-d", "link", "show", "rx0"])
            .contains("promiscuity 1")
    };
    assert!(!is_on());
    let owner = net.enter(|| Promiscuous::enable(index)).unwrap();
    assert!(is_on());
    drop(owner);
    assert!(!is_on());
}
