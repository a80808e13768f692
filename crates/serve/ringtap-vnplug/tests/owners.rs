// SPDX-License-Identifier: MIT OR Apache-2.0
//! Several processes at one QEMU, which threads of the test play, and connections with it that end.
#![allow(clippy::unwrap_used, reason = "in a test a panic is the report")]

#[expect(dead_code, reason = "for other tests")]
mod fake;

use std::os::unix::net::UnixStream;
use std::thread;
use std::time::Duration;

use fake::{FakeQemu, Reports};
use ringtap_vnplug::device::DeviceKind;
use ringtap_vnplug::host::{FromGuest, GuestVm, VmError};

/// A test that waits longer has failed.
const LIMIT: Duration = Duration::from_secs(300);

fn plug(vm: &mut GuestVm) {
    vm.plug(1, DeviceKind::Bulk, 4096).unwrap();
    vm.plug(1, DeviceKind::Control { vectors: 1 }, 4096)
        .unwrap();
}

/// Names of what an application has at a QEMU.
fn of(qemu: &FakeQemu, application: &str) -> Vec<String> {
    let start = format!("vnplug-{application}-");
    let mut all = qemu.has();
    all.retain(|name| name.starts_with(&start));
    all
}

/// The next thing that is no timeout.
fn next(vm: &mut GuestVm) -> FromGuest {
    (0..1000)
        .find_map(|_| vm.next(Some(LIMIT)).unwrap())
        .unwrap()
}

#[test]
fn one_process_owns_an_application_and_the_next_takes_over_when_it_has_ended() {
    let qemu = FakeQemu::start(2, &[], Reports::AfterAnswer);
    let mut first = qemu.attach(0, "a").unwrap();
    plug(&mut first);
    let before = of(&qemu, "a");
    let refused = qemu.attach(1, "a").err().unwrap();
    let own = std::process::id();
    assert!(
        matches!(refused, VmError::Owned { process, .. } if process == own),
        "{refused}"
    );
    assert!(
        refused.to_string().contains(&format!("process {own}")),
        "{refused}"
    );
    assert_eq!(of(&qemu, "a"), before);
    assert_eq!(qemu.asked().len(), 0);
    // As a process that is killed: it unplugs nothing.
    drop(first);
    let next = qemu.attach(1, "a").unwrap();
    let all = of(&qemu, "a");
    assert!(all.iter().all(|name| !before.contains(name)), "{all:?}");
    assert_eq!(qemu.asked().len(), 4);
    next.detach(LIMIT).unwrap();
    assert_eq!(of(&qemu, "a").len(), 0);
}

#[test]
fn applications_share_a_qemu_and_each_removes_only_what_is_its_own() {
    let qemu = FakeQemu::start(2, &[], Reports::AfterAnswer);
    let [mut first, mut second] =
        [(0, "a"), (1, "ab")].map(|(socket, name)| qemu.attach(socket, name).unwrap());
    plug(&mut first);
    plug(&mut second);
    let of_second = of(&qemu, "ab");
    assert_eq!(of_second.len(), of(&qemu, "a").len());
    drop(first);
    let again = qemu.attach(0, "a").unwrap();
    assert_eq!(of(&qemu, "ab"), of_second);
    again.detach(LIMIT).unwrap();
    assert_eq!(of(&qemu, "ab"), of_second);
    let first = qemu.attach(0, "a").unwrap();
    let of_first = of(&qemu, "a");
    second.detach(LIMIT).unwrap();
    assert_eq!(of(&qemu, "ab").len(), 0);
    assert_eq!(of(&qemu, "a"), of_first);
    first.detach(LIMIT).unwrap();
    assert_eq!(qemu.has().len(), 0);
}

#[test]
fn of_processes_that_attach_an_application_at_once_one_becomes_the_owner() {
    let qemu = FakeQemu::start(4, &[], Reports::AfterAnswer);
    let attached: Vec<_> = thread::scope(|scope| {
        let all = [0, 1, 2, 3].map(|socket| {
            let qemu = &qemu;
            scope.spawn(move || qemu.attach(socket, "a"))
        });
        all.into_iter().map(|one| one.join().unwrap()).collect()
    });
    let owners = attached.iter().filter(|one| one.is_ok()).count();
    assert_eq!(owners, 1);
    let is_told = |one: &Result<_, _>| matches!(one, Ok(_) | Err(VmError::Owned { .. }));
    assert!(attached.iter().all(is_told));
    assert_eq!(of(&qemu, "a").len(), 3);
}

#[test]
fn applications_unplug_one_after_the_other() {
    let qemu = FakeQemu::start(3, &[], Reports::Later(Duration::from_millis(100)));
    thread::scope(|scope| {
        for (socket, name) in [(0, "a"), (1, "b"), (2, "c")] {
            let qemu = &qemu;
            scope.spawn(move || {
                let mut vm = qemu.attach(socket, name).unwrap();
                plug(&mut vm);
                vm.detach(LIMIT).unwrap();
            });
        }
    });
    assert_eq!(qemu.asked().len(), 12);
    assert_eq!(qemu.has().len(), 0);
}

#[test]
fn a_process_that_keeps_its_turn_delays_others_for_a_while_and_one_that_ended_for_none() {
    let qemu = FakeQemu::start(1, &[], Reports::AfterAnswer);
    let (here, for_qemu) = UnixStream::pair().unwrap();
    qemu.add_character("vnplug-b-77-0-characters", Some(for_qemu.into()));
    qemu.add_character("vnplug-b-77-0-turn", None);
    // Once it has waited in vain it waits no more.
    let mut vm = qemu.attach(0, "a").unwrap();
    plug(&mut vm);
    vm.detach(LIMIT).unwrap();
    drop(here);
    let mut vm = qemu.attach(0, "a").unwrap();
    plug(&mut vm);
    vm.detach(LIMIT).unwrap();
    assert_eq!(of(&qemu, "a").len(), 0);
    assert_eq!(of(&qemu, "b").len(), 2);
}

#[test]
fn a_connection_that_ends_is_made_again_and_what_happened_meanwhile_is_noticed() {
    let qemu = FakeQemu::start(1, &[], Reports::Later(LIMIT));
    let mut vm = qemu.attach(0, "a").unwrap();
    plug(&mut vm);
    let device = vm.devices().next().unwrap().id();
    vm.unplug(device).unwrap();
    while qemu.asked().is_empty() {
        assert_eq!(vm.next(Some(Duration::from_millis(10))).unwrap(), None);
    }
    qemu.disconnect(true);
    assert_eq!(next(&mut vm), FromGuest::Disconnected);
    let refused = vm.plug(1, DeviceKind::Bulk, 4096);
    assert!(matches!(refused, Err(VmError::Disconnected)));
    qemu.unplug_silently("-none");
    qemu.disconnect(false);
    assert_eq!(next(&mut vm), FromGuest::Reconnected);
    assert_eq!(next(&mut vm), FromGuest::Unplugged(device));
    assert_eq!(vm.devices().count(), 1);
    // One that is made again at once is not worth a word.
    qemu.disconnect(false);
    let told = vm.next(Some(Duration::from_secs(3))).unwrap();
    assert_eq!(told, None);
    vm.plug(1, DeviceKind::Bulk, 4096).unwrap();
    // What another program unplugs meanwhile is an error.
    qemu.disconnect(true);
    assert_eq!(next(&mut vm), FromGuest::Disconnected);
    qemu.unplug_silently("-port");
    qemu.disconnect(false);
    let told = (0..1000).find_map(|_| vm.next(Some(LIMIT)).err()).unwrap();
    assert!(matches!(told, VmError::Unplugged(_)), "{told}");
}

#[test]
fn a_qemu_that_ends_while_nothing_is_connected_is_noticed() {
    let qemu = FakeQemu::start(1, &[], Reports::AfterAnswer);
    let mut vm = qemu.attach(0, "a").unwrap();
    plug(&mut vm);
    qemu.disconnect(true);
    assert_eq!(next(&mut vm), FromGuest::Disconnected);
    qemu.end();
    assert_eq!(next(&mut vm), FromGuest::Gone);
    assert!(matches!(vm.next(None), Err(VmError::Gone)));
    vm.detach(LIMIT).unwrap();
}
