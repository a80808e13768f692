// SPDX-License-Identifier: MIT OR Apache-2.0
//! The pool of a hub's source as a device of the guest, which then reads packets without a copy.
//!
//! Invariants
//! - Only a group that grants every packet of the only source is read in place: all that the pool holds
//!   is the guest's to read.
#![forbid(unsafe_code)]

use std::io;
use std::os::fd::{AsFd as _, OwnedFd};

use ringtap_client::{Connection, SubscriptionRequest};
use ringtap_filter::Program;
use ringtap_ipc::protocol::{Delivery, HubStatus};
use ringtap_ipc::subscription::{Endpoint, Subscription};
use ringtap_pool::control::control_bytes;
use ringtap_pool::distributor::Policy;
use ringtap_pool::number::to_u64;
use ringtap_vnplug::host::{GuestVm, HostDevice};

use super::GroupOptions;
use super::commands::text;
use crate::messages::{APPLICATION, DevicePart};

/// The plugged pool of a source.
pub(super) struct SourcePool {
    /// All of the pool.
    pub(super) part: DevicePart,
    /// Device and number of its file.
    file: (u64, u64),
}

impl SourcePool {
    /// Plugs the pool of the hub's only source, if a group may be read in place.
    ///
    /// # Errors
    ///
    /// Why packets are copied, for the user.
    pub(super) fn plug(
        vm: &mut GuestVm,
        options: &GroupOptions,
    ) -> Result<(Self, HostDevice), String> {
        let file = find(options)?;
        let device = vm.plug_file(APPLICATION, file.as_fd()).map_err(text)?;
        let pool = SourcePool::of(&file, device.id().0, to_u64(device.memory().bytes()));
        Ok((pool.map_err(text)?, device))
    }

    pub(super) fn of(file: &OwnedFd, device: u64, bytes: u64) -> io::Result<Self> {
        Ok(SourcePool {
            part: DevicePart {
                device,
                at: 0,
                bytes,
            },
            file: number(file)?,
        })
    }

    /// Whether the guest reads this subscription in place, with this much memory for its control region.
    ///
    /// # Errors
    ///
    /// Why not.
    pub(super) fn serves(
        &self,
        status: &HubStatus,
        group: &str,
        subscription: &Subscription,
        control_room: u64,
    ) -> Result<(), String> {
        let endpoint = readable_in_place(status, group, subscription)?;
        let files = endpoint.files.as_ref();
        let is_same = files.is_some_and(|files| number(&files.pool).ok() == Some(self.file));
        if !is_same {
            return Err("the hub has another pool than when the VM was attached".to_owned());
        }
        if to_u64(control_bytes(endpoint.pool.geometry())) <= control_room {
            Ok(())
        } else {
            Err("the source's pool has too many chunks".to_owned())
        }
    }
}

/// The file of the pool of the first group that may be read in place.
pub(super) fn find(options: &GroupOptions) -> Result<OwnedFd, String> {
    let mut why = String::new();
    for group in &options.groups {
        let connection = Connection::open(&options.socket, &options.vm).map_err(text)?;
        let status = connection.status().map_err(text)?;
        let request = SubscriptionRequest {
            filter: Program::nothing(),
            credit_chunks: Some(1),
            ..SubscriptionRequest::new(group, &options.vm)
        };
        let subscription = connection.subscribe(&request).map_err(text)?;
        match readable_in_place(&status, group, &subscription) {
            Ok(_) => {
                let files = subscription.endpoints.into_iter().find_map(|one| one.files);
                let files = files.ok_or("the hub gives no file of its pool")?;
                return Ok(files.pool);
            }
            Err(reason) => why = format!("group {group}: {reason}"),
        }
    }
    Err(why)
}

/// The only source of a subscription, if its group grants every packet of that source.
fn readable_in_place<'a>(
    status: &HubStatus,
    group: &str,
    subscription: &'a Subscription,
) -> Result<&'a Endpoint, String> {
    let [endpoint] = &subscription.endpoints[..] else {
        return Err("the hub has several sources".to_owned());
    };
    let found = status.groups.iter().find(|one| one.name == group);
    let grants_all = found.is_some_and(|one| {
        let is_open = one.grants_everything() && one.delivery == Delivery::Shared;
        is_open && endpoint.wanted.group == 0
    });
    if !grants_all {
        return Err(
            "it does not grant every packet of the source: it has a filter, divides packets or has \
             private delivery"
                .to_owned(),
        );
    }
    if !endpoint.pool.geometry().region_bytes().is_power_of_two() {
        return Err(
            "its pool's size is no power of two: start the hub with pool=64MiB or the like"
                .to_owned(),
        );
    }
    match endpoint.facts.policy {
        Policy::DropNewest => Ok(endpoint),
        _ => Err("its packets are cut or sampled, or the source waits for readers".to_owned()),
    }
}

/// Device and number of a file.
fn number(file: &OwnedFd) -> io::Result<(u64, u64)> {
    let stat = rustix::fs::fstat(file)?;
    Ok((stat.st_dev, stat.st_ino))
}
