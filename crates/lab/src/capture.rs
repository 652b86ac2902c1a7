//! Captures of the packets that pass both ends of a path, in files that every tool for captures
//! reads, and a record of what the path did to them.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::thread::JoinHandle;
use std::time::{SystemTime, UNIX_EPOCH};

use fullpipe_link::PacketIncident;
use fullpipe_record::Edit;
use fullpipe_sys::start_thread;
use fullpipe_units::{ByteCount, SegCount, Span, Time};

use crate::error::LabError;
use crate::packet::LinkPacket;
use crate::pcap::PcapFile;
use crate::protocol::Host;
use crate::truth::{self, TruthLog};

/// Bytes kept of each packet: more than the longest headers of IPv4 and TCP.
const KEPT: usize = 128;

/// Packets on their way to the files; those above it are left out.
const WAITING: usize = 65_536;

/// Time for which packets are held to be sorted: those of the two directions come from two threads,
/// and the stamps of those that arrive lie behind the clock by their lateness.
const SORTED_OVER: Span = Span::from_secs(1);

/// Packets that are held at the most.
const MAX_HELD: usize = 1 << 20;

/// A capture that is under way; [`Lab::finish_capture`](crate::Lab::finish_capture) ends it.
#[derive(Debug)]
pub struct PathCapture(pub(crate) Vec<StretchCapture>);

/// The part of a capture that one stretch of the path makes.
#[derive(Debug)]
pub(crate) struct StretchCapture {
    files: [PathBuf; 2],
    missed: Arc<AtomicU64>,
    writer: Option<JoinHandle<io::Result<()>>>,
    taps: [CaptureTap; 2],
    truth: TruthFile,
}

/// The content of a capture that has ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CaptureSummary {
    /// The files of both ends of the path, the sender's first.
    pub files: [PathBuf; 2],
    /// Packets that are missing in them: they did not fit, or came faster than they were written.
    pub missed: u64,
}

/// The file for the record of the path.
#[derive(Debug)]
struct TruthFile {
    file: PathBuf,
    /// Begin of the names of the files.
    name: String,
    /// Begin of the capture, since 1970.
    began: Span,
    path: fullpipe_record::Path,
    logs: [TruthLog; 2],
}

/// The sink for what passes the ends of one direction of the link.
#[derive(Debug, Clone)]
pub(crate) struct CaptureTap {
    /// The end that sends.
    from: Host,
    records: SyncSender<CaptureRecord>,
    missed: Arc<AtomicU64>,
    log: TruthLog,
}

/// One packet at one end.
#[derive(PartialEq, Eq, PartialOrd, Ord)]
struct CaptureRecord {
    at: Time,
    end: Host,
    length: u32,
    kept: Vec<u8>,
}

/// Returns the files of a capture of one stretch: those of both ends, the sender's first, and the
/// record of the path.
pub(crate) fn capture_files(folder: &Path, name: &str) -> [PathBuf; 3] {
    ["sender.pcap", "receiver.pcap", "truth.json"].map(|end| folder.join(format!("{name}-{end}")))
}

impl PathCapture {
    /// Ends the capture, once both directions of each link have dropped their taps.
    ///
    /// # Errors
    /// If a file could not be written.
    pub(crate) fn finish_capture(self) -> Result<CaptureSummary, LabError> {
        let done = self
            .0
            .into_iter()
            .map(StretchCapture::finish_stretch)
            .collect::<Result<Vec<_>, _>>()?;
        let missed = done.iter().map(|stretch| stretch.missed).sum();
        let files = [(done.first(), 0), (done.last(), 1)].map(|(stretch, end)| {
            stretch
                .map(|stretch| stretch.files[end].clone())
                .unwrap_or_default()
        });
        Ok(CaptureSummary { files, missed })
    }
}

impl StretchCapture {
    /// Begins the files `NAME-sender.pcap` and `NAME-receiver.pcap` in `folder`, each of at most
    /// `most` bytes, and the record of what happens on `path`, for `NAME-truth.json`. `now` is the
    /// time of the link, which began at `epoch`.
    pub(crate) fn start(
        folder: &Path,
        name: &str,
        most: ByteCount,
        path: &fullpipe_record::Path,
        (now, epoch): (Time, SystemTime),
    ) -> Result<Self, LabError> {
        let missed = Arc::new(AtomicU64::new(0));
        let [sender, receiver, truth] = capture_files(folder, name);
        std::fs::create_dir_all(folder)
            .map_err(LabError::from_io(&format!("make {}", folder.display())))?;
        let mut files = [
            CaptureFile::create_file(&sender, most, epoch, &missed)?,
            CaptureFile::create_file(&receiver, most, epoch, &missed)?,
        ];
        let (records, waiting) = sync_channel(WAITING);
        let logs = Host::ALL.map(|_| TruthLog::new(now));
        let taps = Host::ALL.map(|from| CaptureTap {
            from,
            records: records.clone(),
            missed: Arc::clone(&missed),
            log: logs[from.index()].clone(),
        });
        let began = Span::from(epoch.duration_since(UNIX_EPOCH).unwrap_or_default())
            + now.duration_since(Time::ZERO);
        let truth = TruthFile {
            file: truth,
            name: name.to_owned(),
            began,
            path: path.clone(),
            logs,
        };
        let writer = start_thread("capture", move || write_all(&waiting, &mut files));
        let writer = Some(writer.map_err(LabError::from_io("start the capture"))?);
        Ok(Self {
            files: [sender, receiver],
            taps,
            writer,
            missed,
            truth,
        })
    }

    /// Returns the tap for the direction that leads away from `host`.
    pub(crate) fn tap_from(&self, host: Host) -> CaptureTap {
        self.taps[host.index()].clone()
    }

    fn finish_stretch(mut self) -> Result<CaptureSummary, LabError> {
        let writer = self.writer.take();
        let Self {
            files,
            missed,
            truth,
            taps,
            ..
        } = self;
        // The writer ends once no thread can send to it.
        drop(taps);
        let written = writer
            .and_then(|writer| writer.join().ok())
            .unwrap_or(Ok(()));
        written.map_err(LabError::from_io("write the capture"))?;
        truth.write()?;
        Ok(CaptureSummary {
            files,
            missed: missed.load(Ordering::Relaxed),
        })
    }
}

impl TruthFile {
    fn write(&self) -> Result<(), LabError> {
        let written =
            truth::write_truth(&self.file, &self.name, self.began, &self.path, &self.logs);
        written.map_err(LabError::from_io(&format!("write {}", self.file.display())))
    }
}

impl CaptureTap {
    /// `packet` reached the path at `at`.
    pub(crate) fn record_entry(&self, at: Time, packet: &LinkPacket) {
        self.record_packet(at, self.from, packet);
    }

    /// `packet` left it, at `due` by the link's own reckoning.
    pub(crate) fn record_exit(&self, due: Time, packet: &LinkPacket) {
        self.record_packet(due, self.from.peer_host(), packet);
    }

    /// Takes note of what the link did to packets.
    pub(crate) fn record_incidents(&self, incidents: Vec<PacketIncident<LinkPacket>>) {
        self.log.add_incidents(incidents);
    }

    /// Takes note of how many packets each edit changed, at the end of the capture.
    pub(crate) fn record_edits(&self, edits: &[(Edit, SegCount)]) {
        self.log.record_edits(edits);
    }

    fn record_packet(&self, at: Time, end: Host, packet: &LinkPacket) {
        let (kept, length) = packet.captured_bytes(KEPT);
        if self
            .records
            .try_send(CaptureRecord {
                at,
                end,
                length,
                kept,
            })
            .is_err()
        {
            self.missed.fetch_add(1, Ordering::Relaxed);
        }
    }
}

/// Sorts what comes and writes it, until no thread can send any more. Packets of the same moment
/// stay in the order in which their direction sent them.
fn write_all(waiting: &Receiver<CaptureRecord>, files: &mut [CaptureFile; 2]) -> io::Result<()> {
    let mut held = BinaryHeap::new();
    let mut newest = Time::ZERO;
    for (number, record) in waiting.iter().enumerate() {
        newest = newest.max(record.at);
        held.push(Reverse((record.at, number, record)));
        while held.len() > MAX_HELD
            || held
                .peek()
                .is_some_and(|Reverse((at, ..))| newest.duration_since(*at) > SORTED_OVER)
        {
            let Some(Reverse((.., first))) = held.pop() else {
                break;
            };
            files[first.end.index()].write(&first)?;
        }
    }
    while let Some(Reverse((.., first))) = held.pop() {
        files[first.end.index()].write(&first)?;
    }
    files.iter_mut().try_for_each(|file| file.pcap.flush())
}

/// The packets that pass one host.
struct CaptureFile {
    pcap: PcapFile,
    /// The beginning of the link's time, since 1970.
    epoch: Span,
    missed: Arc<AtomicU64>,
}

impl CaptureFile {
    fn create_file(
        path: &Path,
        max: ByteCount,
        epoch: SystemTime,
        missed: &Arc<AtomicU64>,
    ) -> Result<Self, LabError> {
        Ok(Self {
            pcap: PcapFile::create(path, KEPT, max)
                .map_err(LabError::from_io(&format!("write {}", path.display())))?,
            epoch: Span::from(epoch.duration_since(UNIX_EPOCH).unwrap_or_default()),
            missed: Arc::clone(missed),
        })
    }

    fn write(&mut self, record: &CaptureRecord) -> io::Result<()> {
        if !self
            .pcap
            .write(record.at + self.epoch, &record.kept, record.length)?
        {
            self.missed.fetch_add(1, Ordering::Relaxed);
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn record(millis: u64, end: Host, kept: usize) -> CaptureRecord {
        CaptureRecord {
            at: Time::ZERO + Span::from_millis(millis),
            end,
            length: 1_500,
            kept: vec![0x45; kept],
        }
    }

    /// The stamps, in milliseconds, and the bytes of what each file holds once `records` were
    /// written to it, and how many were missed.
    fn written(most: u64, records: Vec<CaptureRecord>) -> ([Vec<(u64, u64)>; 2], u64) {
        let folder = tempfile::tempdir().unwrap();
        let missed = Arc::new(AtomicU64::new(0));
        let path = |host: Host| folder.path().join(host.name());
        let file = |host| {
            CaptureFile::create_file(&path(host), ByteCount::new(most), UNIX_EPOCH, &missed)
                .unwrap()
        };
        let mut files = Host::ALL.map(file);
        let (sender, waiting) = sync_channel(records.len());
        for record in records {
            sender.send(record).unwrap();
        }
        drop(sender);
        write_all(&waiting, &mut files).unwrap();
        let read = Host::ALL.map(|host| {
            let bytes = std::fs::read(path(host)).unwrap();
            let word =
                |at: usize| u64::from(u32::from_le_bytes(bytes[at..at + 4].try_into().unwrap()));
            assert_eq!([word(0), word(20)], [0xa1b2_3c4d, 101]);
            let mut at = 24;
            std::iter::from_fn(|| {
                let begin = (at < bytes.len()).then_some(at)?;
                let kept = word(at + 8);
                at += 16 + kept as usize;
                Some((word(begin) * 1_000 + word(begin + 4) / 1_000_000, kept))
            })
            .collect()
        });
        (read, missed.load(Ordering::Relaxed))
    }

    #[test]
    fn packets_are_written_in_the_order_of_their_stamps() {
        let [near, far] = Host::ALL;
        let records = [
            (7, near),
            (3, near),
            (2_500, far),
            (9, far),
            (8, near),
            (2_400, far),
        ];
        let records = records
            .into_iter()
            .map(|(at, end)| record(at, end, 40))
            .collect();
        let files = [[3, 7, 8], [9, 2_400, 2_500]].map(|stamps| stamps.map(|at| (at, 40)).to_vec());
        assert_eq!(written(1_000, records), (files, 0));
    }

    #[test]
    fn packets_of_the_same_moment_keep_their_order() {
        let lengths = [60, 40, 80, 40];
        let records = lengths.map(|kept| record(7, Host::Sender, kept)).into();
        assert_eq!(
            written(1_000, records),
            ([lengths.map(|kept| (7, kept as u64)).to_vec(), vec![]], 0)
        );
    }

    #[test]
    fn a_file_ends_at_its_size() {
        let records = (0..5)
            .map(|at| record(at, Host::Sender, if at == 2 { 80 } else { 40 }))
            .collect();
        assert_eq!(
            written(174, records),
            ([vec![(0, 40), (1, 40)], vec![]], 3),
            "what comes behind the first that did not fit is left out"
        );
    }
}
