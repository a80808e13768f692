// SPDX-License-Identifier: MIT OR Apache-2.0
//! Decides by a device's name whether Ringtap or the real library reads it; lists groups of the hub.

use std::path::Path;

use ringtap_client::{Connection, HOST_FOLDER, default_socket};
use ringtap_device::{DeviceSpec, Kind, kinds};
use ringtap_ipc::environment;

use crate::error::LibpcapError;
use crate::messages;

/// The reader of a device.
#[derive(Debug, PartialEq)]
pub(crate) enum Route {
    /// Ringtap, as this device.
    Ringtap(Box<DeviceSpec>),
    /// Ringtap, in the best way for this network interface.
    Interface(String),
    /// The real library.
    Libpcap,
}

impl Route {
    /// The route for a device, given the value of `RINGTAP_VIA`.
    pub(crate) fn for_device(name: Option<&str>, via: Option<&str>) -> Result<Self, LibpcapError> {
        let ringtap = |text: &str| match text.parse::<DeviceSpec>() {
            Ok(device) => Ok(Route::Ringtap(Box::new(device))),
            Err(error) => Err(LibpcapError::general(error.to_string())),
        };
        if let Some(name) = name.filter(|name| has_prefix(name)) {
            return ringtap(name);
        }
        // Its link types differ from those of every device of Ringtap's.
        let Some(name) = name.filter(|name| *name != "any") else {
            return Ok(Route::Libpcap);
        };
        let interface = Some(name).filter(|name| is_interface(name));
        let kind = match via.unwrap_or("auto") {
            "libpcap" => return Ok(Route::Libpcap),
            device if has_prefix(device) => return ringtap(device),
            "" | "auto" => None,
            word => {
                let found = kinds::interface_kinds().find(|kind| kind.word == word);
                Some(found.ok_or_else(|| {
                    let ways = kinds::substitutes();
                    LibpcapError::general(format!(
                        "RINGTAP_VIA={word}: expected {ways}, auto or libpcap"
                    ))
                })?)
            }
        };
        Ok(match (interface, kind) {
            (None, _) => Route::Libpcap,
            (Some(name), None) => Route::Interface(name.to_owned()),
            (Some(name), Some(kind)) => Route::Ringtap(Box::new(DeviceSpec::new(kind, name))),
        })
    }
}

/// The user's choice for all interfaces: `ringtap exec --via`.
pub(crate) fn via() -> Option<String> {
    environment::variable("RINGTAP_VIA")?.into_string().ok()
}

/// Prints that `any` is not read by the device that the user chose for all interfaces.
pub(crate) fn say_if_around(name: Option<&str>, via: Option<&str>) {
    if let (None | Some("any"), Some(via)) = (name, via)
        && has_prefix(via)
    {
        messages::once(&format!(
            "any is read through libpcap, not by {via}: name an interface, or {via} itself"
        ));
    }
}

/// Whether this is the name of a Ringtap device.
pub(crate) fn has_prefix(name: &str) -> bool {
    DeviceSpec::kind_of(name).is_some()
}

fn is_interface(name: &str) -> bool {
    !name.contains('/') && Path::new("/sys/class/net").join(name).exists()
}

/// Device name and description of each group of the machine's hub, and of its host's; empty if there is
/// no hub, or if the hub refuses this user.
pub(crate) fn groups() -> Vec<(String, String)> {
    let sockets = std::fs::read_dir(HOST_FOLDER).into_iter().flatten();
    let of_host = sockets.filter_map(|socket| Some((&kinds::HOST, socket.ok()?.path())));
    let sockets = [(&kinds::HUB, default_socket())].into_iter().chain(of_host);
    sockets
        .flat_map(|(kind, socket)| groups_at(kind, &socket))
        .collect()
}

fn groups_at(kind: &Kind, socket: &Path) -> Vec<(String, String)> {
    let hub = Connection::open(socket, "libpcap").ok();
    let Some(status) = hub.and_then(|hub| hub.status().ok()) else {
        return Vec::new();
    };
    let sources: Vec<_> = status.sources.iter().map(|one| &*one.device).collect();
    let sources = sources.join(", ");
    let groups = status.groups.iter().map(|group| {
        let description = if group.filter.is_empty() {
            format!("Ringtap's capture of {sources}")
        } else {
            format!("Ringtap's capture of {sources}: {}", group.filter)
        };
        (format!("{kind}:{}", group.name), description)
    });
    groups.collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_of_ringtap_is_its_device_and_others_are_the_real_librarys() {
        let of = |name, via| Route::for_device(Some(name), via).map_err(|error| error.text);
        let device = |text: &str| Ok(Route::Ringtap(Box::new(text.parse().unwrap())));
        assert_eq!(of("hub:web", None), device("hub:web"));
        assert_eq!(of("tap:lo@0", Some("libpcap")), device("tap:lo@0"));
        assert_eq!(of("lo", None), Ok(Route::Interface("lo".into())));
        assert_eq!(of("lo", Some("libpcap")), Ok(Route::Libpcap));
        assert_eq!(of("lo", Some("hub:web")), device("hub:web"));
        assert_eq!(of("lo", Some("packet")), device("packet:lo"));
        assert_eq!(of("any", Some("hub:web")), Ok(Route::Libpcap));
        assert_eq!(of("any", Some("tap")), Ok(Route::Libpcap));
        for other in ["usbmon0", "any", "eth0:1"] {
            assert_eq!(of(other, None), Ok(Route::Libpcap), "{other}");
        }
        let refused = of("lo", Some("tape")).unwrap_err();
        assert!(
            refused.contains("expected hub:GROUP, host:GROUP"),
            "{refused}"
        );
        assert!(of("hub:", None).is_err());
    }
}
