//! Transfers with a planted limit in virtual time: each is simulated once, and judged from every
//! view.

use std::io::{self, Cursor};
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::atomic::AtomicBool;

use fullpipe_diagnose::diagnose;
use fullpipe_experiment::{ExperimentError, Interrupt, simulate_captured, simulate_plan};
use fullpipe_record::{Evidence, Measurement};
use fullpipe_sim::SimulationPlan;
use fullpipe_trace::{ExplainedTransfers, PacketFile};
use fullpipe_units::{BitRate, Span};
use fullpipe_wire::{CapturedContent, pcap_header, pcap_record, read_captured};

use super::captures::{capture_file, judge_captures};
use super::record::Record;
use super::silent_tail::{append_keepalives, append_silence};
use super::view::{JudgedView, Judgement};
use crate::process::RunError;

/// Bytes of each packet in a simulated capture.
const SNAP_LENGTH: u32 = 128;

/// Port of the first connection of a simulation, at the end that opens it.
const FIRST_PORT: u16 = 40_000;

/// A transfer with one planted limit.
#[derive(Debug)]
pub(crate) struct VirtualCase {
    pub(crate) name: String,
    pub(crate) expected: String,
    pub(crate) plan: SimulationPlan,
    /// Set if the user states the rate of the path.
    pub(crate) states_rate: bool,
    /// Set if the connection stays open for long after the data.
    pub(crate) has_silent_tail: bool,
    /// Set if the program was asked for the rate that it offers, and does not have it by itself.
    pub(crate) is_rate_asked: bool,
    /// Share of the transfer's time after which its sender is listed.
    pub(crate) listed_at: f64,
    /// Rates between which the planted limit can have been the limit.
    pub(crate) rates: [BitRate; 2],
}

/// A simulated transfer, and the captures of both ends, if they are judged.
type SimulatedTransfer = (Measurement, Option<[Vec<u8>; 2]>);

/// A transfer, and the verdicts of every view.
pub(crate) type JudgedTransfer = (Record, Vec<Judgement>);

impl VirtualCase {
    /// Lets the transfer last for `duration`, and other loads as much longer as before.
    pub(crate) fn last_for(&mut self, duration: Span) {
        let before = std::mem::replace(&mut self.plan.request.duration, duration);
        for other in &mut self.plan.cross_traffic {
            other.request.duration = duration + other.request.duration.saturating_sub(before);
        }
    }

    /// Simulates the transfer, and judges it from `views`; `None` if it is not modelled, or the
    /// planted limit was none.
    ///
    /// # Errors
    /// Fails if it is interrupted, cannot be simulated, or its captures cannot be written.
    pub(crate) fn judge(
        &self,
        views: &[JudgedView],
        stop: &AtomicBool,
    ) -> Result<Option<JudgedTransfer>, RunError> {
        let (measurement, files) = match self.simulate(views, stop) {
            Ok(simulated) => simulated,
            Err(ExperimentError::NotModelled(_)) => return Ok(None),
            Err(error) => return Err(RunError::failed(error)),
        };
        let summary = &measurement.summary;
        let rate = summary.steady.map_or(summary.rate, |steady| steady.rate);
        let [low, high] = self.rates;
        if rate < low || rate >= high {
            return Ok(None);
        }
        let record = self.record(&measurement);
        let stated = record.stated();
        let is_wanted = |view: &JudgedView| views.contains(view);
        let kernel = JudgedView::OF_KERNEL.into_iter().filter(is_wanted);
        let mut judged: Vec<Judgement> =
            kernel.map(|view| self.judge_view(view, &record)).collect();
        judged.extend(record.listed(self.listed_at, stated));
        if let Some(files) = files {
            judged.extend(self.judge_files(&record, &measurement, &files)?);
        }
        judged.retain(|one| is_wanted(&one.view));
        Ok(Some((record, judged)))
    }

    /// Returns the transfer, with captures of both ends if they are judged.
    fn simulate(
        &self,
        views: &[JudgedView],
        stop: &AtomicBool,
    ) -> Result<SimulatedTransfer, ExperimentError> {
        let plan = self.plan.clone();
        if views.iter().any(|view| view.is_of_captures()) {
            let (measurement, files) = simulate_captured(plan, Interrupt(stop))?;
            return Ok((measurement, Some(files)));
        }
        Ok((simulate_plan(plan, Interrupt(stop))?, None))
    }

    fn record(&self, measurement: &Measurement) -> Record {
        let forward = &self.plan.path.forward;
        let stated = forward.rate.filter(|_| self.states_rate);
        let mut evidence = Evidence::from_measurement(measurement, stated, forward.framing);
        evidence.request.rate = evidence.request.rate.filter(|_| self.is_rate_asked);
        let path = self.plan.path.clone();
        let mut record = Record::new(&self.name, JudgedView::BothEnds, &self.expected, path);
        record.states_rate = self.states_rate;
        record.verdict = Some(diagnose(&evidence));
        record.evidence = Some(evidence);
        record
    }

    fn judge_view(&self, view: JudgedView, record: &Record) -> Judgement {
        let evidence = record.evidence.as_ref();
        let verdict = evidence.map(|both_ends| {
            let mut evidence = view.evidence(both_ends, record.stated());
            // A load of its own closes its connections.
            if self.has_silent_tail && view == JudgedView::Watched {
                append_silence(&mut evidence.sender_samples);
            }
            diagnose(&evidence)
        });
        Judgement {
            view,
            verdict,
            ..record.judgement()
        }
    }

    /// Returns the verdicts on the captures of both ends, each and together.
    fn judge_files(
        &self,
        record: &Record,
        measurement: &Measurement,
        files: &[Vec<u8>; 2],
    ) -> io::Result<[Judgement; 3]> {
        let scratch = tempfile::tempdir()?;
        let paths = ["sender", "receiver"].map(|end| capture_file(scratch.path(), "case", end));
        for (path, file) in paths.iter().zip(files) {
            let mut file = without_cross_traffic(file)?;
            if self.has_silent_tail {
                file = append_keepalives(&file, self.plan.path.rtt())?;
            }
            std::fs::write(path, file)?;
        }
        let explained = ExplainedTransfers::of_test(measurement);
        let paths = paths.each_ref().map(PathBuf::as_path);
        Ok(judge_captures(
            &record.judgement(),
            paths,
            record.stated(),
            explained,
        ))
    }
}

/// Returns a capture with the packets of its first connection alone: cross traffic passes other
/// hosts.
fn without_cross_traffic(file: &[u8]) -> io::Result<Vec<u8>> {
    let mut packets =
        PacketFile::new(Cursor::new(file.to_vec()), "capture").map_err(io::Error::other)?;
    let mut own = Vec::new();
    while let Some(packet) = packets.next_packet().map_err(io::Error::other)? {
        if own.is_empty() {
            own.extend(pcap_header(packet.link, SNAP_LENGTH));
        }
        let captured = read_captured(packet.link, packet.bytes, packet.original as usize);
        let is_first = |address: SocketAddr| address.port() == FIRST_PORT;
        if let CapturedContent::Tcp(segment) = captured
            && (is_first(segment.source) || is_first(segment.destination))
        {
            let length = packet.bytes.len() as u32;
            own.extend(pcap_record(packet.at, length, packet.original));
            own.extend(packet.bytes);
        }
    }
    Ok(own)
}
