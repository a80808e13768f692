// SPDX-License-Identifier: MIT OR Apache-2.0
//! Parses groups as users write them, `ids:4:flow`, and words of the configuration file.

use std::fmt::Display;
use std::str::FromStr;

use nix::unistd::{Group as UnixGroup, User};
use ringtap_device::cut_off;
use ringtap_filter::flow::CutOff;
use ringtap_filter::{Balance, GroupName, Program};
use ringtap_ipc::environment;
use ringtap_ipc::protocol::{Delivery, Division};
use ringtap_ipc::trusted::open_trusted;
use ringtap_pool::distributor::Policy;
use ringtap_pool::source::Facts;

use crate::group::{AccessList, Group, GroupFilter};

/// Why a configuration is not valid; that of a file begins with its name, the line and the key.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum HubConfigError {
    /// A key or a word has no such value, or values do not fit together.
    #[error("{0}")]
    Invalid(String),
    /// The filter of a group is not valid.
    #[error("{0}")]
    Filter(String),
}

pub(super) type Result<T, E = HubConfigError> = std::result::Result<T, E>;

/// Fails with a text unless the condition holds.
pub(super) fn require(condition: bool, text: impl FnOnce() -> String) -> Result<()> {
    if condition {
        Ok(())
    } else {
        Err(HubConfigError::Invalid(text()))
    }
}

/// A group whose filter is not compiled yet.
#[derive(Clone, Debug, PartialEq)]
pub struct GroupText {
    /// The group without its filter.
    pub group: Group,
    /// Its filter, as the user wrote it.
    pub filter: String,
    pub(super) locations: GroupLocations,
}

/// Positions (file name, line and key) of texts that are checked later.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct GroupLocations {
    pub(super) filter: Option<String>,
    pub(super) balance: Option<String>,
}

impl GroupText {
    /// A group of this name without a filter.
    pub fn named(name: &str) -> Self {
        GroupText {
            group: Group::new(name),
            filter: String::new(),
            locations: GroupLocations::default(),
        }
    }

    /// Makes this the group of a bridge's inline reader: one reader that sees every packet, in place.
    ///
    /// # Errors
    ///
    /// The user wrote more than the group's name, users and credit.
    pub fn for_inline(&self) -> Result<Self> {
        let name = self.name();
        let mut same = GroupText::named(name);
        same.group.access.clone_from(&self.group.access);
        same.group.credit_chunks = self.group.credit_chunks;
        require(*self == same, || {
            format!(
                "the inline reader of group {name} reads every packet, in place: give only the group's name \
                 (--drop keeps packets from it)"
            )
        })?;
        same.group.max_members = 1;
        Ok(same)
    }

    /// The group's name.
    pub fn name(&self) -> &str {
        &self.group.name
    }

    /// The group, with its filter compiled for the packets of the sources by `compile`.
    ///
    /// # Errors
    ///
    /// The filter is not valid, or others than root and the hub's user can change the program to balance by.
    pub fn compile<E: Display>(
        &self,
        facts: &Facts,
        compile: impl Fn(&str, &Facts) -> Result<Program, E>,
    ) -> Result<Group> {
        let location = |location: &Option<String>| {
            let named = || format!("group {}", self.name());
            location.clone().unwrap_or_else(named)
        };
        let text = &self.filter;
        let filter = compile(text, facts).map_err(|error| {
            let location = location(&self.locations.filter);
            // In `-g NAME:WORD`, WORD may be meant as a balance or as a filter.
            HubConfigError::Filter(if self.locations.filter.is_none() && !text.contains(' ') {
                format!("{location}: \"{text}\" is no balance, and as a filter: {error}")
            } else {
                format!("{location}: {error}")
            })
        })?;
        if let Balance::Program(file) = self.group.division.balance() {
            open_trusted(file).map_err(|error| {
                let location = location(&self.locations.balance);
                let file = file.display();
                HubConfigError::Invalid(format!(
                    "{location}: {file}: no program to balance by: {error}"
                ))
            })?;
        }
        let filter = if self.group.by_rule {
            GroupFilter::new(BY_RULE, Program::nothing())
        } else {
            GroupFilter::new(text, filter)
        };
        Ok(Group {
            filter,
            ..self.group.clone()
        })
    }
}

/// UNIX group whose members see the counters of every hub: `status`, `top`, `why`.
const VIEWERS: &str = "ringtap";

/// The users who see the counters although they may join no group.
pub fn viewers() -> AccessList {
    AccessList {
        gids: group_id(VIEWERS).into_iter().collect(),
        ..AccessList::default()
    }
}

/// Lets the user of `sudo` join the groups that name no users.
pub fn admit_sudo_user(groups: &mut [GroupText]) {
    let uid = environment::variable("SUDO_UID");
    let Some(uid) = uid.and_then(|uid| uid.to_str()?.parse().ok()) else {
        return;
    };
    let accesses = groups.iter_mut().map(|group| &mut group.group.access);
    for access in accesses.filter(|access| **access == AccessList::default()) {
        access.uids.push(uid);
    }
}

/// Sets how a group divides its traffic, if the user said so, and its offload threshold.
///
/// # Errors
///
/// They do not fit together.
pub(super) fn divide(
    group: &mut Group,
    given: Option<Division>,
    offload_percent: Option<u8>,
) -> Result<()> {
    let usual = match offload_percent {
        Some(_) => Division::Lanes,
        None => Division::BROADCAST,
    };
    group.division = given.unwrap_or(usual);
    group.offload_percent = offload_percent;
    require(
        offload_percent.is_none() || group.division == Division::Lanes,
        || {
            format!(
                "offload moves whole chunks: use balance = {} instead of {}",
                Division::Lanes,
                group.division
            )
        },
    )
}

/// Parses `NAME[:MEMBERS][:BALANCE][:offload=PERCENT][:private][:by-rule][:cutoff=LIMIT][:users=NAMES][:groups=NAMES][:FILTER]`.
impl FromStr for GroupText {
    type Err = HubConfigError;

    fn from_str(text: &str) -> Result<Self> {
        let (first, mut rest) = text.split_once(':').unwrap_or((text, ""));
        let mut group = Group::new(name(first)?);
        let (mut members, mut delivered) = (None, None);
        let mut filter = String::new();
        let (mut divided, mut offload_percent) = (None, None);
        while !rest.is_empty() {
            let (word, after) = match rest.strip_prefix("program:") {
                // On the command line the file's name has no colon; in the configuration file it may.
                Some(file) => rest.split_at(8 + file.find(':').unwrap_or(file.len())),
                None => rest.split_at(rest.find(':').unwrap_or(rest.len())),
            };
            let again;
            if let Ok(number) = word.parse() {
                require(number > 0, || "a group of no members".to_owned())?;
                again = members.replace(number).is_some();
            } else if let Ok(word) = division(word) {
                again = divided.replace(word).is_some();
            } else if let Ok(word) = delivery(word) {
                again = delivered.replace(word).is_some();
            } else if let Some(percent) = word.strip_prefix("offload=") {
                again = offload_percent.replace(offload(percent)?).is_some();
            } else if word == BY_RULE {
                again = std::mem::replace(&mut group.by_rule, true);
            } else if let Some(text) = word.strip_prefix("cutoff=") {
                again = group.cutoff.replace(cutoff(text)?).is_some();
            } else if let Some(name) = word.strip_prefix("users=") {
                again = !group.access.uids.is_empty();
                let users = name.split(',').map(user);
                group.access.uids = users.collect::<Result<_>>()?;
            } else if let Some(name) = word.strip_prefix("groups=") {
                again = !group.access.gids.is_empty();
                let groups = name.split(',').map(group_of_users);
                group.access.gids = groups.collect::<Result<_>>()?;
            } else {
                rest.clone_into(&mut filter);
                break;
            }
            require(!again, || {
                format!("\"{word}\": a group has one such part, and one is before it")
            })?;
            rest = after.strip_prefix(':').unwrap_or(after);
        }
        group.max_members = members.unwrap_or(group.max_members);
        group.delivery = delivered.unwrap_or(group.delivery);
        divide(&mut group, divided, offload_percent)?;
        check_by_rule(&group, &filter)?;
        Ok(GroupText {
            group,
            filter,
            locations: GroupLocations::default(),
        })
    }
}

/// Word of a group that gets packets by rules.
const BY_RULE: &str = "by-rule";

/// Refuses what a group that gets packets by rules cannot have.
pub(super) fn check_by_rule(group: &Group, filter: &str) -> Result<()> {
    let is_plain = filter.is_empty()
        && group.division == Division::BROADCAST
        && group.cutoff.is_none()
        && group.rules.is_empty();
    require(!group.by_rule || is_plain, || {
        format!(
            "group {}: rules of other readers choose its packets, for all its readers: it has no filter, balance, \
             cutoff and [[rule]]",
            group.name
        )
    })
}

pub(super) fn name(text: &str) -> Result<String> {
    let name: Result<GroupName, _> = text.parse();
    name.map_err(|error| HubConfigError::Invalid(error.to_string()))?;
    Ok(text.to_owned())
}

pub(super) fn division(word: &str) -> Result<Division> {
    Division::from_word(word).ok_or_else(|| {
        let known: Vec<_> = Balance::words().collect();
        let known = known.join(", ");
        let lanes = Division::Lanes;
        HubConfigError::Invalid(format!(
            "\"{word}\" is no balance: expected {known}, {lanes} or program:FILE"
        ))
    })
}

/// Parses an offload threshold in percent.
pub(super) fn offload(text: &str) -> Result<u8> {
    let percent = text.trim_end_matches('%').parse().ok();
    percent.filter(|percent| *percent <= 100).ok_or_else(|| {
        HubConfigError::Invalid(format!(
            "\"{text}\" is no offload threshold: expected 0 to 100 percent"
        ))
    })
}

pub(super) fn delivery(word: &str) -> Result<Delivery> {
    let wrong = || format!("\"{word}\" is no delivery: expected shared or private");
    Delivery::from_word(word).ok_or_else(|| HubConfigError::Invalid(wrong()))
}

pub(super) fn cutoff(text: &str) -> Result<CutOff> {
    cut_off(text).map_err(|error| HubConfigError::Invalid(error.to_string()))
}

pub(super) fn policy(word: &str) -> Result<Policy> {
    Policy::from_word(word).ok_or_else(|| {
        HubConfigError::Invalid(format!(
            "\"{word}\" is no policy: expected drop, sample:N (one chunk in N), cut:BYTES, or block (files \
             only)"
        ))
    })
}

/// The number of a user, by name or number.
///
/// # Errors
///
/// There is no such user.
pub fn user(text: &str) -> Result<u32> {
    let found = || Some(User::from_name(text).ok()??.uid.as_raw());
    let uid = text.parse().ok().or_else(found);
    uid.ok_or_else(|| HubConfigError::Invalid(format!("there is no user \"{text}\"")))
}

/// The number of a UNIX group, by name or number.
///
/// # Errors
///
/// There is no such group.
pub fn group_of_users(text: &str) -> Result<u32> {
    let gid = text.parse().ok().or_else(|| group_id(text));
    gid.ok_or_else(|| HubConfigError::Invalid(format!("there is no group of users \"{text}\"")))
}

fn group_id(name: &str) -> Option<u32> {
    Some(UnixGroup::from_name(name).ok()??.gid.as_raw())
}

#[cfg(test)]
mod tests {
    use ringtap_filter::Headers;

    use super::*;

    fn parsed(text: &str) -> Group {
        text.parse::<GroupText>().unwrap().group
    }

    fn filter_of(text: &str) -> String {
        text.parse::<GroupText>().unwrap().filter
    }

    #[test]
    fn a_group_is_written_in_one_word() {
        assert_eq!(parsed("rec"), Group::new("rec"));
        let ids = parsed("ids:4:flow");
        assert_eq!(ids.max_members, 4);
        assert_eq!(ids.division, Balance::Flow(Headers::Outer).into());
        let web = parsed("web:private:tcp port 80 or ip6 host ::1");
        assert_eq!(web.delivery, Delivery::Private);
        let filter = "tcp port 80 or ip6 host ::1";
        assert_eq!(filter_of(&format!("web:private:{filter}")), filter);
        let own = parsed("own:2:program:/tmp/steer.o:udp");
        assert_eq!(own.division, Balance::Program("/tmp/steer.o".into()).into());
        assert_eq!(filter_of("own:2:program:/tmp/steer.o:udp"), "udp");
        let buddies = parsed("ids:4:lanes:offload=60:udp");
        assert_eq!(
            (buddies.division, buddies.offload_percent),
            (Division::Lanes, Some(60))
        );
        assert_eq!(filter_of("ids:4:lanes:offload=60:udp"), "udp");
        assert_eq!(parsed("ids:offload=60%").division, Division::Lanes);
        for wrong in [
            "a:round-robin:offload=50",
            "a:flow:offload=50",
            "a:offload=101",
        ] {
            assert!(wrong.parse::<GroupText>().is_err(), "{wrong}");
        }
        let open = parsed("rec:users=root,1001:groups=0:udp");
        assert_eq!(
            (&open.access.uids[..], &open.access.gids[..]),
            (&[0, 1001][..], &[0][..])
        );
        assert_eq!(filter_of("rec:users=root,1001:groups=0:udp"), "udp");
        for twice in [
            "a:lanes:flow",
            "c:2:3:flow",
            "a:private:shared",
            "a:users=0:users=1",
        ] {
            let error = twice.parse::<GroupText>().unwrap_err().to_string();
            assert!(error.contains("one such part"), "{twice}: {error}");
        }
        assert!("a:users=no-such-user".parse::<GroupText>().is_err());
        assert!("a b:2".parse::<GroupText>().is_err());
        assert!("a:0".parse::<GroupText>().is_err());
    }

    #[test]
    fn a_policy_says_what_it_keeps() {
        assert_eq!(policy("sample:8").unwrap(), Policy::Sample { one_in: 8 });
        assert!(policy("sample:0").is_err() && policy("sample").is_err());
    }
}
