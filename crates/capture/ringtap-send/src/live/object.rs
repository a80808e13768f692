// SPDX-License-Identifier: MIT OR Apache-2.0
//! Loads the sender's programs and attaches those that count.

use std::io;

use libbpf_rs::{ErrorKind, Link, Object};

use super::super::error::NoLiveFrames;
use ringtap_bpf::object::{self, ObjectFile};
use ringtap_net::kernel::{self, Feature};
use ringtap_net::rights::{Purpose, Rights};

/// The compiled `bpf/send.bpf.c`.
static OBJECT: &ObjectFile<[u8]> =
    &ObjectFile(*include_bytes!(concat!(env!("OUT_DIR"), "/send.bpf.o")));

/// The program that makes packets.
pub(super) const MADE: &str = "rt_send_made";
/// The program that sends the packets of a file.
pub(super) const FILE: &str = "rt_send_file";
/// The programs that count at tracepoints.
const COUNTING: [&str; 2] = ["rt_send_taken", "rt_send_refused"];

/// The key of an array's first entry.
pub(super) const FIRST_KEY: [u8; 4] = [0; 4];

/// Loads one of the sending programs, with the counting ones.
pub(super) fn load(program: &str, config: &[u8]) -> Result<Object, NoLiveFrames> {
    let object = object::load(OBJECT, |open| {
        object::choose_programs(open, &[program, COUNTING[0], COUNTING[1]], None);
        object::set_constants(open, ".rodata.config", config)?;
        let mut cells = open.maps_mut().filter(|map| map.name() == "rt_send_cells");
        cells.try_for_each(|mut map| map.set_autocreate(program == FILE))
    });
    object.map_err(|failure| {
        if let Some(why) = lacking_rights(&failure.error) {
            return why;
        }
        if let Err(too_old) = kernel::require(Feature::XdpLiveFrames) {
            return NoLiveFrames::KernelTooOld(too_old);
        }
        let source = object::io_error(&failure.error);
        NoLiveFrames::Kernel {
            action: "loading the programs",
            source: io::Error::new(source.kind(), failure.to_string()),
        }
    })
}

/// Attaches the counting programs; dropping the links detaches them.
pub(super) fn attach_tracepoints(object: &Object) -> Result<Vec<Link>, NoLiveFrames> {
    object::attach_tracepoints(object, &COUNTING).map_err(|failure| {
        let refused = |error| refused("counting at the tracepoints")(object::io_error(error));
        lacking_rights(&failure.error).unwrap_or_else(|| refused(&failure.error))
    })
}

/// The refusal in terms of rights, if it is a matter of those.
fn lacking_rights(error: &libbpf_rs::Error) -> Option<NoLiveFrames> {
    if error.kind() != ErrorKind::PermissionDenied {
        return None;
    }
    let rights = Rights::of_this_process().require(Purpose::LiveFrames);
    rights.err().map(NoLiveFrames::Rights)
}

/// Makes the error of a call that the kernel refused.
pub(super) fn refused(action: &'static str) -> impl FnOnce(io::Error) -> NoLiveFrames {
    move |source| NoLiveFrames::Kernel { action, source }
}
