// SPDX-License-Identifier: MIT OR Apache-2.0
//! A user's program that selects the bucket of a packet.
//!
//! libbpf loads it alone, which creates its maps and verifies it separately. Then its instructions
//! become a function of the tap's program.
//!
//! Invariants
//! - Its maps exist while rules that use it are in force.
//! - It may read packets but not change their length, which the tap has already read.

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::time::SystemTime;

use libbpf_rs::{Object, ObjectBuilder, OpenObject};

use super::RulesError;
use crate::tap::programs::TapProgram;
use ringtap_bpf::object;
use ringtap_bpf::splice::Code;

/// Maximum number of different programs that one tap calls.
pub(super) const MOST_PROGRAMS: usize = 4;

/// Kernel helpers that leave the program or change a packet's length.
const FORBIDDEN: [(i32, &str); 12] = [
    (12, "bpf_tail_call"),
    (18, "bpf_skb_vlan_push"),
    (19, "bpf_skb_vlan_pop"),
    (31, "bpf_skb_change_proto"),
    (38, "bpf_skb_change_tail"),
    (43, "bpf_skb_change_head"),
    (44, "bpf_xdp_adjust_head"),
    (50, "bpf_skb_adjust_room"),
    (51, "bpf_redirect_map"),
    (54, "bpf_xdp_adjust_meta"),
    (65, "bpf_xdp_adjust_tail"),
    (23, "bpf_redirect"),
];

/// Identifies a file's content: a changed file of the same name is another program.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Identity {
    device: u64,
    inode: u64,
    bytes: u64,
    changed: SystemTime,
}

impl Identity {
    fn of(path: &Path) -> Option<Self> {
        let found = fs::metadata(path).ok()?;
        Some(Identity {
            device: found.dev(),
            inode: found.ino(),
            bytes: found.len(),
            changed: found.modified().ok()?,
        })
    }
}

/// A loaded user's program.
pub(super) struct UserProgram {
    pub(super) path: PathBuf,
    identity: Option<Identity>,
    xdp: Option<Code>,
    tc: Option<Code>,
    /// Keeps the program's maps open.
    _object: Object,
}

impl UserProgram {
    /// Loads the programs of the file for these hooks.
    pub(super) fn load(path: &Path, hooks: &[TapProgram]) -> Result<Self, RulesError> {
        let refused = |reason| RulesError::Program {
            path: path.to_owned(),
            reason,
        };
        let identity = Identity::of(path);
        if let Err(error) = fs::File::open(path) {
            return Err(refused(format!("cannot be read: {error}")));
        }
        let chosen = |xdp: bool| hooks.iter().any(|hook| hook.is_xdp() == xdp);
        let (loaded, log) = object::logged(|| {
            let mut open = ObjectBuilder::default()
                .open_file(path)
                .map_err(|error| format!("is no eBPF object: {error}"))?;
            let xdp = chosen(true).then(|| choose(&open, true)).transpose()?;
            let tc = chosen(false).then(|| choose(&open, false)).transpose()?;
            for mut program in open.progs_mut() {
                let name = Some(program.name().to_string_lossy().into_owned());
                program.set_autoload(name == xdp || name == tc);
            }
            let object = open
                .load()
                .map_err(|error| format!("the kernel does not load it: {error}"))?;
            Ok((object, xdp, tc))
        });
        let (object, xdp, tc) = loaded
            .map_err(|reason: String| refused(format!("{reason}\n{log}").trim_end().to_owned()))?;
        let code = |name: Option<String>| {
            name.map(|name| code(&object, &name).map_err(refused))
                .transpose()
        };
        Ok(UserProgram {
            path: path.to_owned(),
            identity,
            xdp: code(xdp)?,
            tc: code(tc)?,
            _object: object,
        })
    }

    /// Whether the file is unchanged since it was loaded; a deleted file counts as unchanged.
    pub(super) fn is_current(&self) -> bool {
        let now = Identity::of(&self.path);
        now.is_none() || now == self.identity
    }

    /// The instructions to splice into `program`.
    pub(super) fn code(&self, program: TapProgram) -> Option<&Code> {
        if program.is_xdp() {
            self.xdp.as_ref()
        } else {
            self.tc.as_ref()
        }
    }
}

/// Name of the only program in the file for this kind of hook.
fn choose(open: &OpenObject, xdp: bool) -> Result<String, String> {
    let (kind, wanted) = if xdp {
        ("SEC(\"xdp\")", &["xdp"][..])
    } else {
        ("SEC(\"tc\")", &["tc", "tcx", "classifier"][..])
    };
    let fits = |section: &str| {
        let first = section.split(['/', '.']).next();
        first.is_some_and(|first| wanted.contains(&first))
    };
    let programs = open.progs();
    let mut names = programs
        .filter(|program| fits(&program.section().to_string_lossy()))
        .map(|program| program.name().to_string_lossy().into_owned());
    match (names.next(), names.next()) {
        (Some(name), None) => Ok(name),
        (None, _) => Err(format!(
            "has no program for the hook of this tap: add one with {kind}"
        )),
        (Some(one), Some(other)) => Err(format!(
            "has several programs with {kind} ({one}, {other}): remove all but one"
        )),
    }
}

fn code(object: &Object, name: &str) -> Result<Code, String> {
    let insns = object::insns(object, name).map_err(|error| error.to_string())?;
    let code = Code::parse(&insns).map_err(|error| format!("{name}: {error}"))?;
    let used: Vec<_> = code.helpers().collect();
    match FORBIDDEN.iter().find(|(helper, _)| used.contains(helper)) {
        Some((_, helper)) => Err(format!(
            "{name} calls {helper}: a program that balances may read packets, and neither \
             change nor send packets"
        )),
        None => Ok(code),
    }
}
