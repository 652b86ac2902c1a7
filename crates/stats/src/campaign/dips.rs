//! Dips: runs that are slower than smaller settings, and what makes them.

use crate::{Correlation, rank_correlation};
use fullpipe_record::{SweepCell, SweepDipCause, SweepDips, SweepRun};
use fullpipe_units::{BitRate, ByteCount, Ratio, Span, median};

/// Share of the rate of a smaller setting below which a run is a dip.
const DIP: f64 = 0.8;

/// Share of the best rate from which on a setting fills the path, and dips where the path does.
const FULL: f64 = 0.8;

/// Correlation of runs from which on they go together.
const TOGETHER: f64 = 0.4;

/// Share of the dips beyond the bytes in flight from which on those are their cause.
const BEYOND: f64 = 0.8;

/// Returns the dips of `runs`, which are all of a sweep in their order, over a path with this
/// round-trip time; `None` if no run counts.
pub fn find_dips(runs: &[SweepRun], rtt: Span) -> Option<SweepDips> {
    let runs = judge_runs(runs);
    let best = runs.iter().map(|run| run.reached).max()?;
    let flight = best.bytes_in(rtt);
    let full: Vec<&CountedRun> = runs
        .iter()
        .filter(|run| run.reached >= best.scale_by(FULL))
        .collect();
    let [of_setting, neighbours] = [of_setting(&full), neighbour_correlation(&full)];
    let all: Vec<&CountedRun> = runs.iter().collect();
    let dips: Vec<&CountedRun> = runs.iter().filter(|run| run.is_dip()).collect();
    let dips = SweepDips {
        runs: count_runs(&all, |_| true),
        dips: count_runs(&dips, |_| true),
        flight,
        runs_beyond: count_runs(&all, |run| run.is_beyond(flight)),
        dips_beyond: count_runs(&dips, |run| run.is_beyond(flight)),
        repeated: count_runs(&dips, |run| run.is_repeated(&all)),
        again: count_runs(&dips, |run| run.is_repeated(&dips)),
        of_setting: of_setting.map(|found| found.coefficient),
        neighbours: neighbours.map(|found| found.coefficient),
        cause: None,
    };
    Some(SweepDips {
        cause: dip_cause(&dips, of_setting, neighbours),
        ..dips
    })
}

fn count_runs(runs: &[&CountedRun], which: impl Fn(&CountedRun) -> bool) -> u32 {
    u32::try_from(runs.iter().filter(|run| which(run)).count()).unwrap_or(u32::MAX)
}

/// A run that counts.
struct CountedRun {
    number: usize,
    cell: SweepCell,
    rate: BitRate,
    /// Median of the runs of its setting.
    typical: BitRate,
    /// The greatest rate that a setting with no more streams and no larger window typically has.
    reached: BitRate,
}

impl CountedRun {
    fn dip_depth(&self) -> Ratio {
        Ratio::new(self.rate.relative_to(self.reached))
    }

    fn is_dip(&self) -> bool {
        self.dip_depth().get() < DIP
    }

    fn is_beyond(&self, flight: ByteCount) -> bool {
        self.cell.flight_capacity() > flight
    }

    /// Returns true if another of `runs` is of the same setting.
    fn is_repeated(&self, runs: &[&Self]) -> bool {
        runs.iter()
            .any(|other| other.cell == self.cell && other.number != self.number)
    }

    /// Returns the rate relative to the typical one of the setting.
    fn residual(&self) -> Ratio {
        Ratio::new(self.rate.relative_to(self.typical))
    }
}

fn judge_runs(runs: &[SweepRun]) -> Vec<CountedRun> {
    let seen: Vec<(usize, SweepCell, BitRate)> = runs
        .iter()
        .enumerate()
        .filter_map(|(number, run)| Some((number, run.cell, run.rate?)))
        .collect();
    let known: Vec<(SweepCell, BitRate)> = seen
        .iter()
        .map(|(_, cell, _)| {
            let of_cell = seen.iter().filter(|(_, of, _)| of == cell);
            let typical = median(of_cell.map(|(_, _, rate)| *rate).collect());
            (*cell, typical.unwrap_or_default())
        })
        .collect();
    seen.iter()
        .zip(&known)
        .map(|(&(number, cell, rate), &(_, typical))| CountedRun {
            number,
            cell,
            rate,
            typical,
            reached: reached_rate(&known, cell).unwrap_or(rate),
        })
        .collect()
}

/// Returns the greatest typical rate of a setting with no more streams and no larger window.
fn reached_rate(typical: &[(SweepCell, BitRate)], cell: SweepCell) -> Option<BitRate> {
    let smaller = typical
        .iter()
        .filter(|(of, _)| of.window <= cell.window && of.streams <= cell.streams);
    smaller.map(|(_, rate)| *rate).max()
}

/// Returns the rank correlation of each run with the next one of its setting, each by its depth:
/// dips that belong to settings come again.
fn of_setting(full: &[&CountedRun]) -> Option<Correlation> {
    let depths = full.iter().filter_map(|run| {
        let next = full
            .iter()
            .find(|other| other.cell == run.cell && other.number > run.number)?;
        Some((run.dip_depth(), next.dip_depth()))
    });
    rank_correlation(&depths.collect::<Vec<_>>())
}

/// Returns the rank correlation of runs with those after them, each relative to the typical run of
/// its setting: of settings that were measured more than once.
fn neighbour_correlation(full: &[&CountedRun]) -> Option<Correlation> {
    let repeated: Vec<&&CountedRun> = full.iter().filter(|run| run.is_repeated(full)).collect();
    let different = repeated
        .windows(2)
        .filter(|pair| pair[0].cell != pair[1].cell);
    rank_correlation(
        &different
            .map(|pair| (pair[0].residual(), pair[1].residual()))
            .collect::<Vec<_>>(),
    )
}

fn dip_cause(
    dips: &SweepDips,
    of_setting: Option<Correlation>,
    neighbours: Option<Correlation>,
) -> Option<SweepDipCause> {
    let of_setting = of_setting.filter(|_| !dips.are_few())?;
    if go_together(of_setting) {
        let beyond = f64::from(dips.dips_beyond) >= BEYOND * f64::from(dips.dips);
        return beyond.then_some(SweepDipCause::BeyondFlight);
    }
    // In between, the figures do not decide.
    (of_setting.coefficient < TOGETHER).then(|| match neighbours {
        Some(found) if go_together(found) => SweepDipCause::Order,
        _ => SweepDipCause::CrossTraffic,
    })
}

fn go_together(found: Correlation) -> bool {
    found.is_shown() && found.coefficient >= TOGETHER
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::campaign::{CampaignPlan, CampaignStep, SweepGrid};
    use fullpipe_record::{SweepCost, SweepOrder, SweepPlan, SweepReason};
    use fullpipe_units::ByteCount;
    use rand_pcg::Pcg64Mcg;
    use rand_pcg::rand_core::{Rng, SeedableRng};

    const RTT: Span = Span::from_millis(20);

    /// Sweeps of each kind.
    const SWEEPS: u64 = 40;

    struct Random(Pcg64Mcg);

    impl Random {
        fn unit(&mut self) -> f64 {
            (self.0.next_u64() >> 11) as f64 / (1_u64 << 53) as f64
        }

        /// About normal, with the standard deviation 1.
        fn normal(&mut self) -> f64 {
            (0..12).map(|_| self.unit()).sum::<f64>() - 6.0
        }
    }

    fn plan(order: SweepOrder) -> CampaignPlan {
        let grid = SweepGrid::from_ranges(ByteCount::from_kib(8)..=ByteCount::from_mib(4), 1..=90)
            .unwrap();
        CampaignPlan::new(SweepPlan {
            is_virtual: true,
            windows: grid.windows().to_vec(),
            streams: grid.streams().to_vec(),
            order: Some(order),
            seed: 1,
            rtt: RTT,
            ..SweepPlan::default()
        })
        .unwrap()
    }

    /// Returns the dips of a sweep over 100 Mbit/s × 20 ms with 4 % noise. The path gives `share`
    /// of the capacity to a run with this load relative to the BDP, by the number of the run.
    fn swept(
        order: SweepOrder,
        seed: u64,
        share: impl Fn(f64, usize, &mut Random) -> f64,
    ) -> SweepDips {
        let (plan, mut random, mut runs) = (
            plan(order),
            Random(Pcg64Mcg::seed_from_u64(seed)),
            Vec::new(),
        );
        while let CampaignStep::Run { cell, reason } = plan.next_step(&runs) {
            let load = cell.flight_capacity().as_f64() / 250e3;
            let rate = 100e6
                * load.min(share(load, runs.len(), &mut random))
                * (1.0 + 0.04 * random.normal());
            runs.push(SweepRun::from_cost(
                cell,
                reason,
                BitRate::from_bps_f64(rate),
                SweepCost::default(),
            ));
        }
        find_dips(&runs, RTT).unwrap()
    }

    fn causes(
        order: SweepOrder,
        share: impl Fn(f64, usize, &mut Random) -> f64,
    ) -> Vec<Option<SweepDipCause>> {
        (0..SWEEPS)
            .map(|seed| swept(order, seed, &share).cause)
            .collect()
    }

    /// A third of the capacity is lost where 16 times the BDP may be in flight.
    fn beyond(load: f64, _: usize, _: &mut Random) -> f64 {
        1.0 - 0.35 * (libm::log2(load) / 4.0).clamp(0.0, 1.0)
    }

    /// Other traffic takes a third of the capacity from three runs of ten.
    fn cross_traffic(_: f64, _: usize, random: &mut Random) -> f64 {
        if random.unit() < 0.3 {
            0.5 + 0.3 * random.unit()
        } else {
            1.0
        }
    }

    /// The capacity falls by a third and rises again, three times in a sweep.
    fn slow_change(_: f64, number: usize, _: &mut Random) -> f64 {
        1.0 - 0.175 * (1.0 - libm::cos(std::f64::consts::TAU * number as f64 / 87.0))
    }

    #[test]
    fn a_cause_that_was_planted_is_named() {
        type Share = fn(f64, usize, &mut Random) -> f64;
        let planted: [(Share, SweepDipCause); 3] = [
            (beyond, SweepDipCause::BeyondFlight),
            (cross_traffic, SweepDipCause::CrossTraffic),
            (slow_change, SweepDipCause::Order),
        ];
        for (share, cause) in planted {
            let found = causes(SweepOrder::Both, share);
            let right = found.iter().filter(|found| **found == Some(cause)).count() as u64;
            assert!(
                right * 100 >= SWEEPS * 95,
                "{right} of {SWEEPS} are {cause:?}: {found:?}"
            );
        }
    }

    #[test]
    fn one_order_names_no_cause_and_noise_is_none() {
        assert!(
            causes(SweepOrder::Nested, beyond)
                .iter()
                .all(Option::is_none),
            "nothing was measured twice"
        );
        let noise = |_: f64, _: usize, _: &mut Random| 1.0;
        assert!(causes(SweepOrder::Both, noise).iter().all(Option::is_none));
        assert_eq!(find_dips(&[], RTT), None);
    }

    #[test]
    fn a_setting_far_below_its_neighbours_is_a_dip() {
        let windows = [64, 128, 256, 512].map(ByteCount::from_kib);
        let cells: Vec<SweepCell> = windows
            .iter()
            .flat_map(|window| {
                [1, 2, 4, 8].map(|streams| SweepCell {
                    window: *window,
                    streams,
                })
            })
            .collect();
        // Every setting but the smallest one has a neighbour that is no larger.
        for planted in 1..cells.len() {
            let mut random = Random(Pcg64Mcg::seed_from_u64(planted as u64));
            let run = |(place, cell): (usize, &SweepCell)| {
                let share = if place == planted { 0.7 } else { 1.0 };
                let rate = BitRate::from_bps_f64(250e6 * share * (1.0 + 0.02 * random.normal()));
                SweepRun::from_cost(*cell, SweepReason::Anchor, rate, SweepCost::default())
            };
            let runs: Vec<SweepRun> = cells.iter().enumerate().map(run).collect();
            assert_eq!(find_dips(&runs, RTT).unwrap().dips, 1, "{}", cells[planted]);
        }
    }

    #[test]
    fn dips_beyond_the_flight_are_counted_there() {
        let found = swept(SweepOrder::Both, 1, beyond);
        assert_eq!((found.runs, found.dips), (260, found.dips_beyond));
        assert!(
            found.dips > 20 && found.again * 10 >= found.repeated * 8,
            "{found:?}"
        );
    }
}
