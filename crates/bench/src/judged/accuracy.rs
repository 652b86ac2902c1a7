//! Predictions compared with what was measured: of untouched paths, and of remedies that were
//! applied.

use std::fmt::Write;

use fullpipe_record::{
    Cause, Forecast, LegalVerdict, Limit, Prediction, Request, RttForecast, Steady, Writer,
};
use fullpipe_units::{BitRate, Span, median};
use serde::{Deserialize, Serialize};

use crate::comparison::quantile;

/// Prediction of an untouched path, and the transfer over it.
#[derive(Debug)]
pub(crate) struct Untouched<'r> {
    /// Name of the case.
    pub(crate) name: &'r str,
    /// The planted limit.
    pub(crate) expected: LegalVerdict,
    pub(crate) prediction: &'r Prediction,
    pub(crate) request: &'r Request,
    /// Steady part of the transfer.
    pub(crate) steady: Steady,
}

/// Figures that the diagnosis predicted of a remedy, and those that were measured with it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct RemedyResult {
    /// Identifier of the remedy, such as `raise-so-rcvbuf`.
    pub(crate) remedy: String,
    /// Rate that the diagnosis predicted for the load with the remedy.
    pub(crate) predicted: Forecast,
    /// Steady rate that was measured with the remedy.
    pub(crate) measured: BitRate,
    /// Round-trip time under load that was predicted.
    pub(crate) predicted_rtt: Option<RttForecast>,
    /// Median round-trip time under load that was measured with the remedy.
    pub(crate) loaded_rtt: Option<Span>,
}

/// Share of what was held.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Share {
    pub(crate) kept: usize,
    pub(crate) all: usize,
}

impl Share {
    /// Counts one more, and returns whether it was kept.
    fn count(&mut self, kept: bool) -> bool {
        self.all += 1;
        self.kept += usize::from(kept);
        kept
    }

    fn text(self) -> String {
        format!("{} of {}", self.kept, self.all)
    }
}

/// The model's figures compared with measured ones.
#[derive(Debug, Default)]
pub(crate) struct Accuracy {
    /// |measured ÷ predicted − 1| of ceilings that a rule gives.
    pub(crate) deterministic: Vec<f64>,
    /// Predictions with chance in them that hold the measured rate in their interval.
    pub(crate) with_chance: Share,
    /// Remedies that gave a rate in their interval, or within [`PROMISE`] of what they promised.
    pub(crate) remedies: Share,
    /// Remedies whose round-trip time under load was what they said.
    pub(crate) round_trips: Share,
    /// Remedies over paths whose rate was not stated, that gave a rate in their interval.
    pub(crate) unstated: Share,
    /// Upper end of these intervals ÷ rate of the path.
    pub(crate) upper_ends: Vec<f64>,
    misses: Vec<String>,
}

/// Causes that the model knows, of path, settings and buffers; a device that edits packets, a
/// program's own pace or another flow is beyond it.
const MODELLED: [Cause; 7] = [
    Cause::SoRcvbuf,
    Cause::TcpRmemMax,
    Cause::NoWindowScaling,
    Cause::SoSndbuf,
    Cause::TcpWmemMax,
    Cause::Link,
    Cause::Random,
];

/// A deterministic ceiling may be missed by this, in the median and at the 95th percentile.
const MEDIAN: f64 = 0.03;
const PERCENTILE_95: f64 = 0.08;
/// Measured rate after a remedy ÷ predicted rate.
const PROMISE: std::ops::RangeInclusive<f64> = 0.90..=1.15;
/// By how much a round-trip time may leave what was said of it: the larger of the two.
const RTT_SHARE: f64 = 0.1;
const RTT_TIME: Span = Span::from_millis(3);

impl Accuracy {
    /// Holds the prediction of an untouched path, if the model can know its limit.
    pub(crate) fn hold_prediction(&mut self, untouched: &Untouched<'_>) {
        let Untouched {
            name,
            expected,
            prediction,
            request,
            steady,
        } = untouched;
        if !MODELLED.contains(&expected.limit_cause()) || prediction.limit != expected.limit_kind()
        {
            return;
        }
        // When a sleeping writer is woken is up to the scheduler, and to how acknowledgements
        // arrive.
        if prediction.limit == Limit::Loss || request.writer == Writer::Blocking {
            let [low, high] = [prediction.low, prediction.high];
            if !self.with_chance.count((low..=high).contains(&steady.rate)) {
                self.misses
                    .push(format!("{name}: {} is not in {low} to {high}", steady.rate));
            }
            return;
        }
        let off = steady.rate.relative_to(prediction.kernel_model) - 1.0;
        self.deterministic.push(off.abs());
        if off.abs() > MEDIAN {
            self.misses.push(format!(
                "{name}: {} is {:+.1} % of {}",
                steady.rate,
                off * 100.0,
                prediction.kernel_model
            ));
        }
    }

    /// Holds what a remedy promised, over a path of this rate if the user did not state that.
    pub(crate) fn hold_promise(
        &mut self,
        name: &str,
        result: &RemedyResult,
        unstated: Option<BitRate>,
    ) {
        let (promised, measured) = (result.predicted, result.measured);
        let share = measured.relative_to(promised.bits_per_second);
        let inside = (promised.low..=promised.high).contains(&measured);
        let named = format!("{name}: {}", result.remedy);
        if !self.remedies.count(inside || PROMISE.contains(&share)) {
            let expected = promised.bits_per_second;
            self.misses
                .push(format!("{named} gave {measured}, {share:.2} of {expected}"));
        }
        if let Some(path) = unstated {
            self.upper_ends.push(promised.high.relative_to(path));
            if !self.unstated.count(inside) {
                self.misses.push(format!(
                    "{named} gave {measured}, not {} to {}",
                    promised.low, promised.high
                ));
            }
        }
        if let (Some(said), Some(seen)) = (result.predicted_rtt, result.loaded_rtt)
            && !self.round_trips.count(is_as_said(said, seen))
        {
            let high = said
                .high
                .map_or_else(|| "any".to_owned(), |high| high.to_string());
            self.misses.push(format!(
                "{named} led to a round trip of {seen}, not {} to {high}",
                said.low
            ));
        }
    }

    /// The figures and what misses them, as text.
    pub(crate) fn text(&self) -> String {
        let mut text = format!(
            "\npredictions: {} of deterministic ceilings, off by {:.1} % in the median ({:.0} % allowed) and {:.1} % \
             at the 95th percentile ({:.0} % allowed)\n{} with chance in them are inside their interval; {} remedies \
             gave what they promised\n",
            self.deterministic.len(),
            median(self.deterministic.clone()).unwrap_or(0.0) * 100.0,
            MEDIAN * 100.0,
            quantile(&self.deterministic, 0.95).unwrap_or(0.0) * 100.0,
            PERCENTILE_95 * 100.0,
            self.with_chance.text(),
            self.remedies.text(),
        );
        if self.round_trips.all > 0 {
            let _ = writeln!(
                text,
                "{} remedies led to the round trips under load that they said",
                self.round_trips.text()
            );
        }
        if self.unstated.all > 0 {
            let _ = writeln!(
                text,
                "bandwidth not stated: {} rates with a remedy are inside its interval, whose upper end is {:.1} × the \
                 path in the median",
                self.unstated.text(),
                median(self.upper_ends.clone()).unwrap_or(0.0),
            );
        }
        for miss in &self.misses {
            let _ = writeln!(text, "  {miss}");
        }
        text
    }
}

fn is_as_said(said: RttForecast, seen: Span) -> bool {
    let room = |span: Span| span.scale_by(RTT_SHARE).max(RTT_TIME);
    seen >= said.low.saturating_sub(room(said.low))
        && said.high.is_none_or(|high| seen <= high + room(high))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn result([expected, low, high]: [u64; 3], measured: u64) -> RemedyResult {
        let mbps = BitRate::from_mbps;
        let predicted = Forecast {
            bits_per_second: mbps(expected),
            low: mbps(low),
            high: mbps(high),
            capacity_unknown: false,
        };
        RemedyResult {
            remedy: "raise-so-rcvbuf".to_owned(),
            predicted,
            measured: mbps(measured),
            predicted_rtt: None,
            loaded_rtt: None,
        }
    }

    fn held(result: &RemedyResult, path: Option<BitRate>) -> Accuracy {
        let mut accuracy = Accuracy::default();
        accuracy.hold_promise("case", result, path);
        accuracy
    }

    #[test]
    fn a_remedy_keeps_its_promise_inside_its_interval_or_near_its_figure() {
        let kept = |predicted, measured| held(&result(predicted, measured), None).remedies.kept;
        assert_eq!(kept([90, 88, 94], 81), 1, "0.90 of it");
        assert_eq!(kept([90, 50, 94], 60), 1, "in its interval");
        assert_eq!((kept([90, 88, 94], 80), kept([90, 88, 94], 104)), (0, 0));
    }

    #[test]
    fn an_interval_without_a_bandwidth_has_no_tolerance() {
        let accuracy = held(&result([90, 88, 200], 87), Some(BitRate::from_mbps(100)));
        assert_eq!(
            (accuracy.remedies.kept, accuracy.unstated),
            (1, Share { kept: 0, all: 1 })
        );
        assert_eq!(accuracy.upper_ends, [2.0]);
        assert_eq!(held(&result([90, 88, 200], 87), None).unstated.all, 0);
    }

    #[test]
    fn a_round_trip_may_leave_what_was_said_by_a_tenth_or_three_milliseconds() {
        let ms = Span::from_millis;
        let said = |low, high| RttForecast { low: ms(low), high };
        assert!(
            is_as_said(said(10, Some(ms(10))), ms(13))
                && !is_as_said(said(10, Some(ms(10))), ms(14))
        );
        assert!(
            is_as_said(said(100, Some(ms(200))), ms(220))
                && !is_as_said(said(100, Some(ms(200))), ms(221))
        );
        assert!(is_as_said(said(100, None), ms(2000)) && !is_as_said(said(100, None), ms(89)));
    }
}
