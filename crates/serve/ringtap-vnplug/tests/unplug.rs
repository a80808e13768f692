// SPDX-License-Identifier: MIT OR Apache-2.0
//! Unplugs, beside a QEMU that is a thread of the test.
#![allow(clippy::unwrap_used, reason = "in a test a panic is the report")]

#[expect(dead_code, reason = "for other tests")]
mod fake;

use std::time::Duration;

use fake::{FakeQemu, Reports};
use ringtap_vnplug::device::DeviceKind;
use ringtap_vnplug::host::{GuestVm, VmError};

/// A test that waits longer has failed.
const LIMIT: Duration = Duration::from_secs(300);

/// Attaches, plugs two devices and does something; returns the devices whose unplug was asked for.
fn round(leftovers: &[&str], reports: Reports, then: impl FnOnce(GuestVm)) -> Vec<String> {
    let qemu = FakeQemu::start(1, leftovers, reports);
    let mut vm = qemu.attach(0, "test").unwrap();
    vm.plug(1, DeviceKind::Bulk, 4096).unwrap();
    vm.plug(1, DeviceKind::Control { vectors: 1 }, 4096)
        .unwrap();
    then(vm);
    qemu.asked()
}

fn detach(vm: GuestVm) {
    vm.detach(LIMIT).unwrap();
}

#[test]
fn an_unplug_that_qemu_reports_together_with_an_answer_is_noticed() {
    for reports in [Reports::BeforeAnswer, Reports::AfterAnswer] {
        let asked = round(&[], reports, detach);
        assert_eq!(asked.len(), 4, "{asked:?}");
    }
}

#[test]
fn devices_are_unplugged_one_after_the_other_and_asked_for_once() {
    // The unplug of a device takes longer than several looks for it.
    let reports = Reports::Later(Duration::from_millis(400));
    let leftovers = ["1", "port", "serial"].map(|object| format!("vnplug-test-77-0-{object}"));
    let leftovers = leftovers.each_ref().map(|name| &**name);
    let asked = round(&leftovers, reports, detach);
    assert_eq!(asked.len(), 7, "{asked:?}");
    assert_eq!(asked[..3], leftovers);
}

#[test]
fn an_unplug_that_nobody_asked_for_is_an_error() {
    let asked = round(&[], Reports::Unasked, |mut vm| {
        let told = vm.next(Some(LIMIT));
        assert!(matches!(told, Err(VmError::Unplugged(_))), "{told:?}");
        vm.detach(LIMIT).unwrap();
    });
    assert_eq!(asked.len(), 3, "{asked:?}");
}
