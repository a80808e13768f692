// SPDX-License-Identifier: MIT OR Apache-2.0
//! VLAN tags: in frames, and beside packets as a NIC that strips tags leaves them.

use std::os::fd::{AsFd, AsRawFd, FromRawFd, OwnedFd};

use libbpf_rs::{ObjectBuilder, libbpf_sys};
use ringtap_net::interface::Interface;
use ringtap_testkit::Namespace;

/// The same frame with an 802.1Q tag.
pub(crate) fn tagged(frame: &[u8], vlan: u16) -> Vec<u8> {
    [
        &frame[..12],
        &[0x81, 0x00],
        &vlan.to_be_bytes(),
        &frame[12..],
    ]
    .concat()
}

/// The compiled `bpf/tagging.bpf.c`.
const TAGGING: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/tagging.bpf.o"));

/// Adds VLAN tag 5 to the metadata of packets that leave `interface`, while this value exists.
pub(crate) struct Tagging {
    _link: OwnedFd,
}

impl Tagging {
    pub(crate) fn on(net: &Namespace, interface: &str) -> Self {
        let object = ObjectBuilder::default()
            .open_memory(TAGGING)
            .unwrap()
            .load()
            .unwrap();
        let program = object
            .progs()
            .next()
            .unwrap()
            .as_fd()
            .try_clone_to_owned()
            .unwrap();
        let index = index(net, interface);
        let link = net.enter(|| {
            let options = libbpf_sys::bpf_link_create_opts {
                sz: size_of::<libbpf_sys::bpf_link_create_opts>()
                    .try_into()
                    .unwrap(),
                // Before a tap, if there is one.
                flags: libbpf_sys::BPF_F_BEFORE,
                ..Default::default()
            };
            let (fd, hook) = (program.as_raw_fd(), libbpf_sys::BPF_TCX_EGRESS);
            // SAFETY: the descriptor is open and the options live during the call.
            unsafe { libbpf_sys::bpf_link_create(fd, index, hook, &raw const options) }
        });
        assert!(
            link >= 0,
            "tcx link: {}",
            std::io::Error::from_raw_os_error(-link)
        );
        // SAFETY: just made, and nobody else owns it.
        let _link = unsafe { OwnedFd::from_raw_fd(link) };
        Tagging { _link }
    }
}

/// The kernel's index of an interface.
pub(crate) fn index(net: &Namespace, interface: &str) -> i32 {
    let found = net.enter(|| Interface::find(interface)).unwrap();
    found.index.try_into().unwrap()
}
