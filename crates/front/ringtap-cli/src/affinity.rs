// SPDX-License-Identifier: MIT OR Apache-2.0
//! Placement on CPUs of reader, capture and interrupts: `--cpu reader=1,capture=0,irq=0` or `auto`.

mod state;

use std::str::FromStr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use anyhow::{Context, Result, bail};
use ringtap_net::cpu;
use ringtap_net::interrupts::{self, Interrupts, Steering};

use crate::{UsageError, print};
use state::StateFile;

const UNKNOWN: &str = "cannot read the CPUs of this process";

/// The placement that the user chose.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Placement {
    /// CPU of the reader's thread.
    pub(crate) reader: Option<usize>,
    /// CPU of the threads of the hub and its sources.
    pub(crate) capture: Option<usize>,
    /// Placement of the interface's interrupts and NAPI threads.
    pub(crate) interface: Steering,
    /// Place reader and capture near the CPU that receives packets.
    is_automatic: bool,
}

impl FromStr for Placement {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let mut placement = Placement::default();
        if text.is_empty() {
            return Ok(placement);
        }
        for part in text.split(',') {
            match part {
                "auto" => placement.is_automatic = true,
                "napi=threaded" => placement.interface.threaded = true,
                _ => placement.put(part)?,
            }
        }
        Ok(placement)
    }
}

impl Placement {
    /// Parses a part that names a CPU.
    fn put(&mut self, part: &str) -> Result<(), String> {
        let (side, number) = part.split_once('=').unwrap_or(("reader", part));
        let place = match side {
            "reader" => &mut self.reader,
            "capture" => &mut self.capture,
            "irq" => &mut self.interface.cpu,
            other => {
                return Err(format!(
                    "\"{other}={number}\" is not among reader=CPU, capture=CPU, irq=CPU, \
                     napi=threaded and auto"
                ));
            }
        };
        let cpu = number.parse().map_err(|_| {
            format!(
                "\"{number}\" is not the number of a CPU: expected a number, reader=CPU, capture=CPU, \
                 irq=CPU, napi=threaded or auto"
            )
        })?;
        match place.replace(cpu) {
            None => Ok(()),
            Some(_) => Err(format!("{side} is placed twice: name one CPU")),
        }
    }

    /// Refuses the CPU of a reader, for verbs that are none.
    ///
    /// # Errors
    ///
    /// A CPU is named for the reader.
    pub(crate) fn require_no_reader(&self) -> Result<(), UsageError> {
        match self.reader {
            None => Ok(()),
            Some(cpu) => Err(UsageError(format!(
                "--cpu: this verb has no reader to place on CPU {cpu}: name the capture side, capture={cpu}"
            ))),
        }
    }

    /// With `auto`, places reader and capture near the CPU that receives packets, on other CPUs. An
    /// explicit placement takes precedence.
    ///
    /// Every capture calls this first, because it also restores settings that killed captures changed.
    pub(crate) fn resolve(self, interface: Option<&str>) -> Result<Self> {
        state::restore();
        if self.moves_interrupts() {
            // A recorder could not create it later. A failure is reported when the file is created.
            let _later = state::make_folder();
        }
        if !self.is_automatic {
            return Ok(self);
        }
        let allowed = cpu::allowed().context(UNKNOWN)?;
        let known = self
            .interface
            .cpu
            .or_else(|| interface.and_then(interrupts::receiving_cpu));
        let receiving = known.or_else(|| allowed.first().copied()).unwrap_or(0);
        let near = cpu::sharing_cache(receiving);
        let reader = choose(&[receiving], &allowed, &near).unwrap_or(receiving);
        // A third CPU if there is one; with two, the CPU that does not receive.
        let capture = choose(&[receiving, reader], &allowed, &near).unwrap_or(reader);
        let placed = Placement {
            reader: self.reader.or(Some(reader)),
            capture: self.capture.or(Some(capture)),
            ..self
        };
        let whence = match known {
            Some(_) => "are received",
            None => "are probably received (no interrupts show it)",
        };
        print::note(format_args!(
            "ringtap: --cpu auto: packets {whence} on CPU {receiving}; the reader runs on CPU {}, \
             the capture side on CPU {}",
            placed.reader.unwrap_or(reader),
            placed.capture.unwrap_or(capture),
        ));
        Ok(placed)
    }

    /// Whether settings of the interface change.
    pub(crate) fn moves_interrupts(&self) -> bool {
        self.interface != Steering::default()
    }

    /// Moves interrupts and NAPI of interfaces that are in use.
    pub(crate) fn steer<'a>(
        &self,
        interfaces: impl IntoIterator<Item = &'a str>,
        steered: &Steered,
    ) -> Result<()> {
        if !self.moves_interrupts() {
            return Ok(());
        }
        if let Some(cpu) = self.interface.cpu.filter(|cpu| !cpu::is_online(*cpu)) {
            bail!(
                "interrupts cannot be moved to CPU {cpu}: {} lists the usable CPUs",
                cpu::ONLINE
            );
        }
        let mut interfaces = interfaces.into_iter().peekable();
        if interfaces.peek().is_none() {
            print::note(format_args!(
                "ringtap: --cpu: irq= and napi= have no effect without a network interface"
            ));
        }
        for interface in interfaces {
            let mut moved = steered.moved();
            let state = match &mut moved.state {
                Some(state) => state,
                None => moved.state.insert(StateFile::create()?),
            };
            let guard = Interrupts::steer(interface, self.interface, &mut |was| state.keep(was))?;
            print::notes(&guard.notes);
            moved.guards.push(guard);
        }
        Ok(())
    }
}

/// Moved interrupts, and the file with their former CPUs.
#[derive(Default)]
struct Moved {
    guards: Vec<Interrupts>,
    state: Option<StateFile>,
}

/// Moved interrupts, which move back when this is dropped.
#[derive(Default)]
pub(crate) struct Steered(Arc<Mutex<Moved>>);

impl Steered {
    fn moved(&self) -> MutexGuard<'_, Moved> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Moves them back before this is dropped.
    pub(crate) fn undo(&self) {
        let mut moved = self.moved();
        moved.guards.clear();
        if let Some(state) = moved.state.take() {
            state.remove();
        }
    }

    /// As [`undo`](Self::undo), for another thread.
    pub(crate) fn undoing(&self) -> impl FnOnce() + Send + use<> {
        let same = Steered(Arc::clone(&self.0));
        move || drop(same)
    }
}

impl Drop for Steered {
    fn drop(&mut self) {
        self.undo();
    }
}

/// A CPU that is not taken, if possible a near one.
fn choose(taken: &[usize], allowed: &[usize], near: &[usize]) -> Option<usize> {
    let others = || allowed.iter().copied().filter(|cpu| !taken.contains(cpu));
    let close = others().find(|cpu| near.contains(cpu));
    close.or_else(|| others().next())
}

/// Binds the calling thread to this CPU, if given.
pub(crate) fn pin(cpu: Option<usize>) -> Result<()> {
    let Some(cpu) = cpu else { return Ok(()) };
    cpu::bind(None, &[cpu]).with_context(|| {
        format!(
            "CPU {cpu} cannot be used: {} lists the usable CPUs",
            cpu::ONLINE
        )
    })
}

/// Runs `work` on this CPU, if given; threads that `work` starts stay there.
pub(crate) fn on<T>(cpu: Option<usize>, work: impl FnOnce() -> Result<T>) -> Result<T> {
    if cpu.is_none() {
        return work();
    }
    let before = cpu::allowed().context(UNKNOWN)?;
    pin(cpu)?;
    let done = work();
    cpu::bind(None, &before).context("cannot return to the former CPUs")?;
    done
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_bare_number_is_the_readers_cpu() {
        let expected = Placement {
            reader: Some(1),
            ..Placement::default()
        };
        assert_eq!("1".parse(), Ok(expected));
    }

    #[test]
    fn every_side_can_be_placed() {
        let all = Placement {
            reader: Some(1),
            capture: Some(0),
            interface: Steering {
                cpu: Some(2),
                threaded: true,
            },
            is_automatic: false,
        };
        assert_eq!("capture=0,reader=1,irq=2,napi=threaded".parse(), Ok(all));
    }

    #[test]
    fn other_sides_are_refused() {
        for (text, says) in [
            ("sender=1", "\"sender=1\" is not among"),
            ("napi=on", "\"napi=on\" is not among"),
            ("auto=1", "\"auto=1\" is not among"),
            ("reader=x", "\"x\" is not the number"),
            ("irq=", "\"\" is not the number"),
            (",", "\"\" is not the number"),
            ("capture=0,capture=1", "capture is placed twice"),
            ("0,reader=1", "reader is placed twice"),
        ] {
            let error = text.parse::<Placement>().unwrap_err();
            assert!(error.contains(says), "{text}: {error}");
        }
    }

    #[test]
    fn the_reader_is_placed_away_from_the_interrupts_and_near_them() {
        assert_eq!(choose(&[0], &[0, 1, 2, 3], &[0, 2]), Some(2));
        assert_eq!(choose(&[0, 2], &[0, 1, 2, 3], &[0, 2]), Some(1));
        assert_eq!(choose(&[1], &[0, 1], &[]), Some(0));
        assert_eq!(choose(&[0], &[0], &[0]), None);
    }

    #[test]
    fn what_the_user_placed_stays_there() {
        let placement: Placement = "auto,reader=0".parse().unwrap();
        let placed = placement.resolve(None).unwrap();
        assert_eq!(placed.reader, Some(0));
        assert!(placed.capture.is_some());
    }
}
