// SPDX-License-Identifier: MIT OR Apache-2.0
//! What to capture from: the flags that all capturing verbs share, and the source they open.
#![forbid(unsafe_code)]

use anyhow::{Context, Result, bail};
use clap::Args;
use ringtap_capture::files::{LinkType, Speed};
use ringtap_capture::filter::Filter;
use ringtap_capture::pcap::{PcapOptions, PcapSource};
use ringtap_pool::source::{Facts, Source};

/// Where packets come from.
#[derive(Args, Debug, Clone)]
pub(crate) struct InputArgs {
    /// Capture file to read, pcap or pcapng; `-` is standard input.
    #[arg(short = 'r', long = "read", value_name = "FILE")]
    file: Option<String>,

    /// How fast a file is read: `top`, `1x` as recorded, `10x`, or `1000pps`.
    #[arg(long, value_name = "SPEED", default_value = "top", requires = "file")]
    speed: Speed,

    /// Keep at most this many bytes of each packet.
    #[arg(short = 's', long = "snap", value_name = "BYTES")]
    snap_length: Option<u32>,

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
    /// Opens the source; it captures from now on.
    pub(crate) fn open(&self) -> Result<Box<dyn Source>> {
        let Some(file) = &self.file else {
            bail!("what to capture? -i DEVICE or -r FILE")
        };
        let options = PcapOptions {
            file: file.clone(),
            speed: self.speed,
            snap_length: self.snap_length,
            pool_bytes: None,
        };
        Ok(Box::new(PcapSource::open(&options)?))
    }

    /// The filter as one text.
    pub(crate) fn filter_text(&self) -> String {
        self.filter.clone().unwrap_or_else(|| self.words.join(" "))
    }

    /// The filter, if there is one that leaves anything out.
    pub(crate) fn filter(&self, facts: &Facts) -> Result<Option<Filter>> {
        let filter = compile(&self.filter_text(), facts)?;
        Ok(Some(filter).filter(|filter| !filter.takes_everything()))
    }
}

/// Compiles a filter for what a source gives.
pub(crate) fn compile(expression: &str, facts: &Facts) -> Result<Filter> {
    let link_type = LinkType(facts.link_type);
    Filter::compile(expression, link_type, facts.snap_length).context("the filter is of no use")
}
