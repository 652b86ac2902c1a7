//! Verdicts on captures of a transfer in which a limit was planted.

use std::path::{Path, PathBuf};
use std::sync::atomic::AtomicBool;

use fullpipe_experiment::{Interrupt, KnownFacts, judge_files};
use fullpipe_record::Verdict;
use fullpipe_trace::ExplainedTransfers;
use fullpipe_units::BitRate;

use super::view::{JudgedView, Judgement};

/// Returns the file that `end` of a case captured.
pub(crate) fn capture_file(folder: &Path, stem: &str, end: &str) -> PathBuf {
    folder.join(format!("{stem}-{end}.pcap"))
}

/// Returns what `trace` makes of the captures of the sender and of the receiver, each and both, with
/// the capacity of the path if it is `stated`. There is no verdict where one is not there or has no
/// connection: the far host sees nothing of a transfer over the near one's loopback.
pub(crate) fn judge_captures(
    transfer: &Judgement,
    [sender, receiver]: [&Path; 2],
    stated: Option<BitRate>,
    explained: ExplainedTransfers<'_>,
) -> [Judgement; 3] {
    let views = [
        (JudgedView::CapturedAtSender, sender, None),
        (JudgedView::CapturedAtReceiver, receiver, None),
        (JudgedView::CapturedAtBoth, sender, Some(receiver)),
    ];
    views.map(|(view, first, second)| Judgement {
        view,
        verdict: verdict_on_files(first, second, stated, explained),
        ..transfer.clone()
    })
}

fn verdict_on_files(
    first: &Path,
    second: Option<&Path>,
    bandwidth: Option<BitRate>,
    explained: ExplainedTransfers<'_>,
) -> Option<Verdict> {
    let never = AtomicBool::new(false);
    let known = KnownFacts {
        bandwidth,
        ..KnownFacts::default()
    };
    let report = judge_files(first, second, explained, &known, Interrupt(&never)).ok()?;
    let transfer = report.transfers.into_iter().next()?;
    Some(transfer.diagnosis.verdict)
}
