// SPDX-License-Identifier: MIT OR Apache-2.0
//! Notifications to systemd of a hub that it started (`Type=notify`, `WatchdogSec=`).

use sd_notify::NotifyState;

use crate::print;

/// Tells systemd; does nothing if systemd did not start this process.
pub(super) fn tell(state: NotifyState<'_>) {
    if let Err(error) = sd_notify::notify(&[state]) {
        print::note(format_args!("ringtap: cannot notify systemd: {error}"));
    }
}
