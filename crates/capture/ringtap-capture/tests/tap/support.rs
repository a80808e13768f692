// SPDX-License-Identifier: MIT OR Apache-2.0
//! Helpers of the tap tests: attaching inside a namespace, tags, traffic.

use libbpf_rs::libbpf_sys;
use ringtap_capture::CaptureError;
use ringtap_capture::tap::{Tap, TapOptions};
use ringtap_testkit::{Namespace, settle, with};

pub(crate) use crate::captured::{Captured, SOON, finish, frame, own};
pub(crate) use crate::tagging::{Tagging, index, tagged};

/// Small enough for many tests at once.
pub(crate) const SMALL_POOL: u64 = 8 << 20;

/// Captures all arriving packets of `interface` into a small pool.
pub(crate) fn options(interface: &str) -> TapOptions {
    with(TapOptions::new(interface), |it| {
        it.on.pool.bytes = Some(SMALL_POOL)
    })
}

/// Attaches inside `net`.
pub(crate) fn try_attach(net: &Namespace, options: &TapOptions) -> Result<Tap, CaptureError> {
    net.enter(|| Tap::attach(options))
}

/// Attaches inside `net`, or fails the test.
pub(crate) fn attach(net: &Namespace, options: &TapOptions) -> Tap {
    try_attach(net, options).unwrap_or_else(|error| panic!("{error}"))
}

/// Runs a Python script inside the namespace, on one CPU; fails the test if the script fails.
pub(crate) fn python(net: &Namespace, cpu: &str, script: &str) {
    let end = net.run("taskset", &["-c", cpu, "python3", "-c", script]);
    assert!(end.status.success(), "{}", end.stderr);
    settle(cpu.parse().expect("a CPU's number"));
}

/// A script that sends `count` frames of the tests' type out of `interface`.
///
/// Uses PACKET_QDISC_BYPASS, so that the CPU determines the queue.
pub(crate) fn sending(interface: &str, count: u32) -> String {
    format!(
        "import socket\n\
         s = socket.socket(socket.AF_PACKET, socket.SOCK_RAW)\n\
         s.setsockopt(263, 20, 1)\n\
         s.bind(('{interface}', 0))\n\
         head = bytes([2,0,0,0,0,2, 2,0,0,0,0,1, 0x88,0xb5])\n\
         for n in range({count}):\n    s.send(head + n.to_bytes(4, 'big') + bytes(42))\n"
    )
}

/// Number of programs attached to a traffic control hook.
pub(crate) fn tcx_programs(net: &Namespace, interface: &str) -> u32 {
    let index = index(net, interface);
    let count = |hook| {
        let mut options = libbpf_sys::bpf_prog_query_opts {
            sz: size_of::<libbpf_sys::bpf_prog_query_opts>()
                .try_into()
                .unwrap(),
            ..Default::default()
        };
        // SAFETY: the options live during the call; no room for ids is offered.
        let error = unsafe { libbpf_sys::bpf_prog_query_opts(index, hook, &raw mut options) };
        assert_eq!(error, 0, "asking for tcx programs");
        // SAFETY: the kernel filled this member in; the other name of it is `prog_cnt`.
        unsafe { options.__bindgen_anon_1.count }
    };
    net.enter(|| count(libbpf_sys::BPF_TCX_INGRESS) + count(libbpf_sys::BPF_TCX_EGRESS))
}

/// The packet of which these bytes were captured; the tests give cut packets a length of their own.
pub(crate) fn whole<'a>(packet: &'a Captured, sent: &'a [Vec<u8>]) -> &'a [u8] {
    let length = usize::try_from(packet.slot.wire_length).unwrap();
    let mut of_length = sent.iter().filter(|packet| packet.len() == length);
    match of_length.next() {
        Some(only) if packet.data.len() < length => {
            assert!(only.starts_with(&packet.data) && of_length.next().is_none());
            only
        }
        _ => &packet.data,
    }
}
