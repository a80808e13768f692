// SPDX-License-Identifier: MIT OR Apache-2.0
//! Loads the sender's programs and puts those that count at their tracepoints.
#![forbid(unsafe_code)]

use std::io;

use libbpf_rs::{ErrorKind, Link, MapHandle, Object, ObjectBuilder, OpenObject};

use super::super::error::NoLiveFrames;
use ringtap_capture::libbpf::{self, Code};
use ringtap_net::kernel::{self, Feature};
use ringtap_net::rights::{Capability, Rights};

/// The compiled `bpf/send.bpf.c`.
static CODE: &Code<[u8]> = &Code(*include_bytes!(concat!(env!("OUT_DIR"), "/send.bpf.o")));

/// The program that makes packets.
pub(super) const MADE: &str = "rt_send_made";
/// The program that sends the packets of a file.
pub(super) const FILE: &str = "rt_send_file";
/// The programs that count, and where.
const COUNTING: [(&str, &str); 2] = [
    ("rt_send_taken", "xdp_devmap_xmit"),
    ("rt_send_refused", "xdp_redirect_err"),
];

/// The key of an array's first entry.
pub(super) const FIRST_KEY: [u8; 4] = [0; 4];

/// Loads one of the sending programs, with the counting ones.
pub(super) fn load(program: &str, config: &[u8]) -> Result<Object, NoLiveFrames> {
    let (object, lines) = libbpf::collect(|| {
        let mut open = ObjectBuilder::default().open_memory(&CODE.0)?;
        prepare(&mut open, program, config)?;
        open.load()
    });
    object.map_err(|error| {
        let source = io_error(&error);
        if let Some(why) = lacking_rights(&error) {
            return why;
        }
        if let Err(too_old) = kernel::require(Feature::XdpLiveFrames) {
            return NoLiveFrames::KernelTooOld(too_old);
        }
        let why = format!("{source}: {}", verdict(&lines.concat()));
        NoLiveFrames::Kernel {
            action: "loading the programs",
            source: io::Error::new(source.kind(), why),
        }
    })
}

fn prepare(open: &mut OpenObject, program: &str, config: &[u8]) -> libbpf_rs::Result<()> {
    for mut one in open.progs_mut() {
        let unused = [MADE, FILE]
            .iter()
            .any(|name| one.name() == *name && *name != program);
        one.set_autoload(!unused);
    }
    for mut map in open.maps_mut() {
        if map.name() == ".rodata.config" {
            map.set_initial_value(config)?;
        } else if map.name() == "rt_send_cells" {
            map.set_autocreate(program == FILE)?;
        }
    }
    Ok(())
}

/// Puts the counting programs in place; dropping the links removes them.
pub(super) fn attach_tracepoints(object: &Object) -> Result<Vec<Link>, NoLiveFrames> {
    let attach = |(name, tracepoint): &(&str, &str)| {
        let program = object.progs_mut().find(|one| one.name() == *name);
        let program = program.ok_or_else(|| io::Error::from(io::ErrorKind::NotFound))?;
        program.attach_raw_tracepoint(tracepoint)
    };
    let (links, _said) = libbpf::collect(|| {
        let all: libbpf_rs::Result<Vec<Link>> = COUNTING.iter().map(attach).collect();
        all
    });
    links.map_err(|error| match lacking_rights(&error) {
        Some(why) => why,
        None => refused("counting at the tracepoints")(error),
    })
}

/// The end of what libbpf said: of a verifier's log, the reason.
fn verdict(said: &str) -> String {
    let reason = said.split("\nprocessed ").next().unwrap_or(said);
    let last: Vec<_> = reason.trim_end().lines().rev().take(2).collect();
    last.into_iter().rev().collect::<Vec<_>>().join("; ")
}

/// The refusal in terms of rights, if it is a matter of those.
fn lacking_rights(error: &libbpf_rs::Error) -> Option<NoLiveFrames> {
    if error.kind() != ErrorKind::PermissionDenied {
        return None;
    }
    let rights = Rights::of_this_process();
    let needed = [Capability::Bpf, Capability::NetAdmin, Capability::Perfmon];
    let missing: Vec<_> = needed.into_iter().filter(|one| !rights.has(*one)).collect();
    match missing.is_empty() {
        false => Some(NoLiveFrames::NoRights { missing }),
        true if !rights.in_initial_namespace() => Some(NoLiveFrames::UserNamespace),
        true => None,
    }
}

/// A map by its name.
pub(super) fn map(object: &Object, name: &str) -> libbpf_rs::Result<MapHandle> {
    use libbpf_rs::MapCore as _;

    let map = object.maps().find(|map| map.name() == name);
    let map = map.ok_or_else(|| io::Error::from(io::ErrorKind::NotFound))?;
    MapHandle::try_from(&map)
}

pub(super) fn refused<E: Into<libbpf_rs::Error>>(
    action: &'static str,
) -> impl FnOnce(E) -> NoLiveFrames {
    move |error| NoLiveFrames::Kernel {
        action,
        source: io_error(&error.into()),
    }
}

/// The system's error inside libbpf's.
pub(super) fn io_error(error: &libbpf_rs::Error) -> io::Error {
    let mut cause: Option<&(dyn std::error::Error + 'static)> = Some(error);
    while let Some(one) = cause {
        if let Some(code) = one
            .downcast_ref::<io::Error>()
            .and_then(io::Error::raw_os_error)
        {
            return io::Error::from_raw_os_error(code);
        }
        cause = one.source();
    }
    io::Error::other(error.to_string())
}
