use fullpipe_record::{ComparedRuns, ComparisonDesign, DifferenceConclusion, QuantityDifference};
use fullpipe_stats::RatioDifference;

use crate::prelude::*;

/// Returns the sentence about the rates of two sides.
pub(super) fn rate_sentence(
    design: ComparisonDesign,
    [a, b]: [&ComparedRuns; 2],
    rate: &QuantityDifference<BitRate>,
    difference: Option<&RatioDifference>,
) -> String {
    let (a_name, b_name) = (format!("A ({})", a.name), format!("B ({})", b.name));
    let runs = match design {
        ComparisonDesign::Pairs => format!("{} pairs", a.runs),
        ComparisonDesign::Samples => format!("{} and {} runs, not in pairs", a.runs, b.runs),
    };
    let Some(found) = difference else {
        return format!(
            "Too few runs to show a difference: {} of {a_name}, {}; {} of {b_name}, {}. Measure in pairs: \
             fullpipe diff HOST --pairs 12 -- FLAGS -- FLAGS",
            a.runs, rate.a, b.runs, rate.b
        );
    };
    match rate.conclusion {
        DifferenceConclusion::Different => {
            format!(
                "{b_name} moves {} {a_name} ({}, 95 %; {runs}).",
                ratio_phrase(found.ratio),
                interval_phrase(found)
            )
        }
        DifferenceConclusion::Same => {
            format!(
                "A ({}) and B ({}) are the same within 2 %: {} (95 %; {runs}).",
                a.name,
                b.name,
                signed_interval(found)
            )
        }
        DifferenceConclusion::NoneShown | DifferenceConclusion::TooFew => format!(
            "No difference shown: {b_name} moves {} against {a_name} (95 %; {runs}); a difference of {} or more would \
             have shown in most such comparisons.",
            signed_interval(found),
            percent_text(found.detectable_share().get())
        ),
    }
}

/// Factors from here on are no percentages any more.
const FACTOR: f64 = 2.0;

fn ratio_phrase(ratio: Ratio) -> String {
    match ratio.get() {
        factor if factor >= FACTOR => format!("{factor:.1} times as much as"),
        ratio if ratio >= 1.0 => format!("{} more than", percent_text(ratio - 1.0)),
        ratio => format!("{} less than", percent_text(1.0 - ratio)),
    }
}

/// The interval in the words of [`ratio_phrase`].
fn interval_phrase(found: &RatioDifference) -> String {
    let (ratio, low, high) = (found.ratio.get(), found.low.get(), found.high.get());
    if ratio >= FACTOR {
        return format!("{low:.1} to {high:.1} times");
    }
    let (least, most) = if ratio >= 1.0 {
        (low - 1.0, high - 1.0)
    } else {
        (1.0 - high, 1.0 - low)
    };
    format!("{} to {}", percent_digits(least), percent_text(most))
}

fn signed_interval(found: &RatioDifference) -> String {
    let [low, high] = [found.low, found.high].map(|ratio| {
        let share = ratio.get() - 1.0;
        let sign = if share < 0.0 { "−" } else { "+" };
        format!("{sign}{}", percent_digits(share.abs()))
    });
    format!("{low} to {high} %")
}

fn percent_text(share: f64) -> String {
    format!("{} %", percent_digits(share))
}

/// A share in percent with two digits or three.
fn percent_digits(share: f64) -> String {
    let percent = share * 100.0;
    if percent < 9.95 {
        format!("{percent:.1}")
    } else {
        format!("{percent:.0}")
    }
}
