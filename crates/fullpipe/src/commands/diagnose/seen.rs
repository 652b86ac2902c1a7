//! The transfers of what was watched, and where its time went.

use fullpipe_diagnose::{diagnose, time_account};
use fullpipe_lab::PathWitness;
use fullpipe_observe::{WatchedConnections, moved_too_briefly, watched_transfers};
use fullpipe_record::{
    ApplicationWindowVerdict, CommandEnd, CommandTimeForecast, ConnectionSamples, Evidence,
    FileCompletion, Http1Download, Remedy, TimeAccount, Transfer, Validity,
};
use fullpipe_units::{BitRate, ByteCount, Span};

/// A transfer that was watched.
pub(super) struct SeenTransfer {
    pub(super) transfer: Transfer,
    pub(super) evidence: Evidence,
    /// Time in which its data was under way, and that of no other transfer.
    pub(super) data: Span,
}

/// The knowledge of the connections that were watched.
#[derive(Default)]
pub(super) struct WatchedFindings {
    /// The one that moved most first; those that only exchanged small messages are left out.
    pub(super) transfers: Vec<SeenTransfer>,
    /// `None` if no connection was seen.
    pub(super) time: Option<TimeAccount>,
    /// Bytes in connections that were seen too briefly to be judged.
    pub(super) moved_too_briefly: ByteCount,
    /// Validity of all this, where this host is in a lab.
    pub(super) validity: Option<Validity>,
    /// The same download by HTTP/1.1.
    pub(super) http1: Option<Http1Download>,
    /// When the file that the program sends is complete.
    pub(super) completion: Option<FileCompletion>,
}

impl WatchedFindings {
    /// Of the command that ended like `end`, or of a process that goes on.
    pub(super) fn from_watched(
        (watched, witness): (Option<&WatchedConnections>, Option<PathWitness>),
        end: Option<&CommandEnd>,
        bandwidth: Option<BitRate>,
    ) -> Self {
        let Some(watched) = watched else {
            return Self::default();
        };
        let connections = watched.samples_by_connection();
        let mut processor = watched.processor.clone();
        processor.extend(end.and_then(|end| Some((end.ran, end.cpu?))));
        let whole = end.map_or(watched.took, |end| end.ran);
        let time = time_account(whole, &connections, &processor);
        let mut transfers = Vec::new();
        for (transfer, evidence) in watched_transfers(watched, bandwidth) {
            let (own, others): (Vec<_>, Vec<_>) = connections
                .iter()
                .cloned()
                .partition(|one| has_connection(&evidence, one));
            let of_others = time_account(whole, &others, &processor).data;
            if time_account(whole, &own, &processor).data > Span::ZERO {
                transfers.push(SeenTransfer {
                    transfer,
                    evidence,
                    data: time.data.saturating_sub(of_others),
                });
            }
        }
        Self {
            transfers,
            moved_too_briefly: moved_too_briefly(watched),
            validity: witness.map(PathWitness::finish_witness),
            http1: None,
            completion: None,
            time: Some(time).filter(|time| time.data + time.requests > Span::ZERO),
        }
    }
}

impl WatchedFindings {
    /// Returns the rate of the largest transfer, if a window of HTTP/2 seems to hold it back.
    pub(super) fn rate_held_by_http2(&self) -> Option<BitRate> {
        let largest = self.transfers.first()?;
        let found = diagnose(&largest.evidence).legal_verdict()?;
        let is_http2 = found == ApplicationWindowVerdict::Http2.into();
        is_http2.then(|| largest.explained_rate())
    }

    /// Returns these findings, of a download by HTTP/1.1, beside its rate `before` by HTTP/2.
    pub(super) fn as_http1_download(&self, before: BitRate) -> Option<Http1Download> {
        let largest = self.transfers.first()?;
        Some(Http1Download {
            before,
            measured: largest.explained_rate(),
            verdict: diagnose(&largest.evidence),
        })
    }
}

/// Returns true if a connection is one of a transfer.
fn has_connection(evidence: &Evidence, connection: &ConnectionSamples<'_>) -> bool {
    let ends = connection.ends.map(|end| end.to_string());
    let sockets = evidence
        .sender_sockets
        .iter()
        .chain(&evidence.receiver_sockets);
    sockets
        .into_iter()
        .any(|socket| [&socket.local, &socket.remote] == [&ends[0], &ends[1]])
}

impl SeenTransfer {
    /// Returns the rate that the verdict explains.
    pub(super) fn explained_rate(&self) -> BitRate {
        self.evidence
            .steady
            .map_or(self.transfer.rate, |steady| steady.rate)
    }
}

/// Returns the time that the whole would take with a remedy whose rate is predicted, where a
/// transfer at `rate` had its `data` under way in a part of the `time`.
pub(super) fn command_time_forecast(
    remedy: &Remedy,
    rate: BitRate,
    data: Span,
    time: Option<&TimeAccount>,
) -> Option<CommandTimeForecast> {
    let gain = remedy
        .predicted
        .map_or(0.0, |predicted| predicted.bits_per_second.relative_to(rate));
    time.filter(|_| gain > 0.0).map(|time| CommandTimeForecast {
        measured: time.whole,
        predicted: time.whole.saturating_sub(data) + data.scale_by(1.0 / gain),
    })
}
