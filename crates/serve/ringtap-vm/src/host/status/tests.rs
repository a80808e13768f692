// SPDX-License-Identifier: MIT OR Apache-2.0
//! Lists and ends processes of virtual machines by their sockets.

use std::sync::mpsc::channel;

use ringtap_testkit::LIMIT;

use super::*;

fn report(name: &str) -> VmReport {
    let options = GroupOptions {
        vm: name.to_owned(),
        monitor: Monitor::Qmp("/run/vm.qmp".into()),
        socket: "/run/ringtap/hub.sock".into(),
        groups: vec!["ids".to_owned()],
        memory_bytes: 1 << 20,
    };
    VmState::new(&options, &[]).full_report()
}

#[test]
fn attached_machines_are_listed_by_name_and_a_name_is_used_once() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path().join("vms");
    let vms = AttachedVms::in_folder(&folder);
    assert_eq!(vms.reports(), []);
    let [one, two] = ["vm1", "vm2"].map(|name| {
        let server = StatusServer::bind(&folder, name).unwrap();
        server.start(move || report(name), || ()).unwrap();
        server
    });
    assert_eq!(vms.reports(), ["vm1", "vm2"].map(report));
    assert_eq!(vms.report("vm2").unwrap(), report("vm2"));
    let used = StatusServer::bind(&folder, "vm1").err().unwrap();
    assert_eq!(used.kind(), io::ErrorKind::AddrInUse);
    // A process that was killed leaves its socket.
    drop(UnixListener::bind(folder.join("vm3.sock")).unwrap());
    assert_eq!(vms.reports().len(), 2);
    assert_eq!(
        vms.detach("vm3", LIMIT).unwrap_err().kind(),
        io::ErrorKind::NotFound
    );
    assert_eq!(
        vms.report("vm3").unwrap_err().kind(),
        io::ErrorKind::NotFound
    );
    let again = StatusServer::bind(&folder, "vm3").unwrap();
    drop((one, two, again));
    assert_eq!(fs::read_dir(&folder).unwrap().count(), 0);
    let gone = vms.detach("vm1", LIMIT).unwrap_err();
    assert_eq!(gone.kind(), io::ErrorKind::NotFound);
}

#[test]
fn a_process_that_does_not_end_is_waited_for_no_longer_than_the_limit() {
    let folder = tempfile::tempdir().unwrap();
    let server = StatusServer::bind(folder.path(), "vm1").unwrap();
    let (asked, is_asked) = channel();
    let detach = move || asked.send(()).unwrap();
    server.start(|| report("vm1"), detach).unwrap();
    let vms = AttachedVms::in_folder(folder.path());
    let late = vms.detach("vm1", Duration::from_millis(1)).unwrap_err();
    assert_eq!(late.kind(), io::ErrorKind::TimedOut);
    is_asked.recv_timeout(LIMIT).unwrap();
}

#[test]
fn a_socket_is_made_in_no_folder_that_another_user_can_write() {
    let folder = tempfile::tempdir().unwrap();
    let mode = |mode| std::os::unix::fs::PermissionsExt::from_mode(mode);
    fs::set_permissions(folder.path(), mode(0o777)).unwrap();
    let refused = StatusServer::bind(folder.path(), "vm1").err().unwrap();
    assert_eq!(refused.kind(), io::ErrorKind::PermissionDenied);
    fs::set_permissions(folder.path(), mode(0o700)).unwrap();
    assert!(StatusServer::bind(folder.path(), "vm1").is_ok());
}
