// SPDX-License-Identifier: MIT OR Apache-2.0
//! Runs the conformance suite on every hook.

use ringtap_capture::tap::{Mode, TapOptions};
use ringtap_pool::conformance::{Harness, PoolSize, UnderTraffic, check};
use ringtap_pool::source::Source;
use ringtap_testkit::{Namespace, require_root, require_tool, with};

use crate::support::{attach, options};

struct Taps {
    test: &'static str,
    mode: Mode,
    nets: Vec<Namespace>,
}

impl Harness for Taps {
    fn capture(&mut self, frames: &[Vec<u8>], size: PoolSize) -> Source {
        let net = Namespace::with_veth(self.test);
        let tiny = with(options("rx0"), |it| {
            it.on.pool.bytes = Some(1);
            it.on.pool.chunk_bytes = Some(4096);
        });
        let options = with(
            match size {
                PoolSize::Ample => options("rx0"),
                PoolSize::Tiny => smallest(tiny),
            },
            |it| it.on.mode = self.mode,
        );
        let tap = attach(&net, &options);
        net.inject("tx0", frames);
        self.nets.push(net);
        tap.into()
    }

    fn capture_under_traffic(&mut self, frames: &[Vec<u8>], suite: UnderTraffic<'_>) {
        let net = Namespace::with_veth(self.test);
        let source = attach(&net, &with(options("rx0"), |it| it.on.mode = self.mode));
        net.inject_during("tx0", frames, |all_offered| {
            suite(source.into(), all_offered)
        });
    }

    fn lossless(&self) -> bool {
        // A veth drops packets that its queue cannot hold when its CPU is late; the sender counts them.
        let lost = |net: &Namespace| net.counter("tx0", "tx_dropped") > 0;
        !self.nets.last().is_some_and(lost)
    }
}

/// The smallest pool that is accepted.
fn smallest(mut options: TapOptions) -> TapOptions {
    let cpus = u64::try_from(std::thread::available_parallelism().map_or(1, usize::from));
    options.on.pool.bytes = Some((2 * cpus.unwrap() + 1) * 4096);
    options
}

fn conforms(test: &'static str, mode: Mode) {
    let nets = Vec::new();
    check(&mut Taps { test, mode, nets });
}

#[test]
fn native_xdp_keeps_every_rule() {
    require_root!();
    require_tool!("ip", "python3");
    conforms("native", Mode::Native);
}

#[test]
fn generic_xdp_keeps_every_rule() {
    require_root!();
    require_tool!("ip", "python3");
    conforms("generic", Mode::Generic);
}

#[test]
fn traffic_control_keeps_every_rule() {
    require_root!();
    require_tool!("ip", "python3");
    conforms("tc", Mode::Tc);
}
