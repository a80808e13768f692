// SPDX-License-Identifier: MIT OR Apache-2.0
//! Queue and flow of each packet of a simulated link.
//!
//! Packets follow a row of queues that repeats; each class of flows has as many places in it as
//! its weight, as evenly as possible. Flow `f` belongs to queue `f` modulo the number of queues,
//! as with receive-side scaling. The flows of a class take turns.
//!
//! Invariants
//! - Queue and flow of packet `n` depend on `n` alone: each queue can be simulated by itself.

use ringtap_device::Skew;

/// Flows that share a weight and a queue: `first`, `first + step`, and so on.
#[derive(Clone, Copy, Debug)]
struct FlowClass {
    queue: u32,
    first: u32,
    step: u32,
    flows: u32,
    weight: u32,
}

/// An entry of one queue in the row.
#[derive(Clone, Copy, Debug)]
struct RowEntry {
    /// Position in the row.
    at: u64,
    class: FlowClass,
    /// Places of the same class before this one.
    before: u32,
}

/// Distribution of packets over queues and flows.
#[derive(Debug)]
pub(super) struct Spread {
    /// Packets in the row.
    row: u64,
    queues: Vec<Vec<RowEntry>>,
}

/// Number on the link and flow of a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct LinkPacket {
    pub(super) number: u64,
    pub(super) flow: u32,
}

impl Spread {
    /// Spreads packets of `flows` flows over `queues` queues.
    ///
    /// There are at least as many flows as queues, and one more if the skew has an elephant.
    pub(super) fn new(queues: u32, flows: u32, skew: Option<&Skew>) -> Self {
        let classes = classes(queues, flows, skew);
        let mut entries = vec![Vec::new(); queues as usize];
        let mut seen = vec![0; classes.len()];
        let row = row(&classes);
        for (at, number) in (0..).zip(&row) {
            let (class, before) = (classes[*number], seen[*number]);
            seen[*number] += 1;
            entries[class.queue as usize].push(RowEntry { at, class, before });
        }
        Spread {
            row: row.len() as u64,
            queues: entries,
        }
    }

    /// Number of packets of `queue` among the first `packets` of the link.
    pub(super) fn count(&self, queue: u32, packets: u64) -> u64 {
        let entries = &self.queues[queue as usize];
        let rest = packets % self.row;
        let begun = entries.partition_point(|entry| entry.at < rest) as u64;
        let whole = (packets / self.row).saturating_mul(entries.len() as u64);
        whole.saturating_add(begun)
    }

    /// Packet `n` of `queue`, which gets packets.
    pub(super) fn packet(&self, queue: u32, n: u64) -> LinkPacket {
        let entries = &self.queues[queue as usize];
        let round = n / entries.len() as u64;
        let entry = &entries[usize::try_from(n % entries.len() as u64).unwrap_or(0)];
        let FlowClass {
            first,
            step,
            flows,
            weight,
            ..
        } = entry.class;
        let turns = round * u64::from(weight) + u64::from(entry.before);
        let turn = u32::try_from(turns % u64::from(flows)).unwrap_or(0);
        LinkPacket {
            number: round * self.row + entry.at,
            flow: first + step * turn,
        }
    }

    /// The packets of `queue` from packet `n` on, if its flows simply take turns: faster than
    /// `packet`.
    pub(super) fn turns(&self, queue: u32, n: u64) -> Option<FlowTurns> {
        match self.queues[queue as usize][..] {
            [entry] => Some(FlowTurns {
                next: self.packet(queue, n),
                row: self.row,
                end: entry.class.first + entry.class.step * entry.class.flows,
                class: entry.class,
            }),
            _ => None,
        }
    }
}

/// The packets of a queue whose flows take turns, one in each round of the row.
#[derive(Clone, Copy, Debug)]
pub(super) struct FlowTurns {
    next: LinkPacket,
    row: u64,
    class: FlowClass,
    /// The number after those of the flows.
    end: u32,
}

impl Iterator for FlowTurns {
    type Item = LinkPacket;

    #[inline]
    fn next(&mut self) -> Option<LinkPacket> {
        let packet = self.next;
        self.next.number += self.row;
        self.next.flow += self.class.step;
        if self.next.flow == self.end {
            self.next.flow = self.class.first;
        }
        Some(packet)
    }
}

/// Every queue has one class; queue 0 has a second one if there is an elephant, with one flow.
fn classes(queues: u32, flows: u32, skew: Option<&Skew>) -> Vec<FlowClass> {
    let mut classes = Vec::new();
    let mut first_of_queue_0 = 0;
    if let Some(Skew::Elephant(percent)) = skew {
        first_of_queue_0 = queues;
        classes.push(FlowClass {
            queue: 0,
            first: 0,
            step: 1,
            flows: 1,
            weight: percent * queues,
        });
    }
    for queue in 0..queues {
        let first = if queue == 0 { first_of_queue_0 } else { queue };
        classes.push(FlowClass {
            queue,
            first,
            step: queues,
            flows: flows.saturating_sub(first).div_ceil(queues),
            weight: match skew {
                None => 1,
                Some(Skew::Elephant(percent)) => 100 - percent,
                Some(Skew::Weights(weights)) => weights[queue as usize],
            },
        });
    }
    classes
}

/// The class of each place in the row: every class as evenly as its weight allows.
fn row(classes: &[FlowClass]) -> Vec<usize> {
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

#[cfg(test)]
mod tests {
    use super::*;

    /// All packets of the link in order, each with its queue.
    fn packets(spread: &Spread, queues: u32, packets: u64) -> Vec<(u32, LinkPacket)> {
        let mut all = Vec::new();
        for queue in 0..queues {
            for n in 0..spread.count(queue, packets) {
                let packet = spread.packet(queue, n);
                if let Some(mut turns) = spread.turns(queue, n) {
                    assert_eq!(turns.next(), Some(packet));
                    assert_eq!(turns.next(), Some(spread.packet(queue, n + 1)));
                }
                all.push((queue, packet));
            }
        }
        all.sort_by_key(|(_, packet)| packet.number);
        let numbers: Vec<_> = all.iter().map(|(_, packet)| packet.number).collect();
        assert!(numbers.iter().copied().eq(0..packets), "each packet once");
        all
    }

    fn share(all: &[(u32, LinkPacket)], of: impl Fn(&(u32, LinkPacket)) -> bool) -> usize {
        all.iter().filter(|one| of(one)).count()
    }

    #[test]
    fn weights_are_kept_to_the_packet() {
        let skew = Skew::Weights(vec![70, 10, 10, 10]);
        let all = packets(&Spread::new(4, 8, Some(&skew)), 4, 1000);
        assert_eq!(share(&all, |(queue, _)| *queue == 0), 700);
        assert_eq!(share(&all, |(queue, _)| *queue == 3), 100);
        assert!(all.iter().all(|(queue, packet)| packet.flow % 4 == *queue));
        let hot = all
            .windows(4)
            .all(|four| four.iter().any(|(queue, _)| *queue == 0));
        assert!(hot, "no queue waits longer than it must");
    }

    #[test]
    fn an_elephant_is_one_flow_and_the_rest_is_even() {
        let all = packets(&Spread::new(4, 13, Some(&Skew::Elephant(60))), 4, 4000);
        assert_eq!(share(&all, |(_, packet)| packet.flow == 0), 2400);
        for queue in 1..4 {
            assert_eq!(share(&all, |(other, _)| *other == queue), 400);
        }
        for flow in 1..13 {
            assert!(share(&all, |(_, packet)| packet.flow == flow) > 100);
        }
    }

    #[test]
    fn flows_of_even_queues_take_turns() {
        let spread = Spread::new(3, 10, None);
        let all = packets(&spread, 3, 300);
        let flows = |queue| all.iter().filter(move |(of, _)| *of == queue);
        let flows = flows(0).map(|(_, packet)| packet.flow);
        assert!(flows.eq((0..100).map(|n| n % 4 * 3)));
        assert!(spread.turns(0, 0).is_some(), "the fast way gives the same");
    }

    #[test]
    fn a_queue_without_weight_gets_nothing() {
        let skew = Skew::Weights(vec![0, 1]);
        let spread = Spread::new(2, 2, Some(&skew));
        assert_eq!((spread.count(0, 100), spread.count(1, 100)), (0, 100));
    }
}
