//! Share of right verdicts by view, with the lower end of the interval.

use std::fmt::Write;

use super::case::View;
use super::others::MUST_KEEP;
use super::record::Record;
use crate::statistics::{confusion, lower_bound};

/// The score of the records that count, as text.
pub(crate) fn text(records: &[Record]) -> String {
    let mut text = String::new();
    for view in [View::BothEnds, View::Sender, View::Receiver, View::Watched] {
        let counted: Vec<&Record> =
            records.iter().filter(|record| record.view == view && record.left_out().is_none()).collect();
        if !counted.is_empty() {
            text += &of_view(view, &counted);
        }
    }
    text + &calibration(records) + &harm(records)
}

/// Returns how many remedies that change a host leave other transfers their rate, and which do not; nothing where none
/// was tried.
fn harm(records: &[Record]) -> String {
    let tried = records.iter().filter(|record| record.left_out().is_none());
    let tried: Vec<(&Record, f64)> = tried.filter_map(|one| Some((one, one.kept_by_others?.get()))).collect();
    let lowered: Vec<_> = tried.iter().filter(|(_, kept)| *kept < MUST_KEEP).collect();
    if tried.is_empty() {
        return String::new();
    }
    let mut text = format!(
        "\n{} of {} remedies that change a host leave a transfer of another program its rate\n",
        tried.len() - lowered.len(),
        tried.len()
    );
    for (record, kept) in lowered {
        let _ = writeln!(text, "  {}: it keeps {:.0} %", record.name, kept * 100.0);
    }
    text
}

/// Cases of a bin whose confidence is held against the share that was right.
const CASES_OF_A_BIN: usize = 40;

/// Returns the claimed confidence and the share of right verdicts, in bins of the least sure cases to the surest.
fn calibration(records: &[Record]) -> String {
    let judged = records.iter().filter(|record| record.left_out().is_none());
    let mut cases: Vec<(f64, bool)> =
        judged.filter_map(|record| Some((record.verdict.as_ref()?.confidence.get(), record.is_right()))).collect();
    cases.sort_by(|one, other| one.0.total_cmp(&other.0));
    let bins = (cases.len() / CASES_OF_A_BIN).max(usize::from(!cases.is_empty()));
    let mut text = "\nConfidence, from the least sure verdicts to the surest\n\n".to_owned();
    for bin in 0..bins {
        let part = &cases[bin * cases.len() / bins..(bin + 1) * cases.len() / bins];
        let all = part.len().max(1) as f64;
        let claimed = part.iter().map(|(confidence, _)| confidence).sum::<f64>() / all * 100.0;
        let right = part.iter().filter(|(_, right)| *right).count() as f64 / all * 100.0;
        let _ = writeln!(text, "  {:>3} cases: claimed {claimed:.0} %, right {right:.0} %", part.len());
    }
    text
}

fn of_view(view: View, records: &[&Record]) -> String {
    let kind = |name: &str| name.split('/').next().unwrap_or_default().to_owned();
    let right = records.iter().filter(|record| record.is_right()).count();
    let sets = records.iter().filter(|record| !record.candidates().is_empty()).count();
    let kinds = records.iter().filter(|record| kind(record.said()) == kind(&record.expected)).count();
    let all = records.len();
    let mut text = format!(
        "\n{view:?}: {right} of {all} right in kind and cause ({:.0} %, at least {:.0} %), {kinds} in kind, {sets} \
         with candidates\n\n",
        right as f64 / all as f64 * 100.0,
        lower_bound(right, all) * 100.0,
    );
    let said = |record: &Record| if record.is_right() { record.expected.clone() } else { record.said().to_owned() };
    text += &confusion(records.iter().map(|record| (record.expected.as_str(), said(record))));
    text
}
