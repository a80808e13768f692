// SPDX-License-Identifier: MIT OR Apache-2.0
//! Copies of the tap's programs with rules in them, and which filters the verifier refuses.
//!
//! Invariants
//! - A filter that is left out takes everything in the kernel, and its place says why.
//! - A filter is left out when it cannot be translated, when the verifier refuses it beside those
//!   that were taken before, or when finding that out takes too long.
#![forbid(unsafe_code)]

use std::io;
use std::os::fd::OwnedFd;
use std::time::{Duration, Instant};

use ringtap_filter::Program as Filter;
use ringtap_filter::ebpf::{self, Hook, TranslateError};
use ringtap_pool::classify::Place;

use super::user::UserProgram;
use crate::tap::forward::Forward;
use crate::tap::home::Home;
use crate::tap::hook::Program;
use crate::tap::reload::{self, Refusal, Shape};
use crate::tap::splice::{Code, Insn, SpliceError};

/// `RT_NO_RULES`, `RT_FILTERS` and `RT_PROGRAMS`.
pub(crate) const MARK_RULES: u64 = 0x5254_5f52_554c_4553;
pub(crate) const MARK_FILTERS: u64 = 0x5254_5f46_494c_5453;
const MARK_PROGRAMS: u64 = 0x5254_5f50_524f_4753;

/// How long it may take to find out which filters do not fit: packets are judged by the rules
/// before meanwhile.
const MOST_SEARCH: Duration = Duration::from_secs(5);

/// What rules become in the kernel.
pub(super) struct Fit {
    /// One for each hook.
    pub(super) programs: Vec<OwnedFd>,
    /// One for each rule.
    pub(super) places: Vec<Place>,
}

/// Why a program cannot be had.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Unfit {
    #[error(transparent)]
    Splice(#[from] SpliceError),
    #[error(transparent)]
    Translate(#[from] TranslateError),
    #[error("the interface's network namespace cannot be entered: {0}")]
    Home(io::Error),
    #[error("{}", .0.reason())]
    Refused(Refusal),
}

impl Unfit {
    /// Whether another program might do; else something is in short supply.
    pub(super) fn is_of_the_program(&self) -> bool {
        match self {
            Unfit::Splice(_) | Unfit::Translate(_) => true,
            Unfit::Home(_) => false,
            Unfit::Refused(refusal) => refusal.is_of_the_program(),
        }
    }
}

/// What is put together.
pub(super) struct Parts<'a> {
    /// The tap's programs as they were loaded.
    pub(super) originals: &'a [(Program, Code)],
    /// Where the interface is, and its number there.
    pub(super) home: &'a Home,
    pub(super) interface: u32,
    /// What takes the place of `RT_NO_RULES`.
    pub(super) number: u32,
    pub(super) filters: &'a [Filter],
    pub(super) users: &'a [&'a UserProgram],
    /// Where packets go, captured or not.
    pub(super) forward: Option<&'a Forward>,
}

fn translate(filters: &[Filter], program: Program) -> Result<Vec<Insn>, TranslateError> {
    let hook = if program.is_xdp() {
        Hook::Xdp
    } else {
        Hook::Tc
    };
    let insns = ebpf::classify(filters, hook)?;
    Ok(insns.into_iter().map(|insn| insn.0).collect())
}

impl Parts<'_> {
    /// The instructions for one hook, with the filters that are `taken`.
    fn insns(&self, program: Program, original: &Code, taken: &[bool]) -> Result<Vec<Insn>, Unfit> {
        let filter = |(filter, taken): (&Filter, &bool)| match taken {
            true => filter.clone(),
            false => Filter::everything(),
        };
        let filters: Vec<_> = self.filters.iter().zip(taken).map(filter).collect();
        let mut code = original.clone();
        code.set_number(MARK_RULES, self.number.into())?;
        code.set_function(MARK_FILTERS, Code::parse(&translate(&filters, program)?)?)?;
        let users: Vec<_> = self
            .users
            .iter()
            .filter_map(|it| it.code(program))
            .collect();
        if !users.is_empty() {
            code.set_function(MARK_PROGRAMS, Code::choice(&users))?;
        }
        if let Some(forward) = self.forward {
            forward.put_into(&mut code, program)?;
        }
        Ok(code.to_insns()?)
    }

    fn load(&self, taken: &[bool]) -> Result<Vec<OwnedFd>, Unfit> {
        let load = |(program, original): &(Program, Code)| {
            let insns = self.insns(*program, original, taken)?;
            let shape = Shape::of(*program, self.interface);
            let load = || reload::load(&shape, &insns);
            let loaded = self.home.run(load).map_err(Unfit::Home)?;
            loaded.map_err(Unfit::Refused)
        };
        self.originals.iter().map(load).collect()
    }

    /// Where each filter runs, as far as that can be told without the kernel.
    fn places(&self) -> Vec<Place> {
        let place = |filter: &Filter| match translate(std::slice::from_ref(filter), Program::Rx) {
            Ok(_) => Place::Source,
            Err(error) => Place::Reader(error.to_string()),
        };
        self.filters.iter().map(place).collect()
    }
}

/// Loads programs with as many of the filters as the verifier takes.
pub(super) fn fit(parts: &Parts<'_>) -> Result<Fit, Unfit> {
    let places = parts.places();
    let wanted: Vec<_> = places.iter().map(|place| *place == Place::Source).collect();
    match parts.load(&wanted) {
        Ok(programs) => return Ok(Fit { programs, places }),
        Err(unfit) if !unfit.is_of_the_program() => return Err(unfit),
        Err(_) => {}
    }
    let none = vec![false; wanted.len()];
    let mut search = Search {
        parts,
        programs: parts.load(&none)?,
        taken: none,
        places,
        start: Instant::now(),
    };
    // The smallest first: as many as possible fit, and what takes long comes last.
    let mut order: Vec<_> = (0..wanted.len()).collect();
    order.sort_by_key(|rule| parts.filters[*rule].instructions().len());
    search.add(&order)?;
    Ok(Fit {
        programs: search.programs,
        places: search.places,
    })
}

struct Search<'a> {
    parts: &'a Parts<'a>,
    /// With the filters taken so far.
    programs: Vec<OwnedFd>,
    taken: Vec<bool>,
    places: Vec<Place>,
    start: Instant,
}

impl Search<'_> {
    /// Takes as many of these rules' filters as possible, halving them where not all fit.
    fn add(&mut self, rules: &[usize]) -> Result<(), Unfit> {
        let mut more = self.taken.clone();
        for rule in rules {
            more[*rule] = self.places[*rule] == Place::Source;
        }
        if more == self.taken {
            return Ok(());
        }
        let unfit = match self.parts.load(&more) {
            Ok(programs) => {
                self.programs = programs;
                self.taken = more;
                return Ok(());
            }
            Err(unfit) if unfit.is_of_the_program() => unfit,
            Err(unfit) => return Err(unfit),
        };
        if rules.len() == 1 || self.start.elapsed() > MOST_SEARCH {
            self.leave_out(rules, &unfit);
            return Ok(());
        }
        let (first, second) = rules.split_at(rules.len() / 2);
        self.add(first)?;
        self.add(second)
    }

    fn leave_out(&mut self, rules: &[usize], unfit: &Unfit) {
        let reason = format!("it does not fit into the tap's program: {unfit}");
        for rule in rules {
            let place = &mut self.places[*rule];
            if *place == Place::Source {
                *place = Place::Reader(reason.clone());
            }
        }
    }
}
