// SPDX-License-Identifier: MIT OR Apache-2.0
//! A capture: packets by one call or in a loop, its filter, its counters.
#![deny(unsafe_code)]

mod outlet;
#[expect(unsafe_code, reason = "bytes that a lender lent out by address")]
mod reading;
mod statistics;

use std::ffi::c_int;
use std::sync::atomic::{AtomicBool, AtomicI32, AtomicU64, Ordering::*};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use ringtap_client::{Connection, Control as _, Found, Lender, Patience, ReceiveError};
use ringtap_filter::{Instruction, Program};
use ringtap_ipc::event::sleep_until_readable;
use ringtap_ipc::protocol::MOST_INSTRUCTIONS;
use ringtap_ipc::subscription::Wanted;

use crate::abi::{DIRECTION_INOUT, ERROR_BREAK, PacketHeader, Statistics};
use crate::error::Refused;
use crate::handle::PcapHandle;
use crate::helper::Stay;
use crate::real::is_set;
use outlet::Outlet;
use reading::{Keep, Manner, Reading};

/// How long a loop without blocking rests when nothing comes: the manual lets it spin.
const REST: Duration = Duration::from_millis(1);
/// Class of a return, and its operand, in classic BPF.
const CLASS: u16 = 0x07;
const RETURN: u16 = 0x06;
const RETURN_CONSTANT: u16 = 0x06;

/// What a capture is, for those who ask.
pub(crate) struct Facts {
    /// As the program named it.
    pub(crate) name: String,
    /// The one network interface behind it, if there is one.
    pub(crate) interface: Option<String>,
    pub(crate) dlt: c_int,
    pub(crate) snap_bytes: u32,
    pub(crate) nanoseconds: bool,
    pub(crate) timeout: Option<Duration>,
    /// Its end is the end of a file, no failure.
    pub(crate) is_file: bool,
}

/// A running capture.
pub(crate) struct Live {
    pub(crate) facts: Facts,
    reading: Reading,
    connection: Arc<Connection>,
    nonblock: AtomicBool,
    direction: AtomicI32,
    delivered: AtomicU64,
    /// Somebody has the descriptor, and may wait for it.
    watched: AtomicBool,
    /// A filter that was set while another thread, or an outer call, was reading.
    mail: Mutex<Option<Mail>>,
    has_mail: AtomicBool,
    outlet: Outlet,
    stay: Stay,
}

struct Mail {
    filter: Program,
    wanted: Vec<Wanted>,
    keep: Keep,
}

/// How a read waits when nothing is at hand.
#[derive(Clone, Copy, Debug)]
struct Waiting {
    deadline: Option<Instant>,
    /// The descriptor was readable, so somebody may have waited for it.
    was_called: bool,
}

/// What decides whether a read that found nothing is over.
struct Over {
    until: Until,
    count: u64,
    too_early: bool,
    deadline: Option<Instant>,
}

/// When a read returns.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Until {
    /// When some packets were given out, or the time is over.
    Batch,
    /// When all that were asked for were.
    Enough,
}

impl Live {
    pub(crate) fn new(
        facts: Facts,
        lender: Lender,
        connection: Arc<Connection>,
        stay: Stay,
        nonblock: bool,
    ) -> Self {
        Live {
            outlet: Outlet::new(facts.interface.as_deref().unwrap_or_default()),
            reading: Reading::new(lender, facts.snap_bytes, is_set("RINGTAP_IN_PLACE")),
            facts,
            connection,
            nonblock: AtomicBool::new(nonblock),
            direction: AtomicI32::new(DIRECTION_INOUT),
            delivered: AtomicU64::new(0),
            watched: AtomicBool::new(false),
            mail: Mutex::new(None),
            has_mail: AtomicBool::new(false),
            stay,
        }
    }

    /// Gives out at most `most` packets; how many, or why none.
    ///
    /// `each` may call anything of this handle; what it is given lasts until the next read.
    pub(crate) fn read(
        &self,
        handle: &PcapHandle,
        until: Until,
        most: Option<u64>,
        mut each: impl FnMut(&PacketHeader, *const u8),
    ) -> Result<c_int, Refused> {
        let entered = self.reading.enter().ok_or_else(busy)?;
        let token = handle.token();
        let mut count = 0_u64;
        // Known once there is nothing at hand: most calls find something.
        let mut waiting: Option<Waiting> = None;
        loop {
            loop {
                if token.take_break() || handle.is_closed() {
                    return Ok(ERROR_BREAK);
                }
                self.read_mail(&entered)?;
                let manner = self.manner();
                let packet = entered.with(|inside| inside.next(&manner));
                let Some((header, data)) = packet.ok_or_else(busy)? else {
                    break;
                };
                count += 1;
                self.delivered.fetch_add(1, Relaxed);
                each(&header, data);
                if most == Some(count) {
                    self.call_again_if_more(&entered)?;
                    return Ok(number(count, until));
                }
            }
            if until == Until::Batch && count > 0 {
                self.call_again_if_more(&entered)?;
                return Ok(number(count, until));
            }
            let first = waiting.is_none();
            let Waiting {
                deadline,
                was_called,
            } = *waiting.get_or_insert_with(|| self.waiting(until, &entered));
            // Whoever waited for the descriptor is not made to wait here for what it told too early.
            let too_early = first && was_called;
            let patience = match too_early {
                true => Patience::None,
                false => self.patience(until, deadline),
            };
            let found = entered.with(|inside| inside.lender.find(patience, token.stop()));
            if !matches!(found, Some(Ok(Found::Packets))) {
                let over = Over {
                    until,
                    count,
                    too_early,
                    deadline,
                };
                if let Some(status) = self.without_packets(handle, found, &over)? {
                    return Ok(status);
                }
            }
        }
    }

    /// What a read returns that found no packets, if it is over.
    #[cold]
    fn without_packets(
        &self,
        handle: &PcapHandle,
        found: Option<Result<Found, ReceiveError>>,
        over: &Over,
    ) -> Result<Option<c_int>, Refused> {
        let found = found.ok_or_else(busy)?;
        // Whoever closed the handle ended its stay, too.
        if found.is_err() && handle.is_closed() {
            return Ok(Some(ERROR_BREAK));
        }
        Ok(match found.map_err(|error| self.failed(error.into()))? {
            Found::Packets => None,
            Found::Nothing if handle.token().take_break() || handle.is_closed() => {
                Some(ERROR_BREAK)
            }
            Found::Nothing if over.until == Until::Enough => None,
            Found::Nothing if over.too_early => Some(0),
            Found::Nothing if self.is_over(over.deadline) => Some(0),
            Found::Nothing => None,
            Found::Ended if handle.is_closed() => Some(ERROR_BREAK),
            Found::Ended => Some(self.end(over.until, over.count)?),
        })
    }

    fn waiting(&self, until: Until, entered: &reading::Entered<'_>) -> Waiting {
        match until {
            Until::Enough => Waiting {
                deadline: None,
                was_called: false,
            },
            Until::Batch => Waiting {
                deadline: self.facts.timeout.map(|timeout| Instant::now() + timeout),
                was_called: self.is_descriptor_readable(entered),
            },
        }
    }

    fn patience(&self, until: Until, deadline: Option<Instant>) -> Patience {
        match (self.nonblock.load(Relaxed), until) {
            (true, Until::Batch) => Patience::None,
            (true, Until::Enough) => Patience::Until(Instant::now() + REST),
            (false, _) => deadline.map_or(Patience::Endless, Patience::Until),
        }
    }

    fn is_over(&self, deadline: Option<Instant>) -> bool {
        self.nonblock.load(Relaxed) || deadline.is_some_and(|deadline| Instant::now() >= deadline)
    }

    fn manner(&self) -> Manner<'_> {
        Manner {
            snap_bytes: self.facts.snap_bytes,
            nanoseconds: self.facts.nanoseconds,
            direction: self.direction.load(Relaxed),
            outlet: &self.outlet,
        }
    }

    /// The end of the source: of a file, or why there is no more.
    fn end(&self, until: Until, count: u64) -> Result<c_int, Refused> {
        if self.facts.is_file {
            return match until {
                Until::Enough => Ok(number(count, until)),
                Until::Batch => Ok(ERROR_BREAK),
            };
        }
        let snapshot = self.connection.snapshot().ok();
        let sources = snapshot.into_iter().flat_map(|snapshot| snapshot.sources);
        let failure = sources.into_iter().find_map(|source| source.failure);
        Err(Refused::general(failure.unwrap_or_else(|| {
            format!("{}: the capture was ended", self.facts.name)
        })))
    }

    fn failed(&self, error: Refused) -> Refused {
        Refused::general(format!("{}: {}", self.facts.name, error.text))
    }

    /// A descriptor that is waited for stays readable while packets are at hand.
    fn call_again_if_more(&self, entered: &reading::Entered<'_>) -> Result<(), Refused> {
        if self.watched.load(Relaxed) {
            entered
                .with(|inside| inside.lender.look_again_at_once())
                .transpose()?;
        }
        Ok(())
    }

    fn is_descriptor_readable(&self, entered: &reading::Entered<'_>) -> bool {
        if !self.watched.load(Relaxed) || self.nonblock.load(Relaxed) {
            return false;
        }
        let readable = entered.with(|inside| {
            let fd = inside.lender.watched()?;
            sleep_until_readable(&[fd], Some(Duration::ZERO)).ok()
        });
        readable.flatten().unwrap_or(false)
    }

    /// What `pcap_next_ex` points to; filled by whoever reads.
    pub(crate) fn keep_header(&self, header: &PacketHeader) -> Option<*mut PacketHeader> {
        let entered = self.reading.enter()?;
        entered.with(|inside| {
            *inside.header = *header;
            &raw mut *inside.header
        })
    }

    /// What becomes readable when there is something to be read.
    pub(crate) fn descriptor(&self) -> Result<c_int, Refused> {
        let entered = self.reading.enter().ok_or_else(busy)?;
        let fd = entered.with(|inside| inside.lender.descriptor());
        let fd = fd.ok_or_else(busy)??;
        self.watched.store(true, Relaxed);
        Ok(fd)
    }

    /// Changes the filter, in the kernel where the source can; packets that are read after this
    /// returned pass it.
    pub(crate) fn set_filter(&self, instructions: &[Instruction]) -> Result<c_int, Refused> {
        let filter = Program::new(instructions)
            .map_err(|error| Refused::general(format!("BPF program is not valid: {error}")))?;
        let mut keep = self.keep_of(&filter);
        let asked = match instructions.len() <= MOST_INSTRUCTIONS {
            true => filter,
            false => {
                keep.program = Some(filter);
                Program::everything()
            }
        };
        let wanted = self.connection.set_filter(&asked)?;
        *self.mail.lock().unwrap_or_else(PoisonError::into_inner) = Some(Mail {
            filter: asked,
            wanted,
            keep,
        });
        self.has_mail.store(true, Release);
        // Whoever reads now finds it before its next packet.
        if let Some(entered) = self.reading.enter() {
            self.read_mail(&entered)?;
        }
        Ok(0)
    }

    fn keep_of(&self, filter: &Program) -> Keep {
        let cuts = |instruction: &Instruction| {
            let whole = instruction.k == 0 || instruction.k >= self.facts.snap_bytes;
            instruction.code & CLASS == RETURN && (instruction.code != RETURN_CONSTANT || !whole)
        };
        let cuts = filter.instructions().iter().any(cuts);
        Keep {
            program: cuts.then(|| filter.clone()),
        }
    }

    #[inline]
    fn read_mail(&self, entered: &reading::Entered<'_>) -> Result<(), Refused> {
        match self.has_mail.load(Relaxed) {
            true => self.take_mail(entered),
            false => Ok(()),
        }
    }

    #[cold]
    fn take_mail(&self, entered: &reading::Entered<'_>) -> Result<(), Refused> {
        let adopted = entered.with(|inside| {
            // Pairs with the store in `set_filter`.
            self.has_mail.swap(false, Acquire);
            let mail = self
                .mail
                .lock()
                .unwrap_or_else(PoisonError::into_inner)
                .take();
            let mail = mail.map(|mail| inside.adopt(&mail.filter, &mail.wanted, mail.keep));
            mail.transpose()
        });
        adopted.transpose()?;
        Ok(())
    }

    /// Nobody will read any more.
    pub(crate) fn end_stay(&self) {
        self.stay.end();
    }

    pub(crate) fn set_nonblock(&self, on: bool) {
        self.nonblock.store(on, Relaxed);
    }

    pub(crate) fn nonblock(&self) -> bool {
        self.nonblock.load(Relaxed)
    }

    pub(crate) fn set_direction(&self, direction: c_int) {
        self.direction.store(direction, Relaxed);
    }

    /// Packets that passed the filter since the capture began, and those lost of them.
    pub(crate) fn statistics(&self) -> Result<Statistics, Refused> {
        let snapshot = self.connection.snapshot();
        let snapshot = snapshot.map_err(|error| self.failed(error.into()))?;
        Ok(statistics::of(
            self.delivered.load(Relaxed),
            &snapshot.sources,
        ))
    }
}

impl Live {
    /// Sends a packet as it is; how many bytes it had.
    pub(crate) fn inject(&self, packet: &[u8]) -> Result<c_int, Refused> {
        let interface = self.facts.interface.as_deref();
        let interface = interface.ok_or_else(|| {
            let name = &self.facts.name;
            Refused::general(format!("{name}: there is no one interface to send by"))
        })?;
        let sent = self.outlet.send(packet).map_err(|why| {
            // libpcap's words begin with the call that failed.
            let is_of_a_call = why.starts_with("send: ");
            Refused::general(if is_of_a_call {
                why
            } else {
                format!("{interface}: {why}")
            })
        })?;
        Ok(c_int::try_from(sent).unwrap_or(c_int::MAX))
    }
}

/// What a read that ended well returns.
fn number(count: u64, until: Until) -> c_int {
    match until {
        Until::Batch => c_int::try_from(count).unwrap_or(c_int::MAX),
        Until::Enough => 0,
    }
}

fn busy() -> Refused {
    Refused::general(
        "another thread is reading from this handle: use a handle in one thread at a time",
    )
}
