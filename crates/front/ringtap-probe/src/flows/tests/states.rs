// SPDX-License-Identifier: MIT OR Apache-2.0
//! States, bytes and durations of connections, with Zeek's rules: sequence numbers decide.

use super::*;

/// A client and a server, with a segment each millisecond.
struct Dialogue {
    metered: Metered,
    now_ns: u64,
}

impl Dialogue {
    fn new() -> Self {
        Dialogue::with(FlowOptions::default())
    }

    fn with(options: FlowOptions) -> Self {
        Dialogue {
            metered: Metered::new(options),
            now_ns: START,
        }
    }

    /// SYN with number 1, its answer with 500, and the ACK.
    fn established() -> Self {
        let mut dialogue = Dialogue::new();
        dialogue.client(SYN, 1, 0);
        dialogue.server(SYN | ACK, 500, 0);
        dialogue.client(ACK, 2, 0);
        dialogue
    }

    fn client(&mut self, flags: u8, sequence: u32, payload: usize) {
        self.segment(CLIENT, SERVER, flags, sequence, payload);
    }

    fn server(&mut self, flags: u8, sequence: u32, payload: usize) {
        self.segment(SERVER, CLIENT, flags, sequence, payload);
    }

    fn segment(&mut self, from: End, to: End, flags: u8, sequence: u32, payload: usize) {
        self.metered
            .tcp(self.now_ns, from, to, flags, sequence, payload);
        self.now_ns += MS;
    }

    fn pause(&mut self, time_ns: u64) {
        self.now_ns += time_ns;
    }

    fn flows(self) -> Vec<FlowRecord> {
        self.metered.flows()
    }

    /// The only record's bytes of both streams.
    fn bytes(self) -> (u64, u64) {
        let flows = self.flows();
        let [flow] = &flows[..] else {
            panic!("{flows:?}")
        };
        (flow.forward.stream_bytes, flow.backward.stream_bytes)
    }

    fn states(self) -> Vec<&'static str> {
        self.flows().iter().map(FlowRecord::conn_state).collect()
    }
}

#[test]
fn the_number_of_a_fin_is_no_byte_though_a_later_segment_comes_first() {
    let mut dialogue = Dialogue::established();
    dialogue.server(ACK, 501, 100);
    dialogue.server(ACK, 602, 0);
    dialogue.server(FIN | ACK, 601, 0);
    dialogue.server(FIN | ACK, 601, 0);
    assert_eq!(dialogue.bytes(), (0, 100));
}

#[test]
fn another_number_in_the_answer_begins_its_stream_anew() {
    let mut dialogue = Dialogue::new();
    dialogue.client(SYN, 1, 0);
    dialogue.server(SYN | ACK, 500, 0);
    dialogue.server(SYN | ACK, 900_000, 0);
    dialogue.client(ACK, 2, 10);
    dialogue.server(ACK, 900_001, 20);
    assert_eq!(dialogue.bytes(), (10, 20));
}

#[test]
fn a_reset_adds_a_gap_but_neither_its_payload_nor_a_wrong_number() {
    for (sequence, bytes) in [(112, 110), (112 + (2 << 20), 100), (u32::MAX - 5, 100)] {
        let mut dialogue = Dialogue::established();
        dialogue.client(ACK, 2, 100);
        dialogue.client(RST, sequence, 30);
        // What follows the reset is no part of the stream.
        dialogue.client(ACK, 200, 100);
        assert_eq!(dialogue.bytes(), (bytes, 0), "{sequence}");
    }
}

#[test]
fn a_further_part_counts_no_byte_again() {
    let mut dialogue = Dialogue::with(FlowOptions {
        active: Duration::from_secs(10),
        ..FlowOptions::default()
    });
    dialogue.client(SYN, 1, 0);
    dialogue.client(ACK, 2, 100);
    dialogue.pause(11 * SECOND);
    dialogue.client(ACK, 2, 100);
    dialogue.client(ACK, 102, 50);
    dialogue.client(SYN, 1, 0);
    let flows = dialogue.flows();
    let bytes: Vec<_> = flows.iter().map(|flow| flow.forward.stream_bytes).collect();
    assert_eq!(bytes, [100, 50]);
    // The data and the SYN.
    assert_eq!(flows[1].forward.retransmissions.count(), Some(2));
}

#[test]
fn a_syn_with_another_number_begins_a_record_in_every_state() {
    let mut open = Dialogue::established();
    open.client(SYN, 1, 0);
    open.client(SYN, 90_000, 0);
    open.server(SYN | ACK, 7000, 0);
    assert_eq!(open.states(), ["S1", "S1"]);
    let mut unanswered = Dialogue::new();
    unanswered.client(SYN, 1, 0);
    unanswered.client(SYN, 2, 0);
    assert_eq!(unanswered.states(), ["S0", "S0"]);
    // The former server opens a connection with the same ports.
    let mut reversed = Dialogue::established();
    reversed.server(SYN, 8000, 0);
    assert_eq!(reversed.states(), ["S1", "S0"]);
}

#[test]
fn a_syn_that_comes_late_or_from_both_ends_begins_no_record() {
    let mut late = Dialogue::new();
    late.server(SYN | ACK, 500, 0);
    late.client(SYN, 1, 0);
    late.client(ACK, 2, 0);
    assert_eq!(late.flows().len(), 1);
    let mut after_data = Dialogue::new();
    after_data.client(ACK, 2, 100);
    after_data.client(SYN, 1, 0);
    assert_eq!(after_data.bytes(), (100, 0));
    let mut both = Dialogue::new();
    both.client(SYN, 1, 0);
    both.server(SYN, 500, 0);
    assert_eq!(both.states(), ["S1"]);
}

#[test]
fn each_attempt_after_a_reset_is_a_record() {
    let mut dialogue = Dialogue::new();
    for _ in 0..3 {
        dialogue.client(SYN, 1, 0);
        dialogue.server(RST | ACK, 0, 0);
        dialogue.pause(500 * MS);
    }
    assert_eq!(dialogue.states(), ["REJ"; 3]);
}

#[test]
fn a_packet_long_after_the_end_begins_a_record_without_other_traffic() {
    let mut dialogue = Dialogue::established();
    dialogue.client(RST, 2, 0);
    dialogue.pause(3 * SECOND);
    dialogue.client(ACK, 2, 100);
    assert_eq!(dialogue.states(), ["RSTO", "OTH"]);
}

#[test]
fn the_duration_ends_with_the_last_fin() {
    let mut metered = Metered::new(FlowOptions::default());
    connection(&mut metered, START, CLIENT);
    let flows = metered.flows();
    assert_eq!(flows[0].last_ns(), START + 90 * MS);
    assert_eq!(flows[0].duration_ns(), 80 * MS);
    // One reset closes one end only.
    let mut dialogue = Dialogue::established();
    dialogue.client(RST, 2, 0);
    dialogue.server(ACK, 501, 100);
    assert_eq!(dialogue.flows()[0].duration_ns(), 4 * MS);
}

#[test]
fn the_data_of_icmp_are_bytes() {
    let [mut four, mut six] = [Vec::new(), Vec::new()];
    let ethernet = || PacketBuilder::ethernet2([1; 6], [2; 6]);
    ethernet()
        .ipv4(CLIENT.0, SERVER.0, 64)
        .icmpv4_echo_request(1, 1)
        .write(&mut four, &[7; 56])
        .expect("memory");
    ethernet()
        .ipv6([1; 16], [2; 16], 64)
        .icmpv6_echo_request(1, 1)
        .write(&mut six, &[7; 56])
        .expect("memory");
    for frame in [four, six] {
        let mut metered = Metered::new(FlowOptions::default());
        metered.frame(START, &frame);
        let flows = metered.flows();
        assert_eq!(flows[0].forward.stream_bytes, 56);
        assert_eq!(flows[0].details, None);
    }
}
