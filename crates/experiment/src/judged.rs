//! One run of a step, and which of its bounds it misses.

use fullpipe_diagnose::diagnose;
use fullpipe_model::{datagrams, predict, queue};
use fullpipe_record::{LabCrossTraffic, LabDatagrams};
use fullpipe_scenario::{AccuracyBound, StepBounds};

use crate::prelude::*;
use crate::target::EndSettings;

/// The part of the rate asked for that a sender of datagrams must reach for a run to count: what a
/// processor had no time for says nothing about the path.
const REALLY_OFFERED: f64 = 0.97;

/// The facts about a step before it runs.
pub(crate) struct StepExpectation<'s> {
    pub(crate) path: &'s Path,
    pub(crate) bounds: &'s StepBounds,
    /// With its cross traffic.
    pub(crate) prediction: Prediction,
    /// Payload that the link carries of such packets, if it has a rate.
    pub(crate) capacity: Option<BitRate>,
    /// Payload ÷ bytes on the wire of its cross traffic.
    pub(crate) efficiencies: Vec<Ratio>,
}

/// A run that is over.
pub(crate) struct JudgedRun {
    pub(crate) measurement: Measurement,
    pub(crate) cross_traffic: Vec<LabCrossTraffic>,
    /// The rate to judge: the steady one, or that of all that was counted where the load is of
    /// datagrams or has others with cross traffic. `None` where it was too short to have one, or
    /// the run does not count.
    pub(crate) rate: Option<BitRate>,
    pub(crate) datagrams: Option<LabDatagrams>,
    /// Share of the link that all loads filled together.
    pub(crate) filled: Option<Ratio>,
    pub(crate) missed: Vec<String>,
}

impl<'s> StepExpectation<'s> {
    pub(crate) fn new(
        path: &'s Path,
        bounds: &'s StepBounds,
        ends: &EndSettings,
        request: &Request,
        cross_traffic: &[Request],
        prediction: Prediction,
    ) -> Self {
        let EndSettings { sender, receiver } = ends;
        let capacity = predict(path, sender, receiver, request)
            .find_ceiling(Limit::Capacity)
            .map(|capacity| capacity.kernel_model);
        let efficiencies = cross_traffic
            .iter()
            .map(|request| predict(path, sender, receiver, request).efficiency)
            .collect();
        Self {
            path,
            bounds,
            prediction,
            capacity,
            efficiencies,
        }
    }

    /// Returns the run that `measurement` and `cross_traffic` make, judged.
    pub(crate) fn judge_run(
        &self,
        mut measurement: Measurement,
        cross_traffic: Vec<LabCrossTraffic>,
    ) -> JudgedRun {
        // What cross traffic does is no evidence of its own.
        if measurement.request.transport == Transport::Tcp && cross_traffic.is_empty() {
            measurement.limit = Some(self.verdict(&measurement));
        }
        let datagrams = self.lab_datagrams(&measurement);
        let asked = datagrams::offered_rate(&measurement.request);
        if let Some(seen) = datagrams
            && seen.offered < asked.scale_by(REALLY_OFFERED)
        {
            measurement.validity.broken.push(format!(
                "the sender offered {} of the {asked} asked for",
                seen.offered
            ));
        }
        let rate = match measurement.request.transport {
            Transport::Udp => Some(measurement.arrival_rate()),
            Transport::Tcp if !cross_traffic.is_empty() => Some(measurement.summary.rate),
            Transport::Tcp => measurement.summary.steady.map(|steady| steady.rate),
        };
        let rate = rate.filter(|_| measurement.validity.is_valid());
        let mut run = JudgedRun {
            rate,
            datagrams,
            filled: rate.and_then(|rate| self.filled_share(rate, &cross_traffic)),
            measurement,
            cross_traffic,
            missed: Vec::new(),
        };
        run.missed = self.missed_bounds(&run);
        run
    }

    fn verdict(&self, measurement: &Measurement) -> Verdict {
        diagnose(&Evidence::from_measurement(
            measurement,
            self.path.forward.rate,
            self.path.forward.framing,
        ))
    }

    fn lab_datagrams(&self, measurement: &Measurement) -> Option<LabDatagrams> {
        let (summary, request) = (&measurement.summary, &measurement.request);
        let seen = summary.datagrams?;
        let sending = measurement.sending_time();
        let offered = BitRate::from_bytes_in(summary.sent, sending);
        let lost =
            |offered: BitRate, carried: BitRate| queue::unresponsive_shares(offered, carried).lost;
        Some(LabDatagrams {
            offered,
            loss_textbook: self.capacity.map_or(Ratio::ZERO, |capacity| {
                lost(datagrams::offered_rate(request), capacity)
            }),
            loss_kernel_model: self.capacity.and_then(|capacity| {
                let busy = measurement.validity.link_busy?.as_secs_f64();
                let share = Ratio::from_quotient(busy, (request.omit + sending).as_secs_f64());
                Some(lost(offered, capacity.scale_by(share.get())))
            }),
            loss: Ratio::from_quotient(seen.lost as f64, (seen.lost + seen.received) as f64),
            jitter: seen.jitter,
            reordered: seen.reordered,
            reordered_by_link: measurement.validity.reordered,
        })
    }

    fn filled_share(&self, rate: BitRate, cross_traffic: &[LabCrossTraffic]) -> Option<Ratio> {
        let link = self.path.forward.rate?.as_f64();
        let others = cross_traffic.iter().zip(&self.efficiencies);
        let on_wire = others.map(|(load, efficiency)| {
            load.measured.unwrap_or_default().as_f64() / efficiency.get()
        });
        Some(Ratio::from_quotient(
            rate.as_f64() / self.prediction.efficiency.get() + on_wire.sum::<f64>(),
            link,
        ))
    }

    /// The bounds that a run misses, each in a sentence; none where it has no rate to judge.
    fn missed_bounds(&self, run: &JudgedRun) -> Vec<String> {
        let Some(rate) = run.rate else {
            return Vec::new();
        };
        let bounds = self.bounds;
        [
            missed_share(
                "the kernel model's prediction",
                bounds.kernel_model,
                rate,
                Some(self.prediction.kernel_model),
            ),
            missed_share(
                "the textbook prediction",
                bounds.textbook,
                rate,
                Some(self.prediction.textbook),
            ),
            missed_share(
                "what the link carries",
                bounds.capacity,
                rate,
                self.capacity,
            ),
            self.missed_loss(run.datagrams),
            self.missed_order(run.datagrams),
            self.missed_fill(run.filled),
            self.missed_verdict(run.measurement.limit.as_ref()),
        ]
        .into_iter()
        .flatten()
        .collect()
    }

    fn missed_loss(&self, datagrams: Option<LabDatagrams>) -> Option<String> {
        let points = self.bounds.loss?;
        let Some((lost, predicted)) =
            datagrams.and_then(|seen| Some((seen.loss, seen.loss_kernel_model?)))
        else {
            return Some("how many datagrams were lost is not known".to_owned());
        };
        ((lost.get() - predicted.get()).abs() > points.get()).then(|| {
            format!(
                "{:.2} % were lost, {:.2} % predicted; the bound is ± {} points",
                lost.as_percent(),
                predicted.as_percent(),
                points.as_percent()
            )
        })
    }

    fn missed_order(&self, datagrams: Option<LabDatagrams>) -> Option<String> {
        let bound = self.bounds.reordered?;
        let Some((seen, planted)) =
            datagrams.and_then(|seen| Some((seen.reordered, seen.reordered_by_link?)))
        else {
            return Some("how many datagrams came out of order is not known".to_owned());
        };
        let share = Ratio::from_quotient(seen as f64, planted as f64);
        (!bound.allows_ratio(share)).then(|| {
            format!("{seen} datagrams came out of order, and the link let {planted} be passed; the bound is {bound}")
        })
    }

    fn missed_fill(&self, filled: Option<Ratio>) -> Option<String> {
        let (bound, filled) = (self.bounds.fills?, filled?);
        (!bound.allows_ratio(filled))
            .then(|| format!("all loads together fill {filled} of the link; the bound is {bound}"))
    }

    fn missed_verdict(&self, verdict: Option<&Verdict>) -> Option<String> {
        let expected = self.bounds.verdict?;
        let name = expected.kind.name();
        match verdict {
            Some(got)
                if got.kind == expected.kind
                    && expected.cause.is_none_or(|cause| got.cause == cause) =>
            {
                None
            }
            Some(got) => Some(format!(
                "the verdict should be {name}; it is: {}",
                got.sentence
            )),
            None => Some(format!("the verdict should be {name}; there is none")),
        }
    }
}

fn missed_share(
    of: &str,
    bound: Option<AccuracyBound>,
    rate: BitRate,
    whole: Option<BitRate>,
) -> Option<String> {
    let bound = bound?;
    let share = Ratio::new(rate.relative_to(whole?));
    (!bound.allows_ratio(share)).then(|| format!("{rate} is {share} of {of}; the bound is {bound}"))
}
