//! The data of a test, from the first byte to the last.

use std::io;
use std::time::{Duration, Instant};

use fullpipe_control::unix_seconds;
use fullpipe_host::{SysctlTree, inspect_host};
use fullpipe_iperf::{ErrorNumber, TestParameters, TestRefusal, data_connections, direction_of};
use fullpipe_record::{
    ConnectedTest, Direction, EndReport, Interval, Request, SocketReadback, Transport,
};
use fullpipe_units::{ByteCount, Span};
use socket2::SockRef;
use tokio::task::spawn_blocking;
use tokio::time::sleep;

use super::super::ServerEvent;
use super::super::monitor::{TransferBounds, TransferMonitor};
use super::super::output::OutputBuffer;
use super::{MAX_REPORT_SAMPLES, ServedTest};
use crate::client::segment_size;
use crate::engine::{PlannedStream, RunningTransfer, TransferPlan, read_back};
use crate::machine::MachineSampler;
use crate::progress::{CountedTransfer, planned_streams};
use crate::route::caller_handshake;

/// Number of samples that all tests share, about 25 MB; each test keeps at least
/// [`MAX_REPORT_SAMPLES`].
const SHARED_SAMPLES: usize = 32_000;

/// Maximum number of samples that are kept of one test.
const MAX_KEPT_SAMPLES: usize = 2_000;

/// Maximum time without data while the end of an upload is still missing.
const DRAIN_TIMEOUT: Duration = Duration::from_secs(1);

/// Maximum time without data while the missing bytes may never come: lost datagrams, or the rest of
/// the last block.
const SHORT_DRAIN_TIMEOUT: Duration = Duration::from_millis(200);

/// Time between two checks for the end of an upload.
const DRAIN_POLL_INTERVAL: Duration = Duration::from_millis(2);

impl ServedTest {
    /// Lets data flow on the streams that have been accepted.
    pub(super) fn start_transfer(&mut self) {
        self.expected_streams = None;
        self.server
            .registry
            .borrow_mut()
            .stop_expecting(&self.cookie);
        let count = data_connections(&self.request);
        let ways: Vec<Direction> = (0..count)
            .map(|index| opposite(direction_of(&self.request, index)))
            .collect();
        let mut streams = std::mem::take(&mut self.streams);
        streams.sort_by_key(|(number, _)| *number);
        let lanes = planned_streams(streams.into_iter().map(|(_, channel)| channel), &ways);
        self.sockets = accepted_sockets(&lanes);
        self.monitor = TransferMonitor::new(
            self.transfer_bounds(count),
            lanes.iter().map(|lane| lane.role).collect(),
        );
        let mss = lanes
            .first()
            .and_then(|lane| segment_size(&lane.channel))
            .or_else(|| segment_size(self.control.tcp_stream()));
        // Only fullpipe clients get samples of the processors and the device, so others do not cost
        // a thread.
        let before = self
            .session
            .takes_reports()
            .then(|| MachineSampler::from_route(self.client.ip(), None));
        match self.start_streams(lanes) {
            Ok(transfer) => {
                let machine = before.and_then(|before| before.start_watch(transfer.origin));
                let request = self.local_request();
                self.progress = Some(CountedTransfer::new(transfer, machine, request, ways));
                self.report_host();
                self.report_connected(mss);
            }
            Err(error) => {
                let why = format!("cannot start the test: {error}");
                let refusal = TestRefusal::new(ErrorNumber::STREAMS, why);
                self.session.refuse_test(refusal, error.raw_os_error());
            }
        }
    }

    /// Returns the bounds of the transfer over so many streams.
    fn transfer_bounds(&self, count: u16) -> TransferBounds {
        let bounds = self.server.transfer_bounds(&self.request, count);
        self.ticket.iter().fold(bounds, |bounds, ticket| {
            bounds.within_ticket(ticket, unix_seconds(), self.server.client_timeout.0)
        })
    }

    fn start_streams(&self, lanes: Vec<PlannedStream>) -> io::Result<RunningTransfer> {
        let plan = self.transfer_plan();
        let storage = self
            .server
            .storage_config
            .open_storage(opposite(self.request.direction))?;
        RunningTransfer::start_with(lanes, plan, storage)
    }

    /// Reports that data flows, and begins the text of the test if the client asked for it.
    fn report_connected(&mut self, mss: Option<ByteCount>) {
        let connected = ConnectedTest::from_sockets(
            &self.reported_request(),
            self.cookie.to_string(),
            mss,
            &self.sockets,
        );
        self.output = self
            .is_output_wanted()
            .then(|| OutputBuffer::new(self.server.printer, self.client, &connected));
        self.server.report_event(ServerEvent::Connected {
            client: self.client,
            connected: Box::new(connected),
        });
    }

    /// Reports the settings and sockets of this host to a fullpipe client.
    fn report_host(&mut self) {
        if self.session.takes_reports() {
            // If the settings cannot be read, they are left out.
            self.settings = inspect_host(&SysctlTree::of_this_host()).ok();
            self.session.send_report(&EndReport {
                settings: self.settings.clone(),
                sockets: self.sockets.clone(),
                until: Some(Span::ZERO),
                ..EndReport::default()
            });
        }
    }

    fn transfer_plan(&self) -> TransferPlan {
        // fullpipe clients count bytes, all others whole blocks, and expect a sender that does as
        // iperf3 does.
        let whole_blocks = !self.client_states(TestParameters::speaks_fullpipe);
        let base_rtt = fullpipe_sys::tcp_info(self.control.tcp_stream())
            .ok()
            .and_then(|info| info.min_rtt);
        let plan = TransferPlan::from_request(&self.request, base_rtt);
        TransferPlan {
            samples: self.kept_samples(),
            whole_blocks,
            catches_up_at_once: whole_blocks || plan.catches_up_at_once,
            bounds_unsent: true,
            ..plan
        }
    }

    /// Returns the number of samples to keep: a share of [`SHARED_SAMPLES`], but enough for the
    /// report and the intervals.
    fn kept_samples(&self) -> usize {
        let tests = usize::try_from(self.server.admission.test_count())
            .unwrap_or(usize::MAX)
            .max(1);
        let snapshots = 4 * usize::from(data_connections(&self.request));
        (SHARED_SAMPLES / tests)
            .clamp(MAX_REPORT_SAMPLES, MAX_KEPT_SAMPLES)
            .max(snapshots)
    }

    /// Returns the request with the direction and the intervals of this end.
    fn local_request(&self) -> Request {
        Request {
            direction: opposite(self.request.direction),
            ..self.reported_request()
        }
    }

    /// Returns the request with the length of this end's intervals: that of the server's options, or
    /// iperf3's if only the client wants them.
    fn reported_request(&self) -> Request {
        let interval = if self.server.interval == Span::ZERO && self.is_output_wanted() {
            Request::default().interval
        } else {
            self.server.interval
        };
        Request {
            interval,
            ..self.request.clone()
        }
    }

    fn is_output_wanted(&self) -> bool {
        self.client_states(TestParameters::wants_server_output)
    }

    /// Reports intervals that have passed. The client's upload, which is this end's download, comes
    /// first.
    pub(super) fn report_intervals(&mut self, passed: Vec<Interval>) {
        for interval in passed.into_iter().rev() {
            let interval = Box::new(Interval {
                direction: opposite(interval.direction),
                ..interval
            });
            if let Some(output) = &mut self.output {
                output.add_interval(&interval);
            }
            self.server.report_event(ServerEvent::Interval {
                client: self.client,
                interval,
            });
        }
    }

    /// Stops sending, and ends the counting unless bytes of an upload are still expected.
    pub(super) fn stop_transfer(&mut self) {
        let expected = self.expected();
        if let Some(progress) = &mut self.progress {
            let last = match expected {
                None => progress.end_transfer(),
                Some(_) => Vec::new(),
            };
            progress.close_sending();
            self.report_intervals(last);
        }
    }

    /// Returns the number of bytes that this end must receive; `None` if time limits the test.
    fn expected(&self) -> Option<ByteCount> {
        self.request
            .bytes
            .filter(|_| self.request.direction != Direction::Download)
    }

    /// Waits for the data in flight: a client ends a test of a number of bytes when it has written
    /// them.
    pub(super) async fn drain_transfer(&mut self) {
        let (Some(expected), Some(progress)) = (self.expected(), &mut self.progress) else {
            return;
        };
        let max = round_up_to_blocks(expected, self.request.block);
        let is_udp = self.request.transport == Transport::Udp;
        let begun = Instant::now();
        let (mut received, mut last_growth) = (ByteCount::ZERO, begun);
        while begun.elapsed() < self.server.client_timeout.reply_timeout() / 2 {
            progress.note_arrivals();
            let bytes = progress.counted_bytes();
            let timeout = if is_udp || bytes >= expected {
                SHORT_DRAIN_TIMEOUT
            } else {
                DRAIN_TIMEOUT
            };
            if bytes >= max || last_growth.elapsed() >= timeout {
                return;
            }
            if bytes > received {
                (received, last_growth) = (bytes, Instant::now());
            }
            sleep(DRAIN_POLL_INTERVAL).await;
        }
    }

    /// Ends the transfer. Its threads take a moment to end, which must not block the other tests.
    pub(super) async fn finish_transfer(&mut self) {
        if let Some(mut progress) = self.progress.take() {
            self.report_intervals(progress.end_transfer());
            self.finished = spawn_blocking(move || progress.finish()).await.ok();
            self.finished_at = Some(Instant::now());
        }
    }
}

/// Returns `bytes` rounded up to whole blocks, which is what most clients send.
fn round_up_to_blocks(bytes: ByteCount, block: ByteCount) -> ByteCount {
    let block = block.get().max(1);
    ByteCount::new(bytes.get().div_ceil(block).saturating_mul(block))
}

/// Returns the sockets of the streams, with the SYNs that opened them.
fn accepted_sockets(lanes: &[PlannedStream]) -> Vec<SocketReadback> {
    let found = lanes.iter().zip(0..).filter_map(|(lane, index)| {
        let socket = read_back(&SockRef::from(&lane.channel), index).ok()?;
        Some(SocketReadback {
            handshake: caller_handshake(&lane.channel),
            ..socket
        })
    });
    found.collect()
}

/// Returns a direction as seen from the other end: an upload of one end is a download of the other.
pub(in crate::server) fn opposite(direction: Direction) -> Direction {
    match direction {
        Direction::Upload => Direction::Download,
        Direction::Download => Direction::Upload,
        Direction::Both => Direction::Both,
    }
}
