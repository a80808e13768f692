// SPDX-License-Identifier: MIT OR Apache-2.0
//! Interfaces that are removed, moved away, and made again.

use ringtap_net::interface::Interface;
use ringtap_net::netlink::{XdpFeatures, xdp_features};
use ringtap_testkit::{
    LIMIT, Namespace, require_root, require_tool, say_skipped, settle_everywhere,
};
use tempfile::TempDir;

use crate::support::{
    BINARY, MARKED, last_json, lines, marked, number, start_count, wait_until, wait_until_active,
};

/// Exit status when the interface was removed.
const REMOVED: Option<i32> = Some(3);

#[test]
fn a_removed_interface_ends_each_source_with_an_exit_status_of_its_own() {
    require_root!();
    require_tool!("ip");
    for device in ["tap:rx0", "xdp:rx0", "packet:rx0"] {
        let net = Namespace::with_veth("links_removed");
        let count = start_count(&net, device, &[]);
        net.ip(&["link", "delete", "rx0"]);
        let end = count.wait(LIMIT);
        assert_eq!(end.status.code(), REMOVED, "{device}: {}", end.stderr);
        assert!(end.stderr.contains("was removed"), "{}", end.stderr);
        assert_eq!(last_json(&end)["balanced"], true, "{}", end.stdout);
    }
}

#[test]
fn an_interface_that_is_moved_away_is_let_go() {
    require_root!();
    require_tool!("ip");
    for device in ["tap:rx0", "packet:rx0", "xdp:rx0"] {
        let net = Namespace::with_veth("links_moved");
        let other = Namespace::new("links_moved_to");
        let count = start_count(&net, device, &[]);
        net.move_device("rx0", &other);
        let end = count.wait(LIMIT);
        assert_eq!(end.status.code(), REMOVED, "{device}: {}", end.stderr);
        assert!(!other.has_xdp("rx0"), "the program is detached there");
    }
}

#[test]
fn a_hub_and_its_reader_wait_for_an_interface_that_comes_back() {
    require_root!();
    require_tool!("ip", "python3");
    for device in ["tap:rx0?direction=in&wait", "packet:rx0?direction=in&wait"] {
        let net = Namespace::with_veth("links_wait");
        let folder = TempDir::new().expect("a folder can be made");
        let socket = folder.path().join("hub.sock").display().to_string();
        let hub = net.spawn(BINARY, &["hub", "-i", device, "--socket", &socket]);
        hub.wait_for_stderr("hub of", LIMIT);
        let group = format!("hub:all?socket={socket}");
        let count = start_count(&net, &group, &[MARKED]);
        let rounds = 3;
        for round in 1..=rounds {
            net.inject("tx0", &marked(100));
            net.ip(&["link", "delete", "rx0"]);
            let waiting = "rx0 was removed; waiting for an interface of this name";
            wait_until("the removal is reported", || lines(&hub, waiting) == round);
            net.add_veth("tx0", "rx0");
            let back = "rx0 is up again after";
            wait_until("the return is reported", || lines(&hub, back) == round);
            wait_until_active(&net, "tx0");
        }
        net.inject("tx0", &marked(100));
        settle_everywhere();
        count.interrupt();
        let counters = last_json(&count.wait(LIMIT).success());
        assert_eq!(counters["balanced"], true, "{counters}");
        let expected = 100 * (rounds as u64 + 1);
        assert_eq!(number(&counters, "delivered"), expected, "{counters}");
        hub.interrupt();
        let _ended = hub.wait(LIMIT).success();
        assert!(!net.has_xdp("rx0"), "nothing is left behind");
    }
}

#[test]
fn a_tap_that_waits_stays_in_the_driver_and_sees_vlan_tags() {
    require_root!();
    require_tool!("ip", "python3");
    let net = Namespace::with_veth("links_native");
    let tells_vlan = net.enter(|| {
        let interface = Interface::find("rx0").expect("it is there");
        xdp_features(interface.index).is_some_and(XdpFeatures::tells_vlan)
    });
    if !tells_vlan {
        say_skipped("needs a kernel whose veth gives XDP the VLAN tag (6.8)");
        return;
    }
    let folder = TempDir::new().expect("a folder can be made");
    let socket = folder.path().join("hub.sock").display().to_string();
    let device = "tap:rx0?direction=in&wait";
    let hub = net.spawn(BINARY, &["hub", "-i", device, "--socket", &socket]);
    hub.wait_for_stderr("hub of", LIMIT);
    let group = format!("hub:all?socket={socket}");
    let early = start_count(&net, &group, &["vlan", "7"]);
    let send = |packets| {
        wait_until_active(&net, "tx0");
        let tagged = [vec![2_u8; 12], vec![0x81, 0, 0, 7, 0x88, 0xb5], vec![0; 50]].concat();
        net.inject("tx0", &vec![tagged; packets]);
    };
    send(40);
    settle_everywhere();
    net.ip(&["link", "delete", "rx0"]);
    wait_until("the removal is reported", || {
        lines(&hub, "was removed") == 1
    });
    // Its rules are loaded while there is no interface.
    let late = start_count(&net, &group, &["vlan", "7", "and", MARKED]);
    net.add_veth("tx0", "rx0");
    wait_until("the return is reported", || {
        lines(&hub, "is up again after") == 1
    });
    send(60);
    settle_everywhere();
    for (count, expected) in [(early, 100), (late, 60)] {
        count.interrupt();
        let counters = last_json(&count.wait(LIMIT).success());
        assert_eq!(number(&counters, "delivered"), expected, "{counters}");
    }
    let status = ["status", "--json", "--socket", &socket];
    let status = net.run(BINARY, &status).success().stdout;
    assert!(status.contains("native XDP"), "{status}");
    hub.interrupt();
    let end = hub.wait(LIMIT).success();
    assert!(!end.stderr.contains("falling back"), "{}", end.stderr);
}
