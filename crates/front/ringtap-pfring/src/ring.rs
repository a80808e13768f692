// SPDX-License-Identifier: MIT OR Apache-2.0
//! A ring: a reader of a group, from `pfring_enable_ring` on.

use std::os::fd::RawFd;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::{Duration, Instant};

use ringtap_client::{
    Connection, Cursor, CursorPacket, Deadline, Look, Receiver, SubscriptionRequest, Watermark,
    default_socket, host_socket,
};
use ringtap_filter::{LinkType, MAX_SNAP_LENGTH, Program, text};
use ringtap_pool::counters::Counters;
use ringtap_pool::format::flag;

use crate::abi::RingStatistics;
use crate::error::RingError;

/// Longest wait before the ring looks whether `pfring_breakloop` was called, from a signal handler too.
const STEP: Duration = Duration::from_millis(100);

/// Directions of packets that a ring receives, as PF_RING numbers them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum RingDirection {
    #[default]
    Both,
    Received,
    Sent,
}

impl RingDirection {
    fn has(self, packet: &CursorPacket) -> bool {
        let is_sent = packet.flags & u16::from(flag::OUT) != 0;
        match self {
            RingDirection::Both => true,
            RingDirection::Received => !is_sent,
            RingDirection::Sent => is_sent,
        }
    }
}

/// A ring's settings, and its reader once it is enabled.
pub(crate) struct RingState {
    socket: PathBuf,
    group: String,
    pub(crate) name: String,
    pub(crate) watermark: u16,
    pub(crate) direction: RingDirection,
    filter: String,
    pub(crate) caplen: u32,
    stops: Arc<AtomicBool>,
    cursor: Option<Cursor>,
    /// Packets of the other direction.
    left_out: u64,
}

fn compile(filter: &str, link_type: LinkType) -> Result<Program, RingError> {
    Ok(text::compile(filter, link_type, MAX_SNAP_LENGTH)?)
}

impl RingState {
    /// A ring of a group; the hub must run.
    pub(crate) fn open(device: &str, caplen: u32) -> Result<Self, RingError> {
        let (socket, group) = match device.split_once(':') {
            Some(("hub", group)) => (default_socket(), group),
            Some(("host", group)) => (host_socket(group), group),
            _ => return Err(RingError::Device(device.to_owned())),
        };
        let name = std::fs::read_to_string("/proc/self/comm");
        let name = name.map_or_else(|_| "libpfring".to_owned(), |name| name.trim().to_owned());
        let _hub = Connection::open(&socket, &name)?;
        Ok(RingState {
            socket,
            group: group.to_owned(),
            name,
            watermark: 0,
            direction: RingDirection::default(),
            filter: String::new(),
            caplen,
            stops: Arc::default(),
            cursor: None,
            left_out: 0,
        })
    }

    /// Subscribes; packets from now on are received.
    pub(crate) fn enable(&mut self) -> Result<(), RingError> {
        if self.cursor.is_some() {
            return Ok(());
        }
        let watermark = Some(u32::from(self.watermark)).filter(|packets| *packets > 1);
        let request = SubscriptionRequest {
            watermark: Watermark::or_default(watermark, None, None),
            ..SubscriptionRequest::new(&self.group, &self.name)
        };
        let filter = self.filter.clone();
        let (receiver, _connection) = Receiver::subscribe(&self.socket, request, |link_type| {
            compile(&filter, link_type)
        })?;
        self.cursor = Some(Cursor::new(receiver));
        Ok(())
    }

    pub(crate) fn cursor(&mut self) -> Result<&mut Cursor, RingError> {
        self.cursor.as_mut().ok_or(RingError::NotEnabled)
    }

    /// The flag that ends waits and `pfring_loop`; a signal handler may set it.
    pub(crate) fn stop_flag(&self) -> Arc<AtomicBool> {
        Arc::clone(&self.stops)
    }

    /// Whether the flag is set.
    pub(crate) fn has_stopped(&self) -> bool {
        self.stops.load(Relaxed)
    }

    /// Waits for packets, until the deadline, the end or a stop.
    pub(crate) fn wait(&mut self, deadline: Deadline) -> Result<Look, RingError> {
        loop {
            if self.has_stopped() {
                return Ok(Look::Empty);
            }
            let step = Instant::now() + STEP;
            let until = match deadline {
                Deadline::Now => Deadline::Now,
                Deadline::Never => Deadline::At(step),
                Deadline::At(time) => Deadline::At(time.min(step)),
            };
            let look = self.cursor()?.look(until)?;
            let is_over = match deadline {
                Deadline::Now => true,
                Deadline::Never => false,
                Deadline::At(time) => Instant::now() >= time,
            };
            if look != Look::Empty || is_over {
                return Ok(look);
            }
        }
    }

    /// The next packet of the ring's direction.
    pub(crate) fn next(&mut self, deadline: Deadline) -> Result<Option<CursorPacket>, RingError> {
        loop {
            match self.wait(deadline)? {
                Look::Packets => {}
                Look::Empty => return Ok(None),
                Look::Ended => return Err(RingError::Ended),
            }
            if let Some(packet) = self.take() {
                return Ok(Some(packet));
            }
        }
    }

    /// The next packet of the ring's direction among those that were found.
    pub(crate) fn take(&mut self) -> Option<CursorPacket> {
        let direction = self.direction;
        let cursor = self.cursor.as_mut()?;
        loop {
            let packet = *cursor.take_one()?;
            if direction.has(&packet) {
                return Some(packet);
            }
            self.left_out += 1;
        }
    }

    pub(crate) fn fd(&mut self) -> Result<RawFd, RingError> {
        Ok(self.cursor()?.descriptor()?)
    }

    pub(crate) fn set_filter(&mut self, filter: &str) -> Result<(), RingError> {
        match &mut self.cursor {
            None => drop(compile(filter, LinkType::ETHERNET)?),
            Some(cursor) => {
                let program = compile(filter, cursor.receiver().link_type()?)?;
                cursor.set_filter(&program)?;
            }
        }
        filter.clone_into(&mut self.filter);
        Ok(())
    }

    /// The counters; of a hub that has left, those that the reader knows.
    pub(crate) fn statistics(&mut self) -> Result<RingStatistics, RingError> {
        let left_out = self.left_out;
        let cursor = self.cursor()?;
        let counters: Counters = match cursor.receiver().snapshot() {
            Ok(snapshot) => cursor.tally().total(&snapshot),
            Err(_) => cursor.tally().alone(),
        };
        Ok(RingStatistics {
            recv: counters.delivered.saturating_sub(left_out),
            drop: counters.dropped.total(),
            shunt: counters.shunted,
        })
    }
}
