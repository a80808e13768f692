// SPDX-License-Identifier: MIT OR Apache-2.0
//! Rounding, and time stamps of both writers that correct them when TAI minus UTC changes.

use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use ringtap_pool::distributor::{Distributor, ReaderOptions};
use ringtap_pool::reader::{NextBatch, Reader};
use ringtap_pool::source::Source;
use ringtap_pool::wake::NoSignal;
use ringtap_testkit::{Namespace, require_root, require_tool, with};

use super::*;
use crate::tap::{Tap, TapOptions};
use crate::xdp::{self, XdpOptions};

/// The difference that tests begin with: that of 2017 and later.
const BEGIN_NS: i64 = 37 * SECOND_NS;

/// Longest wait for a time stamp that follows. The monitors read the difference every second.
const FOLLOWS_WITHIN: Duration = Duration::from_secs(30);

#[test]
fn a_difference_is_rounded_to_whole_seconds() {
    assert_eq!(round(37 * SECOND_NS + 90_000_000), 37 * SECOND_NS);
    assert_eq!(round(20), 0);
    assert_eq!(round(-20), 0);
}

/// The difference is the process's: one test at a time changes it.
static ONE_AT_A_TIME: std::sync::Mutex<()> = std::sync::Mutex::new(());

fn wall_ns() -> i64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap();
    since.as_nanos().try_into().unwrap()
}

/// The times of the packets that wait.
fn times(distributor: &mut Distributor, reader: &mut Reader) -> Vec<i64> {
    let mut times = Vec::new();
    while distributor.step().unwrap() {}
    while let NextBatch::Batch(batch) = reader.try_next().unwrap() {
        for packet in batch.packets() {
            times.push(packet.unwrap().slot().time_ns.try_into().unwrap());
        }
    }
    times
}

/// Sends packets until one has the time of this difference. The clock itself does not have it: it leads by
/// what the test injected.
fn follows(
    net: &Namespace,
    (distributor, reader): (&mut Distributor, &mut Reader),
    injected_ns: i64,
) {
    let deadline = Instant::now() + FOLLOWS_WITHIN;
    loop {
        let before = wall_ns() - injected_ns;
        net.inject("tx0", &[vec![0xff; 60]]);
        let found = times(distributor, reader);
        let after = wall_ns() - injected_ns;
        if found.iter().any(|time| (before..=after).contains(time)) {
            return;
        }
        assert!(Instant::now() < deadline, "{before}..={after}: {found:?}");
    }
}

/// A leap second, and one that is taken back, while a source runs.
fn leaps<S: Source + Send>(name: &str, open: impl FnOnce() -> S + Send) {
    let _turn = ONE_AT_A_TIME.lock();
    let net = Namespace::with_veth(name);
    INJECTED_NS.store(BEGIN_NS, Relaxed);
    let mut source = net.enter(open);
    let mut distributor = Distributor::new(source.pool(), source.take_lanes(), Arc::new(NoSignal));
    let (_, mut reader) = distributor.add_reader(&ReaderOptions::default()).unwrap();
    for injected_ns in [BEGIN_NS, BEGIN_NS + SECOND_NS, BEGIN_NS] {
        INJECTED_NS.store(injected_ns, Relaxed);
        follows(&net, (&mut distributor, &mut reader), injected_ns);
    }
    source.stop();
    INJECTED_NS.store(0, Relaxed);
}

#[test]
fn the_taps_time_stamps_follow_a_leap_second() {
    require_root!();
    require_tool!("ip", "python3");
    let options = with(TapOptions::new("rx0"), |it| {
        it.on.pool.bytes = Some(8 << 20)
    });
    leaps("leap-tap", || Tap::attach(&options).unwrap());
}

#[test]
fn time_stamps_of_af_xdp_follow_a_leap_second() {
    require_root!();
    require_tool!("ip", "python3");
    let options = with(XdpOptions::new("rx0"), |it| {
        it.on.pool.bytes = Some(8 << 20)
    });
    leaps("leap-xdp", || xdp::open(&options).unwrap());
}
