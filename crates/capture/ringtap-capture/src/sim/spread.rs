// SPDX-License-Identifier: MIT OR Apache-2.0
//! Which queue and which flow each packet of a simulated link belongs to.
//!
//! Packets are dealt out in a row that repeats, each class of flows as evenly in it as its weight
//! allows. A flow belongs to one queue, as with receive-side scaling: flow `f` to queue `f` modulo
//! the number of queues.
//!
//! Invariants
//! - Where packet `n` goes depends on `n` alone: queues can be simulated apart from each other.
#![forbid(unsafe_code)]

use std::sync::Arc;

use ringtap_device::Skew;

/// Flows that share a weight and a queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Class {
    queue: u32,
    first_flow: u32,
    step: u32,
    flows: u32,
    weight: u32,
}

/// A queue's packet in the row.
#[derive(Clone, Copy, Debug)]
struct Place {
    /// In the row.
    at: u64,
    number: usize,
    class: Class,
}

/// How packets are dealt out.
#[derive(Debug)]
pub(super) struct Spread {
    classes: Vec<Class>,
    /// Packets in the row.
    row: u64,
    /// Per queue.
    places: Vec<Vec<Place>>,
}

/// A packet of a queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Dealt {
    /// Its number on the link.
    pub(super) number: u64,
    pub(super) flow: u32,
}

impl Spread {
    /// Deals packets of so many flows to so many queues; there are at least as many flows, and
    /// one more if there is an elephant.
    pub(super) fn new(queues: u32, flows: u32, skew: Option<&Skew>) -> Self {
        let classes = classes(queues, flows, skew);
        let row = row(&classes);
        let mut places = vec![Vec::new(); index(queues)];
        for (at, class) in (0..).zip(&row) {
            let queue = index(classes[*class].queue);
            places[queue].push(Place {
                at,
                number: *class,
                class: classes[*class],
            });
        }
        Spread {
            classes,
            row: u64::try_from(row.len()).unwrap_or(u64::MAX),
            places,
        }
    }

    /// How many of the first `packets` of the link are a queue's.
    pub(super) fn count(&self, queue: u32, packets: u64) -> u64 {
        let places = &self.places[index(queue)];
        let whole = (packets / self.row).saturating_mul(wide(places.len()));
        let rest = packets % self.row;
        whole.saturating_add(wide(places.partition_point(|place| place.at < rest)))
    }
}

fn classes(queues: u32, flows: u32, skew: Option<&Skew>) -> Vec<Class> {
    let elephant = match skew {
        Some(Skew::Elephant(percent)) => *percent,
        _ => 0,
    };
    let mut classes = Vec::new();
    if elephant > 0 {
        classes.push(Class {
            queue: 0,
            first_flow: 0,
            step: 1,
            flows: 1,
            weight: elephant * queues,
        });
    }
    for queue in 0..queues {
        let first_flow = match (queue, elephant) {
            (0, 1..) => queues,
            _ => queue,
        };
        let weight = match skew {
            None => 1,
            Some(Skew::Elephant(percent)) => 100 - percent,
            Some(Skew::Weights(weights)) => weights.get(index(queue)).copied().unwrap_or(0),
        };
        let flows = flows.saturating_sub(first_flow).div_ceil(queues);
        if weight > 0 && flows > 0 {
            classes.push(Class {
                queue,
                first_flow,
                step: queues,
                flows,
                weight,
            });
        }
    }
    let divisor = classes
        .iter()
        .fold(0, |all, class| divisor(all, class.weight));
    for class in &mut classes {
        class.weight /= divisor.max(1);
    }
    classes
}

fn divisor(a: u32, b: u32) -> u32 {
    if b == 0 { a } else { divisor(b, a % b) }
}

/// The classes in the order in which their packets come: each as evenly as its weight allows.
fn row(classes: &[Class]) -> Vec<usize> {
    let total: i64 = classes.iter().map(|class| i64::from(class.weight)).sum();
    let mut due = vec![0_i64; classes.len()];
    let mut row = Vec::new();
    for _ in 0..total {
        let mut next = 0;
        for (at, class) in classes.iter().enumerate() {
            due[at] += i64::from(class.weight);
            if due[at] > due[next] {
                next = at;
            }
        }
        due[next] -= total;
        row.push(next);
    }
    row
}

/// A walk over the packets of one queue.
#[derive(Clone, Debug)]
pub(super) struct Cursor {
    spread: Arc<Spread>,
    queue: usize,
    /// Packets of the link before this round of the row.
    round: u64,
    at: usize,
    /// Whose flow's turn it is, per class.
    turns: Vec<u32>,
    /// Number of the packet in its queue.
    place: u64,
}

impl Cursor {
    pub(super) fn new(spread: Arc<Spread>, queue: u32) -> Self {
        let turns = vec![0; spread.classes.len()];
        Cursor {
            spread,
            queue: index(queue),
            round: 0,
            at: 0,
            turns,
            place: 0,
        }
    }

    /// Moves to packet `place` of the queue.
    #[inline]
    pub(super) fn seek(&mut self, place: u64) {
        if place != self.place {
            self.jump(place);
        }
    }

    #[cold]
    fn jump(&mut self, place: u64) {
        let Spread {
            classes,
            row,
            places,
        } = &*self.spread;
        let places = &places[self.queue];
        let rounds = place / wide(places.len());
        self.at = usize::try_from(place % wide(places.len())).unwrap_or(0);
        self.round = rounds * row;
        self.place = place;
        for (class, turn) in self.turns.iter_mut().enumerate() {
            let here = places.iter().filter(|place| place.number == class);
            let before = here.clone().filter(|other| other.at < places[self.at].at);
            let passed = rounds * wide(here.clone().count()) + wide(before.count());
            let flows = u64::from(classes[class].flows);
            *turn = u32::try_from(passed % flows).unwrap_or(0);
        }
    }

    /// The packet at this place, if the queue gets any.
    #[inline]
    pub(super) fn get(&self) -> Dealt {
        let place = &self.spread.places[self.queue][self.at];
        Dealt {
            number: self.round + place.at,
            flow: place.class.first_flow + place.class.step * self.turns[place.number],
        }
    }

    /// Moves to the next packet.
    #[inline]
    pub(super) fn advance(&mut self) {
        let places = &self.spread.places[self.queue];
        let place = &places[self.at];
        let turn = &mut self.turns[place.number];
        *turn += 1;
        if *turn == place.class.flows {
            *turn = 0;
        }
        self.place += 1;
        self.at += 1;
        if self.at == places.len() {
            self.at = 0;
            self.round += self.spread.row;
        }
    }
}

/// The packets of a queue that has one place in the row: their flows take turns, and that is all.
#[derive(Clone, Copy, Debug)]
pub(super) struct Steady {
    next: Dealt,
    row: u64,
    class: Class,
    turn: u32,
}

impl Cursor {
    /// The packets from here on, if they are as simple as that.
    pub(super) fn steady(&self) -> Option<Steady> {
        match &self.spread.places[self.queue][..] {
            [place] => Some(Steady {
                next: self.get(),
                row: self.spread.row,
                class: place.class,
                turn: self.turns[place.number],
            }),
            _ => None,
        }
    }

    /// Moves on by so many packets.
    pub(super) fn skip(&mut self, packets: u64) {
        self.seek(self.place + packets);
    }
}

impl Steady {
    /// The next packet.
    #[inline(always)]
    pub(super) fn take(&mut self) -> Dealt {
        let dealt = self.next;
        self.next.number += self.row;
        self.next.flow += self.class.step;
        self.turn += 1;
        if self.turn == self.class.flows {
            self.turn = 0;
            self.next.flow = self.class.first_flow;
        }
        dealt
    }
}

fn index(number: u32) -> usize {
    usize::try_from(number).unwrap_or(usize::MAX)
}

fn wide(length: usize) -> u64 {
    u64::try_from(length).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The packets of all queues, in the order of the link.
    fn dealt(spread: Spread, queues: u32, packets: u64) -> Vec<(u32, Dealt)> {
        let spread = Arc::new(spread);
        let mut all = Vec::new();
        for queue in 0..queues {
            let mut cursor = Cursor::new(Arc::clone(&spread), queue);
            for place in 0..spread.count(queue, packets) {
                let mut other = Cursor::new(Arc::clone(&spread), queue);
                other.seek(place);
                assert_eq!(other.get(), cursor.get(), "a jump is as many steps");
                let steady = other.steady().map(|mut steady| steady.take());
                assert!(steady.is_none_or(|dealt| dealt == cursor.get()));
                all.push((queue, cursor.get()));
                cursor.advance();
            }
        }
        all.sort_by_key(|(_, dealt)| dealt.number);
        let numbers: Vec<_> = all.iter().map(|(_, dealt)| dealt.number).collect();
        assert!(numbers.iter().copied().eq(0..packets), "each packet once");
        all
    }

    fn share(all: &[(u32, Dealt)], of: impl Fn(&(u32, Dealt)) -> bool) -> usize {
        all.iter().filter(|one| of(one)).count()
    }

    #[test]
    fn weights_are_kept_to_the_packet() {
        let skew = Skew::Weights(vec![70, 10, 10, 10]);
        let all = dealt(Spread::new(4, 8, Some(&skew)), 4, 1000);
        assert_eq!(share(&all, |(queue, _)| *queue == 0), 700);
        assert_eq!(share(&all, |(queue, _)| *queue == 3), 100);
        assert!(all.iter().all(|(queue, dealt)| dealt.flow % 4 == *queue));
        let hot = all
            .windows(4)
            .all(|four| four.iter().any(|(queue, _)| *queue == 0));
        assert!(hot, "no queue waits longer than it must");
    }

    #[test]
    fn an_elephant_is_one_flow_and_the_rest_is_even() {
        let all = dealt(Spread::new(4, 13, Some(&Skew::Elephant(60))), 4, 4000);
        assert_eq!(share(&all, |(_, dealt)| dealt.flow == 0), 2400);
        for queue in 1..4 {
            assert_eq!(share(&all, |(other, _)| *other == queue), 400);
        }
        for flow in 1..13 {
            assert!(share(&all, |(_, dealt)| dealt.flow == flow) > 100);
        }
    }

    #[test]
    fn a_queue_without_weight_gets_nothing() {
        let skew = Skew::Weights(vec![0, 1]);
        let spread = Spread::new(2, 2, Some(&skew));
        assert_eq!((spread.count(0, 100), spread.count(1, 100)), (0, 100));
    }
}
