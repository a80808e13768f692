// SPDX-License-Identifier: MIT OR Apache-2.0
//! Time stamps of the NIC (`stamps=adapter_unsynced`): which devices have them, and switching them on.
//!
//! Invariants
//! - A device that cannot stamp every received packet is refused; no other clock takes its place.

use ringtap_device::{DeviceSpec, Direction, Mode, StampClock};
use ringtap_net::interface::{Interface, NicStamps};
use ringtap_net::netlink::{XdpFeatures, xdp_features};

use crate::CaptureError;

/// The clock of the packets in words, if it is not the host's.
pub(crate) fn time_from(clock: StampClock) -> Option<String> {
    (clock == StampClock::Nic).then(|| {
        "the clock of the network adapter, as it is (adapter_unsynced): not compared with the host's"
            .to_owned()
    })
}

/// Makes the NIC stamp every received packet if the device asks for that.
///
/// # Errors
///
/// [`CaptureError::NoNicStamps`] with the reason, or why the driver refused.
pub(crate) fn enable(device: &DeviceSpec) -> Result<(), CaptureError> {
    if device.options.stamps != Some(StampClock::Nic) {
        return Ok(());
    }
    let interface = Interface::find(&device.name)?;
    let xdp = xdp_features(interface.index);
    if let Some(reason) = refusal(device, interface.nic_stamps(), xdp) {
        let device = device.to_string();
        return Err(CaptureError::NoNicStamps { device, reason });
    }
    let action = "switching on the time stamps of the NIC (needs CAP_NET_ADMIN)";
    interface
        .stamp_received()
        .map_err(CaptureError::system(&interface.name, action))
}

/// Why the device cannot have time stamps of the NIC.
fn refusal(
    device: &DeviceSpec,
    stamps: NicStamps,
    xdp: Option<XdpFeatures>,
) -> Option<&'static str> {
    let options = &device.options;
    let is_xdp = !device.kind.hooks.is_empty();
    Some(match stamps {
        NicStamps::None => {
            "the NIC stamps no packets: use stamps=host (`ringtap devices` lists what can stamp)"
        }
        NicStamps::Ptp => "the NIC stamps packets of PTP only: use stamps=host",
        NicStamps::All if options.wait => {
            "the NIC's stamps are not for `wait`: leave one of them out"
        }
        NicStamps::All if options.direction.is_some_and(Direction::leaving) => {
            "the NIC stamps received packets only: use direction=in"
        }
        NicStamps::All if is_xdp && matches!(options.mode, Some(Mode::Generic | Mode::Tc)) => {
            "only native XDP has the NIC's stamps: use mode=native, or packet"
        }
        NicStamps::All if is_xdp && !xdp.is_some_and(XdpFeatures::tells_stamps) => {
            "the driver gives XDP no time stamps (kernel 6.3 or later, and few drivers): use packet"
        }
        NicStamps::All => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_cannot_stamp_is_refused_with_the_reason() {
        let told = Some(XdpFeatures::new(1, 1));
        let vlan_only = Some(XdpFeatures::new(1, 4));
        for (device, stamps, xdp, wanted) in [
            ("tap:e", NicStamps::None, told, "stamps no packets"),
            ("packet:e", NicStamps::Ptp, told, "PTP only"),
            ("tap:e?wait", NicStamps::All, told, "`wait`"),
            (
                "packet:e?direction=out",
                NicStamps::All,
                told,
                "received packets only",
            ),
            (
                "e?direction=inout",
                NicStamps::All,
                told,
                "received packets only",
            ),
            ("tap:e?mode=tc", NicStamps::All, told, "only native XDP"),
            ("tap:e", NicStamps::All, vlan_only, "use packet"),
            ("e", NicStamps::All, None, "use packet"),
            (
                "xdp:e?mode=generic",
                NicStamps::All,
                told,
                "only native XDP",
            ),
            ("xdp:e", NicStamps::All, vlan_only, "use packet"),
        ] {
            let parsed = device.parse().expect(device);
            let found = refusal(&parsed, stamps, xdp).unwrap_or_default();
            assert!(found.contains(wanted), "{device}: {found}");
        }
        for device in ["tap:e", "xdp:e", "e?direction=in", "packet:e"] {
            let parsed = device.parse().expect(device);
            assert_eq!(refusal(&parsed, NicStamps::All, told), None);
        }
    }
}
