//! The counts of both ends as one measurement.

use std::time::Instant;

use crate::echo::EchoResult;
use crate::engine::StreamRole;
use fullpipe_iperf::TestResults;
use fullpipe_record::{
    Buffer, Direction, EndReport, Interval, LoadTime, Measurement, Peer, Request, ResolvedRequest,
    RttReport, RttStats, Sample, Steady, StreamSummary, Summary, TcpInfo, Transport, Validity,
    find_steady, steady_of_receiver,
};
use fullpipe_units::{BitRate, ByteCount, Span, count_noun};

use super::TestSession;
use crate::progress::FinishedTransfer;
use crate::results::{
    as_stated, direction_summary, new_id, run_totals, start_date, stream_summaries, this_host,
};

/// Maximum number of notes of the other end that are shown.
const MAX_NOTES: usize = 8;

/// A test that is over, or as if it were.
pub(super) struct FinishedTest<'s> {
    pub test: &'s TestSession<'s>,
    /// State of the control connection after the test.
    pub control: Option<TcpInfo>,
    /// Counts of this end.
    pub finished: FinishedTransfer,
    /// Counts of the other end.
    pub results: TestResults,
    /// Round-trip times of echo requests, if any were answered.
    pub echoes: Option<EchoResult>,
    /// Round-trip time of the control connection's handshake, or a lesser one of an echo request.
    pub handshake: Option<Span>,
    pub intervals: Vec<Interval>,
    pub broken_off: Option<String>,
}

impl FinishedTest<'_> {
    /// Returns the measurement of the test.
    pub(super) fn into_measurement(self) -> Measurement {
        let test = self.test;
        let streams = stream_summaries(&self.finished, &self.results, test.request.transport);
        let rtt = self.round_trips();
        let ways = test.request.data_directions();
        let measurement = Measurement {
            id: new_id(),
            started: start_date(&self.finished),
            setup: test.setup,
            peer: Peer {
                host: test.destination.host.clone(),
                address: test.address.to_string(),
                speaks_fullpipe: self.far_report().is_some(),
            },
            request: test.asked.clone(),
            resolved: Some(ResolvedRequest::new(test.request.clone())),
            run: Some(run_totals(
                test.begun,
                &self.finished,
                self.control.as_ref(),
            )),
            summary: self.direction_summary(ways[0], &streams, rtt.idle),
            reverse: ways
                .get(1)
                .map(|&way| self.direction_summary(way, &streams, rtt.idle)),
            warnings: self.test_warnings(),
            validity: Validity {
                broken: self.unmet_rates(&streams),
                ..Validity::default()
            },
            remote: remote_report(test, self.results),
            local: local_report(test, self.finished),
            streams,
            intervals: self.intervals,
            rtt,
            interrupted: test.interrupted,
            broken_off: self.broken_off,
            ..Measurement::default()
        };
        measurement.to_bounded()
    }

    fn direction_summary(
        &self,
        way: Direction,
        streams: &[StreamSummary],
        idle: Option<RttStats>,
    ) -> Summary {
        let (samples, end) = self.best_samples(way);
        let samples: Vec<Sample> = samples
            .iter()
            .filter(|sample| self.finished.ways.get(usize::from(sample.stream)) == Some(&way))
            .cloned()
            .collect();
        let steady = steady_part(
            (&samples, end),
            idle.map(|idle| idle.min),
            self.finished.to.totals.at,
        );
        Summary {
            steady,
            ..direction_summary(way, streams, self.counting_time(way == Direction::Upload))
        }
    }

    /// Returns the report of the other end; if the test broke off, that up to then.
    fn far_report(&self) -> Option<&EndReport> {
        self.results.report.as_deref().or(self.test.stated.as_ref())
    }

    /// Returns the time over which this end counted, or the other one if it `is_theirs`, by its own
    /// clock if it reported that.
    fn counting_time(&self, is_theirs: bool) -> Span {
        let theirs = self.their_time().filter(|_| is_theirs);
        theirs.unwrap_or_else(|| self.finished.duration())
    }

    /// Returns why the senders of datagrams did not carry the load asked for. Of a test that broke
    /// off, the other end's counts are not known.
    fn unmet_rates(&self, streams: &[StreamSummary]) -> Vec<String> {
        let directions = self
            .test
            .request
            .data_directions()
            .iter()
            .filter(|_| self.broken_off.is_none());
        let unmet = directions.filter_map(|&way| {
            let sent = streams
                .iter()
                .filter(|stream| stream.direction == way)
                .map(|stream| stream.sent)
                .sum();
            let time = self.counting_time(way == Direction::Download);
            unmet_rate(&self.test.request, way, sent, time)
        });
        unmet.collect()
    }

    /// Returns the time over which the other end counted, by its own clock; `None` if it is not
    /// known.
    fn their_time(&self) -> Option<Span> {
        let theirs = self
            .results
            .streams
            .iter()
            .map(|result| result.to.saturating_sub(result.from));
        theirs.max().filter(|theirs| *theirs > Span::ZERO)
    }

    fn best_samples(&self, way: Direction) -> (&[Sample], StreamRole) {
        let theirs = self
            .results
            .report
            .as_ref()
            .map_or(&[][..], |report| &report.samples);
        best_samples(way, &self.finished.rest.samples, theirs)
    }

    fn round_trips(&self) -> RttReport {
        let way = self.test.request.data_directions()[0];
        let (from, to) = (self.finished.from.totals.at, self.finished.to.totals.at);
        let counted = self
            .best_samples(way)
            .0
            .iter()
            .filter(|sample| sample.at >= from);
        let within = counted.filter_map(|sample| sample.tcp.rtt).collect();
        round_trips(
            self.echoes.as_ref(),
            (self.finished.origin, from, to),
            self.handshake,
            within,
        )
    }

    fn test_warnings(&self) -> Vec<String> {
        let mut warnings = self.buffer_warnings();
        warnings.extend(self.drop_warnings());
        let omit = self.test.request.omit;
        let whole = Span::from_secs(omit.as_nanos().div_ceil(Span::from_secs(1).as_nanos()));
        if self.far_report().is_none() && whole != omit {
            warnings.push(format!(
                "the server leaves out {whole}, this end {omit}: iperf3 knows whole seconds only"
            ));
        }
        warnings.extend(self.finished.rest.notes.iter().cloned());
        let stated = self
            .results
            .report
            .iter()
            .flat_map(|report| &report.notes)
            .take(MAX_NOTES);
        warnings.extend(stated.map(|note| format!("at the other end, {note}")));
        for (stream, error) in &self.finished.rest.failures {
            warnings.push(format!("stream {stream} broke: {error}"));
        }
        warnings
    }

    /// Returns how the kernel cut the buffers that were asked for.
    fn buffer_warnings(&self) -> Vec<String> {
        let request = &self.test.request;
        let sockets = self.test.sockets.first().into_iter();
        let buffers = sockets.flat_map(|socket| {
            [
                (
                    "SO_SNDBUF",
                    "wmem_max",
                    request.send_buffer(),
                    socket.sndbuf,
                ),
                (
                    "SO_RCVBUF",
                    "rmem_max",
                    request.receive_buffer(),
                    socket.rcvbuf,
                ),
            ]
        });
        let cut = buffers.filter_map(|(name, limit, asked, got)| match asked {
            Buffer::Request(asked) if got < asked * 2 => Some(format!(
                "the kernel cut {name} to {} of the {asked} asked for; net.core.{limit} allows no more",
                ByteCount::new(got.get() / 2)
            )),
            _ => None,
        });
        cut.collect()
    }

    /// Returns how many datagrams each host itself dropped.
    fn drop_warnings(&self) -> Vec<String> {
        let mut warnings = Vec::new();
        let here = self.finished.stream_datagrams(self.test.request.transport);
        let there = self
            .far_report()
            .map_or(&[][..], |report| &report.datagrams);
        for (whose, seen) in [("this", &here[..]), ("the other", there)] {
            let dropped = seen
                .iter()
                .filter_map(|seen| seen.dropped_here)
                .fold(0, u64::saturating_add);
            if dropped > 0 {
                warnings.push(format!(
                    "{whose} host itself dropped {} for want of socket buffer; ask for more with --buffer",
                    count_noun(dropped, "datagram")
                ));
            }
        }
        warnings
    }
}

/// Returns the report of this end, with the counts of `finished`.
fn local_report(test: &TestSession<'_>, finished: FinishedTransfer) -> EndReport {
    EndReport {
        host: Some(this_host()),
        settings: Some(test.settings.clone()),
        cpu: finished.rest.cpu,
        sockets: test.sockets.clone(),
        datagrams: finished.stream_datagrams(test.request.transport),
        storage: finished.rest.storage,
        placement: test.placement.clone(),
        processors: finished.machine.processors,
        device: finished.machine.device,
        network: finished.machine.network,
        samples: finished.rest.samples,
        ..EndReport::default()
    }
}

/// Returns the report of the other end: that in its `results`, or else the latest one while data
/// flowed.
fn remote_report(test: &TestSession<'_>, results: TestResults) -> EndReport {
    let plain = as_stated(&results);
    match results
        .report
        .map(|report| *report)
        .or_else(|| test.stated.clone())
    {
        Some(report) => EndReport {
            output: plain.output,
            ..report
        },
        None => plain,
    }
}

/// Returns why the sender of datagrams in the direction `way`, which `sent` so much in `time`, did
/// not carry the load of `request`: it missed the rate by more than 1 %, and by more than a burst
/// and 20 ms of it. `None` if it met the rate, there is none, or the test ends by bytes, whose time
/// is not known as exactly.
pub(in crate::client) fn unmet_rate(
    request: &Request,
    way: Direction,
    sent: ByteCount,
    time: Span,
) -> Option<String> {
    const MAX_SHORTFALL: f64 = 0.01;
    // Time that the threads of all streams take to start, or to stop.
    const EDGE: Span = Span::from_millis(20);
    let is_paced = request.transport == Transport::Udp && request.bytes.is_none();
    let asked = request
        .rate
        .filter(|_| is_paced)?
        .scale_by(f64::from(request.streams));
    let burst =
        request.block * (u64::from(request.burst.unwrap_or(1)) * u64::from(request.streams));
    let missing = asked.bytes_in(time).saturating_sub(sent);
    let at_edges = burst + asked.bytes_in(EDGE);
    let is_met = missing <= at_edges || missing <= asked.scale_by(MAX_SHORTFALL).bytes_in(time);
    let whose = if way == Direction::Download {
        "the other"
    } else {
        "this"
    };
    let offered = BitRate::from_bytes_in(sent, time);
    (!is_met).then(|| {
        format!(
            "{whose} end offered {offered} of the {asked} asked for: its host was too busy, or its network device \
             takes no more"
        )
    })
}

/// Returns the samples of the end that sent, or else of the receiving end, which is this one where
/// a peer that sends reports none.
fn best_samples<'s>(
    way: Direction,
    ours: &'s [Sample],
    theirs: &'s [Sample],
) -> (&'s [Sample], StreamRole) {
    match way {
        Direction::Upload | Direction::Both => (ours, StreamRole::Sender),
        Direction::Download if theirs.is_empty() => (ours, StreamRole::Receiver),
        Direction::Download => (theirs, StreamRole::Sender),
    }
}

fn steady_part(
    (samples, end): (&[Sample], StreamRole),
    idle_rtt: Option<Span>,
    ended_at: Span,
) -> Option<Steady> {
    match end {
        StreamRole::Sender => find_steady(samples, idle_rtt, ended_at),
        StreamRole::Receiver => steady_of_receiver(samples, idle_rtt, ended_at),
    }
}

/// Returns the round-trip times of the echo requests in `taken`, during a load that began at
/// `origin` and was counted between `from` and `to`; without `taken`, the estimates of the kernel:
/// that of the `handshake`, and those `within` the load.
pub(in crate::client) fn round_trips(
    taken: Option<&EchoResult>,
    (origin, from, to): (Instant, Span, Span),
    handshake: Option<Span>,
    within: Vec<Span>,
) -> RttReport {
    let Some(taken) = taken else {
        return RttReport::of_kernel(handshake, within);
    };
    let began = origin.duration_since(taken.origin).into();
    let load = LoadTime {
        began,
        from: began + from,
        to: began + to,
        settled: taken.settled,
    };
    RttReport::of_echoes(taken.method, &taken.echoes, load, handshake, within)
}

#[cfg(test)]
mod tests;
