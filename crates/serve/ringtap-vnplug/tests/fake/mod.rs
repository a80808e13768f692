// SPDX-License-Identifier: MIT OR Apache-2.0
//! A QEMU that threads of the test play: several QMP sockets, hot-plug ports, devices, and sockets that it was given.

use std::collections::BTreeMap;
use std::io::{IoSliceMut, Write as _};
use std::mem::MaybeUninit;
use std::net::Shutdown;
use std::os::fd::OwnedFd;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard};
use std::thread;
use std::time::Duration;

use ringtap_vnplug::host::{GuestLimits, GuestVm, Monitor, VmError};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::net::{RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, recvmsg};
use serde_json::{Value, json};
use tempfile::TempDir;

/// Hot-plug ports.
const PORTS: usize = 12;
const GREETING: &str = r#"{"QMP": {"version": {"qemu": {"major": 7, "minor": 2}}}}"#;

/// When QEMU reports that a device is unplugged, after the request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Reports {
    /// Together with the next answer, before it or after it.
    BeforeAnswer,
    AfterAnswer,
    /// This much later.
    Later(Duration),
    /// Without a request: once a control device is plugged.
    Unasked,
}

/// What QEMU has.
#[derive(Default)]
struct Machine {
    /// Names, and the ports of those that have one.
    devices: Vec<(String, Option<String>)>,
    /// Devices whose unplug QEMU was asked for and has not reported.
    pending: Vec<String>,
    /// Devices whose unplug QEMU was asked for, in order.
    asked: Vec<String>,
    /// Devices whose unplug QEMU was asked for before it had reported another one.
    overlaps: Vec<String>,
    objects: Vec<String>,
    /// Sockets that were passed and have no name as character devices yet.
    passed: BTreeMap<String, OwnedFd>,
    /// Character devices; absent: without a socket.
    characters: BTreeMap<String, Option<OwnedFd>>,
    /// Connections, and whether QEMU accepts further ones.
    clients: Vec<UnixStream>,
    is_deaf: bool,
}

/// A running QEMU.
pub(crate) struct FakeQemu {
    machine: Arc<Mutex<Machine>>,
    folder: TempDir,
}

impl FakeQemu {
    /// Starts one with this many QMP sockets.
    pub(crate) fn start(sockets: usize, leftovers: &[&str], reports: Reports) -> Self {
        let qemu = FakeQemu {
            machine: Arc::default(),
            folder: TempDir::new().unwrap(),
        };
        let left = leftovers.iter().map(|name| ((*name).to_owned(), None));
        qemu.machine().devices.extend(left);
        for socket in 0..sockets {
            let listener = UnixListener::bind(qemu.qmp(socket)).unwrap();
            let machine = Arc::clone(&qemu.machine);
            thread::spawn(move || {
                for client in listener.incoming() {
                    serve(client.unwrap(), &machine, reports);
                }
            });
        }
        qemu
    }

    fn machine(&self) -> MutexGuard<'_, Machine> {
        self.machine.lock().unwrap()
    }

    fn qmp(&self, socket: usize) -> PathBuf {
        self.folder.path().join(format!("qmp{socket}"))
    }

    /// Attaches an application through one of the QMP sockets.
    pub(crate) fn attach(&self, socket: usize, application: &str) -> Result<GuestVm, VmError> {
        let limits = GuestLimits {
            // A test that waits longer has failed.
            answer_ms: 300_000,
            greeting_ms: 300_000,
            ..GuestLimits::default()
        };
        GuestVm::attach(&Monitor::Qmp(self.qmp(socket)), application, limits)
    }

    /// Devices whose unplug was asked for, in order; none may have been asked for while another was pending.
    pub(crate) fn asked(&self) -> Vec<String> {
        let machine = self.machine();
        assert!(machine.overlaps.is_empty(), "{:?}", machine.overlaps);
        machine.asked.clone()
    }

    /// Names of everything that was plugged or added.
    pub(crate) fn has(&self) -> Vec<String> {
        let machine = self.machine();
        let devices = machine.devices.iter().map(|(name, _)| name);
        let all = devices
            .chain(&machine.objects)
            .chain(machine.characters.keys());
        all.cloned().collect()
    }

    /// Names a character device without a socket, as another process would.
    pub(crate) fn add_character(&self, name: &str, socket: Option<OwnedFd>) {
        self.machine().characters.insert(name.to_owned(), socket);
    }

    /// Closes all connections, and each further one at once until `is_deaf` is false again.
    pub(crate) fn disconnect(&self, is_deaf: bool) {
        let mut machine = self.machine();
        machine.is_deaf = is_deaf;
        for client in machine.clients.drain(..) {
            let _ = client.shutdown(Shutdown::Both);
        }
    }

    /// Carries out the unplugs that are pending without a report, and unplugs those with such a name.
    pub(crate) fn unplug_silently(&self, end: &str) {
        let mut machine = self.machine();
        let pending = std::mem::take(&mut machine.pending);
        let is_gone = |name: &String| pending.contains(name) || name.ends_with(end);
        machine.devices.retain(|(name, _)| !is_gone(name));
    }

    /// Ends: closes the sockets that it was given, and the connections.
    pub(crate) fn end(&self) {
        self.disconnect(true);
        let mut machine = self.machine();
        machine.characters.clear();
        machine.passed.clear();
    }
}

impl Machine {
    fn list(&self, path: &str) -> Value {
        let one = |name: &str, kind: &str| json!({ "name": name, "type": kind });
        let last = path.rsplit('/').next().unwrap();
        let devices = || self.devices.iter();
        let found: Vec<_> = match path {
            "/machine/peripheral" => {
                let ports = (1..=PORTS).map(|port| format!("p{port}"));
                let ports = ports.map(|name| one(&name, "child<pcie-root-port>"));
                ports
                    .chain(devices().map(|(name, _)| one(name, "child<x>")))
                    .collect()
            }
            "/objects" => self.objects.iter().map(|name| one(name, "x")).collect(),
            _ if devices().any(|(_, port)| port.as_deref() == Some(last)) => {
                vec![one("child[0]", "link<x>")]
            }
            _ => Vec::new(),
        };
        json!(found)
    }

    fn list_characters(&self) -> Value {
        let one = |(label, socket): (&String, &Option<OwnedFd>)| {
            let filename = match socket {
                None => "null",
                Some(socket) if has_left(socket) => "disconnected:fd:x",
                Some(_) => "unix:",
            };
            json!({ "label": label, "filename": filename, "frontend-open": false })
        };
        self.characters.iter().map(one).collect()
    }
}

fn has_left(socket: &OwnedFd) -> bool {
    let mut polled = [PollFd::new(socket, PollFlags::RDHUP)];
    poll(&mut polled, Some(&Timespec::default())).unwrap() > 0
}

/// Serves one connection until the client leaves.
fn serve(client: UnixStream, machine: &Arc<Mutex<Machine>>, reports: Reports) {
    let send = |text: String| drop((&client).write_all(text.as_bytes()));
    {
        let mut machine = machine.lock().unwrap();
        if machine.is_deaf {
            return;
        }
        machine.clients.push(client.try_clone().unwrap());
    }
    send(format!("{GREETING}\n"));
    while let Some((command, fd)) = receive(&client) {
        let mut now = machine.lock().unwrap();
        let (result, event) = answer(&mut now, &command, fd, reports);
        let answer = match result {
            Some(result) => json!({ "return": result }),
            None => json!({ "error": { "class": "GenericError", "desc": "no" } }),
        };
        let answer = format!("{answer}\n");
        let Some(id) = event else {
            drop(now);
            send(answer);
            continue;
        };
        let deleted = json!({ "event": "DEVICE_DELETED", "data": { "device": id } });
        let deleted = format!("{deleted}\n");
        match reports {
            Reports::Later(later) => {
                drop(now);
                send(answer);
                let machine = Arc::clone(machine);
                thread::spawn(move || {
                    thread::sleep(later);
                    let mut now = machine.lock().unwrap();
                    done(&mut now, &id);
                    for client in &now.clients {
                        // It may have left.
                        let _ = (&*client).write_all(deleted.as_bytes());
                    }
                });
            }
            Reports::BeforeAnswer => {
                done(&mut now, &id);
                send(deleted + &answer);
            }
            _ => {
                done(&mut now, &id);
                send(answer + &deleted);
            }
        }
    }
}

fn done(machine: &mut Machine, id: &str) {
    machine.devices.retain(|(name, _)| name != id);
    machine.pending.retain(|name| name != id);
}

/// Carries out a command; returns the answer (absent: refused), and a device that is unplugged with it.
fn answer(
    machine: &mut Machine,
    command: &Value,
    fd: Option<OwnedFd>,
    reports: Reports,
) -> (Option<Value>, Option<String>) {
    let word = |name: &str| {
        let word = command["arguments"][name].as_str();
        word.unwrap_or_default().to_owned()
    };
    let mut event = None;
    let result = match command["execute"].as_str().unwrap() {
        "query-status" => json!({ "status": "running" }),
        "qom-list" => machine.list(&word("path")),
        "qom-get" if word("property") == "hotplug" => json!(true),
        "qom-get" => json!(1 << 30),
        "query-chardev" => machine.list_characters(),
        "add-fd" => json!({ "fdset-id": 1, "fd": 2 }),
        "getfd" => {
            machine.passed.insert(word("fdname"), fd.unwrap());
            json!({})
        }
        "chardev-add" => {
            let name = word("id");
            if machine.characters.contains_key(&name) {
                return (None, None);
            }
            let socket = machine.passed.remove(&name);
            machine.characters.insert(name, socket);
            json!({})
        }
        "chardev-remove" if machine.characters.remove(&word("id")).is_none() => {
            return (None, None);
        }
        "object-add" => {
            machine.objects.push(word("id"));
            json!({})
        }
        "object-del" => {
            machine.objects.retain(|name| *name != word("id"));
            json!({})
        }
        "device_add" => {
            let port = Some(word("bus")).filter(|bus| bus.starts_with('p'));
            let is_used = |(_, of): &(String, Option<String>)| port.is_some() && *of == port;
            if machine.devices.iter().any(is_used) {
                return (None, None);
            }
            if reports == Reports::Unasked && word("driver") == "ivshmem-doorbell" {
                let (id, _) = machine.devices.pop().unwrap();
                event = Some(id);
            }
            machine.devices.push((word("id"), port));
            json!({})
        }
        "device_del" => {
            let id = word("id");
            if !machine.devices.iter().any(|(name, _)| *name == id) {
                return (None, None);
            }
            if !machine.pending.is_empty() {
                machine.overlaps.push(id.clone());
            }
            machine.asked.push(id.clone());
            machine.pending.push(id.clone());
            event = Some(id);
            json!({})
        }
        _ => json!({}),
    };
    (Some(result), event)
}

/// The next command, and the descriptor that came with it.
fn receive(qmp: &UnixStream) -> Option<(Value, Option<OwnedFd>)> {
    let mut bytes = [0; 4096];
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut beside = RecvAncillaryBuffer::new(&mut space);
    let mut into = [IoSliceMut::new(&mut bytes)];
    let read = recvmsg(qmp, &mut into, &mut beside, RecvFlags::CMSG_CLOEXEC).ok()?;
    let fd = beside.drain().find_map(|message| match message {
        RecvAncillaryMessage::ScmRights(mut fds) => fds.next(),
        _ => None,
    });
    let command = serde_json::from_slice(bytes.get(..read.bytes)?).ok()?;
    Some((command, fd))
}
