// SPDX-License-Identifier: MIT OR Apache-2.0
//! Counters of a hub or a probe for Prometheus, over HTTP.
//!
//! hyper reads requests and writes answers, on one thread with a tokio runtime of its own.
//!
//! Invariants
//! - Only addresses of this machine are served unless the user allows others: the counters name
//!   processes and groups, and the server does not authenticate its clients.
//! - All clients together cost the hub one thread, [`connections::MAX_CONNECTIONS`] descriptors and
//!   [`MAX_HEAD`] bytes for each. A connection ends after [`HEAD_TIMEOUT`] without a whole request, and
//!   after [`TIMEOUT`], however slow its client is.
//! - A scraper waits for no other client: a new connection takes the place of one that has not asked.
//! - The hub takes a snapshot of its counters at most once per [`FRESH`].

mod connections;

use std::convert::Infallible;
use std::fmt;
use std::future;
use std::io;
use std::net::{SocketAddr, TcpListener};
use std::sync::atomic::AtomicBool;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use hyper::header::{ALLOW, CACHE_CONTROL, CONTENT_TYPE};
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper::{Method, Request, Response, StatusCode};
use hyper_util::rt::{TokioIo, TokioTimer};
use ringtap_ipc::mutex::lock;
use ringtap_ipc::thread::join;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio::runtime::{Builder, Runtime};
use tokio::sync::oneshot;
use tokio::{task, time};

use connections::OpenConnections;

/// All metrics as text.
pub type Exposition = Result<String, fmt::Error>;

/// Longest times of a connection.
#[derive(Clone, Copy, Debug)]
struct Timeouts {
    /// From accept to the end of the request's head.
    head: Duration,
    /// From accept to close.
    all: Duration,
}

/// Longest time for a request's head.
const HEAD_TIMEOUT: Duration = Duration::from_secs(1);
/// Longest time for one connection, from accept to close.
const TIMEOUT: Duration = Duration::from_secs(2);
/// Connections that wait in the kernel while the server's thread makes an answer.
const BACKLOG: i32 = 1024;
/// Longest request head in bytes; hyper allows no smaller limit.
const MAX_HEAD: usize = 8 * 1024;
/// Bytes that the server reads and discards after an invalid request.
const MAX_DRAINED: u64 = 64 * 1024;
/// Greatest age of the counters that a client gets.
const FRESH: Duration = Duration::from_millis(100);
/// Pause after a failed accept, for example when no descriptor is free.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

const TEXT: &str = "text/plain; charset=utf-8";
const OPEN_METRICS: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";

/// Addresses at which metrics may be served.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reach {
    /// Addresses that only processes of this machine can reach.
    Loopback,
    /// All addresses.
    Anywhere,
}

/// A running server, which ends when this is dropped.
pub struct MetricsServer {
    /// With the port that the system chose for port 0.
    pub address: SocketAddr,
    /// Dropping this ends the server's thread.
    running: Option<oneshot::Sender<Infallible>>,
    thread: Option<JoinHandle<()>>,
}

/// Why metrics cannot be served.
#[expect(missing_docs, reason = "messages show what each field means")]
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum MetricsError {
    /// Other machines can reach the address, which [`Reach::Loopback`] does not allow.
    #[error(
        "metrics at {address} could be read by other machines: use 127.0.0.1:{0} or [::1]:{0}",
        .address.port()
    )]
    NotLoopback { address: SocketAddr },
    /// The address is taken, or none of this machine.
    #[error("metrics at {address}: {cause}")]
    Bind {
        address: SocketAddr,
        cause: io::Error,
    },
    /// The system has no thread or descriptor for the server.
    #[error("metrics cannot be served: {0}")]
    Start(io::Error),
}

/// Serves `GET /metrics` at this address.
///
/// `exposition` makes all metrics of this moment; `None` means that the program is ending.
///
/// # Errors
///
/// Each [`MetricsError`].
///
/// # Examples
///
/// ```
/// use ringtap_explain::exposition;
/// use ringtap_explain::http::{Reach, serve};
/// use ringtap_ipc::protocol::HubStatus;
///
/// let metrics = || Some(exposition(&HubStatus::default()));
/// let server = serve("127.0.0.1:0".parse()?, Reach::Loopback, metrics)?;
/// println!("http://{}/metrics", server.address);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub fn serve(
    address: SocketAddr,
    reach: Reach,
    exposition: impl Fn() -> Option<Exposition> + Send + 'static,
) -> Result<MetricsServer, MetricsError> {
    if reach == Reach::Loopback && !address.ip().to_canonical().is_loopback() {
        return Err(MetricsError::NotLoopback { address });
    }
    let bound = TcpListener::bind(address);
    let listener = bound.map_err(|cause| MetricsError::Bind { address, cause })?;
    let pages = Pages {
        exposition: Box::new(exposition),
        last: None,
    };
    let timeouts = Timeouts {
        head: HEAD_TIMEOUT,
        all: TIMEOUT,
    };
    start(listener, pages, timeouts).map_err(MetricsError::Start)
}

fn start(listener: TcpListener, pages: Pages, timeouts: Timeouts) -> io::Result<MetricsServer> {
    listener.set_nonblocking(true)?;
    rustix::net::listen(&listener, BACKLOG)?;
    let address = listener.local_addr()?;
    let runtime = Builder::new_current_thread().enable_all().build()?;
    let (running, ended) = oneshot::channel();
    let thread = std::thread::Builder::new()
        .name("metrics".into())
        .spawn(move || run(&runtime, accept(listener, pages, timeouts), ended))?;
    Ok(MetricsServer {
        address,
        running: Some(running),
        thread: Some(thread),
    })
}

impl Drop for MetricsServer {
    fn drop(&mut self) {
        drop(self.running.take());
        if let Some(thread) = self.thread.take() {
            join(thread);
        }
    }
}

/// Serves connections until the sender of `ended` is dropped, then closes the open ones.
fn run(
    runtime: &Runtime,
    accept: impl Future<Output = io::Result<()>> + Send + 'static,
    ended: oneshot::Receiver<Infallible>,
) {
    let _accepting = runtime.spawn(async move {
        if let Err(error) = accept.await {
            tracing::error!("metrics are no longer served: {error}");
        }
    });
    let _dropped = runtime.block_on(ended);
}

async fn accept(listener: TcpListener, pages: Pages, timeouts: Timeouts) -> io::Result<()> {
    let listener = tokio::net::TcpListener::from_std(listener)?;
    let pages = Arc::new(Mutex::new(pages));
    let mut open = OpenConnections::default();
    loop {
        let Ok((stream, client)) = listener.accept().await else {
            time::sleep(ACCEPT_PAUSE).await;
            continue;
        };
        open.make_room(client.ip());
        let has_asked = Arc::new(AtomicBool::new(false));
        let connection = connection(
            stream,
            Arc::clone(&pages),
            Arc::clone(&has_asked),
            timeouts.head,
        );
        let task = tokio::spawn(async move {
            let _broken_or_too_slow = time::timeout(timeouts.all, connection).await;
        });
        open.add(client.ip(), has_asked, task.abort_handle());
        // Lets the task read a request that has come, before further connections ask for room.
        task::yield_now().await;
    }
}

/// Answers one request and closes the connection; sets `has_asked` when the request is whole.
async fn connection(
    stream: TcpStream,
    pages: Arc<Mutex<Pages>>,
    has_asked: Arc<AtomicBool>,
    head_timeout: Duration,
) -> io::Result<()> {
    let service = service_fn(|request: Request<_>| {
        has_asked.store(true, Relaxed);
        let mut pages = lock(&pages);
        future::ready(pages.get(request.method(), request.uri().path()))
    });
    let mut connection = http1::Builder::new()
        .keep_alive(false)
        .half_close(true)
        .max_buf_size(MAX_HEAD)
        .timer(TokioTimer::new())
        .header_read_timeout(head_timeout)
        .serve_connection(TokioIo::new(stream), service);
    let served = future::poll_fn(|context| connection.poll_without_shutdown(context)).await;
    let mut stream = connection.into_parts().io.into_inner();
    stream.shutdown().await?;
    if served.is_err_and(|error| !error.is_timeout()) {
        // Closing with unread bytes resets the connection, and the client loses the answer.
        let mut rest = stream.take(MAX_DRAINED);
        tokio::io::copy(&mut rest, &mut tokio::io::sink()).await?;
    }
    Ok(())
}

/// An answer of the server; hyper leaves the text out for HEAD.
type HttpAnswer = Result<Response<String>, hyper::http::Error>;

fn answer(status: StatusCode, content_type: &str, text: String) -> HttpAnswer {
    let answer = Response::builder()
        .status(status)
        .header(CONTENT_TYPE, content_type)
        .header(CACHE_CONTROL, "no-store");
    let answer = match status {
        StatusCode::METHOD_NOT_ALLOWED => answer.header(ALLOW, "GET, HEAD"),
        _ => answer,
    };
    answer.body(text)
}

fn plain(status: StatusCode, text: &str) -> HttpAnswer {
    answer(status, TEXT, format!("{text}\n"))
}

/// The pages of the server, with the last snapshot of the counters.
struct Pages {
    exposition: Box<dyn Fn() -> Option<Exposition> + Send>,
    last: Option<(Instant, String)>,
}

impl Pages {
    fn get(&mut self, method: &Method, path: &str) -> HttpAnswer {
        match (method, path) {
            (&Method::GET | &Method::HEAD, "/metrics") => self.metrics(),
            (&Method::GET | &Method::HEAD, "/") => plain(StatusCode::OK, "ringtap: see /metrics"),
            (&Method::GET | &Method::HEAD, _) => {
                plain(StatusCode::NOT_FOUND, "there is only /metrics here")
            }
            _ => plain(StatusCode::METHOD_NOT_ALLOWED, "only GET and HEAD"),
        }
    }

    fn metrics(&mut self) -> HttpAnswer {
        self.last.take_if(|(then, _)| then.elapsed() > FRESH);
        if self.last.is_none() {
            let Some(text) = (self.exposition)() else {
                return plain(StatusCode::SERVICE_UNAVAILABLE, "the hub is ending");
            };
            match text {
                Ok(text) => self.last = Some((Instant::now(), text)),
                Err(error) => {
                    return plain(StatusCode::INTERNAL_SERVER_ERROR, &error.to_string());
                }
            }
        }
        let text = self.last.as_ref().map(|(_, text)| text.clone());
        answer(StatusCode::OK, OPEN_METRICS, text.unwrap_or_default())
    }
}

#[cfg(test)]
mod tests;
