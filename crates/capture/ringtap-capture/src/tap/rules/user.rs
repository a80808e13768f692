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
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::SystemTime;

use libbpf_rs::{Object, ObjectBuilder, OpenObject};
use ringtap_filter::ebpf::FilterHook;
use ringtap_filter::{Balance, Rule};
use ringtap_ipc::trusted::open_trusted;
use ringtap_pool::source::SourceError;

use ringtap_bpf::object;
use ringtap_bpf::splice::{Code, SpliceError};

/// Maximum number of different programs that one tap calls.
const MAX_PROGRAMS: usize = 4;

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
    fn from_path(path: &Path) -> Option<Self> {
        let found = fs::metadata(path).ok()?;
        Some(Identity {
            device: found.dev(),
            inode: found.ino(),
            bytes: found.len(),
            changed: found.modified().ok()?,
        })
    }
}

/// Reason why a user's program cannot balance. A message follows the name of the file.
#[derive(Debug, thiserror::Error)]
enum UserProgramError {
    #[error("is no eBPF object: {0}")]
    NoObject(libbpf_rs::Error),
    #[error("has no program for the hook of this tap: add one with {section}")]
    NoProgram { section: &'static str },
    #[error("has several programs with {section} ({one}, {other}): remove all but one")]
    Several {
        section: &'static str,
        one: String,
        other: String,
    },
    #[error("the kernel does not load it: {0}")]
    Load(libbpf_rs::Error),
    #[error(transparent)]
    Instructions(#[from] io::Error),
    #[error("{name}: {error}")]
    Splice { name: String, error: SpliceError },
    #[error(
        "{name} calls {helper}: a program that balances may read packets, and neither change nor send packets"
    )]
    Forbidden { name: String, helper: &'static str },
}

/// A loaded user's program.
pub(in crate::tap) struct UserProgram {
    pub(in crate::tap) path: PathBuf,
    identity: Option<Identity>,
    /// The functions to splice, one for each context.
    codes: Vec<(FilterHook, Code)>,
    /// Keeps the program's maps open.
    _object: Object,
}

/// The users' programs that the rules call, each once, in the order of their numbers: those in force,
/// and new ones for new or changed files.
pub(super) fn users_of(
    rules: &[Rule],
    in_force: &[Arc<UserProgram>],
    contexts: &[FilterHook],
) -> Result<Vec<Arc<UserProgram>>, SourceError> {
    let mut users: Vec<Arc<UserProgram>> = Vec::new();
    for rule in rules {
        let Balance::Program(path) = &rule.balance else {
            continue;
        };
        if users.iter().any(|user| user.path == *path) {
            continue;
        }
        if users.len() == MAX_PROGRAMS {
            let advice = "balance by fewer different programs";
            let path = path.display();
            return Err(
                format!("{path}: a tap calls at most {MAX_PROGRAMS} programs: {advice}").into(),
            );
        }
        let mut known = in_force.iter();
        users.push(
            match known.find(|user| user.path == *path && user.is_current()) {
                Some(user) => Arc::clone(user),
                None => Arc::new(UserProgram::load(path, contexts)?),
            },
        );
    }
    Ok(users)
}

impl UserProgram {
    /// Loads the programs of the file for these contexts.
    fn load(path: &Path, contexts: &[FilterHook]) -> Result<Self, SourceError> {
        let identity = Identity::from_path(path);
        // It runs in the kernel. In trusted folders, the name leads to the same file once more.
        if let Err(error) = open_trusted(path) {
            return Err(SourceError::from(error.to_string()));
        }
        let (loaded, log) = object::logged(|| {
            let open = ObjectBuilder::default().open_file(path);
            let mut open = open.map_err(UserProgramError::NoObject)?;
            let names = contexts.iter().map(|context| choose(&open, *context));
            let names = names.collect::<Result<Vec<_>, _>>()?;
            for mut program in open.progs_mut() {
                let name = program.name().to_string_lossy().into_owned();
                program.set_autoload(names.contains(&name));
            }
            let object = open.load().map_err(UserProgramError::Load)?;
            Ok::<_, UserProgramError>((object, names))
        });
        let (object, names) = loaded.map_err(|error| {
            let text = format!("{}: {error}\n{log}", path.display());
            text.trim_end().to_owned()
        })?;
        let codes = contexts.iter().zip(&names);
        let codes = codes.map(|(context, name)| Ok((*context, code(&object, name)?)));
        let codes: Result<_, UserProgramError> = codes.collect();
        Ok(UserProgram {
            path: path.to_owned(),
            identity,
            codes: codes.map_err(|error| format!("{}: {error}", path.display()))?,
            _object: object,
        })
    }

    /// Whether the file is unchanged since it was loaded; a deleted file counts as unchanged.
    pub(super) fn is_current(&self) -> bool {
        let now = Identity::from_path(&self.path);
        now.is_none() || now == self.identity
    }

    /// The function to splice into programs of this context.
    pub(super) fn code(&self, context: FilterHook) -> Option<&Code> {
        let mut codes = self.codes.iter();
        codes.find_map(|(of, code)| (*of == context).then_some(code))
    }
}

/// Name of the only program in the file for this context.
fn choose(open: &OpenObject, context: FilterHook) -> Result<String, UserProgramError> {
    let (section, wanted) = match context {
        FilterHook::Xdp => ("SEC(\"xdp\")", &["xdp"][..]),
        FilterHook::Tc => ("SEC(\"tc\")", &["tc", "tcx", "classifier"][..]),
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
        (None, _) => Err(UserProgramError::NoProgram { section }),
        (Some(one), Some(other)) => Err(UserProgramError::Several {
            section,
            one,
            other,
        }),
    }
}

fn code(object: &Object, name: &str) -> Result<Code, UserProgramError> {
    let owned = || name.to_owned();
    let code = Code::parse(&object::insns(object, name)?);
    let code = code.map_err(|error| UserProgramError::Splice {
        name: owned(),
        error,
    })?;
    let used: Vec<_> = code.helpers().collect();
    match FORBIDDEN.iter().find(|(helper, _)| used.contains(helper)) {
        Some((_, helper)) => Err(UserProgramError::Forbidden {
            name: owned(),
            helper,
        }),
        None => Ok(code),
    }
}
