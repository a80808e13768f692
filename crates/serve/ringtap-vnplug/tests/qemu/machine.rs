// SPDX-License-Identifier: MIT OR Apache-2.0
//! A virtual machine whose only program is the example `vnplug_guest`.

use std::time::{Duration, Instant};

use ringtap_testkit::{GUEST_LIMIT, Running, VirtualMachine};
use ringtap_vnplug::host::{FromGuest, GuestLimits, GuestVm, Monitor, VmError};

pub(crate) const LIMIT: Duration = GUEST_LIMIT;

/// A running virtual machine; killed when dropped.
pub(crate) struct Machine(VirtualMachine);

impl Machine {
    /// Boots one; `None`, with a line that says why, where that cannot be done.
    pub(crate) fn boot(options: &[&str], kernel_options: &str) -> Option<Self> {
        let tests = std::env::current_exe().unwrap();
        let target = tests.ancestors().nth(2).unwrap();
        let built = target.join("examples/vnplug_guest");
        assert!(built.exists(), "cargo build -p ringtap-vnplug --examples");
        VirtualMachine::boot(&[("init", &built)], options, kernel_options).map(Machine)
    }

    pub(crate) fn qemu(&self) -> &Running {
        &self.0.qemu
    }

    pub(crate) fn attach(&self) -> Result<GuestVm, VmError> {
        self.attach_with(GuestLimits::default())
    }

    pub(crate) fn attach_with(&self, limits: GuestLimits) -> Result<GuestVm, VmError> {
        let limits = GuestLimits {
            answer_ms: u64::try_from(LIMIT.as_millis()).unwrap(),
            greeting_ms: u64::try_from(LIMIT.as_millis()).unwrap(),
            ..limits
        };
        GuestVm::attach(&Monitor::Qmp(self.0.qmp()), "check", limits)
    }

    /// Takes in events until one has happened; returns it.
    pub(crate) fn until(&self, vm: &mut GuestVm, is: impl Fn(&FromGuest) -> bool) -> FromGuest {
        let deadline = Instant::now() + LIMIT;
        loop {
            let left = deadline.saturating_duration_since(Instant::now());
            assert!(!left.is_zero(), "the guest: {}", self.qemu().stdout());
            match vm.next(Some(left)).unwrap() {
                Some(event) if is(&event) => return event,
                Some(FromGuest::Gone) => panic!("QEMU: {}", self.qemu().stderr()),
                _ => {}
            }
        }
    }

    /// Takes in events until QEMU has ended; returns those before.
    pub(crate) fn until_gone(&self, vm: &mut GuestVm) -> Vec<FromGuest> {
        let mut before = Vec::new();
        loop {
            match vm.next(Some(LIMIT)).unwrap() {
                Some(FromGuest::Gone) => return before,
                Some(event) => before.push(event),
                None => assert!(before.len() < 1000, "QEMU has not ended: {before:?}"),
            }
        }
    }
}
