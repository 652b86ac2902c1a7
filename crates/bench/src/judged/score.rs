//! Share of right verdicts by view, contradictions between the views of one transfer, and how far
//! the confidence of a view is right.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use super::record::{MUST_KEEP, Record};
use super::view::{JudgedView, Judgement};

/// Cases of a bin whose confidence is held against the share that was right.
const CASES_OF_A_BIN: usize = 40;

/// Returns true if from both ends 95 % of the verdicts name kind and cause, and 90 % from the sender
/// alone.
pub(crate) fn is_enough(judged: &[Judgement]) -> bool {
    let required = [(JudgedView::BothEnds, 0.95), (JudgedView::Sender, 0.90)];
    required.iter().all(|(view, share)| {
        let of_view = judged.iter().filter(|one| one.view == *view);
        let exact = of_view.clone().filter(|one| one.is_exact()).count();
        exact > 0 && exact as f64 >= share * of_view.count() as f64
    })
}

/// Returns the score of verdicts as text.
pub(crate) fn score_text(judged: &[Judgement]) -> String {
    let by_view = by_view(judged);
    let scores: String = by_view
        .iter()
        .map(|(view, judged)| view_text(*view, judged))
        .collect();
    let reliabilities: String = by_view
        .iter()
        .map(|(view, judged)| reliability_text(*view, judged))
        .collect();
    let title =
        "\nClaimed confidence and share of right verdicts, from the least sure to the surest\n\n";
    format!(
        "{scores}{}{title}{reliabilities}",
        contradictions_text(judged)
    )
}

fn by_view(judged: &[Judgement]) -> BTreeMap<JudgedView, Vec<&Judgement>> {
    let mut by_view: BTreeMap<JudgedView, Vec<&Judgement>> = BTreeMap::new();
    for judgement in judged {
        by_view.entry(judgement.view).or_default().push(judgement);
    }
    by_view
}

fn view_text(view: JudgedView, judged: &[&Judgement]) -> String {
    let count =
        |is_meant: fn(&Judgement) -> bool| judged.iter().filter(|one| is_meant(one)).count();
    let all = judged.len();
    let (right, kinds) = (
        count(Judgement::is_right),
        count(Judgement::is_right_in_kind),
    );
    let (exact, sets) = (count(Judgement::is_exact), count(Judgement::is_set));
    let share = |count: usize| count as f64 / all as f64 * 100.0;
    let head = format!(
        "\n{view:?}: {right} of {all} right ({:.1} %, at least {:.0} %), {exact} in kind and cause, {kinds} in kind \
         ({:.1} %), {sets} with candidates ({:.0} %)\n\n",
        share(right),
        lower_bound(right, all) * 100.0,
        share(kinds),
        share(sets),
    );
    head + &confusion_text(judged)
}

/// Returns a line for each planted limit, with how often it was named and what was named in its
/// place.
fn confusion_text(judged: &[&Judgement]) -> String {
    let mut counts: BTreeMap<&str, BTreeMap<&str, usize>> = BTreeMap::new();
    for judgement in judged {
        let named = if judgement.is_right() {
            &judgement.expected
        } else {
            judgement.said()
        };
        let said = counts.entry(&judgement.expected).or_default();
        *said.entry(named).or_default() += 1;
    }
    let mut text = String::new();
    for (expected, mut said) in counts {
        let total: usize = said.values().sum();
        let right = said.remove(expected).unwrap_or(0);
        let others: Vec<String> = said
            .iter()
            .map(|(name, count)| format!("{count} {name}"))
            .collect();
        let line = format!(
            "  {expected:<40} {right:>3} of {total:<3} {}",
            others.join(", ")
        );
        let _ = writeln!(text, "{line}");
    }
    text
}

/// Returns the lower end of the interval that holds the true share in 95 % of all cases (Wilson,
/// 1927).
fn lower_bound(right: usize, all: usize) -> f64 {
    /// Quantile of the normal distribution that 95 % of it lie below.
    const ONE_SIDED_95: f64 = 1.645;
    let (count, share) = (all as f64, right as f64 / all as f64);
    let square = ONE_SIDED_95 * ONE_SIDED_95;
    let middle = share + square / (2.0 * count);
    let width =
        ONE_SIDED_95 * (share * (1.0 - share) / count + square / (4.0 * count * count)).sqrt();
    (middle - width) / (1.0 + square / count)
}

/// Returns a line for each bin of at least [`CASES_OF_A_BIN`] verdicts of a view.
fn reliability_text(view: JudgedView, judged: &[&Judgement]) -> String {
    let mut cases: Vec<(f64, bool)> = judged
        .iter()
        .map(|judgement| (judgement.confidence(), judgement.is_right()))
        .collect();
    cases.sort_by(|one, other| one.0.total_cmp(&other.0));
    let bins = (cases.len() / CASES_OF_A_BIN).max(1);
    let mut text = String::new();
    for bin in 0..bins {
        let part = &cases[bin * cases.len() / bins..(bin + 1) * cases.len() / bins];
        let all = part.len() as f64;
        let claimed = part.iter().map(|(confidence, _)| confidence).sum::<f64>() / all * 100.0;
        let right = part.iter().filter(|(_, right)| *right).count() as f64 / all * 100.0;
        let bar = "#".repeat((right / 2.5).round() as usize);
        let view = format!("{view:?}");
        let _ = writeln!(
            text,
            "  {view:<18} {:>3} cases: claimed {claimed:>3.0} %, right {right:>3.0} %  {bar}",
            part.len()
        );
    }
    text
}

/// Returns the number of transfers of which two views contradict each other, and each of them in a
/// line.
fn contradictions_text(judged: &[Judgement]) -> String {
    let mut by_transfer: BTreeMap<&str, Vec<&Judgement>> = BTreeMap::new();
    for judgement in judged.iter().filter(|one| !one.view.is_of_listing()) {
        let views = by_transfer.entry(&judgement.transfer).or_default();
        views.push(judgement);
    }
    by_transfer.retain(|_, views| views.len() > 1);
    if by_transfer.is_empty() {
        return String::new();
    }
    let contradicted: Vec<String> = by_transfer
        .iter()
        .filter_map(|(name, views)| contradiction(name, views))
        .collect();
    let (count, all) = (contradicted.len(), by_transfer.len());
    let share = count as f64 / all as f64 * 100.0;
    let head = format!(
        "\nViews that contradict each other: in {count} of {all} transfers ({share:.1} %)\n\n"
    );
    head + &contradicted.concat()
}

/// Returns the verdicts of all views of a transfer in a line, if two of them contradict each other.
fn contradiction(name: &str, views: &[&Judgement]) -> Option<String> {
    let verdicts = || {
        views
            .iter()
            .filter_map(|judgement| judgement.verdict.as_ref())
    };
    let is_contradicted =
        verdicts().any(|one| verdicts().any(|other| one.agrees_with(other) == Some(false)));
    let said: Vec<String> = views
        .iter()
        .map(|judgement| format!("{:?} {}", judgement.view, judgement.said()))
        .collect();
    is_contradicted.then(|| format!("  {name}: {}\n", said.join(", ")))
}

/// Returns the number of remedies that change a host and leave other transfers their rate, and
/// names those that do not; empty if none was tried.
pub(crate) fn harm_text(records: &[Record]) -> String {
    let tried = records.iter().filter(|record| record.left_out().is_none());
    let tried: Vec<(&Record, f64)> = tried
        .filter_map(|one| Some((one, one.kept_by_others?.get())))
        .collect();
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

#[cfg(test)]
mod tests {
    use super::*;
    use fullpipe_diagnose::diagnose;
    use fullpipe_record::{Evidence, LegalVerdict, Verdict};
    use fullpipe_units::Ratio;

    fn judgement(transfer: usize, view: JudgedView, said: &str, confidence: f64) -> Judgement {
        let legal = LegalVerdict::from_name(said).unwrap();
        let verdict = Verdict {
            kind: legal.limit_kind(),
            cause: legal.limit_cause(),
            at: legal.limit_place(),
            confidence: Ratio::new(confidence),
            ..diagnose(&evidence())
        };
        let (transfer, expected) = (transfer.to_string(), "loss/policer".to_owned());
        Judgement {
            transfer,
            view,
            expected,
            verdict: Some(verdict),
        }
    }

    fn evidence() -> Evidence {
        let recorded = include_str!("../recorded/diagnosis.json");
        let record: Record = serde_json::from_str(recorded).unwrap();
        record.evidence.unwrap()
    }

    #[test]
    fn enough_is_95_percent_from_both_ends_and_90_from_the_sender() {
        let of = |view, right: usize, wrong: usize| {
            let right = (0..right).map(move |number| judgement(number, view, "loss/policer", 0.9));
            right.chain((0..wrong).map(move |number| judgement(number, view, "loss/random", 0.9)))
        };
        let judged = |both: [usize; 2], sender: [usize; 2]| -> Vec<Judgement> {
            let both = of(JudgedView::BothEnds, both[0], both[1]);
            both.chain(of(JudgedView::Sender, sender[0], sender[1]))
                .collect()
        };
        assert!(is_enough(&judged([19, 1], [9, 1])));
        assert!(!is_enough(&judged([18, 1], [9, 1])));
        assert!(!is_enough(&judged([19, 1], [8, 1])));
        assert!(!is_enough(&judged([0, 0], [9, 1])));
    }

    #[test]
    fn bins_have_forty_verdicts_of_one_view_from_the_least_sure_to_the_surest() {
        let sure = (0..45).map(|index| judgement(index, JudgedView::Sender, "loss/policer", 0.9));
        let unsure =
            (45..90).map(|index| judgement(index, JudgedView::Sender, "capacity/link", 0.3));
        let text = score_text(&sure.chain(unsure).collect::<Vec<_>>());
        assert!(text.contains("Sender: 45 of 90 right (50.0 %"), "{text}");
        let bins: Vec<&str> = text
            .lines()
            .filter(|line| line.contains("claimed"))
            .collect();
        assert!(
            bins.len() == 2 && bins[0].contains(" 45 cases: claimed  30 %, right   0 %"),
            "{text}"
        );
        assert!(
            bins[1].contains(" 45 cases: claimed  90 %, right 100 %"),
            "{text}"
        );
    }

    #[test]
    fn views_of_a_transfer_contradict_each_other_by_another_kind() {
        let of = |transfer, view, said| judgement(transfer, view, said, 0.9);
        let text = score_text(&[
            of(1, JudgedView::Sender, "loss/policer"),
            of(1, JudgedView::Receiver, "loss/random"),
            of(2, JudgedView::Sender, "loss/policer"),
            of(2, JudgedView::Receiver, "capacity/link"),
            of(3, JudgedView::Sender, "loss/policer"),
            of(3, JudgedView::Receiver, "unknown/evidence-missing"),
            of(4, JudgedView::Sender, "capacity/link"),
        ]);
        assert!(
            text.contains("contradict each other: in 1 of 3 transfers (33.3 %)"),
            "{text}"
        );
        assert!(
            text.contains("\n  2: Sender loss/policer, Receiver capacity/link\n"),
            "{text}"
        );
    }
}
