// SPDX-License-Identifier: MIT OR Apache-2.0
//! Arguments of `ringtap sim`, and buddy groups in virtual time.

use super::*;

#[test]
fn rates_become_times_for_a_packet() {
    assert_eq!(time_ps("max").unwrap(), 0);
    assert_eq!(time_ps("38844pps").unwrap(), 25_744_001);
    assert_eq!(time_ps("1Mpps").unwrap(), 1_000_000);
    for bad in ["1Gbps", "x", "fast", "-1pps", "300x"] {
        assert!(time_ps(bad).is_err(), "{bad}");
    }
}

/// Four queues, of which one gets 70 % of what is 95 % of all that four readers can do.
fn skewed(offload_percent: Option<u8>) -> (SimOutcome, BuddyCounts) {
    let device = "sim:190000pps?queues=4&skew=7:1:1:1&flows=64&burst=400000&chunks=100&packets=64";
    let device: DeviceSpec = device.parse().unwrap();
    let experiment = Experiment {
        nic: SimOptions::from_device(&device).unwrap(),
        capture_ps: 0,
        service_ps: PS_PER_SECOND / 50_000,
        counts_disorder: true,
    };
    let (outcome, buddies) = run_with_buddies(&experiment, offload_percent).unwrap();
    assert!(outcome.counters().balance().holds(), "{outcome:?}");
    (outcome, buddies)
}

#[test]
fn advanced_mode_carries_what_basic_mode_loses() {
    let (basic, buddies) = skewed(None);
    assert!(basic.loss() > 0.3, "{}", basic.loss());
    assert_eq!(buddies.offloaded_chunks, 0);
    assert_eq!(basic.disordered_packets, 0);
    for percent in [0, 20, 60, 80] {
        let (advanced, buddies) = skewed(Some(percent));
        assert_eq!(advanced.counters().dropped.total(), 0, "T = {percent} %");
        assert!(buddies.offloaded_chunks > 0, "T = {percent} %");
        let share = advanced.readers.iter().map(|reader| reader.delivered);
        assert!(share.min().unwrap() > 70_000, "{advanced:?}");
    }
}

#[test]
fn broken_order_is_counted_and_never_too_low() {
    let (advanced, buddies) = skewed(Some(20));
    assert!(advanced.disordered_packets > 0);
    assert!(
        buddies.disordered_packets >= advanced.disordered_packets,
        "{advanced:?} {buddies:?}"
    );
}
