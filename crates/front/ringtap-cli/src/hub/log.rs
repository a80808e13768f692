// SPDX-License-Identifier: MIT OR Apache-2.0
//! The hub's log on standard error.
//!
//! Invariants
//! - No thread that logs waits for the reader of standard error: a thread of its own writes, and lines
//!   for which its queue has no room are dropped.
//! - A user who makes the hub log gets a number of lines per second, and so do all users together; the
//!   next line states how many were left out.

use std::io::{self, IsTerminal as _, Write as _};
use std::sync::{Arc, Mutex};
use std::time::Instant;

use ringtap_hub::Limits;
use ringtap_ipc::mutex::lock;
use ringtap_ipc::rate::LineLimit;
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
const MAX_WAITING: usize = 1000;

/// Logs to standard error until the guard is dropped, which writes the waiting lines for at most a
/// second.
pub(crate) fn to_stderr(limits: &Limits, level: LevelFilter) -> WorkerGuard {
    let builder = NonBlockingBuilder::default();
    let builder = builder.lossy(true).buffered_lines_limit(MAX_WAITING);
    let (writer, guard) = builder.finish(io::stderr());
    let lines = LineLimit::new(
        limits.log_lines_per_user_and_second,
        limits.log_lines_per_second,
    );
    let lines: SharedLimit = Arc::new(Mutex::new(lines));
    let format = fmt::layer()
        .with_writer(CountingWriter {
            writer,
            lines: Arc::clone(&lines),
        })
        .with_ansi(io::stderr().is_terminal())
        .event_format(LineFormat {
            is_journal: print::is_journal(),
            plain: fmt::format().with_target(false),
        })
        // Otherwise it panics when standard error is closed.
        .log_internal_errors(false);
    // Fails only in tests, where a subscriber is set already.
    let _already = tracing_subscriber::registry()
        .with(UserLimit(lines).and_then(format).with_filter(level))
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

/// The lines of users, by id, and those that no user caused.
type SharedLimit = Arc<Mutex<LineLimit<u32>>>;

/// Leaves out lines past the limits.
struct UserLimit(SharedLimit);

impl<S: Subscriber> Layer<S> for UserLimit {
    fn event_enabled(&self, event: &Event<'_>, _context: Context<'_, S>) -> bool {
        let mut found = FindUid(None);
        event.record(&mut found);
        lock(&self.0).allows(found.0, Instant::now())
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
    lines: SharedLimit,
}

impl<'a> MakeWriter<'a> for CountingWriter {
    type Writer = NonBlocking;

    fn make_writer(&'a self) -> NonBlocking {
        let mut writer = self.writer.clone();
        let left_out = lock(&self.lines).take_left_out();
        if left_out > 0 {
            let text = format!("{left_out} lines left out (limits.log_lines_per_second)\n");
            // Never fails: a line without room is dropped.
            let _dropped = writer.write_all(text.as_bytes());
        }
        writer
    }
}
