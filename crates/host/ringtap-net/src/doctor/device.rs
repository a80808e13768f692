// SPDX-License-Identifier: MIT OR Apache-2.0
//! Findings about an interface.

use crate::netlink::XdpFeatures;

use super::answers::DeviceAnswers;
use super::findings::{Diagnosis, Remedy};

/// Largest MTU with which drivers keep a packet in one page beside XDP's headroom, in bytes.
const ONE_PAGE_MTU: u64 = 3_498;

/// Drivers that stop and start their queues when the first XDP program is attached.
const RESETS: [&str; 10] = [
    "bnxt_en",
    "ena",
    "i40e",
    "ice",
    "igb",
    "igc",
    "ixgbe",
    "mlx4_en",
    "mlx5_core",
    "nfp",
];

/// Diagnoses of the interface from these answers, on a machine with this number of CPUs.
pub(super) fn diagnose(name: &str, answers: &DeviceAnswers, cpus: usize) -> Vec<Diagnosis> {
    let mut all = Vec::new();
    if !answers.has_ethtool() {
        let why = "without ethtool, queues, rings and offloads are unknown: install it";
        all.push(Diagnosis::note("ethtool", "does not answer", why));
    }
    all.extend(link(name, answers));
    all.extend(other_program(name, answers));
    all.push(xdp(answers));
    all.extend(resets(answers));
    all.extend(jumbo(answers));
    all.extend(merging(name, answers));
    all.extend(vlan(name, answers));
    all.extend(queues(name, answers, cpus));
    all.extend(rings(name, answers));
    all.extend(symmetry(name, answers));
    all.extend(stamps(answers));
    all
}

fn link(name: &str, answers: &DeviceAnswers) -> Option<Diagnosis> {
    let flags = answers.link["flags"].as_array()?;
    let has = |flag: &str| flags.iter().any(|one| one == flag);
    Some(match (has("UP"), has("LOWER_UP")) {
        (true, true) => Diagnosis::good("link", "is up"),
        (true, false) => Diagnosis::note(
            "link",
            "has no carrier",
            "a capture waits for it: check the cable",
        ),
        (false, _) => Diagnosis::bad(
            "link",
            "is down",
            format!("no packet arrives: `ip link set {name} up`"),
        ),
    })
}

fn other_program(name: &str, answers: &DeviceAnswers) -> Option<Diagnosis> {
    let id = answers.link["xdp"]["prog"]["id"].as_u64()?;
    Some(Diagnosis::note(
        "XDP program",
        format!("one is attached (id {id})"),
        format!(
            "a running Ringtap's, or another one, beside which only `tap:{name}?mode=tc` works"
        ),
    ))
}

fn xdp(answers: &DeviceAnswers) -> Diagnosis {
    match answers.xdp {
        None => Diagnosis::note(
            "XDP",
            "the kernel does not tell what the driver can (before 6.3)",
            "`ringtap count -i` tries native XDP and prints what it uses",
        ),
        Some(features) if !features.native() => Diagnosis::note(
            "XDP",
            "not in this driver",
            "`tap` uses the tc hook (kernel 6.6) or generic XDP, at about half the rate",
        ),
        Some(features) if features.zero_copy() => {
            Diagnosis::good("XDP", "native, AF_XDP without a copy")
        }
        Some(_) => Diagnosis::good("XDP", "native; AF_XDP copies"),
    }
}

fn resets(answers: &DeviceAnswers) -> Option<Diagnosis> {
    let driver = answers.driver()?;
    let why = "packets of that moment are lost, also those of the host: start captures early and keep them running";
    RESETS.contains(&driver).then(|| {
        let found = format!("{driver} restarts its queues when a capture by XDP begins or ends");
        Diagnosis::note("attaching", found, why)
    })
}

fn jumbo(answers: &DeviceAnswers) -> Option<Diagnosis> {
    let mtu = answers.link["mtu"].as_u64()?;
    let lacks = |xdp: XdpFeatures| xdp.native() && !xdp.several_buffers();
    (mtu > ONE_PAGE_MTU && answers.xdp.is_some_and(lacks)).then(|| {
        Diagnosis::bad(
            "MTU",
            format!("{mtu} bytes, and the driver's XDP takes packets of one page only"),
            "native XDP is refused, and `tap` uses the tc hook or generic XDP: an MTU below 3498 avoids that",
        )
    })
}

/// Packets that the NIC or its driver merges before any capture sees them.
fn merging(name: &str, answers: &DeviceAnswers) -> Vec<Diagnosis> {
    let mut all = Vec::new();
    for (feature, flag) in [("large-receive-offload", "lro"), ("rx-gro-hw", "rx-gro-hw")] {
        let Some(switch) = answers.switch(feature) else {
            continue;
        };
        if !switch.is_on {
            all.push(Diagnosis::good("merging", format!("{feature} is off")));
            continue;
        }
        let found = Diagnosis::bad(
            "merging",
            format!("{feature} is on"),
            "the NIC merges packets of a connection: a capture does not see those of the wire",
        );
        all.push(if switch.is_fixed {
            found
        } else {
            found.with(feature_off(name, flag))
        });
    }
    if answers
        .switch("generic-receive-offload")
        .is_some_and(|it| it.is_on)
    {
        let why = "`packet` captures merged packets and marks them; `tap` and `xdp` see those of the wire";
        all.push(Diagnosis::note(
            "merging",
            "generic-receive-offload is on",
            why,
        ));
    }
    all
}

fn feature_off(name: &str, flag: &str) -> Remedy {
    Remedy::new(
        &format!("ethtool -K {name} {flag} off"),
        &format!("ethtool -K {name} {flag} on"),
    )
}

fn vlan(name: &str, answers: &DeviceAnswers) -> Option<Diagnosis> {
    let switch = answers.switch("rx-vlan-offload")?;
    let xdp = answers.xdp?;
    if !switch.is_on || !xdp.native() || xdp.tells_vlan() {
        return None;
    }
    let found = Diagnosis::note(
        "VLAN tags",
        "the NIC strips them and the driver does not tell XDP",
        "`tap` uses the tc hook, which is slower than native XDP",
    );
    Some(if switch.is_fixed {
        found
    } else {
        found.with(feature_off(name, "rxvlan"))
    })
}

fn queues(name: &str, answers: &DeviceAnswers, cpus: usize) -> Option<Diagnosis> {
    let (kind, amount) = ["Combined", "RX"]
        .into_iter()
        .find_map(|kind| Some((kind, answers.amount("-l", kind).filter(|it| it.most > 0)?)))?;
    let wanted = amount.most.min(u32::try_from(cpus).unwrap_or(u32::MAX));
    if amount.now > 1 || wanted <= 1 {
        return Some(Diagnosis::good(
            "queues",
            format!("{} of {}", amount.now, amount.most),
        ));
    }
    let kind = kind.to_lowercase();
    let found = format!("one of {} is in use", amount.most);
    let why = "one CPU receives all packets; changing it restarts the queues";
    let set = |count| format!("ethtool -L {name} {kind} {count}");
    let remedy = Remedy::new(&set(wanted), &set(amount.now));
    Some(Diagnosis::note("queues", found, why).with(remedy))
}

fn rings(name: &str, answers: &DeviceAnswers) -> Option<Diagnosis> {
    let amount = answers.amount("-g", "RX")?;
    let found = format!("{} of {} receive descriptors", amount.now, amount.most);
    if amount.now >= amount.most {
        return Some(Diagnosis::good("rings", found));
    }
    let why = "a burst that the CPU does not take at once overflows the ring (dropped.nic); changing it restarts the queues";
    let set = |count| format!("ethtool -G {name} rx {count}");
    let remedy = Remedy::new(&set(amount.most), &set(amount.now));
    Some(Diagnosis::note("rings", found, why).with(remedy))
}

fn symmetry(name: &str, answers: &DeviceAnswers) -> Option<Diagnosis> {
    let key = answers.hash_key()?;
    let bytes: Vec<_> = key.split(':').collect();
    let has_period_two = bytes.chunks(2).all(|pair| bytes.starts_with(pair));
    if has_period_two || answers.text("-x").contains("symmetric-xor: on") {
        return Some(Diagnosis::good(
            "RSS",
            "both directions of a connection use one queue",
        ));
    }
    let mut even = ["6d", "5a"].into_iter().cycle().take(bytes.len());
    let even = even.by_ref().collect::<Vec<_>>().join(":");
    let remedy = Remedy::new(
        &format!("ethtool -X {name} hkey {even}"),
        &format!("ethtool -X {name} hkey {key}"),
    );
    let why = "the directions of a connection use two queues, whose packets are in order only by their times; \
               groups are not affected: Ringtap's own hash is symmetric";
    Some(Diagnosis::note("RSS", "asymmetric key", why).with(remedy))
}

fn stamps(answers: &DeviceAnswers) -> Option<Diagnosis> {
    let text = answers.text("-T");
    if text.is_empty() {
        return None;
    }
    let is_all = text
        .split_once("Hardware Receive Filter Modes:")
        .is_some_and(|(_, modes)| {
            modes
                .lines()
                .any(|line| line.split_whitespace().next() == Some("all"))
        });
    let found = match (text.contains("hardware-receive"), is_all) {
        (true, true) if answers.xdp.is_some_and(XdpFeatures::tells_stamps) => {
            "by the kernel's clock; `-j adapter_unsynced`: by the NIC's"
        }
        (true, true) => {
            "by the kernel's clock; `-j adapter_unsynced`: by the NIC's, with `packet` only"
        }
        (true, false) => "by the kernel's clock: the NIC stamps PTP packets only",
        (false, _) => "by the kernel's clock",
    };
    Some(Diagnosis::good("time stamps", found))
}
