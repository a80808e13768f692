// SPDX-License-Identifier: MIT OR Apache-2.0
//! Unplugs, beside a QEMU that is a thread of the test.
#![allow(clippy::unwrap_used, reason = "in a test a panic is the report")]

use std::io::{BufRead as _, BufReader, Write as _};
use std::os::unix::net::{UnixListener, UnixStream};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::Duration;

use ringtap_vnplug::device::DeviceKind;
use ringtap_vnplug::host::{GuestLimits, GuestVm, Monitor, VmError};
use serde_json::{Value, json};

const PORTS: [&str; 4] = ["p1", "p2", "p3", "p4"];
/// A test that waits longer has failed.
const LIMIT: Duration = Duration::from_secs(300);

/// When QEMU reports that a device is unplugged, after the request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Reports {
    /// Together with the next answer, before it or after it.
    BeforeAnswer,
    AfterAnswer,
    /// This much later.
    Later(Duration),
    /// Without a request: once a control device is plugged.
    Unasked,
}

/// What is plugged.
#[derive(Default)]
struct Plugged {
    /// Names, and the ports of those that have one.
    devices: Vec<(String, Option<String>)>,
    /// Devices whose unplug QEMU was asked for and has not reported.
    pending: Vec<String>,
    /// Devices whose unplug QEMU was asked for.
    asked: Vec<String>,
}

impl Plugged {
    fn list(&self, path: &str) -> Value {
        let one = |name: &str, kind: &str| json!({ "name": name, "type": kind });
        let last = path.rsplit('/').next().unwrap();
        let devices = || self.devices.iter();
        let found: Vec<_> = match path {
            "/machine/peripheral" => {
                let ports = PORTS.iter().map(|name| one(name, "child<pcie-root-port>"));
                ports
                    .chain(devices().map(|(name, _)| one(name, "child<x>")))
                    .collect()
            }
            "/objects" => Vec::new(),
            _ if devices().any(|(_, port)| port.as_deref() == Some(last)) => {
                vec![one("child[0]", "link<x>")]
            }
            _ => Vec::new(),
        };
        json!(found)
    }
}

/// Serves one connection; returns the devices whose unplug was asked for, in order.
fn serve(socket: UnixStream, leftovers: &[&str], reports: Reports) -> Vec<String> {
    let plugged = Arc::new(Mutex::new(Plugged::default()));
    let left = leftovers.iter().map(|name| ((*name).to_owned(), None));
    plugged.lock().unwrap().devices.extend(left);
    let writer = Arc::new(Mutex::new(socket.try_clone().unwrap()));
    // The other end may leave at any time.
    let send = |text: String| drop(writer.lock().unwrap().write_all(text.as_bytes()));
    send("{\"QMP\": {\"version\": {\"qemu\": {\"major\": 7, \"minor\": 2}}}}\n".to_owned());
    let mut reader = BufReader::new(socket);
    let mut text = Vec::new();
    while reader.read_until(b'}', &mut text).unwrap_or(0) > 0 {
        // Commands follow each other without a mark.
        let Ok(command) = serde_json::from_slice::<Value>(&text) else {
            continue;
        };
        text.clear();
        let word = |name: &str| {
            let word = command["arguments"][name].as_str();
            word.unwrap_or_default().to_owned()
        };
        let mut event = None;
        let result = match command["execute"].as_str().unwrap() {
            "query-status" => json!({ "status": "running" }),
            "qom-list" => plugged.lock().unwrap().list(&word("path")),
            "qom-get" if word("property") == "hotplug" => json!(true),
            "qom-get" => json!(1 << 30),
            "query-chardev" => json!([]),
            "add-fd" => json!({ "fdset-id": 1, "fd": 2 }),
            "device_add" => {
                let port = PORTS.contains(&&*word("bus")).then(|| word("bus"));
                let mut now = plugged.lock().unwrap();
                if reports == Reports::Unasked && word("driver") == "ivshmem-doorbell" {
                    let (id, _) = now.devices.pop().unwrap();
                    event = Some(id);
                }
                now.devices.push((word("id"), port));
                json!({})
            }
            "device_del" => {
                let id = word("id");
                let mut now = plugged.lock().unwrap();
                assert!(now.pending.is_empty(), "{id} while {:?}", now.pending);
                now.asked.push(id.clone());
                now.pending.push(id.clone());
                event = Some(id);
                json!({})
            }
            _ => json!({}),
        };
        let answer = format!("{}\n", json!({ "return": result }));
        let done = |id: &str, plugged: &Mutex<Plugged>| {
            let mut now = plugged.lock().unwrap();
            now.devices.retain(|(name, _)| name != id);
            now.pending.retain(|name| name != id);
        };
        let Some(id) = event else {
            send(answer);
            continue;
        };
        let deleted = json!({ "event": "DEVICE_DELETED", "data": { "device": id } });
        let deleted = format!("{deleted}\n");
        match reports {
            Reports::Later(later) => {
                send(answer);
                let (plugged, writer) = (Arc::clone(&plugged), Arc::clone(&writer));
                thread::spawn(move || {
                    thread::sleep(later);
                    done(&id, &plugged);
                    let _ = writer.lock().unwrap().write_all(deleted.as_bytes());
                });
            }
            Reports::BeforeAnswer => {
                done(&id, &plugged);
                send(deleted + &answer);
            }
            _ => {
                done(&id, &plugged);
                send(answer + &deleted);
            }
        }
    }
    let now = plugged.lock().unwrap();
    now.asked.clone()
}

/// Attaches, plugs two devices and does something; returns the devices whose unplug was asked for.
fn round(
    leftovers: &'static [&'static str],
    reports: Reports,
    then: impl FnOnce(GuestVm),
) -> Vec<String> {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("qmp");
    let listener = UnixListener::bind(&path).unwrap();
    let server = thread::spawn(move || serve(listener.accept().unwrap().0, leftovers, reports));
    let limits = GuestLimits {
        answer_ms: LIMIT.as_millis().try_into().unwrap(),
        ..GuestLimits::default()
    };
    let mut vm = GuestVm::attach(&Monitor::Qmp(path), limits).unwrap();
    vm.plug(1, DeviceKind::Bulk, 4096).unwrap();
    vm.plug(1, DeviceKind::Control { vectors: 1 }, 4096)
        .unwrap();
    then(vm);
    server.join().unwrap()
}

fn detach(vm: GuestVm) {
    vm.detach(LIMIT).unwrap();
}

#[test]
fn an_unplug_that_qemu_reports_together_with_an_answer_is_noticed() {
    for reports in [Reports::BeforeAnswer, Reports::AfterAnswer] {
        let asked = round(&[], reports, detach);
        assert_eq!(asked.len(), 4, "{asked:?}");
    }
}

#[test]
fn devices_are_unplugged_one_after_the_other_and_asked_for_once() {
    // The unplug of a device takes longer than several looks for it.
    let reports = Reports::Later(Duration::from_millis(400));
    let leftovers = &["vnplug-1", "vnplug-1-port", "vnplug-1-serial"];
    let asked = round(leftovers, reports, detach);
    assert_eq!(asked.len(), 7, "{asked:?}");
    assert_eq!(asked[..3], *leftovers);
}

#[test]
fn an_unplug_that_nobody_asked_for_is_an_error() {
    let asked = round(&[], Reports::Unasked, |mut vm| {
        let told = vm.next(Some(LIMIT));
        assert!(matches!(told, Err(VmError::Unplugged(_))), "{told:?}");
        vm.detach(LIMIT).unwrap();
    });
    assert_eq!(asked.len(), 3, "{asked:?}");
}
