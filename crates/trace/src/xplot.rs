//! Time–sequence graphs for xplot, in the language of tcptrace's (`tsg`).

use std::fmt;
use std::fs::{self, OpenOptions};
use std::io::{self, BufWriter, Write};
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};

use fullpipe_record::FlowReport;
use fullpipe_units::{Span, Time};
use fullpipe_wire::{Captured, Segment, flags, read_captured};

use crate::clock::Clock;
use crate::error::CaptureError;
use crate::file::PacketFile;
use crate::sorter::Sorter;

/// Lines of a graph at most: about 50 MB.
const MAX_LINES: u64 = 1 << 20;

/// Packets after which an interrupt is noticed.
const INTERRUPT_INTERVAL: u64 = 4096;

/// A graph that was drawn.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Plot {
    /// Its file.
    pub path: PathBuf,
    /// Packets that were left out since it would have become too long: all after the first of them.
    pub left_out: u64,
}

/// Draws what the end of `flow` with more data sent, over time: data in white, data below what was seen before in red,
/// acknowledgements as a green line, the edge of the window as a yellow one where its scale is known, and SACK blocks
/// in purple. `file` is the capture from its begin, and the graph a new file of at most a million lines in `folder`,
/// which is made.
///
/// # Errors
///
/// Fails if the capture cannot be read, or the graph exists or cannot be written; it is then removed.
pub fn plot(
    file: &mut PacketFile,
    flow: &FlowReport,
    folder: &Path,
    interrupt: &AtomicBool,
) -> Result<Plot, CaptureError> {
    let path = folder.join(format!("connection-{}.xpl", flow.number));
    let fail = |source| CaptureError::Write { file: path.display().to_string(), source };
    fs::create_dir_all(folder).map_err(fail)?;
    let to = OpenOptions::new().write(true).create_new(true).open(&path).map_err(fail)?;
    let drawn = draw(file, flow, &mut BufWriter::new(to), interrupt);
    if drawn.is_err() {
        // The first error counts.
        let _ = fs::remove_file(&path);
    }
    match drawn {
        Ok(left_out) => Ok(Plot { path, left_out }),
        Err(Stopped::Read(error)) => Err(error),
        Err(Stopped::Write(source)) => Err(fail(source)),
    }
}

enum Stopped {
    Read(CaptureError),
    Write(io::Error),
}

/// Draws the graph. Returns how many packets were left out.
fn draw(file: &mut PacketFile, flow: &FlowReport, to: &mut impl Write, interrupt: &AtomicBool) -> Result<u64, Stopped> {
    let mut graph = Graph::begin(flow, to).map_err(Stopped::Write)?;
    let (mut clock, mut sorter) = (Clock::default(), Sorter::of_disordered());
    let (mut begin, mut left_out, mut packets) = (None, 0, 0_u64);
    let mut written = Ok(());
    let mut add = |segment: &Segment, at: Time| {
        let since = at.since(*begin.get_or_insert(at));
        match graph.has(segment, since, flow) && written.is_ok() {
            true if graph.lines >= MAX_LINES => left_out += 1,
            true => written = graph.add(segment, at),
            false => {}
        }
    };
    while !packets.is_multiple_of(INTERRUPT_INTERVAL) || !interrupt.load(Ordering::Relaxed) {
        packets += 1;
        let Some(packet) = file.next_packet().map_err(Stopped::Read)? else { break };
        let at = clock.time(packet.at, packet.interface);
        if let Captured::Tcp(segment) = &read_captured(packet.link, packet.bytes, packet.original as usize) {
            sorter.add(segment, at, &mut add);
        }
    }
    sorter.finish(&mut add);
    written.map_err(Stopped::Write)?;
    graph.line(format_args!("go")).and_then(|()| graph.to.flush()).map_err(Stopped::Write)?;
    Ok(left_out)
}

/// A colour of a graph, as tcptrace uses them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Color {
    White,
    Red,
    Green,
    Yellow,
    Purple,
}

impl Color {
    const fn name(self) -> &'static str {
        match self {
            Self::White => "white",
            Self::Red => "red",
            Self::Green => "green",
            Self::Yellow => "yellow",
            Self::Purple => "purple",
        }
    }
}

struct Graph<'t, W> {
    to: &'t mut W,
    sender: Option<SocketAddr>,
    receiver: Option<SocketAddr>,
    /// Those of the first segment of each direction: the same packets may be captured within a tunnel, too.
    networks: [Option<u32>; 2],
    /// Shift of the receiver's windows, where it is known.
    scale: Option<u8>,
    color: Color,
    lines: u64,
    /// Highest position that was sent.
    highest: Option<i64>,
    /// Time, acknowledgement and edge of the window of the last acknowledgement.
    acknowledged: Option<(Time, i64, Option<i64>)>,
}

impl<'t, W: Write> Graph<'t, W> {
    fn begin(flow: &FlowReport, to: &'t mut W) -> io::Result<Self> {
        let index = flow.sender();
        let [sender, receiver] = [&flow.ends[index], &flow.ends[1 - index]];
        let shifts = sender.window_scale.zip(receiver.window_scale);
        let has_syns = sender.syn.is_some() && receiver.syn.is_some();
        let mut graph = Self {
            to,
            sender: sender.address.parse().ok(),
            receiver: receiver.address.parse().ok(),
            networks: [None; 2],
            scale: has_syns.then_some(shifts.map_or(0, |(_, shift)| shift)),
            color: Color::White,
            lines: 0,
            highest: None,
            acknowledged: None,
        };
        graph.line(format_args!("timeval double\ntitle"))?;
        graph.line(format_args!("{}_==>_{} (time sequence graph)", sender.address, receiver.address))?;
        graph.line(format_args!("xlabel\ntime\nylabel\nsequence number\nwhite"))?;
        Ok(graph)
    }

    /// Returns true if a segment so long after the capture's first is one of this connection.
    fn has(&mut self, segment: &Segment, since: Span, flow: &FlowReport) -> bool {
        let ends = [Some(segment.source), Some(segment.destination)];
        let is_between = ends == [self.sender, self.receiver] || ends == [self.receiver, self.sender];
        let is_then = since >= flow.begin && since <= flow.begin + flow.duration;
        let network = &mut self.networks[usize::from(ends[0] == self.sender)];
        is_between && is_then && *network.get_or_insert(segment.network) == segment.network
    }

    /// Returns the place of a sequence number on the axis: beyond 4 GiB they begin again, and it goes on.
    fn position(&self, number: u32) -> i64 {
        let acknowledged = self.acknowledged.map(|(_, position, _)| position);
        let near = self.highest.or(acknowledged).unwrap_or(number.into());
        near + i64::from(number.wrapping_sub(near as u32).cast_signed())
    }

    fn add(&mut self, segment: &Segment, at: Time) -> io::Result<()> {
        if Some(segment.source) == self.sender {
            self.add_data(segment, Stamp(at))
        } else if segment.has(flags::ACK) {
            self.add_acknowledgement(segment, at)
        } else {
            Ok(())
        }
    }

    fn add_data(&mut self, segment: &Segment, at: Stamp) -> io::Result<()> {
        if segment.payload == 0 {
            return Ok(());
        }
        let start = self.position(segment.sequence);
        let end = start + i64::from(segment.payload);
        let was_seen = self.highest.is_some_and(|highest| start < highest);
        self.highest = self.highest.max(Some(end));
        self.color(if was_seen { Color::Red } else { Color::White })?;
        self.line(format_args!("darrow {at} {start}\nuarrow {at} {end}"))?;
        self.line(format_args!("line {at} {start} {at} {end}"))
    }

    fn add_acknowledgement(&mut self, segment: &Segment, time: Time) -> io::Result<()> {
        let (at, acknowledged) = (Stamp(time), self.position(segment.acknowledgement));
        let is_scaled = segment.flags & (flags::SYN | flags::RST) == 0;
        let scale = self.scale.filter(|_| is_scaled);
        let edge = scale.map(|scale| acknowledged + (i64::from(segment.window) << scale.min(14)));
        if let Some((before, last, last_edge)) = self.acknowledged {
            // One that was overtaken moves nothing.
            if acknowledged < last {
                return Ok(());
            }
            self.color(Color::Green)?;
            self.step(Stamp(before), last, at, acknowledged)?;
            if acknowledged == last {
                self.line(format_args!("dtick {at} {acknowledged}"))?;
            }
            if let (Some(last_edge), Some(edge)) = (last_edge, edge) {
                self.color(Color::Yellow)?;
                self.step(Stamp(before), last_edge, at, edge)?;
            }
        }
        self.acknowledged = Some((time, acknowledged, edge));
        let options = &segment.options;
        for (from, to) in &options.sack[..usize::from(options.sack_blocks)] {
            self.color(Color::Purple)?;
            let [from, to] = [from, to].map(|number| self.position(*number));
            self.line(format_args!("line {at} {from} {at} {to}"))?;
        }
        Ok(())
    }

    fn step(&mut self, from: Stamp, before: i64, to: Stamp, after: i64) -> io::Result<()> {
        self.line(format_args!("line {from} {before} {to} {before}"))?;
        if before == after { Ok(()) } else { self.line(format_args!("line {to} {before} {to} {after}")) }
    }

    fn color(&mut self, color: Color) -> io::Result<()> {
        if self.color == color {
            return Ok(());
        }
        self.color = color;
        self.line(format_args!("{}", color.name()))
    }

    fn line(&mut self, text: fmt::Arguments<'_>) -> io::Result<()> {
        self.lines += 1;
        writeln!(self.to, "{text}")
    }
}

/// A time in seconds since 1970, to the microsecond, as xplot reads them.
#[derive(Debug, Clone, Copy)]
struct Stamp(Time);

impl fmt::Display for Stamp {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let micros = self.0.as_nanos() / 1_000;
        write!(f, "{}.{:06}", micros / 1_000_000, micros % 1_000_000)
    }
}
