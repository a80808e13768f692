// SPDX-License-Identifier: MIT OR Apache-2.0
//! Opens a device, or a group of a running hub.

use std::net::Ipv4Addr;
use std::num::NonZeroU32;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use ringtap_client::{Receiver, SubscriptionRequest, Watermark, default_socket, host_socket};
use ringtap_device::{DeviceSpec, Kind, Options};
use ringtap_filter::flow::CutOff;
use ringtap_filter::{Balance, GroupName, LinkType, MAX_SNAP_LENGTH, Program, text};
use ringtap_hub::server::{Server, ServerOptions};
use ringtap_hub::{AccessList, Group, Hub, HubError, HubOptions};
use ringtap_ipc::protocol::{Refusal, Refused};
use ringtap_ipc::socket::Listener;
use ringtap_net::confine::Confinement;
use ringtap_pool::congestion::Congestion;
use ringtap_pool::distributor::Policy;
use ringtap_pool::number::to_u32;
use ringtap_pool::source::Facts;

use crate::capture::OwnHub;
use crate::{Capture, Error};

/// The only group of a hub that runs for one capture.
const ONLY_GROUP: &str = "local";

/// Opens a device (`eth0`, `tap:eth0?exclusive`, `pcap:FILE`) or a group of a running hub
/// (`hub:GROUP`; in a virtual machine, `host:GROUP` of the host), with no filter and default options.
///
/// # Examples
///
/// ```
/// let mut capture = ringtap::open("sim:max?burst=1000")?;
/// let mut packets = 0;
/// while let ringtap::Next::Batch(batch) = capture.next(None)? {
///     packets += capture.packets(&batch).count();
/// }
/// assert_eq!(packets, 1000);
/// assert_eq!(capture.close()?.delivered, 1000);
/// # Ok::<(), ringtap::Error>(())
/// ```
///
/// # Errors
///
/// Every [`Error`] but [`Error::SourceFailed`] and [`Error::InterfaceRemoved`].
pub fn open(device: &str) -> Result<Capture, Error> {
    OpenOptions::new().open(device)
}

/// Options of a capture.
#[derive(Clone, Debug, Default)]
#[must_use]
pub struct OpenOptions {
    device: Options,
    filter: String,
    name: Option<String>,
    credit_chunks: Option<u32>,
    watermark_packets: Option<u32>,
    time_limit_ms: Option<u32>,
    distance_us: Option<u32>,
    private: bool,
    socket: Option<PathBuf>,
    in_order: Option<Duration>,
    confinement: Option<Confinement>,
    served: Option<ServedGroups>,
    congestion: Option<Congestion>,
    cutoff: Option<CutOff>,
    marks: Option<GroupName>,
}

/// Groups for processes of the same user, at a socket of the capture's own hub.
#[derive(Clone, Debug)]
struct ServedGroups {
    socket: PathBuf,
    groups: Vec<Group>,
    readers: u32,
}

impl OpenOptions {
    /// The defaults.
    pub fn new() -> Self {
        OpenOptions::default()
    }

    /// Captures only packets that pass this filter, in pcap-filter syntax.
    ///
    /// # Examples
    ///
    /// ```
    /// let mut capture = ringtap::OpenOptions::new().filter("ip6").open("sim:max?burst=1000")?;
    /// while let ringtap::Next::Batch(batch) = capture.next(None)? {
    ///     assert_eq!(capture.packets(&batch).count(), 0);
    /// }
    /// assert_eq!(capture.counters()?.filtered, 1000);
    /// # Ok::<(), ringtap::Error>(())
    /// ```
    pub fn filter(mut self, filter: impl Into<String>) -> Self {
        self.filter = filter.into();
        self
    }

    /// Keeps at most this many bytes of each packet. Only for devices; a hub has its own limit.
    ///
    /// # Examples
    ///
    /// ```
    /// let options = ringtap::OpenOptions::new().snap_length(48);
    /// let mut capture = options.open("sim:max?burst=10&size=1504")?;
    /// while let ringtap::Next::Batch(batch) = capture.next(None)? {
    ///     for packet in capture.packets(&batch) {
    ///         let packet = packet?;
    ///         assert_eq!((packet.data.len(), packet.slot().wire_length), (48, 1500));
    ///     }
    /// }
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn snap_length(mut self, bytes: u32) -> Self {
        self.device.snap_length = Some(bytes);
        self
    }

    /// Sets options of the device, in addition to those in its text: direction, promiscuous mode,
    /// pool size and others.
    pub fn device_options(mut self, device: Options) -> Self {
        self.device = device;
        self
    }

    /// The reader's name in `ringtap status`, `top` and `why`.
    pub fn name(mut self, name: impl Into<String>) -> Self {
        self.name = Some(name.into());
        self
    }

    /// Number of chunks of each lane that the reader may hold. Beyond it, the reader loses packets
    /// as overrun.
    pub fn credit(mut self, chunks: u32) -> Self {
        self.credit_chunks = Some(chunks);
        self
    }

    /// Wakes the reader when this many packets wait, or when the first has waited for the time
    /// limit.
    ///
    /// # Examples
    ///
    /// ```no_run
    /// use std::time::Duration;
    ///
    /// let options = ringtap::OpenOptions::new().watermark(100, Duration::from_millis(20));
    /// let capture = options.open("eth0")?;
    /// # Ok::<(), ringtap::Error>(())
    /// ```
    pub fn watermark(mut self, packets: u32, time_limit: Duration) -> Self {
        self.watermark_packets = Some(packets);
        self.time_limit_ms = Some(to_u32(time_limit.as_micros().div_ceil(1000)));
        self
    }

    /// While packets come fast, pauses for this long after the reader has caught up with the capture,
    /// which a reader that follows closely slows down. Zero: no pauses. By default 100 µs.
    pub fn distance(mut self, pause: Duration) -> Self {
        self.distance_us = Some(to_u32(pause.as_micros()));
        self
    }

    /// Asks the hub for a private pool, which holds only packets that pass the reader's filter.
    ///
    /// # Examples
    ///
    /// ```no_run
    /// let options = ringtap::OpenOptions::new().private(true).filter("udp port 53");
    /// let capture = options.open("hub:all")?;
    /// # Ok::<(), ringtap::Error>(())
    /// ```
    pub fn private(mut self, private: bool) -> Self {
        self.private = private;
        self
    }

    /// Path of the hub's socket; by default that of this machine's hub.
    ///
    /// # Examples
    ///
    /// ```no_run
    /// let options = ringtap::OpenOptions::new().socket("/run/other/hub.sock");
    /// let capture = options.open("hub:all")?;
    /// # Ok::<(), ringtap::Error>(())
    /// ```
    pub fn socket(mut self, path: impl Into<PathBuf>) -> Self {
        self.socket = Some(path.into());
        self
    }

    /// Delivers packets of all lanes in time-stamp order; holds each packet for at most this long to
    /// wait for earlier ones ([`ORDER_WINDOW`] suits most programs). Zero, the default: the order of
    /// each lane, lanes in turn.
    ///
    /// # Examples
    ///
    /// ```
    /// use std::time::Duration;
    ///
    /// let options = ringtap::OpenOptions::new().in_order(Duration::from_secs(5));
    /// let mut capture = options.open("sim:1Mpps?burst=1000&queues=4&flows=16&clock=virtual")?;
    /// let mut last_ns = 0;
    /// while let ringtap::Next::Batch(batch) = capture.next(None)? {
    ///     for packet in capture.packets(&batch) {
    ///         let time_ns = packet?.slot().time_ns;
    ///         assert!(time_ns >= last_ns);
    ///         last_ns = time_ns;
    ///     }
    /// }
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// [`ORDER_WINDOW`]: crate::ORDER_WINDOW
    pub fn in_order(mut self, window: Duration) -> Self {
        self.in_order = Some(window).filter(|window| !window.is_zero());
        self
    }

    /// Lets the readers of the capture lose nothing of what is captured: from the low mark of free chunks to the
    /// high one, packets are not captured at all, and count as `pool_full`. Other processes do not count. Only
    /// for devices; files wait for their readers anyway.
    pub fn congestion(mut self, marks: Congestion) -> Self {
        self.congestion = Some(marks);
        self
    }

    /// Captures only the start of every flow: of each direction, the packets before this cut. The others count as
    /// `shunted`.
    ///
    /// # Examples
    ///
    /// ```no_run
    /// use ringtap::CutOff;
    ///
    /// let cut = CutOff { packets: Some(20), bytes: None };
    /// let capture = ringtap::OpenOptions::new().cutoff(cut).open("eth0")?;
    /// # Ok::<(), ringtap::Error>(())
    /// ```
    pub fn cutoff(mut self, cut: CutOff) -> Self {
        self.cutoff = Some(cut);
        self
    }

    /// Marks the packets that rules give to this group of the hub, too: their slots have
    /// [`flag::MARKED`](ringtap_pool::format::flag::MARKED).
    ///
    /// # Examples
    ///
    /// ```no_run
    /// let suspects = "suspects".parse()?;
    /// let capture = ringtap::OpenOptions::new().marks(suspects).open("hub:ids")?;
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn marks(mut self, group: GroupName) -> Self {
        self.marks = Some(group);
        self
    }

    /// Gives up rights, for good, once the device is open and before the capture's own threads start.
    pub fn confined(mut self, confinement: Confinement) -> Self {
        self.confinement = Some(confinement);
        self
    }

    /// Lets other processes of this user, of root and of the user with this id read the device, too: as members of
    /// these groups, at this socket of the capture's own hub. The pool has room for this number of their readers. Not
    /// for a group of a running hub, which these processes read themselves.
    pub fn serving(
        mut self,
        socket: impl Into<PathBuf>,
        groups: Vec<(String, Balance)>,
        readers: u32,
        user: Option<u32>,
    ) -> Self {
        let groups = groups.into_iter().map(|(name, balance)| Group {
            division: balance.into(),
            access: AccessList {
                uids: user.into_iter().collect(),
                gids: Vec::new(),
            },
            ..Group::new(&name)
        });
        self.served = Some(ServedGroups {
            socket: socket.into(),
            groups: groups.collect(),
            readers,
        });
        self
    }

    /// Opens a device, or a group of a running hub.
    ///
    /// # Errors
    ///
    /// As for [`open()`].
    pub fn open(&self, device: &str) -> Result<Capture, Error> {
        self.open_device(&device.parse()?)
    }

    /// As [`OpenOptions::open`], for a device that was parsed before.
    ///
    /// # Examples
    ///
    /// ```
    /// let device: ringtap::DeviceSpec = "sim:max?burst=10".parse()?;
    /// let capture = ringtap::OpenOptions::new().open_device(&device)?;
    /// assert_eq!(capture.lanes(), 1);
    /// # Ok::<(), ringtap::Error>(())
    /// ```
    ///
    /// # Errors
    ///
    /// As for [`open()`].
    pub fn open_device(&self, device: &DeviceSpec) -> Result<Capture, Error> {
        let device = device.with_flags(&self.device)?;
        let capture = if device.kind.names_a_group() {
            self.subscribe(&device)?
        } else {
            let mut one = self.start(&device, NonZeroU32::MIN, Balance::Everyone)?;
            one.pop()
                .ok_or_else(|| Refused::new(Refusal::Failed, "the hub is ending"))?
        };
        Ok(match self.in_order {
            Some(window) => capture.in_order(window),
            None => capture,
        })
    }

    fn confine(&self) -> Result<(), Error> {
        let confinement = self.confinement.as_ref();
        Ok(confinement.map_or(Ok(()), Confinement::enter)?)
    }

    fn request(&self, group: &str, device: &Options) -> SubscriptionRequest {
        SubscriptionRequest {
            credit_chunks: self.credit_chunks,
            private: self.private || device.private,
            marks: self.marks,
            watermark: Watermark::or_default(
                self.watermark_packets.or(device.watermark),
                self.time_limit_ms.or(device.limit_ms),
                self.distance_us.or(device.distance_us),
            ),
            ..SubscriptionRequest::new(group, self.name.as_deref().unwrap_or("ringtap"))
        }
    }

    /// Opens a device for several threads, between which `balance` divides its packets: one capture for
    /// each, with counters of its own.
    ///
    /// # Errors
    ///
    /// As for [`open()`]. A group of a hub has one capture in each process: [`Error::OneWorker`].
    pub fn open_workers(
        &self,
        device: &DeviceSpec,
        workers: NonZeroU32,
        balance: Balance,
    ) -> Result<Vec<Capture>, Error> {
        if workers.get() == 1 {
            return Ok(vec![self.open_device(device)?]);
        }
        if device.kind.names_a_group() {
            return Err(Error::OneWorker(device.name.clone()));
        }
        self.start(&device.with_flags(&self.device)?, workers, balance)
    }

    /// Starts a source with a hub of its own, and reads from the source's first packet on.
    fn start(
        &self,
        device: &DeviceSpec,
        workers: NonZeroU32,
        balance: Balance,
    ) -> Result<Vec<Capture>, Error> {
        // Before the rules are in force, a reader sees what the snap length has left of a packet, and
        // every worker gets every packet.
        let cuts = device.options.snap_length.is_some() && !self.filter.trim().is_empty();
        let needs_rules = cuts || workers.get() > 1 || self.cutoff.is_some();
        let source = if needs_rules {
            ringtap_capture::open_for_rules(device)?
        } else {
            ringtap_capture::open(device)?
        };
        let served = self.served.as_ref();
        let listener = served.map(|served| Listener::bind(&served.socket));
        let listener = listener.transpose()?;
        let compile = || compile(&self.filter, &source.facts);
        // Names of hosts need sockets. Their answers come from outside, so rights go first if they can.
        let only_reads = self.confinement.as_ref().is_some_and(|one| one.only_reads);
        let early = only_reads.then(compile).transpose()?;
        self.confine()?;
        let request = SubscriptionRequest {
            filter: early.map_or_else(compile, Ok)?,
            from_the_first: !needs_rules || device.kind.waits_for_rules,
            ..self.request(ONLY_GROUP, &device.options)
        };
        let waits = source.facts.policy == Policy::Block;
        let congestion = self.congestion.filter(|_| !waits);
        let mut group = Group {
            division: balance.into(),
            cutoff: self.cutoff,
            ..Group::new(ONLY_GROUP)
        };
        if congestion.is_some() {
            // A reader may hold every chunk: a full pool costs packets before the capture, not after it.
            group.policy = Policy::Block;
        }
        let mut groups = vec![group];
        groups.extend(served.iter().flat_map(|served| served.groups.clone()));
        let readers = workers.saturating_add(served.map_or(0, |served| served.readers));
        let options = HubOptions {
            congestion,
            ..HubOptions::for_readers(readers)
        };
        let (hub, subscriptions) = Hub::start(
            vec![source],
            groups,
            options,
            vec![request; workers.get() as usize],
        )?;
        let server =
            listener.map(|listener| Server::open(listener, &hub, ServerOptions::default()));
        let server = server.transpose().map_err(HubError::from)?;
        let hub = Arc::new(OwnHub {
            _server: server,
            hub,
        });
        let mut captures = Vec::with_capacity(subscriptions.len());
        for subscription in subscriptions {
            let mut subscription = subscription?;
            if needs_rules && device.kind.waits_for_rules {
                // The source waited for the rules, and may have written packets since.
                let endpoints = subscription.endpoints.iter_mut();
                endpoints.for_each(|endpoint| endpoint.wanted.from.fill(0));
            }
            let mut capture = Capture::at_hub(hub.hub.handle(), subscription)?;
            capture._hub = Some(Arc::clone(&hub));
            captures.push(capture);
        }
        Ok(captures)
    }

    /// Subscribes to a group of a running hub.
    fn subscribe(&self, device: &DeviceSpec) -> Result<Capture, Error> {
        let own = device.options.socket.as_ref().map(PathBuf::from);
        let socket = self.socket.clone().or(own);
        let socket = socket.unwrap_or_else(|| {
            if device.kind.is_of_host {
                host_socket(&device.name)
            } else {
                default_socket()
            }
        });
        let request = SubscriptionRequest {
            cutoff: self.cutoff,
            ..self.request(&device.name, &device.options)
        };
        let compile = |link_type| -> Result<_, Error> {
            Ok(text::compile(&self.filter, link_type, MAX_SNAP_LENGTH)?)
        };
        let (receiver, _connection) = Receiver::subscribe(&socket, request, compile)?;
        self.confine()?;
        let mut capture = Capture::new(receiver);
        capture.facts.device = format!("{}:{}", device.kind, device.name);
        Ok(capture)
    }
}

/// Compiles a filter for the packets of a source.
///
/// # Examples
///
/// ```
/// let capture = ringtap::open("sim:max?burst=10")?;
/// let filter = ringtap::compile("udp port 53", capture.facts())?;
/// assert!(!filter.takes_everything());
/// # Ok::<(), ringtap::Error>(())
/// ```
///
/// # Errors
///
/// [`Error::Filter`].
pub fn compile(filter: &str, facts: &Facts) -> Result<Program, Error> {
    let link_type = LinkType(facts.link_type);
    let netmask = if filter.contains("broadcast") {
        netmask(facts)
    } else {
        Ipv4Addr::BROADCAST
    };
    Ok(text::compile_with_netmask(
        filter,
        link_type,
        facts.snap_length,
        netmask,
    )?)
}

/// The netmask for `ip broadcast`: none for files and for interfaces without an IPv4 address, as
/// tcpdump has it; all ones, with which libpcap refuses the filter, if the interface is not known here.
fn netmask(facts: &Facts) -> Ipv4Addr {
    let kind = DeviceSpec::kind_of(&facts.device);
    match &facts.interface {
        _ if kind.is_some_and(Kind::names_a_file) => Ipv4Addr::UNSPECIFIED,
        Some(interface) if !kind.is_some_and(Kind::names_a_group) => {
            ringtap_net::interface::netmask(interface).unwrap_or(Ipv4Addr::UNSPECIFIED)
        }
        _ => Ipv4Addr::BROADCAST,
    }
}
