// SPDX-License-Identifier: MIT OR Apache-2.0
//! Flow rules of the `xdp` source.

use ringtap_device::Mode;
use ringtap_filter::flow::conformance;
use ringtap_pool::source::{Counts, Source};
use ringtap_testkit::{Namespace, require_root, require_tool, with};

use crate::flow_sources::{Conforming, OnInterface, Taken};
use crate::support::{finish, open, options};

fn taken(source: Source) -> (Vec<Taken>, Counts) {
    let (captured, counts) = finish(source);
    let taken = captured
        .into_iter()
        .map(|it| (it.slot.time_ns, it.slot.mask, it.data));
    (taken.collect(), counts)
}

#[test]
fn the_table_of_the_xdp_source_conforms() {
    require_root!();
    require_tool!("ip", "python3");
    for mode in [Mode::Native, Mode::Generic] {
        conformance::check(&mut Conforming(OnInterface {
            name: format!("xdp, {mode:?}"),
            open: |net: &Namespace| open(net, &with(options("rx0"), |it| it.on.mode = mode)),
            finish: taken,
            both_ways: false,
            net: None,
        }));
    }
}
