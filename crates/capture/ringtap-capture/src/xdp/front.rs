// SPDX-License-Identifier: MIT OR Apache-2.0
//! The program in front of the sockets: loading, attaching, filters, the end.
//!
//! Invariants
//! - Attached by a link only: whatever ends the process, the interface is as it was.
//! - A queue's packets go their way until its socket is ready for them.
#![forbid(unsafe_code)]

use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::Ordering::Release;

use libbpf_rs::libbpf_sys::BPF_F_XDP_DEV_BOUND_ONLY;
use libbpf_rs::{ErrorKind, MapCore, MapFlags, Object, ObjectBuilder};
use ringtap_filter::Program as Filter;
use ringtap_filter::ebpf::{self, Hook as Context};
use ringtap_pool::memory::Words;

use super::socket::XskSocket;
use super::words::{Config, QUEUES, QueueControl, QueueWords};
use super::{XdpError, XdpOptions};
use crate::libbpf::{self, Code as Compiled};
use crate::tap::TapError;
use crate::tap::holder::{self, Refusals};
use crate::tap::home::Home;
use crate::tap::hook::{self, Hook};
use crate::tap::mapping::{Access, Mapping, freeze};
use crate::tap::reload::{self, Shape};
use crate::tap::rules::fit::{MARK_FILTERS, MARK_RULES};
use crate::tap::splice::Code;
use ringtap_device::Mode;
use ringtap_net::interface::Interface;
use ringtap_net::netlink::xdp_features;
use ringtap_net::rights::{Purpose, Rights};

/// The compiled `bpf/xsk.bpf.c`.
static CODE: &Compiled<[u8]> = &Compiled(*include_bytes!(concat!(env!("OUT_DIR"), "/xsk.bpf.o")));

/// The program in front of the sockets, attached.
pub(super) struct Front {
    object: Object,
    link: Option<OwnedFd>,
    pub(super) hook: Hook,
    home: Home,
    interface: u32,
    /// The program as it was loaded, for changed copies of it.
    original: Code,
    pub(super) words: Words<QueueWords>,
    controls: Words<QueueControl>,
}

/// The program for a hook.
fn program_name(hook: Hook) -> &'static str {
    match hook {
        Hook::NativeVlan => "rt_xsk_vlan",
        _ => "rt_xsk",
    }
}

fn shape(hook: Hook, interface: u32) -> Shape {
    Shape::xdp(
        program_name(hook),
        (hook == Hook::NativeVlan).then_some(interface),
    )
}

impl Front {
    /// Loads the program for a hook; every queue is off yet.
    pub(super) fn load(
        hook: Hook,
        interface: &Interface,
        snap_length: u32,
    ) -> Result<Self, XdpError> {
        let name = program_name(hook);
        let config = Config {
            snap_length,
            shared: hook == Hook::Generic,
        };
        let (object, log) = libbpf::collect(|| {
            let mut open = ObjectBuilder::default().open_memory(&CODE.0)?;
            for mut program in open.progs_mut() {
                let is_it = program.name() == name;
                program.set_autoload(is_it);
                if is_it && hook == Hook::NativeVlan {
                    program.set_flags(BPF_F_XDP_DEV_BOUND_ONLY);
                    program.set_ifindex(interface.index);
                }
            }
            for mut map in open.maps_mut() {
                if map.name() == ".rodata.config" {
                    map.set_initial_value(&config.to_bytes())?;
                }
            }
            open.load()
        });
        let object = object.map_err(|error| explain(&error, &log, interface))?;
        Front::assemble(object, hook, interface).map_err(|reason| XdpError::System {
            interface: interface.name.clone(),
            action: "sharing memory with the program",
            reason,
        })
    }

    fn assemble(object: Object, hook: Hook, interface: &Interface) -> io::Result<Self> {
        let count = usize::from(QUEUES);
        let outside = || io::Error::from(io::ErrorKind::UnexpectedEof);
        let queues = map(&object, "rt_queues")?;
        freeze(&queues)?;
        let words = count * size_of::<QueueWords>();
        let words = Arc::new(Mapping::new(&queues, words, Access::Read)?);
        let control = map(&object, "rt_queue_controls")?;
        let bytes = count * size_of::<QueueControl>();
        let control = Arc::new(Mapping::new(&control, bytes, Access::ReadWrite)?);
        let name = program_name(hook);
        let mut programs = object.progs();
        let program = programs.find(|program| program.name() == name);
        let insns = libbpf::insns(&program.ok_or_else(outside)?);
        drop(programs);
        Ok(Front {
            link: None,
            hook,
            home: Home::here()?,
            interface: interface.index,
            original: Code::parse(&insns).map_err(io::Error::other)?,
            words: words.words(0, count).ok_or_else(outside)?,
            controls: control.words(0, count).ok_or_else(outside)?,
            object,
        })
    }

    fn program(&self) -> io::Result<OwnedFd> {
        let name = program_name(self.hook);
        let mut programs = self.object.progs();
        let found = programs.find(|program| program.name() == name);
        found
            .ok_or(io::ErrorKind::NotFound)?
            .as_fd()
            .try_clone_to_owned()
    }

    /// Attaches the program: packets are handed over from now on.
    pub(super) fn attach(&mut self, interface: &Interface) -> Result<(), TapError> {
        let system = |reason| TapError::System {
            interface: interface.name.clone(),
            action: "finding the loaded program",
            reason,
        };
        let program = self.program().map_err(system)?;
        let attach = || self.hook.attach(program.as_fd(), interface.index);
        let refusals = Refusals::listen();
        match attach() {
            Ok(link) => {
                self.link = Some(link);
                Ok(())
            }
            Err(error) => {
                if let Some(another) = holder::another_program(interface) {
                    return Err(another);
                }
                let reason = refusals.and_then(|refusals| refusals.last());
                Err(TapError::Refused {
                    interface: interface.name.clone(),
                    mode: self.hook.words(),
                    reason: reason.unwrap_or_else(|| error.to_string()),
                })
            }
        }
    }

    /// Tells the program which socket a queue's packets go to.
    pub(super) fn put_socket(&self, queue: u16, socket: &XskSocket) -> io::Result<()> {
        use std::os::fd::AsRawFd;
        let mut maps = self.object.maps();
        let sockets = maps.find(|map| map.name() == "rt_sockets");
        let fd = socket.as_fd().as_raw_fd().to_ne_bytes();
        sockets
            .ok_or(io::ErrorKind::NotFound)?
            .update(&u32::from(queue).to_ne_bytes(), &fd, MapFlags::ANY)
            .map_err(io::Error::other)
    }

    /// Sets a queue to one of [`state`](super::words::state).
    pub(super) fn set_state(&self, queue: u16, state: u32) {
        if let Some(control) = self.controls.get(usize::from(queue)) {
            control.state.store(state, Release);
        }
    }

    /// Lets only packets through that one of these filters takes. Tells why it lets through all,
    /// if it does: user space asks the filters, too.
    pub(super) fn filter(&mut self, filters: &[Filter]) -> Result<(), String> {
        let Some(link) = &self.link else {
            return Ok(());
        };
        if filters.iter().any(Filter::takes_everything) {
            let original = self.program().map_err(|error| error.to_string())?;
            return hook::replace(link.as_fd(), original.as_fd())
                .map_err(|error| error.to_string());
        }
        match self.with_filters(filters) {
            Ok(program) => {
                hook::replace(link.as_fd(), program.as_fd()).map_err(|error| error.to_string())
            }
            Err(reason) => {
                let original = self.program().map_err(|error| error.to_string())?;
                hook::replace(link.as_fd(), original.as_fd()).map_err(|error| error.to_string())?;
                Err(reason)
            }
        }
    }

    fn with_filters(&self, filters: &[Filter]) -> Result<OwnedFd, String> {
        let text = |error: &dyn std::fmt::Display| error.to_string();
        let insns = ebpf::classify(filters, Context::Xdp).map_err(|error| text(&error))?;
        let insns: Vec<_> = insns.into_iter().map(|insn| insn.0).collect();
        let mut code = self.original.clone();
        let spliced = code
            .set_number(MARK_RULES, 1)
            .and_then(|()| code.set_function(MARK_FILTERS, Code::parse(&insns)?))
            .and_then(|()| code.to_insns());
        let insns = spliced.map_err(|error| text(&error))?;
        let shape = shape(self.hook, self.interface);
        let loaded = self.home.run(|| reload::load(&shape, &insns));
        loaded
            .map_err(|error| text(&error))?
            .map(|loaded| loaded.program)
            .map_err(|refusal| refusal.reason())
    }

    /// No packet is handed over any more, once those under way have been.
    pub(super) fn detach(&mut self) {
        if let Some(link) = self.link.take() {
            hook::detach(link);
        }
    }
}

/// The hooks to try, best first.
pub(super) fn hooks(
    options: &XdpOptions,
    interface: &Interface,
    notes: &mut Vec<String>,
) -> Vec<Hook> {
    let name = &interface.name;
    let features = xdp_features(interface.index);
    let tells_vlan = features.is_some_and(|features| features.tells_vlan());
    let native = match tells_vlan {
        true => Hook::NativeVlan,
        false => Hook::Native,
    };
    if interface.offloads.rx_vlan == Some(true) && (!tells_vlan || options.mode == Mode::Generic) {
        notes.push(format!(
            "{name}: VLAN tags are stripped before AF_XDP can see them; to see them: \
             `ethtool -K {name} rxvlan off`, then start again"
        ));
    }
    match options.mode {
        Mode::Native => vec![native],
        Mode::Generic => vec![Hook::Generic],
        _ if features.is_some_and(|features| !features.native()) => {
            let next = Hook::Generic.words();
            notes.push(format!(
                "{name}: the driver has no native XDP; falling back to {next}, which is slower"
            ));
            vec![Hook::Generic]
        }
        _ => vec![native, Hook::Generic],
    }
}

/// A descriptor of one of the object's maps.
fn map(object: &Object, name: &str) -> io::Result<OwnedFd> {
    let mut maps = object.maps();
    let found = maps.find(|map| map.name() == name);
    found
        .ok_or(io::ErrorKind::NotFound)?
        .as_fd()
        .try_clone_to_owned()
}

/// What a failed load means to the user.
fn explain(error: &libbpf_rs::Error, log: &[String], interface: &Interface) -> XdpError {
    let name = interface.name.clone();
    if error.kind() == ErrorKind::PermissionDenied
        && let Err(reason) = Rights::of_this_process().require(Purpose::Xdp)
    {
        return XdpError::NoRights {
            interface: name,
            reason,
        };
    }
    XdpError::Program(TapError::Load {
        interface: name,
        log: format!("{error}\n{}", log.join("")).trim_end().to_owned(),
    })
}
