// SPDX-License-Identifier: MIT OR Apache-2.0
//! A multicast packet that the host sends and, as a local copy, receives.

use ringtap_testkit::{Namespace, settle_everywhere};

/// Payload of the packet.
pub(crate) const PAYLOAD: &[u8] = b"to our own group";

/// Joins a group on tx0, sends `PAYLOAD` to it, and waits until it is received.
pub(crate) fn send_to_own_group(net: &Namespace, port: u16) {
    net.ip(&["addr", "add", "10.9.0.1/24", "dev", "tx0"]);
    let payload = String::from_utf8_lossy(PAYLOAD);
    let script = format!(
        "import socket\n\
         s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)\n\
         group, own = socket.inet_aton('224.1.2.3'), socket.inet_aton('10.9.0.1')\n\
         s.setsockopt(socket.IPPROTO_IP, socket.IP_ADD_MEMBERSHIP, group + own)\n\
         s.setsockopt(socket.IPPROTO_IP, socket.IP_MULTICAST_IF, own)\n\
         s.bind(('', {port}))\n\
         s.settimeout(60)\n\
         s.sendto(b'{payload}', ('224.1.2.3', {port}))\n\
         s.recv(100)\n"
    );
    let end = net.run("python3", &["-c", &script]);
    assert!(end.status.success(), "{}", end.stderr);
    settle_everywhere();
}
