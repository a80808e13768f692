// SPDX-License-Identifier: MIT OR Apache-2.0
//! Loads the meter's programs, maps its maps, and attaches the programs.

use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;

use libbpf_rs::{Object, RingBufferBuilder};
use ringtap_bpf::attach::{self, refused};
use ringtap_bpf::link::{Hook, attach_egress};
use ringtap_bpf::map::{Access, Mapping};
use ringtap_bpf::object::{self as bpf, ObjectFile};
use ringtap_device::Direction;
use ringtap_net::interface::Interface;
use ringtap_net::rights::Purpose;
use ringtap_pool::memory::Words;

use super::layout::{FlowWords, MeterConfig, MeterControl, MeterLaneWords};
use super::{KernelMeter, MeterShape};
use crate::CaptureError;

/// The compiled `bpf/meter.bpf.c`.
static OBJECT: &ObjectFile<[u8]> =
    &ObjectFile(*include_bytes!(concat!(env!("OUT_DIR"), "/meter.bpf.o")));

/// One page, the smallest size of a ring buffer.
const WAKES_BYTES: u32 = 4096;

impl KernelMeter {
    /// Loads the programs for one hook and attaches them; also returns the programs.
    pub(super) fn at(
        hook: Hook,
        direction: Direction,
        interface: &Interface,
        shape: MeterShape,
        config: &MeterConfig,
    ) -> Result<(Self, Vec<OwnedFd>), CaptureError> {
        let arriving = if hook.is_xdp() {
            "rt_meter_xdp"
        } else {
            "rt_meter_rx"
        };
        let mut names = Vec::new();
        names.extend(direction.arriving().then_some(arriving));
        names.extend(direction.leaving().then_some("rt_meter_tx"));
        let name = &interface.name;
        let object = bpf::load(OBJECT, |open| {
            bpf::choose_programs(open, &names, None);
            bpf::set_constants(open, ".rodata.meter", &config.to_bytes())?;
            shape.size_maps(open)
        });
        let object = object.map_err(|failure| {
            attach::not_loaded(&failure, name, Purpose::Tap, shape.map_bytes())
        })?;
        let action = "sharing memory with the meter's programs";
        let mut meter = KernelMeter::map(object, interface, shape)
            .map_err(CaptureError::system(name, action))?;
        let mut programs = Vec::new();
        for program in names {
            let copy = bpf::program(&meter._object, program)
                .map_err(CaptureError::system(name, "finding the loaded program"))?;
            meter.links.push(match program {
                "rt_meter_tx" => attach_egress(copy.as_fd(), interface.index)
                    .map_err(|error| refused(&error, Hook::Tc, None, interface))?,
                _ => attach::attach(copy.as_fd(), hook, interface)?,
            });
            programs.push(copy);
        }
        Ok((meter, programs))
    }

    fn map(object: Object, interface: &Interface, shape: MeterShape) -> io::Result<Self> {
        let mut wakes = RingBufferBuilder::new();
        let map = bpf::map(&object, "rt_meter_wakes")?;
        wakes.add(&map, |_| 0).map_err(io::Error::other)?;
        Ok(KernelMeter {
            interface: interface.clone(),
            links: Vec::new(),
            lanes: words::<MeterLaneWords>(&object, "rt_meter_lanes", shape.lanes)?,
            halves: words::<MeterControl>(&object, "rt_meter_halves", 1)?,
            buckets: words(&object, "rt_meter_buckets", shape.all_buckets())?,
            flows: words::<FlowWords>(&object, "rt_meter_flows", shape.all_flows())?,
            wakes: wakes.build().map_err(io::Error::other)?,
            shape,
            half: 0,
            notes: Vec::new(),
            ending: Arc::default(),
            _promiscuous: None,
            _object: object,
        })
    }
}

impl MeterShape {
    fn all_flows(self) -> u32 {
        2 * self.cpus * self.flows
    }

    fn all_buckets(self) -> u32 {
        2 * self.cpus * self.buckets
    }

    fn map_bytes(self) -> u64 {
        u64::from(self.all_flows()) * size_of::<FlowWords>() as u64
            + u64::from(self.all_buckets()) * size_of::<u32>() as u64
    }

    fn size_maps(self, open: &mut libbpf_rs::OpenObject) -> libbpf_rs::Result<()> {
        for mut map in open.maps_mut() {
            let name = map.name().to_string_lossy().into_owned();
            let entries = match name.as_str() {
                "rt_meter_lanes" => self.lanes,
                "rt_meter_buckets" => self.all_buckets() / 2,
                "rt_meter_flows" => self.all_flows(),
                "rt_meter_wakes" => WAKES_BYTES,
                _ => continue,
            };
            map.set_max_entries(entries)?;
        }
        Ok(())
    }
}

/// All entries of a map.
fn words<T>(object: &Object, name: &str, count: u32) -> io::Result<Words<T>> {
    let count = usize::try_from(count).map_err(io::Error::other)?;
    let bytes = count
        .checked_mul(size_of::<T>())
        .ok_or(io::ErrorKind::OutOfMemory)?;
    let mapping = Mapping::new(bpf::map(object, name)?, bytes, Access::ReadWrite)?;
    let words = Arc::new(mapping).words(0, count);
    words.ok_or_else(|| io::ErrorKind::UnexpectedEof.into())
}
