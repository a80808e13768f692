// SPDX-License-Identifier: MIT OR Apache-2.0
//! Rules change under a thread that judges, and no batch is judged by parts of both.

use std::{
    path::PathBuf,
    sync::atomic::{AtomicBool, Ordering::SeqCst},
    thread,
};

use ringtap_filter::{Balance, Rule};

use super::*;

fn set(book: &Rulebook, rules: Vec<Rule>) -> Result<Vec<Place>, SourceError> {
    book.set(&Rules(rules), "packet:eth0", LinkType::ETHERNET)
}

fn balanced(balance: Balance) -> Rule {
    Rule {
        balance,
        ..Rule::everything(1)
    }
}

/// Judges one packet in a batch of its own.
fn judge(judge: &mut Judge) -> Option<u64> {
    judge.begin();
    let verdict = judge.judge(&[0; 60], 60);
    judge.end();
    verdict.map(|verdict| verdict.mask)
}

#[test]
fn everybody_gets_everything_until_there_are_rules() {
    let book = Arc::new(Rulebook::default());
    let mut thread = Judge::new(Arc::clone(&book));
    assert_eq!(judge(&mut thread), Some(u64::MAX));
    let places = set(&book, vec![Rule::everything(4), Rule::everything(8)]).unwrap();
    assert_eq!(places, [Place::Source, Place::Source]);
    assert_eq!(judge(&mut thread), Some(12));
    set(&book, vec![]).unwrap();
    assert_eq!(judge(&mut thread), None);
    assert_eq!(book.unwanted(), 1);
}

#[test]
fn rules_that_need_the_kernel_are_refused_and_those_before_stay() {
    let book = Arc::new(Rulebook::default());
    let mut thread = Judge::new(Arc::clone(&book));
    set(&book, vec![Rule::everything(4)]).unwrap();
    let steered = balanced(Balance::Program(PathBuf::from("steer.o")));
    let error = set(&book, vec![steered]).unwrap_err().to_string();
    assert!(
        error.starts_with("packet:eth0: steer.o runs in the kernel only"),
        "{error}"
    );
    assert!(set(&book, vec![Rule::everything(1); 65]).is_err());
    assert_eq!(judge(&mut thread), Some(4));
}

#[test]
fn nothing_is_published_under_old_rules_once_new_ones_are_set() {
    let book = Arc::new(Rulebook::default());
    let (published, ended) = (
        Arc::new(AtomicU64::new(1)),
        Arc::new(AtomicBool::new(false)),
    );
    set(&book, vec![Rule::everything(1)]).unwrap();
    let worker = thread::spawn({
        let (published, ended) = (Arc::clone(&published), Arc::clone(&ended));
        let mut judge = Judge::new(Arc::clone(&book));
        move || {
            while !ended.load(SeqCst) {
                judge.begin();
                let masks = [(); 8].map(|()| judge.judge(&[0; 60], 60).unwrap().mask);
                assert_eq!(masks, [masks[0]; 8]);
                published.store(masks[0], SeqCst);
                judge.end();
            }
        }
    });
    for mask in 2..2000 {
        set(&book, vec![Rule::everything(mask)]).unwrap();
        let last = published.load(SeqCst);
        thread::yield_now();
        // What is published from now on is the worker's next batch, or stays as it was.
        let later = published.load(SeqCst);
        assert!(
            later == last || later == mask,
            "{later} after {mask} was set"
        );
    }
    ended.store(true, SeqCst);
    worker.join().unwrap();
}
