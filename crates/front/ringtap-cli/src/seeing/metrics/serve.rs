// SPDX-License-Identifier: MIT OR Apache-2.0
//! As much of HTTP as a scraper needs: one request, one answer, the connection closed.
#![forbid(unsafe_code)]

use std::cell::RefCell;
use std::io::{self, ErrorKind, Read as _, Write as _};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::os::fd::AsFd as _;
use std::time::{Duration, Instant};

use ringtap_ipc::event::Event;
use ringtap_ipc::protocol::HubStatus;
use rustix::event::{PollFd, PollFlags, poll};
use rustix::io::Errno;

use super::exposition::exposition;

/// How long one request may take, from its first byte to the last of the answer.
pub(super) const PATIENCE: Duration = Duration::from_secs(2);
/// How old an answer may be: however often scrapers ask, the hub is asked ten times a second.
const FRESH: Duration = Duration::from_millis(100);
/// Pause when the process has no descriptor left.
const NO_DESCRIPTOR: Duration = Duration::from_millis(100);
/// Longest head of a request, in bytes.
const MOST_HEAD: usize = 8 * 1024;
/// Bytes that are thrown away of one that is longer.
const MOST_DRAINED: usize = 64 * 1024;
const MOST_HEADERS: usize = 64;

const TEXT: &str = "text/plain; charset=utf-8";
const METRICS: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";

/// The server's thread.
pub(super) struct Service {
    listener: TcpListener,
    closing: Event,
    status: Box<dyn Fn() -> Option<HubStatus> + Send>,
    last: RefCell<Option<(Instant, String)>>,
}

/// What is answered.
struct Answer {
    status: &'static str,
    content_type: &'static str,
    body: String,
    /// The body is described but not sent.
    head_only: bool,
}

impl Service {
    pub(super) fn new(
        listener: TcpListener,
        closing: Event,
        status: Box<dyn Fn() -> Option<HubStatus> + Send>,
    ) -> Self {
        Service {
            listener,
            closing,
            status,
            last: RefCell::default(),
        }
    }

    pub(super) fn run(self) {
        while self.wait() {
            match self.listener.accept() {
                // A scraper that breaks off is its own loss.
                Ok((stream, _)) => drop(self.serve(stream)),
                Err(error) if error.kind() == ErrorKind::WouldBlock => {}
                Err(error) if error.kind() == ErrorKind::ConnectionAborted => {}
                Err(_) => std::thread::sleep(NO_DESCRIPTOR),
            }
        }
    }

    /// Waits for a scraper; `false` once the server is to end.
    fn wait(&self) -> bool {
        loop {
            let mut fds = [
                PollFd::from_borrowed_fd(self.closing.as_fd(), PollFlags::IN),
                PollFd::new(&self.listener, PollFlags::IN),
            ];
            match poll(&mut fds, None) {
                Ok(_) => return fds[0].revents().is_empty(),
                Err(Errno::INTR) => {}
                Err(error) => {
                    tracing::error!("metrics are no longer served: {error}");
                    return false;
                }
            }
        }
    }

    fn serve(&self, mut stream: TcpStream) -> io::Result<()> {
        let deadline = Instant::now() + PATIENCE;
        stream.set_nonblocking(false)?;
        let answer = match read_head(&mut stream, deadline)? {
            Some(head) => self.answer(&head),
            None => plain(
                "431 Request Header Fields Too Large",
                "too long a request\n",
            ),
        };
        let bytes = answer.bytes();
        let mut sent = 0;
        while sent < bytes.len() {
            stream.set_write_timeout(Some(left(deadline)?))?;
            match stream.write(&bytes[sent..]) {
                Ok(0) => return Err(ErrorKind::WriteZero.into()),
                Ok(some) => sent += some,
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        stream.shutdown(Shutdown::Write)?;
        if answer.status.starts_with("431") {
            // Closed with bytes unread, the connection would be reset, and the answer lost.
            let mut part = [0; 1024];
            let mut drained = 0;
            while drained < MOST_DRAINED {
                stream.set_read_timeout(Some(left(deadline)?))?;
                match stream.read(&mut part)? {
                    0 => break,
                    some => drained += some,
                }
            }
        }
        Ok(())
    }

    fn answer(&self, head: &[u8]) -> Answer {
        let mut headers = [httparse::EMPTY_HEADER; MOST_HEADERS];
        let mut request = httparse::Request::new(&mut headers);
        if request.parse(head).is_err() {
            return plain("400 Bad Request", "this is no HTTP request\n");
        }
        let path = request.path.unwrap_or_default();
        let path = path.split('?').next().unwrap_or_default();
        let answer = match (request.method, path) {
            (Some("GET" | "HEAD"), "/metrics") => self.metrics(),
            (Some("GET" | "HEAD"), "/") => plain("200 OK", "ringtap: see /metrics\n"),
            (Some("GET" | "HEAD"), _) => plain("404 Not Found", "there is only /metrics here\n"),
            _ => plain("405 Method Not Allowed", "only GET and HEAD\n"),
        };
        Answer {
            head_only: request.method == Some("HEAD"),
            ..answer
        }
    }

    fn metrics(&self) -> Answer {
        let mut last = self.last.borrow_mut();
        last.take_if(|(then, _)| then.elapsed() > FRESH);
        if last.is_none() {
            let Some(status) = (self.status)() else {
                return plain("503 Service Unavailable", "the hub is ending\n");
            };
            match exposition(&status) {
                Ok(text) => *last = Some((Instant::now(), text)),
                Err(error) => return plain("500 Internal Server Error", &format!("{error}\n")),
            }
        }
        let text = last.as_ref().map(|(_, text)| text.as_str());
        Answer {
            content_type: METRICS,
            ..plain("200 OK", text.unwrap_or_default())
        }
    }
}

impl Answer {
    fn bytes(&self) -> Vec<u8> {
        let allow = match self.status.starts_with("405") {
            true => "Allow: GET, HEAD\r\n",
            false => "",
        };
        let mut text = format!(
            "HTTP/1.1 {}\r\nContent-Type: {}\r\nContent-Length: {}\r\n{allow}Cache-Control: no-store\r\n\
             Connection: close\r\n\r\n",
            self.status,
            self.content_type,
            self.body.len()
        );
        if !self.head_only {
            text.push_str(&self.body);
        }
        text.into_bytes()
    }
}

fn plain(status: &'static str, body: &str) -> Answer {
    Answer {
        status,
        content_type: TEXT,
        body: body.to_owned(),
        head_only: false,
    }
}

/// Reads to the empty line that ends a request's head; `None` if that is too far off.
fn read_head(stream: &mut TcpStream, deadline: Instant) -> io::Result<Option<Vec<u8>>> {
    let mut head = Vec::new();
    let mut part = [0; 1024];
    while !head.windows(4).any(|end| end == b"\r\n\r\n") {
        if head.len() > MOST_HEAD {
            return Ok(None);
        }
        stream.set_read_timeout(Some(left(deadline)?))?;
        match stream.read(&mut part) {
            Ok(0) => return Err(ErrorKind::UnexpectedEof.into()),
            Ok(some) => head.extend_from_slice(&part[..some]),
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    Ok(Some(head))
}

/// Time that is left; an error once there is none.
fn left(deadline: Instant) -> io::Result<Duration> {
    let left = deadline.saturating_duration_since(Instant::now());
    match left.is_zero() {
        true => Err(ErrorKind::TimedOut.into()),
        false => Ok(left),
    }
}
