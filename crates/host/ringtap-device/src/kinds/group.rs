// SPDX-License-Identifier: MIT OR Apache-2.0
//! `hub` and `host`: a group of a running hub, and of the host's hub inside a virtual machine.

use crate::escape;
use crate::keys::{OptionError, OptionKey};
use crate::kind::{Kind, NameOf};
use crate::options::Options;

/// The description of `hub`.
pub static HUB: Kind = Kind {
    word: "hub",
    example: "hub:GROUP",
    meaning: "group of a running hub ([hub.md](hub.md))",
    name_of: NameOf::Group,
    keys: &[&SOCKET, &PRIVATE, &WATERMARK, &LIMIT, &DISTANCE],
    ..Kind::PLAIN
};

/// The description of `host`.
pub static HOST: Kind = Kind {
    word: "host",
    example: "host:GROUP",
    meaning: "in a virtual machine: group of the host's hub",
    is_of_host: true,
    ..HUB
};

static SOCKET: OptionKey = OptionKey::other(
    "socket",
    "PATH",
    "socket of the hub or of the agent",
    "`/run/ringtap/host/GROUP.sock` for host; `$RINGTAP_SOCKET`, then `/run/ringtap/hub.sock`, then \
     `$XDG_RUNTIME_DIR/ringtap.sock`",
    set_socket,
    |from| {
        let path = from.socket.as_deref();
        path.map(|path| escape::escape(path).replace('&', "%26"))
    },
)
.with_flag(None, "socket");
static PRIVATE: OptionKey = OptionKey::flag(
    "private",
    "copy packets into a pool of this reader only",
    "as the group says",
    |to| &mut to.private,
);
static WATERMARK: OptionKey = OptionKey::number(
    "watermark",
    "PACKETS",
    "wake the reader when this many packets wait",
    "1",
    |to| &mut to.watermark,
);
static LIMIT: OptionKey = OptionKey::number(
    "limit",
    "MILLISECONDS",
    "wake the reader with fewer packets after this time",
    "10",
    |to| &mut to.limit_ms,
);
static DISTANCE: OptionKey = OptionKey::number(
    "distance",
    "MICROSECONDS",
    "while 8 packets or more come within this time, the reader pauses for it each time it has caught up with the \
     capture, because a reader close behind takes its cache lines",
    "100",
    |to| &mut to.distance_us,
);

fn set_socket(options: &mut Options, text: &str) -> Result<(), OptionError> {
    let path = escape::unescape(text).filter(|path| !path.is_empty());
    options.socket = Some(path.ok_or(OptionError::Form("the path of a socket"))?);
    Ok(())
}
