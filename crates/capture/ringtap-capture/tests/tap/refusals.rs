// SPDX-License-Identifier: MIT OR Apache-2.0
//! Error messages for taps that cannot be attached.

use libbpf_rs::{ObjectBuilder, Xdp, XdpFlags};
use ringtap_bpf::BpfError;
use ringtap_capture::CaptureError;
use ringtap_capture::tap::{Mode, TapOptions};
use ringtap_device::Queues;
use ringtap_pool::source::Source;
use ringtap_testkit::{Namespace, require_root, require_tool, with};
use std::os::fd::AsFd;

use crate::support::{attach, index, options, try_attach};

/// The compiled `bpf/floor.bpf.c`: an XDP program of another tool.
const OTHER: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/floor.bpf.o"));

fn message(net: &Namespace, options: &TapOptions) -> String {
    match try_attach(net, options) {
        Ok(tap) => panic!("attached: {:?}", tap.facts()),
        Err(error) => error.to_string(),
    }
}

#[test]
fn another_program_is_named_with_what_to_do() {
    require_root!();
    require_tool!("ip");
    let net = Namespace::with_veth("other_program");
    let object = ObjectBuilder::default()
        .open_memory(OTHER)
        .unwrap()
        .load()
        .unwrap();
    let program = object.progs().next().unwrap();
    let index = index(&net, "rx0");
    let program = program.as_fd().try_clone_to_owned().unwrap();
    net.enter(|| Xdp::new(program.as_fd()).attach(index, XdpFlags::DRV_MODE))
        .unwrap();
    let error = try_attach(&net, &options("rx0")).err().unwrap();
    let CaptureError::Bpf(BpfError::AnotherProgram { id, name, .. }) = &error else {
        panic!("{error}")
    };
    assert!(*id > 0);
    assert_eq!(name, "rt_drop");
    let text = error.to_string();
    assert!(
        text.contains("no process holds it") && text.contains("packet:rx0"),
        "{text}"
    );

    net.ip(&["link", "set", "dev", "rx0", "xdp", "off"]);
    drop(attach(&net, &options("rx0")));
}

#[test]
fn a_second_tap_is_told_of_the_first_and_may_use_traffic_control() {
    require_root!();
    require_tool!("ip");
    let net = Namespace::with_veth("second");
    let first = attach(&net, &options("rx0"));
    let text = message(&net, &options("rx0"));
    assert!(
        text.contains("rt_rx") && text.contains(&format!("process {}", std::process::id())),
        "{text}"
    );
    drop(attach(
        &net,
        &with(options("rx0"), |it| it.on.mode = Mode::Tc),
    ));
    drop(first);
    drop(attach(&net, &options("rx0")));
}

#[test]
fn the_kernels_own_reason_for_refusing_native_mode_is_told() {
    require_root!();
    require_tool!("ip");
    let net = Namespace::new("refused");
    let text = message(&net, &with(options("lo"), |it| it.on.mode = Mode::Native));
    assert!(text.contains("native XDP"), "{text}");
    assert!(
        text.contains("does not support XDP in native mode"),
        "{text}"
    );
}

#[test]
fn a_fall_back_is_told_with_its_reason() {
    require_root!();
    require_tool!("ip");
    let net = Namespace::new("fall_back");
    let tap = attach(&net, &options("lo"));
    let facts = tap.facts();
    assert!(
        facts
            .notes
            .iter()
            .any(|note| note.contains("falling back to")),
        "{facts:?}"
    );
    assert!(facts.offered_from.contains("tcx"), "{facts:?}");
}

#[test]
fn wrong_names_and_sizes_are_refused_with_what_to_change() {
    require_root!();
    require_tool!("ip");
    let net = Namespace::with_veth("wrong");
    let text = message(&net, &options("rx1"));
    assert!(text.contains("rx1") && text.contains("rx0"), "{text}");
    net.ip(&["link", "set", "rx0", "down"]);
    assert!(message(&net, &options("rx0")).contains("down"));
    net.ip(&["link", "set", "rx0", "up"]);
    let text = message(
        &net,
        &with(options("rx0"), |it| it.on.pool.chunk_bytes = Some(5000)),
    );
    assert!(text.contains("power of two"), "{text}");
    let text = message(
        &net,
        &with(options("rx0"), |it| it.on.pool.bytes = Some(4096)),
    );
    assert!(text.contains("chunks"), "{text}");
    let text = message(
        &net,
        &with(options("rx0"), |it| {
            it.on.queues = Queues::chosen([256..=256])
        }),
    );
    assert!(text.contains("256"), "{text}");
    assert!(!net.has_xdp("rx0"), "what was refused is not attached");
}

#[test]
fn a_pool_larger_than_the_memory_is_refused() {
    require_root!();
    require_tool!("ip");
    let net = Namespace::with_veth("memory");
    let text = message(
        &net,
        &with(options("rx0"), |it| it.on.pool.bytes = Some(1 << 46)),
    );
    assert!(
        text.contains("no memory") && text.contains("pool"),
        "{text}"
    );
}

#[test]
fn an_interface_without_ethernet_headers_is_refused() {
    require_root!();
    require_tool!("ip");
    let net = Namespace::new("tun");
    net.ip(&["tuntap", "add", "tun0", "mode", "tun"]);
    net.ip(&["link", "set", "tun0", "up"]);
    let text = message(&net, &options("tun0"));
    assert!(
        text.contains("not an Ethernet interface") && text.contains("packet:tun0"),
        "{text}"
    );
}

#[test]
fn without_rights_the_missing_capability_is_named() {
    require_root!();
    require_tool!("ip");
    let net = Namespace::with_veth("rights");
    let text = net.enter(|| {
        use rustix::thread::{CapabilitySet, CapabilitySets, capabilities, set_capabilities};
        let kept = capabilities(None).unwrap();
        let dropped = CapabilitySet::BPF | CapabilitySet::PERFMON | CapabilitySet::SYS_ADMIN;
        let effective = kept.effective & !dropped;
        set_capabilities(None, CapabilitySets { effective, ..kept }).unwrap();
        ringtap_capture::tap::Tap::attach(&options("rx0"))
            .err()
            .unwrap()
            .to_string()
    });
    assert!(text.contains("needs CAP_BPF and CAP_PERFMON:"), "{text}");
}
