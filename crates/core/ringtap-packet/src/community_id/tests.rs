// SPDX-License-Identifier: MIT OR Apache-2.0
//! Community IDs of the vectors of the public specification, and of packets.

use etherparse::{IcmpEchoHeader, Icmpv4Type, PacketBuilder};
use ringtap_filter::hash::{self, Link, Tunnels};

use super::*;

/// Protocol, source, destination, numbers, identifier with seed 0, identifier with seed 1.
type Vector = (
    u8,
    &'static str,
    &'static str,
    (u16, u16),
    &'static str,
    &'static str,
);

/// All vectors of the public specification's baseline.
#[rustfmt::skip]
const VECTORS: [Vector; 39] = [
    (58, "fe80::200:86ff:fe05:80da", "fe80::260:97ff:fe07:69ea", (135, 136), "1:dGHyGvjMfljg6Bppwm3bg0LO8TY=", "1:kHa1FhMYIT6Ym2Vm2AOtoOARDzY="),
    (58, "fe80::260:97ff:fe07:69ea", "fe80::200:86ff:fe05:80da", (136, 135), "1:dGHyGvjMfljg6Bppwm3bg0LO8TY=", "1:kHa1FhMYIT6Ym2Vm2AOtoOARDzY="),
    (58, "fe80::260:97ff:fe07:69ea", "fe80::200:86ff:fe05:80da", (135, 136), "1:zavyT/cezQr1fmImYCwYnMXbgck=", "1:2hSqmsDZ2kdcY9kbiUzOEBic0iM="),
    (58, "fe80::200:86ff:fe05:80da", "fe80::260:97ff:fe07:69ea", (136, 135), "1:zavyT/cezQr1fmImYCwYnMXbgck=", "1:2hSqmsDZ2kdcY9kbiUzOEBic0iM="),
    (58, "3ffe:501:1800:2345::2", "3ffe:507:0:1:200:86ff:fe05:80da", (3, 0), "1:2ObVBgIn28oZvibYZhZMBgh7WdQ=", "1:lVEtCZpYu84Xqaa++3lXFyuu2n4="),
    (58, "3ffe:501:410:0:2c0:dfff:fe47:33e", "3ffe:507:0:1:200:86ff:fe05:80da", (1, 4), "1:hLZd0XGWojozrvxqE0dWB1iM6R0=", "1:W8MHwXpWzpoSTD+cGcaJr4u0ys8="),
    (58, "3ffe:507:0:1:200:86ff:fe05:80da", "3ffe:501:0:1001::2", (128, 129), "1:+TW+HtLHvV1xnGhV1lv7XoJrqQg=", "1:GfZxjAkDk2MkegpBYHV6tadtFXQ="),
    (58, "3ffe:501:0:1001::2", "3ffe:507:0:1:200:86ff:fe05:80da", (129, 128), "1:+TW+HtLHvV1xnGhV1lv7XoJrqQg=", "1:GfZxjAkDk2MkegpBYHV6tadtFXQ="),
    (58, "fe80::200:86ff:fe05:80da", "ff02::2", (133, 134), "1:hO+sN4H+MG5MY/8hIrXPqc4ZQz0=", "1:L7Ka0ZMYu+J3bL4ulW2PrqyXNo8="),
    (58, "fe80::260:97ff:fe07:69ea", "ff02::1", (134, 133), "1:pkvHqCL88/tg1k4cPigmZXUtL00=", "1:K/ee5UCqAMAQXDorP5nSa2CGLjc="),
    (1, "192.168.0.89", "192.168.0.1", (8, 0), "1:X0snYXpgwiv9TZtqg64sgzUn6Dk=", "1:03g6IloqVBdcZlPyX8r0hgoE7kA="),
    (1, "192.168.0.1", "192.168.0.89", (0, 8), "1:X0snYXpgwiv9TZtqg64sgzUn6Dk=", "1:03g6IloqVBdcZlPyX8r0hgoE7kA="),
    (1, "10.0.0.1", "10.0.0.2", (11, 0), "1:YHxtAirCG//0OzkcVAukqKQN9xM=", "1:XjUibYHaafLQ3pxQeiMI8g25q20="),
    (6, "2001:470:e5bf:dead:4957:2174:e82c:4887", "2607:f8b0:400c:c03::1a", (63943, 25), "1:/qFaeAR+gFe1KYjMzVDsMv+wgU4=", "1:eJYTW6AOzFLlSUoESovMjnu7rMw="),
    (6, "2607:f8b0:400c:c03::1a", "2001:470:e5bf:dead:4957:2174:e82c:4887", (25, 63943), "1:/qFaeAR+gFe1KYjMzVDsMv+wgU4=", "1:eJYTW6AOzFLlSUoESovMjnu7rMw="),
    (132, "192.168.170.8", "192.168.170.56", (7, 7), "1:MP2EtRCAUIZvTw6MxJHLV7N7JDs=", "1:5w3ZRjeKBzqT3zsaEECDGjUbYeg="),
    (132, "192.168.170.56", "192.168.170.8", (7, 7), "1:MP2EtRCAUIZvTw6MxJHLV7N7JDs=", "1:5w3ZRjeKBzqT3zsaEECDGjUbYeg="),
    (6, "128.232.110.120", "66.35.250.204", (34855, 80), "1:LQU9qZlK+B5F3KDmev6m5PMibrg=", "1:3V71V58M3Ksw/yuFALMcW0LAHvc="),
    (6, "66.35.250.204", "128.232.110.120", (80, 34855), "1:LQU9qZlK+B5F3KDmev6m5PMibrg=", "1:3V71V58M3Ksw/yuFALMcW0LAHvc="),
    (17, "192.168.1.52", "8.8.8.8", (54585, 53), "1:d/FP5EW3wiY1vCndhwleRRKHowQ=", "1:Q9We8WO3piVF8yEQBNJF4uiSVrI="),
    (17, "8.8.8.8", "192.168.1.52", (53, 54585), "1:d/FP5EW3wiY1vCndhwleRRKHowQ=", "1:Q9We8WO3piVF8yEQBNJF4uiSVrI="),
    (46, "10.1.12.1", "10.1.12.2", (0, 0), "1:KHlLkgoJW7ifUTyTSgyVfkFHzKw=", "1:rYir8gphR31noO9iDRQmF/BteEI="),
    (46, "10.1.12.2", "10.1.12.1", (0, 0), "1:KHlLkgoJW7ifUTyTSgyVfkFHzKw=", "1:rYir8gphR31noO9iDRQmF/BteEI="),
    (6, "1.2.3.4", "5.6.7.8", (1122, 3344), "1:wCb3OG7yAFWelaUydu0D+125CLM=", "1:HhA1B+6CoLbiKPEs5nhNYN4XWfk="),
    (6, "5.6.7.8", "1.2.3.4", (3344, 1122), "1:wCb3OG7yAFWelaUydu0D+125CLM=", "1:HhA1B+6CoLbiKPEs5nhNYN4XWfk="),
    (17, "1.2.3.4", "5.6.7.8", (1122, 3344), "1:0Mu9InQx6z4ZiCZM/7HXi2WMhOg=", "1:OShq+iKDAMVouh/4bMxB9Sz4amw="),
    (17, "5.6.7.8", "1.2.3.4", (3344, 1122), "1:0Mu9InQx6z4ZiCZM/7HXi2WMhOg=", "1:OShq+iKDAMVouh/4bMxB9Sz4amw="),
    (132, "1.2.3.4", "5.6.7.8", (1122, 3344), "1:EKt4MsxuyaE6mL+hmrEkQ9csDD8=", "1:uitchpn5MMGAQKBJh7bIr/bAr7s="),
    (132, "5.6.7.8", "1.2.3.4", (3344, 1122), "1:EKt4MsxuyaE6mL+hmrEkQ9csDD8=", "1:uitchpn5MMGAQKBJh7bIr/bAr7s="),
    (1, "1.2.3.4", "5.6.7.8", (8, 0), "1:crodRHL2FEsHjbv3UkRrfbs4bZ0=", "1:9pr4ZGTICiuZoIh90RRYE2RyXpU="),
    (1, "5.6.7.8", "1.2.3.4", (0, 0), "1:crodRHL2FEsHjbv3UkRrfbs4bZ0=", "1:9pr4ZGTICiuZoIh90RRYE2RyXpU="),
    (1, "1.2.3.4", "5.6.7.8", (11, 0), "1:f/YiSyWqczrTgfUCZlBUnvHRcPk=", "1:1DD7cWGC/Yg91YGsQeni8du3pIA="),
    (58, "fe80:0001:0203:0405:0607:0809:0a0b:0c0d", "fe80:1011:1213:1415:1617:1819:1a1b:1c1d", (128, 0), "1:0bf7hyMJUwt3fMED7z8LIfRpBeo=", "1:IO27GQzPuCtNnwFvjWALMHu5tJE="),
    (58, "fe80:1011:1213:1415:1617:1819:1a1b:1c1d", "fe80:0001:0203:0405:0607:0809:0a0b:0c0d", (129, 0), "1:0bf7hyMJUwt3fMED7z8LIfRpBeo=", "1:IO27GQzPuCtNnwFvjWALMHu5tJE="),
    (58, "fe80:0001:0203:0405:0607:0809:0a0b:0c0d", "fe80:1011:1213:1415:1617:1819:1a1b:1c1d", (146, 0), "1:fYC8+pz24E+EhANP1EZhpX0Dw10=", "1:Cv4IKJe56BNkF0MBW2YxQ3Nwc3s="),
    (46, "1.2.3.4", "5.6.7.8", (0, 0), "1:ikv3kmf89luf73WPz1jOs49S768=", "1:/buhqeOmaRCopOZFy9HnoJd5XW8="),
    (46, "5.6.7.8", "1.2.3.4", (0, 0), "1:ikv3kmf89luf73WPz1jOs49S768=", "1:/buhqeOmaRCopOZFy9HnoJd5XW8="),
    (46, "fe80:0001:0203:0405:0607:0809:0a0b:0c0d", "fe80:1011:1213:1415:1617:1819:1a1b:1c1d", (0, 0), "1:wQ/2mwrnXP4lmJcHdGL5ePjR+e0=", "1:j6EyyfBzL4vWKHFXgUqb5Az3OxM="),
    (46, "fe80:1011:1213:1415:1617:1819:1a1b:1c1d", "fe80:0001:0203:0405:0607:0809:0a0b:0c0d", (0, 0), "1:wQ/2mwrnXP4lmJcHdGL5ePjR+e0=", "1:j6EyyfBzL4vWKHFXgUqb5Az3OxM="),
];

#[test]
fn identifiers_are_those_of_the_specification() {
    for (protocol, source, destination, numbers, default, seeded) in VECTORS {
        let [source, destination] = [source, destination].map(|one| one.parse().unwrap());
        let with = |seed| CommunityId::from_flow(protocol, source, destination, numbers, seed);
        assert_eq!(with(0).to_string(), default, "{source} {numbers:?}");
        assert_eq!(with(1).to_string(), seeded, "{source} {numbers:?}");
    }
}

#[test]
fn a_text_is_read_back_and_others_are_refused() {
    for (.., default, seeded) in VECTORS {
        for text in [default, seeded] {
            assert_eq!(text.parse::<CommunityId>().unwrap().to_string(), text);
        }
    }
    for wrong in [
        "",
        "1:",
        "2:LQU9qZlK+B5F3KDmev6m5PMibrg=",
        "LQU9qZlK+B5F3KDmev6m5PMibrg=",
        "1:LQU9qZlK+B5F3KDmev6m5PMibr==",
        "1:LQU9qZlK+B5F3KDmev6m5PMibrgA",
        "1:LQU9qZlK B5F3KDmev6m5PMibrg=",
    ] {
        assert_eq!(
            wrong.parse::<CommunityId>(),
            Err(CommunityIdError),
            "{wrong}"
        );
    }
}

fn of_frame(frame: &[u8]) -> Option<String> {
    let ip = hash::ip(frame, Link::Ethernet, Tunnels::None)?;
    Some(CommunityId::from_packet(&ip, 0)?.to_string())
}

const ENDS: ([u8; 4], [u8; 4]) = ([1, 2, 3, 4], [5, 6, 7, 8]);

fn udp() -> Vec<u8> {
    let mut frame = Vec::new();
    PacketBuilder::ethernet2([0; 6], [1; 6])
        .ipv4(ENDS.0, ENDS.1, 64)
        .udp(1122, 3344)
        .write(&mut frame, &[0; 16])
        .unwrap();
    frame
}

#[test]
fn a_packet_has_the_identifier_of_its_flow() {
    assert_eq!(of_frame(&udp()).unwrap(), "1:0Mu9InQx6z4ZiCZM/7HXi2WMhOg=");
    let echo = IcmpEchoHeader { id: 7, seq: 1 };
    for (from, to, kind) in [
        (ENDS.0, ENDS.1, Icmpv4Type::EchoRequest(echo)),
        (ENDS.1, ENDS.0, Icmpv4Type::EchoReply(echo)),
    ] {
        let mut frame = Vec::new();
        let builder = PacketBuilder::ethernet2([0; 6], [1; 6]).ipv4(from, to, 64);
        builder.icmpv4(kind).write(&mut frame, &[]).unwrap();
        assert_eq!(of_frame(&frame).unwrap(), "1:crodRHL2FEsHjbv3UkRrfbs4bZ0=");
    }
}

#[test]
fn only_the_fragment_with_the_ports_has_an_identifier() {
    let mut frame = udp();
    frame[14 + 6] = 0x20;
    assert_eq!(of_frame(&frame), of_frame(&udp()));
    frame[14 + 7] = 3;
    assert_eq!(of_frame(&frame), None);
}

#[test]
fn a_packet_that_was_cut_before_its_ports_has_none() {
    for length in 0..14 + 20 + 4 {
        assert_eq!(of_frame(&udp()[..length]), None, "{length} bytes");
    }
}
