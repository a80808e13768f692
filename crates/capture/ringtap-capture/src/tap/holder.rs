// SPDX-License-Identifier: MIT OR Apache-2.0
//! Who stands in the way: another XDP program on the interface, and how to get rid of it; and
//! the kernel's own words when it refuses ours.
#![forbid(unsafe_code)]

use std::thread::sleep;
use std::time::{Duration, Instant};

use libbpf_rs::query::{LinkInfoIter, LinkTypeInfo, ProgInfoIter};
use libbpf_rs::{Link, MapCore, MapFlags, Object, ObjectBuilder};

use rustix::thread::gettid;

use super::error::TapError;
use super::hook;
use crate::libbpf::{self, Code};
use ringtap_net::interface::Interface;

/// The compiled `bpf/refusal.bpf.c`.
static CODE: &Code<[u8]> = &Code(*include_bytes!(concat!(env!("OUT_DIR"), "/refusal.bpf.o")));

/// The only entry of the refusal's map, and the room for words in it.
const KEY: [u8; 4] = [0; 4];
const REASON: usize = 120;

/// How long a program may stay that is about to go: the kernel ends it later than its process.
const PATIENCE: Duration = Duration::from_secs(2);
const NAP: Duration = Duration::from_millis(20);

/// Whether a program of this name is Ringtap's.
pub(crate) fn is_ours(name: &str) -> bool {
    name.starts_with("rt_")
}

/// Waits for a program that may be about to go, going by its name.
///
/// # Errors
///
/// [`TapError::AnotherProgram`]: it stands in the way.
pub(crate) fn wait_for_another(
    interface: &Interface,
    may_go: impl Fn(&str) -> bool,
) -> Result<(), TapError> {
    let start = Instant::now();
    while let Some(error) = another_program(interface) {
        let goes = matches!(&error, TapError::AnotherProgram { name, .. } if may_go(name.as_str()));
        if !goes || start.elapsed() > PATIENCE {
            return Err(error);
        }
        sleep(NAP);
    }
    Ok(())
}

/// The error for an XDP program that is attached already, if there is one.
pub(crate) fn another_program(interface: &Interface) -> Option<TapError> {
    let (ids, _) = libbpf::collect(|| hook::xdp_programs(interface.index));
    let id = *ids.ok()?.first()?;
    let program = ProgInfoIter::default().find(|program| program.id == id);
    let name = program.map_or_else(|| "?".into(), |it| it.name.to_string_lossy().into_owned());
    Some(TapError::AnotherProgram {
        interface: interface.name.clone(),
        id,
        name,
        remedy: remedy(interface, id),
    })
}

fn remedy(interface: &Interface, program: u32) -> String {
    let ours = |info: &libbpf_rs::query::LinkInfo| {
        info.prog_id == program
            && matches!(&info.info, LinkTypeInfo::Xdp(xdp) if xdp.ifindex == interface.index)
    };
    match LinkInfoIter::default().find(ours) {
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

/// Catches the kernel's words for refused XDP attachments of this thread.
pub(crate) struct Refusals {
    object: Object,
    _link: Link,
}

impl Refusals {
    /// Listens from now on; `None` where the kernel cannot tell (before 6.5).
    pub(crate) fn listen() -> Option<Self> {
        let (listening, _) = libbpf::collect(|| {
            let object = ObjectBuilder::default()
                .open_memory(&CODE.0)
                .ok()?
                .load()
                .ok()?;
            let thread = u64::try_from(gettid().as_raw_pid()).ok()?;
            let value = [&thread.to_ne_bytes()[..], &[0; REASON]].concat();
            object
                .maps()
                .next()?
                .update(&KEY, &value, MapFlags::ANY)
                .ok()?;
            let link = object.progs_mut().next()?.attach().ok()?;
            Some(Refusals {
                object,
                _link: link,
            })
        });
        listening
    }

    /// What the kernel said last; `None` if nothing.
    pub(crate) fn last(&self) -> Option<String> {
        let map = self.object.maps().next()?;
        let value = map.lookup(&KEY, MapFlags::ANY).ok()??;
        let text: Vec<u8> = value
            .into_iter()
            .skip(8)
            .take_while(|byte| *byte != 0)
            .collect();
        (!text.is_empty()).then(|| String::from_utf8_lossy(&text).into_owned())
    }
}
