// SPDX-License-Identifier: MIT OR Apache-2.0
//! What the programs of rules cost the kernel's verifier, which decides how long a capture takes to start.

use ringtap_bpf::link;
use ringtap_device::Mode;
use ringtap_filter::{Balance, BucketMasks, Headers, LinkType, Rule, Rules, text};
use ringtap_pool::source::Source as _;
use ringtap_testkit::{Namespace, require_root, require_tool, with};

use crate::tap::{Tap, TapOptions};

/// Steps for a program that divides packets between two members.
fn steps(mode: Mode, balance: Balance) -> u32 {
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
        tap.classify(&Rules::from(vec![rule])).expect("rules");
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
    let without_tags = steps(Mode::Generic, inner.clone());
    for mode in [Mode::Native, Mode::Tc] {
        let steps = steps(mode, inner.clone());
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
            let steps = steps(mode, balance.clone());
            assert!(steps < most, "{mode:?}, {balance:?}: {steps}");
        }
    }
}
