// SPDX-License-Identifier: MIT OR Apache-2.0
//! `ringtap hub`: captures once and serves readers in other processes.

pub(crate) mod log;
mod reload;
mod service;

use std::net::SocketAddr;
use std::num::NonZeroU32;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::mpsc::{self, Receiver, RecvTimeoutError};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, anyhow, bail, ensure};
use clap::{Args, Subcommand};
use ringtap::Confinement;
use ringtap_client::default_socket;
use ringtap_device::DeviceSpec;
use ringtap_explain::http::{self, MetricsError, MetricsServer, Reach};
use ringtap_explain::losses::{LossLine, LossWatch};
use ringtap_explain::report;
use ringtap_filter::Program;
use ringtap_hub::config::{
    self, Config, ConfigOpener, ConfiguredHub, Device, GroupText, admit_sudo_user, metrics_address,
    viewers,
};
use ringtap_hub::server::{Server, ServerOptions};
use ringtap_hub::{Handle, Hub};
use ringtap_ipc::protocol::HubStatus;
use ringtap_ipc::socket::Listener;
use ringtap_net::affinity::{self, Placement, Steered};
use ringtap_pool::congestion::Congestion;
use ringtap_pool::source::{Facts, Source};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use sd_notify::NotifyState;
use tracing_subscriber::filter::LevelFilter;

use crate::UsageError;
use crate::completion;
use crate::confine::UserArgs;
use crate::interrupt;
use crate::print;
use crate::seeing::HubSocketArgs;
use crate::signals;
use crate::statuses;
use reload::ReloadedHub;

/// Interval of the checks that the hub's thread runs, and of those for losses.
const LOOK: Duration = Duration::from_secs(1);
/// Longest wait at the end for readers with packets left to read.
pub(crate) const LAST_READERS: Duration = Duration::from_secs(2);

/// Captures once and serves many readers over a UNIX socket.
#[derive(Args, Debug)]
#[command(after_help = EXAMPLES, args_conflicts_with_subcommands = true)]
pub(crate) struct HubArgs {
    #[command(subcommand)]
    action: Option<HubAction>,

    /// Configuration file; flags add to it. SIGHUP and `ringtap hub reload` read it again.
    #[arg(short, long, value_name = "FILE")]
    config: Option<PathBuf>,

    /// Check a configuration file and end: exit status 0, or the first error with its line and key.
    #[arg(long, value_name = "FILE", conflicts_with = "config")]
    check: Option<PathBuf>,

    /// Device to capture from; several are several sources.
    #[arg(short = 'i', long = "interface", value_name = "DEVICE", value_parser = devices,
          add = completion::devices())]
    devices: Vec<DeviceList>,

    /// A group of readers:
    /// NAME[:MEMBERS][:BALANCE][:offload=PERCENT][:private][:by-rule][:cutoff=LIMIT][:users=NAMES][:groups=NAMES][:FILTER].
    ///
    /// Readers of root, of the hub's own user and of the user of `sudo` may join, and those of `users`
    /// (`users=alice,bob`) and of the UNIX groups in `groups`.
    ///
    /// BALANCE is broadcast (each member gets everything; the default), flow, inner-flow,
    /// address, inner-address, vlan, round-robin, program:FILE, or lanes (each lane's chunks go
    /// to one member). With offload, a member that holds more than PERCENT of a lane's chunks
    /// leaves further chunks to the least busy member; this is for lanes only. With cutoff
    /// (`cutoff=20 packets`, `cutoff=16KiB`), members get the start of each flow only.
    /// With by-rule, members get what flow rules of readers in other groups give to this one.
    #[allow(
        rustdoc::broken_intra_doc_links,
        reason = "brackets are what may be left out"
    )]
    #[arg(short, long = "group", value_name = "GROUP")]
    groups: Vec<GroupText>,

    /// Where readers connect. Default: $RINGTAP_SOCKET, else /run/ringtap/hub.sock.
    #[arg(long, value_name = "PATH")]
    socket: Option<PathBuf>,

    /// Prometheus metrics over HTTP at this address, e.g. 127.0.0.1:9464.
    #[arg(long, value_name = "ADDRESS", value_parser = metrics_address)]
    metrics: Option<SocketAddr>,

    /// Serve metrics at an address that other machines can reach, too.
    #[arg(long)]
    metrics_anywhere: bool,

    /// Pause capture when less than LOW percent of the pool is free, until HIGH percent are.
    #[arg(long, value_name = "LOW:HIGH")]
    congestion: Option<Congestion>,

    /// Seed of the hashes by which groups divide packets. Default: random; `ringtap status` shows it.
    #[arg(long, value_name = "NUMBER")]
    hash_seed: Option<u64>,

    /// Most flow rules of all readers together. Default: 1048576.
    #[arg(long, value_name = "NUMBER")]
    max_flow_rules: Option<NonZeroU32>,

    /// Stop after this many seconds.
    #[arg(long, value_name = "SECONDS", value_parser = crate::reading::seconds)]
    duration: Option<Duration>,

    /// Log more.
    #[arg(short, long, conflicts_with = "quiet")]
    verbose: bool,

    /// Log only losses, refusals and errors.
    #[arg(short, long)]
    quiet: bool,

    /// CPUs: `capture=0`, or `auto`; `irq=1` and `napi=threaded` as for `count`.
    #[arg(long, value_name = "CPUS", default_value = "")]
    cpu: Placement,

    #[command(flatten)]
    user: UserArgs,
}

/// What to do with a running hub.
#[derive(Clone, Debug, Subcommand)]
enum HubAction {
    /// Make a running hub read its configuration file again: sources, groups, users, limits, metrics.
    ///
    /// Waits until the file is in force. After an error nothing has changed, and the exit status is not 0.
    #[command(after_help = RELOAD_EXAMPLES)]
    Reload(ReloadArgs),
}

/// Selects the hub that reads its file again.
#[derive(Args, Clone, Debug)]
struct ReloadArgs {
    #[command(flatten)]
    hub: HubSocketArgs,

    /// The hub's file: it is checked first, and names the hub's socket.
    #[arg(short, long, value_name = "FILE", conflicts_with = "socket")]
    config: Option<PathBuf>,
}

const RELOAD_EXAMPLES: &str = "\
Examples:
  ringtap hub reload                             the hub at the usual socket
  ringtap hub reload -c /etc/ringtap/hub.toml    the hub of this file";

const EXAMPLES: &str = "\
Examples:
  ringtap hub -i eth0                                 one group, `all`
  ringtap hub -i eth0 -g ids:4:flow -g rec            four workers share; a recorder gets all
  ringtap hub -i eth0 -g rec:users=alice              user alice may join, too
  ringtap hub -i 'tap:eth1?exclusive' -g 'dns:private:udp port 53'
  ringtap hub -c /etc/ringtap/hub.toml --metrics 127.0.0.1:9464

Then, as any user that the group lets in:
  ringtap count -i hub:ids
  ringtap record -i hub:rec -w all.pcapng
  ringtap status | ringtap top | ringtap why";

/// Devices in one argument: `eth0,eth1`.
#[derive(Clone, Debug)]
struct DeviceList(Vec<DeviceSpec>);

fn devices(text: &str) -> Result<DeviceList, ringtap_device::DeviceError> {
    ringtap_device::parse_list(text).map(DeviceList)
}

impl HubArgs {
    /// The configuration of this file and the other arguments.
    fn config(&self, file: Option<&Path>) -> Result<Config> {
        let mut config = match file {
            Some(path) => read(path)?,
            None => Config::default(),
        };
        let listed = self.devices.iter().flat_map(|list| list.0.clone());
        let listed = listed.map(|spec| Device { spec, place: None });
        config.devices.extend(listed);
        config.groups.extend(self.groups.iter().cloned());
        config.socket = self.socket.clone().or(config.socket);
        config.metrics = self.metrics.or(config.metrics);
        config.metrics_anywhere |= self.metrics_anywhere;
        config.congestion = self.congestion.or(config.congestion);
        config.hash_seed = self.hash_seed.or(config.hash_seed);
        config.limits.flow_rules = self.max_flow_rules.unwrap_or(config.limits.flow_rules);
        if config.groups.is_empty() {
            config.groups.push(GroupText::named("all"));
        }
        admit_sudo_user(&mut config.groups);
        config.require_groups_of_vms()?;
        ensure!(
            !config.devices.is_empty(),
            UsageError(
                "no device to capture: give -i DEVICE, or [[source]] in the file".to_owned()
            )
        );
        Ok(config)
    }
}

pub(crate) fn run(args: &HubArgs) -> Result<ExitCode> {
    if let Some(HubAction::Reload(reload)) = &args.action {
        return reload::ask(reload);
    }
    if let Some(file) = &args.check {
        return reload::check(args, file);
    }
    crate::reading::require_no_reader(&args.cpu)?;
    let config = args.config(args.config.as_deref())?;
    let kinds = config.devices.iter().map(|device| device.spec.kind);
    let keeps = args.user.keeping(kinds, &args.cpu)?;
    let level = match (args.verbose, args.quiet) {
        (true, _) => LevelFilter::DEBUG,
        (_, true) => LevelFilter::WARN,
        _ => LevelFilter::INFO,
    };
    let _log = keeps.start_early(|| log::to_stderr(&config.limits, level));
    let (ended, end) = mpsc::channel();
    // Before anything is attached, so that an interrupt leaves nothing behind.
    let at_interrupt = ended.clone();
    let interrupted = move || {
        let _over = at_interrupt.send(());
    };
    let reload = match args.config {
        // SIGHUP of a closed terminal ends a hub without a file.
        None => keeps
            .start_early(|| interrupt::on_interrupt(interrupted))
            .map(|()| Arc::default()),
        Some(_) => keeps.start_early(|| reload::catch(interrupted)),
    }?;
    let path = config.socket.clone().unwrap_or_else(default_socket);
    config.require_rights()?;
    raise_descriptor_limit();
    let listener = listen(&path)?;
    let cpu = args
        .cpu
        .resolve(config.interfaces().next(), |note| print::notes([note]))?;
    let running = affinity::on(cpu.capture, || start(config, &keeps))?;
    let deadline = args.duration.map(|duration| Instant::now() + duration);
    let steered = Steered::default();
    let is_waiting = !running.awaits().is_empty();
    if !is_waiting {
        steer(&cpu, running.config(), &steered)?;
    }
    let options = ServerOptions {
        viewers: viewers(),
        verdicts: None,
    };
    let server = Server::open(listener, running.hub(), options)
        .context("cannot open the socket's server")?;
    let metrics = ServedMetrics::serve(running.config(), running.hub())?;
    say_ready(running.config(), &path);
    let mut reloaded = ReloadedHub::new(args, running, metrics);
    let hub = reloaded.running.handle().clone();
    // Also while an interface is missing: services that need the hub wait for a group, not for the machine.
    service::tell(NotifyState::Ready);
    if !is_waiting {
        hub.when_over(ended.clone());
    }
    wait(&hub, &end, deadline, || {
        reloaded.reload_if_asked(&reload);
        if affinity::on(cpu.capture, || reloaded.begin_when_there())? {
            steer(&cpu, reloaded.running.config(), &steered)?;
            hub.when_over(ended.clone());
        }
        Ok(())
    })?;
    service::tell(NotifyState::Stopping);
    // Before the programs that NAPI may depend on are detached.
    steered.undo();
    // Readers receive the remaining packets and the end before the server closes.
    let status = hub.finish(LAST_READERS);
    let status = status.context("the hub's thread has ended")?;
    drop(server);
    final_counters(&status)
}

/// Moves interrupts and NAPI of the interfaces, if asked to.
fn steer(cpu: &Placement, config: &Config, steered: &Steered) -> Result<()> {
    Ok(cpu.steer(config.interfaces(), steered, |note| print::notes([note]))?)
}

/// Listens on the hub's socket.
pub(crate) fn listen(path: &Path) -> Result<Listener> {
    Listener::bind(path).map_err(|error| anyhow!("{error}: choose another --socket"))
}

/// Lets this process open as many descriptors as its hard limit allows: a reader takes several.
pub(crate) fn raise_descriptor_limit() {
    let limit = getrlimit(Resource::Nofile);
    let raised = Rlimit {
        current: limit.maximum,
        ..limit
    };
    if let Err(error) = setrlimit(Resource::Nofile, raised) {
        print::note(format_args!(
            "ringtap: the limit of descriptors stays as it is: {error}"
        ));
    }
}

/// Reads a configuration file.
///
/// # Errors
///
/// [`UsageError`].
pub(crate) fn read(file: &Path) -> Result<Config, UsageError> {
    config::read(file).map_err(|error| UsageError(error.to_string()))
}

/// Opens devices for the hub of this process.
struct DeviceOpener;

impl ConfigOpener for DeviceOpener {
    type Error = anyhow::Error;

    fn open(&self, Device { spec, place }: &Device) -> Result<Source> {
        let source = ringtap_capture::open(spec);
        Ok(match place {
            Some(place) => source.with_context(|| place.clone())?,
            None => source?,
        })
    }

    fn compile(&self, filter: &str, facts: &Facts) -> Result<Program> {
        Ok(ringtap::compile(filter, facts)?)
    }
}

/// Opens the sources, gives up rights, and starts a hub.
fn start(config: Config, keeps: &Confinement) -> Result<ConfiguredHub<DeviceOpener>> {
    let devices = config.devices.clone();
    ConfiguredHub::start(config, DeviceOpener, |sources| {
        for (source, Device { spec, .. }) in sources.iter().zip(&devices) {
            print::notes(&source.facts.notes);
            if spec.kind.names_a_file() {
                print::note(format_args!(
                    "ringtap: reading {spec} starts now: readers that attach later miss the packets before"
                ));
            }
        }
        Ok(keeps.enter()?)
    })
}

/// The server of a hub's metrics, if there is one, and the keys that it has.
struct ServedMetrics {
    keys: (Option<SocketAddr>, bool),
    server: Option<MetricsServer>,
}

impl ServedMetrics {
    /// Serves metrics, if configured, until this is dropped.
    fn serve(config: &Config, hub: &Hub) -> Result<Self> {
        let (metrics, is_anywhere) = (config.metrics, config.metrics_anywhere);
        ensure!(
            metrics.is_some() || !is_anywhere,
            UsageError("--metrics-anywhere needs an address: --metrics ADDRESS".to_owned())
        );
        let reach = if is_anywhere {
            Reach::Anywhere
        } else {
            Reach::Loopback
        };
        let serve = |address| {
            let handle = hub.handle().clone();
            let exposition = move || {
                let status = handle.status()?;
                Some(ringtap_explain::exposition(&status))
            };
            let server = match http::serve(address, reach, exposition) {
                Err(error @ MetricsError::NotLoopback { .. }) => {
                    bail!("{error}, or give --metrics-anywhere")
                }
                served => served?,
            };
            print::note(format_args!(
                "ringtap: metrics at http://{}/metrics",
                server.address
            ));
            Ok(server)
        };
        Ok(ServedMetrics {
            keys: (metrics, is_anywhere),
            server: metrics.map(serve).transpose()?,
        })
    }

    /// Serves by another configuration, if its keys are others.
    fn replace(&mut self, config: &Config, hub: &Hub) -> Result<()> {
        if self.keys != (config.metrics, config.metrics_anywhere) {
            self.server = None;
            *self = ServedMetrics::serve(config, hub)?;
        }
        Ok(())
    }
}

fn say_ready(config: &Config, path: &std::path::Path) {
    let devices = config.devices.iter();
    let devices: Vec<_> = devices.map(|device| device.spec.to_string()).collect();
    let groups: Vec<_> = config
        .groups
        .iter()
        .map(|group| format!("hub:{}", group.name()))
        .collect();
    print::note(format_args!(
        "ringtap: hub of {} for {}, on {}",
        devices.join(", "),
        groups.join(", "),
        path.display()
    ));
    for vm in &config.vms {
        print::note(format_args!(
            "ringtap: VM {0}: systemctl enable --now ringtap-vm@{0}, or ringtap vm attach -c FILE --name {0}",
            vm.name
        ));
    }
}

/// Waits for an interrupt, the deadline, or the end of all sources; calls `each` every second.
fn wait(
    hub: &Handle,
    end: &Receiver<()>,
    deadline: Option<Instant>,
    mut each: impl FnMut() -> Result<()>,
) -> Result<()> {
    let mut watch = LossWatch::default();
    loop {
        let left = deadline.map(|deadline| deadline.saturating_duration_since(Instant::now()));
        match end.recv_timeout(left.map_or(LOOK, |left| left.min(LOOK))) {
            Err(RecvTimeoutError::Timeout) if left.is_none_or(|left| left > LOOK) => {}
            _ => return Ok(()),
        }
        each()?;
        let status = hub.status().context("the hub's thread has ended")?;
        watch.look(&status).iter().for_each(log_loss);
        if signals::wants_counters() {
            print::notes(report::hub(&status));
        }
        // Only after the hub's thread has answered.
        service::tell(NotifyState::Watchdog);
    }
}

fn log_loss(line: &LossLine) {
    match line.uid {
        Some(uid) => tracing::warn!(uid, "{}", line.text),
        None => tracing::warn!("{}", line.text),
    }
}

/// Prints each source's counters; returns the exit status.
fn final_counters(status: &HubStatus) -> Result<ExitCode> {
    for source in &status.sources {
        print::line(report::source(source))?;
        if let Some(failure) = &source.failure {
            print::note(format_args!("ringtap: {failure}"));
        }
    }
    let failed = status.sources.iter().filter(|one| one.failure.is_some());
    let removed: Vec<_> = failed.map(|one| one.is_removed).collect();
    let is_balanced = status.sources.iter().all(|one| one.balanced);
    Ok(match removed.as_slice() {
        [] if is_balanced => ExitCode::SUCCESS,
        [] => ExitCode::FAILURE,
        all if all.iter().all(|is_removed| *is_removed) => {
            ExitCode::from(statuses::INTERFACE_REMOVED)
        }
        _ => ExitCode::FAILURE,
    })
}

#[cfg(test)]
mod tests {
    use ringtap_ipc::protocol::SourceStatus;

    use super::*;

    #[test]
    fn a_hub_whose_counters_do_not_balance_ends_with_a_failure() {
        let of = |balanced| {
            let source = SourceStatus {
                balanced,
                ..SourceStatus::default()
            };
            let status = HubStatus {
                sources: vec![source],
                ..HubStatus::default()
            };
            format!("{:?}", final_counters(&status).expect("it is printed"))
        };
        assert_eq!(of(true), format!("{:?}", ExitCode::SUCCESS));
        assert_eq!(of(false), format!("{:?}", ExitCode::FAILURE));
    }
}
