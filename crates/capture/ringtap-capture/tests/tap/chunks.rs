// SPDX-License-Identifier: MIT OR Apache-2.0
//! Headers of chunks: numbers of packets and chunks, and the readers that want a packet of them.

use ringtap_capture::tap::Mode;
use ringtap_device::ChunkOptions;
use ringtap_pool::ids::ChunkId;
use ringtap_pool::source::Source;
use ringtap_testkit::{Namespace, require_root, require_tool, with};

use crate::rules::{classify, rule};
use crate::support::{attach, frame, options};

/// Number of chunks that are filled: more than a lane has.
const ROUNDS: u64 = 9;

#[test]
fn a_chunk_states_its_numbers_and_the_members_of_all_its_packets() {
    require_root!();
    require_tool!("ip", "python3");
    for mode in [Mode::Native, Mode::Generic, Mode::Tc] {
        let net = Namespace::with_veth("headers");
        let mut tap = attach(
            &net,
            &with(options("rx0"), |it| {
                it.on.mode = mode;
                it.on.pool.chunks = ChunkOptions {
                    per_lane: Some(4),
                    packets: Some(2),
                };
            }),
        );
        let member = |bit: u8| rule(&format!("ether[14] = {bit}"), 1 << bit);
        classify(&mut tap, (0..3).map(member).collect());
        let mut lanes = tap.take_lanes();
        let pool = tap.pool();
        let mut last = None;
        for round in 0..ROUNDS {
            // The members of two packets, of the first, and of no packet that a chunk had before.
            let bits = [[0, 1], [2, 2], [1, 0]][usize::try_from(round % 3).unwrap()];
            net.inject("tx0", &bits.map(|bit| frame(bit, 60)));
            let mut opened = lanes
                .iter_mut()
                .filter_map(|lane| Some((lane.opened.pop().unwrap()?, lane)));
            let (number, lane) = opened.next().expect("two packets fill a chunk");
            let chunk = ChunkId(u32::try_from(number).unwrap());
            let chunk = pool.chunk(chunk).expect("a chunk of the pool");
            assert_eq!(chunk.wanted(), 1 << bits[0] | 1 << bits[1], "{mode:?}");
            assert_eq!(chunk.chunk_sequence(), round, "{mode:?}");
            assert_eq!(chunk.first_sequence(), 2 * round, "{mode:?}");
            // The chunk before is sealed.
            if let Some(before) = last.replace(number) {
                lane.recycle.push(before).unwrap();
            }
        }
    }
}
