// SPDX-License-Identifier: MIT OR Apache-2.0
//! Detects programs on an interface that are in the way, waits for their end, and names their processes.
//!
//! Invariants
//! - No two captures of Ringtap run on one interface if one of them takes packets away from the other.
//! - No message advises to detach a program of another process.

use std::collections::HashSet;
use std::fs;
use std::thread::sleep;
use std::time::{Duration, Instant};

use libbpf_rs::query::{LinkInfoIter, ProgInfoIter, ProgInfoQueryOptions};
use libbpf_rs::{MapCore as _, MapFlags, MapHandle};
use ringtap_net::interface::Interface;
use ringtap_net::rights::{Purpose, Rights};

use crate::{BpfError, link, object};

/// Longest wait for a program whose process has ended; the kernel detaches it with a delay.
const LEAVING: Duration = Duration::from_secs(2);
/// Names of the programs that Ringtap attaches to interfaces.
const OURS: [&str; 10] = [
    "rt_rx",
    "rt_rx_bound",
    "rt_tc_rx",
    "rt_tc_tx",
    "rt_tc_forward",
    "rt_xsk",
    "rt_xsk_bound",
    "rt_meter_xdp",
    "rt_meter_rx",
    "rt_meter_tx",
];
const PAUSE: Duration = Duration::from_millis(20);

/// Effect of a capture on the packets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Effect {
    /// It lets them go on.
    Looks,
    /// It keeps them from programs after it: exclusive, forwarding, or by AF_XDP.
    Takes,
}

/// A program on an interface.
#[derive(Clone, Debug)]
struct FoundProgram {
    id: u32,
    name: String,
    map_ids: Vec<u32>,
}

impl FoundProgram {
    /// Effect of a program of Ringtap's.
    fn effect(&self) -> Effect {
        match self.name.as_str() {
            "rt_tc_tx" | "rt_meter_tx" => Effect::Looks,
            "rt_rx" | "rt_rx_bound" | "rt_tc_rx" => self.settings(".rodata.config", only_looks),
            "rt_meter_xdp" | "rt_meter_rx" => self.settings(".rodata.meter", meter_only_looks),
            _ => Effect::Takes,
        }
    }

    /// Effect by the settings of a tap or meter; an unknown one takes packets.
    fn settings(&self, section: &str, only_looks: fn(&[u8]) -> bool) -> Effect {
        let maps = self.map_ids.iter();
        let mut maps = maps.filter_map(|id| MapHandle::from_map_id(*id).ok());
        let settings = maps.find(|map| map.name() == section);
        let bytes = settings.and_then(|map| map.lookup(&[0; 4], MapFlags::ANY).ok()?);
        if bytes.is_some_and(|bytes| only_looks(&bytes)) {
            Effect::Looks
        } else {
            Effect::Takes
        }
    }
}

/// Waits until no other XDP program is attached, if the attached one may be about to leave.
///
/// # Errors
///
/// [`BpfError::AnotherProgram`]: the program stays, or `may_leave` rejects its name.
pub fn wait_for_another(
    interface: &Interface,
    may_leave: impl Fn(&str) -> bool,
) -> Result<(), BpfError> {
    let start = Instant::now();
    while let Some(found) = xdp_program(interface) {
        if !may_leave(&found.name) || start.elapsed() > LEAVING {
            return Err(another_program_error(interface, found));
        }
        sleep(PAUSE);
    }
    Ok(())
}

/// Whether a program of this name is Ringtap's.
pub fn is_ours(name: &str) -> bool {
    OURS.contains(&name)
}

/// Waits until no other capture of Ringtap on the interface conflicts with one of this effect, if it
/// may be about to leave; `own` are the ids of the programs that this one has attached.
///
/// # Errors
///
/// [`BpfError::AnotherRingtap`]: the other capture stays.
pub fn refuse_another_ringtap(
    interface: &Interface,
    effect: Effect,
    own: &[u32],
) -> Result<(), BpfError> {
    let start = Instant::now();
    while let Some((found, other)) = conflicting(interface, effect, own) {
        if start.elapsed() > LEAVING {
            let process = process_of(found.id);
            return Err(BpfError::AnotherRingtap {
                interface: interface.name.clone(),
                process: process.unwrap_or_else(|| "process unknown".to_owned()),
                conflict: match other {
                    Effect::Takes => "takes the packets of this interface",
                    Effect::Looks => "would see no packet that this one takes",
                },
            });
        }
        sleep(PAUSE);
    }
    Ok(())
}

/// The first program of another Ringtap that conflicts, and its effect.
fn conflicting(
    interface: &Interface,
    effect: Effect,
    own: &[u32],
) -> Option<(FoundProgram, Effect)> {
    let (ids, _) = object::logged(|| {
        let mut ids = link::xdp_programs(interface.index).unwrap_or_default();
        ids.extend(link::tcx_programs(interface.index));
        ids
    });
    let ids: HashSet<_> = ids.into_iter().filter(|id| !own.contains(id)).collect();
    if ids.is_empty() {
        return None;
    }
    let ours = programs(&ids)
        .into_iter()
        .filter(|found| is_ours(&found.name));
    let with_effect = ours.map(|found| {
        let effect = found.effect();
        (found, effect)
    });
    let mut conflicts = with_effect.filter(|(found, other)| match (effect, other) {
        (_, Effect::Takes) => true,
        // The host's own packets are not taken.
        (Effect::Takes, Effect::Looks) => !found.name.ends_with("_tx"),
        (Effect::Looks, Effect::Looks) => false,
    });
    conflicts.next()
}

/// The programs with these ids; those that this process may not see are missing.
fn programs(ids: &HashSet<u32>) -> Vec<FoundProgram> {
    let options = ProgInfoQueryOptions::default().include_map_ids(true);
    let all = ProgInfoIter::with_query_opts(options);
    all.filter(|program| ids.contains(&program.id))
        .map(|program| FoundProgram {
            id: program.id,
            name: program.name.to_string_lossy().into_owned(),
            map_ids: program.map_ids,
        })
        .collect()
}

/// The error for an XDP program that is already attached, if there is one.
pub fn another_program(interface: &Interface) -> Option<BpfError> {
    Some(another_program_error(interface, xdp_program(interface)?))
}

fn xdp_program(interface: &Interface) -> Option<FoundProgram> {
    let (ids, _) = object::logged(|| link::xdp_programs(interface.index));
    let id = *ids.ok()?.first()?;
    let known = programs(&HashSet::from([id])).pop();
    Some(known.unwrap_or_else(|| FoundProgram {
        id,
        name: "?".into(),
        map_ids: Vec::new(),
    }))
}

fn another_program_error(interface: &Interface, found: FoundProgram) -> BpfError {
    BpfError::AnotherProgram {
        interface: interface.name.clone(),
        id: found.id,
        remedy: match (process_of(found.id), is_ours(&found.name)) {
            (Some(process), true) => {
                format!("read from its hub (-i hub:GROUP), or stop its {process}")
            }
            (Some(process), false) => format!("stop its {process}"),
            (None, true) => "read from its hub (-i hub:GROUP)".to_owned(),
            (None, false) if !sees_processes() => {
                "only root sees its process; of a Ringtap hub, read -i hub:GROUP".to_owned()
            }
            (None, false) => format!(
                "no process holds it; the program that attached it can detach it (`bpftool net show dev {}`)",
                interface.name
            ),
        },
        name: found.name,
    }
}

/// Whether this process sees the links of other processes.
fn sees_processes() -> bool {
    Rights::current().require(Purpose::Tap).is_ok()
}

/// The process that keeps a program attached: it holds the program's link.
fn process_of(program: u32) -> Option<String> {
    let link = LinkInfoIter::default().find(|info| info.prog_id == program)?;
    let wanted = format!("link_id:\t{}\n", link.id);
    let folders = fs::read_dir("/proc").ok()?.flatten();
    let pids = folders.filter_map(|entry| entry.file_name().to_str()?.parse::<u32>().ok());
    let holds = |pid: &u32| {
        let files = fs::read_dir(format!("/proc/{pid}/fdinfo"));
        let files = files.into_iter().flatten().flatten();
        let mut texts = files.filter_map(|file| fs::read_to_string(file.path()).ok());
        texts.any(|text| text.contains(&wanted))
    };
    let pid = pids.into_iter().find(holds)?;
    let command = fs::read_to_string(format!("/proc/{pid}/comm")).unwrap_or_default();
    Some(format!("process {pid} ({})", command.trim()))
}

/// Whether a tap with these settings (`struct rt_config`) lets every packet go on.
#[must_use]
pub fn only_looks(settings: &[u8]) -> bool {
    const EXCLUSIVE: usize = 5 * 8 + 4;
    const FORWARD_TO: usize = 5 * 8 + 8 * 4;
    let is_zero = |at: usize| settings.get(at..at + 4) == Some(&[0; 4]);
    is_zero(EXCLUSIVE) && is_zero(FORWARD_TO)
}

/// Whether a meter with these settings (`struct rt_meter_config`) lets every packet go on.
#[must_use]
pub fn meter_only_looks(settings: &[u8]) -> bool {
    settings.first_chunk() == Some(&[0; 4])
}
