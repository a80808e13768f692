// SPDX-License-Identifier: MIT OR Apache-2.0
//! Runs the conformance suite of tables of flows on a source.

use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use ringtap_filter::flow::conformance::{
    FlowCase, FlowHarness, FlowOutcome, FlowStep, MEMBERS, bits_of,
};
use ringtap_filter::flow::{FlowRuleError, FlowSettings};
use ringtap_filter::{Rule, Rules};
use ringtap_pool::counters::Counters;
use ringtap_pool::source::{Counts, FlowRules, Source, WithheldCounts};
use ringtap_testkit::Namespace;

/// Longest wait for packets that were sent and are only to be counted.
const SOON: Duration = Duration::from_secs(30);

/// A captured packet: its time, its mask, its bytes.
pub(crate) type Taken = (u64, u64, Vec<u8>);

/// A source for the suite.
pub(crate) trait FlowSource {
    /// Its name, for messages.
    fn name(&self) -> String;

    /// Opens it.
    fn open(&mut self) -> Source;

    /// Sends packets to it, one after the other.
    fn send(&mut self, packets: &[Vec<u8>]);

    /// Stops it; returns all captured packets.
    fn finish(&mut self, source: Source) -> (Vec<Taken>, Counts);
}

/// A source on `rx0` of a veth pair, opened and read by these functions.
pub(crate) struct OnInterface<O, F> {
    pub(crate) name: String,
    pub(crate) open: O,
    pub(crate) finish: F,
    /// Packets from the higher address leave through `rx0`, for a source that captures both directions.
    pub(crate) both_ways: bool,
    pub(crate) net: Option<Namespace>,
}

impl<O, F> FlowSource for OnInterface<O, F>
where
    O: Fn(&Namespace) -> Source,
    F: Fn(Source) -> (Vec<Taken>, Counts),
{
    fn name(&self) -> String {
        self.name.clone()
    }

    fn open(&mut self) -> Source {
        (self.open)(self.net.insert(Namespace::with_veth("flows")))
    }

    fn send(&mut self, packets: &[Vec<u8>]) {
        let leaves = |packet: &Vec<u8>| self.both_ways && is_from_higher(packet);
        let net = self.net.as_ref().expect("the source is open");
        for run in packets.chunk_by(|one, next| leaves(one) == leaves(next)) {
            net.inject(if leaves(&run[0]) { "rx0" } else { "tx0" }, run);
        }
    }

    fn finish(&mut self, source: Source) -> (Vec<Taken>, Counts) {
        (self.finish)(source)
    }
}

fn is_from_higher(packet: &[u8]) -> bool {
    let at = |end: [u8; 4]| packet.windows(4).position(|bytes| bytes == end);
    let (low, high) = (at([10, 0, 0, 1]), at([10, 0, 0, 2]));
    high.is_some() && high < low
}

/// Rules for [`MEMBERS`] with a table of flows.
pub(crate) fn with_flows(source: &mut Source, settings: &FlowSettings) -> Arc<dyn FlowRules> {
    let rules = Rules {
        flows: Some(settings.clone()),
        ..Rules::from(vec![Rule::everything(MEMBERS)])
    };
    let set = source.rules.classify(&rules);
    set.unwrap_or_else(|error| panic!("{error}"));
    source.rules.flow_rules().expect("a table")
}

/// What was withheld from a member on all lanes.
pub(crate) fn sum(flows: &dyn FlowRules, member: u32) -> (u64, u64) {
    let lanes = flows.withheld(member);
    let add = |(packets, bytes), lane: WithheldCounts| (packets + lane.packets, bytes + lane.bytes);
    lanes.into_iter().fold((0, 0), add)
}

fn settled(source: &mut Source) -> u64 {
    let lanes = source.counts().lanes;
    lanes.iter().map(Counters::accounted).sum()
}

/// A source behind the suite.
pub(crate) struct Conforming<S>(pub(crate) S);

impl<S: FlowSource> Conforming<S> {
    /// Sends packets and waits until the source has classified them.
    fn send(&mut self, source: &mut Source, packets: &mut Vec<Vec<u8>>) {
        let until = settled(source) + packets.len() as u64;
        self.0.send(packets);
        let start = Instant::now();
        while settled(source) < until {
            assert!(start.elapsed() < SOON, "{:?}", source.counts());
            thread::sleep(Duration::from_millis(1));
        }
        packets.clear();
    }
}

impl<S: FlowSource> FlowHarness for Conforming<S> {
    fn run(&mut self, case: &FlowCase) -> FlowOutcome {
        let name = format!("{}, {}", self.0.name(), case.name);
        let mut source = self.0.open();
        let flows = with_flows(&mut source, &case.settings);
        let (mut waiting, mut expected) = (Vec::new(), Vec::new());
        for (number, step) in case.steps.iter().enumerate() {
            let at = format!("{name}, step {number}");
            if !matches!(step, FlowStep::Packet(..)) {
                self.send(&mut source, &mut waiting);
            }
            match step {
                FlowStep::Packet(data, gets) => {
                    waiting.push(data.clone());
                    expected.push((*gets, data.clone()));
                }
                FlowStep::Set(rule, members) => {
                    flows.set(rule, bits_of(rule, *members)).expect(&at);
                }
                FlowStep::Full(rule, members) => {
                    let refused = flows.set(rule, (*members).into());
                    let is_full = matches!(refused, Err(FlowRuleError::Full { .. }));
                    assert!(is_full, "{at}: {refused:?}");
                }
                FlowStep::Remove(key, members) => assert!(flows.remove(key, *members), "{at}"),
                FlowStep::Apply(settings) => drop(with_flows(&mut source, settings)),
                FlowStep::Wait(ms) => thread::sleep(Duration::from_millis(*ms)),
            }
        }
        self.send(&mut source, &mut waiting);
        let (mut captured, counts) = self.0.finish(source);
        captured.sort_by_key(|(time_ns, ..)| *time_ns);
        let is_ours = |data: &Vec<u8>| expected.iter().any(|(_, sent)| sent == data);
        let captured = captured.into_iter().filter(|(.., data)| is_ours(data));
        let captured: Vec<_> = captured.map(|(_, mask, data)| (mask, data)).collect();
        let is_wanted = |(gets, _): &&(u64, Vec<u8>)| *gets != 0;
        let wanted: Vec<_> = expected.iter().filter(is_wanted).cloned().collect();
        let masks = |all: &[(u64, Vec<u8>)]| all.iter().map(|it| it.0).collect::<Vec<_>>();
        assert_eq!(masks(&captured), masks(&wanted), "{name}");
        assert_eq!(captured, wanted, "{name}");
        let shunted: u64 = counts.lanes.iter().map(|lane| lane.shunted).sum();
        assert_eq!(shunted, (expected.len() - wanted.len()) as u64, "{name}");
        let balances = counts.lanes.iter().all(|lane| lane.balance().holds());
        assert!(balances, "{name}: {counts:?}");
        let of = |(key, _): &(_, _)| {
            let flow = flows.get(key).expect("the flow is in the table");
            flow.directions
                .map(|direction| (direction.packets, direction.bytes, direction.flags))
        };
        FlowOutcome {
            withheld: [0, 1, 2].map(|member| sum(&*flows, member)),
            flows: case.flows.iter().map(of).collect(),
            totals: flows.totals(),
        }
    }
}
