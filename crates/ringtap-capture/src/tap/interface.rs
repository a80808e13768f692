// SPDX-License-Identifier: MIT OR Apache-2.0
//! What the kernel says about a network interface: flags, hardware type, VLAN stripping.
//!
//! Invariants
//! - All questions go through a socket of the network namespace in which the tap was attached,
//!   whatever thread asks later.

use std::io;
use std::os::fd::{AsRawFd, OwnedFd};

use rustix::net::{AddressFamily, SocketFlags, SocketType, socket_with};

use super::error::TapError;

const ARPHRD_ETHER: u16 = 1;
const ARPHRD_LOOPBACK: u16 = 772;
/// `ETHTOOL_GFLAGS` and its bit for "VLAN tags are stripped".
const ETHTOOL_GFLAGS: u32 = 0x25;
const ETH_FLAG_RXVLAN: u32 = 1 << 8;

/// A network interface, by its number: it may be renamed.
#[derive(Debug)]
pub(super) struct Interface {
    pub(super) name: String,
    pub(super) index: u32,
    pub(super) loopback: bool,
    /// The NIC, or the kernel in its place, takes VLAN tags out of arriving packets.
    pub(super) strips_vlan: bool,
    socket: OwnedFd,
}

/// Whether packets can come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum State {
    Up,
    Down,
    Gone,
}

#[repr(C)]
struct EthtoolValue {
    command: u32,
    data: u32,
}

impl Interface {
    /// Looks an interface up by name.
    ///
    /// # Errors
    ///
    /// [`TapError::NoInterface`], [`TapError::Down`], [`TapError::NotEthernet`],
    /// [`TapError::System`].
    pub(super) fn find(name: &str) -> Result<Self, TapError> {
        let interface = || name.to_owned();
        let system = |action| {
            move |source| TapError::System {
                interface: name.to_owned(),
                action,
                source,
            }
        };
        let socket = socket_with(
            AddressFamily::INET,
            SocketType::DGRAM,
            SocketFlags::CLOEXEC,
            None,
        )
        .map_err(|errno| system("opening a socket")(errno.into()))?;
        let missing = |source: io::Error| match source.raw_os_error() {
            Some(libc::ENODEV | libc::EINVAL) => TapError::NoInterface {
                interface: interface(),
            },
            _ => system("asking for the interface")(source),
        };
        let index = index(&socket, name).map_err(missing)?;
        let flags = flags(&socket, name).map_err(missing)?;
        let hardware = hardware(&socket, name).map_err(missing)?;
        if !matches!(hardware, ARPHRD_ETHER | ARPHRD_LOOPBACK) {
            return Err(TapError::NotEthernet {
                interface: interface(),
                hardware,
            });
        }
        if !is(flags, libc::IFF_UP) {
            return Err(TapError::Down {
                interface: interface(),
            });
        }
        Ok(Interface {
            name: interface(),
            index,
            loopback: is(flags, libc::IFF_LOOPBACK),
            strips_vlan: strips_vlan(&socket, name),
            socket,
        })
    }

    /// Whether the interface is still there, and up.
    pub(super) fn state(&self) -> State {
        let Ok(name) = name_of(&self.socket, self.index) else {
            return State::Gone;
        };
        match flags(&self.socket, &name) {
            Ok(flags) if is(flags, libc::IFF_UP) => State::Up,
            Ok(_) => State::Down,
            Err(_) => State::Gone,
        }
    }
}

fn is(flags: libc::c_short, bit: libc::c_int) -> bool {
    libc::c_int::from(flags) & bit != 0
}

fn request(name: &str) -> io::Result<libc::ifreq> {
    // SAFETY: a plain C struct of integers and pointers, for which zeroes are valid.
    let mut request: libc::ifreq = unsafe { std::mem::zeroed() };
    if name.is_empty() || name.len() >= request.ifr_name.len() || name.contains('\0') {
        return Err(io::Error::from_raw_os_error(libc::ENODEV));
    }
    for (place, byte) in request.ifr_name.iter_mut().zip(name.bytes()) {
        *place = libc::c_char::from_ne_bytes([byte]);
    }
    Ok(request)
}

fn ask(socket: &OwnedFd, code: libc::c_ulong, request: &mut libc::ifreq) -> io::Result<()> {
    // SAFETY: every `SIOC*` code used in this module reads and writes one `ifreq`, which lives
    // during the call, as does what its pointer (for SIOCETHTOOL) leads to.
    match unsafe { libc::ioctl(socket.as_raw_fd(), code, request) } {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}

fn index(socket: &OwnedFd, name: &str) -> io::Result<u32> {
    let mut request = request(name)?;
    ask(socket, libc::SIOCGIFINDEX, &mut request)?;
    // SAFETY: the kernel filled this member in.
    let index = unsafe { request.ifr_ifru.ifru_ifindex };
    u32::try_from(index).map_err(|_| io::Error::from_raw_os_error(libc::ENODEV))
}

fn flags(socket: &OwnedFd, name: &str) -> io::Result<libc::c_short> {
    let mut request = request(name)?;
    ask(socket, libc::SIOCGIFFLAGS, &mut request)?;
    // SAFETY: the kernel filled this member in.
    Ok(unsafe { request.ifr_ifru.ifru_flags })
}

fn hardware(socket: &OwnedFd, name: &str) -> io::Result<u16> {
    let mut request = request(name)?;
    ask(socket, libc::SIOCGIFHWADDR, &mut request)?;
    // SAFETY: the kernel filled this member in.
    Ok(unsafe { request.ifr_ifru.ifru_hwaddr }.sa_family)
}

fn name_of(socket: &OwnedFd, index: u32) -> io::Result<String> {
    let mut request = request("?")?;
    request.ifr_ifru.ifru_ifindex = libc::c_int::try_from(index).unwrap_or(libc::c_int::MAX);
    ask(socket, libc::SIOCGIFNAME, &mut request)?;
    let bytes = request.ifr_name.iter().flat_map(|char| char.to_ne_bytes());
    let name: Vec<u8> = bytes.take_while(|byte| *byte != 0).collect();
    Ok(String::from_utf8_lossy(&name).into_owned())
}

/// Whether VLAN tags are stripped; no where the driver cannot tell.
fn strips_vlan(socket: &OwnedFd, name: &str) -> bool {
    let Ok(mut request) = request(name) else {
        return false;
    };
    let mut value = EthtoolValue {
        command: ETHTOOL_GFLAGS,
        data: 0,
    };
    request.ifr_ifru.ifru_data = (&raw mut value).cast();
    let asked = ask(socket, libc::SIOCETHTOOL, &mut request);
    asked.is_ok() && value.data & ETH_FLAG_RXVLAN != 0
}
