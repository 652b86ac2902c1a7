//! The target of a transfer.

use crate::prelude::*;

use super::case::{HostPair, PredictorCase};
use super::critical::{CriticalValue, least_sufficient};

/// A target.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum TransferTarget {
    /// Nothing but the bandwidth limits the transfer, and losses cost next to nothing.
    Fill,
    /// A steady rate of payload.
    Rate(BitRate),
    /// A size within a time.
    Within(ByteCount, Span),
}

impl TransferTarget {
    /// As it was given, or else that the bandwidth be filled, where it is known.
    pub(crate) fn from_inputs(inputs: &Inputs) -> Option<Self> {
        match (inputs.rate, inputs.size, inputs.time) {
            (Some(rate), ..) => Some(Self::Rate(rate)),
            (None, Some(size), Some(time)) => Some(Self::Within(size, time)),
            _ => inputs.bandwidth.map(|_| Self::Fill),
        }
    }

    /// Returns true if the prediction for `inputs` meets it.
    pub(crate) fn is_met(self, inputs: &Inputs, hosts: &HostPair) -> bool {
        let case = PredictorCase::from_inputs(inputs);
        match self {
            Self::Fill => {
                let got = case.outlook(hosts);
                let full = case
                    .capacity_without_loss(hosts)
                    .map(|capacity| capacity.scale_by(FULL));
                got.limit == Limit::Capacity && full.is_some_and(|full| got.kernel_model >= full)
            }
            Self::Rate(rate) => case.outlook(hosts).kernel_model >= rate,
            Self::Within(_, within) => case.estimate(hosts).time.is_some_and(|time| time <= within),
        }
    }

    /// Returns true if the prediction for `inputs` after this change meets it.
    pub(crate) fn is_met_with(
        self,
        inputs: &Inputs,
        hosts: &HostPair,
        change: impl FnOnce(&mut Inputs),
    ) -> bool {
        let mut inputs = inputs.clone();
        change(&mut inputs);
        self.is_met(&inputs, hosts)
    }

    /// The steady rate of payload that meets it on the path of `inputs`; none where no rate does,
    /// as slow start alone takes too long.
    pub(crate) fn needed_rate(self, inputs: &Inputs, hosts: &HostPair) -> Option<BitRate> {
        let mut case = PredictorCase::from_inputs(inputs);
        case.forget_flow_cap();
        match self {
            Self::Fill => case
                .prediction(hosts)
                .find_ceiling(Limit::Capacity)
                .map(|ceiling| ceiling.kernel_model),
            Self::Rate(rate) => Some(rate),
            Self::Within(size, within) => {
                let in_time =
                    |bps| case.transfer_time(size, BitRate::from_bps(bps), hosts) <= within;
                match least_sufficient(1, FASTEST.bps(), in_time) {
                    CriticalValue::Never => None,
                    CriticalValue::Always => Some(BitRate::from_bps(1)),
                    CriticalValue::At(bps) => Some(BitRate::from_bps(bps)),
                }
            }
        }
    }
}

/// Far beyond any link: where searches for a rate end.
pub(crate) const FASTEST: BitRate = BitRate::from_bps(1_000_000_000_000_000);
/// Share of what the link allows without loss from which on it counts as full: three percent are
/// what the rules of the predictor leave open.
const FULL: f64 = 0.97;
