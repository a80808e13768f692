// SPDX-License-Identifier: MIT OR Apache-2.0
//! `ringtap serve-one`: a hub for one program, at the other end of standard input.
//!
//! libringtap-pcap starts this process to open a device for its program. So the program may fork, give
//! up its rights or be killed; the capture lasts exactly as long as a process reads it.

use std::io;
use std::num::NonZeroU32;
use std::os::fd::AsFd as _;
use std::process::ExitCode;

use anyhow::{Context, Result, bail};
use clap::Args;
use ringtap::{Confinement, WHILE_CAPTURING};
use ringtap_device::DeviceSpec;
use ringtap_hub::AccessList;
use ringtap_hub::server::{refuse, serve_one};
use ringtap_hub::{Group, Hub, HubOptions};
use ringtap_ipc::peer::Peer;
use ringtap_ipc::socket::Socket;
use rustix::thread::{CpuSet, Pid, sched_getaffinity, sched_setaffinity};

use crate::{interrupt, print};

/// The hub's only group.
const ONLY_GROUP: &str = "only";

/// Opens a device for the program at the other end of standard input.
#[derive(Args, Debug)]
pub(crate) struct ServeOneArgs {
    /// Device to capture from.
    #[arg(short = 'i', long = "interface", value_name = "DEVICE")]
    device: DeviceSpec,
}

pub(crate) fn run(args: &ServeOneArgs) -> Result<ExitCode> {
    let input = io::stdin().as_fd().try_clone_to_owned()?;
    let Ok(socket) = Socket::from_fd(input) else {
        bail!("`serve-one` is for libringtap-pcap only: to run a program, use `ringtap exec`");
    };
    // This process ends with its program, which may go on reading after Ctrl-C.
    interrupt::outlive()?;
    step_aside();
    let hub = match start(&args.device, &socket) {
        Ok(hub) => hub,
        Err(error) => {
            refuse(&socket, &crate::describe(&error));
            return Ok(ExitCode::FAILURE);
        }
    };
    close_standard_error()?;
    let peer = Peer::from_socket(&socket)?;
    serve_one(Box::new(socket), peer, &hub).context("the program cannot be served")?;
    Ok(ExitCode::SUCCESS)
}

/// Moves this process off the program's CPUs, if there are others: a packet wakes both, and the kernel
/// may run this process first.
fn step_aside() {
    let Ok(tied) = sched_getaffinity(None::<Pid>) else {
        return;
    };
    let mut others = CpuSet::new();
    let free = (0..CpuSet::MAX_CPU).filter(|cpu| !tied.is_set(*cpu));
    free.for_each(|cpu| others.set(cpu));
    // Fails for an empty set.
    let _stays = sched_setaffinity(None::<Pid>, &others);
}

fn start(device: &DeviceSpec, socket: &Socket) -> Result<Hub> {
    if device.kind.names_a_group() {
        bail!("{device} is a group of a hub already");
    }
    let source = ringtap_capture::open(device)?;
    print::notes(&source.facts.notes);
    Confinement::keeping(WHILE_CAPTURING).enter()?;
    let uids = vec![Peer::from_socket(socket)?.uid];
    let group = Group {
        access: AccessList {
            uids,
            ..AccessList::default()
        },
        ..Group::new(ONLY_GROUP)
    };
    Ok(Hub::start(
        vec![source],
        vec![group],
        HubOptions::for_readers(NonZeroU32::MIN),
        Vec::new(),
    )?
    .0)
}

/// Closes standard error, so that a process that waits for its end waits only for the program. Standard output is
/// `/dev/null` already, which this process may no longer open where it belongs to another user.
fn close_standard_error() -> Result<()> {
    Ok(rustix::stdio::dup2_stderr(rustix::stdio::stdout())?)
}
