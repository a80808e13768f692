// SPDX-License-Identifier: MIT OR Apache-2.0
//! Detects another XDP program on an interface, waits for its end, and explains how to detach it.
#![forbid(unsafe_code)]

use std::thread::sleep;
use std::time::{Duration, Instant};

use libbpf_rs::query::{LinkInfo, LinkInfoIter, LinkTypeInfo, ProgInfoIter};
use ringtap_net::interface::Interface;

use super::{link, object};
use crate::CaptureError;

/// Longest wait for a program whose process has ended; the kernel detaches it with a delay.
const LEAVING: Duration = Duration::from_secs(2);
const NAP: Duration = Duration::from_millis(20);

/// Whether a program of this name is Ringtap's.
pub fn is_ours(name: &str) -> bool {
    name.starts_with("rt_")
}

/// Waits until no other XDP program is attached, if the attached one may be about to leave.
///
/// # Errors
///
/// [`CaptureError::AnotherProgram`]: the program stays, or `may_leave` rejects it.
pub fn wait_for_another(
    interface: &Interface,
    may_leave: impl Fn(&str) -> bool,
) -> Result<(), CaptureError> {
    let start = Instant::now();
    while let Some(error) = another_program(interface) {
        let leaves =
            matches!(&error, CaptureError::AnotherProgram { name, .. } if may_leave(name.as_str()));
        if !leaves || start.elapsed() > LEAVING {
            return Err(error);
        }
        sleep(NAP);
    }
    Ok(())
}

/// The error for an XDP program that is already attached, if there is one.
pub fn another_program(interface: &Interface) -> Option<CaptureError> {
    let (ids, _) = object::logged(|| link::xdp_programs(interface.index));
    let id = *ids.ok()?.first()?;
    let program = ProgInfoIter::default().find(|program| program.id == id);
    let name = program.map_or_else(|| "?".into(), |it| it.name.to_string_lossy().into_owned());
    Some(CaptureError::AnotherProgram {
        interface: interface.name.clone(),
        id,
        name,
        remedy: remedy(interface, id),
    })
}

fn remedy(interface: &Interface, program: u32) -> String {
    let attaches_it = |info: &LinkInfo| {
        info.prog_id == program
            && matches!(&info.info, LinkTypeInfo::Xdp(xdp) if xdp.ifindex == interface.index)
    };
    match LinkInfoIter::default().find(attaches_it) {
        Some(link) => format!(
            "stop the process that holds its link, or detach it with `bpftool link detach id {}`",
            link.id
        ),
        None => format!(
            "detach it with `ip link set dev {} xdp off`",
            interface.name
        ),
    }
}
