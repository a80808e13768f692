// SPDX-License-Identifier: MIT OR Apache-2.0
//! Folders of other users, links, and sockets in them.

use std::fs::{self, Permissions};
use std::os::unix::fs::{
    FileTypeExt as _, MetadataExt as _, PermissionsExt as _, chown, lchown, symlink,
};
use std::os::unix::net::UnixStream;

use rustix::net::{AddressFamily, SocketType, listen, socket};
use tempfile::TempDir;

use super::*;

const OTHER: u32 = 65_534;

/// A folder, and whether this process may give files away.
fn place() -> (TempDir, bool) {
    (TempDir::new().unwrap(), geteuid().is_root())
}

fn is_link(opened: Result<Folder, FolderError>) -> bool {
    matches!(opened, Err(FolderError::Link { uid: OTHER, .. }))
}

#[test]
fn links_of_other_users_are_not_followed_at_any_step() {
    let (place, is_root) = place();
    let inner = place.path().join("one/two");
    fs::create_dir_all(&inner).unwrap();
    for (link, target) in [("own", "one"), ("own-absolute", inner.to_str().unwrap())] {
        symlink(target, place.path().join(link)).unwrap();
    }
    assert!(Folder::open(&place.path().join("own/two")).is_ok());
    assert!(Folder::open(&place.path().join("own-absolute/../two")).is_ok());
    if !is_root {
        return;
    }
    let link = place.path().join("other");
    symlink("one", &link).unwrap();
    lchown(&link, Some(OTHER), None).unwrap();
    assert!(is_link(Folder::open(&link)));
    assert!(is_link(Folder::open(&link.join("two"))));
    // Also where a link of this user leads through it.
    symlink("other/two", place.path().join("through")).unwrap();
    assert!(is_link(Folder::open(&place.path().join("through"))));
    assert!(is_link(Folder::open_or_create(&link.join("three"), 0o755)));
    assert!(!inner.with_file_name("three").exists());
}

#[test]
fn links_that_lead_to_each_other_end() {
    let (place, _) = place();
    symlink("two", place.path().join("one")).unwrap();
    symlink("one", place.path().join("two")).unwrap();
    let opened = Folder::open(&place.path().join("one"));
    assert!(
        matches!(opened, Err(FolderError::System { .. })),
        "{opened:?}"
    );
}

#[test]
fn only_plain_files_of_this_user_or_root_are_believed() {
    let (place, is_root) = place();
    let path = |name: &str| place.path().join(name);
    let folder = Folder::open(place.path()).unwrap();
    fs::write(path("plain"), "text").unwrap();
    fs::set_permissions(path("plain"), Permissions::from_mode(0o600)).unwrap();
    assert!(folder.open_own("plain").is_ok());
    symlink("plain", path("link")).unwrap();
    assert!(matches!(
        folder.open_own("link"),
        Err(FolderError::System { .. })
    ));
    assert!(matches!(
        folder.append("link"),
        Err(FolderError::System { .. })
    ));
    fs::hard_link(path("plain"), path("second")).unwrap();
    assert!(matches!(
        folder.open_own("plain"),
        Err(FolderError::NotAFile { .. })
    ));
    fs::remove_file(path("second")).unwrap();
    rustix::fs::mkfifoat(CWD, path("fifo"), Mode::RUSR | Mode::WUSR).unwrap();
    assert!(
        matches!(folder.open_own("fifo"), Err(FolderError::NotAFile { .. })),
        "at once"
    );
    fs::set_permissions(path("plain"), Permissions::from_mode(0o620)).unwrap();
    assert!(matches!(
        folder.open_own("plain"),
        Err(FolderError::Writable { .. })
    ));
    if is_root {
        fs::set_permissions(path("plain"), Permissions::from_mode(0o600)).unwrap();
        chown(path("plain"), Some(OTHER), None).unwrap();
        assert!(matches!(
            folder.open_own("plain"),
            Err(FolderError::Foreign { uid: OTHER, .. })
        ));
    }
}

#[test]
fn a_folder_is_given_to_a_user_only_where_nobody_else_can_write() {
    let (place, is_root) = place();
    if !is_root {
        return;
    }
    let folder = Folder::open(place.path()).unwrap();
    for _again in 0..2 {
        let given = folder.folder_for("given", OTHER).unwrap();
        assert_eq!(fs::metadata(given.path()).unwrap().uid(), OTHER);
    }
    let victim = place.path().join("victim");
    fs::create_dir(&victim).unwrap();
    symlink("victim", place.path().join("link")).unwrap();
    assert!(folder.folder_for("link", OTHER).is_err());
    assert_eq!(fs::metadata(&victim).unwrap().uid(), 0);
    let third = folder.folder_for("given", OTHER - 1);
    assert!(matches!(
        third,
        Err(FolderError::Foreign { uid: OTHER, .. })
    ));
    fs::set_permissions(place.path(), Permissions::from_mode(0o777)).unwrap();
    assert!(matches!(
        folder.folder_for("new", OTHER),
        Err(FolderError::Writable { .. })
    ));
    fs::set_permissions(place.path(), Permissions::from_mode(0o755)).unwrap();
    chown(place.path(), Some(OTHER), None).unwrap();
    assert!(matches!(
        folder.folder_for("new", OTHER),
        Err(FolderError::Foreign { .. })
    ));
    assert!(!place.path().join("new").exists());
}

#[test]
fn a_socket_has_its_mode_and_owner_when_it_appears_and_leaves_nothing() {
    let (place, is_root) = place();
    let stream = || socket(AddressFamily::UNIX, SocketType::STREAM, None).unwrap();
    let folder = || Folder::open(place.path()).unwrap();
    let owner = is_root.then_some(OTHER);
    let name = OsStr::new("a.sock");
    let path = place.path().join(name);
    let first = stream();
    let file = SocketFile::bind(folder(), name, &first, 0o640, owner).unwrap();
    let found = fs::symlink_metadata(&path).unwrap();
    assert!(found.file_type().is_socket());
    assert_eq!(found.mode() & 0o777, 0o640);
    assert_eq!(found.uid(), owner.unwrap_or(found.uid()));
    listen(&first, 1).unwrap();
    assert!(UnixStream::connect(&path).is_ok());
    let second = SocketFile::bind(folder(), name, stream(), 0o640, None);
    assert_eq!(second.unwrap_err().kind(), io::ErrorKind::AlreadyExists);
    assert_eq!(folder().names().unwrap(), ["a.sock"]);
    drop(file);
    assert!(folder().names().unwrap().is_empty());
}

#[test]
fn a_folder_that_another_user_put_in_the_place_of_the_private_one_is_refused() {
    let (place, is_root) = place();
    let folder = Folder::open(place.path()).unwrap();
    let (private, name) = folder.private().unwrap();
    assert_eq!(
        fs::metadata(place.path().join(&name)).unwrap().mode() & 0o777,
        0o700
    );
    drop(private);
    for (mode, owner) in [
        (0o777, None),
        (0o711, None),
        (0o700, is_root.then_some(OTHER)),
    ] {
        let path = place.path().join(&name);
        fs::set_permissions(&path, Permissions::from_mode(mode)).unwrap();
        chown(&path, owner, None).unwrap();
        let believed = folder.open_private(&name);
        assert_eq!(
            believed.is_err(),
            mode != 0o700 || is_root,
            "{mode:o} {owner:?}"
        );
    }
    fs::remove_dir(place.path().join(&name)).unwrap();
    symlink("/", place.path().join(&name)).unwrap();
    assert!(folder.open_private(&name).is_err());
}

#[test]
fn a_file_is_replaced_without_following_a_link() {
    let (place, _) = place();
    let path = |name: &str| place.path().join(name);
    fs::write(path("victim"), "kept").unwrap();
    symlink("victim", path("status")).unwrap();
    let folder = Folder::open(place.path()).unwrap();
    folder.replace("status", b"new").unwrap();
    assert_eq!(fs::read_to_string(path("victim")).unwrap(), "kept");
    assert_eq!(fs::read_to_string(path("status")).unwrap(), "new");
    assert_eq!(folder.names().unwrap().len(), 2);
}
