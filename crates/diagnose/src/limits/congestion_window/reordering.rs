//! Packets that overtake others and are taken for lost.

use crate::limits::congestion_window::{cause_of_window, window_text};
use crate::limits::prelude::*;
use crate::thresholds::MIN_NEEDLESS_SHARE;

pub(crate) const CAUSE: Cause = Cause {
    manual_remedies: &[ManualRemedy::new(
        "keep-the-order",
        Scope::Path,
        "Packets of one connection should take one way: check for links that are balanced packet \
         by packet.",
    )],
    ..cause_of_window(&["congestion-window/reordering"], |figures, _| {
        format!(
            "Packets overtake each other, and the sender takes the late ones for lost: it keeps {} in flight.",
            window_text(figures)
        )
    })
};

/// Finds a congestion window that the sender holds down though little was lost.
pub(crate) fn held_without_loss(figures: &SenderView, held: Ratio) -> Option<Finding> {
    is_reordered(figures).then(|| Finding::new(CongestionWindowVerdict::Reordering, held))
}

/// Packets seen to overtake others from which reordering counts.
const MIN_REORDERED: u64 = 3;
/// Reordered packets ÷ retransmissions from which packets are late, and not lost (seen: 0.15 on a
/// lossy path that also swapped a few packets).
const MIN_REORDERED_SHARE: f64 = 0.3;
/// Retransmissions of which some would have arrived already if packets were late, and not lost.
const MANY_RETRANSMISSIONS: u64 = 20;
/// Share of many retransmissions that would have arrived already if packets were late, and not lost
/// (measured: 0.95 of a path that reorders; at most 0.003 of kernels that counted packets as
/// overtaken while a policer or chance took others).
const MIN_NEEDLESS_OF_REORDERED: f64 = 0.05;

/// Returns true if packets are late and not lost: many of the retransmitted ones had arrived
/// already (RFC 2883), or the kernel saw some overtake others. Where nothing was retransmitted,
/// nothing late was taken for lost; and where hardly any of many had arrived already, those that
/// were retransmitted had been lost.
fn is_reordered(figures: &SenderView) -> bool {
    let again = total_of_flows(figures, |tcp| tcp.total_retrans);
    let needless = total_of_flows(figures, |tcp| tcp.dsack_dups);
    let seen = total_of_flows(figures, |tcp| tcp.reorder_events);
    let is_share_of = |count: u64, share: f64| count as f64 >= again as f64 * share;
    let knows_needless = last_samples(figures).any(|tcp| tcp.dsack_dups.is_some());
    let were_lost = knows_needless
        && again >= MANY_RETRANSMISSIONS
        && !is_share_of(needless, MIN_NEEDLESS_OF_REORDERED);
    let is_late = |count: u64, share: f64| count >= MIN_REORDERED && is_share_of(count, share);
    again > 0
        && (is_late(needless, MIN_NEEDLESS_SHARE)
            || !were_lost && is_late(seen, MIN_REORDERED_SHARE))
}

/// Returns the last value of a counter, in the sum of all streams.
fn total_of_flows(figures: &SenderView, count: fn(&TcpInfo) -> Option<SegCount>) -> u64 {
    let counts = last_samples(figures).filter_map(count);
    counts.fold(0, |sum, more| sum.saturating_add(more.get()))
}

/// Returns the last figures of each stream.
fn last_samples<'f>(figures: &'f SenderView<'_>) -> impl Iterator<Item = &'f TcpInfo> {
    let flows = figures.flows.iter();
    flows.filter_map(|flow| Some(&flow.whole.last()?.tcp))
}
