// SPDX-License-Identifier: MIT OR Apache-2.0
//! Files, folders and links that others could change are refused, and none is waited for.

use std::fs::Permissions;
use std::os::unix::fs::{PermissionsExt as _, chown, symlink};

use rustix::fs::{CWD, FileType, mknodat};
use tempfile::TempDir;

use super::*;

const MAIN: &str = "main.toml";

fn folder_with_a_file() -> (TempDir, PathBuf) {
    let folder = TempDir::new().unwrap();
    let file = folder.path().join(MAIN);
    fs::write(&file, "text").unwrap();
    set_mode(&file, 0o644);
    (folder, file)
}

fn set_mode(path: &Path, mode: u32) {
    fs::set_permissions(path, Permissions::from_mode(mode)).unwrap();
}

fn refusal(path: &Path) -> String {
    read_trusted(path).unwrap_err().to_string()
}

#[test]
fn a_file_that_only_its_owner_can_change_is_read_also_by_links() {
    let (folder, file) = folder_with_a_file();
    assert_eq!(read_trusted(&file).unwrap(), "text");
    let link = folder.path().join("link");
    symlink(MAIN, &link).unwrap();
    assert_eq!(read_trusted(&link).unwrap(), "text");
    let around = folder
        .path()
        .join("../")
        .join(folder.path().file_name().unwrap());
    assert_eq!(read_trusted(&around.join("link")).unwrap(), "text");
}

#[test]
fn what_others_can_write_is_refused_and_the_remedy_named() {
    let (folder, file) = folder_with_a_file();
    set_mode(&file, 0o646);
    let text = refusal(&file);
    assert!(text.contains("chmod go-w") && text.contains(MAIN), "{text}");
    set_mode(&file, 0o644);
    set_mode(folder.path(), 0o777);
    let text = refusal(&file);
    assert!(
        text.contains("chmod go-w") && !text.contains(MAIN),
        "{text}"
    );
    // As /tmp.
    set_mode(folder.path(), 0o1777);
    assert_eq!(read_trusted(&file).unwrap(), "text");
}

#[test]
fn a_link_in_a_folder_of_others_is_refused_although_its_target_is_trusted() {
    let (folder, file) = folder_with_a_file();
    let open = folder.path().join("open");
    fs::create_dir(&open).unwrap();
    set_mode(&open, 0o777);
    symlink(&file, open.join("link")).unwrap();
    assert!(refusal(&open.join("link")).contains("chmod go-w"));
    // Also on the way of another link.
    let second = folder.path().join("second");
    symlink("open/link", &second).unwrap();
    assert!(refusal(&second).contains("chmod go-w"));
}

#[test]
fn files_of_other_users_and_groups_are_refused() {
    let (folder, file) = folder_with_a_file();
    if !geteuid().is_root() {
        return;
    }
    set_mode(&file, 0o664);
    assert_eq!(read_trusted(&file).unwrap(), "text", "root's own group");
    chown(&file, None, Some(4321)).unwrap();
    assert!(refusal(&file).contains("chmod go-w"));
    chown(&file, Some(1234), Some(0)).unwrap();
    set_mode(&file, 0o600);
    assert!(refusal(&file).contains("belongs to user 1234"));
    chown(&file, Some(0), None).unwrap();
    chown(folder.path(), Some(1234), None).unwrap();
    assert!(refusal(&file).contains("belongs to user 1234"));
}

#[test]
fn a_fifo_a_device_and_a_folder_are_refused_without_a_wait() {
    let (folder, _) = folder_with_a_file();
    let fifo = folder.path().join("fifo");
    mknodat(CWD, &fifo, FileType::Fifo, Mode::from_raw_mode(0o600), 0).unwrap();
    for path in [&fifo, Path::new("/dev/zero"), folder.path()] {
        let text = refusal(path);
        let is_refused = text.contains("is no regular file") || text.contains("chmod go-w");
        assert!(is_refused, "{text}");
    }
    let ring = folder.path().join("ring");
    symlink("ring", &ring).unwrap();
    assert!(refusal(&ring).contains("ring"), "{}", refusal(&ring));
}
