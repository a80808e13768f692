// SPDX-License-Identifier: MIT OR Apache-2.0
//! Two machines at once, with two processors each, and a reader on the host.

use ringtap_testkit::{GUEST_LIMIT, require_root};

use crate::kit::{GuestAndHub, NOBODY, boot_machine, detach, said_by};

/// Waits until each group has two readers and a packet to ports 1001 and 1002 has come, then ends.
const FIRST: &str = r#"
readers_of() {
    until case "$(ringtap guest --status 2>&1)" in *": 2 readers"*$1*) true ;; *) false ;; esac
    do sleep 0.2; done
}
gate 1001 & all=$!
ringtap count -q -c 1 -i host:dns udp port 1002 >/dev/null & dns=$!
readers_of ": 2 readers"
echo GUEST ready
wait $all $dns
kill -INT $ports $names
wait $ports $names
echo "GUEST ports $(cat /ports)"
echo "GUEST names $(cat /names)"
"#;

const SECOND: &str = r#"
gate 1001 & all=$!
readers 2
ringtap count -i host:dns || echo GUEST has no dns
echo GUEST ready
wait $all
kill -INT $ports
wait $ports
echo "GUEST ports $(cat /ports)"
"#;

#[test]
fn two_guests_get_exactly_the_packets_of_their_groups_and_filters() {
    require_root!();
    let ports = |port: u16| {
        format!("{NOBODY} ringtap count -q --json -i host:all udp port {port} >/ports & ports=$!\n")
    };
    let names = format!(
        "until [ -S /run/ringtap/host/dns.sock ]; do sleep 0.1; done
        {NOBODY} ringtap count -q --json -i host:dns >/names & names=$!"
    );
    let Some(first) = boot_machine(&format!("{}{names}{FIRST}", ports(99)), &[], "") else {
        return;
    };
    let second = boot_machine(&format!("{}{SECOND}", ports(7)), &[], "").unwrap();
    let groups = ["all", "dns:udp port 53 or udp port 1002"];
    let host = GuestAndHub::with("two_guests", first, &groups);
    let vms = [
        host.attach_as("vm1", &host.machine, &["all", "dns"]),
        host.attach_as("vm2", &second, &["all"]),
    ];
    let reader = host.host_reader("all");
    host.wait_for("GUEST ready");
    second.qemu.wait_for_stdout("GUEST ready", GUEST_LIMIT);
    assert!(second.qemu.stdout().contains("GUEST has no dns"));
    // Two groups of one guest, one of the other, and the host's reader.
    host.wait_for_readers(4);
    for (port, packets) in [(53, 300), (99, 200), (7, 100), (1001, 1), (1002, 1)] {
        host.send(port, packets);
    }
    let delivered = |report: serde_json::Value| report["delivered"].as_u64().unwrap();
    assert_eq!(delivered(host.said("GUEST ports ")), 200);
    assert_eq!(delivered(host.said("GUEST names ")), 301);
    assert_eq!(delivered(said_by(&second, "GUEST ports ")), 100);
    reader.interrupt();
    let counted = reader.wait(GUEST_LIMIT).success().stdout;
    let counted: serde_json::Value = serde_json::from_str(counted.trim()).unwrap();
    assert_eq!(delivered(counted), 602);
    for vm in vms {
        let _detached = detach(vm);
    }
    host.finish_hub();
}
