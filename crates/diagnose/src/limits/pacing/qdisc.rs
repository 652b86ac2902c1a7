//! A queueing discipline of the sending host that holds packets to a rate.

use fullpipe_model::framing;
use fullpipe_record::QdiscReport;

use crate::limits::pacing::cause_of_pace;
use crate::limits::prelude::*;
use crate::signals::machine;
use crate::text;
use crate::thresholds::{REACHED_RATE_SHARE, SEGMENT_TRAIN};

pub(crate) const CAUSE: Cause = Cause {
    setting_remedies: |advice| vec![advice.default_discipline()],
    manual_remedies: &[ManualRemedy::new(
        "higher-rate-of-the-discipline",
        Scope::Host,
        "The queueing discipline of the device has a rate (see tc qdisc): raise it, or replace the \
         discipline.",
    )],
    ..cause_of_pace(&["pacing/qdisc"], |figures, _| {
        format!(
            "A queueing discipline of the sender's network device holds packets to a rate: {} of data is sent{}.",
            figures.rate,
            text::could_carry(figures),
        )
    })
};

/// Share of the congestion window in use below which the host's own queue holds a stream that has
/// data to send: a train that waits to be larger leaves at most a third unused
/// (`tcp_tso_should_defer`; measured: 0.55).
const MAX_USE_BEHIND_OWN_QUEUE: f64 = 2.0 / 3.0;

/// Returns a queueing discipline of the host as the limit, if the congestion window was far from
/// used while data waited: a stream leaves no more than a millisecond of packets in its host's
/// queue (`tcp_small_queue_check`), and waits for a discipline that holds them. Its report may not
/// show it, as where it was removed before the end.
pub(crate) fn held_in_host(figures: &SenderView, held: Ratio) -> Option<Finding> {
    let votes = figures.snapshots().map(|snapshot| {
        let is_far =
            snapshot.sample.pipe_bytes()? < snapshot.cwnd?.scale_by(MAX_USE_BEHIND_OWN_QUEUE);
        Some(
            is_far
                && snapshot.not_sent? > SEGMENT_TRAIN
                && snapshot.fills_window(false) == Some(false),
        )
    });
    let waits = share_of_votes(votes).filter(|share| share.get() >= MIN_LIMIT_SHARE)?;
    let may_be = !figures.is_bbr() && figures.part.is_some();
    may_be.then(|| {
        Finding::new(
            PacingVerdict::Qdisc,
            if waits < held { waits } else { held },
        )
    })
}

/// Returns the sending host's own queueing discipline, if it holds packets to a rate, so that a
/// path only seems full.
pub(crate) fn find_cause(figures: &SenderView, found: &Finding) -> Option<Finding> {
    let device = machine::suspected_device(figures, found)?;
    let holds = device
        .qdiscs
        .iter()
        .any(|qdisc| qdisc_holds(figures, qdisc));
    holds.then(|| found.as_verdict(PacingVerdict::Qdisc))
}

/// Multiple of the rate of a queueing discipline up to which it held a transfer: its bucket lets
/// more pass at first, and one that was removed early held nothing. A choice.
const MAX_RATE_OF_DISCIPLINE: f64 = 1.5;

/// Returns true if a queueing discipline that made packets wait sends as much as its rate allows:
/// not much more, as behind one that was removed early.
fn qdisc_holds(figures: &SenderView, qdisc: &QdiscReport) -> bool {
    let waited = qdisc.overlimits > 0 || qdisc.kind == "fq";
    let headers = framing::tcp_headers(IpVersion::V4, figures.has_timestamps());
    // A discipline counts packets as IP has them.
    let efficiency = figures.mss.map_or(Ratio::ONE, |mss| {
        framing::payload_share(mss, headers, ByteCount::ZERO)
    });
    let sent = figures.rate.scale_by(1.0 / efficiency.get());
    let sends_its_rate = rate_of_discipline(figures, qdisc).is_some_and(|rate| {
        (rate.scale_by(REACHED_RATE_SHARE)..=rate.scale_by(MAX_RATE_OF_DISCIPLINE)).contains(&sent)
    });
    waited && sends_its_rate
}

/// Returns the rate to which a queueing discipline holds all streams together: that of `fq` is for
/// each.
fn rate_of_discipline(figures: &SenderView, qdisc: &QdiscReport) -> Option<BitRate> {
    let times = if qdisc.kind == "fq" {
        figures.stream_count()
    } else {
        1
    };
    Some(qdisc.rate?.scale_by(f64::from(times)))
}
