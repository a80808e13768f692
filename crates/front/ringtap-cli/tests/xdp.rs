// SPDX-License-Identifier: MIT OR Apache-2.0
//! `ringtap count -i xdp:...` as a user runs it; needs root.

use ringtap_testkit::{LIMIT, Namespace, require_root, require_tool};
use rustix::process::Signal;

const BINARY: &str = env!("CARGO_BIN_EXE_ringtap");

#[test]
fn a_killed_af_xdp_capture_leaves_nothing_and_the_next_one_starts() {
    require_root!();
    require_tool!("ip", "python3");
    let net = Namespace::with_veth("xsk-killed");
    let args = [
        "count",
        "-i",
        "xdp:rx0?pool=8MiB",
        "--json",
        "--interval",
        "0.1",
    ];
    for signal in [Signal::KILL, Signal::INT] {
        let count = net.spawn(BINARY, &args);
        count.wait_for_stdout("offered", LIMIT);
        assert!(net.has_xdp("rx0"));
        net.inject("tx0", &vec![vec![0xff; 64]; 20]);
        count.signal(signal);
        let end = count.wait(LIMIT);
        assert!(!net.has_xdp("rx0"), "{signal:?}");
        if signal == Signal::INT {
            let last = end.stdout.lines().last().expect("counters");
            let counters: serde_json::Value = serde_json::from_str(last).expect("JSON");
            assert_eq!(
                (&counters["delivered"], &counters["balanced"]),
                (&20.into(), &true.into())
            );
        }
    }
}
