// SPDX-License-Identifier: MIT OR Apache-2.0
//! Which buckets of flows move from a busy member of a balanced group to an idle one.
//!
//! Invariants
//! - A bucket moves as a whole: at any time a flow has one owner.
//! - The heaviest bucket of a member stays where it is if it is more than half of what the member
//!   has: moving it would only move the trouble. Then the others move.
#![forbid(unsafe_code)]

pub mod buckets;

use ringtap_filter::BUCKETS;

/// What moves in one step of what a busy member carries: so little that the next look at the
/// loads can tell what it did.
const STEP: u64 = 4;

/// A member of a group at one moment.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Load {
    /// Chunks that it holds, in percent of a lane's.
    pub percent: u32,
}

/// Which buckets move, and to which member.
///
/// `owners` says who has each bucket, `weights` how many packets of it wait at its owner; with
/// none known all weigh alike. Nothing moves unless some member is above `threshold_percent`, and
/// another below it and at most half as busy.
pub fn moves(
    owners: &[Option<usize>; BUCKETS],
    loads: &[Load],
    weights: &[u64; BUCKETS],
    threshold_percent: u8,
) -> Vec<(usize, usize)> {
    let busiest = (0..loads.len()).max_by_key(|member| loads[*member].percent);
    let idlest = (0..loads.len()).min_by_key(|member| loads[*member].percent);
    let (Some(from), Some(to)) = (busiest, idlest) else {
        return Vec::new();
    };
    let threshold = u32::from(threshold_percent);
    let (busy, idle) = (loads[from].percent, loads[to].percent);
    if busy <= threshold || idle > threshold || idle.saturating_mul(2) > busy {
        return Vec::new();
    }
    let mut own: Vec<usize> = (0..BUCKETS)
        .filter(|bucket| owners[*bucket] == Some(from))
        .collect();
    let is_known = own.iter().any(|bucket| weights[*bucket] > 0);
    let weight = |bucket: usize| if is_known { weights[bucket] } else { 1 };
    own.retain(|bucket| weight(*bucket) > 0);
    own.sort_by_key(|bucket| std::cmp::Reverse(weight(*bucket)));
    let all: u64 = own.iter().map(|bucket| weight(*bucket)).sum();
    let stays = own
        .first()
        .filter(|bucket| weight(**bucket) * 2 > all)
        .copied();
    let movable = all - stays.map_or(0, weight);
    let most = (movable / STEP).max(1);
    let mut moved = 0;
    let mut chosen = Vec::new();
    for bucket in own {
        let fits = chosen.is_empty() || moved + weight(bucket) <= most;
        if Some(bucket) != stays && fits && moved < most {
            moved += weight(bucket);
            chosen.push((bucket, to));
        }
    }
    chosen
}

#[cfg(test)]
mod tests {
    use super::*;

    fn loads(percents: [u32; 3]) -> [Load; 3] {
        percents.map(|percent| Load { percent })
    }

    /// Member 0 has the first buckets, 1 and 2 the others by turns.
    fn owners(first: usize) -> [Option<usize>; BUCKETS] {
        std::array::from_fn(|at| Some(if at < first { 0 } else { 1 + at % 2 }))
    }

    #[test]
    fn nobody_moves_below_the_threshold_or_without_an_idle_member() {
        let weights = [1; BUCKETS];
        for percents in [[60, 0, 0], [90, 61, 70], [90, 46, 50]] {
            assert_eq!(moves(&owners(80), &loads(percents), &weights, 60), []);
        }
        assert_eq!(moves(&[None; BUCKETS], &[], &weights, 60), []);
    }

    #[test]
    fn a_part_of_the_load_goes_to_the_idlest() {
        let moved = moves(&owners(80), &loads([90, 20, 10]), &[3; BUCKETS], 60);
        assert_eq!(moved.len(), 20);
        assert!(moved.iter().all(|(bucket, to)| *bucket < 80 && *to == 2));
        let unknown = moves(&owners(80), &loads([90, 20, 10]), &[0; BUCKETS], 60);
        assert_eq!(unknown.len(), 20, "without weights all weigh alike");
    }

    #[test]
    fn an_elephant_stays_and_its_neighbours_go() {
        let mut weights = [1; BUCKETS];
        weights[7] = 1000;
        let moved = moves(&owners(80), &loads([90, 20, 10]), &weights, 60);
        assert_eq!(moved.len(), 19);
        assert!(moved.iter().all(|(bucket, _)| *bucket != 7));
        assert_eq!(moves(&owners(1), &loads([90, 1, 1]), &weights, 60), []);
        assert_eq!(moves(&owners(8), &loads([90, 1, 1]), &weights, 60).len(), 1);
    }
}
