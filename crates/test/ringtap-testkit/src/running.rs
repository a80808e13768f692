// SPDX-License-Identifier: MIT OR Apache-2.0
//! Child processes of tests: output captured, waits limited, killed when dropped.

use std::{
    fs,
    io::Read,
    process::{Child, Command, ExitStatus, Stdio},
    sync::{Arc, Condvar, Mutex},
    thread::{self, JoinHandle},
    time::{Duration, Instant},
};

use rustix::process::{Pid, Signal, kill_process};

/// A child process; killed and reaped when dropped.
#[derive(Debug)]
pub struct Running {
    name: String,
    child: Child,
    stdout: Arc<Captured>,
    stderr: Arc<Captured>,
    threads: Vec<JoinHandle<()>>,
}

/// How a child ended and what it printed.
#[derive(Debug)]
pub struct Finished {
    /// Exit status, or the signal that ended it.
    pub status: ExitStatus,
    /// All of its standard output.
    pub stdout: String,
    /// All of its standard error.
    pub stderr: String,
}

#[derive(Debug, Default)]
struct Captured {
    bytes: Mutex<Vec<u8>>,
    grew: Condvar,
}

impl Running {
    /// Starts `command` with its output captured.
    ///
    /// # Panics
    ///
    /// When the program cannot be started.
    #[must_use]
    pub fn start(mut command: Command) -> Self {
        let name = format!("{command:?}");
        let mut child = command
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap_or_else(|error| panic!("{name} cannot be started: {error}"));
        let (stdout, stderr) = (Arc::default(), Arc::default());
        let threads = vec![
            follow(child.stdout.take(), &stdout),
            follow(child.stderr.take(), &stderr),
        ];
        Self {
            name,
            child,
            stdout,
            stderr,
            threads,
        }
    }

    /// Process number; that of the program itself, also inside a namespace.
    #[must_use]
    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// What it has printed on standard output so far.
    #[must_use]
    pub fn stdout(&self) -> String {
        self.stdout.text()
    }

    /// What it has printed on standard error so far.
    #[must_use]
    pub fn stderr(&self) -> String {
        self.stderr.text()
    }

    /// Waits until standard output holds `text`.
    ///
    /// # Panics
    ///
    /// When that has not come within `limit`.
    pub fn wait_for_stdout(&self, text: &str, limit: Duration) {
        self.wait_for(&self.stdout, text, limit);
    }

    /// Waits until standard error holds `text`.
    ///
    /// # Panics
    ///
    /// When that has not come within `limit`.
    pub fn wait_for_stderr(&self, text: &str, limit: Duration) {
        self.wait_for(&self.stderr, text, limit);
    }

    fn wait_for(&self, stream: &Captured, text: &str, limit: Duration) {
        assert!(
            stream.wait_for(text, limit),
            "{} did not print {text:?} within {limit:?}\nstdout: {}\nstderr: {}",
            self.name,
            self.stdout(),
            self.stderr()
        );
    }

    /// Sends the signal of Ctrl-C, once the child handles it: a child that was just started would
    /// otherwise end without its last output. A child that never handles the signal gets it later.
    pub fn interrupt(&self) {
        let deadline = Instant::now() + Duration::from_secs(20);
        while !self.handles_interrupts() && Instant::now() < deadline {
            thread::sleep(Duration::from_millis(5));
        }
        self.signal(Signal::INT);
    }

    /// Whether the child handles or ignores SIGINT, or has ended.
    fn handles_interrupts(&self) -> bool {
        let Ok(status) = fs::read_to_string(format!("/proc/{}/status", self.pid())) else {
            return true;
        };
        let masks = status.lines().filter_map(|line| {
            let mask = line
                .strip_prefix("SigCgt:")
                .or(line.strip_prefix("SigIgn:"))?;
            u64::from_str_radix(mask.trim(), 16).ok()
        });
        let ended = status.lines().any(|line| line.starts_with("State:\tZ"));
        ended || masks.fold(0, |all, mask| all | mask) & 0b10 != 0
    }

    /// Sends any other signal, for instance [`Signal::KILL`].
    pub fn signal(&self, signal: Signal) {
        if let Some(pid) = i32::try_from(self.pid()).ok().and_then(Pid::from_raw) {
            // A child that is gone already is what the next `wait` will show.
            let _ = kill_process(pid, signal);
        }
    }

    /// Whether it has not ended yet.
    #[must_use]
    pub fn is_running(&mut self) -> bool {
        matches!(self.child.try_wait(), Ok(None))
    }

    /// Waits for its end.
    ///
    /// # Panics
    ///
    /// When it still runs after `limit`: a hang is a failure.
    #[must_use]
    pub fn wait(mut self, limit: Duration) -> Finished {
        let deadline = Instant::now() + limit;
        let status = loop {
            if let Some(status) = self.child.try_wait().expect("a child can be waited for") {
                break status;
            }
            assert!(
                Instant::now() < deadline,
                "{} still runs after {limit:?}\nstdout: {}\nstderr: {}",
                self.name,
                self.stdout(),
                self.stderr()
            );
            thread::sleep(Duration::from_millis(5));
        };
        for thread in self.threads.drain(..) {
            thread.join().expect("the output's reader does not panic");
        }
        Finished {
            status,
            stdout: self.stdout(),
            stderr: self.stderr(),
        }
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

impl Finished {
    /// The same, after checking that the exit status was success.
    ///
    /// # Panics
    ///
    /// When it was not; the panic shows what was printed.
    #[must_use]
    pub fn success(self) -> Self {
        assert!(
            self.status.success(),
            "{}\nstdout: {}\nstderr: {}",
            self.status,
            self.stdout,
            self.stderr
        );
        self
    }
}

impl Captured {
    fn text(&self) -> String {
        String::from_utf8_lossy(&self.bytes.lock().expect("no thread panics here")).into_owned()
    }

    fn wait_for(&self, text: &str, limit: Duration) -> bool {
        let bytes = self.bytes.lock().expect("no thread panics here");
        let absent = |bytes: &mut Vec<u8>| !String::from_utf8_lossy(bytes).contains(text);
        let (_bytes, wait) = self
            .grew
            .wait_timeout_while(bytes, limit, absent)
            .expect("no thread panics here");
        !wait.timed_out()
    }
}

fn follow(stream: Option<impl Read + Send + 'static>, into: &Arc<Captured>) -> JoinHandle<()> {
    let into = Arc::clone(into);
    let mut stream = stream.expect("the stream is piped");
    thread::spawn(move || {
        let mut part = [0; 4096];
        while let Ok(got @ 1..) = stream.read(&mut part) {
            let mut bytes = into.bytes.lock().expect("no thread panics here");
            bytes.extend_from_slice(&part[..got]);
            into.grew.notify_all();
        }
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sh(script: &str) -> Running {
        let mut command = Command::new("sh");
        command.args(["-c", script]);
        Running::start(command)
    }

    #[test]
    fn both_streams_and_the_exit_code_are_kept() {
        let end = sh("echo out; echo err >&2; exit 3").wait(Duration::from_secs(10));
        assert_eq!(
            (end.stdout.as_str(), end.stderr.as_str()),
            ("out\n", "err\n")
        );
        assert_eq!(end.status.code(), Some(3));
    }

    #[test]
    #[should_panic(expected = "still runs after")]
    fn a_hang_fails_the_test() {
        let _ = sh("exec sleep 60").wait(Duration::from_millis(50));
    }

    #[test]
    fn output_can_be_waited_for_while_it_runs() {
        let child = sh("trap 'exit 1' INT; echo ready; sleep 1; sleep 1; sleep 60");
        child.wait_for_stdout("ready", Duration::from_secs(10));
        child.interrupt();
        let end = child.wait(Duration::from_secs(120));
        assert_eq!(end.status.code(), Some(1));
    }
}
