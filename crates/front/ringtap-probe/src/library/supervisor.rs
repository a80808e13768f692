// SPDX-License-Identifier: MIT OR Apache-2.0
//! The supervisor: a process that starts the processes of libraries, watches them, and starts them again.
//!
//! Invariants
//! - A process that sends nothing for its timeout is killed, whatever it does.
//! - The supervisor's processes end with the supervisor, and the supervisor with the probe.

use std::io;
use std::os::fd::{AsFd as _, OwnedFd};
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use ringtap_ipc::event::sleep_until_readable;
use ringtap_ipc::peer::refuse_descriptors;
use ringtap_ipc::socket::Socket;
use ringtap_pool::number::to_usize;

use super::messages::{
    LONGEST_PAUSE, ProcessMessage, ProcessSetup, SlotMessage, receive, receive_with, send,
    send_with,
};

/// Looks at a silent process within its timeout. After each, the process has had time to run, also if the whole
/// machine stood still during the one before.
const LOOKS: u32 = 4;

/// Shortest timeout until a process is ready: its filter may have to wait for the hub to load a program.
const START: Duration = Duration::from_secs(60);

/// Serves the probe at the other end of `socket` until it leaves. `program` is this program, and `words` its
/// arguments before the setup of a process.
///
/// # Errors
///
/// The probe sent no setup.
pub fn serve(socket: Socket, program: &Path, words: &[&str]) -> io::Result<()> {
    let received = receive_with::<Vec<ProcessSetup>>(&socket, &mut Vec::new())?;
    let Some((slots, copies)) = received else {
        return Ok(());
    };
    let copies: Vec<_> = copies.into_iter().map(Arc::new).collect();
    let socket = Arc::new(socket);
    for (slot, setup) in (0..).zip(slots) {
        let (socket, program) = (Arc::clone(&socket), program.to_owned());
        let copy = copies
            .get(to_usize(setup.library))
            .cloned()
            .ok_or(io::ErrorKind::InvalidData)?;
        let words: Vec<_> = words.iter().map(|word| (*word).to_owned()).collect();
        let keep = move || {
            let tell = |message| send(&socket, &SlotMessage { slot, message });
            // Fails when the probe has left.
            let _over = keep_running(setup, &copy, &program, &words, &tell);
        };
        thread::Builder::new()
            .name(format!("process {slot}"))
            .spawn(keep)?;
    }
    // The probe says nothing more; it leaves.
    while receive::<()>(&socket, &mut Vec::new())?.is_some() {}
    Ok(())
}

/// Starts a process again and again until it has seen the end of the capture.
fn keep_running(
    mut setup: ProcessSetup,
    copy: &OwnedFd,
    program: &Path,
    words: &[String],
    tell: &impl Fn(ProcessMessage) -> io::Result<()>,
) -> io::Result<()> {
    let first = setup.plan.pause;
    let mut pause = first;
    loop {
        let began = Instant::now();
        let end = run(&setup, copy, program, words, tell)
            .unwrap_or_else(|error| Some((format!("cannot run: {error}"), false)));
        let Some((why, did_hang)) = end else {
            return Ok(());
        };
        if began.elapsed() > LONGEST_PAUSE {
            pause = first;
        }
        tell(ProcessMessage::Down {
            why,
            did_hang,
            pause,
        })?;
        thread::sleep(pause);
        pause = (pause * 2).min(LONGEST_PAUSE.max(first));
        setup.starts = setup.starts.saturating_add(1);
    }
}

/// Runs a process to its end. Returns `None` after the end of the capture; before it, why the process ended, and
/// whether that was because it did not answer.
fn run(
    setup: &ProcessSetup,
    copy: &OwnedFd,
    program: &Path,
    words: &[String],
    tell: &impl Fn(ProcessMessage) -> io::Result<()>,
) -> io::Result<Option<(String, bool)>> {
    let (near, far) = Socket::pair()?;
    send_with(&near, &(), &[copy.as_fd()])?;
    // The library could send some that take long to close.
    refuse_descriptors(&near);
    let mut child = Command::new(program)
        .args(words)
        .arg(serde_json::to_string(setup)?)
        .stdin(Stdio::from(far.as_fd().try_clone_to_owned()?))
        .spawn()?;
    drop(far);
    let mut buffer = Vec::new();
    let (mut is_done, mut did_hang) = (false, false);
    let mut timeout = setup.plan.timeout.max(START);
    let mut heard = |timeout: Duration| -> io::Result<Option<ProcessMessage>> {
        for _ in 0..LOOKS {
            if sleep_until_readable(&[near.as_fd()], Some(timeout / LOOKS))? {
                return receive(&near, &mut buffer);
            }
        }
        did_hang = true;
        Ok(None)
    };
    // A message that is none ends the process, too.
    while let Ok(Some(message)) = heard(timeout) {
        timeout = setup.plan.timeout;
        is_done = matches!(message, ProcessMessage::Ended);
        // Only the supervisor says that a process is down.
        if !matches!(message, ProcessMessage::Alive | ProcessMessage::Down { .. }) {
            tell(message)?;
        }
    }
    // One that has ended already keeps its status.
    let _ended = child.kill();
    let status = child.wait()?;
    let why = if did_hang {
        format!("did not answer for {timeout:?}, and was killed")
    } else {
        format!("ended with {status}")
    };
    Ok((!is_done).then_some((why, did_hang)))
}
