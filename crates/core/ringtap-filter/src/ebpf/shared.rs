// SPDX-License-Identifier: MIT OR Apache-2.0
//! Shares equal beginnings of filters: common loads and comparisons run once.
//!
//! Filters with the same path so far have the same A and X. Filters whose next instructions, up to
//! a jump on the same condition, are equal share them, and then both branches of the jump.
//!
//! Invariants
//! - A group falls through to the code behind it, with the bits of matching filters set.
//! - The remaining work is a list, not the call stack: a deep filter cannot exhaust the stack.
//! - The work ends when the code is full ([`Assembler::is_full`]).
//! - Instructions on scratch memory are not shared: each filter has its own.
//! - Where a group splits, A and X are saved for the filters that still need them.

use std::collections::BTreeMap;
use std::ops::Range;

use super::assembler::{Assembler, Label};
use super::facts::{Needed, Written};
use super::filter::{self, FilterFacts, Step, Translator, condition, operand};
use super::frame::{A, Frame, X};
use super::insn::{Cond, Width};
use super::kept::Kept;
use super::load::{self, Slow};
use crate::program::{Instruction, code, is_outside};

/// A filter and its next instruction.
#[derive(Clone, Copy)]
struct FilterAt<'a> {
    filter: &'a FilterFacts<'a>,
    at: usize,
}

/// State of a path.
#[derive(Clone, Copy)]
struct Path {
    written: Written,
    /// Number of stack slots in use for A and X.
    saved: usize,
}

/// Instructions that some filters share.
struct Row<'a> {
    members: Vec<FilterAt<'a>>,
    /// Number of instructions that are not jumps.
    length: usize,
    ending: Ending,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Ending {
    /// A jump with this code and constant.
    Jump(u16, u32),
    /// A return, or a jump that is always taken.
    Leads,
    /// An instruction that cannot be shared.
    Alone,
}

/// Stack slots from which a row takes A and X.
#[derive(Clone, Copy)]
struct Restored {
    a: Option<usize>,
    x: Option<usize>,
}

/// Code that is still to be emitted.
enum Task<'a> {
    /// Filters with the same path so far.
    Group(Vec<FilterAt<'a>>, Path),
    /// One row of a group.
    Row(Row<'a>, Path, Restored),
    /// A jump.
    Go(Label),
    /// The place of a label.
    Place(Label),
    /// Slow paths, and the label behind them.
    Slow(Vec<Slow>, Label),
}

pub(super) struct GroupEmitter<'a> {
    to: &'a mut Assembler,
    frame: &'a Frame,
    kept: &'a Kept,
    /// Number of instructions after which nothing is shared.
    most: usize,
}

impl<'a> GroupEmitter<'a> {
    pub(super) fn new(
        to: &'a mut Assembler,
        frame: &'a Frame,
        kept: &'a Kept,
        most: usize,
    ) -> Self {
        Self {
            to,
            frame,
            kept,
            most,
        }
    }

    /// Emits all filters from their first instruction.
    pub(super) fn emit(&mut self, filters: &'a [FilterFacts<'a>]) {
        let members = filters.iter().map(|filter| FilterAt { filter, at: 0 });
        let path = Path {
            written: Written::NOTHING,
            saved: 0,
        };
        let mut tasks = vec![Task::Group(members.collect(), path)];
        while let Some(task) = tasks.pop() {
            if self.to.is_full() {
                return;
            }
            match task {
                Task::Group(members, path) => self.emit_group(members, path, &mut tasks),
                Task::Row(row, path, restored) => {
                    self.restore(restored);
                    self.emit_row(row, path, &mut tasks);
                }
                Task::Go(to) => self.to.go(to),
                Task::Place(label) => self.to.place(label),
                Task::Slow(loads, end) => self.emit_slow(loads, end),
            }
        }
    }

    fn emit_group(
        &mut self,
        members: Vec<FilterAt<'a>>,
        mut path: Path,
        tasks: &mut Vec<Task<'a>>,
    ) {
        let mut bits = 0_u64;
        let mut left = Vec::new();
        for member in members {
            match member.filter.step(member.at) {
                Step::Accept => bits |= 1 << member.filter.number,
                Step::Reject => {}
                Step::At(at) => left.push(FilterAt { at, ..member }),
            }
        }
        if bits != 0 {
            self.frame.set_bits(self.to, bits);
        }
        let can_share = self.can_save(path) && self.to.length() < self.most;
        let rows = rows(left, can_share);
        let later = rows
            .iter()
            .skip(1)
            .map(|row| row.needed().written(path.written));
        let later = later.fold(Needed::default(), Needed::or);
        let place = path.saved + self.kept.count();
        if later.a() || later.x() {
            path.saved += 2;
        }
        if later.a() {
            self.frame.save(self.to, place, A);
        }
        if later.x() {
            self.frame.save(self.to, place + 1, X);
        }
        let first_task = tasks.len();
        for (number, row) in rows.into_iter().enumerate() {
            let needed = row.needed().written(path.written);
            let restored = Restored {
                a: (number > 0 && needed.a()).then_some(place),
                x: (number > 0 && needed.x()).then_some(place + 1),
            };
            tasks.push(Task::Row(row, path, restored));
        }
        // The list is emptied from its end.
        tasks[first_task..].reverse();
    }

    /// Whether A and X can be saved once more.
    fn can_save(&self, path: Path) -> bool {
        self.kept.count() + path.saved + 4 <= self.frame.kept_places()
    }

    fn restore(&mut self, restored: Restored) {
        if let Some(place) = restored.a {
            self.frame.load_kept(self.to, A, place);
        }
        if let Some(place) = restored.x {
            self.frame.load_kept(self.to, X, place);
        }
    }

    fn emit_row(&mut self, row: Row<'a>, mut path: Path, tasks: &mut Vec<Task<'a>>) {
        let Some(&FilterAt { filter, at }) = row.members.first() else {
            return;
        };
        if row.members.len() == 1 || row.ending == Ending::Alone {
            for member in row.members {
                let start = (member.at, path.written);
                filter::translate(self.to, self.frame, self.kept, member.filter, start);
            }
            return;
        }
        filter::clear(self.to, self.frame, row.needed().unwritten(path.written));
        let end = self.to.label();
        let range = at..at + row.length;
        let x_is_needed = row.needs_x_inside();
        let instructions = &filter.instructions()[range.clone()];
        path.written = instructions.iter().fold(path.written, Written::and);
        let translator = Translator::new(self.to, self.frame, self.kept, filter, (end, end));
        let slow = translator.emit_row(range, x_is_needed);
        tasks.push(Task::Place(end));
        if !slow.is_empty() {
            tasks.push(Task::Slow(slow, end));
        }
        match row.ending {
            Ending::Jump(code, k) => self.emit_jump(&row, (code, k), path, (end, tasks)),
            Ending::Leads | Ending::Alone => tasks.push(Task::Group(row.at_end(), path)),
        }
    }

    /// Emits a shared jump; both of its branches are tasks.
    fn emit_jump(
        &mut self,
        row: &Row<'a>,
        (code, k): (u16, u32),
        path: Path,
        (end, tasks): (Label, &mut Vec<Task<'a>>),
    ) {
        let when_true = row.behind(|jump| jump.jump_true);
        let when_false = row.behind(|jump| jump.jump_false);
        let (operand, (cond, opposite)) = (operand(code, k), condition(code));
        let mut branch = |cond: Cond, to: Label| {
            self.to.branch(Width::W32, cond, A, operand, to);
        };
        if reject(&when_true) {
            branch(cond, end);
            tasks.push(Task::Group(when_false, path));
        } else if let Some(opposite) = opposite.filter(|_| reject(&when_false)) {
            branch(opposite, end);
            tasks.push(Task::Group(when_true, path));
        } else {
            let holds = self.to.label();
            self.to.branch(Width::W32, cond, A, operand, holds);
            tasks.extend([
                Task::Group(when_true, path),
                Task::Place(holds),
                Task::Go(end),
                Task::Group(when_false, path),
            ]);
        }
    }

    /// Emits the slow paths of a row's loads, behind the row.
    fn emit_slow(&mut self, loads: Vec<Slow>, end: Label) {
        self.to.go(end);
        for slow in loads {
            load::load_slowly(self.to, self.frame, slow, end);
        }
    }
}

fn reject(members: &[FilterAt<'_>]) -> bool {
    let mut steps = members.iter().map(|member| member.filter.step(member.at));
    steps.all(|step| step == Step::Reject)
}

/// Filters with equal values share a row: the ending, and code and constant of each instruction.
type Alike = (Ending, Vec<(u16, u32)>);

/// Groups the members by equal rows, in order of the first member of each.
fn rows(members: Vec<FilterAt<'_>>, can_share: bool) -> Vec<Row<'_>> {
    let mut rows: Vec<Row<'_>> = Vec::new();
    let mut known = BTreeMap::<Alike, usize>::new();
    for member in members {
        let (range, ending) = row_of(member);
        let ending = if can_share { ending } else { Ending::Alone };
        let instructions = &member.filter.instructions()[range.clone()];
        let alike = (
            ending,
            instructions.iter().map(|one| (one.code, one.k)).collect(),
        );
        let next = rows.len();
        let place = match ending {
            Ending::Alone => next,
            _ => *known.entry(alike).or_insert(next),
        };
        match rows.get_mut(place) {
            Some(row) => row.members.push(member),
            None => rows.push(Row {
                members: vec![member],
                length: range.len(),
                ending,
            }),
        }
    }
    rows
}

/// The instructions up to the next jump or return, and how they end.
fn row_of(member: FilterAt<'_>) -> (Range<usize>, Ending) {
    let instructions = member.filter.instructions();
    let mut at = member.at;
    loop {
        let ending = match instructions.get(at) {
            None => Ending::Alone,
            Some(one) => match one.code {
                code::RETURN_A | code::LD_MEM | code::LDX_MEM | code::ST | code::STX => {
                    Ending::Alone
                }
                code::RETURN_CONSTANT | code::JA => Ending::Leads,
                code if code & code::CLASS == code::CLASS_JMP => Ending::Jump(code, one.k),
                _ if is_outside(one) => Ending::Alone,
                _ => {
                    at += 1;
                    continue;
                }
            },
        };
        return (member.at..at, ending);
    }
}

impl<'a> Row<'a> {
    /// Registers that the members need from before the row.
    fn needed(&self) -> Needed {
        let needed = self.members.iter().map(|one| one.filter.needed[one.at]);
        needed.fold(Needed::default(), Needed::or)
    }

    /// Whether some member needs the X that the row computes, in the row or behind it.
    fn needs_x_inside(&self) -> bool {
        self.members.iter().any(|member| {
            let behind = member.at + 1..=member.at + self.length;
            let needed = behind.map(|at| member.filter.needed.get(at));
            needed.flatten().any(|needed| needed.x())
        })
    }

    /// The members after the final jump.
    fn behind(&self, skip: fn(&Instruction) -> u8) -> Vec<FilterAt<'a>> {
        let behind = |member: &FilterAt<'a>| {
            let at = member.at + self.length;
            let jump = member.filter.instructions().get(at);
            FilterAt {
                at: at + 1 + usize::from(jump.map_or(0, skip)),
                ..*member
            }
        };
        self.members.iter().map(behind).collect()
    }

    /// The members at the final instruction.
    fn at_end(&self) -> Vec<FilterAt<'a>> {
        let at_end = |member: &FilterAt<'a>| FilterAt {
            at: member.at + self.length,
            ..*member
        };
        self.members.iter().map(at_end).collect()
    }
}
