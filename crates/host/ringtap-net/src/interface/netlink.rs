// SPDX-License-Identifier: MIT OR Apache-2.0
//! Questions to rtnetlink about links, one or all of them, and orders to it.
#![forbid(unsafe_code)]

use std::io;

use netlink_packet_core::{
    NLM_F_DUMP, NLM_F_REQUEST, NetlinkHeader, NetlinkMessage, NetlinkPayload,
};
use netlink_packet_route::{RouteNetlinkMessage, link::LinkMessage};
use netlink_sys::{Socket, SocketAddr, protocols::NETLINK_ROUTE};

use super::InterfaceError;

/// What the kernel said to one message of ours or by itself.
pub(super) enum Answer {
    Link(Box<LinkMessage>),
    LinkGone(Box<LinkMessage>),
    Done,
    Refused(io::Error),
    Other,
}

/// All links of this namespace, in the order of their indexes.
pub(super) fn links() -> Result<Vec<LinkMessage>, InterfaceError> {
    let mut links = Vec::new();
    let question = RouteNetlinkMessage::GetLink(LinkMessage::default());
    ask(question, NLM_F_DUMP, |answer| {
        match answer {
            Answer::Link(link) => links.push(*link),
            Answer::Refused(error) => return Err(error),
            Answer::Done => return Ok(true),
            Answer::LinkGone(_) | Answer::Other => {}
        }
        Ok(false)
    })
    .map_err(InterfaceError::kernel("listing the network interfaces"))?;
    links.sort_by_key(|link| link.header.index);
    Ok(links)
}

/// The link of this index, if there is one.
pub(super) fn link(index: u32) -> Result<Option<LinkMessage>, InterfaceError> {
    let mut question = LinkMessage::default();
    question.header.index = index;
    let mut found = None;
    let question = RouteNetlinkMessage::GetLink(question);
    let outcome = ask(question, 0, |answer| match answer {
        Answer::Link(link) => {
            found = Some(*link);
            Ok(true)
        }
        Answer::Refused(error) => Err(error),
        Answer::Done => Ok(true),
        Answer::LinkGone(_) | Answer::Other => Ok(false),
    });
    match outcome {
        Ok(()) => Ok(found),
        Err(error) if error.raw_os_error() == Some(libc::ENODEV) => Ok(None),
        Err(error) => Err(InterfaceError::kernel("asking for a network interface")(
            error,
        )),
    }
}

/// Has the kernel change something; `flags` include that it acknowledges.
pub(super) fn order(message: RouteNetlinkMessage, flags: u16) -> io::Result<()> {
    ask(message, flags, |answer| match answer {
        Answer::Done => Ok(true),
        Answer::Refused(error) => Err(error),
        Answer::Link(_) | Answer::LinkGone(_) | Answer::Other => Ok(false),
    })
}

/// Sends one question and hands every answer to `take` until that says it is enough.
fn ask(
    question: RouteNetlinkMessage,
    flags: u16,
    mut take: impl FnMut(Answer) -> io::Result<bool>,
) -> io::Result<()> {
    let mut socket = Socket::new(NETLINK_ROUTE)?;
    socket.bind_auto()?;
    socket.connect(&SocketAddr::new(0, 0))?;
    let mut header = NetlinkHeader::default();
    header.flags = NLM_F_REQUEST | flags;
    let payload = NetlinkPayload::from(question);
    let mut message = NetlinkMessage::new(header, payload);
    message.finalize();
    let mut bytes = vec![0; message.buffer_len()];
    message.serialize(&mut bytes);
    socket.send(&bytes, 0)?;
    loop {
        let (datagram, sender) = socket.recv_from_full()?;
        if sender.port_number() != 0 {
            continue;
        }
        for answer in parse(&datagram) {
            if take(answer?)? {
                return Ok(());
            }
        }
    }
}

/// The messages of one datagram.
pub(super) fn parse(datagram: &[u8]) -> impl Iterator<Item = io::Result<Answer>> {
    let mut rest = datagram;
    std::iter::from_fn(move || {
        if rest.is_empty() {
            return None;
        }
        let parsed = NetlinkMessage::<RouteNetlinkMessage>::deserialize(rest);
        let (length, answer) = match parsed {
            Ok(message) => (message.header.length, Ok(sort(message.payload))),
            Err(error) => (0, Err(io::Error::other(format!("rtnetlink: {error}")))),
        };
        // Messages are aligned to 4 bytes; a length of 0 would never end.
        let step = usize::try_from(length).map_or(0, |length| length.next_multiple_of(4));
        rest = match step {
            0 => &[],
            step => rest.get(step..).unwrap_or(&[]),
        };
        Some(answer)
    })
}

fn sort(payload: NetlinkPayload<RouteNetlinkMessage>) -> Answer {
    match payload {
        NetlinkPayload::InnerMessage(RouteNetlinkMessage::NewLink(link)) => {
            Answer::Link(Box::new(link))
        }
        NetlinkPayload::InnerMessage(RouteNetlinkMessage::DelLink(link)) => {
            Answer::LinkGone(Box::new(link))
        }
        NetlinkPayload::Done(_) => Answer::Done,
        NetlinkPayload::Error(error) => match error.code {
            None => Answer::Done,
            Some(_) => Answer::Refused(error.to_io()),
        },
        NetlinkPayload::Overrun(_) => Answer::Refused(io::Error::other("rtnetlink overrun")),
        _ => Answer::Other,
    }
}
