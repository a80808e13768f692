// SPDX-License-Identifier: MIT OR Apache-2.0
//! Order of flows by their last packet: which ones end, and when.

use proptest::prelude::*;

use super::*;

/// Length of a tick of the lists.
const TICK_NS: u64 = 1 << 26;

fn client(number: u16) -> End {
    ([10, 0, 2, 2], 20_000 + number)
}

/// A meter whose established flows sent their last packet at `START + 100 ms`.
fn established(flows: u16, options: FlowOptions) -> Metered {
    let mut metered = Metered::new(options);
    for number in 0..flows {
        metered.tcp(START, client(number), SERVER, SYN, 1, 0);
        metered.tcp(START, SERVER, client(number), SYN | ACK, 1, 0);
        metered.tcp(START + 100 * MS, client(number), SERVER, ACK, 2, 0);
    }
    metered
}

#[test]
fn a_full_table_evicts_the_flow_whose_last_packet_is_the_oldest() {
    let mut metered = established(
        50,
        FlowOptions {
            max_flows: 50,
            ..FlowOptions::default()
        },
    );
    for number in (0..50).filter(|number| *number != 30) {
        metered.tcp(START + 10 * SECOND, client(number), SERVER, ACK, 2, 0);
    }
    metered.tcp(START + 11 * SECOND, client(50), SERVER, SYN, 1, 0);
    let [Record::Flow(flow)] = &metered.records[..] else {
        panic!("{:?}", metered.records)
    };
    assert_eq!(
        (flow.key.source_port, flow.end),
        (20_030, EndReason::Evicted)
    );
}

#[test]
fn the_work_of_a_look_at_the_clock_is_bounded_though_all_flows_had_further_packets() {
    let mut metered = established(1000, FlowOptions::default());
    for number in 0..1000 {
        metered.tcp(START + 30 * SECOND, client(number), SERVER, ACK, 2, 0);
    }
    let mut looks = 1;
    let now_ns = START + 61 * SECOND;
    while !metered.meter.tick(now_ns, 10, &mut metered.records) {
        looks += 1;
    }
    assert!(looks >= 100, "{looks}");
    assert!(metered.records.is_empty());
    assert!(
        !metered
            .meter
            .tick(START + 91 * SECOND, 10, &mut metered.records)
    );
    assert_eq!(metered.records.len(), 10);
}

proptest! {
    #[test]
    fn idle_flows_end_within_a_tick_and_busy_ones_do_not(
        idle_s in prop::sample::select(vec![1_u64, 60, 7200]),
        steps in prop::collection::vec((0_u16..8, 0_u64..1000, 0_u32..8), 1..300),
    ) {
        let options = FlowOptions {
            idle: Duration::from_secs(idle_s),
            active: Duration::from_secs(1_000_000),
            ..FlowOptions::default()
        };
        let mut metered = Metered::new(options);
        let mut last_ns: HashMap<u16, u64> = HashMap::new();
        let mut now_ns = START;
        for (number, pause, scale) in steps {
            // Of a part of a millisecond up to more than the longest time-out.
            now_ns += pause * MS * 2_u64.pow(2 * scale) / 1000;
            metered.tcp(now_ns, client(number), SERVER, ACK, 1, 0);
            last_ns.insert(number, now_ns);
            metered.meter.tick(now_ns, usize::MAX, &mut metered.records);
            let since = |ns: u64| now_ns.saturating_sub(idle_s * SECOND + ns);
            let busy = last_ns.values().filter(|last| **last > since(0)).count() as u64;
            let not_over = last_ns.values().filter(|last| **last > since(TICK_NS)).count() as u64;
            let flows = metered.meter.counters().flows;
            prop_assert!((busy..=not_over).contains(&flows), "{busy} {flows} {not_over}");
        }
    }
}
