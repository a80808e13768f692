// SPDX-License-Identifier: MIT OR Apache-2.0
//! Finds programs that ignore a library in `LD_PRELOAD`: the loader leaves it out, or there is no loader.

mod drop_in;

use std::fs::File;
use std::io::{self, Read as _};
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};

use ringtap_ipc::environment;
use rustix::process::{getgid, getuid};

pub use drop_in::{DropIn, DropInError};

/// Bytes of a program that are looked at; the program headers of an ELF file are in front.
const MAX_BYTES: u64 = 64 << 10;
/// Scripts whose interpreters are scripts, one after another, as the kernel allows.
const MAX_SCRIPTS: u32 = 5;
const SET_USER_ID: u32 = 0o4000;
const SET_GROUP_ID: u32 = 0o2000;
/// Program header that names the loader, in an ELF file.
const INTERPRETER: u32 = 3;

/// Why a program ignores a library in `LD_PRELOAD`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Unfit {
    /// It has no loader.
    #[error(
        "is statically linked, so its libpcap is inside it: build it with a shared libpcap, or record with \
         `ringtap record` and give it the file"
    )]
    Static,
    /// The loader ignores the variable: the program runs as another user.
    #[error(
        "has a set-user-id or set-group-id bit, so the loader ignores Ringtap's library: run `ringtap exec` \
         as the user that it becomes (sudo ringtap exec -- …), or install the library in place of libpcap"
    )]
    SetId,
    /// The loader ignores the variable: the program gets rights that its user lacks.
    #[error(
        "has file capabilities, so the loader ignores Ringtap's library: run `ringtap exec` as root, use a \
         copy without them (cp drops them) with a group of a hub, or install the library in place of libpcap"
    )]
    Capabilities,
}

/// The path of the program of this name, as a shell finds it; `None` if there is none.
#[must_use]
pub fn find(name: &Path) -> Option<PathBuf> {
    if name.as_os_str().as_encoded_bytes().contains(&b'/') {
        return Some(name.to_owned());
    }
    let folders = environment::variable("PATH")?;
    let mut places = std::env::split_paths(&folders).map(|folder| folder.join(name));
    places.find(|place| {
        let metadata = std::fs::metadata(place);
        metadata.is_ok_and(|found| found.is_file() && found.permissions().mode() & 0o111 != 0)
    })
}

/// Why the program in this file ignores a library in `LD_PRELOAD`, if it does. A script is its interpreter.
///
/// # Errors
///
/// The file cannot be read.
///
/// # Examples
///
/// ```
/// use std::path::Path;
///
/// use ringtap_net::preload::{find, unfit};
///
/// let shell = find(Path::new("sh")).ok_or("there is no shell")?;
/// assert_eq!(unfit(&shell)?, None);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub fn unfit(program: &Path) -> io::Result<Option<Unfit>> {
    let mut program = program.to_owned();
    for _ in 0..MAX_SCRIPTS {
        let bytes = head(&program)?;
        match interpreter(&bytes) {
            // The kernel ignores rights on scripts.
            Some(next) => program = next,
            None => return Ok(rights(&program)?.or_else(|| linked(&bytes))),
        }
    }
    Ok(None)
}

fn head(program: &Path) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    File::open(program)?
        .take(MAX_BYTES)
        .read_to_end(&mut bytes)?;
    Ok(bytes)
}

/// The program that runs a script.
fn interpreter(script: &[u8]) -> Option<PathBuf> {
    let line = script
        .strip_prefix(b"#!")?
        .split(|byte| *byte == b'\n')
        .next()?;
    let line = String::from_utf8_lossy(line);
    let mut words = line.split_whitespace();
    let first = words.next()?;
    // `#!/usr/bin/env python3`
    match Path::new(first).file_name() {
        Some(name) if name == "env" => find(Path::new(words.find(|word| !word.starts_with('-'))?)),
        _ => Some(first.into()),
    }
}

/// Rights for which the loader leaves out the library, for this user.
fn rights(program: &Path) -> io::Result<Option<Unfit>> {
    let found = std::fs::metadata(program)?;
    let has = |bit: u32| found.mode() & bit != 0;
    if has(SET_USER_ID) && found.uid() != getuid().as_raw()
        || has(SET_GROUP_ID) && found.gid() != getgid().as_raw()
    {
        return Ok(Some(Unfit::SetId));
    }
    // For root they change nothing.
    let mut capabilities = [0_u8; 64];
    let has_some = rustix::fs::getxattr(program, "security.capability", &mut capabilities);
    Ok((has_some.is_ok() && !getuid().is_root()).then_some(Unfit::Capabilities))
}

/// Whether an ELF file of this machine's word length has no loader.
fn linked(elf: &[u8]) -> Option<Unfit> {
    let number = |at: usize, bytes: usize| -> Option<usize> {
        let part = elf.get(at..at.checked_add(bytes)?)?;
        let value = part
            .iter()
            .rev()
            .fold(0_u64, |value, byte| value << 8 | u64::from(*byte));
        usize::try_from(value).ok()
    };
    // 64 bits, least byte first.
    elf.strip_prefix(b"\x7fELF\x02\x01")?;
    let (from, size, count) = (number(32, 8)?, number(54, 2)?, number(56, 2)?);
    for header in 0..count {
        let at = from.checked_add(header.checked_mul(size)?)?;
        if number(at, 4)? == usize::try_from(INTERPRETER).ok()? {
            return None;
        }
    }
    Some(Unfit::Static)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_shared_program_is_fit_and_a_script_is_its_interpreter() {
        let sh = find(Path::new("sh")).unwrap();
        assert_eq!(unfit(&sh).unwrap(), None);
        assert_eq!(find(Path::new("no-such-program")), None);
        assert_eq!(interpreter(b"#!/bin/sh -e\necho"), Some("/bin/sh".into()));
        assert_eq!(interpreter(b"#! /usr/bin/env -S sh -e\n"), Some(sh));
        assert_eq!(interpreter(b"\x7fELF"), None);
    }

    #[test]
    fn an_elf_file_without_a_loader_is_static() {
        let mut elf = b"\x7fELF\x02\x01".to_vec();
        elf.resize(64 + 2 * 56, 0);
        (elf[32], elf[54], elf[56]) = (64, 56, 2);
        assert_eq!(linked(&elf), Some(Unfit::Static));
        elf[64 + 56] = 3;
        assert_eq!(linked(&elf), None);
        assert_eq!(linked(b"\x7fELF\x02\x01"), None);
        assert_eq!(linked(&[]), None);
    }
}
