// SPDX-License-Identifier: MIT OR Apache-2.0
//! Rules change under a thread that classifies, and one set of rules classifies each batch.

use std::{
    path::PathBuf,
    sync::atomic::{AtomicBool, Ordering::SeqCst},
    thread,
};

use ringtap_filter::flow::{CutOff, FlowAction, FlowRule, FlowSettings, conformance};
use ringtap_filter::{Balance, Rule};
use ringtap_pool::source::FlowRules as _;

use super::*;

fn set(shared: &LaneRules, rules: Vec<Rule>) -> Result<Vec<FilterLocation>, SourceError> {
    shared.set(&Rules::from(rules), None, "packet:eth0", LinkType::ETHERNET)
}

fn balanced(balance: Balance) -> Rule {
    Rule {
        balance,
        ..Rule::everything(1)
    }
}

/// Classifies one packet in its own batch.
fn classify(lane: &mut LaneClassifier) -> Option<u64> {
    lane.begin();
    let verdict = lane.classify(&[0; 60], 60);
    lane.end();
    verdict.map(|verdict| verdict.mask)
}

#[test]
fn everybody_gets_everything_until_there_are_rules() {
    let rules = Arc::new(LaneRules::default());
    let mut thread = LaneClassifier::new(Arc::clone(&rules));
    assert_eq!(classify(&mut thread), Some(u64::MAX));
    let places = set(&rules, vec![Rule::everything(4), Rule::everything(8)]).unwrap();
    assert_eq!(places, [FilterLocation::Source, FilterLocation::Source]);
    assert_eq!(classify(&mut thread), Some(12));
    set(&rules, vec![]).unwrap();
    assert_eq!(classify(&mut thread), None);
    assert_eq!(rules.filtered(), 1);
}

#[test]
fn a_filter_that_loops_is_left_to_its_reader() {
    let rules = Arc::new(LaneRules::default());
    let mut thread = LaneClassifier::new(Arc::clone(&rules));
    let round = [0x15, 0x07, 0x60, 0xffff_fffc_0000_0005, 6];
    let looping = Rule {
        filter: Program::from_entries(&round).unwrap(),
        ..Rule::everything(2)
    };
    let places = set(&rules, vec![Rule::everything(4), looping]).unwrap();
    let [FilterLocation::Source, FilterLocation::Reader(reason)] = &places[..] else {
        panic!("{places:?}")
    };
    assert!(reason.contains("protochain"), "{reason}");
    assert_eq!(classify(&mut thread), Some(6), "its reader gets everything");
}

#[test]
fn rules_that_need_the_kernel_are_refused_and_those_before_stay() {
    let rules = Arc::new(LaneRules::default());
    let mut thread = LaneClassifier::new(Arc::clone(&rules));
    set(&rules, vec![Rule::everything(4)]).unwrap();
    let steered = balanced(Balance::Program(PathBuf::from("steer.o")));
    let error = set(&rules, vec![steered]).unwrap_err().to_string();
    assert!(
        error.starts_with("packet:eth0: steer.o runs in the kernel only"),
        "{error}"
    );
    assert!(set(&rules, vec![Rule::everything(1); 65]).is_err());
    assert_eq!(classify(&mut thread), Some(4));
}

#[test]
fn nothing_is_published_under_old_rules_once_new_ones_are_set() {
    let rules = Arc::new(LaneRules::default());
    let (published, ended) = (
        Arc::new(AtomicU64::new(1)),
        Arc::new(AtomicBool::new(false)),
    );
    set(&rules, vec![Rule::everything(1)]).unwrap();
    let worker = thread::spawn({
        let (published, ended) = (Arc::clone(&published), Arc::clone(&ended));
        let mut classify = LaneClassifier::new(Arc::clone(&rules));
        move || {
            while !ended.load(SeqCst) {
                classify.begin();
                let masks = [(); 8].map(|()| classify.classify(&[0; 60], 60).unwrap().mask);
                assert_eq!(masks, [masks[0]; 8]);
                published.store(masks[0], SeqCst);
                classify.end();
            }
        }
    });
    for mask in 2..2000 {
        set(&rules, vec![Rule::everything(mask)]).unwrap();
        let last = published.load(SeqCst);
        thread::yield_now();
        // Later packets belong to the worker's next batch, or there are none.
        let later = published.load(SeqCst);
        assert!(
            later == last || later == mask,
            "{later} after {mask} was set"
        );
    }
    ended.store(true, SeqCst);
    worker.join().unwrap();
}

#[test]
fn lanes_share_a_table_and_a_cut_is_exact_while_it_is_swept() {
    const EACH: u64 = 100_000;
    const CUT: u64 = 1000;
    let lanes = [(); 2].map(|()| Arc::new(LaneRules::default()));
    let rule = |port| FlowRule {
        flow: conformance::key(17, port),
        action: FlowAction::CutOff(CutOff {
            packets: Some(CUT),
            bytes: None,
        }),
        lasts_ns: None,
    };
    let settings = FlowSettings::default();
    let withheld = lanes.iter().map(|lane| lane.withheld()).collect();
    let table = Arc::new(SourceFlows::new(&settings, LinkType::ETHERNET, withheld));
    let rules = Rules {
        flows: Some(settings),
        ..Rules::from(vec![Rule::everything(3)])
    };
    for lane in &lanes {
        let flows = Some(Arc::clone(&table));
        lane.set(&rules, flows, "sim", LinkType::ETHERNET).unwrap();
    }
    table.set(&rule(53), 1.into()).unwrap();
    let is_over = AtomicBool::new(false);
    let of_first: u64 = thread::scope(|scope| {
        scope.spawn(|| {
            // Rules of member 1 come and go all the time.
            for port in (1000..60_000).cycle() {
                if is_over.load(SeqCst) {
                    break;
                }
                table.set(&rule(port), 2.into()).unwrap();
                table.sweep(100);
                if port % 1000 == 0 {
                    (1000..=port).for_each(|port| {
                        table.remove(&rule(port).flow, 2);
                    });
                }
            }
        });
        let count = |lane: &Arc<LaneRules>| {
            let mut lane = LaneClassifier::new(Arc::clone(lane));
            scope.spawn(move || {
                let packet = conformance::frame(17, 53, true, 0, 60);
                let mut delivered = 0;
                for _ in 0..EACH {
                    lane.begin();
                    delivered += lane.classify(&packet, 60).unwrap().mask & 1;
                    lane.end();
                }
                delivered
            })
        };
        let counting = [count(&lanes[0]), count(&lanes[1])];
        let delivered = counting.map(|thread| thread.join().unwrap());
        is_over.store(true, SeqCst);
        delivered.iter().sum()
    });
    assert_eq!(of_first, CUT);
    let counts = table.get(&rule(53).flow).unwrap().directions[0];
    assert_eq!((counts.packets, counts.bytes), (2 * EACH, 120 * EACH));
    let withheld: u64 = table.withheld(0).iter().map(|lane| lane.packets).sum();
    assert_eq!(withheld, 2 * EACH - CUT);
    for port in (1000..60_000).chain([53]) {
        table.remove(&rule(port).flow, 3);
    }
    assert_eq!(table.totals().flows, 0);
    assert!(!table.concerns(3), "no rule, no work");
}
