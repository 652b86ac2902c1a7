use fullpipe_units::{BitRate, ByteCount, Span};

/// Levels of zstd, from the fastest. On a core of some 3 GHz they take about 0.5, 0.3 and 0.1 GB/s
/// of text.
const LEVELS: [i32; 3] = [1, 3, 6];

/// Payload for which compression is not even tried: a keystroke, an acknowledgement of a protocol.
const MIN_PAYLOAD: usize = 128;

/// Part of the payload that compression must save.
const MIN_SAVED: f64 = 0.05;

/// Payload that passes as it is after a trial that did not win: doubled with each such trial, up to
/// a maximum.
const MIN_PAUSE: u64 = 128 << 10;
const MAX_PAUSE: u64 = 32 << 20;

/// Parts of the time that a compressed block spends on the wire: where compression takes less than
/// the first, the next level is tried; more than the second, the one before.
const IS_CHEAP: f64 = 0.125;
const IS_DEAR: f64 = 0.5;

/// A block that was compressed.
#[derive(Debug)]
pub struct CompressionTrial {
    /// Bytes of the block before.
    pub payload: usize,
    /// Bytes of the block as it crosses the way.
    pub packed: usize,
    /// Time that it took.
    pub took: Span,
    /// Rate of the way, if that is known.
    pub way: Option<BitRate>,
}

/// The decision for or against compression, between two blocks.
#[derive(Debug, Default)]
pub struct CompressionChoice {
    /// Index of the level.
    rung: usize,
    /// Payload that still passes as it is, and that was to pass since the last trial.
    left: u64,
    pause: u64,
}

impl CompressionChoice {
    /// Returns the level of the next block, of `length` bytes; `None` if it shall not be
    /// compressed.
    pub fn next_level(&mut self, length: usize) -> Option<i32> {
        if length < MIN_PAYLOAD {
            return None;
        }
        if self.left > 0 {
            self.left = self.left.saturating_sub(length as u64);
            return None;
        }
        Some(LEVELS[self.rung])
    }

    /// Compares what a block saved on the wire with the time that it took. A rate that is not known
    /// counts as low.
    pub fn record_trial(&mut self, trial: &CompressionTrial) {
        let rate = trial.way.filter(|rate| *rate > BitRate::ZERO);
        let saved = trial.payload.saturating_sub(trial.packed);
        let [on_way_saved, sent] = [saved, trial.packed].map(|bytes| {
            rate.map_or(Span::MAX, |rate| {
                rate.time_for(ByteCount::new(bytes as u64))
            })
        });
        let wins = saved as f64 >= MIN_SAVED * trial.payload as f64 && trial.took <= on_way_saved;
        if !wins {
            self.rung = 0;
            self.pause = (self.pause * 2).clamp(MIN_PAUSE, MAX_PAUSE);
            self.left = self.pause;
            return;
        }
        self.pause = 0;
        if rate.is_some() && trial.took < sent.scale_by(IS_CHEAP) {
            self.rung = (self.rung + 1).min(LEVELS.len() - 1);
        } else if trial.took > sent.scale_by(IS_DEAR) {
            self.rung = self.rung.saturating_sub(1);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const BLOCK: usize = 128 << 10;

    fn trial(packed: usize, micros: u64, mbps: Option<u64>) -> CompressionTrial {
        let way = mbps.map(BitRate::from_mbps);
        CompressionTrial {
            payload: BLOCK,
            packed,
            took: Span::from_micros(micros),
            way,
        }
    }

    /// Payload of whole blocks until the next trial.
    fn pause(choice: &mut CompressionChoice) -> u64 {
        let mut passed = 0;
        while choice.next_level(BLOCK).is_none() {
            passed += BLOCK as u64;
        }
        passed
    }

    #[test]
    fn what_saves_nothing_is_tried_ever_more_rarely() {
        let mut choice = CompressionChoice::default();
        let mut pauses = Vec::new();
        for _ in 0..10 {
            choice.record_trial(&trial(BLOCK + 4, 30, Some(20)));
            pauses.push(pause(&mut choice));
        }
        assert_eq!(
            (pauses[0], pauses[1], pauses[9]),
            (MIN_PAUSE, 2 * MIN_PAUSE, MAX_PAUSE)
        );
        // One that wins ends that.
        choice.record_trial(&trial(BLOCK / 3, 300, Some(20)));
        assert_eq!(pause(&mut choice), 0);
    }

    #[test]
    fn compression_must_be_faster_than_the_way_sends_what_it_saves() {
        // 2/3 of 128 KiB are saved: 35 ms at 20 Mbit/s, 70 µs at 10 Gbit/s.
        for (mbps, wins) in [
            (Some(20), true),
            (Some(1000), true),
            (Some(10_000), false),
            (None, true),
        ] {
            let mut choice = CompressionChoice::default();
            choice.record_trial(&trial(BLOCK / 3, 300, mbps));
            assert_eq!(choice.next_level(BLOCK).is_some(), wins, "{mbps:?}");
        }
    }

    #[test]
    fn a_slow_way_gets_a_higher_level_and_a_fast_one_the_first() {
        let mut choice = CompressionChoice::default();
        let levels =
            [(300, 20), (500, 20), (1300, 20), (1300, 200), (500, 1000)].map(|(micros, mbps)| {
                choice.record_trial(&trial(BLOCK / 3, micros, Some(mbps)));
                choice.next_level(BLOCK)
            });
        assert_eq!(levels, [Some(3), Some(6), Some(6), Some(3), Some(1)]);
    }

    #[test]
    fn small_messages_pass_as_they_are_and_end_no_pause() {
        let mut choice = CompressionChoice::default();
        assert_eq!(
            (
                choice.next_level(MIN_PAYLOAD - 1),
                choice.next_level(MIN_PAYLOAD)
            ),
            (None, Some(LEVELS[0]))
        );
    }
}
