// SPDX-License-Identifier: MIT OR Apache-2.0
//! An inline IPS on one page: decides about each packet of a bridge, in a process of its own.
//!
//! ```sh
//! sudo ringtap bridge eth0 eth1 --inline ips --no-verdict pass
//! sudo cargo run --release -p ringtap-client --example inline_ips -- ips 'cmd.exe'
//! ```

use std::error::Error;

use ringtap_client::{
    Connection, Next, PacketVerdict, Receiver, SubscriptionRequest, Verdict, default_socket,
};

fn main() -> Result<(), Box<dyn Error>> {
    let mut args = std::env::args().skip(1);
    let (Some(group), Some(text)) = (args.next(), args.next()) else {
        return Err("want a group and the text that no packet may contain".into());
    };
    // A subscription like any reader's: packets are read in place.
    let request = SubscriptionRequest::new(group, "inline_ips");
    let (subscription, connection) = Connection::attach(&default_socket(), &request)?;
    let mut receiver = Receiver::new(subscription, connection.clone())?;
    // From here on packets wait for this program's verdicts.
    let mut verdicts = connection.inline()?;
    eprintln!("inline_ips: deciding, nothing may contain {text:?}");
    loop {
        let batch = match receiver.next(None)? {
            Next::Batch(batch) => batch,
            Next::Empty => continue,
            Next::Ended => return Ok(()),
        };
        for received in batch.packets() {
            let packet = received?.packet;
            let is_bad = packet
                .data
                .windows(text.len().max(1))
                .any(|bytes| bytes == text.as_bytes());
            verdicts.push(PacketVerdict {
                lane: batch.lane(),
                sequence: packet.sequence,
                verdict: if is_bad { Verdict::Drop } else { Verdict::Pass },
                for_flow: None,
            })?;
        }
        verdicts.send();
    }
}
