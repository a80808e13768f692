// SPDX-License-Identifier: MIT OR Apache-2.0
//! TLS that does not begin a connection, hellos that are long, and servers that ask for a second hello.

use super::*;

/// What is sent before TLS: the sender and the bytes.
type Dialogue = &'static [(End, &'static [u8])];

/// The protocols of RFC 3207, 2595, 4217, 4511, 6120, 1928, 9110 (9.3.6), of PostgreSQL and of [MS-RDPBCGR].
const DIALOGUES: [(&str, Dialogue); 11] = [
    (
        "SMTP",
        &[
            (WEB, b"220 mail.example.org ESMTP\r\n"),
            (CLIENT, b"EHLO client\r\n"),
            (WEB, b"250-mail.example.org\r\n250 STARTTLS\r\n"),
            (CLIENT, b"STARTTLS\r\n"),
            (WEB, b"220 Go ahead\r\n"),
        ],
    ),
    (
        "IMAP",
        &[
            (WEB, b"* OK ready\r\n"),
            (CLIENT, b"a STARTTLS\r\n"),
            (WEB, b"a OK begin\r\n"),
        ],
    ),
    (
        "POP3",
        &[
            (WEB, b"+OK ready\r\n"),
            (CLIENT, b"STLS\r\n"),
            (WEB, b"+OK begin\r\n"),
        ],
    ),
    (
        "FTP",
        &[
            (WEB, b"220 ready\r\n"),
            (CLIENT, b"AUTH TLS\r\n"),
            (WEB, b"234 begin\r\n"),
        ],
    ),
    (
        "LDAP",
        &[
            (
                CLIENT,
                b"\x30\x1d\x02\x01\x01\x77\x18\x80\x161.3.6.1.4.1.1466.20037",
            ),
            (
                WEB,
                b"\x30\x0c\x02\x01\x01\x78\x07\x0a\x01\x00\x04\x00\x04\x00",
            ),
        ],
    ),
    (
        "XMPP",
        &[
            (CLIENT, b"<stream:stream to='example.org'>"),
            (WEB, b"<stream:features><starttls/></stream:features>"),
            (
                CLIENT,
                b"<starttls xmlns='urn:ietf:params:xml:ns:xmpp-tls'/>",
            ),
            (WEB, b"<proceed xmlns='urn:ietf:params:xml:ns:xmpp-tls'/>"),
        ],
    ),
    (
        "PostgreSQL",
        &[(CLIENT, b"\x00\x00\x00\x08\x04\xd2\x16\x2f"), (WEB, b"S")],
    ),
    (
        "RDP",
        &[
            (
                CLIENT,
                b"\x03\x00\x00\x13\x0e\xe0\x00\x00\x00\x00\x00\x01\x00\x08\x00\x03\x00\x00\x00",
            ),
            (
                WEB,
                b"\x03\x00\x00\x13\x0e\xd0\x00\x00\x12\x34\x00\x02\x00\x08\x00\x01\x00\x00\x00",
            ),
        ],
    ),
    (
        "SOCKS 4",
        &[
            (CLIENT, b"\x04\x01\x01\xbb\x0a\x00\x00\x09\x00"),
            (WEB, b"\x00\x5a\x01\xbb\x0a\x00\x00\x09"),
        ],
    ),
    (
        "SOCKS 5",
        &[
            (CLIENT, b"\x05\x01\x00"),
            (WEB, b"\x05\x00"),
            (CLIENT, b"\x05\x01\x00\x01\x0a\x00\x00\x09\x01\xbb"),
            (WEB, b"\x05\x00\x00\x01\x0a\x00\x00\x09\x01\xbb"),
        ],
    ),
    (
        "CONNECT",
        &[
            (
                CLIENT,
                b"CONNECT www.example.org:443 HTTP/1.1\r\nHost: www.example.org:443\r\n\r\n",
            ),
            (WEB, b"HTTP/1.1 200 Connection established\r\n\r\n"),
        ],
    ),
];

/// Two ends of a connection with their sequence numbers.
struct Talk(Inspected, [u32; 2]);

impl Talk {
    fn new() -> Self {
        Talk(Inspected::new(FlowOptions::default()), [1000, 9000])
    }

    fn say(&mut self, from: End, bytes: &[u8]) {
        let (to, at) = if from == CLIENT {
            (WEB, 0)
        } else {
            (CLIENT, 1)
        };
        for segment in bytes.chunks(1400) {
            self.0.tcp(from, to, self.1[at], segment);
            self.1[at] += u32::try_from(segment.len()).expect("small");
        }
    }

    /// Texts of the flow, and how many flows could not be read.
    fn end(self) -> (Details, u64) {
        let (flows, _, counters) = self.0.end();
        let details = flows[0].details.clone();
        (
            details.map(|own| *own).unwrap_or_default(),
            counters.payload_unread,
        )
    }
}

/// A record with a ServerHello of TLS 1.3.
fn server_hello(random: [u8; 32], suite: [u8; 2]) -> Vec<u8> {
    let versions = [&[0, 43][..], &list(2, &[3, 4])].concat();
    let body = [
        &[3, 3][..],
        &random,
        &[0],
        &suite,
        &[0],
        &list(2, &versions),
    ]
    .concat();
    let handshake = [&[2][..], &list(3, &body)].concat();
    [&[22, 3, 3][..], &list(2, &handshake)].concat()
}

#[test]
fn tls_is_found_behind_the_protocols_that_begin_it() {
    for (name, dialogue) in DIALOGUES {
        let mut talk = Talk::new();
        for (from, bytes) in dialogue {
            talk.say(*from, bytes);
        }
        talk.say(CLIENT, &client_hello("www.example.org"));
        talk.say(WEB, &server_hello([5; 32], [0x13, 2]));
        let (details, unread) = talk.end();
        assert_eq!(details.application.as_deref(), Some("tls"), "{name}");
        assert_eq!(
            details.server_name.as_deref(),
            Some("www.example.org"),
            "{name}"
        );
        assert_eq!(
            details.tls_cipher.as_deref(),
            Some("TLS_AES_256_GCM_SHA384"),
            "{name}"
        );
        assert_eq!(unread, 0, "{name}");
    }
}

#[test]
fn tls_is_looked_for_in_a_bounded_number_of_segments() {
    for (before, found) in [(32, true), (33, false)] {
        let mut talk = Talk::new();
        for _ in 0..before {
            talk.say(CLIENT, b"more of another protocol");
        }
        talk.say(CLIENT, &client_hello("www.example.org"));
        let (details, unread) = talk.end();
        assert_eq!(details.server_name.is_some(), found, "{before}");
        assert_eq!(unread, 0, "{before}");
    }
}

#[test]
fn a_hello_may_fill_the_longest_record() {
    let mut talk = Talk::new();
    talk.say(CLIENT, &padded_client_hello("www.example.org", 16_000));
    let (details, unread) = talk.end();
    assert_eq!(details.server_name.as_deref(), Some("www.example.org"));
    assert_eq!(unread, 0);
}

#[test]
fn the_hello_after_a_retry_has_the_servers_choice() {
    let mut talk = Talk::new();
    talk.say(CLIENT, &client_hello("www.example.org"));
    talk.say(WEB, &server_hello(tls::RETRY, [0x13, 1]));
    talk.say(WEB, &[20, 3, 3, 0, 1, 1]);
    talk.say(CLIENT, &[20, 3, 3, 0, 1, 1]);
    talk.say(CLIENT, &client_hello("www.example.org"));
    talk.say(WEB, &server_hello([5; 32], [0x13, 2]));
    let (details, unread) = talk.end();
    assert_eq!(
        details.tls_cipher.as_deref(),
        Some("TLS_AES_256_GCM_SHA384")
    );
    assert_eq!(unread, 0);
}
