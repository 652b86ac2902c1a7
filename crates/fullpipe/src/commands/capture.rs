//! Captures of transfers that are measured or watched, and what packets show of a limit.

use std::net::SocketAddr;

use fullpipe_experiment::{KnownFacts, judge_files};
use fullpipe_record::{OwnCapture, Verdict};
use fullpipe_sys::output_device;
use fullpipe_trace::{CapturedPeer, ExplainedTransfers, HeaderRecording};

use super::prelude::*;

/// The flag for a capture of the test.
#[derive(Debug, Args)]
pub(crate) struct CaptureArgument {
    /// Keep a capture of the test in this pcap file, and judge it too
    ///
    /// Keeps the first 128 bytes of the packets of the test's TCP connections, in a new file of at
    /// most 256 MiB. The limit that they show is printed below that of the kernel's figures. Needs
    /// `CAP_NET_RAW`.
    #[arg(
        long,
        conflicts_with = "udp",
        value_name = "FILE",
        help_heading = "Output"
    )]
    capture: Option<PathBuf>,
}

/// A capture that is under way.
pub(crate) struct OwnRecording {
    path: PathBuf,
    recording: HeaderRecording,
}

impl CaptureArgument {
    /// Returns true if a capture is to be kept.
    pub(crate) fn is_wanted(&self) -> bool {
        self.capture.is_some()
    }

    /// Begins to capture the connections of a test with this server, if a capture is wanted.
    ///
    /// # Errors
    /// Fails if the server's name has no address, and as [`HeaderRecording::start`] does.
    pub(crate) fn of_test(&self, destination: &Destination) -> Result<Option<OwnRecording>> {
        let Some(path) = &self.capture else {
            return Ok(None);
        };
        let remotes = destination.resolve_host()?;
        let peers: Vec<CapturedPeer> = remotes
            .iter()
            .map(|remote| CapturedPeer {
                remote: *remote,
                local_port: None,
            })
            .collect();
        start_capture(path, destination.local.device.as_deref(), &peers).map(Some)
    }

    /// Begins to capture these connections, this end's address first, if a capture is wanted.
    ///
    /// # Errors
    /// Fails if there are none, and as [`HeaderRecording::start`] does.
    pub(crate) fn of_connections(&self, open: &[[SocketAddr; 2]]) -> Result<Option<OwnRecording>> {
        let Some(path) = &self.capture else {
            return Ok(None);
        };
        let peers: Vec<CapturedPeer> = open
            .iter()
            .map(|[local, remote]| CapturedPeer {
                remote: *remote,
                local_port: Some(local.port()),
            })
            .collect();
        start_capture(path, None, &peers).map(Some)
    }
}

/// Captures on the device that leads to the first peer.
fn start_capture(
    path: &Path,
    device: Option<&str>,
    peers: &[CapturedPeer],
) -> Result<OwnRecording> {
    let first = peers
        .first()
        .ok_or_else(|| run_failure("there is no TCP connection to capture"))?;
    let first = first.remote.ip().to_canonical();
    let device = device.map_or_else(|| output_device(first), |device| Ok(device.to_owned()));
    let device = device
        .map_err(|error| run_failure(format!("no network device leads to {first}: {error}")))?;
    Ok(OwnRecording {
        path: path.to_owned(),
        recording: HeaderRecording::start(path, &device, peers)?,
    })
}

impl OwnRecording {
    /// Ends the capture. Returns the capture with the limit of the `explained` transfer that it
    /// shows, next to the `other` verdict on the same transfer.
    ///
    /// # Errors
    /// Fails if the file could not be written or read.
    pub(crate) fn finish(
        self,
        explained: ExplainedTransfers<'static>,
        bandwidth: Option<BitRate>,
        other: Option<&Verdict>,
    ) -> Result<OwnCapture> {
        let recorded = self.recording.finish()?;
        let name = self.path.display().to_string();
        let mut limit = None;
        if recorded.packets > 0 {
            let known = KnownFacts {
                bandwidth,
                ..KnownFacts::default()
            };
            // A capture of a test that was interrupted is judged to its end, as the test is.
            let never = AtomicBool::new(false);
            let report = judge_files(&self.path, None, explained, &known, Interrupt(&never))?;
            limit = report.explained_limit().cloned();
        }
        let (packets, dropped, left_out) = (recorded.packets, recorded.dropped, recorded.left_out);
        let capture = OwnCapture {
            name,
            other: None,
            packets,
            dropped,
            left_out,
            limit: None,
            agrees: None,
        };
        Ok(capture.with_verdict(limit, other))
    }
}

/// Adds what was captured of a test to its record, which is kept whatever became of the capture.
pub(crate) fn with_capture(
    mut measurement: Measurement,
    recording: Option<OwnRecording>,
    bandwidth: Option<BitRate>,
) -> Measurement {
    let explained = ExplainedTransfers::of_test(&measurement);
    match recording
        .map(|recording| recording.finish(explained, bandwidth, measurement.limit.as_ref()))
    {
        Some(Ok(capture)) => measurement.capture = Some(Box::new(capture)),
        Some(Err(failure)) => measurement.warnings.push(failure.message),
        None => {}
    }
    measurement
}
