// SPDX-License-Identifier: MIT OR Apache-2.0
//! The flags that all capturing verbs share, and the source that they open.

use std::num::NonZeroU32;

use crate::UsageError;
use crate::completion;
use crate::interrupt::EndRequests;
use crate::print;
use crate::waiting;
use anyhow::Result;
use clap::{ArgAction, Args, ValueHint};
use ringtap::{Balance, Capture, OpenOptions};
use ringtap_capture::CaptureError;
use ringtap_capture::meter::{KernelMeter, MeterWants};
use ringtap_capture::tap::TapOptions;
use ringtap_client::HubBeside;
use ringtap_device::{ChunkOptions, DeviceSpec, Kind, Options, Size, Speed, StampClock, kinds};
use ringtap_net::interface::Interface;
use ringtap_probe::ProbePlan;

/// Bytes at the start of a packet in which all headers are expected, as by the kernel's analyses (`RT_MAX_BYTES`).
const HEADER_BYTES: u32 = 256;
/// Size of the pool between a file and the workers of a probe: it stays in the caches.
const FILE_POOL: Size = Size(8 << 20);

/// Where packets come from.
#[derive(Args, Debug, Clone)]
pub(crate) struct InputArgs {
    /// Device: an interface (`eth0`), `tap:eth0`, `xdp:eth0`, `packet:eth0`, `tap:eth0@0-3?exclusive`, or a
    /// group of a running hub (`hub:ids`), or in a virtual machine a group of the host's (`host:ids`).
    #[arg(short = 'i', long = "interface", value_name = "DEVICE", add = completion::devices())]
    device: Option<DeviceSpec>,

    /// Capture file to read, pcap or pcapng; `-` is standard input.
    #[arg(
        short = 'r',
        long = "read",
        value_name = "FILE",
        value_hint = ValueHint::FilePath,
        conflicts_with_all = ["device", "wait"]
    )]
    read: Option<String>,

    /// Addresses and ports are never resolved: the flag of tcpdump changes nothing.
    #[arg(short = 'n', action = ArgAction::Count, hide = true)]
    numeric: u8,

    #[command(flatten)]
    options: Options,

    /// Capture filter in pcap-filter syntax, as for tcpdump.
    #[arg(
        short = 'f',
        long = "filter",
        value_name = "FILTER",
        conflicts_with = "words"
    )]
    filter: Option<String>,

    /// The filter, as trailing words.
    #[arg(value_name = "FILTER")]
    words: Vec<String>,
}

impl InputArgs {
    /// Opens the device or file; capture starts now. Waits for a device that is not there yet, if asked to.
    pub(crate) fn open(&self, options: OpenOptions, requests: &EndRequests) -> Result<Capture> {
        let options = options.device_options(self.flags());
        let options = options.filter(self.filter_text());
        let device = self.named_or_group()?;
        let opened = self.when_there(requests, || Ok(options.open_device(&device)?));
        let is_replaced = |capture: &Capture| {
            let best = device.kind.tries.first().copied();
            best.is_some() && DeviceSpec::kind_of(&capture.facts().device) != best
        };
        if opened.as_ref().map_or(true, is_replaced) {
            self.advise_beside_a_hub();
        }
        opened
    }

    /// The device, or instead of an interface without options the group of a hub that delivers its packets.
    fn named_or_group(&self) -> Result<DeviceSpec> {
        let device = self.named()?;
        let is_plain = device == DeviceSpec::interface(&device.name);
        if !is_plain || self.flags() != Options::default() {
            return Ok(device);
        }
        let hub = HubBeside::find(&device.name, "beside").ok().flatten();
        let group = hub.as_ref().and_then(HubBeside::whole);
        let Some(group) = group else {
            return Ok(device);
        };
        print::note(format_args!(
            "ringtap: {0} is read through hub:{group}, which captures it (tap:{0} captures it again)",
            device.name
        ));
        Ok(DeviceSpec::new(&kinds::HUB, group))
    }

    /// Names the groups of a hub that captures the interface, for a user whose own capture failed.
    fn advise_beside_a_hub(&self) {
        let Some(name) = self.interface() else {
            return;
        };
        print::notes(match HubBeside::find(name, "beside") {
            Ok(hub) => hub.map(|hub| hub.advice(name)),
            Err(error) => Some(format!(
                "a hub runs here, which may capture {name}: {error}"
            )),
        });
    }

    /// Calls `open`, again until the device is there if the user asked to wait for it.
    fn when_there<T>(
        &self,
        requests: &EndRequests,
        mut open: impl FnMut() -> Result<T>,
    ) -> Result<T> {
        let device = self.device.as_ref();
        if self.options.wait || device.is_some_and(|device| device.options.wait) {
            waiting::until_there(requests, open)
        } else {
            open()
        }
    }

    /// As [`InputArgs::open`], for the workers of a probe, between which the flows are divided. Workers that
    /// read no payload get only the headers of a file's packets.
    pub(crate) fn open_workers(
        &self,
        options: OpenOptions,
        workers: NonZeroU32,
        plan: &ProbePlan,
        requests: &EndRequests,
    ) -> Result<Vec<Capture>> {
        let balance = Balance::Flow(plan.headers);
        let mut device = self.named()?.with_flags(&self.flags())?;
        if device.kind.names_a_file() {
            let own = &mut device.options;
            if !plan.needs_payload() {
                own.snap_length.get_or_insert(HEADER_BYTES);
            }
            if own.chunks == ChunkOptions::default() {
                own.pool.get_or_insert(FILE_POOL);
            }
        }
        let options = options.filter(self.filter_text());
        self.when_there(requests, || {
            Ok(options.open_workers(&device, workers, balance.clone())?)
        })
    }

    /// Attaches a meter in the kernel to the interface.
    pub(crate) fn open_meter(
        &self,
        wants: &MeterWants,
        has_workers: bool,
        requests: &EndRequests,
    ) -> Result<KernelMeter> {
        let device = self.named()?.with_flags(&self.flags())?;
        let refused = if !device.kind.meters {
            "that Ringtap may tap"
        } else if !self.filter_text().trim().is_empty() {
            "and no filter"
        } else if has_workers && device.options.exclusive {
            "and, of an exclusive interface, no analyses in workers"
        } else if device.options.stamps == Some(StampClock::Nic) {
            "and the host's time stamps"
        } else {
            ""
        };
        if !refused.is_empty() {
            let text = format!("analyses in the kernel need an interface (-i eth0) {refused}");
            return Err(UsageError(text).into());
        }
        self.when_there(requests, || {
            let interface = Interface::find(&device.name).map_err(CaptureError::from)?;
            let options = TapOptions::from_device(&device, &interface);
            Ok(KernelMeter::attach(&options, wants)?)
        })
    }

    fn named(&self) -> Result<DeviceSpec> {
        let named = match (&self.device, &self.read) {
            (Some(device), _) => device.clone(),
            (None, Some(file)) => DeviceSpec::file(file),
            (None, None) => {
                let text = "no device to capture: give -i DEVICE or -r FILE";
                return Err(UsageError(text.to_owned()).into());
            }
        };
        if named.kind.is_default() && (named.name == "any" || named.name.contains(',')) {
            let text = format!(
                "{}: a capture has one device; a hub captures several: `ringtap hub -i eth0,eth1`, then \
                 `-i hub:all`",
                named.name
            );
            return Err(UsageError(text).into());
        }
        Ok(named)
    }

    /// The kind of the device, if the user named one.
    pub(crate) fn kind(&self) -> Option<&'static Kind> {
        self.device.as_ref().map(|device| device.kind)
    }

    /// The capture file, if the user named one.
    pub(crate) fn file(&self) -> Option<&str> {
        let named = self.device.as_ref();
        let named = named.filter(|device| device.kind.names_a_file());
        named
            .map(|device| device.name.as_str())
            .or(self.read.as_deref())
    }

    /// Whether a file is read as fast as it was recorded, or by a factor of that.
    pub(crate) fn has_recorded_speed(&self) -> bool {
        let own = self.device.as_ref().and_then(|it| it.options.speed);
        matches!(self.options.speed.or(own), Some(Speed::Recorded { .. }))
    }

    /// The interface, if the user named one.
    pub(crate) fn interface(&self) -> Option<&str> {
        let device = self.device.as_ref();
        let named = device.filter(|device| device.kind.names_an_interface());
        named.map(|device| device.name.as_str())
    }

    /// Device options from flags.
    fn flags(&self) -> Options {
        let mut flags = self.options.clone();
        // A reader of a group waits only before it attaches.
        flags.wait &= self.kind().is_some_and(|kind| kind.has_key("wait"));
        // What has no clock of a NIC has the host's.
        let is_interface = self.interface().is_some();
        flags.stamps = flags
            .stamps
            .filter(|it| *it == StampClock::Nic || is_interface);
        flags
    }

    /// The filter as one text.
    pub(crate) fn filter_text(&self) -> String {
        self.filter.clone().unwrap_or_else(|| self.words.join(" "))
    }
}
