use fullpipe_record::{RampReport, RampStep, RttStats};

use crate::prelude::*;

/// Loads that grow: from one to the other in equal steps.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct LoadRamp {
    /// The first and the last load.
    pub loads: RampLoads,
    /// Number of loads; at least two.
    pub steps: u16,
}

/// The ends of a ramp.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum RampLoads {
    /// Shares of what the path carries.
    Shares(Ratio, Ratio),
    /// Rates, of all streams together.
    Rates(BitRate, BitRate),
}

impl LoadRamp {
    /// The loads in order, on a path that carries `full`.
    pub fn offered_loads(&self, full: BitRate) -> Vec<BitRate> {
        let (from, to) = match self.loads {
            RampLoads::Shares(from, to) => (full.scale_by(from.get()), full.scale_by(to.get())),
            RampLoads::Rates(from, to) => (from, to),
        };
        let (from, range) = (from.bps() as f64, to.bps() as f64 - from.bps() as f64);
        let steps = self.steps.max(2);
        (0..steps)
            .map(|step| f64::from(step) / f64::from(steps - 1))
            .map(|part| BitRate::from_bps((from + range * part).round() as u64))
            .collect()
    }
}

/// Offers each of `loads` as `request` has it, and reports each step as it is done. The first error
/// ends it; an interrupted measurement is its last, and not among the steps; one that breaks off is
/// the last step, because whoever broke off may not come back, and what there is would be lost.
///
/// # Errors
/// The error of `measure`.
pub fn run_ramp<E>(
    loads: &[BitRate],
    full: Option<BitRate>,
    request: &Request,
    measure: &mut dyn FnMut(&Request) -> Result<Measurement, E>,
    done: &mut dyn FnMut(&RampStep),
) -> Result<RampReport, E> {
    let (mut steps, mut idle, mut interrupted) = (Vec::new(), None::<RttStats>, false);
    for &offered in loads {
        let rate = Some(offered.scale_by(1.0 / f64::from(request.streams.max(1))));
        let measured = measure(&Request {
            rate,
            ..request.clone()
        })?;
        interrupted = measured.interrupted;
        if interrupted {
            break;
        }
        // A path that others use may be idler later.
        idle = [idle, measured.rtt.idle]
            .into_iter()
            .flatten()
            .min_by_key(|stats| stats.median);
        let step = RampStep::from_measurement(offered, &measured);
        done(&step);
        let broken = step.broken_off.is_some();
        steps.push(step);
        if broken {
            break;
        }
    }
    Ok(RampReport::new(full, idle, steps, interrupted))
}

/// Usual duration of each step: long enough for a queue to fill at a tenth more than the path
/// carries.
pub const RAMP_STEP: Span = Span::from_secs(2);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn loads_grow_in_equal_steps() {
        let shares = LoadRamp {
            loads: RampLoads::Shares(Ratio::new(0.1), Ratio::new(1.2)),
            steps: 12,
        };
        let loads = shares.offered_loads(BitRate::from_mbps(100));
        assert_eq!(
            loads,
            (1..=12)
                .map(|step| BitRate::from_mbps(step * 10))
                .collect::<Vec<_>>()
        );
        let rates = LoadRamp {
            loads: RampLoads::Rates(BitRate::from_mbps(5), BitRate::from_mbps(6)),
            steps: 2,
        };
        assert_eq!(
            rates.offered_loads(BitRate::ZERO),
            [5, 6].map(BitRate::from_mbps)
        );
    }
}
