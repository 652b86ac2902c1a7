//! A send buffer that holds too little.

use fullpipe_model::improvement::WindowConstraint;
use fullpipe_model::window;

use crate::limits::prelude::*;
use crate::limits::sender_itself::WAITS_IN_HOST;
use crate::signals::size_ratio;
use crate::text::{self, rate_clause};
use crate::thresholds::FULLY_TUNED_SHARE;

candidate_sets! {
    /// A buffer that is two thirds full throughout.
    BUFFER_OR_RATE: [
        SendBuffer SoSndbuf, SendBuffer TcpWmemMax, SenderApplication RateLimited
    ] in [Sender],
        "what the sending program waits for (strace), and whether it sets SO_SNDBUF or a rate";
}

pub(crate) const CAUSES: Cause = Cause {
    captured_sentence: |view, finding| Some(captured_sentence(view, finding)),
    received_sentence: |arrivals, _| {
        let (rate, rtt) = (arrivals.rate, arrivals.rtt);
        format!(
            "Each round trip of {} brings the same, {}, and then a pause, though this end would take more: a buffer or \
             window of the sender holds no more.",
            rtt.unwrap_or_default(),
            rtt.map(|rtt| rate.bytes_in(rtt)).unwrap_or_default()
        )
    },
    shown_rows: |figures| {
        vec![
            text::queued_row(figures),
            text::in_flight(figures),
            text::unsent_row(figures),
            text::clock_row(
                "sndbuf_limited",
                figures.share_of_busy(|tcp| tcp.sndbuf_limited),
            ),
        ]
    },
    disproof: EvidenceAmount::contradicted_by_ceiling,
    setting_remedies: |advice| {
        advice.for_window(if advice.verdict == SO_SNDBUF {
            WindowConstraint::FixedBuffer
        } else {
            WindowConstraint::SendMaximum
        })
    },
    ..Cause::new(
        &["send-buffer/so-sndbuf", "send-buffer/tcp-wmem-max"],
        |figures, finding| {
            let reason = if finding.verdict == SO_SNDBUF {
                "fixed by its program, SO_SNDBUF"
            } else {
                "tcp_wmem"
            };
            format!(
                "The sender's send buffer is full: it holds {}{} ({reason}){}{}.",
                size_text(figures.max_size(|snapshot| snapshot.sndbuf)),
                text::in_streams(figures),
                rate_clause(buffer_ceiling(figures), figures.rtt),
                text::could_carry(figures),
            )
        },
    )
};

const SO_SNDBUF: LegalVerdict = LegalVerdict::SendBuffer(SendBufferVerdict::SoSndbuf);

fn captured_sentence(view: &CaptureView, finding: &Finding) -> String {
    let (in_flight, window, rate) = (view.flight_text(), view.window_text(), view.rate_text());
    let waits_in_host = finding.candidates == Some(&WAITS_IN_HOST);
    if view.is_at_sender() && !waits_in_host {
        return format!(
            "The sender's buffer holds no more: always about {in_flight} is in flight, and more is sent only as \
             acknowledgements come, though the receiver allows {window} and nothing is lost; {rate}."
        );
    }
    let alike = if waits_in_host {
        "Data waits there all the time: for its buffer, for a pace of its device, or for room in the queue of that."
    } else if finding.candidates.is_some() {
        "Its buffer, and a window that a device behind this place lowers, look alike from here."
    } else {
        "Its buffer, its program and a pace of its device look alike from here."
    };
    format!(
        "The sender holds itself back: always about {in_flight} is in flight, though the receiver allows {window} \
         and nothing is lost; {rate}. {alike}"
    )
}

/// Returns the send buffer, if it was the limit for most of the time.
///
/// The buffer must have been full at times and much in use on the whole (a sleeping writer is woken
/// when a third is free), with next to nothing left to send. The kernel's own marks do not show it:
/// a small buffer looks like an idle program (`app_limited`), with hardly any `sndbuf_limited`
/// time.
pub(crate) fn find_send_buffer(figures: &SenderView) -> Option<Finding> {
    let votes = figures.flows.iter().flat_map(|flow| {
        let full = buffer_is_full(figures, flow);
        flow.snapshots
            .iter()
            .map(move |snapshot| Some(full? && snapshot.is_busy() && snapshot.starved_by_buffer()?))
    });
    let held = share_of_votes(votes)
        .filter(|share| share.get() >= MIN_LIMIT_SHARE)
        .or_else(|| share_by_clock(figures))?;
    let found = Finding::new(
        if send_buffer_is_fixed(figures) {
            SendBufferVerdict::SoSndbuf
        } else {
            SendBufferVerdict::TcpWmemMax
        },
        held,
    );
    // The rate of a program that nobody asked for may happen to leave as much there.
    let may_be_rate = figures.evidence.is_of_another_program() && is_never_full(figures);
    Some(if may_be_rate {
        found.one_of(&BUFFER_OR_RATE)
    } else {
        found
    })
}

/// Returns true if no buffer was ever fuller than where a program keeps it that asks first.
fn is_never_full(figures: &SenderView) -> bool {
    let mut used = figures.flows.iter().flat_map(used_shares);
    used.all(|share| share <= MAX_BUFFER_OF_ASKING_WRITER)
}

/// Share of the busy time in which the kernel must count the send buffer as the limit where
/// snapshots show data unsent (measured: 0.40 with writes of 64 KiB into 52 KiB under BBR).
const MIN_BUFFER_CLOCK_SHARE: f64 = 0.25;

/// Returns the share of the busy time in which the kernel counted full buffers as the limit. Of a
/// write that is larger than the buffer much is unsent at first.
fn share_by_clock(figures: &SenderView) -> Option<Ratio> {
    let limited = figures.share_of_busy(|tcp| tcp.sndbuf_limited)?;
    let all_full = figures
        .flows
        .iter()
        .all(|flow| buffer_is_full(figures, flow) == Some(true));
    (all_full && limited.get() >= MIN_BUFFER_CLOCK_SHARE).then_some(limited)
}

/// Share of the busy time in which the kernel must count the send buffer as the limit
/// (`sndbuf_limited`).
///
/// Measured: 1.5 % of a small buffer whose writer sleeps, nothing of a writer that had no more
/// data.
const MIN_BLOCKED_SHARE: f64 = 0.002;
/// Shares of the send buffer in use when a sleeping writer is woken: a third of it is free
/// (`sk_stream_write_space`).
const WOKEN_BUFFER_SHARES: std::ops::RangeInclusive<f64> = 0.64..=0.8;
/// Share of a send buffer that limits below which a program that asks before it writes (`poll`)
/// never leaves it (measured: 0.62 to 0.72 throughout).
const MIN_BUFFER_OF_ASKING_WRITER: f64 = 0.5;
/// Share of a send buffer that limits above which such a program never fills it, but for its last
/// write.
const MAX_BUFFER_OF_ASKING_WRITER: f64 = 0.85;
/// Snapshots that are enough to see a writer sleep and wake.
const MIN_SNAPSHOTS_OF_SLEEPING_WRITER: usize = 20;
/// Largest share in use of a send buffer that limits.
const MIN_BUFFER_PEAK: f64 = 0.9;
/// Mean share in use of a send buffer that limits (measured: 0.70 to 0.87 for a sleeping writer,
/// 0.97 for one that retries).
const MIN_BUFFER_MEAN: f64 = 0.6;
/// Share of the snapshots in which a send buffer may be emptier than where its writer is woken
/// (seen: one of 92).
const LATE_WRITER_SHARE: f64 = 0.02;
/// Mean share in use of a send buffer that is more than full at times, from which its writer waits
/// for room though no snapshot shows it at its emptiest (measured: 0.90).
const MIN_MEAN_OF_FULL_BUFFER: f64 = 0.85;

/// Returns true if a stream's buffer was full at times and much used on the whole, and its writer
/// waited for room: the kernel says so, or the buffer was at times as empty as where a sleeping
/// writer is woken, and never emptier. A program that is slow by itself sometimes leaves less
/// there.
pub(crate) fn buffer_is_full(figures: &SenderView, flow: &SenderStream) -> Option<bool> {
    let used = used_shares(flow);
    let peak = used.last().copied().unwrap_or(0.0);
    // The scheduler may keep a writer from its room once in a while.
    let least = used
        .get((used.len() as f64 * LATE_WRITER_SHARE) as usize)
        .copied()
        .unwrap_or(f64::INFINITY);
    let mean = used.iter().sum::<f64>() / used.len() as f64;
    let stated = figures
        .share_of_busy(|tcp| tcp.sndbuf_limited)
        .is_none_or(|waited| waited.get() >= MIN_BLOCKED_SHARE);
    // Only a writer that has more to send than there is room fills all of it and keeps it so.
    let never_lacks = peak >= 1.0 && mean >= MIN_MEAN_OF_FULL_BUFFER;
    // A program that asks first whether it may write may do so only when a third is free, and keeps
    // it there.
    let asks_first = WOKEN_BUFFER_SHARES.contains(&mean)
        && least >= MIN_BUFFER_OF_ASKING_WRITER
        && peak <= MAX_BUFFER_OF_ASKING_WRITER;
    let mostly_there = [1, 9].iter().all(|tenths| {
        used.get(used.len() * tenths / 10)
            .is_some_and(|share| WOKEN_BUFFER_SHARES.contains(share))
    });
    let woken = (asks_first && mostly_there) || WOKEN_BUFFER_SHARES.contains(&least);
    let waited = stated || never_lacks || (used.len() >= MIN_SNAPSHOTS_OF_SLEEPING_WRITER && woken);
    let full = asks_first || (peak >= MIN_BUFFER_PEAK && mean >= MIN_BUFFER_MEAN);
    (!used.is_empty()).then_some(waited && full)
}

/// Returns the shares of a stream's buffer that were in use, the smallest first.
fn used_shares(flow: &SenderStream) -> Vec<f64> {
    let used = flow
        .snapshots
        .iter()
        .filter_map(|snapshot| Some(size_ratio(snapshot.queued?, snapshot.sndbuf?).get()));
    let mut used: Vec<f64> = used.collect();
    used.sort_by(f64::total_cmp);
    used
}

/// Returns true if the program fixed the buffer by request, or it never changed and is not the
/// kernel's largest size.
fn send_buffer_is_fixed(figures: &SenderView) -> bool {
    let evidence = figures.evidence;
    if evidence.request.send_buffer() != Buffer::Automatic {
        return true;
    }
    let sizes: Vec<ByteCount> = figures
        .flows
        .iter()
        .flat_map(|flow| &flow.whole)
        .filter_map(|sample| Some(sample.memory?.sndbuf))
        .collect();
    let (Some(least), Some(most)) = (sizes.iter().min(), sizes.iter().max()) else {
        return false;
    };
    let tuned_to_the_end = evidence
        .sender
        .as_ref()
        .is_some_and(|settings| *most >= settings.tcp_wmem.max.scale_by(FULLY_TUNED_SHARE));
    least == most && !tuned_to_the_end
}

/// Returns the mean share of the send buffer that was in use, at most all of it.
pub(crate) fn mean_fill(figures: &SenderView) -> Option<Ratio> {
    let (queued, size) = (
        figures.mean_size(|snapshot| snapshot.queued)?,
        figures.mean_size(|snapshot| snapshot.sndbuf)?,
    );
    Some(Ratio::new(size_ratio(queued, size).get().min(1.0)))
}

/// Returns the rate that buffers which are full leave, all streams together.
pub(crate) fn buffer_ceiling(figures: &SenderView) -> Option<BitRate> {
    let size = figures.max_size(|snapshot| snapshot.sndbuf)?;
    Some(window::rate_of_window(
        size.scale_by(mean_fill(figures)?.get()),
        figures.rtt?,
    ))
}
