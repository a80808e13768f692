// SPDX-License-Identifier: MIT OR Apache-2.0
//! The packets to send, as flags.

use std::net::IpAddr;

use anyhow::Result;
use clap::Args;
use ringtap_device::{Rate, Speed};
use ringtap_packet::{MacAddress, Sizes, Traffic, TransportProtocol};
use ringtap_send::Load;

use crate::UsageError;

/// A low rate, so that a forgotten `--rate` floods no network.
const DEFAULT_RATE: Rate = Rate::PacketsPerSecond(1000);

/// What to send, and how fast.
#[derive(Args, Debug)]
pub(super) struct LoadArgs {
    /// Packets per second (100000, 1Mpps), bits per second at L1 (1Gbps, 500Mbps), or max.
    /// Without it: 1000 packets a second; files at recorded speed.
    #[arg(long, value_name = "RATE")]
    rate: Option<Rate>,

    #[command(flatten)]
    file: FileArgs,

    #[command(flatten)]
    made: MadeArgs,
}

#[derive(Args, Debug)]
#[command(next_help_heading = "Packets of a file")]
struct FileArgs {
    /// Send the packets of this pcap or pcapng file, byte for byte; `-` is standard input.
    #[arg(short = 'r', long = "read", value_name = "FILE")]
    read: Option<String>,

    /// Keep the recorded gaps, this many times as fast.
    #[arg(
        long,
        value_name = "1x|10x",
        requires = "read",
        conflicts_with = "rate"
    )]
    speed: Option<Speed>,

    /// Start again at the end of the file.
    #[arg(long = "loop", requires = "read")]
    repeat: bool,
}

#[derive(Args, Debug)]
#[command(next_help_heading = "Made packets")]
#[group(id = "made", multiple = true, conflicts_with = "read")]
struct MadeArgs {
    /// Bytes of each packet at L2, with the 4 of the frame check sequence. Without it: 64, or what
    /// the headers and the stamp need.
    #[arg(short = 'l', long, value_name = "BYTES")]
    size: Option<u32>,

    /// The simple IMIX: packets of 64, 570 and 1518 bytes, 7 to 4 to 1. No standard fixes the
    /// mix; this is the ratio that test equipment has in common.
    #[arg(long, conflicts_with = "size")]
    imix: bool,

    /// Flows that packets take in turn; each has its own source address and port, counted up.
    #[arg(long, value_name = "NUMBER", default_value_t = 1)]
    flows: u32,

    /// VLAN tag, or two of them, the outer (802.1ad) first.
    #[arg(long, value_name = "ID[,ID]", value_delimiter = ',', num_args = 1)]
    vlan: Vec<u16>,

    /// IPv6 instead of IPv4.
    #[arg(short = '6', long)]
    ipv6: bool,

    /// UDP; this is the default.
    #[arg(long, conflicts_with = "tcp")]
    udp: bool,

    /// TCP segments that belong to no connection.
    #[arg(long)]
    tcp: bool,

    /// Start payloads with a number and a time, so that a reader can prove order and loss.
    #[arg(long)]
    stamp: bool,

    /// Source MAC address. Without it: the interface's own.
    #[arg(long, value_name = "MAC")]
    src_mac: Option<MacAddress>,

    /// Destination MAC address; the default belongs to no interface, so that hosts ignore the packets.
    #[arg(long, value_name = "MAC", default_value_t = Traffic::default().destination_mac)]
    dst_mac: MacAddress,

    /// Source address of the first flow. Without it: 198.18.0.1 or 2001:2::1, for benchmarks.
    #[arg(long, value_name = "IP")]
    src_ip: Option<IpAddr>,

    /// Destination address. Without it: 198.19.0.1 or 2001:2:0:1::1.
    #[arg(long, value_name = "IP")]
    dst_ip: Option<IpAddr>,

    /// Source port of the first flow.
    #[arg(long, value_name = "PORT", default_value_t = Traffic::default().source_port)]
    src_port: u16,

    /// Destination port; 9 is "discard".
    #[arg(long, value_name = "PORT", default_value_t = Traffic::default().destination_port)]
    dst_port: u16,
}

impl LoadArgs {
    /// The load that these flags describe.
    pub(super) fn into_load(self) -> Result<Load> {
        if let Some(path) = self.file.read {
            let speed = match (self.rate, self.file.speed) {
                (Some(rate), _) => Speed::Rate(rate),
                (None, None) => Speed::Recorded { factor: 1.0 },
                (None, Some(speed @ (Speed::TOP | Speed::Recorded { .. }))) => speed,
                (None, Some(Speed::Rate(_))) => {
                    let text =
                        "--speed keeps recorded gaps (1x, 10x): use --rate for a steady rate";
                    return Err(UsageError(text.to_owned()).into());
                }
            };
            return Ok(Load::File {
                path,
                repeat: self.file.repeat,
                speed,
            });
        }
        Ok(Load::Made {
            traffic: self.made.into_traffic(),
            rate: self.rate.unwrap_or(DEFAULT_RATE),
        })
    }
}

impl MadeArgs {
    fn into_traffic(self) -> Traffic {
        let addresses = [self.src_ip, self.dst_ip];
        let is_ipv6 = self.ipv6 || addresses.into_iter().flatten().any(|one| one.is_ipv6());
        let (source, destination) = Traffic::benchmark_addresses(is_ipv6);
        let mut traffic = Traffic {
            sizes: Sizes::Imix,
            flows: self.flows,
            vlans: self.vlan,
            transport: if self.tcp {
                TransportProtocol::Tcp
            } else {
                TransportProtocol::Udp
            },
            source_mac: self.src_mac,
            destination_mac: self.dst_mac,
            source: self.src_ip.unwrap_or(source),
            destination: self.dst_ip.unwrap_or(destination),
            source_port: self.src_port,
            destination_port: self.dst_port,
            stamp: self.stamp,
        };
        if !self.imix {
            let size = self.size.unwrap_or_else(|| traffic.min_size_bytes());
            traffic.sizes = Sizes::Fixed(size);
        }
        traffic
    }
}
