//! The blocks that a direction sends.

use fullpipe_control::{CompressionChoice, CompressionTrial};
use fullpipe_sys::thread_cpu_time;
use fullpipe_units::BitRate;

use crate::blocks::{BlockCodec, payload_in};

/// Blocks that a direction sends.
#[derive(Default)]
pub(crate) struct BlockPacker {
    choice: CompressionChoice,
    /// Bytes of the blocks so far, their headers included.
    pub wire: u64,
    /// Most payload of a block for each of its bytes.
    expansion: f64,
}

impl BlockPacker {
    /// Makes a block of the first `length` bytes of the codec's input, and returns its length.
    /// `wire` is asked for the rate between the relays only if compression is tried.
    pub(crate) fn pack_block(
        &mut self,
        codec: &mut BlockCodec,
        length: usize,
        wire: impl Fn() -> Option<BitRate>,
    ) -> usize {
        let level = self.choice.next_level(length);
        let began = thread_cpu_time();
        let packed = codec.pack_block(length, level);
        if level.is_some() {
            let took = thread_cpu_time().saturating_sub(began);
            self.choice.record_trial(&CompressionTrial {
                payload: length,
                packed,
                took,
                way: wire(),
            });
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
