//! The counts of a test that is over, for the client and for the caller of the server.

use fullpipe_iperf::{ServerOutput, TestParameters, TestResults};
use fullpipe_record::{EndReport, HostIdentity, Measurement, Peer, ResolvedRequest};
use fullpipe_units::ByteCount;

use super::transfer::opposite;
use super::{MAX_REPORT_SAMPLES, ServedTest, TestTotals};
use crate::engine::StreamCount;
use crate::machine;
use crate::progress::FinishedTransfer;
use crate::results::{
    as_stated, direction_summary, new_id, results_of, run_totals, start_date, stream_summaries,
    this_host,
};

impl ServedTest {
    /// Returns the results for the client, with the report of this end if that is wanted.
    pub(super) fn local_results(&self, report: bool) -> TestResults {
        let Some(finished) = &self.finished else {
            return TestResults::default();
        };
        // The counts of the client are not known yet, and iperf3 does not print them here either.
        let server_output = self.output.as_ref().map(|output| {
            let measurement = self.measurement(finished, &TestResults::default());
            ServerOutput::Text(output.with_results(&measurement))
        });
        TestResults {
            report: report.then(|| Box::new(self.end_report(finished))),
            server_output,
            ..results_of(finished, &self.sockets)
        }
    }

    /// Returns the identity of this host as the client gets it: its name and boot only where the
    /// client is known.
    fn stated_host(&self) -> HostIdentity {
        let host = this_host();
        if self.server.serves_only_known_clients() {
            return host;
        }
        HostIdentity {
            name: String::new(),
            boot_id: None,
            ..host
        }
    }

    fn end_report(&self, finished: &FinishedTransfer) -> EndReport {
        let mut report = EndReport {
            host: Some(self.stated_host()),
            settings: self.settings.clone(),
            cpu: finished.rest.cpu,
            sockets: self.sockets.clone(),
            samples: finished.rest.samples.clone(),
            datagrams: finished.stream_datagrams(self.request.transport),
            storage: finished.rest.storage,
            processors: machine::reduce_for_peer(&finished.machine.processors),
            device: finished.machine.device.clone(),
            network: finished.machine.network,
            notes: finished.rest.notes.clone(),
            ..EndReport::default()
        };
        report.thin_samples(None, MAX_REPORT_SAMPLES);
        report
    }

    /// Returns the totals for the caller of the server, completed by the client's results.
    pub(super) fn test_totals(&self, client_results: &TestResults) -> TestTotals {
        let Some(finished) = &self.finished else {
            return TestTotals::default();
        };
        TestTotals {
            measurement: Some(Box::new(self.measurement(finished, client_results))),
            ..TestTotals::from_bytes(bytes_of(&finished.stream_counts()), finished.duration())
        }
    }

    /// Returns the measurement of this end, completed by the client's results.
    fn measurement(
        &self,
        finished: &FinishedTransfer,
        client_results: &TestResults,
    ) -> Measurement {
        let control = fullpipe_sys::tcp_info(self.control.tcp_stream()).ok();
        let mut streams = stream_summaries(finished, client_results, self.request.transport);
        for stream in &mut streams {
            stream.direction = opposite(stream.direction);
        }
        let ways = self.request.data_directions();
        let summary_of = |way| direction_summary(way, &streams, finished.duration());
        let parameters = self.session.client_parameters();
        Measurement {
            id: new_id(),
            resolved: Some(ResolvedRequest::new(self.request.clone())),
            run: Some(run_totals(finished.origin, finished, control.as_ref())),
            started: start_date(finished),
            peer: Peer {
                host: self.client.ip().to_string(),
                address: self.client.to_string(),
                speaks_fullpipe: parameters.is_some_and(TestParameters::speaks_fullpipe),
            },
            request: self.request.clone(),
            local: EndReport {
                cpu: finished.rest.cpu,
                sockets: self.sockets.clone(),
                ..EndReport::default()
            },
            remote: EndReport {
                settings: parameters.and_then(TestParameters::host_settings).cloned(),
                ..as_stated(client_results)
            },
            summary: summary_of(ways[0]),
            reverse: ways.get(1).map(|&way| summary_of(way)),
            streams,
            warnings: finished.rest.notes.clone(),
            ..Measurement::default()
        }
    }
}

/// Returns the bytes of all streams together.
pub(in crate::server) fn bytes_of(streams: &[StreamCount]) -> ByteCount {
    streams.iter().map(|stream| stream.bytes).sum()
}
