// SPDX-License-Identifier: MIT OR Apache-2.0
//! Owner of each application of a QEMU, and the turns in which applications plug and unplug.
//!
//! QEMU itself holds both, so that they are the same for all its QMP sockets, for libvirt, and for processes of any
//! user and namespace. The owner of an application is the process at the other end of the socket of the
//! application's command port: the kernel closes that socket when the process ends, and QEMU then reports it as
//! disconnected.
//!
//! Invariants
//! - An application of a QEMU has at most one owner. A process that ended owns nothing, however it ended.
//! - One process at a time plugs or unplugs; a process that keeps its turn delays others by [`LONGEST_WAIT`] at most.
#![forbid(unsafe_code)]

use std::hash::{BuildHasher as _, RandomState};
use std::os::fd::{AsFd as _, OwnedFd};
use std::time::{Duration, Instant};

use rustix::net::{AddressFamily, SocketFlags, SocketType, socketpair};
use serde_json::{Value, json};

use super::qmp::{Qmp, QmpError};
use super::vm::VmError;

/// Start of the names that this crate gives to QEMU's objects.
const PREFIX: &str = "vnplug";
/// End of the name of a command port's socket.
const PORT: &str = "characters";
/// End of the name of the object that stands for a turn.
const TURN: &str = "turn";
/// Attempts to become the owner: QEMU may not have noticed yet that the owner before ended.
const CLAIMS: usize = 10;
/// Longest wait for the turns of others: twice as long as a process waits for an unplug in its turn.
const LONGEST_WAIT: Duration = Duration::from_secs(10);

/// Names of the objects that one process gives to QEMU: `vnplug-APPLICATION-PROCESS-RANDOM-OBJECT`.
#[derive(Clone, Debug)]
pub(super) struct ObjectNames {
    application: String,
    /// Ends with a hyphen.
    prefix: String,
}

impl ObjectNames {
    /// Names that no other process has.
    pub(super) fn new(application: &str) -> Result<Self, VmError> {
        let is_plain = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '_';
        if !(1..=32).contains(&application.len()) || !application.chars().all(is_plain) {
            return Err(VmError::Name(application.to_owned()));
        }
        let (process, random) = (std::process::id(), random());
        Ok(ObjectNames {
            application: application.to_owned(),
            prefix: format!("{PREFIX}-{application}-{process}-{random:016x}-"),
        })
    }

    /// The name of an object.
    pub(super) fn name_of(&self, object: impl std::fmt::Display) -> String {
        format!("{}{object}", self.prefix)
    }

    /// The name of the command port's socket.
    pub(super) fn port(&self) -> String {
        self.name_of(PORT)
    }

    /// Whether this process gave the name.
    pub(super) fn is_own(&self, name: &str) -> bool {
        name.starts_with(&self.prefix)
    }

    /// Whether a process of the same application gave the name.
    pub(super) fn is_of_application(&self, name: &str) -> bool {
        ObjectOrigin::from_name(name).is_some_and(|origin| origin.application == self.application)
    }
}

/// Fields of an object's name.
struct ObjectOrigin<'a> {
    application: &'a str,
    process: u32,
    /// Start of all names of the process.
    prefix: &'a str,
    object: &'a str,
}

impl<'a> ObjectOrigin<'a> {
    /// `None` for the objects of other programs.
    fn from_name(name: &'a str) -> Option<Self> {
        let mut parts = name.splitn(5, '-');
        let is_ours = parts.next() == Some(PREFIX);
        let (application, process) = (parts.next()?, parts.next()?.parse().ok()?);
        let (_random, object) = (parts.next()?, parts.next()?);
        Some(ObjectOrigin {
            application,
            process,
            prefix: name.strip_suffix(object)?,
            object,
        })
        .filter(|_| is_ours)
    }
}

/// Which objects [`remove_all`](super::inventory::remove_all) removes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Removed {
    /// Those that ended processes of the application left.
    Left,
    /// Those of this process, too.
    All,
}

/// The sockets and other character devices of a QEMU.
pub(super) struct CharacterDevices(Vec<CharacterDevice>);

struct CharacterDevice {
    name: String,
    is_connected: bool,
    /// Whether the guest has the port open that this belongs to.
    is_open: bool,
}

impl CharacterDevices {
    pub(super) fn list(qmp: &mut Qmp) -> Result<Self, QmpError> {
        let found = qmp.run("query-chardev", json!({}))?;
        let one = |one: &Value| {
            let text = |key| one.get(key).and_then(Value::as_str);
            Some(CharacterDevice {
                name: text("label")?.to_owned(),
                is_connected: !text("filename")
                    .is_some_and(|name| name.starts_with("disconnected")),
                is_open: one.get("frontend-open").and_then(Value::as_bool) == Some(true),
            })
        };
        let all = found.as_array().into_iter().flatten();
        Ok(CharacterDevices(all.filter_map(one).collect()))
    }

    /// Whether the process with these names is the owner, and if so, whether an agent has the command port open.
    pub(super) fn owned(&self, names: &ObjectNames) -> Option<bool> {
        let port = names.port();
        let mut all = self.0.iter();
        let found = all.find(|one| one.name == port && one.is_connected);
        found.map(|one| one.is_open)
    }

    /// Whether the process with names that begin so has not ended.
    fn is_alive(&self, prefix: &str) -> bool {
        let is_port = |one: &&CharacterDevice| one.name.strip_prefix(prefix) == Some(PORT);
        self.0.iter().any(|one| is_port(&one) && one.is_connected)
    }

    /// Another process that is the owner of the application, or tries to become it.
    fn rival(&self, names: &ObjectNames) -> Option<u32> {
        let others = self.0.iter().filter(|one| !names.is_own(&one.name));
        let mut origins = others.filter_map(|one| ObjectOrigin::from_name(&one.name));
        let found = origins
            .find(|origin| origin.application == names.application && self.is_alive(origin.prefix));
        found.map(|origin| origin.process)
    }

    /// Whether it is the turn of another process, or another process asks for a turn.
    fn is_turn_of_another(&self, names: &ObjectNames) -> bool {
        let others = self.0.iter().filter(|one| !names.is_own(&one.name));
        let mut origins = others.filter_map(|one| ObjectOrigin::from_name(&one.name));
        origins.any(|origin| origin.object == TURN && self.is_alive(origin.prefix))
    }

    /// Whether an agent has the command port of an ended process of the application open: it closes that port when
    /// nothing in the guest uses the process's devices any more.
    pub(super) fn has_agent_of_ended(&self, names: &ObjectNames) -> bool {
        self.0.iter().filter(|one| one.is_open).any(|one| {
            let origin = ObjectOrigin::from_name(&one.name).filter(|origin| origin.object == PORT);
            origin.is_some_and(|origin| {
                origin.application == names.application && !self.is_alive(origin.prefix)
            })
        })
    }

    /// Those that [`remove_all`](super::inventory::remove_all) removes.
    pub(super) fn removed(&self, names: &ObjectNames, what: Removed) -> impl Iterator<Item = &str> {
        let all = self.0.iter().map(|one| &*one.name);
        all.filter(move |name| {
            if names.is_own(name) {
                what == Removed::All
            } else {
                // A process that claims the application at this moment is alive.
                ObjectOrigin::from_name(name).is_some_and(|origin| {
                    origin.application == names.application && !self.is_alive(origin.prefix)
                })
            }
        })
    }
}

/// Makes this process the owner of its application; returns its end of the command port.
///
/// # Errors
///
/// [`VmError::Owned`] names the process that is the owner.
pub(super) fn claim(qmp: &mut Qmp, names: &ObjectNames) -> Result<OwnedFd, VmError> {
    let mut owner = 0;
    for attempt in 0..CLAIMS {
        if attempt > 0 {
            std::thread::sleep(pause(50));
        }
        if let Some(rival) = CharacterDevices::list(qmp)?.rival(names) {
            owner = rival;
            continue;
        }
        let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
        let (here, for_qemu) = socketpair(AddressFamily::UNIX, SocketType::STREAM, flags, None)?;
        qmp.add_socket(&names.port(), for_qemu.as_fd())?;
        // Of two processes that claim at the same time, at least one sees the other.
        match CharacterDevices::list(qmp)?.rival(names) {
            None => return Ok(here),
            Some(rival) => owner = rival,
        }
        remove(qmp, &names.port())?;
    }
    Err(VmError::Owned {
        application: names.application.clone(),
        process: owner,
    })
}

/// Outcome of removing a character device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Removal {
    /// QEMU does not have it any more.
    Gone,
    /// A device of QEMU still uses it.
    InUse,
}

/// Removes a socket or other character device.
pub(super) fn remove(qmp: &mut Qmp, name: &str) -> Result<Removal, QmpError> {
    match qmp.run("chardev-remove", json!({ "id": name })) {
        Err(QmpError::Refused { text, .. }) if text.contains("is busy") => Ok(Removal::InUse),
        Ok(_) | Err(QmpError::Refused { .. }) => Ok(Removal::Gone),
        Err(error) => Err(error),
    }
}

/// This process's turn to plug or unplug. With each unplug QEMU makes the guest look at all slots: of two that
/// overlap, one can take away what is plugged later.
#[derive(Debug, Default)]
pub(super) struct HotPlugTurn {
    is_taken: bool,
    /// Since when this process waits, and when it asks again.
    waiting: Option<(Instant, Instant)>,
    /// Another process kept its turn beyond [`LONGEST_WAIT`]: this process waits no more.
    is_impatient: bool,
}

impl HotPlugTurn {
    /// Takes the turn, which others may have for some time; returns whether this process had it before.
    pub(super) fn wait(&mut self, qmp: &mut Qmp, names: &ObjectNames) -> Result<bool, QmpError> {
        let had = self.is_taken;
        while !self.try_take(qmp, names)? {
            std::thread::sleep(pause(20));
        }
        Ok(had)
    }

    /// Takes the turn if no other process has it; `false`: ask again at [`HotPlugTurn::next_try`].
    pub(super) fn try_take(
        &mut self,
        qmp: &mut Qmp,
        names: &ObjectNames,
    ) -> Result<bool, QmpError> {
        if self.is_taken {
            return Ok(true);
        }
        let backend = json!({ "type": "null", "data": {} });
        let arguments = json!({ "id": names.name_of(TURN), "backend": backend });
        qmp.run("chardev-add", arguments)?;
        let is_free = !CharacterDevices::list(qmp)?.is_turn_of_another(names);
        let now = Instant::now();
        let since = self.waiting.map_or(now, |(since, _)| since);
        self.is_impatient = !is_free && (self.is_impatient || now - since >= LONGEST_WAIT);
        self.is_taken = is_free || self.is_impatient;
        self.waiting = (!self.is_taken).then(|| (since, now + pause(20)));
        if !self.is_taken {
            remove(qmp, &names.name_of(TURN))?;
        }
        Ok(self.is_taken)
    }

    /// When a process that waits asks again.
    pub(super) fn next_try(&self) -> Option<Instant> {
        self.waiting.map(|(_, next)| next)
    }

    /// Forgets the turn: QEMU was not reachable, and may or may not have heard of it.
    pub(super) fn reset(&mut self, qmp: &mut Qmp, names: &ObjectNames) -> Result<(), QmpError> {
        *self = HotPlugTurn::default();
        remove(qmp, &names.name_of(TURN)).map(drop)
    }

    /// Ends the turn, or the wait for it.
    pub(super) fn end(&mut self, qmp: &mut Qmp, names: &ObjectNames) -> Result<(), QmpError> {
        self.waiting = None;
        if std::mem::take(&mut self.is_taken) {
            remove(qmp, &names.name_of(TURN)).map(drop)
        } else {
            Ok(())
        }
    }
}

/// A pause of one to three times as many milliseconds: processes that began together end it at different times.
fn pause(min_ms: u64) -> Duration {
    Duration::from_millis(min_ms + random() % (2 * min_ms))
}

/// A number that no other process guesses or repeats.
pub(super) fn random() -> u64 {
    RandomState::new().hash_one(std::process::id()) | 1
}

#[cfg(test)]
mod tests {
    use super::*;

    fn devices(list: &[(&str, bool)]) -> CharacterDevices {
        let one = |(name, is_connected): &(&str, bool)| CharacterDevice {
            name: (*name).to_owned(),
            is_connected: *is_connected,
            is_open: false,
        };
        CharacterDevices(list.iter().map(one).collect())
    }

    #[test]
    fn an_agent_that_has_the_port_of_an_ended_process_open_still_uses_its_devices() {
        let names = ObjectNames::new("telemetry").unwrap();
        let has_agent = |name: &str, is_connected, is_open| {
            let mut list = devices(&[(name, is_connected)]);
            list.0[0].is_open = is_open;
            list.has_agent_of_ended(&names)
        };
        let ended = "vnplug-telemetry-77-0abc-characters";
        assert!(has_agent(ended, false, true));
        assert!(!has_agent(ended, false, false));
        assert!(!has_agent(ended, true, true), "it has not ended");
        assert!(!has_agent("vnplug-other-77-0abc-characters", false, true));
        assert!(!has_agent("vnplug-telemetry-77-0abc-turn", false, true));
    }

    #[test]
    fn a_process_of_the_same_application_is_a_rival_while_its_port_is_connected() {
        let names = ObjectNames::new("telemetry").unwrap();
        let port = names.port();
        let rival = |list: &[(&str, bool)]| devices(list).rival(&names);
        assert_eq!(rival(&[(&port, true), ("serial0", true)]), None);
        let other = "vnplug-telemetry-77-0abc-characters";
        assert_eq!(rival(&[(other, true)]), Some(77));
        assert_eq!(rival(&[(other, false)]), None);
        assert_eq!(rival(&[("vnplug-telemetry-77-0abc-turn", true)]), None);
        assert_eq!(rival(&[("vnplug-ringtap-77-0abc-characters", true)]), None);
        assert_eq!(rival(&[("vnplug-telemetry-x-0abc-characters", true)]), None);
    }

    #[test]
    fn a_turn_counts_only_while_its_process_lives() {
        let names = ObjectNames::new("ringtap").unwrap();
        let (turn, port) = ("vnplug-a-7-0-turn", "vnplug-a-7-0-characters");
        let is = |list: &[(&str, bool)]| devices(list).is_turn_of_another(&names);
        assert!(is(&[(turn, true), (port, true)]));
        assert!(!is(&[(turn, true), (port, false)]));
        assert!(!is(&[(turn, true)]));
        assert!(!is(&[
            (&names.name_of("turn"), true),
            (&names.port(), true)
        ]));
    }

    #[test]
    fn only_what_ended_processes_of_the_application_left_is_removed() {
        let names = ObjectNames::new("a").unwrap();
        let list = [
            ("vnplug-a-1-0-characters", false),
            ("vnplug-a-1-0-turn", true),
            ("vnplug-a-2-0-characters", true),
            ("vnplug-a-2-0-1-memory", true),
            ("vnplug-b-3-0-characters", false),
            ("charserial0", false),
        ];
        let devices = devices(&list);
        let left: Vec<_> = devices.removed(&names, Removed::Left).collect();
        assert_eq!(left, ["vnplug-a-1-0-characters", "vnplug-a-1-0-turn"]);
    }

    #[test]
    fn names_of_applications_are_plain() {
        for wrong in ["", "A", "a-b", "a.b", "ä", &"x".repeat(33)] {
            assert!(
                matches!(ObjectNames::new(wrong), Err(VmError::Name(_))),
                "{wrong}"
            );
        }
    }
}
