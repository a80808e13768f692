// SPDX-License-Identifier: MIT OR Apache-2.0
//! Runs the back ends of applications on one guest.
#![forbid(unsafe_code)]

use std::time::Duration;

use super::session::FromGuest;
use super::vm::{GuestVm, VmError};
use crate::ctrl::message::ApplicationId;

/// The host's half of an application, for one guest.
pub trait BackEnd {
    /// The application's number.
    fn application(&self) -> ApplicationId;

    /// Takes in what the guest did: what concerns this application's devices and messages, and the
    /// coming and going of agents and of QEMU.
    ///
    /// # Errors
    ///
    /// Any error ends [`serve`].
    fn handle(&mut self, vm: &mut GuestVm, event: &FromGuest) -> Result<(), VmError>;

    /// Runs after each event and wake-up; returns after what time it wants to run again at the latest.
    ///
    /// # Errors
    ///
    /// Any error ends [`serve`].
    fn tick(&mut self, _vm: &mut GuestVm) -> Result<Option<Duration>, VmError> {
        Ok(None)
    }
}

/// Passes what the guest does to the back ends, until QEMU ends or `stop` is true. To have `stop` looked
/// at, signal [`GuestVm::waker`].
///
/// # Errors
///
/// A back end's, or the system's.
pub fn serve(
    vm: &mut GuestVm,
    back_ends: &mut [&mut dyn BackEnd],
    stop: &dyn Fn() -> bool,
) -> Result<(), VmError> {
    while !stop() {
        let mut timeout = None;
        for back_end in back_ends.iter_mut() {
            let wants = back_end.tick(vm)?;
            timeout = timeout.into_iter().chain(wants).min();
        }
        let Some(event) = vm.next(timeout)? else {
            continue;
        };
        let application = application_of(vm, &event);
        for back_end in back_ends.iter_mut() {
            if application.is_none_or(|application| application == back_end.application()) {
                back_end.handle(vm, &event)?;
            }
        }
        if event == FromGuest::Gone {
            break;
        }
    }
    Ok(())
}

/// The application that an event concerns; `None` for all.
fn application_of(vm: &GuestVm, event: &FromGuest) -> Option<ApplicationId> {
    let device = match event {
        FromGuest::Message(message) => return Some(message.application),
        FromGuest::Ready { device, .. }
        | FromGuest::Failed(device)
        | FromGuest::Released(device)
        | FromGuest::Signal(device, _)
        | FromGuest::Unplugged(device) => *device,
        _ => return None,
    };
    let found = vm.devices().find(|one| one.id() == device);
    found.map(super::HostDevice::application)
}
