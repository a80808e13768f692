// SPDX-License-Identifier: MIT OR Apache-2.0
//! What the programs of rules cost the kernel's verifier, which decides how long a capture takes to start.

use ringtap_bpf::link;
use ringtap_device::Mode;
use ringtap_filter::flow::{FlowAction, FlowPattern, FlowSettings, WildcardRule};
use ringtap_filter::{Balance, BucketMasks, Headers, LinkType, Rule, Rules, text};
use ringtap_testkit::{Namespace, require_root, require_tool, with};

use crate::tap::{Tap, TapOptions};

/// Steps for a program that divides packets between two members, with a table of flows or without.
fn steps(mode: Mode, balance: Balance, flows: Option<FlowSettings>) -> u32 {
    let net = Namespace::with_veth("steps");
    net.enter(|| {
        let options = with(TapOptions::new("rx0"), |it| {
            it.on.mode = mode;
            it.on.pool.bytes = Some(1 << 20);
        });
        let mut tap = Tap::attach(&options).expect("a tap");
        let rule = Rule {
            filter: text::compile("udp port 53", LinkType(1), 65_535).expect("a filter"),
            balance,
            members: BucketMasks::new(|bucket| 1 << (bucket % 2)),
        };
        let rules = Rules {
            flows,
            ..Rules::from(vec![rule])
        };
        tap.rules.classify(&rules).expect("rules");
        let links = tap.links.lock();
        let program = links.capturing[0].copy.loaded().expect("it is attached");
        link::verifier_steps(program).expect("its information")
    })
}

#[test]
fn a_stripped_tag_doubles_no_path_of_the_verifier() {
    require_root!();
    require_tool!("ip");
    let inner = Balance::Flow(Headers::Inner);
    // The program of this hook gets no tags.
    let without_tags = steps(Mode::Generic, inner.clone(), None);
    for mode in [Mode::Native, Mode::Tc] {
        let steps = steps(mode, inner.clone(), None);
        assert!(
            steps < without_tags + without_tags / 2,
            "{mode:?}: {steps}, without tags {without_tags}"
        );
    }
}

/// With kernel 6.18 2,400, 6,300 and 20,000: a processor verifies about 300 in a millisecond.
#[test]
fn new_rules_are_verified_within_milliseconds() {
    require_root!();
    require_tool!("ip");
    for (balance, most) in [
        (Balance::Everyone, 6_000),
        (Balance::Flow(Headers::Outer), 15_000),
        (Balance::Flow(Headers::Inner), 45_000),
    ] {
        for mode in [Mode::Native, Mode::Tc] {
            let steps = steps(mode, balance.clone(), None);
            println!("{mode:?}, {balance:?}: {steps}");
            assert!(steps < most, "{mode:?}, {balance:?}: {steps}");
        }
    }
}

/// With kernel 6.18 58,000, and 147,000 with wildcard rules.
#[test]
fn flow_rules_are_verified_within_a_fifth_of_a_second_and_wildcard_rules_within_half() {
    require_root!();
    require_tool!("ip");
    let by_flow = Balance::Flow(Headers::Outer);
    let ignore = WildcardRule {
        pattern: FlowPattern::default(),
        bits: 1.into(),
        action: FlowAction::Ignore,
    };
    for (wildcards, most) in [(vec![], 6), (vec![ignore], 15)] {
        let settings = FlowSettings {
            wildcards,
            ..FlowSettings::default()
        };
        for mode in [Mode::Native, Mode::Tc] {
            let steps = steps(mode, by_flow.clone(), Some(settings.clone()));
            println!(
                "{mode:?}, {} wildcard rules: {steps}",
                settings.wildcards.len()
            );
            assert!(steps < most * 10_000, "{mode:?}: {steps}");
        }
    }
}
