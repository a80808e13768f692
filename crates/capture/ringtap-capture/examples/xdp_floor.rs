// SPDX-License-Identifier: MIT OR Apache-2.0
//! `xdp_floor INTERFACE SECONDS [MODE]`: drops and counts every arriving packet; prints JSON.
//!
//! Lower bound for the benchmark: no capture is faster than dropping packets. With `-` as SECONDS it
//! runs until standard input closes. MODE is `native` (the default) or `generic`.

use std::env;
use std::error::Error;
use std::io;
use std::os::fd::{AsFd, AsRawFd};
use std::process::ExitCode;
use std::thread::sleep;
use std::time::Duration;

use libbpf_rs::libbpf_sys::{self, BPF_XDP, XDP_FLAGS_DRV_MODE, XDP_FLAGS_SKB_MODE};
use libbpf_rs::{MapCore, MapFlags, ObjectBuilder};

/// The compiled `bpf/floor.bpf.c`.
const CODE: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/floor.bpf.o"));

fn main() -> ExitCode {
    match run() {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("xdp_floor: {error}");
            ExitCode::FAILURE
        }
    }
}

fn run() -> Result<(), Box<dyn Error>> {
    let usage = "usage: xdp_floor INTERFACE SECONDS|- [native|generic]";
    let mut arguments = env::args().skip(1);
    let interface = arguments.next().ok_or(usage)?;
    let seconds: Option<f64> = match arguments.next().ok_or(usage)?.as_str() {
        "-" => None,
        number => Some(number.parse().map_err(|_| usage)?),
    };
    let flags = match arguments.next().as_deref() {
        None | Some("native") => XDP_FLAGS_DRV_MODE,
        Some("generic") => XDP_FLAGS_SKB_MODE,
        Some(_) => return Err(usage.into()),
    };
    let object = ObjectBuilder::default().open_memory(CODE)?.load()?;
    let program = object.progs().next().ok_or("no program")?;
    let index = rustix::net::netdevice::name_to_index(
        rustix::net::socket(
            rustix::net::AddressFamily::INET,
            rustix::net::SocketType::DGRAM,
            None,
        )?,
        &interface,
    )?;
    let options = libbpf_sys::bpf_link_create_opts {
        sz: libbpf_sys::size_t::try_from(size_of::<libbpf_sys::bpf_link_create_opts>())?,
        flags,
        ..Default::default()
    };
    let (fd, target) = (program.as_fd().as_raw_fd(), i32::try_from(index)?);
    // SAFETY: the program's descriptor is open and the options live during the call. The link
    // is never closed here: it ends with the process.
    let link = unsafe { libbpf_sys::bpf_link_create(fd, target, BPF_XDP, &raw const options) };
    if link < 0 {
        return Err(io::Error::from_raw_os_error(-link).into());
    }
    eprintln!("ready");
    match seconds {
        Some(seconds) => sleep(Duration::try_from_secs_f64(seconds)?),
        None => drop(io::copy(&mut io::stdin(), &mut io::sink())?),
    }
    let map = object.maps().next().ok_or("no map")?;
    let counts = map
        .lookup_percpu(&[0; 4], MapFlags::ANY)?
        .ok_or("no count")?;
    let number = |bytes: &Vec<u8>| bytes.as_slice().try_into().map(u64::from_ne_bytes);
    let dropped = counts.iter().map(number).sum::<Result<u64, _>>()?;
    println!("{{\"dropped\":{dropped}}}");
    Ok(())
}
