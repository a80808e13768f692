// SPDX-License-Identifier: MIT OR Apache-2.0
//! Reads and checks `hub.toml`; errors name the line. [`ConfiguredHub`] runs a hub by it.

mod groups;
mod rules;
mod running;
mod vms;

use std::collections::BTreeSet;
use std::fmt::Display;
use std::net::{AddrParseError, SocketAddr};
use std::ops::Range;
use std::path::{Path, PathBuf};

use ringtap_device::{DeviceSpec, Options, Size};
use ringtap_filter::Program;
use ringtap_ipc::trusted::read_trusted;
use ringtap_pool::congestion::Congestion;
use ringtap_pool::distributor::Policy;
use ringtap_pool::source::Facts;
use serde::Deserialize;
use toml::Spanned;

use crate::group::Group;
use crate::limits::Limits;
use groups::{GroupLocations, Result};
pub use groups::{GroupText, HubConfigError, admit_sudo_user, group_of_users, user, viewers};
use rules::FlowRuleTable;
pub use running::{ConfigOpener, ConfiguredHub};
use vms::VmTable;
pub use vms::{MEMORY, VmConfig, VmMachine, vm_name};

/// Configuration of a hub.
#[derive(Clone, Debug, Default)]
pub struct Config {
    /// Where readers connect.
    pub socket: Option<PathBuf>,
    /// Address of the metrics over HTTP.
    pub metrics: Option<SocketAddr>,
    /// Other machines may reach the metrics.
    pub metrics_anywhere: bool,
    /// When capture pauses.
    pub congestion: Option<Congestion>,
    /// Seed of the hashes that divide packets.
    pub hash_seed: Option<u64>,
    /// Limits of readers.
    pub limits: Limits,
    /// The sources.
    pub devices: Vec<Device>,
    /// The groups.
    pub groups: Vec<GroupText>,
    /// The virtual machines.
    pub vms: Vec<VmConfig>,
}

/// A device, and the place in the file that names it.
#[derive(Clone, Debug, PartialEq)]
pub struct Device {
    /// The device.
    pub spec: DeviceSpec,
    /// For a device in a file: the file's name, the line and the key.
    pub place: Option<String>,
}

/// Content of the file, by key.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
struct File {
    socket: Option<PathBuf>,
    metrics: Option<Spanned<String>>,
    #[serde(default)]
    metrics_anywhere: bool,
    congestion: Option<Spanned<String>>,
    hash_seed: Option<u64>,
    #[serde(default)]
    limits: Limits,
    #[serde(default, rename = "source")]
    sources: Vec<SourceTable>,
    #[serde(default, rename = "group")]
    groups: Vec<GroupTable>,
    #[serde(default, rename = "rule")]
    rules: Vec<FlowRuleTable>,
    #[serde(default, rename = "vm")]
    vms: Vec<VmTable>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct SourceTable {
    device: Spanned<String>,
    #[serde(default)]
    wait: bool,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct GroupTable {
    name: Spanned<String>,
    members: Option<Spanned<u32>>,
    balance: Option<Spanned<String>>,
    offload: Option<Spanned<u8>>,
    filter: Option<Spanned<String>>,
    delivery: Option<Spanned<String>>,
    #[serde(default)]
    by_rule: bool,
    cutoff: Option<Spanned<String>>,
    policy: Option<Spanned<String>>,
    credit: Option<Spanned<u32>>,
    watermark: Option<u32>,
    private_pool: Option<Spanned<String>>,
    #[serde(default)]
    users: Vec<Spanned<String>>,
    #[serde(default)]
    groups: Vec<Spanned<String>>,
}

/// Text of a file, for error messages with positions.
struct Text<'a> {
    path: &'a Path,
    text: &'a str,
}

/// Reads a configuration file.
///
/// # Errors
///
/// The first error, with the file's name, the line and the key.
pub fn read(path: &Path) -> Result<Config> {
    let text = read_trusted(path).map_err(|error| HubConfigError::Invalid(error.to_string()))?;
    parse(path, &text)
}

/// Parses an address to serve metrics at.
///
/// # Errors
///
/// Names the form of an address.
pub fn metrics_address(text: &str) -> Result<SocketAddr> {
    let wrong = "expected an IP address and a port, like 127.0.0.1:9464 or [::1]:9464";
    let failed = |_: AddrParseError| HubConfigError::Invalid(format!("\"{text}\": {wrong}"));
    text.parse().map_err(failed)
}

fn parse(path: &Path, text: &str) -> Result<Config> {
    let file: File = toml::from_str(text).map_err(|error| {
        // toml's own message quotes the line and marks the position.
        let said = error.to_string();
        let hint = if said.contains("expected a sequence") { ": a list is wanted here: [[source]], [[group]] and [[vm]] have two brackets, users = [\"NAME\"]" } else { "" };
        HubConfigError::Invalid(format!("{}: {}{hint}", path.display(), said.trim_end()))
    })?;
    let text = Text { path, text };
    let devices = file.sources.iter().map(|source| {
        let spec = text.value("device", &source.device, |device| {
            device.parse::<DeviceSpec>()
        })?;
        let flags = Options {
            wait: source.wait,
            ..Options::default()
        };
        let spec = spec
            .with_flags(&flags)
            .map_err(|error| text.error("wait", &source.device.span(), &error))?;
        let place = Some(text.place("device", &source.device.span()));
        Ok(Device { spec, place })
    });
    text.require_own_names("group", file.groups.iter().map(|group| &group.name))?;
    text.require_own_names("vm", file.vms.iter().map(|vm| &vm.name))?;
    let vms = file.vms.iter().map(|vm| {
        vm.resolve()
            .map_err(|error| text.error("vm", &vm.name.span(), &error))
    });
    let vms = vms.collect::<Result<_>>()?;
    let groups = file.groups.into_iter().map(|table| text.group(table));
    let mut groups = groups.collect::<Result<Vec<_>>>()?;
    rules::add(file.rules, &mut groups, &text)?;
    Ok(Config {
        devices: devices.collect::<Result<_>>()?,
        groups,
        vms,
        congestion: text.option("congestion", file.congestion.as_ref(), str::parse)?,
        metrics: text.option("metrics", file.metrics.as_ref(), metrics_address)?,
        metrics_anywhere: file.metrics_anywhere,
        hash_seed: file.hash_seed,
        limits: file.limits,
        socket: file.socket,
    })
}

impl Config {
    /// Messages about the keys whose new values need another start of the hub.
    pub fn unchanged(&self, new: &Config) -> impl Iterator<Item = String> + use<> {
        let at_start = |limits: &Limits| {
            (
                limits.guaranteed_readers,
                limits.flows,
                limits.log_lines_per_second,
                limits.log_lines_per_user_and_second,
            )
        };
        let keys = [
            (
                "limits.guaranteed_readers, .flows and .log_lines",
                at_start(&new.limits) == at_start(&self.limits),
            ),
            ("socket", new.socket == self.socket),
            ("congestion", new.congestion == self.congestion),
            ("hash_seed", new.hash_seed == self.hash_seed),
        ];
        let changed = keys.into_iter().filter(|(_, is_same)| !is_same);
        changed.map(|(key, _)| format!("{key}: unchanged: it changes with a restart of the hub"))
    }
}

/// The groups with their filters compiled for these sources by `compile`, if they fit.
///
/// # Errors
///
/// The first group that does not fit, or that does not [compile](GroupText::compile).
pub fn compiled<E: Display>(
    groups: &[GroupText],
    sources: &[Facts],
    compile: impl Fn(&str, &Facts) -> Result<Program, E>,
) -> Result<Vec<Group>> {
    let mut facts = sources.first().cloned().unwrap_or_default();
    if sources.len() > 1 {
        facts.interface = None; // filters are for all sources
    }
    let filtered = groups.iter().any(|group| !group.filter.is_empty());
    let other = sources.iter().find(|one| one.link_type != facts.link_type);
    if let Some(other) = other.filter(|_| filtered) {
        return Err(HubConfigError::Invalid(format!(
            "{} and {} have different link types: remove the filters, or start a hub for each",
            facts.device, other.device
        )));
    }
    let waits = |group: &&GroupText| group.group.policy == Policy::Block;
    let hasty = sources.iter().find(|one| one.policy != Policy::Block);
    if let (Some(group), Some(source)) = (groups.iter().find(waits), hasty) {
        return Err(HubConfigError::Invalid(format!(
            "group {}: the source waits for its readers with policy block, and {} cannot wait: use drop, \
             sample:N or cut:BYTES",
            group.name(),
            source.device
        )));
    }
    let compile = &compile;
    groups
        .iter()
        .map(|group| group.compile(&facts, compile))
        .collect()
}

/// Every key of the file, by the words of the parser's own errors: for tests of its documentation.
#[doc(hidden)]
pub fn keys() -> Vec<String> {
    let tables = [
        "",
        "[[source]]\n",
        "[[group]]\n",
        "[[rule]]\n",
        "[[vm]]\n",
        "[limits]\n",
    ];
    let keys = tables.iter().flat_map(|table| {
        let error = toml::from_str::<File>(&format!("{table}no_such_key = 1\n"));
        let error = error.expect_err("there is no such key").to_string();
        let expected = error
            .split("expected")
            .nth(1)
            .unwrap_or_default()
            .to_owned();
        let words = expected.split('`').skip(1).step_by(2).map(str::to_owned);
        words.collect::<Vec<_>>()
    });
    keys.collect()
}

impl Text<'_> {
    /// A key's value, or an error with its position.
    fn value<T, E: Display>(
        &self,
        key: &str,
        value: &Spanned<String>,
        parse: impl FnOnce(&str) -> Result<T, E>,
    ) -> Result<T> {
        parse(value.get_ref()).map_err(|error| self.error(key, &value.span(), &error))
    }

    fn error(&self, key: &str, place: &Range<usize>, error: &dyn Display) -> HubConfigError {
        HubConfigError::Invalid(format!("{}: {error}", self.place(key, place)))
    }

    /// File, line and key of a position.
    fn place(&self, key: &str, place: &Range<usize>) -> String {
        let before = self.text.get(..place.start).unwrap_or(self.text);
        let line = before.matches('\n').count() + 1;
        format!("{}, line {line}, {key}", self.path.display())
    }

    fn require_own_names<'n>(
        &self,
        kind: &str,
        names: impl Iterator<Item = &'n Spanned<String>>,
    ) -> Result<()> {
        let mut seen = BTreeSet::new();
        for name in names {
            if !seen.insert(name.get_ref()) {
                let error = format!(
                    "there is a {kind} \"{}\" above: choose another name",
                    name.get_ref()
                );
                return Err(self.error("name", &name.span(), &error));
            }
        }
        Ok(())
    }

    fn option<T, E: Display>(
        &self,
        key: &str,
        value: Option<&Spanned<String>>,
        parse: impl FnOnce(&str) -> Result<T, E>,
    ) -> Result<Option<T>> {
        value.map(|value| self.value(key, value, parse)).transpose()
    }

    /// A number, or `error` if it is 0.
    fn positive(&self, key: &str, value: Option<Spanned<u32>>, error: &str) -> Result<Option<u32>> {
        match value {
            Some(zero) if *zero.get_ref() == 0 => Err(self.error(key, &zero.span(), &error)),
            value => Ok(value.map(Spanned::into_inner)),
        }
    }

    fn group(&self, table: GroupTable) -> Result<GroupText> {
        let mut group = Group::new(self.value("name", &table.name, groups::name)?);
        let mut locations = GroupLocations::default();
        let filter = table.filter.as_ref();
        locations.filter = filter.map(|text| self.place("filter", &text.span()));
        let filter = table.filter.map(Spanned::into_inner).unwrap_or_default();
        let balance = table.balance.as_ref();
        locations.balance = balance.map(|word| self.place("balance", &word.span()));
        let members = self.positive("members", table.members, "a group of no members")?;
        group.max_members = members.unwrap_or(group.max_members);
        let nothing = "a reader that may hold no chunk gets nothing: expected 1 or more";
        group.credit_chunks = self.positive("credit", table.credit, nothing)?;
        group.max_watermark_packets = table.watermark.unwrap_or(group.max_watermark_packets);
        let divided = self.option("balance", table.balance.as_ref(), groups::division)?;
        let percent = table.offload.as_ref().map(|percent| *percent.get_ref());
        let offload = table.offload.as_ref().map(Spanned::span);
        let place = offload.unwrap_or(table.name.span());
        if let Some(percent) = percent {
            groups::offload(&percent.to_string())
                .map_err(|error| self.error("offload", &place, &error))?;
        }
        let fits = groups::divide(&mut group, divided, percent);
        fits.map_err(|error| self.error("group", &place, &error))?;
        let delivery = self.option("delivery", table.delivery.as_ref(), groups::delivery)?;
        group.delivery = delivery.unwrap_or(group.delivery);
        group.cutoff = self.option("cutoff", table.cutoff.as_ref(), groups::cutoff)?;
        group.by_rule = table.by_rule;
        groups::check_by_rule(&group, &filter)
            .map_err(|error| self.error("by_rule", &table.name.span(), &error))?;
        let policy = self.option("policy", table.policy.as_ref(), groups::policy)?;
        group.policy = policy.unwrap_or(group.policy);
        let pool = self.option("private_pool", table.private_pool.as_ref(), |text| {
            text.parse::<Size>()
        })?;
        group.private_pool_bytes = pool.map_or(group.private_pool_bytes, |size| size.0);
        let uid = |name| self.value("users", name, groups::user);
        group.access.uids = table.users.iter().map(uid).collect::<Result<_>>()?;
        let gid = |name| self.value("groups", name, groups::group_of_users);
        group.access.gids = table.groups.iter().map(gid).collect::<Result<_>>()?;
        Ok(GroupText {
            group,
            filter,
            locations,
        })
    }
}

#[cfg(test)]
mod tests {
    use ringtap_filter::{Balance, Headers};
    use ringtap_ipc::protocol::Delivery;

    use super::*;

    fn parsed(text: &str) -> Result<Config> {
        parse(Path::new("hub.toml"), text)
    }

    fn error(text: &str) -> String {
        parsed(text).unwrap_err().to_string()
    }

    #[test]
    fn a_whole_file_is_understood() {
        let config = parsed(
            r#"
            socket = "/tmp/hub.sock"
            congestion = "10:30"
            hash_seed = 7
            [[source]]
            device = "tap:eth0?exclusive"
            wait = true
            [[group]]
            name = "ids"
            members = 4
            balance = "flow"
            filter = "tcp"
            users = ["root", "1001"]
            [[group]]
            name = "rec"
            delivery = "private"
            policy = "cut:128"
            private_pool = "8MiB"
            [[vm]]
            name = "vm1"
            qmp = "/run/vm1.qmp"
            groups = ["ids", "rec"]
            memory = "128MiB"
            [[vm]]
            name = "vm2"
            libvirt = "appliance"
            groups = ["ids"]
            [limits]
            connections_per_user = 9
            "#,
        )
        .unwrap();
        assert_eq!(config.devices[0].spec.name, "eth0");
        assert!(config.devices[0].spec.options.wait);
        let [ids, rec] = &config.groups[..] else {
            panic!("two groups")
        };
        assert_eq!(ids.filter, "tcp");
        let (ids, rec) = (&ids.group, &rec.group);
        assert_eq!(ids.division, Balance::Flow(Headers::Outer).into());
        assert_eq!(ids.max_members, 4);
        assert_eq!(ids.access.uids, [0, 1001]);
        assert_eq!(rec.delivery, Delivery::Private);
        assert_eq!(rec.policy, Policy::Cut { snap_bytes: 128 });
        assert_eq!(rec.private_pool_bytes, 8 << 20);
        let [one, two] = &config.vms[..] else {
            panic!("two VMs")
        };
        assert_eq!(one.machine, VmMachine::Qmp("/run/vm1.qmp".into()));
        assert_eq!((one.groups.len(), one.memory.0), (2, 128 << 20));
        assert_eq!(two.machine, VmMachine::Libvirt("appliance".into()));
        assert_eq!(config.limits.connections_per_user.get(), 9);
        assert_eq!(config.limits.connections, Limits::default().connections);
    }

    #[test]
    fn what_is_wrong_is_told_with_its_line_and_key() {
        let text = "[[group]]\nname = \"ids\"\nbalance = \"hash\"\n";
        let told = error(text);
        assert!(told.starts_with("hub.toml, line 3, balance: "), "{told}");
        assert!(told.contains("round-robin"), "what there is: {told}");
        let unknown = error("[[group]]\nname = \"a\"\nmember = 3\n");
        assert!(
            unknown.contains("line 3") && unknown.contains("member"),
            "{unknown}"
        );
        let user = error("[[group]]\nname = \"a\"\nusers = [\"no-such-user-here\"]\n");
        assert!(user.contains("line 3, users"), "{user}");
        let waits = error("[[source]]\ndevice = \"xdp:eth0\"\nwait = true\n");
        assert!(
            waits.contains("line 2, wait") && waits.contains("tap, packet"),
            "{waits}"
        );
        let device = error("\n[[source]]\ndevice = \"tap:\"\n");
        assert!(device.contains("line 3, device"), "{device}");
        let flows = "[[group]]\nname = \"a\"\nbalance = \"flow\"\noffload = 60\n";
        let flows = error(flows);
        assert!(
            flows.contains("line 4") && flows.contains("balance = lanes"),
            "{flows}"
        );
        let percent = error("[[group]]\nname = \"a\"\noffload = 101\n");
        assert!(percent.contains("line 3, offload"), "{percent}");
        let twice = error("[[group]]\nname = \"a\"\n[[group]]\nname = \"a\"\n");
        assert!(twice.contains("line 4, name"), "{twice}");
        let nobody = error("[[group]]\nname = \"a\"\nmembers = 0\n");
        assert!(nobody.contains("line 3, members"), "{nobody}");
        let nothing = error("[[group]]\nname = \"a\"\ncredit = 0\n");
        assert!(nothing.contains("line 3, credit: "), "{nothing}");
        let single = error("[source]\ndevice = \"eth0\"\n");
        assert!(single.contains("[[source]], [[group]] and"), "{single}");
        let limit = error("[limits]\nconnection = 3\n");
        assert!(
            limit.contains("line 2") && limit.contains("connections_per_user"),
            "{limit}"
        );
        let zero = error("[limits]\nconnections = 0\n");
        assert!(zero.contains("line 2"), "{zero}");
        let address = error("metrics = \"localhost:9464\"\n");
        assert!(address.contains("like 127.0.0.1:9464"), "{address}");
        let both = "[[vm]]\nname = \"v\"\ngroups = [\"a\"]\nqmp = \"q\"\nlibvirt = \"d\"\n";
        let both = error(both);
        assert!(
            both.contains("line 2, vm: ") && both.contains("either"),
            "{both}"
        );
        let syntax = error("socket = \n");
        assert!(syntax.contains("line 1"), "{syntax}");
    }
}
