// SPDX-License-Identifier: MIT OR Apache-2.0
//! The application: a page of figures that guests read in place, and a signal at each change.

use std::sync::atomic::{
    AtomicU64, Ordering::Acquire, Ordering::Relaxed, Ordering::Release, fence,
};
use std::time::{Duration, Instant};

use ringtap_pool::memory::Words;
use ringtap_vnplug::device::DeviceKind;
use ringtap_vnplug::guest::GuestDevice;
use ringtap_vnplug::host::{BackEnd, FromGuest, GuestVm, HostDevice, VmError};

/// Name of this application, by which its process on the host and its agent in the guest find each other.
pub(crate) const NAME: &str = "telemetry";
/// Number of this application in messages.
pub(crate) const APPLICATION: u32 = 0x7E1E_0001;
/// Words of the page: count of changes (odd during a change), then the figures.
const WORDS: usize = 4;

/// Load average of one minute in hundredths, free memory in KiB, seconds since the start.
pub(crate) type Figures = [u64; WORDS - 1];

/// The host's half: writes the page, and signals through a second device.
pub(crate) struct Telemetry {
    page: Words<AtomicU64>,
    events: HostDevice,
    interval: Duration,
    next: Instant,
}

impl Telemetry {
    /// Plugs the page and the signal into a guest.
    pub(crate) fn plug(vm: &mut GuestVm, interval: Duration) -> Result<Self, VmError> {
        let page = vm.plug(APPLICATION, DeviceKind::Bulk, 4096)?;
        let events = vm.plug(APPLICATION, DeviceKind::Control { vectors: 1 }, 8)?;
        let page = page.memory().words(0, WORDS).ok_or(VmError::NoDevice)?;
        Ok(Telemetry {
            page,
            events,
            interval,
            next: Instant::now(),
        })
    }
}

impl BackEnd for Telemetry {
    fn application(&self) -> u32 {
        APPLICATION
    }

    fn handle(&mut self, _vm: &mut GuestVm, _event: &FromGuest) -> Result<(), VmError> {
        Ok(())
    }

    fn tick(&mut self, _vm: &mut GuestVm) -> Result<Option<Duration>, VmError> {
        let left = self.next.saturating_duration_since(Instant::now());
        if !left.is_zero() {
            return Ok(Some(left));
        }
        self.next = Instant::now() + self.interval;
        self.page[0].fetch_add(1, Relaxed);
        fence(Release);
        for (word, figure) in self.page.iter().skip(1).zip(figures()) {
            word.store(figure, Relaxed);
        }
        self.page[0].fetch_add(1, Release);
        self.events.signal(0);
        Ok(Some(self.interval))
    }
}

/// The guest's half: the count of changes and the figures, once no change is under way.
pub(crate) fn read(page: &GuestDevice) -> Option<(u64, Figures)> {
    let page = page.memory.words::<AtomicU64>(0, WORDS)?;
    (0..1000).find_map(|_| {
        let before = page[0].load(Acquire);
        let figures = [1, 2, 3].map(|at| page[at].load(Relaxed));
        fence(Acquire);
        let is_whole = before % 2 == 0 && page[0].load(Relaxed) == before;
        is_whole.then_some((before / 2, figures))
    })
}

fn figures() -> Figures {
    let text = |path| std::fs::read_to_string(path).unwrap_or_default();
    let number = |text: &str| {
        text.chars()
            .filter(char::is_ascii_digit)
            .collect::<String>()
            .parse()
    };
    let (load, memory, uptime) = (
        text("/proc/loadavg"),
        text("/proc/meminfo"),
        text("/proc/uptime"),
    );
    let load = load.split(' ').next().map(number);
    let free = memory.lines().nth(1).map(number);
    let seconds = uptime.split('.').next().map(number);
    [load, free, seconds].map(|figure| figure.and_then(Result::ok).unwrap_or(0))
}
