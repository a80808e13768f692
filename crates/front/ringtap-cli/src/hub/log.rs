// SPDX-License-Identifier: MIT OR Apache-2.0
//! The hub's log on standard error.
//!
//! Invariants
//! - No thread that logs waits for the reader of standard error: a thread of its own writes, and lines
//!   for which its queue has no room are dropped.
//! - A user who makes the hub log gets a number of lines per second, and so do all users together; the
//!   next line states how many were left out.

use std::io::{self, IsTerminal as _, Write as _};
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Instant;

use ringtap_hub::Limits;
use ringtap_hub::rate::Rates;
use tracing::field::{Field, Visit};
use tracing::{Event, Level, Subscriber};
use tracing_appender::non_blocking::{NonBlocking, NonBlockingBuilder, WorkerGuard};
use tracing_subscriber::Layer;
use tracing_subscriber::filter::LevelFilter;
use tracing_subscriber::fmt::format::{Format, Writer};
use tracing_subscriber::fmt::{self, FmtContext, FormatEvent, FormatFields, MakeWriter};
use tracing_subscriber::layer::{Context, SubscriberExt as _};
use tracing_subscriber::registry::LookupSpan;
use tracing_subscriber::util::SubscriberInitExt as _;

use crate::print;

/// Most lines that wait for standard error.
const MOST_WAITING: usize = 1000;
/// Key of the sum of all lines. No user has this id: it stands for "no id" in the kernel.
const EVERYBODY: u32 = u32::MAX;

/// Logs to standard error until the guard is dropped, which writes the waiting lines for at most a
/// second.
pub(crate) fn to_stderr(limits: &Limits, level: LevelFilter) -> WorkerGuard {
    let builder = NonBlockingBuilder::default();
    let builder = builder.lossy(true).buffered_lines_limit(MOST_WAITING);
    let (writer, guard) = builder.finish(io::stderr());
    let left_out = Arc::new(AtomicU64::new(0));
    let format = fmt::layer()
        .with_writer(CountingWriter {
            writer,
            left_out: Arc::clone(&left_out),
        })
        .with_ansi(io::stderr().is_terminal())
        .event_format(LineFormat {
            is_journal: print::is_journal(),
            plain: fmt::format().with_target(false),
        })
        // Otherwise it panics when standard error is closed.
        .log_internal_errors(false);
    let limit = LineLimit::new(limits, left_out);
    // Fails only in tests, where a subscriber is set already.
    let _already = tracing_subscriber::registry()
        .with(limit.and_then(format).with_filter(level))
        .try_init();
    guard
}

/// Format of a line: for the journal its priority and no time; else time, level, text and fields.
struct LineFormat {
    is_journal: bool,
    plain: Format,
}

impl<S, N> FormatEvent<S, N> for LineFormat
where
    S: Subscriber + for<'a> LookupSpan<'a>,
    N: for<'a> FormatFields<'a> + 'static,
{
    fn format_event(
        &self,
        context: &FmtContext<'_, S, N>,
        mut writer: Writer<'_>,
        event: &Event<'_>,
    ) -> std::fmt::Result {
        if !self.is_journal {
            return self.plain.format_event(context, writer, event);
        }
        let priority = match *event.metadata().level() {
            Level::ERROR => 3,
            Level::WARN => 4,
            Level::INFO => 6,
            _ => 7,
        };
        write!(writer, "<{priority}>")?;
        context.format_fields(writer.by_ref(), event)?;
        writeln!(writer)
    }
}

struct LineRates {
    all: Rates,
    users: Rates,
}

/// Leaves out lines past the limits.
struct LineLimit {
    rates: Mutex<LineRates>,
    left_out: Arc<AtomicU64>,
}

impl LineLimit {
    fn new(limits: &Limits, left_out: Arc<AtomicU64>) -> Self {
        let rates = LineRates {
            all: Rates::new(limits.log_lines_per_second),
            users: Rates::new(limits.log_lines_per_user_and_second),
        };
        LineLimit {
            rates: Mutex::new(rates),
            left_out,
        }
    }

    /// Whether to log a line about this user.
    fn allows(&self, uid: Option<u32>, now: Instant) -> bool {
        let mut rates = self.rates.lock().unwrap_or_else(PoisonError::into_inner);
        let of_user = uid.is_none_or(|uid| rates.users.wait(uid, now).is_zero());
        if !of_user || !rates.all.wait(EVERYBODY, now).is_zero() {
            self.left_out.fetch_add(1, Relaxed);
            return false;
        }
        rates.all.count(EVERYBODY, now);
        if let Some(uid) = uid {
            rates.users.count(uid, now);
        }
        true
    }
}

impl<S: Subscriber> Layer<S> for LineLimit {
    fn event_enabled(&self, event: &Event<'_>, _context: Context<'_, S>) -> bool {
        let mut found = FindUid(None);
        event.record(&mut found);
        self.allows(found.0, Instant::now())
    }
}

/// Finds the field `uid` of an event.
struct FindUid(Option<u32>);

impl Visit for FindUid {
    fn record_u64(&mut self, field: &Field, value: u64) {
        if field.name() == "uid" {
            self.0 = u32::try_from(value).ok();
        }
    }

    fn record_debug(&mut self, _field: &Field, _value: &dyn std::fmt::Debug) {}
}

/// Writes lines; before a line, reports how many lines the limits left out since the one before.
struct CountingWriter {
    writer: NonBlocking,
    left_out: Arc<AtomicU64>,
}

impl<'a> MakeWriter<'a> for CountingWriter {
    type Writer = NonBlocking;

    fn make_writer(&'a self) -> NonBlocking {
        let mut writer = self.writer.clone();
        let left_out = self.left_out.swap(0, Relaxed);
        if left_out > 0 {
            let text = format!("{left_out} lines left out (limits.log_lines_per_second)\n");
            // Never fails: a line without room is dropped.
            let _dropped = writer.write_all(text.as_bytes());
        }
        writer
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_user_cannot_use_up_the_lines_of_all() {
        let limits = Limits::default();
        let limit = LineLimit::new(&limits, Arc::default());
        let now = Instant::now();
        let allowed = (0..1000).filter(|_| limit.allows(Some(1), now)).count();
        assert_eq!(allowed, 11);
        assert_eq!(limit.left_out.load(Relaxed), 989);
        assert!(limit.allows(Some(2), now) && limit.allows(None, now));
        let of_many = (100..1000)
            .filter(|uid| limit.allows(Some(*uid), now))
            .count();
        assert_eq!(of_many, 51 - 13);
    }
}
