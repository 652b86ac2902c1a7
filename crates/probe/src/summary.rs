//! What both ends counted, as one measurement.

use std::net::SocketAddr;
use std::time::SystemTime;

use fullpipe_diagnose::steady;
use fullpipe_iperf::{Results, ServerOutput, StreamResult};
use fullpipe_load::StreamCount;
use fullpipe_record::{
    Buffer, Datagrams, Direction, EndReport, HostSettings, Interval, Measurement, Peer, Request, RttMethod, RttReport,
    RttStats, Sample, SocketReadback, StreamSummary, Summary, Transport, Validity,
};
use fullpipe_units::{BitRate, ByteCount, Span};

use crate::client::Destination;
use crate::ping::Echo;
use crate::progress::Finished;

/// Everything that is known of a test when it is over.
pub(crate) struct Test<'d> {
    pub(crate) destination: &'d Destination,
    pub(crate) address: SocketAddr,
    pub(crate) request: Request,
    pub(crate) settings: HostSettings,
    pub(crate) sockets: Vec<SocketReadback>,
    /// What this end counted.
    pub(crate) finished: Finished,
    /// What the other end counted.
    pub(crate) results: Results,
    pub(crate) echoes: Vec<Echo>,
    /// Round-trip time of the control connection's handshake.
    pub(crate) handshake: Option<Span>,
    pub(crate) intervals: Vec<Interval>,
    pub(crate) interrupted: bool,
    pub(crate) broken_off: Option<String>,
}

impl Test<'_> {
    /// The measurement that it makes.
    pub(crate) fn measurement(self) -> Measurement {
        let streams = self.streams();
        let rtt = self.round_trips();
        let mut summaries = self.request.directions().iter().map(|&way| self.summary(way, &streams, rtt.idle));
        let summary = summaries.next().unwrap_or_else(|| self.summary(Direction::Upload, &streams, rtt.idle));
        let reverse = summaries.next();
        drop(summaries);
        let warnings = self.warnings();
        let started = started(&self.finished);
        let peer = Peer {
            host: self.destination.host.clone(),
            address: self.address.to_string(),
            speaks_fullpipe: self.results.report.is_some(),
        };
        let local = EndReport {
            settings: Some(self.settings),
            cpu: self.finished.rest.cpu,
            sockets: self.sockets,
            datagrams: self.finished.datagrams(self.request.transport),
            samples: self.finished.rest.samples,
        };
        let told = EndReport { cpu: Some(self.results.cpu), ..EndReport::default() };
        let server_output = self.results.server_output.map(|output| match output {
            ServerOutput::Text(text) | ServerOutput::Json(text) => text,
        });
        let remote = self.results.report.map_or(told, |report| *report);
        Measurement {
            started,
            peer,
            request: self.request,
            local,
            remote,
            streams,
            intervals: self.intervals,
            rtt,
            summary,
            reverse,
            limit: None,
            interrupted: self.interrupted,
            broken_off: self.broken_off,
            server_output,
            warnings,
            validity: Validity::default(),
        }
    }

    fn streams(&self) -> Vec<StreamSummary> {
        let counts = self.finished.counts();
        let retransmits = self.finished.retransmits();
        let stream = |(index, (here, &way)): (usize, (StreamCount, &Direction))| {
            let there = self.results.streams.iter().find(|result| usize::from(result.stream) == index);
            let sends = way == Direction::Upload;
            let counted = there.map_or_else(|| self.acknowledged(index), |result| result.bytes);
            let (sent, received) = if sends { (here.bytes, counted) } else { (counted, here.bytes) };
            StreamSummary {
                stream: index as u16,
                direction: way,
                sent,
                received,
                retransmits: if sends {
                    retransmits.get(index).copied()
                } else {
                    there.and_then(|result| result.retransmits)
                },
                datagrams_sent: self.datagrams_sent(way, here, there),
                datagrams: self.datagrams(index, way, here, there),
            }
        };
        counts.into_iter().zip(&self.finished.ways).enumerate().map(stream).collect()
    }

    fn datagrams_sent(&self, way: Direction, here: StreamCount, there: Option<&StreamResult>) -> Option<u64> {
        match (self.request.transport, way) {
            (Transport::Tcp, _) => None,
            (Transport::Udp, Direction::Upload | Direction::Both) => Some(here.datagrams_sent),
            (Transport::Udp, Direction::Download) => Some(there?.datagrams.counted().packets),
        }
    }

    /// What the receiver saw: exact where it is fullpipe, in iperf3's way of counting where it is iperf3.
    fn datagrams(
        &self,
        index: usize,
        way: Direction,
        here: StreamCount,
        there: Option<&StreamResult>,
    ) -> Option<Datagrams> {
        if self.request.transport == Transport::Tcp {
            return None;
        }
        if way == Direction::Download {
            return Some(here.datagrams);
        }
        let exact = self.results.report.as_ref().and_then(|report| report.datagrams.get(index));
        exact.copied().or_else(|| Some(there?.datagrams.as_seen()))
    }

    /// Bytes of a stream that this end, the sender, knows to have arrived while it counted; none where it receives.
    fn acknowledged(&self, stream: usize) -> ByteCount {
        let up_to = |moment: Span| {
            let mut samples = self.finished.rest.samples.iter().rev();
            let latest = samples.find(|sample| usize::from(sample.stream) == stream && sample.at <= moment);
            latest.and_then(|sample| sample.tcp.bytes_acked).unwrap_or_default()
        };
        up_to(self.finished.to.totals.at).saturating_sub(up_to(self.finished.from.totals.at))
    }

    fn summary(&self, way: Direction, streams: &[StreamSummary], idle: Option<RttStats>) -> Summary {
        let streams: Vec<&StreamSummary> = streams.iter().filter(|stream| stream.direction == way).collect();
        let received: ByteCount = streams.iter().map(|stream| stream.received).sum();
        let duration = self.receiving_time(way);
        let samples: Vec<Sample> = self
            .sender_samples(way)
            .iter()
            .filter(|sample| self.finished.ways.get(usize::from(sample.stream)) == Some(&way))
            .cloned()
            .collect();
        Summary {
            duration,
            sent: streams.iter().map(|stream| stream.sent).sum(),
            received,
            rate: BitRate::of(received, duration),
            retransmits: streams.iter().map(|stream| stream.retransmits).sum(),
            steady: steady(&samples, idle.map(|idle| idle.min), self.finished.to.totals.at),
            datagrams_sent: streams.iter().map(|stream| stream.datagrams_sent).sum(),
            datagrams: streams.iter().map(|stream| stream.datagrams).sum(),
        }
    }

    /// How long the receiver counted, by its own clock where it said so.
    fn receiving_time(&self, way: Direction) -> Span {
        let theirs = self.results.streams.iter().map(|result| result.to.saturating_sub(result.from)).max();
        match theirs {
            Some(theirs) if way == Direction::Upload && theirs > Span::ZERO => theirs,
            _ => self.finished.duration(),
        }
    }

    /// The samples of the end that sent; our own where the other end sent and did not tell.
    fn sender_samples(&self, way: Direction) -> &[Sample] {
        let theirs = self.results.report.as_ref().map(|report| report.samples.as_slice());
        match theirs {
            Some(theirs) if way == Direction::Download && !theirs.is_empty() => theirs,
            _ => &self.finished.rest.samples,
        }
    }

    /// Echoes before and during what was counted; without any, the kernel's own estimates.
    fn round_trips(&self) -> RttReport {
        let origin = self.finished.origin;
        let (from, to) = (origin + self.finished.from.totals.at.into(), origin + self.finished.to.totals.at.into());
        let chosen = |wanted: &dyn Fn(&Echo) -> bool| {
            RttStats::of(self.echoes.iter().filter(|echo| wanted(echo)).map(|echo| echo.rtt).collect())
        };
        let idle = chosen(&|echo| echo.sent + echo.rtt.into() <= origin);
        if idle.is_some() {
            let loaded = chosen(&|echo| echo.sent >= from && echo.sent <= to);
            return RttReport { method: RttMethod::Icmp, idle, loaded };
        }
        let way = self.request.directions()[0];
        let counted = self.sender_samples(way).iter().filter(|sample| sample.at >= self.finished.from.totals.at);
        let loaded = RttStats::of(counted.filter_map(|sample| sample.tcp.rtt).collect());
        RttReport { method: RttMethod::TcpInfo, idle: RttStats::of(self.handshake.into_iter().collect()), loaded }
    }

    fn warnings(&self) -> Vec<String> {
        let mut warnings = Vec::new();
        if let (Buffer::Request(asked), Some(socket)) = (self.request.buffer, self.sockets.first()) {
            for (name, limit, got) in
                [("SO_SNDBUF", "wmem_max", socket.sndbuf), ("SO_RCVBUF", "rmem_max", socket.rcvbuf)]
            {
                if got < asked * 2 {
                    warnings.push(format!(
                        "the kernel cut {name} to {} of the {asked} asked for; net.core.{limit} allows no more",
                        ByteCount::new(got.get() / 2)
                    ));
                }
            }
        }
        let here = self.finished.datagrams(self.request.transport);
        let there = self.results.report.as_ref().map_or(&[][..], |report| &report.datagrams);
        for (whose, seen) in [("this", &here[..]), ("the other", there)] {
            let dropped: u64 = seen.iter().filter_map(|seen| seen.dropped_here).sum();
            if dropped > 0 {
                warnings.push(format!(
                    "{whose} host itself dropped {dropped} datagrams for want of socket buffer; ask for more with --buffer"
                ));
            }
        }
        warnings.extend(self.finished.rest.notes.iter().cloned());
        for (stream, error) in &self.finished.rest.failures {
            warnings.push(format!("stream {stream} broke: {error}"));
        }
        warnings
    }
}

/// When the data began to flow, by the wall clock.
fn started(finished: &Finished) -> String {
    let moment = SystemTime::now().checked_sub(finished.origin.elapsed());
    let stamp = moment.and_then(|moment| jiff::Timestamp::try_from(moment).ok());
    stamp.map_or_else(String::new, |stamp| format!("{stamp:.3}"))
}
