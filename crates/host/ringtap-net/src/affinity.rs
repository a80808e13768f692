// SPDX-License-Identifier: MIT OR Apache-2.0
//! Placement on CPUs of reader, capture and interrupts: `--cpu reader=1,capture=0,irq=0` or `auto`.

mod state;

use std::io;
use std::str::FromStr;
use std::sync::{Arc, Mutex, MutexGuard};

use ringtap_ipc::mutex::lock;

use crate::cpu::{self, ONLINE};
use crate::interrupts::{self, Interrupts, InterruptsError, Steering};
use state::StateFile;

/// Why threads or interrupts cannot be placed.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum AffinityError {
    /// The kernel does not tell the CPUs of this process.
    #[error("cannot read the CPUs of this process: {0}")]
    Unknown(io::Error),
    /// A thread cannot run on this CPU.
    #[error("CPU {0} cannot be used: {ONLINE} lists the usable CPUs: {1}")]
    Unusable(usize, io::Error),
    /// The thread cannot run on its former CPUs again.
    #[error("cannot return to the former CPUs: {0}")]
    Return(io::Error),
    /// The CPU for interrupts is not in use.
    #[error("interrupts cannot be moved to CPU {0}: {ONLINE} lists the usable CPUs")]
    Offline(usize),
    /// The settings cannot be stored before they change.
    #[error("cannot remember settings: {0}")]
    State(io::Error),
    /// Interrupts or NAPI stay where they are.
    #[error(transparent)]
    Interrupts(#[from] InterruptsError),
}

/// A text that is not a placement.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum PlacementError {
    /// No thread or interrupts have this name.
    #[error("\"{0}={1}\" is not among reader=CPU, capture=CPU, irq=CPU, napi=threaded and auto")]
    Unknown(String, String),
    /// The CPU is not a number.
    #[error(
        "\"{0}\" is not the number of a CPU: expected a number, reader=CPU, capture=CPU, irq=CPU, \
         napi=threaded or auto"
    )]
    Cpu(String),
    /// The same thread or interrupts have two CPUs.
    #[error("{0} is placed twice: name one CPU")]
    Twice(String),
}

/// The placement that the user chose.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Placement {
    /// CPU of the reader's thread.
    pub reader: Option<usize>,
    /// CPU of the threads of the hub and its sources.
    pub capture: Option<usize>,
    /// Placement of the interface's interrupts and NAPI threads.
    pub interface: Steering,
    /// Place reader and capture near the CPU that receives packets.
    is_automatic: bool,
}

impl FromStr for Placement {
    type Err = PlacementError;

    fn from_str(text: &str) -> Result<Self, PlacementError> {
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
    fn put(&mut self, part: &str) -> Result<(), PlacementError> {
        let (side, number) = part.split_once('=').unwrap_or(("reader", part));
        let place = match side {
            "reader" => &mut self.reader,
            "capture" => &mut self.capture,
            "irq" => &mut self.interface.cpu,
            other => {
                return Err(PlacementError::Unknown(other.to_owned(), number.to_owned()));
            }
        };
        let cpu = number
            .parse()
            .map_err(|_| PlacementError::Cpu(number.to_owned()))?;
        match place.replace(cpu) {
            None => Ok(()),
            Some(_) => Err(PlacementError::Twice(side.to_owned())),
        }
    }

    /// With `auto`, places reader and capture near the CPU that receives packets, on other CPUs. An
    /// explicit placement takes precedence.
    ///
    /// Every capture calls this first, because it also restores settings that killed captures changed. `note` gets
    /// what was done, for the user.
    ///
    /// # Errors
    ///
    /// [`AffinityError::Unknown`].
    pub fn resolve(
        self,
        interface: Option<&str>,
        mut note: impl FnMut(String),
    ) -> Result<Self, AffinityError> {
        state::restore(&mut note);
        if self.moves_interrupts() {
            // A recorder could not create it later. A failure is reported when the file is created.
            let _later = state::make_folder();
        }
        if !self.is_automatic {
            return Ok(self);
        }
        let allowed = cpu::allowed().map_err(AffinityError::Unknown)?;
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
        note(format!(
            "--cpu auto: packets {whence} on CPU {receiving}; the reader runs on CPU {}, \
             the capture side on CPU {}",
            placed.reader.unwrap_or(reader),
            placed.capture.unwrap_or(capture),
        ));
        Ok(placed)
    }

    /// Whether settings of the interface change.
    pub fn moves_interrupts(&self) -> bool {
        self.interface != Steering::default()
    }

    /// Moves interrupts and NAPI of interfaces that are in use. `note` gets what an interface lacks, for the user.
    ///
    /// # Errors
    ///
    /// [`AffinityError::Offline`], [`AffinityError::State`] and [`AffinityError::Interrupts`].
    pub fn steer<'a>(
        &self,
        interfaces: impl IntoIterator<Item = &'a str>,
        steered: &Steered,
        mut note: impl FnMut(String),
    ) -> Result<(), AffinityError> {
        if !self.moves_interrupts() {
            return Ok(());
        }
        if let Some(cpu) = self.interface.cpu.filter(|cpu| !cpu::is_online(*cpu)) {
            return Err(AffinityError::Offline(cpu));
        }
        let mut interfaces = interfaces.into_iter().peekable();
        if interfaces.peek().is_none() {
            note("--cpu: irq= and napi= have no effect without a network interface".to_owned());
        }
        for interface in interfaces {
            let mut moved = steered.moved();
            let state = match &mut moved.state {
                Some(state) => state,
                None => {
                    let state = StateFile::create().map_err(AffinityError::State)?;
                    moved.state.insert(state)
                }
            };
            let guard = Interrupts::steer(interface, self.interface, &mut |was| state.keep(was))?;
            guard.notes.iter().cloned().for_each(&mut note);
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
pub struct Steered(Arc<Mutex<Moved>>);

impl Steered {
    fn moved(&self) -> MutexGuard<'_, Moved> {
        lock(&self.0)
    }

    /// Moves them back before this is dropped.
    pub fn undo(&self) {
        let mut moved = self.moved();
        moved.guards.clear();
        if let Some(state) = moved.state.take() {
            state.remove();
        }
    }

    /// As [`undo`](Self::undo), for another thread.
    pub fn undoing(&self) -> impl FnOnce() + Send + use<> {
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
///
/// # Errors
///
/// [`AffinityError::Unusable`].
pub fn pin(cpu: Option<usize>) -> Result<(), AffinityError> {
    cpu.map_or(Ok(()), |cpu| {
        cpu::bind(None, &[cpu]).map_err(|error| AffinityError::Unusable(cpu, error))
    })
}

/// Runs `work` on this CPU, if given; threads that `work` starts stay there.
///
/// # Errors
///
/// Those of `work`, and [`AffinityError::Unknown`], [`AffinityError::Unusable`] and [`AffinityError::Return`].
pub fn on<T, E: From<AffinityError>>(
    cpu: Option<usize>,
    work: impl FnOnce() -> Result<T, E>,
) -> Result<T, E> {
    if cpu.is_none() {
        return work();
    }
    let before = cpu::allowed().map_err(AffinityError::Unknown)?;
    pin(cpu)?;
    let done = work();
    cpu::bind(None, &before).map_err(AffinityError::Return)?;
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
            let error = text.parse::<Placement>().unwrap_err().to_string();
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
        let placed = placement.resolve(None, |_| {}).unwrap();
        assert_eq!(placed.reader, Some(0));
        assert!(placed.capture.is_some());
    }
}
