use fullpipe_record::{CongestionState, Sample};
use fullpipe_units::ByteCount;

use crate::flow::Flow;
use crate::thresholds::{SAME_WINDOW_EPISODES, SAME_WINDOW_SPREAD};

/// How often a stream went into recovery in its judged part, as far as the samples show it.
pub(crate) fn episodes(flow: &Flow) -> u64 {
    windows_before_loss(flow).len() as u64
}

/// Whether the losses of every stream came at one and the same size of its congestion window: a queue was full.
/// Independent losses come at any size. Needs some losses to tell.
pub(crate) fn come_at_one_window(flows: &[Flow]) -> bool {
    let windows: Vec<Vec<ByteCount>> = flows.iter().map(windows_before_loss).filter(|w| !w.is_empty()).collect();
    let episodes: usize = windows.iter().map(Vec::len).sum();
    episodes >= SAME_WINDOW_EPISODES * windows.len().max(1)
        && windows.iter().all(|windows| spread(windows) <= SAME_WINDOW_SPREAD)
}

/// The congestion window at the last sample before each recovery. A recovery shorter than the time between samples is
/// known by what was sent again.
fn windows_before_loss(flow: &Flow) -> Vec<ByteCount> {
    let mut windows = Vec::new();
    let mut in_trouble = flow.looks.first().is_some_and(|look| recovering(look.sample));
    for pair in flow.looks.windows(2) {
        let trouble = recovering(pair[1].sample) || pair[1].sample.tcp.total_retrans > pair[0].sample.tcp.total_retrans;
        if trouble && !in_trouble {
            windows.extend(pair[0].cwnd);
        }
        in_trouble = trouble;
    }
    windows
}

fn recovering(sample: &Sample) -> bool {
    matches!(sample.tcp.congestion_state, Some(CongestionState::Recovery | CongestionState::Loss))
}

/// Standard deviation ÷ mean; zero of nothing.
fn spread(windows: &[ByteCount]) -> f64 {
    let count = windows.len() as f64;
    let mean = windows.iter().map(|window| window.as_f64()).sum::<f64>() / count;
    if windows.is_empty() || mean == 0.0 {
        return 0.0;
    }
    let variance = windows.iter().map(|window| (window.as_f64() - mean).powi(2)).sum::<f64>() / count;
    variance.sqrt() / mean
}
