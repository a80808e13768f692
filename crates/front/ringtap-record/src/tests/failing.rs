// SPDX-License-Identifier: MIT OR Apache-2.0
//! Full disks, incomplete writes, killed processes.

use std::{
    env, fs,
    io::{self, Write as _},
    process::Command,
    sync::{
        Arc, Mutex,
        atomic::{AtomicU32, Ordering::Relaxed},
    },
    thread,
    time::Duration,
};

use ringtap_file::write::classic;
use ringtap_file::{FileReader, Format, ReadError, write};
use ringtap_testkit::{Running, require_root};
use tempfile::TempDir;

use super::{Kept, START_NS, interface, packets, read};
use crate::{
    RecordOptions,
    compress::{self, Compression},
    direct,
    error::WriteError,
    machine::origin,
    medium::Medium,
    output::{Output, WriteMode},
    totals::PacketTotals,
    writer::{Writer, append},
};

/// A disk of `room` bytes that accepts at most `step` bytes at once and is sometimes interrupted.
#[derive(Clone)]
struct Disk {
    bytes: Arc<Mutex<Vec<u8>>>,
    room: usize,
    step: usize,
    calls: Arc<AtomicU32>,
}

impl Disk {
    fn new(room: usize, step: usize) -> Self {
        let (bytes, calls) = (Arc::default(), Arc::default());
        Self {
            bytes,
            room,
            step,
            calls,
        }
    }
}

impl Medium for Disk {
    fn write_at(&self, new: &[u8], offset: u64) -> io::Result<usize> {
        if self.calls.fetch_add(1, Relaxed).is_multiple_of(3) {
            return Err(io::ErrorKind::Interrupted.into());
        }
        let mut bytes = self.bytes.lock().unwrap();
        let offset = usize::try_from(offset).unwrap();
        assert!(offset <= bytes.len(), "a gap in the file");
        let count = new.len().min(self.step).min(self.room - offset);
        if count == 0 {
            return Err(io::ErrorKind::StorageFull.into());
        }
        let again = count.min(bytes.len() - offset);
        bytes[offset..offset + again].copy_from_slice(&new[..again]);
        bytes.extend_from_slice(&new[again..count]);
        Ok(count)
    }

    fn cut(&self, size_bytes: u64) -> io::Result<()> {
        let size = usize::try_from(size_bytes).unwrap();
        self.bytes.lock().unwrap().truncate(size);
        Ok(())
    }
}

fn fill(disk: &Disk, packets: &[Kept]) -> Result<(), WriteError> {
    fill_as(disk, packets, Format::Pcapng, WriteMode::Cached)
}

fn fill_as(
    disk: &Disk,
    packets: &[Kept],
    format: Format,
    mode: WriteMode,
) -> Result<(), WriteError> {
    let mut output = Output::new("disk", Arc::new(disk.clone()), format, mode);
    let buffer = output.buffer(0)?;
    match format {
        Format::Pcap => classic::file_header(buffer, interface().link_type),
        Format::Pcapng => {
            write::section(buffer, &origin());
            write::interface(buffer, &interface(), None);
        }
    }
    for (number, packet) in packets.iter().enumerate() {
        append(output.buffer(2_000)?, &packet.packet(), format);
        output.count(PacketTotals {
            packets: 1,
            wire_bytes: packet.wire_length.into(),
        });
        // Less often later, so that the larger buffer of direct I/O is full at times.
        if number < 50 && number % 5 == 4 {
            output.flush()?;
        }
    }
    output.flush()
}

#[test]
fn short_and_interrupted_writes_lose_nothing() {
    let sent = packets(100, 60);
    let (easy, hard) = (Disk::new(1 << 20, 1 << 20), Disk::new(1 << 20, 7));
    fill(&easy, &sent).unwrap();
    fill(&hard, &sent).unwrap();
    assert!(*easy.bytes.lock().unwrap() == *hard.bytes.lock().unwrap());
}

#[test]
fn a_disk_that_is_full_at_any_byte_leaves_whole_packets_and_a_true_count() {
    let sent = packets(12, 60);
    for (format, compression) in [
        (Format::Pcapng, None),
        (Format::Pcap, None),
        (Format::Pcapng, Some(Compression::Gzip(1))),
        (Format::Pcap, Some(Compression::Zstd(1))),
    ] {
        let mode = || match compression {
            Some(method) => WriteMode::Compressed(compress::start(method).unwrap()),
            None => WriteMode::Cached,
        };
        let fill = |disk: &Disk| fill_as(disk, &sent, format, mode());
        is_exact_on_full_disks(&fill, 1, 33);
    }
}

/// The buffer of 1 MiB is full twice; flushes before leave ends of blocks in it.
#[test]
fn a_disk_that_is_full_leaves_whole_packets_with_direct_io() {
    let sent = packets(3_500, 1_500);
    for format in [Format::Pcapng, Format::Pcap] {
        let mode = || WriteMode::Direct(direct::start().unwrap());
        let fill = |disk: &Disk| fill_as(disk, &sent, format, mode());
        is_exact_on_full_disks(&fill, 9_973, 100_003);
    }
}

/// Fills disks whose sizes differ by `stride` bytes, which take `step` bytes at once.
fn is_exact_on_full_disks(
    fill: &dyn Fn(&Disk) -> Result<(), WriteError>,
    stride: usize,
    step: usize,
) {
    let whole = Disk::new(1 << 22, 1 << 22);
    fill(&whole).unwrap();
    let needed = whole.bytes.lock().unwrap().len();
    for room in (0..needed).step_by(stride) {
        let disk = Disk::new(room, step);
        let error = fill(&disk).unwrap_err();
        let bytes = disk.bytes.lock().unwrap().clone();
        assert!(whole.bytes.lock().unwrap().starts_with(&bytes));
        let (size_bytes, packets) = match error {
            WriteError::Begin { .. } => (0, 0),
            WriteError::Write {
                size_bytes,
                packets,
                ..
            } => (size_bytes, packets),
            other => panic!("{room}: {other}"),
        };
        assert_eq!(size_bytes, u64::try_from(bytes.len()).unwrap());
        if bytes.is_empty() {
            continue;
        }
        let mut file = tempfile::NamedTempFile::new().unwrap();
        file.write_all(&bytes).unwrap();
        let mut reader = FileReader::open(file.path().to_str().unwrap()).unwrap();
        let mut found = 0;
        while reader.next_packet().unwrap().is_some() {
            found += 1;
        }
        assert_eq!(found, packets, "a disk of {room} bytes");
    }
}

#[test]
fn nothing_is_written_after_a_failure() {
    let disk = Disk::new(500, 500);
    let medium = Arc::new(disk.clone());
    let mut output = Output::new("disk", medium, Format::Pcapng, WriteMode::Cached);
    write::section(output.buffer(0).unwrap(), &origin());
    write::interface(output.buffer(0).unwrap(), &interface(), None);
    output.flush().unwrap();
    for packet in packets(50, 60) {
        write::packet(output.buffer(2_000).unwrap(), &packet.packet());
    }
    assert!(output.flush().is_err());
    let size = disk.bytes.lock().unwrap().len();
    write::packet(output.buffer(2_000).unwrap(), &packets(1, 60)[0].packet());
    assert!(output.flush().is_err(), "the loss is told again");
    drop(output);
    assert_eq!(disk.bytes.lock().unwrap().len(), size);
}

/// A slow disk whose second write fails.
#[derive(Default)]
struct ErrorOnce {
    bytes: Mutex<Vec<u8>>,
    calls: AtomicU32,
}

impl Medium for ErrorOnce {
    fn write_at(&self, new: &[u8], offset: u64) -> io::Result<usize> {
        thread::sleep(Duration::from_millis(20));
        if self.calls.fetch_add(1, Relaxed) == 1 {
            return Err(io::Error::other("a bad sector"));
        }
        let mut bytes = self.bytes.lock().unwrap();
        let offset = usize::try_from(offset).unwrap();
        bytes.resize(offset, 0);
        bytes.extend_from_slice(new);
        Ok(new.len())
    }

    fn cut(&self, size_bytes: u64) -> io::Result<()> {
        let size = usize::try_from(size_bytes).unwrap();
        self.bytes.lock().unwrap().truncate(size);
        Ok(())
    }
}

/// The parts after the one with the error are in the thread already.
#[test]
fn the_thread_of_direct_io_writes_nothing_after_a_failure() {
    let disk = Arc::new(ErrorOnce::default());
    let mode = WriteMode::Direct(direct::start().unwrap());
    let mut output = Output::new("disk", Arc::clone(&disk) as _, Format::Pcapng, mode);
    write::section(output.buffer(0).unwrap(), &origin());
    write::interface(output.buffer(0).unwrap(), &interface(), None);
    let mut append = |packet: &Kept| -> Result<(), WriteError> {
        write::packet(output.buffer(2_000)?, &packet.packet());
        Ok(())
    };
    let failed = packets(7_000, 1_500).iter().try_for_each(&mut append);
    let failed = failed.and_then(|()| output.flush()).unwrap_err();
    assert!(failed.to_string().contains("a bad sector"), "{failed}");
    drop(output);
    // Until the thread has dropped its parts.
    while Arc::strong_count(&disk) > 1 {
        thread::sleep(Duration::from_millis(1));
    }
    let kept = disk.bytes.lock().unwrap().len();
    match failed {
        WriteError::Begin { .. } => assert_eq!(kept, 0),
        WriteError::Write { size_bytes, .. } => assert_eq!(kept as u64, size_bytes),
        other => panic!("{other}"),
    }
}

/// Folder for the child process of a test; the child runs the same test.
const FOLDER: &str = "RINGTAP_TEST_FOLDER";

/// Records to the folder until an error.
fn record_for_ever(folder: &str, packets: &[Kept], direct_io: bool) -> WriteError {
    let options = RecordOptions {
        file: format!("{folder}/full.pcapng"),
        direct_io,
        ..RecordOptions::default()
    };
    let mut writer = Writer::create(&options, origin(), vec![interface()], START_NS).unwrap();
    loop {
        for packet in packets {
            if let Err(error) = writer.packet(&packet.packet()) {
                return error;
            }
        }
    }
}

/// Runs this test in a new process, under `script`.
fn again(test: &str, folder: &TempDir, script: &str) -> Running {
    let name = format!("{}::{test}", module_path!().split_once("::").unwrap().1);
    let mut command = Command::new("unshare");
    command
        .args([
            "--mount",
            "--propagation",
            "private",
            "sh",
            "-ec",
            script,
            "sh",
        ])
        .arg(env::current_exe().unwrap())
        .args(["--exact", &name, "--nocapture"])
        .env(FOLDER, folder.path());
    Running::start(command)
}

#[test]
fn a_full_tmpfs_keeps_a_valid_file() {
    let mount = format!("mount -t tmpfs -o size=700k tmpfs \"${FOLDER}\"");
    a_full_disk_keeps_a_valid_file("a_full_tmpfs_keeps_a_valid_file", &mount, false);
}

#[test]
fn a_full_ext4_keeps_a_valid_file_with_direct_io() {
    let mount = format!(
        "truncate -s 8M \"${FOLDER}/disk\"; mkfs.ext4 -qF \"${FOLDER}/disk\"; \
         mount -o loop \"${FOLDER}/disk\" \"${FOLDER}\""
    );
    a_full_disk_keeps_a_valid_file(
        "a_full_ext4_keeps_a_valid_file_with_direct_io",
        &mount,
        true,
    );
}

fn a_full_disk_keeps_a_valid_file(test: &str, mount: &str, direct_io: bool) {
    if let Ok(folder) = env::var(FOLDER) {
        let sent = packets(50, 1_500);
        let error = record_for_ever(&folder, &sent, direct_io);
        let message = error.to_string();
        let WriteError::Write {
            size_bytes,
            packets,
            cause,
            ..
        } = error
        else {
            panic!("{error}");
        };
        assert_eq!(cause.kind(), io::ErrorKind::StorageFull, "{message}");
        let path = format!("{folder}/full.pcapng");
        assert_eq!(fs::metadata(&path).unwrap().len(), size_bytes);
        let kept = read(&path);
        assert_eq!(u64::try_from(kept.len()).unwrap(), packets);
        assert!(kept.iter().eq(sent.iter().cycle().take(kept.len())));
        println!("FULL: {message}");
        return;
    }
    require_root!();
    let folder = TempDir::new().unwrap();
    let script = format!("{mount}; exec \"$@\"");
    let child = again(test, &folder, &script);
    let finished = child.wait(Duration::from_secs(60));
    assert!(
        finished.status.success(),
        "{}{}",
        finished.stdout,
        finished.stderr
    );
    assert!(finished.stdout.contains("FULL: /"), "{}", finished.stdout);
    assert!(
        !folder.path().join("full.pcapng").exists(),
        "the mount was private"
    );
}

#[test]
fn a_file_system_without_direct_io_is_refused_with_advice() {
    if let Ok(folder) = env::var(FOLDER) {
        let options = RecordOptions {
            file: format!("{folder}/full.pcapng"),
            direct_io: true,
            ..RecordOptions::default()
        };
        let refused = Writer::create(&options, origin(), vec![interface()], START_NS);
        println!("REFUSED: {}", refused.err().unwrap());
        return;
    }
    require_root!();
    let folder = TempDir::new().unwrap();
    let script = format!("mount -t ramfs ramfs \"${FOLDER}\"; exec \"$@\"");
    let test = "a_file_system_without_direct_io_is_refused_with_advice";
    let told = again(test, &folder, &script).wait(Duration::from_secs(60));
    let told = told.success().stdout;
    let advice = "cannot be created: the file system has no direct I/O: leave out `direct_io`";
    assert!(told.contains(advice), "{told}");
}

#[test]
fn a_killed_recorder_leaves_whole_packets_up_to_the_last_block() {
    let sent = packets(50, 1_500);
    if let Ok(folder) = env::var(FOLDER) {
        // The end of the test kills this process; a full tmpfs also ends it.
        let _ = record_for_ever(&folder, &sent, false);
        thread::sleep(Duration::from_secs(60));
        return;
    }
    require_root!();
    let folder = TempDir::new().unwrap();
    let path = folder
        .path()
        .join("full.pcapng")
        .to_str()
        .unwrap()
        .to_owned();
    let test = "a_killed_recorder_leaves_whole_packets_up_to_the_last_block";
    let script = "ulimit -f 400000; exec \"$@\"";
    let mut child = again(test, &folder, script);
    while fs::metadata(&path).map_or(0, |file| file.len()) < 2_000_000 {
        assert!(child.is_running(), "{}{}", child.stdout(), child.stderr());
        thread::sleep(Duration::from_millis(1));
    }
    drop(child);
    let mut reader = FileReader::open(&path).unwrap();
    let mut wanted = sent.iter().cycle();
    let mut count = 0;
    let end = loop {
        match reader.next_packet() {
            Ok(Some(packet)) => assert_eq!(packet.data, wanted.next().unwrap().data),
            other => break other.map(|_| ()),
        }
        count += 1;
    };
    assert!(count > 1_000);
    assert!(
        matches!(end, Ok(()) | Err(ReadError::Truncated { .. })),
        "{end:?}"
    );
}
