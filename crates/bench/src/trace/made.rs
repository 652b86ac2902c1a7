//! Captures of transfers that never happened, as a host's own capture at their sender would hold
//! them: handshakes, slow start, an acknowledgement of every second segment, timestamps and windows
//! that move.

use std::collections::VecDeque;
use std::fs::File;
use std::io::{self, BufWriter, Write};
use std::os::fd::AsRawFd;
use std::time::Duration;

use clap::ValueEnum;
use flate2::Compression;
use flate2::write::GzEncoder;
use fullpipe_units::{Span, Time};
use fullpipe_wire::{LinkType, flags, pcap_header, pcap_record};
use rustix::fs::{MemfdFlags, memfd_create};

use crate::judged::Random;

/// Bytes of data of a full segment with timestamps.
const MSS: u32 = 1448;
/// Shift of all windows.
const SCALE: u8 = 9;
/// Time of a full segment at 1 Gbit/s of Ethernet, 1538 bytes with all around it.
const SEGMENT_TIME: Duration = Duration::from_nanos(12_304);
/// Segments that are sent before the first acknowledgement (RFC 6928).
const INITIAL_WINDOW: u64 = 10;
/// Bytes that the receiving program reads at a time.
const READ: u64 = 64 << 10;
/// Bytes of text that data is taken of.
const TEXT: usize = 1 << 20;
/// November of 2023, since 1970.
const BEGIN: Span = Span::from_secs(1_700_000_000);

/// A capture that can be made.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum CaptureKind {
    /// Whole packets of one connection
    Full,
    /// The first 96 bytes of the packets of one connection
    Snap,
    /// The same with 12.5 MB in flight
    Flight,
    /// The first 96 bytes of the packets of 100 000 connections
    Flows,
    /// Whole packets of one connection, compressed with gzip
    Gzip,
}

/// The connections of a capture.
#[derive(Debug, Clone, Copy)]
struct CapturePlan {
    connections: u32,
    /// Segments with data of each.
    segments: u64,
    /// The most of them in flight.
    flight: u64,
    /// Bytes of each packet that are kept at most.
    snap: usize,
}

impl CaptureKind {
    /// Returns the plan of the capture with so many times fewer packets.
    fn plan(self, divisor: u32) -> CapturePlan {
        let (connections, segments, flight, snap) = match self {
            Self::Full => (1, 400_000 / divisor, 345, 1514),
            Self::Snap => (1, 2_000_000 / divisor, 345, 96),
            Self::Flight => (1, 2_000_000 / divisor, 8632, 96),
            Self::Flows => (100_000 / divisor, 16, 2, 96),
            Self::Gzip => (1, 200_000 / divisor, 345, 1514),
        };
        CapturePlan {
            connections,
            segments: segments.into(),
            flight,
            snap,
        }
    }
}

/// A file in memory, which ends with this process.
#[derive(Debug)]
pub(crate) struct MadeCapture {
    file: File,
    pub(crate) packets: u64,
    /// Its size in bytes, before compression.
    pub(crate) bytes: u64,
}

impl MadeCapture {
    /// Makes a capture with so many times fewer packets.
    ///
    /// # Errors
    /// Fails if there is no memory for it.
    pub(crate) fn make(kind: CaptureKind, divisor: u32) -> io::Result<Self> {
        let file = File::from(memfd_create("capture", MemfdFlags::CLOEXEC)?);
        let mut output = BufWriter::with_capacity(1 << 20, &file);
        let plan = kind.plan(divisor);
        let (packets, bytes) = if kind == CaptureKind::Gzip {
            let mut compressed = GzEncoder::new(&mut output, Compression::fast());
            let written = write_capture(plan, &mut compressed)?;
            compressed.finish()?;
            written
        } else {
            write_capture(plan, &mut output)?
        };
        output.flush()?;
        drop(output);
        Ok(Self {
            file,
            packets,
            bytes,
        })
    }

    /// Returns a path by which other programs can open it while this one runs.
    pub(crate) fn path(&self) -> String {
        format!("/proc/{}/fd/{}", std::process::id(), self.file.as_raw_fd())
    }
}

/// Writes a capture, and returns the number of its packets and of its bytes.
fn write_capture(plan: CapturePlan, output: &mut impl Write) -> io::Result<(u64, u64)> {
    let header = pcap_header(LinkType::ETHERNET, plan.snap as u32);
    output.write_all(&header)?;
    let (text, mut packets, mut bytes) = (words(), 0, header.len());
    let mut write = |at: Duration, packet: MadePacket| {
        let headers = packet.headers();
        let length = headers.len() + packet.payload as usize;
        let kept = length.min(plan.snap);
        let since_1970 = Time::ZERO + BEGIN + Span::from_nanos(at.as_nanos() as u64);
        output.write_all(&pcap_record(since_1970, kept as u32, length as u32))?;
        output.write_all(&headers[..headers.len().min(kept)])?;
        let place = packet.sequence as usize % (TEXT - MSS as usize);
        output.write_all(&text[place..][..kept.saturating_sub(headers.len())])?;
        packets += 1;
        bytes += 16 + kept;
        Ok(())
    };
    if plan.connections == 1 {
        write_transfer(plan, write)?;
    } else {
        write_many(plan, &mut write)?;
    }
    Ok((packets, bytes as u64))
}

/// Returns words of a small vocabulary, which gzip makes a third of.
fn words() -> Vec<u8> {
    const LETTERS: &[u8] = b"abcdefghijklmnopqrstuvwxyz";
    const LENGTHS: [usize; 8] = [2, 3, 4, 5, 6, 7, 8, 9];
    let mut random = Random::new(1);
    let vocabulary: Vec<Vec<u8>> = (0..4096)
        .map(|_| {
            (0..random.pick(&LENGTHS))
                .map(|_| random.pick(LETTERS))
                .collect()
        })
        .collect();
    let vocabulary: Vec<&[u8]> = vocabulary.iter().map(Vec::as_slice).collect();
    let mut text = Vec::with_capacity(TEXT + 16);
    while text.len() < TEXT {
        text.extend_from_slice(random.pick(&vocabulary));
        text.push(b' ');
    }
    text
}

/// An acknowledgement on its way.
struct PendingAck {
    at: Duration,
    /// Segments below it.
    segments: u64,
    /// Timestamp of the older of both segments.
    echo: u32,
}

/// Writes a transfer that doubles its window each round trip, up to the planned flight.
fn write_transfer(
    plan: CapturePlan,
    mut write: impl FnMut(Duration, MadePacket) -> io::Result<()>,
) -> io::Result<()> {
    let round_trip = SEGMENT_TIME * plan.flight as u32;
    let (began, answered) = (millis(Duration::ZERO), millis(round_trip / 2));
    let established = millis(round_trip);
    write(
        Duration::ZERO,
        MadePacket::of_client(0, [began, 0]).with_syn(),
    )?;
    let answer = MadePacket::of_server(1, [answered, began], READ);
    write(round_trip, answer.with_syn())?;
    write(
        round_trip,
        MadePacket::of_client(1, [established, answered]),
    )?;
    let (mut sent, mut acknowledged) = (0, 0);
    let (mut window, mut next, mut echoed) =
        (INITIAL_WINDOW.min(plan.flight), round_trip, answered);
    let mut pending: VecDeque<PendingAck> = VecDeque::new();
    while acknowledged < plan.segments {
        let is_open = sent < plan.segments.min(acknowledged + window);
        if is_open && pending.front().is_none_or(|ack| next <= ack.at) {
            let packet = MadePacket::of_client(begin(sent), [millis(next), echoed]);
            write(next, packet.with_data(sent))?;
            sent += 1;
            if sent % 2 == 0 {
                pending.push_back(PendingAck {
                    at: next + round_trip,
                    segments: sent,
                    echo: millis(next.saturating_sub(SEGMENT_TIME)),
                });
            }
            next += SEGMENT_TIME;
        } else if let Some(PendingAck { at, segments, echo }) = pending.pop_front() {
            let value = millis(at.saturating_sub(round_trip / 2));
            // The buffer grows with the window of the sender.
            let unread = segments * u64::from(MSS) % READ;
            let free = 2 * window * u64::from(MSS) + READ - unread;
            write(
                at,
                MadePacket::of_server(begin(segments), [value, echo], free),
            )?;
            (acknowledged, window, echoed) = (segments, (window + 2).min(plan.flight), value);
            next = next.max(at);
        }
    }
    let (end, closed) = (begin(sent), next + round_trip);
    let last = MadePacket::of_client(end, [millis(next), echoed]);
    write(next, last.with_fin())?;
    let answer = MadePacket::of_server(end + 1, [millis(closed), millis(next)], READ);
    write(closed, answer.with_fin())?;
    let mut last = MadePacket::of_client(end + 1, [millis(closed); 2]);
    last.acknowledgement = 2;
    write(closed, last)
}

/// Writes short connections, whose packets take turns in an order that no cache foresees.
fn write_many(
    plan: CapturePlan,
    write: &mut impl FnMut(Duration, MadePacket) -> io::Result<()>,
) -> io::Result<()> {
    /// A prime beyond any number of connections, so that each has its turn.
    const STRIDE: u64 = 1_000_003;
    /// They begin in so many groups, one after another.
    const GROUPS: usize = 16;
    /// Time between the packets of two connections.
    const STEP: Duration = Duration::from_micros(1);
    let mut script = Vec::new();
    write_transfer(plan, |_, packet| {
        script.push(packet);
        Ok(())
    })?;
    let mut at = Duration::ZERO;
    for round in 0..script.len() + GROUPS {
        for turn in 0..plan.connections {
            let connection = (u64::from(turn) * STRIDE % u64::from(plan.connections)) as u32;
            let step = round.checked_sub(connection as usize % GROUPS);
            let Some(packet) = step.and_then(|step| script.get(step)) else {
                continue;
            };
            let timestamps = packet
                .timestamps
                .map(|stamp| if stamp == 0 { 0 } else { millis(at) });
            let packet = MadePacket {
                connection,
                timestamps,
                ..*packet
            };
            write(at, packet)?;
            at += STEP;
        }
    }
    Ok(())
}

/// Returns the sequence number of the first byte of a segment. It wraps.
fn begin(segment: u64) -> u32 {
    (1 + segment * u64::from(MSS)) as u32
}

/// Returns a timestamp of a clock of milliseconds.
fn millis(at: Duration) -> u32 {
    5_000_000 + at.as_millis() as u32
}

/// A packet of TCP.
#[derive(Debug, Clone, Copy)]
struct MadePacket {
    connection: u32,
    is_of_client: bool,
    flags: u16,
    sequence: u32,
    acknowledgement: u32,
    /// The field, unscaled.
    window: u16,
    /// Value and echo.
    timestamps: [u32; 2],
    /// Bytes of data.
    payload: u32,
}

impl MadePacket {
    fn of_client(sequence: u32, timestamps: [u32; 2]) -> Self {
        Self {
            connection: 0,
            is_of_client: true,
            flags: flags::ACK,
            sequence,
            acknowledgement: 1,
            window: 502,
            timestamps,
            payload: 0,
        }
    }

    /// Returns an acknowledgement with a window of `free` bytes.
    fn of_server(acknowledgement: u32, timestamps: [u32; 2], free: u64) -> Self {
        Self {
            is_of_client: false,
            acknowledgement,
            window: (free >> SCALE) as u16,
            ..Self::of_client(1, timestamps)
        }
    }

    fn with_syn(mut self) -> Self {
        self.sequence = 0;
        // No window of a SYN is scaled.
        self.window = 64_240;
        if self.is_of_client {
            (self.flags, self.acknowledgement) = (0, 0);
        }
        self.flags |= flags::SYN;
        self
    }

    fn with_fin(mut self) -> Self {
        self.flags |= flags::FIN;
        self
    }

    fn with_data(mut self, segment: u64) -> Self {
        /// Segments that the program writes at once.
        const WRITE: u64 = 16;
        self.payload = MSS;
        if segment % WRITE == WRITE - 1 {
            self.flags |= flags::PSH;
        }
        self
    }

    /// Returns the headers of Ethernet, IPv4 and TCP, with checksums of zero.
    fn headers(&self) -> Vec<u8> {
        const ETHERNET: [u8; 14] = [2, 0, 0, 0, 0, 1, 2, 0, 0, 0, 0, 2, 8, 0];
        const PORTS: u32 = 16;
        let [_, _, high, low] = (self.connection / PORTS).to_be_bytes();
        let client = (
            [198, 18, high, low],
            40_000 + (self.connection % PORTS) as u16,
        );
        let server = ([198, 19, 0, 1], 5201_u16);
        let [from, to] = if self.is_of_client {
            [client, server]
        } else {
            [server, client]
        };
        let options: &[u8] = if self.flags & flags::SYN == 0 {
            &[1, 1, 8, 10]
        } else {
            &[2, 4, 5, 0xB4, 4, 2, 3, 3, SCALE, 1, 8, 10]
        };
        let tcp_length = 28 + options.len();
        let length = (20 + tcp_length as u32 + self.payload) as u16;
        // It counts the segments of either end.
        let identification = ((self.sequence ^ self.acknowledgement) / MSS) as u16;
        let offset = (tcp_length as u16 / 4) << 12;
        [
            &ETHERNET[..],
            &[0x45, 0],
            &length.to_be_bytes(),
            &identification.to_be_bytes(),
            &[0x40, 0, 64, 6, 0, 0],
            &from.0,
            &to.0,
            &from.1.to_be_bytes(),
            &to.1.to_be_bytes(),
            &self.sequence.to_be_bytes(),
            &self.acknowledgement.to_be_bytes(),
            &(offset | self.flags).to_be_bytes(),
            &self.window.to_be_bytes(),
            &[0; 4],
            options,
            &self.timestamps[0].to_be_bytes(),
            &self.timestamps[1].to_be_bytes(),
        ]
        .concat()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Cursor;
    use std::sync::atomic::AtomicBool;

    use fullpipe_record::CaptureReport;
    use fullpipe_trace::{CaptureUse, ExplainedTransfers, PacketFile, read_flows};

    fn read(plan: CapturePlan) -> CaptureReport {
        let mut bytes = Vec::new();
        let (packets, size) = write_capture(plan, &mut bytes).unwrap();
        assert_eq!(bytes.len() as u64, size);
        let mut file = PacketFile::new(Cursor::new(bytes), "made").unwrap();
        let wanted = CaptureUse {
            explained: ExplainedTransfers::Largest(0),
            is_compared: false,
        };
        let report = read_flows(&mut file, "made", wanted, &AtomicBool::new(false)).report;
        assert_eq!((report.packets, report.segments), (packets, packets));
        assert!(report.notes.is_empty(), "{:?}", report.notes);
        report
    }

    #[test]
    fn a_made_transfer_has_the_planned_flight_and_loses_nothing() {
        let plan = CapturePlan {
            connections: 1,
            segments: 40_000,
            flight: 1000,
            snap: 96,
        };
        let report = read(plan);
        let [client, server] = &report.flows[0].ends;
        assert_eq!(client.flight.get(), 1_448_000);
        let lost = client.retransmitted_packets + client.late_packets + client.missing_bytes.get();
        let twice = client.duplicates + server.duplicates + server.duplicate_acks;
        assert_eq!((lost, twice), (0, 0));
        // As a window of 1000 segments takes at 1 Gbit/s, and one more for the second of a pair.
        let rtt = client.rtt.unwrap();
        assert!((rtt.median.as_secs_f64() - 0.0123).abs() < 2e-4, "{rtt:?}");
        let window = server.window.unwrap();
        assert!(window.most.get() > 1_448_000, "{window:?}");
    }

    #[test]
    fn each_of_many_made_transfers_is_whole() {
        let plan = CapturePlan {
            connections: 1000,
            snap: 1514,
            ..CaptureKind::Flows.plan(1)
        };
        let report = read(plan);
        assert_eq!(report.flows.len(), 1000);
        for flow in &report.flows {
            let [client, server] = &flow.ends;
            assert_eq!(client.packets + server.packets, 30);
            assert_eq!(client.unique_bytes.get(), 16 * u64::from(MSS));
            assert_eq!((client.fins, server.fins), (1, 1));
            assert_eq!(client.missing_bytes.get(), 0);
        }
    }

    #[test]
    fn a_tenth_of_a_capture_has_a_tenth_of_its_packets() {
        for kind in [CaptureKind::Gzip, CaptureKind::Flows] {
            let [tenth, hundredth] = [10, 100].map(|divisor| {
                let (packets, _) = write_capture(kind.plan(divisor), &mut io::sink()).unwrap();
                packets
            });
            // One connection has six packets without data or acknowledgement of it.
            assert!(tenth.abs_diff(hundredth * 10) <= 54, "{kind:?}");
        }
    }
}
