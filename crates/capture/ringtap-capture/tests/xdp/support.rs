// SPDX-License-Identifier: MIT OR Apache-2.0
//! Helpers of the AF_XDP tests: opening inside a namespace.

use ringtap_capture::CaptureError;
use ringtap_capture::source::ThreadedSource;
use ringtap_capture::xdp::{self, XdpOptions};
use ringtap_testkit::{Namespace, with};

pub(crate) use crate::captured::{Captured, SOON, finish, frame, own};

/// Captures all arriving packets of `interface` into a small pool.
pub(crate) fn options(interface: &str) -> XdpOptions {
    with(XdpOptions::new(interface), |it| {
        it.on.pool.bytes = Some(8 << 20)
    })
}

/// Opens inside `net`.
pub(crate) fn try_open(
    net: &Namespace,
    options: &XdpOptions,
) -> Result<ThreadedSource, CaptureError> {
    net.enter(|| xdp::open(options))
}

/// Opens inside `net`, or fails the test.
pub(crate) fn open(net: &Namespace, options: &XdpOptions) -> ThreadedSource {
    try_open(net, options).unwrap_or_else(|error| panic!("{error}"))
}
