// SPDX-License-Identifier: MIT OR Apache-2.0
//! A guest that reads the frames of an AF_XDP source where the kernel wrote them.

use std::time::Instant;

use ringtap_testkit::{GUEST_LIMIT, require_root};

use crate::kit::{GuestAndHub, NOBODY, boot_machine};

#[test]
fn a_guest_reads_the_frames_of_af_xdp_where_the_kernel_wrote_them() {
    require_root!();
    let plan = format!(
        "{NOBODY} ringtap count -q --json -i host:all >/all & all=$!
        {NOBODY} ringtap count -q --json -i host:all udp port 53 >/dns & dns=$!
        gate 1001 & last=$!
        readers 3
        echo GUEST ready
        wait $last
        kill -INT $all $dns
        wait $all $dns
        echo \"GUEST all $(cat /all)\"
        echo \"GUEST dns $(cat /dns)\""
    );
    let Some(machine) = boot_machine(&plan, &[], "") else {
        return;
    };
    // 32 chunks, a power of two of bytes.
    let device = "xdp:rx0?pool=16MiB";
    let host = GuestAndHub::of_device("guest_in_place", machine, device, &["all"]);
    let vm = host.attach_in_place();
    host.wait_for("GUEST ready");
    host.send(53, 200);
    host.send(99, 100);
    let reader = host.host_reader("all");
    host.wait_for_readers(2);
    host.send(53, 50);
    host.send(7, 150);
    let deadline = Instant::now() + GUEST_LIMIT;
    let list = loop {
        let list = host.vm(&["list", "--json"]).wait(GUEST_LIMIT).success();
        let list: serde_json::Value = serde_json::from_str(&list.stdout).unwrap();
        if list["groups"][0]["counters"]["in_place"] == 500 {
            break list;
        }
        assert!(Instant::now() < deadline, "{list}");
    };
    println!("{list}");
    assert_eq!(list["groups"][0]["counters"]["copied"], 0);
    let devices = list["devices"].as_array().unwrap();
    let source = devices.iter().find(|one| one["device"] == "source");
    let source = source.unwrap_or_else(|| panic!("{list}"));
    assert_eq!(source["bytes"], 16 << 20);
    assert!(source["mapping"].is_string(), "{source}");
    host.send(1001, 1);
    let delivered = |report: &serde_json::Value| report["delivered"].as_u64();
    assert_eq!(delivered(&host.said("GUEST all ")), Some(501));
    assert_eq!(delivered(&host.said("GUEST dns ")), Some(250));
    reader.interrupt();
    let counted = reader.wait(GUEST_LIMIT).success().stdout;
    let counted: serde_json::Value = serde_json::from_str(counted.trim()).unwrap();
    assert_eq!(delivered(&counted), Some(201));
    host.finish(vm);
}
