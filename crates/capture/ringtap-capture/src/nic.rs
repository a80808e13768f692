// SPDX-License-Identifier: MIT OR Apache-2.0
//! Number of packets that an interface lost since a capture began.
#![forbid(unsafe_code)]

use ringtap_net::interface::Interface;
use ringtap_net::netlink::Losses;

use crate::CaptureError;

/// Counts the packets that an interface loses from now on.
pub struct NicLosses {
    losses: Losses,
    lost_before: u64,
    not_sent_before: u64,
    lost: u64,
    is_final: bool,
}

impl NicLosses {
    /// Begins to count.
    ///
    /// # Errors
    ///
    /// [`CaptureError::System`]
    pub fn of(interface: &Interface) -> Result<Self, CaptureError> {
        let action = "opening a netlink socket";
        let losses = Losses::of(interface.index);
        let losses = losses.map_err(CaptureError::system(&interface.name, action))?;
        Ok(NicLosses {
            lost_before: losses.now().unwrap_or(0),
            not_sent_before: losses.not_sent().unwrap_or(0),
            losses,
            lost: 0,
            is_final: false,
        })
    }

    /// Packets lost on arrival, as last reported by the interface.
    pub fn lost(&mut self) -> u64 {
        if !self.is_final
            && let Some(now) = self.losses.now()
        {
            self.lost = now.saturating_sub(self.lost_before);
        }
        self.lost
    }

    /// Reads the losses on arrival for the last time.
    pub fn finish(&mut self) {
        self.lost();
        self.is_final = true;
    }

    /// Packets that the interface dropped instead of sending them.
    #[must_use]
    pub fn not_sent(&self) -> u64 {
        let now = self.losses.not_sent().unwrap_or(0);
        now.saturating_sub(self.not_sent_before)
    }
}
