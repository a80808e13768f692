// SPDX-License-Identifier: MIT OR Apache-2.0
//! The framework between this process and guests of an unmodified QEMU.
#![allow(clippy::unwrap_used, reason = "in a test a panic is the report")]

#[path = "../../examples/telemetry/page.rs"]
#[expect(dead_code, reason = "the guest's half runs in the guest")]
mod page;

mod machine;

use std::sync::atomic::{AtomicU64, Ordering::SeqCst};
use std::time::Duration;

use machine::{LIMIT, Machine};
use ringtap_testkit::require_root;
use ringtap_vnplug::ctrl::message::{ApplicationMessage, MAX_PAYLOAD_BYTES};
use ringtap_vnplug::device::{DeviceKind, MappingKind};
use ringtap_vnplug::host::{
    BackEnd as _, FromGuest, GuestLimits, GuestVm, HostDevice, VmError, serve,
};

/// Number of the application that the guest's program serves beside `telemetry`.
const CHECK: u32 = 1;
const BULK_BYTES: u64 = 20 << 20;
const VECTORS: u16 = 3;
const PORTS: [&str; 6] = [
    "pcie-root-port,id=p1,chassis=1,pref64-reserve=1M",
    "pcie-root-port,id=p2,chassis=2,pref64-reserve=64M",
    "pcie-root-port,id=p3,chassis=3",
    "pcie-root-port,id=p4,chassis=4",
    "pcie-root-port,id=p5,chassis=5",
    "pcie-root-port,id=p6,chassis=6,hotplug=off",
];

fn options(more: &[&'static str]) -> Vec<&'static str> {
    let ports = PORTS.iter().flat_map(|port| ["-device", port]);
    more.iter().copied().chain(ports).collect()
}

fn message(kind: u16, payload: Vec<u8>) -> ApplicationMessage {
    ApplicationMessage {
        application: CHECK,
        kind,
        request: 77,
        payload,
    }
}

/// Plugs both devices of the checking application and waits until the guest has mapped them.
fn plug(
    machine: &Machine,
    vm: &mut GuestVm,
    [has_iommu, can_interrupt]: [bool; 2],
) -> (HostDevice, HostDevice) {
    let bulk = vm.plug(CHECK, DeviceKind::Bulk, BULK_BYTES).unwrap();
    let control = vm.plug(CHECK, DeviceKind::Control { vectors: VECTORS }, 4096);
    let control = control.unwrap();
    for device in [&bulk, &control] {
        let ready = machine.until(
            vm,
            |event| matches!(event, FromGuest::Ready { device: one, .. } if *one == device.id()),
        );
        let by_vfio = has_iommu && device.id() == control.id();
        assert!(
            matches!(ready, FromGuest::Ready { mapping, interrupts, .. }
                if (mapping == MappingKind::Vfio) == by_vfio && interrupts == (by_vfio && can_interrupt)),
            "{ready:?}"
        );
    }
    (bulk, control)
}

/// Sends a message of the checking application and returns the payload of the answer.
fn ask(machine: &Machine, vm: &mut GuestVm, kind: u16, payload: Vec<u8>) -> Vec<u8> {
    vm.send(message(kind, payload)).unwrap();
    let is = |event: &FromGuest| matches!(event, FromGuest::Message(answer) if answer.kind == kind);
    match machine.until(vm, is) {
        FromGuest::Message(answer) => answer.payload,
        _ => unreachable!(),
    }
}

/// The guest sees every byte that the host writes, and changes none.
fn check_bulk(machine: &Machine, vm: &mut GuestVm, bulk: &HostDevice) {
    let words = usize::try_from(BULK_BYTES / 8).unwrap();
    let memory = bulk.memory().words::<AtomicU64>(0, words).unwrap();
    (0..)
        .zip(memory.iter())
        .for_each(|(n, word)| word.store(n, SeqCst));
    let sum = || memory.iter().map(|word| word.load(SeqCst)).sum::<u64>();
    let expected = sum();
    for kind in [2, 3] {
        let answer = ask(machine, vm, kind, bulk.id().0.to_le_bytes().to_vec());
        assert_eq!(
            answer,
            expected.to_le_bytes(),
            "kind {kind}: {}",
            String::from_utf8_lossy(&answer)
        );
    }
    assert_eq!(sum(), expected);
    assert_eq!(bulk.memory().device(), Some(bulk.id()));
}

/// Each signal on each vector reaches the guest, which counts it in shared memory and signals back.
fn check_signals(machine: &Machine, vm: &mut GuestVm, control: &HostDevice) {
    let counts = control
        .memory()
        .words::<AtomicU64>(0, usize::from(VECTORS))
        .unwrap();
    let before: Vec<_> = counts.iter().map(|one| one.load(SeqCst)).collect();
    for round in 1..=20 {
        for vector in 0..VECTORS {
            control.signal(vector);
            let rang = FromGuest::Signal(control.id(), vector);
            machine.until(vm, |event| *event == rang);
            let at = usize::from(vector);
            assert_eq!(counts[at].load(SeqCst), before[at] + round);
        }
    }
}

fn check_messages(machine: &Machine, vm: &mut GuestVm) {
    for bytes in [0, 1, 5000, MAX_PAYLOAD_BYTES] {
        let payload: Vec<u8> = (0..bytes).map(|n| u8::try_from(n % 256).unwrap()).collect();
        assert!(
            ask(machine, vm, 1, payload.clone()) == payload,
            "{bytes} bytes"
        );
    }
    let too_long = vm.send(message(1, vec![0; MAX_PAYLOAD_BYTES + 1]));
    assert!(matches!(too_long, Err(VmError::TooLong(_))));
}

/// What QEMU or the guest could not carry out is refused, and QEMU is not asked.
fn check_refusals(vm: &mut GuestVm) {
    for bytes in [65 << 20, 2 << 30] {
        let refused = vm.plug(CHECK, DeviceKind::Bulk, bytes);
        assert!(matches!(refused, Err(VmError::NoWindow { .. })));
    }
    let refused = vm.plug(CHECK, DeviceKind::Bulk, u64::MAX);
    assert!(matches!(refused, Err(VmError::Size(u64::MAX))));
    let refused = vm.plug(0, DeviceKind::Bulk, 1);
    assert!(matches!(refused, Err(VmError::NoApplication)));
    let last = [1, 1 << 20].map(|bytes| vm.plug(CHECK, DeviceKind::Bulk, bytes).unwrap());
    let refused = vm.plug(CHECK, DeviceKind::Bulk, 1);
    assert!(matches!(refused, Err(VmError::NoPort)));
    for device in last {
        vm.unplug(device.id()).unwrap();
    }
}

/// An agent that ends in any way is noticed, and the next one gets everything anew.
fn check_agents(machine: &Machine, vm: &mut GuestVm, control: &HostDevice) {
    for kind in [4, 5] {
        vm.send(message(kind, Vec::new())).unwrap();
        machine.until(vm, |event| *event == FromGuest::Left);
        machine.until(vm, |event| *event == FromGuest::Arrived);
        for _ in 0..2 {
            machine.until(vm, |event| matches!(event, FromGuest::Ready { .. }));
        }
        check_messages(machine, vm);
        check_signals(machine, vm, control);
    }
    assert!(vm.refused_messages() > 0, "the noise");
}

fn boot_with_iommu() -> Option<Machine> {
    let more = ["-M", "q35", "-device", "intel-iommu,intremap=on"];
    Machine::boot(&options(&more), "intel_iommu=on iommu=pt")
}

#[test]
fn a_guest_with_an_iommu_gets_memory_messages_and_interrupts() {
    require_root!();
    let Some(machine) = boot_with_iommu() else {
        return;
    };
    // An emulated guest, from which the control device is not unplugged.
    let limits = GuestLimits {
        interrupts_without_kvm: true,
        ..GuestLimits::default()
    };
    let mut vm = machine.attach_with(limits).unwrap();
    machine.until(&mut vm, |event| *event == FromGuest::Arrived);
    let (bulk, control) = plug(&machine, &mut vm, [true, true]);
    check_bulk(&machine, &mut vm, &bulk);
    check_signals(&machine, &mut vm, &control);
    check_agents(&machine, &mut vm, &control);
    check_refusals(&mut vm);
}

#[test]
fn devices_of_a_host_process_that_died_are_unplugged_by_the_next() {
    require_root!();
    let Some(machine) = boot_with_iommu() else {
        return;
    };
    let mut vm = machine.attach().unwrap();
    machine.until(&mut vm, |event| *event == FromGuest::Arrived);
    let (_, control) = plug(&machine, &mut vm, [true, false]);
    check_signals(&machine, &mut vm, &control);
    vm.unplug(control.id()).unwrap();
    machine.until(&mut vm, |event| {
        *event == FromGuest::Unplugged(control.id())
    });
    assert!(matches!(vm.unplug(control.id()), Err(VmError::NoDevice)));
    drop(vm);
    let mut vm = machine.attach().unwrap();
    machine.until(&mut vm, |event| *event == FromGuest::Arrived);
    let (_, control) = plug(&machine, &mut vm, [true, false]);
    check_signals(&machine, &mut vm, &control);
    // The emulated guest's kernel once did not come back from its last unplug: one of its processors
    // ran without end.
    let detached = vm.detach(Duration::from_secs(60));
    assert!(
        matches!(detached, Ok(()) | Err(VmError::Held(_))),
        "{detached:?}"
    );
}

#[test]
fn two_applications_share_a_guest_without_an_iommu_until_qemu_is_killed() {
    require_root!();
    let Some(machine) = Machine::boot(&options(&["-M", "q35"]), "") else {
        return;
    };
    let mut vm = machine.attach().unwrap();
    machine.until(&mut vm, |event| *event == FromGuest::Arrived);
    let (_, control) = plug(&machine, &mut vm, [false, false]);
    check_signals(&machine, &mut vm, &control);
    let mut telemetry = page::Telemetry::plug(&mut vm, Duration::from_millis(100)).unwrap();
    assert_eq!(telemetry.application(), page::APPLICATION);
    let told = || {
        machine
            .qemu()
            .stdout()
            .matches("GUEST telemetry Some((")
            .count()
    };
    serve(&mut vm, &mut [&mut telemetry], &|| told() >= 3).unwrap();
    check_signals(&machine, &mut vm, &control);
    check_messages(&machine, &mut vm);
    machine.qemu().signal(rustix::process::Signal::KILL);
    let gone = machine.until_gone(&mut vm);
    assert!(gone.contains(&FromGuest::Left));
    assert!(matches!(vm.next(None), Err(VmError::Gone)));
    assert!(matches!(
        vm.plug(CHECK, DeviceKind::Bulk, 1),
        Err(VmError::Gone)
    ));
    vm.detach(LIMIT).unwrap();
}
