// SPDX-License-Identifier: MIT OR Apache-2.0
//! Columns of packets as Arrow record batches.
//!
//! Invariants
//! - Names, types and order of the columns follow from [`ColumnOptions`] alone, and are stable.

use std::net::IpAddr;
use std::sync::Arc;

use arrow_array::builder::{
    BinaryBuilder, PrimitiveBuilder, StringBuilder, TimestampNanosecondBuilder,
};
use arrow_array::types::{ArrowPrimitiveType, UInt8Type, UInt16Type, UInt32Type};
use arrow_array::{ArrayRef, PrimitiveArray, RecordBatch};
use arrow_schema::{ArrowError, DataType, Field, Schema, SchemaRef, TimeUnit};
use ringtap::{LaneId, Packet, Slot};
use ringtap_packet::push_address;
use ringtap_pool::number::to_u32;

use crate::data::DataColumn;
use crate::{FlowHeaders, LaneLinks, PacketHeaders, TakenPackets};

/// How addresses stand in columns.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum AddressForm {
    /// 4 or 16 bytes.
    #[default]
    Binary,
    /// `10.0.0.1`.
    Text,
}

/// Which columns a table has, beside time, lengths, lane, queue, hash and flags.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ColumnOptions {
    /// `vlan` to `payload_offset`: what the headers say.
    pub headers: bool,
    /// Form of the addresses.
    pub addresses: AddressForm,
    /// `community_id`, with this seed.
    pub community_id: Option<u16>,
    /// `tunnel` to `inner_payload_offset`: the innermost packet of tunnels.
    pub inner: bool,
    /// `data`: the captured bytes.
    pub data: bool,
}

impl ColumnOptions {
    /// Columns of the headers.
    #[must_use]
    pub fn with_headers() -> Self {
        ColumnOptions {
            headers: true,
            ..ColumnOptions::default()
        }
    }

    /// The columns with their types.
    #[must_use]
    pub fn schema(&self) -> SchemaRef {
        let utc = DataType::Timestamp(TimeUnit::Nanosecond, Some("UTC".into()));
        let mut fields = vec![
            Field::new("time", utc, false),
            Field::new("wire_length", DataType::UInt32, false),
            Field::new("captured", DataType::UInt32, false),
            Field::new("lane", DataType::UInt32, false),
            Field::new("queue", DataType::UInt16, false),
            Field::new("hash", DataType::UInt32, true),
            Field::new("flags", DataType::UInt8, false),
        ];
        if self.headers {
            fields.push(Field::new("vlan", DataType::UInt16, true));
            fields.push(Field::new("eth_type", DataType::UInt16, true));
            fields.extend(self.flow_fields(""));
        }
        if self.community_id.is_some() {
            fields.push(Field::new("community_id", DataType::Utf8, true));
        }
        if self.inner {
            fields.push(Field::new("tunnel", DataType::Utf8, true));
            fields.push(Field::new("tunnel_id", DataType::UInt32, true));
            fields.extend(self.flow_fields("inner_"));
        }
        if self.data {
            fields.push(Field::new("data", DataType::BinaryView, false));
        }
        Arc::new(Schema::new(fields))
    }

    fn flow_fields(&self, prefix: &str) -> [Field; 7] {
        let address = match self.addresses {
            AddressForm::Binary => DataType::Binary,
            AddressForm::Text => DataType::Utf8,
        };
        [
            ("src", address.clone()),
            ("dst", address),
            ("protocol", DataType::UInt8),
            ("src_port", DataType::UInt16),
            ("dst_port", DataType::UInt16),
            ("tcp_flags", DataType::UInt8),
            ("payload_offset", DataType::UInt32),
        ]
        .map(|(name, kind)| Field::new(format!("{prefix}{name}"), kind, true))
    }

    fn needs_headers(&self) -> bool {
        self.headers || self.inner || self.community_id.is_some()
    }
}

/// Builds record batches of packets.
///
/// # Examples
///
/// ```
/// use ringtap_columns::{ColumnOptions, LaneLinks, PacketColumns};
///
/// let mut capture = ringtap::open("sim:max?burst=1000")?;
/// let links = LaneLinks::new(&capture).into();
/// let mut columns = PacketColumns::new(ColumnOptions::with_headers(), links);
/// while let ringtap::Next::Batch(batch) = capture.next(None)? {
///     for packet in capture.packets(&batch) {
///         columns.push(batch.lane(), &packet?);
///     }
/// }
/// let table = columns.finish()?;
/// assert_eq!((table.num_rows(), table.num_columns()), (1000, 16));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub struct PacketColumns {
    options: ColumnOptions,
    schema: SchemaRef,
    links: Arc<LaneLinks>,
    time: TimestampNanosecondBuilder,
    wire_length: Vec<u32>,
    captured: Vec<u32>,
    lane: Vec<u32>,
    queue: Vec<u16>,
    hash: PrimitiveBuilder<UInt32Type>,
    flags: Vec<u8>,
    vlan: PrimitiveBuilder<UInt16Type>,
    eth_type: PrimitiveBuilder<UInt16Type>,
    outer: FlowColumns,
    community_id: StringBuilder,
    tunnel: StringBuilder,
    tunnel_id: PrimitiveBuilder<UInt32Type>,
    inner: FlowColumns,
    data: DataColumn,
}

impl PacketColumns {
    /// Columns of the packets of a capture with these link types.
    #[must_use]
    pub fn new(options: ColumnOptions, links: Arc<LaneLinks>) -> Self {
        let flow = || FlowColumns::new(options.addresses);
        PacketColumns {
            schema: options.schema(),
            links,
            time: TimestampNanosecondBuilder::new().with_timezone("UTC"),
            wire_length: Vec::new(),
            captured: Vec::new(),
            lane: Vec::new(),
            queue: Vec::new(),
            hash: PrimitiveBuilder::new(),
            flags: Vec::new(),
            vlan: PrimitiveBuilder::new(),
            eth_type: PrimitiveBuilder::new(),
            outer: flow(),
            community_id: StringBuilder::new(),
            tunnel: StringBuilder::new(),
            tunnel_id: PrimitiveBuilder::new(),
            inner: flow(),
            data: DataColumn::default(),
            options,
        }
    }

    /// The columns with their types.
    #[must_use]
    pub fn schema(&self) -> &SchemaRef {
        &self.schema
    }

    /// Makes room for this number of packets.
    pub fn reserve(&mut self, packets: usize) {
        self.wire_length.reserve(packets);
        self.captured.reserve(packets);
        self.lane.reserve(packets);
        self.queue.reserve(packets);
        self.flags.reserve(packets);
    }

    /// Number of packets since the last record batch.
    #[must_use]
    pub fn len(&self) -> usize {
        self.flags.len()
    }

    /// Whether no packet came since the last record batch.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Adds a packet; the column `data` needs [`PacketColumns::extend`].
    #[inline]
    pub fn push(&mut self, lane: LaneId, packet: &Packet<'_>) {
        self.push_slot(lane, &packet.slot(), packet.data);
        if !self.options.needs_headers() {
            return;
        }
        let ColumnOptions {
            inner,
            community_id,
            ..
        } = self.options;
        let link = self.links.of(lane);
        self.push_headers(&PacketHeaders::read(packet.data, link, inner, community_id));
    }

    /// Adds the packets of a batch; with the column `data`, the record batch keeps them in the pool.
    pub fn extend(&mut self, batch: &Arc<TakenPackets>) {
        for (lane, packet) in batch.packets() {
            self.push(lane, &packet);
        }
        if self.options.data {
            self.data.extend(batch);
        }
    }

    #[inline]
    fn push_slot(&mut self, lane: LaneId, slot: &Slot, data: &[u8]) {
        // Times after the year 2262 do not fit.
        self.time
            .append_value(i64::try_from(slot.time_ns).unwrap_or(i64::MAX));
        self.wire_length.push(slot.wire_length);
        self.captured.push(to_u32(data.len()));
        self.lane.push(lane.0);
        self.queue.push(slot.queue);
        self.hash.append_option(slot.hash());
        self.flags.push(slot.flags);
    }

    #[inline]
    fn push_headers(&mut self, headers: &PacketHeaders<'_>) {
        if self.options.headers {
            self.vlan.append_option(headers.vlan);
            self.eth_type.append_option(headers.eth_type);
            self.outer.push(headers.outer.as_ref());
        }
        if self.options.community_id.is_some() {
            let text = headers.community_id.map(|id| id.to_text());
            let text = text.as_ref().and_then(|text| str::from_utf8(text).ok());
            self.community_id.append_option(text);
        }
        if self.options.inner {
            let tunnel = headers.tunnel;
            self.tunnel.append_option(tunnel.map(|one| one.kind.word()));
            self.tunnel_id
                .append_option(tunnel.and_then(|one| one.identifier));
            self.inner.push(headers.inner.as_ref());
        }
    }

    /// The packets since the last call.
    ///
    /// # Errors
    ///
    /// More than 2 GiB of addresses.
    pub fn finish(&mut self) -> Result<RecordBatch, ArrowError> {
        use std::mem::take;
        let mut columns: Vec<ArrayRef> = vec![
            Arc::new(self.time.finish()),
            plain::<UInt32Type>(take(&mut self.wire_length)),
            plain::<UInt32Type>(take(&mut self.captured)),
            plain::<UInt32Type>(take(&mut self.lane)),
            plain::<UInt16Type>(take(&mut self.queue)),
            Arc::new(self.hash.finish()),
            plain::<UInt8Type>(take(&mut self.flags)),
        ];
        if self.options.headers {
            columns.push(Arc::new(self.vlan.finish()));
            columns.push(Arc::new(self.eth_type.finish()));
            columns.extend(self.outer.finish());
        }
        if self.options.community_id.is_some() {
            columns.push(Arc::new(self.community_id.finish()));
        }
        if self.options.inner {
            columns.push(Arc::new(self.tunnel.finish()));
            columns.push(Arc::new(self.tunnel_id.finish()));
            columns.extend(self.inner.finish());
        }
        if self.options.data {
            columns.push(Arc::new(take(&mut self.data).finish()?));
        }
        RecordBatch::try_new(Arc::clone(&self.schema), columns)
    }
}

fn plain<T: ArrowPrimitiveType>(values: Vec<T::Native>) -> ArrayRef {
    Arc::new(PrimitiveArray::<T>::new(values.into(), None))
}

/// Addresses in one of the forms.
enum AddressColumn {
    Binary(BinaryBuilder),
    Text(StringBuilder, String),
}

impl AddressColumn {
    fn new(form: AddressForm) -> Self {
        match form {
            AddressForm::Binary => AddressColumn::Binary(BinaryBuilder::new()),
            AddressForm::Text => AddressColumn::Text(StringBuilder::new(), String::new()),
        }
    }

    #[inline]
    fn push(&mut self, address: Option<&[u8]>) {
        match (self, address) {
            (AddressColumn::Binary(column), address) => column.append_option(address),
            (AddressColumn::Text(column, _), None) => column.append_null(),
            (AddressColumn::Text(column, text), Some(address)) => {
                text.clear();
                push_address(ip_address(address), text);
                column.append_value(text);
            }
        }
    }

    fn finish(&mut self) -> ArrayRef {
        match self {
            AddressColumn::Binary(column) => Arc::new(column.finish()),
            AddressColumn::Text(column, _) => Arc::new(column.finish()),
        }
    }
}

/// An address of 4 or 16 bytes.
pub(crate) fn ip_address(bytes: &[u8]) -> IpAddr {
    match bytes.first_chunk::<16>() {
        Some(six) => IpAddr::from(*six),
        None => IpAddr::from(bytes.first_chunk::<4>().copied().unwrap_or_default()),
    }
}

/// Columns of one packet's IP headers.
struct FlowColumns {
    src: AddressColumn,
    dst: AddressColumn,
    protocol: PrimitiveBuilder<UInt8Type>,
    src_port: PrimitiveBuilder<UInt16Type>,
    dst_port: PrimitiveBuilder<UInt16Type>,
    tcp_flags: PrimitiveBuilder<UInt8Type>,
    payload_offset: PrimitiveBuilder<UInt32Type>,
}

impl FlowColumns {
    fn new(form: AddressForm) -> Self {
        FlowColumns {
            src: AddressColumn::new(form),
            dst: AddressColumn::new(form),
            protocol: PrimitiveBuilder::new(),
            src_port: PrimitiveBuilder::new(),
            dst_port: PrimitiveBuilder::new(),
            tcp_flags: PrimitiveBuilder::new(),
            payload_offset: PrimitiveBuilder::new(),
        }
    }

    #[inline]
    fn push(&mut self, flow: Option<&FlowHeaders<'_>>) {
        self.src.push(flow.map(|flow| flow.src));
        self.dst.push(flow.map(|flow| flow.dst));
        self.protocol.append_option(flow.map(|flow| flow.protocol));
        let ports = flow.and_then(|flow| flow.ports);
        self.src_port.append_option(ports.map(|(from, _)| from));
        self.dst_port.append_option(ports.map(|(_, to)| to));
        self.tcp_flags
            .append_option(flow.and_then(|flow| flow.tcp_flags));
        self.payload_offset
            .append_option(flow.and_then(|flow| flow.payload_offset));
    }

    fn finish(&mut self) -> [ArrayRef; 7] {
        [
            self.src.finish(),
            self.dst.finish(),
            Arc::new(self.protocol.finish()),
            Arc::new(self.src_port.finish()),
            Arc::new(self.dst_port.finish()),
            Arc::new(self.tcp_flags.finish()),
            Arc::new(self.payload_offset.finish()),
        ]
    }
}
