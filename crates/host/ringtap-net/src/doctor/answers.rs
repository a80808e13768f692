// SPDX-License-Identifier: MIT OR Apache-2.0
//! Answers of `ip` and `ethtool` about an interface.

use std::collections::BTreeMap;
use std::process::{Command, Stdio};

use crate::netlink::{XdpFeatures, xdp_features};
use serde_json::Value;

/// Queries of ethtool: driver, features, rings, queues, RSS, time stamping.
const ETHTOOL: [&str; 6] = ["-i", "-k", "-g", "-l", "-x", "-T"];

/// The outputs of the commands, by their flags; a command that failed has none.
#[derive(Clone, Debug, Default)]
pub(super) struct DeviceAnswers {
    texts: BTreeMap<String, String>,
    pub(super) link: Value,
    pub(super) xdp: Option<XdpFeatures>,
}

/// A feature of `ethtool -k`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Switch {
    pub(super) is_on: bool,
    /// The driver does not change it.
    pub(super) is_fixed: bool,
}

/// A setting of `ethtool -g` or `-l`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Amount {
    pub(super) now: u32,
    pub(super) most: u32,
}

impl DeviceAnswers {
    /// Asks about an interface.
    pub(super) fn ask(interface: &str, index: u32) -> Self {
        let texts = ETHTOOL.into_iter();
        let texts = texts.filter_map(|flag| {
            let text = output("ethtool", &[flag, interface])?;
            Some((flag.to_owned(), text))
        });
        let link = output(
            "ip",
            &["-json", "-details", "link", "show", "dev", interface],
        );
        Self {
            texts: texts.collect(),
            link: link.map_or(Value::Null, |text| first(&text)),
            xdp: xdp_features(index),
        }
    }

    /// Reads recorded answers: each begins with a line `$ ethtool -k` or `$ ip`; `$ xdp` has the two bit sets.
    #[cfg(test)]
    pub(super) fn recorded(text: &str) -> Self {
        let mut answers = Self::default();
        for part in text.split("\n$ ").skip(1) {
            let (command, output) = part.split_once('\n').unwrap_or((part, ""));
            match command {
                "ip" => answers.link = first(output),
                "xdp" => {
                    let bits: Vec<u64> = output
                        .split_whitespace()
                        .map(|it| it.parse().unwrap())
                        .collect();
                    answers.xdp = Some(XdpFeatures::new(bits[0], bits[1]));
                }
                _ => {
                    let flag = command.trim_start_matches("ethtool ");
                    answers.texts.insert(flag.to_owned(), output.to_owned());
                }
            }
        }
        answers
    }

    /// Whether ethtool answered at all.
    pub(super) fn has_ethtool(&self) -> bool {
        !self.texts.is_empty()
    }

    pub(super) fn text(&self, flag: &str) -> &str {
        self.texts.get(flag).map_or("", String::as_str)
    }

    /// The driver's name.
    pub(super) fn driver(&self) -> Option<&str> {
        find(self.text("-i"), "driver")
    }

    /// A feature of `ethtool -k`.
    pub(super) fn switch(&self, name: &str) -> Option<Switch> {
        let value = find(self.text("-k"), name)?;
        Some(Switch {
            is_on: value.starts_with("on"),
            is_fixed: value.contains("[fixed]"),
        })
    }

    /// A setting of `ethtool -g` or `-l` with its largest value.
    pub(super) fn amount(&self, flag: &str, name: &str) -> Option<Amount> {
        let (most, now) = self.text(flag).split_once("Current hardware settings:")?;
        let number = |text| find(text, name)?.parse().ok();
        Some(Amount {
            now: number(now)?,
            most: number(most)?,
        })
    }

    /// The key of the RSS hash, as ethtool prints it.
    pub(super) fn hash_key(&self) -> Option<&str> {
        let (_, rest) = self.text("-x").split_once("RSS hash key:")?;
        let key = rest.lines().map(str::trim).find(|line| !line.is_empty())?;
        key.contains(':').then_some(key)
    }
}

/// Value of the line `NAME: value`.
fn find<'a>(text: &'a str, name: &str) -> Option<&'a str> {
    let each = text.lines().map(str::trim);
    let mut values = each.filter_map(|line| line.strip_prefix(name)?.strip_prefix(':'));
    values.next().map(str::trim)
}

/// The first object of a JSON list.
fn first(text: &str) -> Value {
    let list: Value = serde_json::from_str(text).unwrap_or_default();
    list.get(0).cloned().unwrap_or_default()
}

/// Standard output of a command that succeeds.
fn output(program: &str, args: &[&str]) -> Option<String> {
    let mut command = Command::new(program);
    command
        .args(args)
        .stdin(Stdio::null())
        .stderr(Stdio::null());
    let output = command.output().ok()?;
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    output.status.success().then_some(text)
}
