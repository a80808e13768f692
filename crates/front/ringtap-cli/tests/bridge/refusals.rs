// SPDX-License-Identifier: MIT OR Apache-2.0
//! What cannot be bridged, and what a bridge leaves behind: nothing.

use ringtap_testkit::{Namespace, require_root, require_tool};
use rustix::process::Signal;

use crate::support::{BINARY, Ends, LIMIT, Wire, counters};

fn refused(net: &Namespace, args: &[&str]) -> String {
    let end = net.run(BINARY, args);
    assert!(!end.status.success(), "{args:?} is refused");
    assert!(
        !net.has_xdp("a1") && !net.has_xdp("b1"),
        "nothing is attached"
    );
    end.stderr
}

#[test]
fn what_cannot_be_bridged_is_refused_with_what_to_do() {
    require_root!();
    require_tool!("ip", "ethtool");
    let wire = Wire::new("bridge-no", 1500, Ends::Napi);
    let net = &wire.middle;
    let end = net.run(BINARY, &["inline", "-i", "hub:ips?private"]);
    assert_eq!(end.status.code(), Some(2), "{}", end.stderr);
    assert!(
        end.stderr.contains("no option but socket"),
        "{}",
        end.stderr
    );
    let end = net.run(BINARY, &["bridge", "a1", "a1"]);
    assert_eq!(end.status.code(), Some(2), "{}", end.stderr);
    let text = refused(net, &["bridge", "a1", "a1"]);
    assert!(text.contains("a bridge of a1 with itself"), "{text}");
    let text = refused(net, &["bridge", "a1", "b2"]);
    assert!(
        text.contains("no interface \"b2\"") && text.contains("b1"),
        "{text}"
    );
    let text = refused(net, &["bridge", "a1", "lo"]);
    assert!(text.contains("lo cannot be bridged"), "{text}");
    let text = refused(net, &["bridge", "a1", "b1", "--pass", "no such filter"]);
    assert!(text.contains("bad filter"), "{text}");
    net.ip(&["link", "set", "b1", "mtu", "1400"]);
    let text = refused(net, &["bridge", "a1", "b1"]);
    assert!(
        text.contains(
            "frames of a1 (MTU 1500) would not fit b1 (MTU 1400): `ip link set b1 mtu 1500`"
        ),
        "{text}"
    );
    net.ip(&["link", "set", "b1", "mtu", "1500", "down"]);
    let text = refused(net, &["bridge", "a1", "b1"]);
    assert!(text.contains("b1 is down"), "{text}");
}

#[test]
fn without_rights_it_says_which_are_missing() {
    require_root!();
    require_tool!("ip", "ethtool", "setpriv");
    let wire = Wire::new("bridge-rights", 1500, Ends::Napi);
    let program = std::env::temp_dir().join(format!("ringtap-rights-{}", std::process::id()));
    std::fs::copy(BINARY, &program).expect("a copy that nobody in particular may run");
    let file = program.display().to_string();
    for mode in ["auto", "tc"] {
        let drop = ["--reuid", "65534", "--clear-groups", &file];
        let args = [&drop[..], &["bridge", "a1", "b1", "--mode", mode]].concat();
        let end = wire.middle.run("setpriv", &args);
        assert_eq!(end.status.code(), Some(1), "{mode}: {}", end.stderr);
        assert!(
            end.stderr.contains("needs CAP_BPF"),
            "{mode}: {}",
            end.stderr
        );
        assert!(!end.stderr.contains("libbpf"), "{mode}: {}", end.stderr);
    }
    std::fs::remove_file(program).expect("the copy");
}

#[test]
fn native_mode_is_refused_where_redirected_packets_would_be_lost() {
    require_root!();
    require_tool!("ip");
    let wire = Wire::new("bridge-native", 1500, Ends::Plain);
    let text = refused(&wire.middle, &["bridge", "a1", "b1", "--mode", "native"]);
    assert!(
        text.contains("takes no packets from XDP") && text.contains("gro on"),
        "{text}"
    );
}

#[test]
fn a_killed_bridge_leaves_nothing() {
    require_root!();
    require_tool!("ip", "ethtool");
    let wire = Wire::new("bridge-kill", 1500, Ends::Napi);
    for mode in ["native", "tc"] {
        let bridge = wire.bridge(&["--mode", mode]);
        let xdp = ["a1", "b1"].map(|end| wire.middle.has_xdp(end));
        assert_eq!(xdp, [mode != "tc"; 2], "{mode}");
        bridge.signal(Signal::KILL);
        let _killed = bridge.wait(LIMIT);
        assert!(!wire.middle.has_xdp("a1") && !wire.middle.has_xdp("b1"));
        if mode == "tc" {
            assert_eq!(wire.ping_in_vain(&wire.left, "10.9.0.2", 1, 56), 0);
        }
    }
    // Nothing stands in the next one's way.
    let next = wire.bridge(&["--mode", "native"]);
    assert!(wire.answers());
    let _counters = counters(next);
}

#[test]
fn a_side_that_goes_away_ends_the_bridge_with_the_reason() {
    require_root!();
    require_tool!("ip", "ethtool");
    let wire = Wire::new("bridge-gone", 1500, Ends::Napi);
    let bridge = wire.bridge(&["--interval", "0.1"]);
    wire.middle.ip(&["link", "delete", "b1"]);
    let end = bridge.wait(LIMIT);
    assert_eq!(end.status.code(), Some(3), "{}", end.stderr);
    assert!(
        end.stderr.contains("b1") && end.stderr.contains("was removed"),
        "{}",
        end.stderr
    );
    assert!(!wire.middle.has_xdp("a1"), "nothing is left behind");
}
