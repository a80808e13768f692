// SPDX-License-Identifier: MIT OR Apache-2.0
//! A running capture: reads and sends packets, sets the filter, returns the counters.
#![deny(unsafe_code)]

mod injector;
#[expect(unsafe_code, reason = "packets that the cursor gives by address")]
mod reader;
mod tags;

use std::ffi::c_int;
use std::sync::atomic::{AtomicBool, AtomicI32, Ordering::*};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use ringtap_client::{Connection, Control as _, Deadline, Look, LookStep, OutsideWait, Receiver};
use ringtap_device::{DeviceSpec, Kind};
use ringtap_filter::program::MAX_INSTRUCTIONS;
use ringtap_filter::{Instruction, Program};
use ringtap_ipc::mutex::lock;
use ringtap_ipc::protocol::SourceSnapshot;
use ringtap_ipc::subscription::Subscription;
use ringtap_pool::number::to_u32;

use crate::abi::{DIRECTION_INOUT, ERROR_BREAK, PcapStatistics};
use crate::control::ReadControl;
use crate::error::LibpcapError;
use crate::helper;
use crate::settings::PcapSettings;
use crate::shared::{Call, WaitLimits};
use injector::Injector;
use reader::NewFilter;
pub(crate) use reader::PacketReader;

/// Sleep of a loop that must not block when there are no packets; the manual lets it spin.
const REST: Duration = Duration::from_millis(1);
/// libpcap's number for Ethernet.
const DLT_ETHERNET: c_int = 1;
/// Mask of the class in classic BPF, and code of a return instruction with a constant operand.
const CLASS: u16 = 0x07;
const RETURN: u16 = 0x06;
const RETURN_CONSTANT: u16 = 0x06;

/// The outcome of a step of a read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ReadStep {
    /// The window has packets.
    Packets,
    /// The call must wait, then take another step.
    Wait(OutsideWait),
    /// The call returns this.
    Done(c_int),
}

pub(crate) struct PcapCapture {
    /// The device as the program named it.
    name: String,
    /// Names of the sources.
    pub(crate) sources: String,
    /// The network interface, if the capture has exactly one.
    pub(crate) interface: Option<String>,
    pub(crate) dlt: c_int,
    pub(crate) snap_bytes: c_int,
    pub(crate) nanoseconds: bool,
    /// Longest wait of a read; absent: without limit.
    timeout: Option<Duration>,
    /// The capture reads files, so its end is not a failure.
    is_file: bool,
    nonblock: AtomicBool,
    direction: AtomicI32,
    /// A filter that the reader does not use yet.
    new_filter: Mutex<Option<NewFilter>>,
    has_new_filter: AtomicBool,
    injector: Injector,
    connection: Arc<Connection>,
    /// Longest wait on close for the hub to hang up.
    close_timeout: Duration,
    /// Number of forks of the process when the capture started.
    forks: usize,
    has_left: AtomicBool,
}

impl PcapCapture {
    /// A capture of the device `name`, by a subscription at a hub.
    pub(crate) fn new(
        name: String,
        (subscription, connection): (Subscription, Arc<Connection>),
        settings: &PcapSettings,
        close_timeout: Duration,
    ) -> Result<(Self, PacketReader), LibpcapError> {
        let receiver = Receiver::new(subscription, Arc::clone(&connection) as _)?;
        let link_type = receiver.link_type();
        let link_type =
            link_type.map_err(|error| LibpcapError::general(format!("{name}: {error}")))?;
        let sources: Vec<_> = receiver.facts().cloned().collect();
        let reader = PacketReader::new(receiver, settings);
        let interface = match &sources[..] {
            [only] => only.interface.clone(),
            _ => None,
        };
        let devices: Vec<_> = sources.iter().map(|source| &*source.device).collect();
        let capture = PcapCapture {
            sources: devices.join(", "),
            dlt: link_type.dlt().into(),
            snap_bytes: c_int::try_from(settings.snap_length()).unwrap_or(c_int::MAX),
            nanoseconds: settings.nanoseconds(),
            timeout: settings.timeout(),
            is_file: devices
                .iter()
                .all(|device| DeviceSpec::kind_of(device).is_some_and(Kind::names_a_file)),
            nonblock: AtomicBool::new(settings.nonblock != 0),
            direction: AtomicI32::new(DIRECTION_INOUT),
            new_filter: Mutex::new(None),
            has_new_filter: AtomicBool::new(false),
            injector: Injector::new(&name, interface.as_deref()),
            connection,
            close_timeout,
            forks: helper::forks(),
            has_left: AtomicBool::new(false),
            name,
            interface,
        };
        Ok((capture, reader))
    }

    /// Finds the next packets of a call, or a reason to wait or to return.
    pub(crate) fn step(
        &self,
        control: &ReadControl,
        reader: &mut PacketReader,
        call: &mut Call,
    ) -> Result<ReadStep, LibpcapError> {
        let window = &control.shared.window;
        reader.settle(window);
        if call.count == call.most {
            return self.finish(reader, call);
        }
        if control.take_break() {
            return Ok(ReadStep::Done(ERROR_BREAK));
        }
        reader.follow_fork(control)?;
        if self.has_new_filter.load(Relaxed) {
            self.adopt_filter(reader);
        }
        loop {
            if reader.fill(window, self.direction.load(Relaxed), &self.injector) {
                return Ok(ReadStep::Packets);
            }
            if call.count > 0 && call.ends_with_batch() {
                return self.finish(reader, call);
            }
            let limits = call.limits(|call| self.wait_limits(call, reader));
            let deadline = self.deadline(call, limits);
            let step = reader.cursor.look_or_wait(deadline);
            match step.map_err(|error| self.failed(error.into()))? {
                LookStep::Wait(wait) => return Ok(ReadStep::Wait(wait)),
                LookStep::Found(Look::Packets) => {}
                LookStep::Found(Look::Ended) => return self.end_of_packets(call),
                LookStep::Found(Look::Empty) => {
                    if control.take_break() {
                        return Ok(ReadStep::Done(ERROR_BREAK));
                    }
                    if self.is_over(call, limits) {
                        return Ok(ReadStep::Done(0));
                    }
                }
            }
        }
    }

    fn finish(&self, reader: &mut PacketReader, call: &Call) -> Result<ReadStep, LibpcapError> {
        // After `pcap_loop`, many programs end without `pcap_close`.
        if !call.ends_with_batch() {
            reader.cursor.publish();
        }
        // If packets are left, a program that polls finds the descriptor readable.
        reader.cursor.make_readable()?;
        Ok(ReadStep::Done(number(call)))
    }

    #[cold]
    fn adopt_filter(&self, reader: &mut PacketReader) {
        // Pairs with the store in `set_filter`.
        self.has_new_filter.swap(false, Acquire);
        if let Some(new) = lock(&self.new_filter).take() {
            reader.adopt(new);
        }
    }

    fn wait_limits(&self, call: &Call, reader: &PacketReader) -> WaitLimits {
        if call.ends_with_batch() {
            WaitLimits {
                deadline: self.timeout.map(|timeout| Instant::now() + timeout),
                // A program that polled the descriptor does not wait again.
                not_at_all: reader.is_readable(),
            }
        } else {
            WaitLimits::default()
        }
    }

    fn must_not_wait(&self, limits: WaitLimits) -> bool {
        limits.not_at_all || self.nonblock.load(Relaxed)
    }

    fn deadline(&self, call: &Call, limits: WaitLimits) -> Deadline {
        match (self.must_not_wait(limits), call.ends_with_batch()) {
            (true, true) => Deadline::Now,
            (true, false) => Deadline::At(Instant::now() + REST),
            (false, _) => limits.deadline.map_or(Deadline::Never, Deadline::At),
        }
    }

    /// Whether a read that found no packet returns.
    fn is_over(&self, call: &Call, limits: WaitLimits) -> bool {
        let is_late = |deadline| Instant::now() >= deadline;
        let is_late = limits.deadline.is_some_and(is_late);
        call.ends_with_batch() && (is_late || self.must_not_wait(limits))
    }

    /// The result of a read when no more packets will come: for a file its end, otherwise the reason.
    fn end_of_packets(&self, call: &Call) -> Result<ReadStep, LibpcapError> {
        if self.is_file {
            return Ok(ReadStep::Done(if call.is_for_one() {
                ERROR_BREAK
            } else {
                0
            }));
        }
        let snapshot = self.connection.snapshot().ok();
        let sources = snapshot.into_iter().flat_map(|snapshot| snapshot.sources);
        let failure = sources.into_iter().find_map(|source| source.failure);
        let reason = failure.unwrap_or_else(|| format!("{}: the capture ended", self.name));
        Err(LibpcapError::general(reason))
    }

    fn failed(&self, error: LibpcapError) -> LibpcapError {
        LibpcapError::general(format!("{}: {}", self.name, error.text))
    }

    /// Changes the filter, in the kernel where the source can. Packets read after this returns pass the
    /// new filter, even if they were captured before.
    pub(crate) fn set_filter(&self, instructions: &[Instruction]) -> Result<c_int, LibpcapError> {
        let live = match self.dlt {
            DLT_ETHERNET => tags::with_tags(instructions),
            _ => None,
        };
        let instructions = live.as_deref().unwrap_or(instructions);
        let filter = Program::new(instructions)
            .map_err(|error| LibpcapError::general(format!("BPF program is not valid: {error}")))?;
        let fits = instructions.len() <= MAX_INSTRUCTIONS;
        let cut = (!fits || self.cuts(&filter)).then(|| filter.clone());
        let filter = if fits { filter } else { Program::everything() };
        let wanted = self.connection.set_filter(&filter)?;
        let new = NewFilter {
            filter,
            wanted,
            cut,
        };
        *lock(&self.new_filter) = Some(new);
        self.has_new_filter.store(true, Release);
        Ok(0)
    }

    /// Whether a filter cuts some packets to a part of their bytes.
    fn cuts(&self, filter: &Program) -> bool {
        let snap_bytes = u32::try_from(self.snap_bytes).unwrap_or(0);
        let mut returns = filter.instructions().iter();
        returns.any(|instruction| {
            let whole = instruction.k == 0 || instruction.k >= snap_bytes;
            instruction.code & CLASS == RETURN && (instruction.code != RETURN_CONSTANT || !whole)
        })
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

    /// The counters since the capture began; the program has read `delivered` packets.
    pub(crate) fn statistics(&self, delivered: u64) -> Result<PcapStatistics, LibpcapError> {
        let snapshot = self
            .connection
            .snapshot()
            .map_err(|error| self.failed(error.into()))?;
        Ok(statistics(delivered, &snapshot.sources))
    }

    /// Sends a packet unchanged; returns the number of bytes sent.
    pub(crate) fn inject(&self, packet: &[u8]) -> Result<c_int, LibpcapError> {
        let sent = self.injector.send(packet)?;
        Ok(c_int::try_from(sent).unwrap_or(c_int::MAX))
    }

    /// Leaves the hub, even if a callback ended by a jump still holds the handle. After a fork, the other
    /// process may still read; then the process that closes the last copy leaves the hub.
    pub(crate) fn leave(&self) {
        if self.forks == helper::forks() && !self.has_left.swap(true, Relaxed) {
            self.connection.leave(self.close_timeout);
        }
    }
}

impl Drop for PcapCapture {
    fn drop(&mut self) {
        self.leave();
    }
}

/// The result of a read that found packets.
fn number(call: &Call) -> c_int {
    if call.ends_with_batch() {
        c_int::try_from(call.count).unwrap_or(c_int::MAX)
    } else {
        0
    }
}

/// libpcap's three counters, from those of the sources. Received packets are those delivered or
/// dropped. Each counter saturates.
fn statistics(delivered: u64, sources: &[SourceSnapshot]) -> PcapStatistics {
    let (mut dropped, mut nic) = (0_u64, 0_u64);
    for source in sources {
        nic = nic.saturating_add(source.dropped.nic);
        dropped = dropped.saturating_add(source.dropped.kernel);
        for lane in &source.lanes {
            let lost = lane.counters.dropped.total();
            dropped = dropped
                .saturating_add(lost)
                .saturating_add(lane.missed_packets);
        }
    }
    let narrow = |number: u64| to_u32(number);
    PcapStatistics {
        received: narrow(delivered.saturating_add(dropped)),
        dropped: narrow(dropped),
        interface_dropped: narrow(nic),
    }
}

#[cfg(test)]
mod tests {
    use ringtap_ipc::protocol::LaneSnapshot;
    use ringtap_pool::counters::{Counters, Dropped};

    use super::*;

    fn source(nic: u64, kernel: u64, pool_full: u64, missed_packets: u64) -> SourceSnapshot {
        SourceSnapshot {
            lanes: vec![LaneSnapshot {
                counters: Counters {
                    dropped: Dropped {
                        pool_full,
                        ..Dropped::default()
                    },
                    ..Counters::default()
                },
                missed_packets,
                ..LaneSnapshot::default()
            }],
            dropped: Dropped {
                nic,
                kernel,
                ..Dropped::default()
            },
            ..SourceSnapshot::default()
        }
    }

    fn numbers(delivered: u64, sources: &[SourceSnapshot]) -> [u32; 3] {
        let found = statistics(delivered, sources);
        [found.received, found.dropped, found.interface_dropped]
    }

    #[test]
    fn losses_have_one_fixed_meaning() {
        let sources = [source(1, 10, 200, 3000), source(1, 0, 0, 4)];
        assert_eq!(numbers(1000, &sources), [4214, 3214, 2]);
    }

    #[test]
    fn counters_stop_at_their_largest_value() {
        let most = u64::from(u32::MAX);
        assert_eq!(numbers(most + 1, &[]), [u32::MAX, 0, 0]);
        let sources = [source(most + 7, u64::MAX, u64::MAX, 1)];
        assert_eq!(numbers(5, &sources), [u32::MAX; 3]);
    }
}
