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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_queue_that_the_interface_or_the_programs_do_not_have_is_refused() {
        let interface = Interface::find("lo").expect("every namespace has a loopback");
        let of = |queues: &[u16]| {
            let queues = queues.iter().map(|queue| *queue..=*queue);
            selected(&Queues::chosen(queues), &interface)
        };
        let refused = of(&[0, 1]).unwrap_err();
        let said = "lo has no receive queue 1: it has 1, numbered from 0";
        assert_eq!(refused.to_string(), said);
        assert_eq!(of(&[0]).unwrap(), [0]);
        let unknown = of(&[256]).unwrap_err();
        assert!(matches!(unknown, CaptureError::Queue { queue: 256, .. }));
    }
}
