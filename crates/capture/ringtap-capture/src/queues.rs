// SPDX-License-Identifier: MIT OR Apache-2.0
//! Receive queues that a device selects.

use ringtap_device::Queues;
use ringtap_net::interface::Interface;
use ringtap_pool::number::to_u16;

use crate::CaptureError;

/// Number of queues that the programs can select, from 0.
pub(crate) const MOST: u16 = 256;

/// The queues of `interface` that `queues` selects, in ascending order.
///
/// # Errors
///
/// - [`CaptureError::Queue`]: the programs cannot select the queue.
/// - [`CaptureError::NoQueue`]: the interface does not have the queue.
pub fn selected(queues: &Queues, interface: &Interface) -> Result<Vec<u16>, CaptureError> {
    let count = interface.rx_queue_count;
    let name = || interface.name.clone();
    let last = to_u16(count.saturating_sub(1));
    let queue = queues.highest().unwrap_or(last);
    if queue >= MOST {
        let interface = name();
        return Err(CaptureError::Queue { interface, queue });
    }
    if u32::from(queue) >= count && count > 0 {
        return Err(CaptureError::NoQueue {
            interface: name(),
            queue,
            count,
        });
    }
    let queues = (0..=queue).filter(|queue| queues.contains(*queue));
    Ok(queues.collect())
}
