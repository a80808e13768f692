// SPDX-License-Identifier: MIT OR Apache-2.0
//! Timed runs of a loaded filter, which check its estimated time.
//!
//! A run takes one path through the filter, and the estimate is for the longest path. So the runs show
//! only that an estimate is too small: where the weights do not fit the processor or the kernel.
//!
//! Invariants
//! - All runs for a filter together take a few milliseconds, and about ten where it seems too slow.
//! - The filter is compared with a reference that runs between the filter's runs, for about as long, so
//!   that a slow or busy machine, or one that receives packets meanwhile, refuses no filter.
//! - Other work on the machine makes a run longer, never shorter: a filter that seems too slow is run
//!   again, and one short run takes the doubt away.

use std::io;
use std::os::fd::{AsFd as _, BorrowedFd, OwnedFd};

use libbpf_rs::libbpf_sys::BPF_TCX_INGRESS;
use ringtap_filter::ebpf::FilterHook;
use ringtap_filter::{FilterTime, Instruction, PACKET_NS, Program as Filter};

use crate::program::{self, LoadedProgram, NotLoaded, ProgramKind};
use crate::splice::{RawInsn, translate};
use crate::trial::FilterRefusal;

/// Calls the function that follows for the whole packet without a tag, and returns its result. The
/// verifier knows neither the length nor the tag: a field that is 0 in timed runs.
const XDP_CALLER: [RawInsn; 7] = [
    0x1261,        // r2 = the packet's start
    0x0004_1461,   // r4 = the packet's end
    0x241f,        // r4 -= r2
    0x43bf,        // r3 = r4
    0x0010_1261,   // r2 = the receive queue
    0x1_0000_1085, // call the function
    0x95,          // exit
];
const TC_CALLER: [RawInsn; 5] = [
    0x1461,        // r4 = the packet's length
    0x43bf,        // r3 = r4
    0x0008_1261,   // r2 = the mark
    0x1_0000_1085, // call the function
    0x95,          // exit
];

/// Time of the reference on the machine of the weights, in nanoseconds.
const REFERENCE_NS: u32 = 38;
/// Repetitions in the reference. The verifier takes 100 µs for each.
const REFERENCE_LENGTH: usize = 32;
/// Rounds of which the shortest run counts.
const ROUNDS: usize = 5;
/// The rounds of a filter that seems too slow after these.
const ROUNDS_IN_DOUBT: usize = 40;
/// Aim for the time of all runs of a round together, in nanoseconds.
const ROUND_NS: u32 = 100_000;
const MAX_RUNS: u16 = 1000;
/// A filter may take this many times its estimate, in halves, and [`SLACK`] more: processors differ from
/// that of the weights.
const TOLERATED_HALVES: u32 = 3;
/// About 20 nanoseconds: the call, and the error of a timed run. More than most filters take.
const SLACK: FilterTime = FilterTime::from_percent(15);

/// Timed runs take place here for all hooks: the code of a filter is the same but for how it finds the
/// packet, and after each run of an XDP program the kernel waits for all processors twice.
pub(crate) const TIMED_HOOK: FilterHook = FilterHook::Tc;

/// Programs with which timed runs are compared.
pub(crate) struct Timing {
    /// Takes every packet without a look at it.
    nothing: OwnedFd,
    reference: OwnedFd,
    packet: Vec<u8>,
}

/// Nanoseconds of a run of each program.
#[derive(Clone, Copy)]
struct Round {
    nothing: u32,
    reference: u32,
    filter: u32,
}

/// A filter that is loaded alone.
pub(crate) struct LoadedFilter {
    pub(crate) program: LoadedProgram,
    /// Number of eBPF instructions.
    pub(crate) length: usize,
}

/// Loads one filter as a program.
pub(crate) fn load_alone(filter: &Filter, hook: FilterHook) -> Result<LoadedFilter, NotLoaded> {
    let (mut insns, kind) = match hook {
        FilterHook::Xdp => (XDP_CALLER.to_vec(), ProgramKind::xdp("rt_filter", None)),
        FilterHook::Tc => (
            TC_CALLER.to_vec(),
            ProgramKind::tc("rt_filter", BPF_TCX_INGRESS),
        ),
    };
    insns.extend(translate(std::slice::from_ref(filter), hook)?);
    Ok(LoadedFilter {
        program: program::load(kind, &insns)?,
        length: insns.len(),
    })
}

impl Timing {
    /// Loads the programs.
    pub(crate) fn new() -> Result<Self, NotLoaded> {
        let load =
            |filter: &Filter| load_alone(filter, TIMED_HOOK).map(|loaded| loaded.program.program);
        Ok(Timing {
            nothing: load(&Filter::everything())?,
            reference: load(&reference())?,
            packet: packet(),
        })
    }

    /// Checks a filter's estimated time.
    ///
    /// # Errors
    ///
    /// [`FilterRefusal::TimedRun`]: the filter takes longer.
    pub(crate) fn check(
        &self,
        filter: BorrowedFd<'_>,
        estimate: FilterTime,
    ) -> Result<(), FilterRefusal> {
        // Where the kernel runs no test, the estimate alone counts.
        match slower(tolerated(estimate), || self.round(filter)) {
            Ok(Some(measured)) => Err(FilterRefusal::TimedRun { measured, estimate }),
            Ok(None) | Err(_) => Ok(()),
        }
    }

    /// Nanoseconds of a run of each program.
    fn round(&self, filter: BorrowedFd<'_>) -> io::Result<Round> {
        let run = |program: BorrowedFd<'_>, times| program::run(program, &self.packet, times);
        let fits = |ns: u32| u16::try_from(ROUND_NS / ns.max(1)).unwrap_or(MAX_RUNS);
        let times = |program| run(program, 1).map(|ns| fits(ns).clamp(1, MAX_RUNS));
        let time = |program| run(program, times(program)?);
        Ok(Round {
            nothing: time(self.nothing.as_fd())?,
            reference: time(self.reference.as_fd())?,
            filter: time(filter)?,
        })
    }
}

impl Round {
    /// The shortest run of each program in both.
    fn shortest(self, other: Self) -> Self {
        Round {
            nothing: self.nothing.min(other.nothing),
            reference: self.reference.min(other.reference),
            filter: self.filter.min(other.filter),
        }
    }

    /// The time of the filter, without the call.
    fn time(self) -> FilterTime {
        let longer = |ns: u32| u64::from(ns.saturating_sub(self.nothing));
        let reference = longer(self.reference).max(1);
        let time = 1000 * longer(self.filter) * u64::from(REFERENCE_NS)
            / (reference * u64::from(PACKET_NS));
        FilterTime::from_thousandths(u32::try_from(time).unwrap_or(u32::MAX))
    }
}

/// The measured time of a filter that takes longer than `limit`.
fn slower(
    limit: FilterTime,
    mut round: impl FnMut() -> io::Result<Round>,
) -> io::Result<Option<FilterTime>> {
    let mut shortest = round()?;
    for done in 1..ROUNDS_IN_DOUBT {
        if done >= ROUNDS && shortest.time() <= limit {
            return Ok(None);
        }
        shortest = shortest.shortest(round()?);
    }
    let time = shortest.time();
    Ok((time > limit).then_some(time))
}

/// The longest time of a timed run that shows no error of the estimate.
const fn tolerated(estimate: FilterTime) -> FilterTime {
    estimate.halves(TOLERATED_HALVES).and(SLACK)
}

/// Loads, comparisons and calculations, as filters have them.
fn reference() -> Filter {
    let part = [
        Instruction::new(0x50, 0, 0, 12),
        Instruction::new(0x15, 0, 1, 1),
        Instruction::new(0x04, 0, 0, 3),
    ];
    let end = [Instruction::new(0x06, 0, 0, 1)];
    let instructions = [&part.repeat(REFERENCE_LENGTH)[..], &end].concat();
    Filter::new(&instructions).unwrap_or_else(|_| Filter::everything())
}

/// A packet of TCP over IPv4, 1,514 bytes.
fn packet() -> Vec<u8> {
    let mut packet = vec![2; 12];
    packet.extend([8, 0, 0x45, 0, 5, 220, 0, 0, 0, 0, 64, 6]);
    packet.resize(1514, 0);
    packet
}

#[cfg(test)]
mod tests {
    use ringtap_testkit::require_root;

    use super::*;

    fn filter(body: Instruction, times: usize) -> Filter {
        let end = [Instruction::new(0x06, 0, 0, 1)];
        Filter::new(&[&vec![body; times][..], &end].concat()).unwrap()
    }

    const INDEXED: Instruction = Instruction::new(0x50, 0, 0, 100);

    #[test]
    fn short_filters_may_take_a_few_nanoseconds_more_and_long_ones_half_as_much_again() {
        // "icmp or arp" on an AMD EPYC: estimated 9.6 %, measured 18.3 %.
        let of = FilterTime::from_thousandths;
        assert!(tolerated(of(96)) >= of(183));
        assert!(tolerated(of(96)) < of(300));
        assert_eq!(tolerated(of(1000)), of(1650));
    }

    #[test]
    fn other_work_on_the_machine_refuses_no_filter_and_a_slow_one_is_refused() {
        // "ip6 and udp port 546" on a busy machine: estimated 13.6 %, measured 63.3 %.
        let limit = tolerated(FilterTime::from_thousandths(136));
        let rounds_of = |busy: usize| {
            let mut rounds = 0;
            let result = slower(limit, || {
                rounds += 1;
                let filter = if rounds <= busy { 90 } else { 28 };
                Ok(Round {
                    nothing: 20,
                    reference: 58,
                    filter,
                })
            });
            (rounds, result.unwrap().is_some())
        };
        assert_eq!(rounds_of(0), (ROUNDS, false));
        assert_eq!(rounds_of(30), (31, false));
        assert_eq!(rounds_of(ROUNDS_IN_DOUBT), (ROUNDS_IN_DOUBT, true));
    }

    #[test]
    fn a_filter_that_takes_longer_than_its_estimate_is_left_out_with_both_figures() {
        require_root!();
        let timing = Timing::new().unwrap();
        let check = |filter: &Filter, estimate| {
            let loaded = load_alone(filter, TIMED_HOOK).unwrap();
            timing.check(loaded.program.program.as_fd(), estimate)
        };
        let heavy = filter(INDEXED, 500);
        // As if the weights were those of a processor with loads ten times as fast.
        let refusal = check(&heavy, FilterTime::from_percent(100)).unwrap_err();
        let reason = refusal.to_string();
        assert!(
            reason.contains("the estimate") && reason.contains("100.0 %"),
            "{reason}"
        );
        assert_eq!(check(&heavy, heavy.longest_time().unwrap()), Ok(()));
    }
}
