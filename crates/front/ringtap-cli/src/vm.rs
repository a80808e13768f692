// SPDX-License-Identifier: MIT OR Apache-2.0
//! `ringtap vm`: gives the groups of a hub to a virtual machine.

use std::io;
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, anyhow, bail, ensure};
use clap::{Args, Subcommand};
use ringtap_client::default_socket;
use ringtap_device::Size;
use ringtap_explain::text;
use ringtap_hub::config::{MEMORY, VmMachine, vm_name};
use ringtap_pool::wake::Signal as _;
use ringtap_vm::host::{
    AttachedVms, DeviceReport, GroupOptions, GroupReport, HostError, HostGroups, StatusServer,
    VmReport, standard_folder,
};
use ringtap_vm::messages::APPLICATION_NAME;
use ringtap_vnplug::host::{GuestLimits, GuestVm, Monitor, QmpError, VmError, migrate, serve};

use crate::{interrupt, print, signals};

/// Longest wait for a guest that is detached to let its devices go.
const DETACH_LIMIT: Duration = Duration::from_secs(60);
/// Longest wait for a VM that `--resume` awaits.
const ARRIVAL_MS: u64 = 3_600_000;
/// How long a guest may have no agent before the user learns how to start one.
const AGENT_NOTE: Duration = Duration::from_secs(20);

/// Lets a virtual machine of an unmodified QEMU read groups of this machine's hub.
#[derive(Args, Debug)]
#[command(after_help = EXAMPLES)]
pub(crate) struct VmArgs {
    #[command(subcommand)]
    action: Action,

    /// The folder with a socket per attached VM. Without it: /run/ringtap/vm, or
    /// $XDG_RUNTIME_DIR/ringtap-vm of a user who is not root.
    #[arg(long, global = true, value_name = "FOLDER")]
    folder: Option<PathBuf>,
}

const EXAMPLES: &str = "\
Examples:
  ringtap hub -i eth0 -g ids -g dns:'udp port 53'
  ringtap vm attach --qmp /run/vm1.qmp --name vm1 --group ids --group dns
  ringtap vm attach --libvirt appliance --group ids
  ringtap vm attach -c /etc/ringtap/hub.toml --name vm1       [[vm]] of this name
  ringtap vm list
  ringtap vm detach vm1
  ringtap vm migrate-out vm1 --to tcp:host2:4444    while host2 runs, on a QEMU with -incoming tcp:…:4444,
  ringtap vm attach --resume --qmp /run/vm1.qmp --name vm1 --group ids --group dns
In the guest: ringtap guest, and then ringtap count -i host:ids

docs/vm.md shows how to start QEMU.

Exit status: 0; 2 for a wrong command line; 1 if the hub refuses, and for other failures;
of attach: 10 no QMP socket or domain, 11 a socket of something else or in use, 12 no free pcie-root-port,
13 no port with room for the memory, 14 QEMU refuses, 15 QEMU is too old, 16 the VM does not run,
17 QEMU cannot open the memory, 18 the guest does not let devices go, 20 another process has attached the VM;
of migrate-out: 19 QEMU did not migrate the VM, which goes on here, detached.";

#[derive(Subcommand, Debug)]
enum Action {
    /// Plug memory into a running VM and serve its agent, until Ctrl-C, `ringtap vm detach` or the end
    /// of QEMU.
    #[command(
        after_help = "Examples:\n  ringtap vm attach --qmp /run/vm1.qmp --group ids\n  ringtap vm attach -c /etc/ringtap/hub.toml --name vm1"
    )]
    Attach(AttachArgs),
    /// Show the attached VMs: devices, groups, counters, and what would be faster.
    #[command(after_help = "Examples:\n  ringtap vm list\n  ringtap vm list --json | jq .name")]
    List {
        /// One JSON object per VM.
        #[arg(long)]
        json: bool,
    },
    /// Unplug the memory of a VM and end its `ringtap vm attach`.
    #[command(after_help = "Examples:\n  ringtap vm detach vm1")]
    Detach {
        /// Name of the VM.
        #[arg(value_name = "NAME", value_parser = vm_name)]
        name: String,
    },
    /// Detach a VM and migrate it to a QEMU on another host, where `ringtap vm attach --resume` takes over.
    #[command(after_help = "Examples:\n  ringtap vm migrate-out vm1 --to tcp:otherhost:4444")]
    MigrateOut {
        /// Name of the VM.
        #[arg(value_name = "NAME", value_parser = vm_name)]
        name: String,
        /// The other QEMU's address, as its -incoming has it: tcp:HOST:PORT or unix:PATH.
        #[arg(long, value_name = "URI")]
        to: String,
        /// Cancel a migration that takes longer.
        #[arg(long, default_value_t = 300, value_name = "SECONDS")]
        limit: u32,
    },
}

#[derive(Args, Debug)]
struct AttachArgs {
    #[command(flatten)]
    machine: MachineArgs,

    /// A name for the VM, in lists and for the hub.
    #[arg(long, default_value = "vm1", value_name = "NAME", value_parser = vm_name)]
    name: String,

    /// The hub's socket. Without it: that of the file, else $RINGTAP_SOCKET, else /run/ringtap/hub.sock.
    #[arg(long, value_name = "PATH")]
    socket: Option<PathBuf>,

    /// Size of the memory that the guest can read, a power of two; its groups share it evenly.
    #[arg(
        long,
        default_value_t = MEMORY,
        value_name = "SIZE",
        conflicts_with = "config"
    )]
    memory: Size,

    /// A group that the guest may read; more than once for several groups.
    #[arg(
        short = 'g',
        long = "group",
        required_unless_present = "config",
        value_name = "GROUP"
    )]
    #[arg(conflicts_with = "config")]
    groups: Vec<String>,

    /// Wait, at most one hour, while the VM still migrates to this QEMU.
    #[arg(long)]
    resume: bool,
}

/// Which virtual machine.
#[derive(Args, Debug)]
#[group(required = true, multiple = false)]
struct MachineArgs {
    /// QEMU's QMP socket, for this process alone.
    #[arg(long, value_name = "SOCKET")]
    qmp: Option<PathBuf>,

    /// A running domain of libvirt, by `virsh`, at $LIBVIRT_DEFAULT_URI if that is set.
    #[arg(long, value_name = "DOMAIN")]
    libvirt: Option<String>,

    /// A hub's file, whose [[vm]] with this --name says all else.
    #[arg(short, long, value_name = "FILE")]
    config: Option<PathBuf>,
}

impl AttachArgs {
    fn resolve(&self) -> Result<GroupOptions> {
        let MachineArgs {
            qmp,
            libvirt,
            config,
        } = &self.machine;
        let own = self.socket.clone();
        if let Some(file) = config {
            let config = crate::hub::read(file)?;
            let found = config.vms.into_iter().find(|vm| vm.name == self.name);
            let found =
                found.with_context(|| format!("{}: no [[vm]] {}", file.display(), self.name))?;
            return Ok(GroupOptions {
                vm: found.name,
                monitor: match found.machine {
                    VmMachine::Qmp(socket) => Monitor::Qmp(socket),
                    VmMachine::Libvirt(domain) => Monitor::Libvirt(domain),
                },
                socket: own.or(config.socket).unwrap_or_else(default_socket),
                groups: found.groups,
                memory_bytes: found.memory.0,
            });
        }
        Ok(GroupOptions {
            vm: self.name.clone(),
            monitor: match qmp {
                Some(socket) => Monitor::Qmp(socket.clone()),
                None => Monitor::Libvirt(libvirt.clone().unwrap_or_default()),
            },
            socket: own.unwrap_or_else(default_socket),
            groups: self.groups.clone(),
            memory_bytes: self.memory.0,
        })
    }
}

pub(crate) fn run(args: &VmArgs) -> Result<ExitCode> {
    let folder = args.folder.clone().unwrap_or_else(standard_folder);
    let vms = AttachedVms::in_folder(&folder);
    let (name, done) = match &args.action {
        Action::List { json } => return list(&vms, *json),
        Action::Detach { name } => {
            detach(&vms, name)?;
            return Ok(ExitCode::SUCCESS);
        }
        Action::Attach(options) => (&options.name, attach(options, folder)),
        Action::MigrateOut { name, to, limit } => {
            let limit = Duration::from_secs((*limit).into());
            (name, migrate_out(&vms, name, to, limit))
        }
    };
    let Err(error) = done else {
        return Ok(ExitCode::SUCCESS);
    };
    print::note(format_args!("ringtap: {name}: {error}"));
    let host_error = error.downcast_ref::<HostError>();
    if let Some(other) = host_error.and_then(|error| attached_as(&vms, error)) {
        print::note(format_args!(
            "ringtap: {name}: the VM is attached as {0} by process {1}: to end that, ringtap vm detach {0}",
            other.name, other.pid
        ));
    }
    Ok(ExitCode::from(host_error.map_or(1, exit_code)))
}

/// The VM of these whose process has what another one was refused.
fn attached_as(vms: &AttachedVms, refused: &HostError) -> Option<VmReport> {
    let is_other = |vm: &VmReport| match refused {
        HostError::Vm(VmError::Qmp(QmpError::Busy { path })) => {
            vm.qmp.is_some() && vm.qmp == std::path::absolute(path).ok()
        }
        HostError::Vm(VmError::Owned { process, .. }) => vm.pid == *process,
        _ => false,
    };
    let is_asked = matches!(
        refused,
        HostError::Vm(VmError::Qmp(QmpError::Busy { .. }) | VmError::Owned { .. })
    );
    let vms = if is_asked { vms.reports() } else { Vec::new() };
    vms.into_iter().find(is_other)
}

fn not_attached(name: &str) -> anyhow::Error {
    anyhow!("no VM {name} is attached: see `ringtap vm list`")
}

fn detach(vms: &AttachedVms, name: &str) -> Result<()> {
    let detached = vms.detach(name, 2 * DETACH_LIMIT);
    detached.map_err(|error| match error.kind() {
        io::ErrorKind::NotFound => not_attached(name),
        io::ErrorKind::TimedOut => anyhow!("{name}: the guest does not let the devices go"),
        _ => anyhow!("{name}: {error}"),
    })
}

/// Detaches a virtual machine and lets its QEMU migrate it.
fn migrate_out(vms: &AttachedVms, name: &str, to: &str, limit: Duration) -> Result<()> {
    let report = vms.report(name).map_err(|error| match error.kind() {
        io::ErrorKind::NotFound => not_attached(name),
        _ => anyhow!("{error}"),
    })?;
    let Some(qmp) = report.qmp else {
        bail!(
            "libvirt migrates its domains, so nothing was done: ringtap vm detach {name}, virsh migrate, and there \
             ringtap vm attach"
        );
    };
    let begin = Instant::now();
    detach(vms, name)?;
    let unplugged = begin.elapsed().as_secs_f64();
    let moved = migrate(&Monitor::Qmp(qmp), to, limit).map_err(HostError::Vm)?;
    print::line(format_args!(
        "{name}: unplugged in {unplugged:.2} s, migrated in {:.2} s, stopped for {} ms of them; now end \
         QEMU here",
        Duration::from_millis(moved.total_ms).as_secs_f64(),
        moved.downtime_ms
    ))
}

fn attach(args: &AttachArgs, folder: PathBuf) -> Result<()> {
    let options = args.resolve()?;
    let mut names = options.groups.clone();
    names.sort();
    names.dedup();
    ensure!(
        names.len() == options.groups.len(),
        "a --group is given twice"
    );
    let status = match StatusServer::bind(&folder, &args.name) {
        Err(error) if error.kind() == io::ErrorKind::AddrInUse => {
            bail!("a VM of this name is attached: use another --name")
        }
        bound => bound.map_err(|error| anyhow!("{}: {error}: use --folder", folder.display()))?,
    };
    // Before QEMU is asked for anything.
    options.check()?;
    let limits = GuestLimits {
        arrival_ms: if args.resume { ARRIVAL_MS } else { 0 },
        ..GuestLimits::default()
    };
    let vm = GuestVm::attach(&options.monitor, APPLICATION_NAME, limits);
    let mut vm = vm.map_err(HostError::Vm)?;
    let stop = Arc::new(AtomicBool::new(false));
    let ending = {
        let (stop, waker) = (Arc::clone(&stop), vm.waker());
        move || {
            stop.store(true, Relaxed);
            waker.signal();
        }
    };
    let served = serve_guest(&mut vm, &options, &status, ending, &stop);
    let detached = vm.detach(DETACH_LIMIT).map_err(HostError::Vm);
    // Only now: until the guest has let go of the memory, it may read what it was given.
    for group in served?.groups() {
        let counters = group_counters(&group);
        print::note(format_args!(
            "ringtap: {}: group {}: {counters}",
            args.name, group.group
        ));
    }
    Ok(detached?)
}

/// Serves the guest until `stop`, or QEMU ends.
fn serve_guest(
    vm: &mut GuestVm,
    options: &GroupOptions,
    status: &StatusServer,
    ending: impl Fn() + Clone + Send + 'static,
    stop: &AtomicBool,
) -> Result<HostGroups> {
    interrupt::on_interrupt(ending.clone())?;
    let name = options.vm.clone();
    let report =
        move |text: String| print::from_peer(&name, format_args!("ringtap: {name}: {text}"));
    let mut groups = HostGroups::plug(vm, options, Box::new(report.clone()))?;
    status.start(groups.reporter(), ending)?;
    let (current, vm_name) = (groups.reporter(), options.vm.clone());
    signals::on_counters(move || {
        print::note(format_args!(
            "ringtap: {vm_name}: {} so far",
            describe(&current()).trim_end()
        ));
    })?;
    report(format!(
        "attached, for groups {}",
        options.groups.join(", ")
    ));
    let has_agent = groups.reporter();
    std::thread::Builder::new().spawn(move || {
        std::thread::sleep(AGENT_NOTE);
        has_agent().advice.into_iter().for_each(report);
    })?;
    let served = serve(vm, &mut [&mut groups], &|| stop.load(Relaxed));
    // Before the guest leaves the memory, so that it has read all that was copied.
    groups.stop(vm);
    served.map_err(HostError::Vm)?;
    Ok(groups)
}

fn exit_code(error: &HostError) -> u8 {
    match error {
        HostError::Vm(error) => match error {
            VmError::Qmp(QmpError::Connect { .. } | QmpError::Libvirt(_))
            | VmError::Disconnected => 10,
            VmError::Qmp(QmpError::Busy { .. } | QmpError::NotQmp | QmpError::NoAnswer(_)) => 11,
            VmError::NoPort => 12,
            VmError::NoWindow { .. } => 13,
            VmError::Qmp(QmpError::Refused { .. }) => 14,
            VmError::TooOld(..) => 15,
            VmError::NotRunning(_) => 16,
            VmError::Memory(_) => 17,
            VmError::Held(_) => 18,
            VmError::Migration(_) => 19,
            VmError::Owned { .. } => 20,
            _ => 1,
        },
        _ => 1,
    }
}

fn list(vms: &AttachedVms, json: bool) -> Result<ExitCode> {
    let reports = vms.reports();
    if reports.is_empty() {
        print::note("ringtap: no virtual machine is attached: `ringtap vm attach` attaches one");
    }
    for vm in reports {
        if json {
            print::line(serde_json::to_string(&vm)?)?
        } else {
            print::line(describe(&vm).trim_end())?
        }
    }
    Ok(ExitCode::SUCCESS)
}

fn describe(vm: &VmReport) -> String {
    let agent = if vm.agent {
        "agent connected"
    } else {
        "no agent"
    };
    let mut text = format!(
        "{} (process {}, hub {}): {agent}\n",
        vm.name,
        vm.pid,
        vm.hub.display()
    );
    for device in &vm.devices {
        let DeviceReport {
            device,
            bytes,
            mapping,
            interrupts,
        } = device;
        let mapping = mapping.as_deref().unwrap_or("not mapped");
        let signals = if *interrupts { ", interrupts" } else { "" };
        text += &format!("  {device}: {bytes} bytes, {mapping}{signals}\n");
    }
    for group in &vm.groups {
        let reader = group.reader.as_deref().unwrap_or("not subscribed");
        let counters = group_counters(group);
        text += &format!("  group {}: {reader}: {counters}\n", group.group);
        if let Some(reason) = &group.not_in_source {
            text += &format!("    its filter does not run in the kernel: {reason}\n");
        }
    }
    for advice in &vm.advice {
        text += &format!("  {advice}\n");
    }
    text
}

/// The counters of a group since the VM was attached.
fn group_counters(group: &GroupReport) -> String {
    let counters = &group.counters;
    let before = [counters.kernel, counters.pool_full]
        .into_iter()
        .fold(counters.nic, u64::saturating_add);
    format!(
        "{} copied, {} filtered, {} shunted, {before} lost before the hub, {} lost at the hub, {} lost \
         because the guest returned no memory, {} copied but not read by the guest",
        text::packets(counters.copied),
        counters.filtered,
        counters.shunted,
        counters.overrun,
        counters.part_full,
        group.not_taken
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_list_shows_mappings_counters_and_what_would_be_faster() {
        let group = |reader: Option<&str>| GroupReport {
            group: "ids".into(),
            reader: reader.map(Into::into),
            not_in_source: reader.map(|_| "too long".into()),
            counters: ringtap_vm::messages::GuestCounters {
                copied: 7,
                part_full: 9,
                ..Default::default()
            },
            not_taken: 3,
        };
        let device = |mapping: Option<&str>| DeviceReport {
            device: "pool".into(),
            bytes: 4096,
            mapping: mapping.map(Into::into),
            interrupts: mapping.is_some(),
        };
        let text = describe(&VmReport {
            kind: "vm".into(),
            name: "vm1".into(),
            pid: 5,
            qmp: None,
            hub: "/h.sock".into(),
            agent: true,
            devices: vec![device(None), device(Some("vfio"))],
            groups: vec![group(None), group(Some("vm1/guest"))],
            refused_messages: 0,
            lost_answers: 0,
            advice: vec!["use more".into()],
        });
        let lines: Vec<_> = text.lines().collect();
        assert_eq!(lines[0], "vm1 (process 5, hub /h.sock): agent connected");
        assert_eq!(lines[1], "  pool: 4096 bytes, not mapped");
        assert_eq!(lines[2], "  pool: 4096 bytes, vfio, interrupts");
        assert!(lines[3].starts_with("  group ids: not subscribed: 7 packets copied"));
        assert!(lines[4].contains("vm1/guest: 7 packets copied") && lines[4].contains("9 lost"));
        assert!(lines[4].contains("3 copied but not read by the guest"));
        assert!(lines[5].ends_with("in the kernel: too long") && lines[6] == "  use more");
    }
}
