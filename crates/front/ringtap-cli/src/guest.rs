// SPDX-License-Identifier: MIT OR Apache-2.0
//! `ringtap guest`: the agent in a virtual machine, which serves groups of the host as `host:GROUP`.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::{Context, Result, ensure};
use clap::Args;
use ringtap::{CapabilitySet, Confinement};
use ringtap_client::{Connection, HOST_FOLDER};
use ringtap_explain::text;
use ringtap_hub::config::{group_of_users, user};
use ringtap_hub::{AccessList, Limits};
use ringtap_ipc::folder::Folder;
use ringtap_ipc::protocol::HubStatus;
use ringtap_vm::guest::{Agent, AgentOptions, STATUS_FILE, is_agent_running};
use tracing_subscriber::filter::LevelFilter;

use crate::hub::{log, raise_descriptor_limit};
use crate::{interrupt, print, signals};

/// Serves groups of the host's hub in this virtual machine, as `host:GROUP`.
#[derive(Args, Debug)]
#[command(after_help = EXAMPLES)]
pub(crate) struct GuestArgs {
    /// Folder of the sockets, one for each group.
    #[arg(long, value_name = "FOLDER", default_value = HOST_FOLDER)]
    folder: PathBuf,

    /// Users that may read, beside root, by name or number.
    #[arg(long, value_name = "USER", value_delimiter = ',', value_parser = user)]
    users: Vec<u32>,

    /// Groups of users that may read, by name or number.
    #[arg(long, value_name = "GROUP", value_delimiter = ',', value_parser = group_of_users)]
    groups: Vec<u32>,

    /// Show how the running agent is connected with the host, and what would be faster.
    #[arg(long)]
    status: bool,
}

const EXAMPLES: &str = "\
Examples:
  ringtap guest --groups wireshark                    as root, for users of the group wireshark
  ringtap guest --status

Then, as any of these users, while the host has attached this machine (ringtap vm attach --group ids):
  ringtap count -i host:ids udp port 53
  ringtap exec -- tcpdump -ni host:ids";

pub(crate) fn run(args: &GuestArgs) -> Result<ExitCode> {
    if args.status {
        return show_status(&args.folder);
    }
    ensure!(
        rustix::process::geteuid().is_root(),
        "the agent maps devices of the host, which takes root: sudo ringtap guest"
    );
    make_folder(&args.folder)?;
    let limits = Limits::default();
    // Mapping a device that is plugged later takes both.
    let keeps = Confinement::keeping(CapabilitySet::SYS_ADMIN | CapabilitySet::SYS_RAWIO);
    let _log = keeps.start_early(|| log::to_stderr(&limits, LevelFilter::INFO));
    let mut agent = Agent::new(AgentOptions {
        folder: args.folder.clone(),
        access: AccessList {
            uids: args.users.clone(),
            gids: args.groups.clone(),
        },
        limits,
    })?;
    let stop = agent.stopper();
    keeps.start_early(|| interrupt::on_interrupt(stop))?;
    raise_descriptor_limit();
    keeps.enter()?;
    let folder = args.folder.clone();
    signals::on_counters(move || {
        let groups = group_lines(&folder).unwrap_or_else(|error| vec![error.to_string()]);
        print::notes(groups);
    })?;
    print::note(format_args!(
        "ringtap: serving the host's groups in {}",
        args.folder.display()
    ));
    let outcome = agent.run();
    let _absent = fs::remove_file(args.folder.join(STATUS_FILE));
    outcome?;
    Ok(ExitCode::SUCCESS)
}

/// Makes the folder, which every user can enter and only root can write, and the folder above it.
fn make_folder(folder: &Path) -> Result<()> {
    let context = || format!("{}: the folder cannot be made", folder.display());
    let above = folder.parent().filter(|one| !one.as_os_str().is_empty());
    if let Some(above) = above {
        let _or_opened = Folder::open_or_create(above, 0o755).with_context(context)?;
    }
    let made = Folder::open_or_create(folder, 0o755).with_context(context)?;
    Ok(made.require_own()?)
}

fn show_status(folder: &Path) -> Result<ExitCode> {
    let none = || {
        format!(
            "{}: no agent runs: start `ringtap guest` as root",
            folder.display()
        )
    };
    // The file of an agent that was killed is still there.
    ensure!(is_agent_running(folder), none());
    let text = fs::read_to_string(folder.join(STATUS_FILE)).with_context(none)?;
    print::line(text.trim_end())?;
    for line in group_lines(folder)? {
        print::line(line)?;
    }
    Ok(ExitCode::SUCCESS)
}

/// The counters of each group that the agent of this folder serves.
fn group_lines(folder: &Path) -> Result<Vec<String>> {
    let files = fs::read_dir(folder).with_context(|| folder.display().to_string())?;
    let mut lines = vec![format!("agent of {}", folder.display())];
    for entry in files {
        let path = entry?.path();
        if path.extension().is_some_and(|end| end == "sock") {
            let status = Connection::open(&path, "status")?.status()?;
            lines.push(format!("{}: {}", path.display(), counters(&status)));
        }
    }
    Ok(lines)
}

/// Readers of a group, and its packets since the agent began.
fn counters(status: &HubStatus) -> String {
    let (mut packets, mut shunted, mut lost) = (0_u64, 0_u64, 0_u64);
    for source in &status.sources {
        for lane in &source.lanes {
            let lane = &lane.counters;
            packets = packets.saturating_add(lane.accounted().saturating_sub(lane.shunted));
            shunted = shunted.saturating_add(lane.shunted);
        }
        lost = lost.saturating_add(source.dropped.total());
    }
    let slow = status
        .readers
        .iter()
        .map(|one| one.counters.dropped.overrun);
    let slow = slow.fold(status.departed_overrun, u64::saturating_add);
    format!(
        "{}, {} from the host, {shunted} shunted there, {lost} lost there, {slow} lost by slow readers here",
        text::count(status.readers.len(), "reader"),
        text::packets(packets),
    )
}
