// SPDX-License-Identifier: MIT OR Apache-2.0
//! `ringtap rules`: flow rules of the readers of a group.

mod parsing;

use std::collections::BTreeSet;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use anyhow::{Result, bail, ensure};
use clap::{Args, Subcommand};
use ringtap_client::{Connection, ControlError, ReaderRules, default_socket, host_socket};
use ringtap_device::{DeviceSpec, cut_off_text};
use ringtap_explain::text;
use ringtap_filter::flow::FlowAction;
use ringtap_ipc::peer::Peer;
use ringtap_ipc::protocol::{FlowDirectionCounts, FlowEvent, HubStatus, RuleStatus};
use serde::Serialize;
use serde_json::{Value, json};

use crate::UsageError;
use crate::completion;
use crate::print;
use crate::seeing::HubSocketArgs;

/// Pause between two looks for the ends of flows.
const LOOK: Duration = Duration::from_millis(100);

/// Withholds packets of flows from readers of a group, and shows what flows had.
#[derive(Args, Debug)]
#[command(after_help = EXAMPLES)]
pub(crate) struct RulesArgs {
    #[command(subcommand)]
    action: RulesVerb,
}

/// What to do with flow rules.
#[derive(Debug, Subcommand)]
enum RulesVerb {
    /// List the rules of the readers, and what their flows had.
    #[command(after_help = LIST_EXAMPLES)]
    List(ReadersArgs),
    /// Set a rule for a flow, or for all that match a pattern, of the readers that a group has now.
    #[command(after_help = ADD_EXAMPLES)]
    Add(RuleArgs),
    /// Remove the readers' rule for a flow or a pattern.
    #[command(after_help = REMOVE_EXAMPLES)]
    Remove(FlowArgs),
    /// Show each end of a flow of the readers, with its counts.
    #[command(after_help = WATCH_EXAMPLES)]
    Watch(ReadersArgs),
}

const EXAMPLES: &str = "\
Examples:
  ringtap rules add -i hub:ids tcp 10.0.0.1:80 10.0.0.2:5000 ignore
  ringtap rules list -i hub:ids
  ringtap rules remove -i hub:ids tcp 10.0.0.1:80 10.0.0.2:5000
  ringtap rules watch -i hub:ids --json

A rule is of a reader and ends with it. [[rule]] and cutoff in hub.toml are for all readers of a group.";
const LIST_EXAMPLES: &str = "\
Examples:
  ringtap rules list -i hub:ids
  ringtap rules list -i hub:ids --json | jq .flow";
const ADD_EXAMPLES: &str = "\
Examples:
  ringtap rules add -i hub:ids tcp 10.0.0.1:80 10.0.0.2:5000 ignore
  ringtap rules add -i hub:ids udp 10.0.0.1:53 10.0.0.2:53 vlan 7 cutoff \"20 packets\" for 60s
  ringtap rules add -i hub:rec --reader 3 tcp [fe80::1]:80 [fe80::2]:5000 cutoff 16KiB
  ringtap rules add -i hub:ids tcp net 10.0.0.0/8 port 8000-8999 and host 192.168.1.1 ignore
  ringtap rules add -i hub:ids udp vlan 7 sample 100";
const REMOVE_EXAMPLES: &str = "\
Examples:
  ringtap rules remove -i hub:ids tcp 10.0.0.1:80 10.0.0.2:5000
  ringtap rules remove -i hub:ids udp vlan 7";
const WATCH_EXAMPLES: &str = "\
Examples:
  ringtap rules watch -i hub:ids
  ringtap rules watch -i hub:ids --json >> flows.jsonl";

/// Selects readers.
#[derive(Args, Debug)]
struct ReadersArgs {
    /// The group, `hub:NAME`, or in a virtual machine `host:NAME`; with `?socket=PATH` if need be.
    #[arg(short = 'i', long = "interface", value_name = "DEVICE", add = completion::devices())]
    device: DeviceSpec,

    #[command(flatten)]
    hub: HubSocketArgs,

    /// Only the reader with this number, as `ringtap status` shows it. Default: each of this user in the group;
    /// for root each in the group.
    #[arg(long, value_name = "NUMBER")]
    reader: Option<u64>,

    /// One JSON object a line.
    #[arg(long)]
    json: bool,
}

/// A flow of readers.
#[derive(Args, Debug)]
struct FlowArgs {
    #[command(flatten)]
    readers: ReadersArgs,

    /// The flow: protocol and both ends, like `tcp 10.0.0.1:80 10.0.0.2:5000`. Or a pattern, like
    /// `tcp net 10.0.0.0/8 port 8000-8999`.
    #[arg(value_name = "FLOW", required = true)]
    words: Vec<String>,
}

/// A rule of readers.
#[derive(Args, Debug)]
struct RuleArgs {
    #[command(flatten)]
    readers: ReadersArgs,

    /// The flow or pattern, and the action: `ignore`, `cutoff` with a number of packets or bytes of each direction, or
    /// `sample 100` for one packet in 100; then perhaps `for 60s`.
    #[arg(value_name = "RULE", required = true)]
    words: Vec<String>,
}

/// Readers of a group, at their hub.
struct Readers {
    connection: Connection,
    group: String,
    /// The group as the user named it.
    device: String,
    numbers: Vec<u64>,
}

/// A rule in force, as JSON.
#[derive(Serialize)]
struct RuleLine<'a> {
    r#type: &'static str,
    group: &'a str,
    #[serde(flatten)]
    rule: RuleStatus,
}

/// The end of a flow, as JSON.
#[derive(Serialize)]
struct EventLine<'a> {
    r#type: &'static str,
    group: &'a str,
    reader: u64,
    #[serde(flatten)]
    event: FlowEvent,
}

pub(crate) fn run(args: &RulesArgs) -> Result<ExitCode> {
    match &args.action {
        RulesVerb::List(args) => list(args)?,
        RulesVerb::Add(args) => add(args)?,
        RulesVerb::Remove(args) => return remove(args),
        RulesVerb::Watch(args) => watch(args)?,
    }
    Ok(ExitCode::SUCCESS)
}

impl ReadersArgs {
    fn find(&self) -> Result<Readers> {
        let device = &self.device;
        ensure!(
            device.kind.names_a_group(),
            UsageError(format!(
                "{device} is no group of a hub: expected hub:NAME, or in a virtual machine host:NAME"
            ))
        );
        let own = device.options.socket.as_ref().map(PathBuf::from);
        let socket = self.hub.socket.clone().or(own);
        let socket = socket.unwrap_or_else(|| {
            if device.kind.is_of_host {
                host_socket(&device.name)
            } else {
                default_socket()
            }
        });
        let connection = Connection::open(&socket, "rules")?;
        let status = connection.status()?;
        let numbers = match self.reader {
            Some(number) => vec![number],
            None => numbers_of(&status, &device.name),
        };
        if numbers.is_empty() {
            let group = &device.name;
            let known = status.groups.iter().any(|one| one.name == *group);
            ensure!(
                known,
                "there is no group \"{group}\" that this user may see"
            );
            let kind = &device.kind;
            bail!(
                "{kind}:{group} has no reader of this user now, and a rule belongs to a reader: start one, or put \
                 [[rule]] or cutoff into the hub's file"
            );
        }
        Ok(Readers {
            connection,
            group: device.name.clone(),
            device: format!("{}:{}", device.kind, device.name),
            numbers,
        })
    }
}

/// The readers of a group that are this user's; all for root.
fn numbers_of(status: &HubStatus, group: &str) -> Vec<u64> {
    let uid = Peer::this_process().uid;
    let readers = status.readers.iter();
    let own = readers.filter(|one| one.group == group && (uid == 0 || one.uid == uid));
    own.map(|one| one.reader).collect()
}

impl Readers {
    /// The readers' numbers and rules.
    fn each(&self) -> impl Iterator<Item = (u64, ReaderRules<'_>)> {
        let numbers = self.numbers.iter().copied();
        numbers.map(|number| (number, ReaderRules::of_reader(&self.connection, number)))
    }
}

fn add(args: &RuleArgs) -> Result<()> {
    let rule = parsing::rule(&args.words)?;
    let readers = args.readers.find()?;
    let mut set = Vec::new();
    for (number, rules) in readers.each() {
        rules.set(&[rule])?;
        set.push(number);
    }
    tell(
        &args.readers,
        json!({"type": "rule_set", "flow": rule.flow, "readers": set}),
        || {
            format!(
                "{}: set for {}",
                rule.flow,
                of_readers(set.len(), &readers.device)
            )
        },
    )
}

fn remove(args: &FlowArgs) -> Result<ExitCode> {
    let flow = parsing::flow(&args.words)?;
    let readers = args.readers.find()?;
    let mut removed = Vec::new();
    for (number, rules) in readers.each() {
        if rules.remove(&[flow])? > 0 {
            removed.push(number);
        }
    }
    let found = json!({"type": "rule_removed", "flow": flow, "readers": removed});
    tell(&args.readers, found, || {
        format!(
            "{flow}: removed from {}",
            of_readers(removed.len(), &readers.device)
        )
    })?;
    Ok(if removed.is_empty() {
        ExitCode::FAILURE
    } else {
        ExitCode::SUCCESS
    })
}

fn of_readers(count: usize, device: &str) -> String {
    format!(
        "{} of {device}",
        text::count(u64::try_from(count).unwrap_or(0), "reader")
    )
}

fn tell(args: &ReadersArgs, found: Value, sentence: impl Fn() -> String) -> Result<()> {
    if args.json {
        print::line(found)
    } else {
        print::line(sentence())
    }
}

fn list(args: &ReadersArgs) -> Result<()> {
    let readers = args.find()?;
    let mut seen = BTreeSet::new();
    for (_, rules) in readers.each() {
        for rule in rules.list()? {
            // The members of a group that divides its traffic have the same rules.
            if !seen.insert((rule.reader, rule.rule.flow)) {
                continue;
            }
            if args.json {
                let line = RuleLine {
                    r#type: "flow_rule",
                    group: &readers.group,
                    rule,
                };
                print::line(serde_json::to_string(&line)?)?;
            } else {
                print::line(described(&rule))?;
            }
        }
    }
    Ok(())
}

/// A rule in words: `reader 3: tcp … cutoff 20 packets, 9 s left: 7 packets, 420 B | 5 packets, 300 B`.
fn described(status: &RuleStatus) -> String {
    let rule = &status.rule;
    let whose = match status.reader {
        Some(number) => format!("reader {number}"),
        None => "the hub's file".to_owned(),
    };
    let action = match rule.action {
        FlowAction::Ignore => "ignore".to_owned(),
        FlowAction::CutOff(cut) => format!("cutoff {}", cut_off_text(&cut)),
        FlowAction::Sample { one_in } => format!("sample {one_in}"),
        FlowAction::Mirror { group } => format!("mirror {group}"),
        FlowAction::Forward { group } => format!("forward {group}"),
    };
    let left = rule
        .lasts_ns
        .map(|ns| format!(", {} s left", ns.div_ceil(1_000_000_000)));
    let counts = status
        .directions
        .map(|both| format!(": {}", counted(&both)));
    format!(
        "{whose}: {} {action}{}{}",
        rule.flow,
        left.unwrap_or_default(),
        counts.unwrap_or_default()
    )
}

fn counted(directions: &[FlowDirectionCounts; 2]) -> String {
    let one = |counts: &FlowDirectionCounts| {
        format!(
            "{}, {}",
            text::packets(counts.packets),
            text::size(counts.bytes)
        )
    };
    format!(
        "{} from the first end, {} from the second",
        one(&directions[0]),
        one(&directions[1])
    )
}

fn watch(args: &ReadersArgs) -> Result<()> {
    let mut readers = args.find()?;
    loop {
        let mut gone = Vec::new();
        for (number, rules) in readers.each() {
            let told = match rules.events(Duration::ZERO) {
                Err(ControlError::Refused(_)) => {
                    gone.push(number);
                    continue;
                }
                told => told?,
            };
            for event in told.events {
                show_event(args, &readers.group, number, event)?;
            }
            if told.lost > 0 {
                let lost = json!({"type": "flow_events_lost", "reader": number, "lost": told.lost});
                tell(args, lost, || {
                    format!("reader {number}: {} lost", text::count(told.lost, "end"))
                })?;
            }
        }
        readers.numbers.retain(|number| !gone.contains(number));
        if readers.numbers.is_empty() {
            print::note("ringtap: the readers have left");
            return Ok(());
        }
        std::thread::sleep(LOOK);
    }
}

fn show_event(args: &ReadersArgs, group: &str, reader: u64, event: FlowEvent) -> Result<()> {
    if args.json {
        let line = EventLine {
            r#type: "flow_event",
            group,
            reader,
            event,
        };
        return print::line(serde_json::to_string(&line)?);
    }
    let counts = event.directions.map(|both| format!(": {}", counted(&both)));
    let counts = counts.unwrap_or_default();
    print::line(format_args!(
        "reader {reader}: {} {}{counts}",
        event.flow,
        event.why.word()
    ))
}
