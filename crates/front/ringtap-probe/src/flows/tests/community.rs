// SPDX-License-Identifier: MIT OR Apache-2.0
//! Community IDs of flow records, by vectors of the public specification.

use super::*;
use crate::export::json::object;

const ENDS: [[u8; 4]; 2] = [[128, 232, 110, 120], [66, 35, 250, 204]];

/// The identifiers of flows as they are in JSON.
fn identifiers(metered: Metered) -> Vec<String> {
    let flows = metered.flows().into_iter();
    let lines = flows.map(|flow| object(&Record::Flow(Box::new(flow))));
    lines.map(|line| line["community_id"].to_string()).collect()
}

#[test]
fn a_flow_has_the_identifier_of_the_specification_and_of_the_seed() {
    for (seed, expected) in [
        (0, "\"1:LQU9qZlK+B5F3KDmev6m5PMibrg=\""),
        (1, "\"1:3V71V58M3Ksw/yuFALMcW0LAHvc=\""),
    ] {
        let mut metered = Metered::new(FlowOptions {
            community_id_seed: seed,
            ..FlowOptions::default()
        });
        let [client, server] = [(ENDS[0], 34855), (ENDS[1], 80)];
        metered.tcp(START, server, client, ACK, 1, 10);
        metered.tcp(START + MS, client, server, ACK, 1, 10);
        assert_eq!(identifiers(metered), [expected]);
    }
}

#[test]
fn an_icmp_flow_has_the_identifier_of_its_type_and_code() {
    for (from, to, [kind, code], expected) in [
        (
            [192, 168, 0, 89],
            [192, 168, 0, 1],
            [8, 0],
            "\"1:X0snYXpgwiv9TZtqg64sgzUn6Dk=\"",
        ),
        (
            [192, 168, 0, 1],
            [192, 168, 0, 89],
            [0, 0],
            "\"1:X0snYXpgwiv9TZtqg64sgzUn6Dk=\"",
        ),
        (
            [10, 0, 0, 1],
            [10, 0, 0, 2],
            [11, 0],
            "\"1:YHxtAirCG//0OzkcVAukqKQN9xM=\"",
        ),
    ] {
        let mut frame = Vec::new();
        let builder = PacketBuilder::ethernet2([1; 6], [2; 6]).ipv4(from, to, 64);
        let builder = builder.icmpv4_raw(kind, code, [0; 4]);
        builder.write(&mut frame, &[]).expect("memory");
        let mut metered = Metered::new(FlowOptions::default());
        metered.frame(START, &frame);
        assert_eq!(identifiers(metered), [expected], "type {kind}");
    }
}

#[test]
fn a_flow_without_known_ports_has_no_identifier() {
    let mut frame = tcp(CLIENT, SERVER, ACK, 1, 10);
    frame[14 + 7] = 3; // a later fragment
    let mut metered = Metered::new(FlowOptions::default());
    metered.frame(START, &frame);
    assert_eq!(identifiers(metered), ["null"]);
}
