//! A capture file as connections.

use std::cmp::Reverse;
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};

use fullpipe_flow::{ExplainedTransfers, FlowsWithTimes, LeftOut, PacketTimes, TransferEvidence};
use fullpipe_record::{CaptureReport, FlowReport};
use fullpipe_units::count_noun;
use fullpipe_wire::{CapturedContent, LinkType, UnreadHeader, is_known, read_captured};

use crate::clock::{CaptureClock, ClockSteps};
use crate::error::CaptureError;
use crate::file::{CapturedPacket, PacketFile};
use crate::following::FlowFollower;
use crate::notes::FileNotes;
use crate::sorter::SegmentSorter;

/// Packets after which an interrupt is noticed.
const INTERRUPT_INTERVAL: u64 = 4096;

/// The content of a capture, as far as it was read.
#[derive(Debug)]
pub struct CaptureContent {
    /// Connections of the capture.
    pub report: CaptureReport,
    /// The times of packets of each connection, if the capture is to be compared with another.
    pub times: Vec<PacketTimes>,
    /// The evidence of the transfers that were asked for.
    pub transfers: Vec<TransferEvidence>,
    /// The error that ended the reading before the end of the file.
    pub error: Option<CaptureError>,
}

/// The use of a capture.
#[derive(Debug, Clone, Copy)]
pub struct CaptureUse<'f> {
    /// The transfers of which evidence is returned.
    pub explained: ExplainedTransfers<'f>,
    /// True if the capture is compared with another, for which the times of packets are kept.
    pub is_compared: bool,
}

/// Kinds of headers of which packets are counted at most, and named at most.
const MAX_KINDS: usize = 64;
const MAX_NAMED: usize = 4;

/// Packets of a capture that are no TCP segments.
#[derive(Default)]
struct OtherPackets {
    unread: BTreeMap<UnreadHeader, u64>,
    /// Packets with further kinds of headers.
    unread_beyond: u64,
    fragments: u64,
    cut: u64,
    encrypted: u64,
    malformed: u64,
    cut_options: u64,
    datagrams: u64,
    /// Those of other protocols.
    other: u64,
}

impl OtherPackets {
    fn count_unread(&mut self, unread: UnreadHeader) {
        let has_room = self.unread.len() < MAX_KINDS || self.unread.contains_key(&unread);
        *if has_room {
            self.unread.entry(unread).or_default()
        } else {
            &mut self.unread_beyond
        } += 1;
    }

    /// Returns the sentence on a capture without a segment of TCP.
    fn no_segment_note(&self, packets: u64) -> String {
        let kinds = [
            (self.datagrams, "datagram", "UDP"),
            (self.other, "packet", "other protocols"),
        ];
        let there = kinds.into_iter().filter(|(count, ..)| *count > 0);
        let texts: Vec<String> = there
            .map(|(count, one, of)| format!("{} of {of}", count_noun(count, one)))
            .collect();
        format!(
            "None of {packets} packets is a segment of TCP: {}.",
            texts.join(", ")
        )
    }

    /// Returns the sentence on packets whose headers are not understood.
    fn unread_note(&self) -> Option<String> {
        let count = self.unread.values().sum::<u64>() + self.unread_beyond;
        let mut kinds: Vec<(&UnreadHeader, &u64)> = self.unread.iter().collect();
        kinds.sort_by_key(|(_, count)| Reverse(**count));
        let names = list_few(
            kinds
                .into_iter()
                .map(|(unread, count)| format!("{count} of {unread}")),
        );
        let packets = count_noun(count, "packet");
        let advice = "connections in them are missing. Capture where nothing is wrapped around IP";
        (count > 0).then(|| {
            format!("{packets} within headers that are not understood ({names}): {advice}.")
        })
    }
}

/// Returns the first of some texts, and the number of the others.
fn list_few(texts: impl ExactSizeIterator<Item = String>) -> String {
    let others = texts.len().saturating_sub(MAX_NAMED);
    let named: Vec<String> = texts.take(MAX_NAMED).collect();
    let more = if others > 0 {
        format!(" and {}", count_noun(others, "other"))
    } else {
        String::new()
    };
    named.join(", ") + &more
}

/// The content of a capture so far.
struct ContentBuilder {
    flows: FlowFollower,
    others: OtherPackets,
    packets: u64,
    segments: u64,
    clock: CaptureClock,
    sorter: SegmentSorter,
}

impl ContentBuilder {
    fn new(is_compared: bool, sorter: SegmentSorter) -> Self {
        Self {
            flows: FlowFollower::new(is_compared),
            others: OtherPackets::default(),
            packets: 0,
            segments: 0,
            clock: CaptureClock::default(),
            sorter,
        }
    }

    /// Adds the next packet of the file.
    #[inline]
    fn add_packet(&mut self, packet: &CapturedPacket) {
        self.packets += 1;
        let at = self.clock.packet_time(packet.at, packet.interface);
        let others = &mut self.others;
        match &read_captured(packet.link, packet.bytes, packet.original as usize) {
            CapturedContent::Tcp(segment) => {
                self.segments += 1;
                others.cut_options += u64::from(segment.options.cut);
                self.sorter.add_segment(segment, at, &mut |segment, at| {
                    self.flows.add_segment(segment, at);
                });
            }
            CapturedContent::FirstFragment | CapturedContent::LaterFragment => {
                others.fragments += 1;
            }
            CapturedContent::Cut => others.cut += 1,
            CapturedContent::Encrypted => others.encrypted += 1,
            CapturedContent::Malformed => others.malformed += 1,
            CapturedContent::Unread(unread) => others.count_unread(*unread),
            CapturedContent::Udp => others.datagrams += 1,
            CapturedContent::Other => others.other += 1,
        }
    }

    /// Adds the segments that were held back.
    fn finish_content(mut self) -> Self {
        std::mem::take(&mut self.sorter)
            .finish_sorting(&mut |segment, at| self.flows.add_segment(segment, at));
        self
    }
}

/// Reads `file` to its end, or until `interrupt` is set, and returns its connections, with what is
/// `wanted` of them. An error ends the file; the connections before it are returned with it. `name`
/// is that of the file in the report.
pub fn read_flows(
    file: &mut PacketFile,
    name: &str,
    wanted: CaptureUse<'_>,
    interrupt: &AtomicBool,
) -> CaptureContent {
    read_flows_with(file, name, wanted, interrupt, &mut |_| Ok(()))
}

/// Reads `file` as [`read_flows`] does, and passes each packet to `also`, whose error ends the
/// reading as well.
pub fn read_flows_with(
    file: &mut PacketFile,
    name: &str,
    wanted: CaptureUse<'_>,
    interrupt: &AtomicBool,
    also: &mut impl FnMut(&CapturedPacket) -> Result<(), CaptureError>,
) -> CaptureContent {
    let (content, error) = read_content(file, wanted.is_compared, interrupt, also);
    let ContentBuilder {
        flows,
        others,
        packets,
        segments,
        clock,
        ..
    } = content.finish_content();
    let finished = flows.finish_flows(wanted.explained);
    let mut notes = capture_notes(file.file_notes(), &others, clock.steps);
    notes.extend(incomplete_notes(finished.unanswered, finished.left_out));
    if segments == 0 && packets > 0 && notes.is_empty() {
        notes.push(others.no_segment_note(packets));
    }
    let report = CaptureReport {
        name: name.to_owned(),
        format: format_of(file.file_notes()),
        packets,
        segments,
        duration: clock.elapsed_time(),
        notes,
        unanswered: finished.unanswered,
        left_out: finished.left_out.missing,
        flows: finished.flows,
        dropped: file.file_notes().drops,
        ..CaptureReport::default()
    };
    CaptureContent {
        report,
        times: finished.times,
        transfers: finished.transfers,
        error,
    }
}

/// Reads the packets of `file`, from its begin again once one is late, and returns the error that
/// ended it.
fn read_content(
    file: &mut PacketFile,
    is_compared: bool,
    interrupt: &AtomicBool,
    also: &mut impl FnMut(&CapturedPacket) -> Result<(), CaptureError>,
) -> (ContentBuilder, Option<CaptureError>) {
    let sorter = if file.can_reopen() {
        SegmentSorter::of_ordered()
    } else {
        SegmentSorter::new()
    };
    let mut content = ContentBuilder::new(is_compared, sorter);
    // Packets that were passed to `also`.
    let mut passed = 0;
    let error = loop {
        // The first packets are read in any case, as an interrupt may come before them.
        let is_time = content.packets > 0 && content.packets.is_multiple_of(INTERRUPT_INTERVAL);
        if is_time && interrupt.load(Ordering::Relaxed) {
            break None;
        }
        let packet = match file.next_packet() {
            Ok(Some(packet)) => packet,
            Ok(None) => break None,
            Err(error) => break Some(error),
        };
        if content.packets == passed {
            if let Err(error) = also(&packet) {
                break Some(error);
            }
            passed += 1;
        }
        content.add_packet(&packet);
        if std::mem::take(&mut content.sorter.has_passed_later) && file.rewind_file() {
            content = ContentBuilder::new(is_compared, SegmentSorter::of_disordered());
        }
    };
    (content, error)
}

impl CaptureContent {
    /// Returns the connection that moved most in the transfer of which evidence was asked for.
    pub fn explained_flow(&self) -> Option<&FlowReport> {
        let number = self.transfers.first()?.flows.first()?;
        self.report.flows.iter().find(|flow| flow.number == *number)
    }

    /// Returns the connections of the capture for [`fullpipe_flow::match_flows`].
    pub fn flows_with_times(&self) -> FlowsWithTimes<'_> {
        FlowsWithTimes {
            flows: &self.report.flows,
            times: &self.times,
        }
    }
}

fn format_of(notes: &FileNotes) -> String {
    match &notes.compression {
        Some(compression) => format!("{}, {compression}", notes.format),
        None => notes.format.to_owned(),
    }
}

/// Returns a sentence for each count that is not zero.
fn count_notes<const N: usize>(counts: [(u64, &str, &str); N]) -> impl Iterator<Item = String> {
    counts
        .into_iter()
        .filter(|(count, ..)| *count > 0)
        .map(|(count, noun, text)| format!("{} {text}.", count_noun(count, noun)))
}

/// Returns a sentence for each way in which connections are incomplete.
fn incomplete_notes(unanswered: u64, left_out: LeftOut) -> impl Iterator<Item = String> {
    count_notes([
        (unanswered, "SYN", "got no answer"),
        (
            left_out.missing,
            "connection",
            "left out, as there were too many: those with least data",
        ),
        (
            left_out.finished_early,
            "connection",
            "finished early, as there were too many: those that were silent longest",
        ),
        (
            left_out.thinned,
            "small connection",
            "without some round-trip times, as there were too many",
        ),
    ])
}

fn capture_notes(file: &FileNotes, others: &OtherPackets, steps: ClockSteps) -> Vec<String> {
    let mut notes = Vec::new();
    if file.cut_end {
        notes.push("The last packet of the file is cut off; all before it were read.".to_owned());
    }
    let unread: Vec<&LinkType> = file.links.iter().filter(|link| !is_known(**link)).collect();
    if !unread.is_empty() {
        let names = list_few(unread.iter().map(ToString::to_string));
        notes.push(format!(
            "Packets of link type {names} are not read: capture on a device that carries IP."
        ));
    }
    notes.extend(others.unread_note());
    notes.extend(steps.note_text());
    notes.extend(count_notes([
        (
            file.drops.unwrap_or(0),
            "packet",
            "dropped by the capturing host",
        ),
        (file.packets_without_time, "packet", "without a time"),
        (
            file.clamped_fractions,
            "packet",
            "with too large a fraction of a second as time",
        ),
        (
            others.cut_options,
            "segment",
            "with TCP options that the snap length cut off",
        ),
        (others.cut, "packet", "cut before the end of the TCP header"),
        (others.fragments, "fragment", "left out"),
        (others.encrypted, "encrypted packet", "left out"),
        (others.malformed, "malformed packet", "left out"),
    ]));
    notes
}

#[cfg(test)]
mod tests;
