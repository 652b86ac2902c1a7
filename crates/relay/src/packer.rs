//! The decision of a direction for or against compression, block by block.

use fullpipe_units::{BitRate, ByteCount, Span};
use rustix::time::{ClockId, clock_gettime};

use crate::blocks::{BLOCK_BYTES, Codec, payload_in};

/// Levels of zstd, from the fastest. On a core of some 3 GHz they take about 0.5, 0.3 and 0.1 GB/s of text.
const LEVELS: [i32; 3] = [1, 3, 6];

/// Payload for which compression is not even tried: a keystroke, an acknowledgement of a protocol.
const MIN_PAYLOAD: usize = 128;

/// Part of the payload that compression must save.
const MIN_SAVED: f64 = 0.05;

/// Payload that passes as it is after a trial that did not win: doubled with each such trial, up to a maximum.
const MIN_PAUSE: u64 = BLOCK_BYTES as u64;
const MAX_PAUSE: u64 = 32 << 20;

/// Parts of the time that a compressed block spends on the wire: with less processor time than the first, the next
/// level is tried; with more than the second, the one before.
const IS_CHEAP: f64 = 0.125;
const IS_DEAR: f64 = 0.5;

/// Blocks that a direction sends.
#[derive(Debug, Default)]
pub(crate) struct Packer {
    decision: Decision,
    /// Bytes of the blocks so far, their headers included.
    pub(crate) wire: u64,
    /// Most payload of a block for each of its bytes.
    expansion: f64,
}

impl Packer {
    /// Makes a block of the first `length` bytes of the codec's input, and returns its length. `wire` is asked for the
    /// rate between the relays only if compression is tried.
    pub(crate) fn pack(&mut self, codec: &mut Codec, length: usize, wire: impl Fn() -> Option<BitRate>) -> usize {
        let level = self.decision.level(length);
        let began = processor_time();
        let packed = codec.pack(length, level);
        if level.is_some() {
            let took = processor_time().saturating_sub(began);
            self.decision.note(&Trial { payload: length, packed, took, wire: wire() });
        }
        self.wire += packed as u64;
        self.expansion = self.expansion.max(length as f64 / packed as f64);
        packed
    }

    /// Returns the payload, at most, that `wire` bytes of these blocks hold.
    pub(crate) fn payload_in(&self, wire: u64) -> u64 {
        payload_in(wire, self.expansion)
    }
}

/// Returns the processor time of this thread.
fn processor_time() -> Span {
    let time = clock_gettime(ClockId::ThreadCPUTime);
    Span::from_nanos(time.tv_sec.cast_unsigned() * 1_000_000_000 + time.tv_nsec.cast_unsigned())
}

/// A block that was compressed.
#[derive(Debug)]
struct Trial {
    payload: usize,
    packed: usize,
    took: Span,
    wire: Option<BitRate>,
}

/// The state between two blocks.
#[derive(Debug, Default)]
struct Decision {
    /// Index of the level.
    rung: usize,
    /// Payload that still passes as it is, and that was to pass since the last trial.
    left: u64,
    pause: u64,
}

impl Decision {
    /// Returns the level of the next block, of `length` bytes; `None` if it shall not be compressed.
    fn level(&mut self, length: usize) -> Option<i32> {
        if length < MIN_PAYLOAD {
            return None;
        }
        if self.left > 0 {
            self.left = self.left.saturating_sub(length as u64);
            return None;
        }
        Some(LEVELS[self.rung])
    }

    /// Compares what a block saved on the wire with the processor time that it took. A rate that is not known counts as
    /// low.
    fn note(&mut self, trial: &Trial) {
        let rate = trial.wire.filter(|rate| *rate > BitRate::ZERO);
        let on_wire = |bytes: usize| rate.map_or(Span::MAX, |rate| rate.time_for(ByteCount::new(bytes as u64)));
        let saved = trial.payload.saturating_sub(trial.packed);
        let wins = saved as f64 >= MIN_SAVED * trial.payload as f64 && trial.took <= on_wire(saved);
        if !wins {
            self.rung = 0;
            self.pause = (self.pause * 2).clamp(MIN_PAUSE, MAX_PAUSE);
            self.left = self.pause;
            return;
        }
        self.pause = 0;
        let sent = on_wire(trial.packed);
        if rate.is_some() && trial.took < sent.scaled(IS_CHEAP) {
            self.rung = (self.rung + 1).min(LEVELS.len() - 1);
        } else if trial.took > sent.scaled(IS_DEAR) {
            self.rung = self.rung.saturating_sub(1);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn trial(packed: usize, micros: u64, mbps: Option<u64>) -> Trial {
        let wire = mbps.map(BitRate::from_mbps);
        Trial { payload: BLOCK_BYTES, packed, took: Span::from_micros(micros), wire }
    }

    /// Payload of whole blocks until the next trial.
    fn pause(decision: &mut Decision) -> u64 {
        let mut passed = 0;
        while decision.level(BLOCK_BYTES).is_none() {
            passed += BLOCK_BYTES as u64;
        }
        passed
    }

    #[test]
    fn what_saves_nothing_is_tried_ever_more_rarely() {
        let mut decision = Decision::default();
        let mut pauses = Vec::new();
        for _ in 0..10 {
            decision.note(&trial(BLOCK_BYTES + 4, 30, Some(20)));
            pauses.push(pause(&mut decision));
        }
        assert_eq!((pauses[0], pauses[1], pauses[9]), (MIN_PAUSE, 2 * MIN_PAUSE, MAX_PAUSE));
        // One that wins ends that.
        decision.note(&trial(BLOCK_BYTES / 3, 300, Some(20)));
        assert_eq!(pause(&mut decision), 0);
    }

    #[test]
    fn compression_must_be_faster_than_the_wire_sends_what_it_saves() {
        // 2/3 of 128 KiB are saved: 35 ms at 20 Mbit/s, 70 µs at 10 Gbit/s.
        for (mbps, wins) in [(Some(20), true), (Some(1000), true), (Some(10_000), false), (None, true)] {
            let mut decision = Decision::default();
            decision.note(&trial(BLOCK_BYTES / 3, 300, mbps));
            assert_eq!(decision.level(BLOCK_BYTES).is_some(), wins, "{mbps:?}");
        }
    }

    #[test]
    fn a_slow_wire_gets_a_higher_level_and_a_fast_one_the_first() {
        let mut decision = Decision::default();
        let levels = [(300, 20), (500, 20), (1300, 20), (1300, 200), (500, 1000)].map(|(micros, mbps)| {
            decision.note(&trial(BLOCK_BYTES / 3, micros, Some(mbps)));
            decision.level(BLOCK_BYTES)
        });
        assert_eq!(levels, [Some(3), Some(6), Some(6), Some(3), Some(1)]);
    }

    #[test]
    fn small_messages_pass_as_they_are_and_end_no_pause() {
        let mut decision = Decision::default();
        assert_eq!((decision.level(MIN_PAYLOAD - 1), decision.level(MIN_PAYLOAD)), (None, Some(LEVELS[0])));
    }
}
