// SPDX-License-Identifier: MIT OR Apache-2.0
//! Runs the conformance suite in native and in generic mode.

use ringtap_device::Mode;
use ringtap_pool::conformance::{Harness, PoolSize, UnderTraffic, check};
use ringtap_pool::source::Source;
use ringtap_testkit::{Namespace, require_root, require_tool, with};

use crate::support::{open, options};

struct Sockets {
    test: &'static str,
    mode: Mode,
    nets: Vec<Namespace>,
}

impl Harness for Sockets {
    fn capture(&mut self, frames: &[Vec<u8>], size: PoolSize) -> Source {
        let net = Namespace::with_veth(self.test);
        let options = match size {
            PoolSize::Ample => with(options("rx0"), |it| it.on.pool.bytes = Some(32 << 20)),
            PoolSize::Tiny => with(options("rx0"), |it| {
                it.on.pool.bytes = Some(1);
                it.on.pool.chunk_bytes = Some(4096);
            }),
        };
        let source = open(&net, &with(options, |it| it.on.mode = self.mode));
        net.inject("tx0", frames);
        self.nets.push(net);
        source
    }

    fn capture_under_traffic(&mut self, frames: &[Vec<u8>], suite: UnderTraffic<'_>) {
        let net = Namespace::with_veth(self.test);
        let source = open(
            &net,
            &with(options("rx0"), |it| {
                it.on.mode = self.mode;
                it.on.pool.bytes = Some(32 << 20);
            }),
        );
        net.inject_during("tx0", frames, |all_offered| suite(source, all_offered));
    }

    fn lossless(&self) -> bool {
        // A veth drops packets that its queue cannot hold when its CPU is late; the sender counts them.
        let lost = |net: &Namespace| net.counter("tx0", "tx_dropped") > 0;
        !self.nets.last().is_some_and(lost)
    }
}

fn conforms(test: &'static str, mode: Mode) {
    let nets = Vec::new();
    check(&mut Sockets { test, mode, nets });
}

#[test]
fn af_xdp_behind_native_xdp_keeps_every_rule() {
    require_root!();
    require_tool!("ip", "python3");
    conforms("xsk-native", Mode::Native);
}

#[test]
fn af_xdp_behind_generic_xdp_keeps_every_rule() {
    require_root!();
    require_tool!("ip", "python3");
    conforms("xsk-generic", Mode::Generic);
}
