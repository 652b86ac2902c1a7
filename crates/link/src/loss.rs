use std::collections::HashMap;

use fullpipe_record::{Framing, LossPattern, PathDirection};
use fullpipe_units::{ByteCount, Ratio, SegCount};
use rand_pcg::Pcg64Mcg;
use rand_pcg::rand_core::SeedableRng;

use crate::Train;
use crate::chance::{HitChance, draw_gap, log_pass};
use crate::load::TrainLoad;

/// The choice of the packets that are lost.
#[derive(Debug)]
pub(crate) struct LossProcess {
    independent: HitChance,
    /// Instead of independent losses.
    pattern: Option<LossModel>,
}

#[derive(Debug)]
enum LossModel {
    GilbertElliott(GilbertElliott),
    Listed(ListedPackets),
    ListedData(ListedData),
}

impl LossProcess {
    pub(crate) fn new(path: &PathDirection, seed: u64) -> Self {
        let pattern = path.effects.losses.as_ref().map(|pattern| match pattern {
            LossPattern::GilbertElliott {
                to_bad,
                to_good,
                in_good,
                in_bad,
            } => LossModel::GilbertElliott(GilbertElliott::new(
                [*to_bad, *to_good],
                [*in_good, *in_bad],
                seed,
            )),
            LossPattern::Listed(numbers) => LossModel::Listed(ListedPackets::new(numbers)),
            LossPattern::ListedData(numbers) => {
                LossModel::ListedData(ListedData::new(numbers, path.mtu))
            }
        });
        Self {
            independent: HitChance::new(path.loss.unwrap_or(Ratio::ZERO), seed),
            pattern,
        }
    }

    /// From now on each packet is lost with `probability`.
    pub(crate) fn set_probability(&mut self, probability: Ratio) {
        self.pattern = None;
        self.independent.set_probability(probability);
    }

    /// Returns the number of packets of `train` that pass before one is lost. If that is not all of
    /// them, the one after them is lost, and the next call is about those after it.
    #[inline]
    pub(crate) fn passing_segments<T: Train>(&mut self, train: &T) -> SegCount {
        match &mut self.pattern {
            None => self.independent.passing_segments(train.segment_count()),
            Some(pattern) => pattern.passing_segments(train),
        }
    }
}

impl LossModel {
    #[inline(never)]
    fn passing_segments<T: Train>(&mut self, train: &T) -> SegCount {
        let segments = train.segment_count();
        match self {
            Self::GilbertElliott(chain) => SegCount::new(chain.passing_segments(segments.get())),
            Self::Listed(listed) => SegCount::new(listed.passing_segments(segments.get())),
            Self::ListedData(listed) => listed.passing_segments(train).unwrap_or(segments),
        }
    }
}

/// A chain of two states (Gilbert, Bell System Technical Journal 39, 1960; Elliott, ibid. 42,
/// 1963). A packet is lost with the probability of the state that it finds, and then the state may
/// change.
///
/// The duration of a state is geometric, and so is the distance to the next loss in it: one random
/// number for each loss and for each change of state. As the geometric distribution has no memory,
/// the distance is drawn afresh in each state.
#[derive(Debug)]
struct GilbertElliott {
    random: Pcg64Mcg,
    /// ln(1 − probability) that a state ends with a packet: good, bad.
    stay: [f64; 2],
    /// ln(1 − probability) that a packet is lost in it.
    pass: [f64; 2],
    bad: bool,
    /// Packets that this state still lasts.
    left: u64,
    /// Packets that pass before the next one is lost, if the state lasts.
    gap: u64,
}

impl GilbertElliott {
    fn new(change: [Ratio; 2], lost: [Ratio; 2], seed: u64) -> Self {
        let random = Pcg64Mcg::seed_from_u64(seed);
        // It enters the good state by leaving the bad one.
        let (stay, pass) = (change.map(log_pass), lost.map(log_pass));
        let mut chain = Self {
            random,
            stay,
            pass,
            bad: true,
            left: 0,
            gap: 0,
        };
        chain.change_state();
        chain
    }

    fn passing_segments(&mut self, segments: u64) -> u64 {
        let mut passed = 0;
        while passed < segments {
            let run = self.gap.min(self.left).min(segments - passed);
            self.spend_packets(run);
            passed += run;
            if self.left == 0 {
                self.change_state();
            } else if passed < segments {
                self.lose_next();
                return passed;
            }
        }
        passed
    }

    /// Loses the next packet.
    fn lose_next(&mut self) {
        self.gap = draw_gap(&mut self.random, self.pass[usize::from(self.bad)]).saturating_add(1);
        self.spend_packets(1);
        if self.left == 0 {
            self.change_state();
        }
    }

    fn spend_packets(&mut self, packets: u64) {
        for count in [&mut self.left, &mut self.gap] {
            // What has no end keeps none.
            if *count != u64::MAX {
                *count -= packets;
            }
        }
    }

    fn change_state(&mut self) {
        self.bad = !self.bad;
        let state = usize::from(self.bad);
        self.left = draw_gap(&mut self.random, self.stay[state]).saturating_add(1);
        self.gap = draw_gap(&mut self.random, self.pass[state]);
    }
}

/// Packets with given numbers, counted from one.
#[derive(Debug)]
struct ListedPackets {
    /// The numbers that are still to come, the next last.
    numbers: Vec<u64>,
    /// Packets so far.
    seen: u64,
}

impl ListedPackets {
    fn new(numbers: &[u64]) -> Self {
        Self {
            numbers: next_last(numbers),
            seen: 0,
        }
    }

    fn passing_segments(&mut self, segments: u64) -> u64 {
        let first = self.seen + 1;
        if let Some(next) = self.numbers.pop_if(|next| *next < first + segments) {
            self.seen = next;
            return next - first;
        }
        self.seen += segments;
        segments
    }
}

/// Data packets with given numbers, counted from one in each flow. A number is lost in the flow
/// that first reaches it, which is the one with most data: acknowledgements, the messages of a
/// control connection and echo requests during the test do not change which packets of a transfer
/// are lost.
#[derive(Debug)]
struct ListedData {
    /// The numbers that no flow has reached, the next last.
    numbers: Vec<u64>,
    /// Size of the smallest packet that counts.
    least: ByteCount,
    /// Data packets so far of each flow.
    seen: HashMap<u64, u64>,
}

/// Share of the MTU from which on a packet counts. Those of a bulk transfer are as large as the MTU
/// permits, and the messages before it smaller.
const FULL: f64 = 0.9;

impl ListedData {
    fn new(numbers: &[u64], mtu: ByteCount) -> Self {
        Self {
            numbers: next_last(numbers),
            least: mtu.scale_by(FULL),
            seen: HashMap::new(),
        }
    }

    /// Returns the number of packets of `train` that pass before one is lost; `None` if none of
    /// them is.
    fn passing_segments<T: Train>(&mut self, train: &T) -> Option<SegCount> {
        let next = *self.numbers.last()?;
        let data = self.data_packets(train);
        let seen = self.seen.entry(train.flow_hash()).or_default();
        if next > *seen + data {
            *seen += data;
            return None;
        }
        let passing = next - *seen - 1;
        *seen = next;
        self.numbers.pop();
        Some(SegCount::new(passing))
    }

    /// Returns the number of packets of `train` that count as data, from the first.
    fn data_packets<T: Train>(&self, train: &T) -> u64 {
        let load = TrainLoad::from_train(train, Framing::Ip);
        let first = if load.packet_bytes() >= self.least {
            load.segments.get()
        } else {
            0
        };
        let last_is_small = load
            .smaller_last()
            .is_some_and(|last| last.total < self.least);
        first.saturating_sub(u64::from(last_is_small))
    }
}

/// Returns `numbers` in falling order, each once; there is no packet zero.
fn next_last(numbers: &[u64]) -> Vec<u64> {
    let mut numbers = numbers.to_vec();
    numbers.sort_unstable_by(|a, b| b.cmp(a));
    numbers.dedup();
    numbers.pop_if(|last| *last == 0);
    numbers
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn chain(p: f64, r: f64, good: f64, bad: f64, seed: u64) -> GilbertElliott {
        GilbertElliott::new([p, r].map(Ratio::new), [good, bad].map(Ratio::new), seed)
    }

    /// Returns, for each of the first `packets`, whether it is lost.
    fn fates(chain: &mut GilbertElliott, packets: u64) -> Vec<bool> {
        (0..packets)
            .map(|_| chain.passing_segments(1) == 0)
            .collect()
    }

    /// Gilbert's model: runs of losses are geometric with mean 1 ÷ r, and p ÷ (p + r) of the
    /// packets are lost. The variance of the number of losses is that of a two-state chain, n π (1
    /// − π) (1 + λ) ÷ (1 − λ) with λ = 1 − p − r.
    #[test]
    fn losses_come_in_runs() {
        const PACKETS: u64 = 1_000_000;
        for (p, r, seed) in [(0.001, 0.2, 1), (0.01, 0.5, 2), (0.1, 0.1, 3)] {
            let fates = fates(&mut chain(p, r, 0.0, 1.0, seed), PACKETS);
            let lost = fates.iter().filter(|lost| **lost).count() as f64;
            let runs = fates.windows(2).filter(|pair| pair[1] && !pair[0]).count() as f64;
            let (share, memory) = (p / (p + r), 1.0 - p - r);
            let sigma =
                (PACKETS as f64 * share * (1.0 - share) * (1.0 + memory) / (1.0 - memory)).sqrt();
            assert!(
                (lost - PACKETS as f64 * share).abs() < 5.0 * sigma,
                "{lost} lost of a share of {share}"
            );
            let run_sigma = (1.0 - r).sqrt() / r / runs.sqrt();
            assert!(
                (lost / runs - 1.0 / r).abs() < 5.0 * run_sigma,
                "{} in a run, not {}",
                lost / runs,
                1.0 / r
            );
        }
    }

    #[test]
    fn the_states_lose_as_they_say() {
        let pattern = LossPattern::GilbertElliott {
            to_bad: Ratio::new(0.01),
            to_good: Ratio::new(0.04),
            in_good: Ratio::new(0.001),
            in_bad: Ratio::new(0.3),
        };
        let mean = pattern.mean_loss().get();
        assert!((mean - (0.8 * 0.001 + 0.2 * 0.3)).abs() < 1e-12);
        let lost = fates(&mut chain(0.01, 0.04, 0.001, 0.3, 7), 1_000_000)
            .iter()
            .filter(|lost| **lost)
            .count() as f64;
        // Bound with the memory of the chain: (1 + 0.95) ÷ (1 − 0.95) times the variance of
        // independent losses at most.
        assert!(
            (lost / 1e6 - mean).abs() < 5.0 * (mean * 39.0 / 1e6_f64).sqrt(),
            "{lost} lost of {mean}"
        );
    }

    #[test]
    fn states_without_end_and_without_length() {
        assert!(!fates(&mut chain(0.0, 0.5, 0.0, 1.0, 1), 10_000).contains(&true));
        assert!(
            fates(&mut chain(0.0, 0.0, 1.0, 0.0, 1), 10_000)
                .iter()
                .all(|lost| *lost)
        );
        // The state changes with every packet.
        let fates = fates(&mut chain(1.0, 1.0, 0.0, 1.0, 1), 6);
        assert_eq!(fates, [false, true, false, true, false, true]);
    }

    #[test]
    fn listed_packets_are_lost_once() {
        let mut listed = ListedPackets::new(&[7, 0, 3, 4, 3, 1]);
        let lost: Vec<_> = (1..=20)
            .filter(|_| listed.passing_segments(1) == 0)
            .collect();
        assert_eq!(lost, [1, 3, 4, 7]);
    }

    proptest! {
        #[test]
        fn a_train_loses_what_its_packets_would_lose(
            p in 0.0..=1.0, r in 0.0..=1.0, good in 0.0..=1.0, bad in 0.0..=1.0, seed: u64, train in 2_u64..60,
        ) {
            let singly = fates(&mut chain(p, r, good, bad, seed), 60 * train);
            let mut whole = chain(p, r, good, bad, seed);
            let mut in_trains = Vec::new();
            for _ in 0..60 {
                let mut left = train;
                while left > 0 {
                    let passing = whole.passing_segments(left);
                    in_trains.extend((0..passing).map(|_| false));
                    left -= passing;
                    if left > 0 {
                        in_trains.push(true);
                        left -= 1;
                    }
                }
            }
            prop_assert_eq!(in_trains, singly);
        }
    }
}
