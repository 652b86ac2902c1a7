//! Blocks that cross compressed, where the way is slower than compression is.

use std::cell::Cell;
use std::io::{self, Write};
use std::num::NonZeroUsize;
use std::sync::{Condvar, Mutex, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use fullpipe_control::{BlockCompressor, BlockDecompressor, CompressionChoice, CompressionTrial};
use fullpipe_units::{BitRate, ByteCount};

use crate::bounds::CopyBounds;
use crate::protocol::BLOCK;
use fullpipe_sys::lock;

/// Bytes of which the rate of a way is the mean.
const RECENT: u64 = 4 << 20;

/// The rate at which a way takes what is written, with the waits for a rate limit. As long as its
/// buffers have room, that is the rate of memory, which no compression reaches.
#[derive(Default)]
pub(crate) struct WriteThroughput(Cell<(u64, Duration)>);

impl WriteThroughput {
    fn add_write(&self, bytes: usize, took: Duration) {
        let (mut all, mut time) = self.0.get();
        if all > RECENT {
            (all, time) = (all / 2, time / 2);
        }
        self.0.set((all + bytes as u64, time + took));
    }

    fn mean_rate(&self) -> Option<BitRate> {
        let (bytes, time) = self.0.get();
        (!time.is_zero()).then(|| BitRate::from_bytes_in(ByteCount::new(bytes), time.into()))
    }
}

/// A way within the bounds of a copy, whose throughput is noted.
pub(crate) struct MeteredWriter<'t, W> {
    pub to: W,
    pub bounds: &'t CopyBounds,
    pub throughput: &'t WriteThroughput,
}

impl<W: Write> Write for MeteredWriter<'_, W> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let began = Instant::now();
        self.bounds.wait_for_bytes(bytes.len());
        // In part it would wait for the rest again.
        self.to.write_all(bytes)?;
        self.throughput.add_write(bytes.len(), began.elapsed());
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        self.to.flush()
    }
}

/// The states of zstd that all connections share: as many as processors can use at once, as each
/// takes some hundred KiB. Each has room for a block.
pub(crate) struct CodecPool<T> {
    /// States that no thread uses; `None` where a state was not made yet.
    free: Mutex<Vec<Slot<T>>>,
    freed: Condvar,
}

type Slot<T> = Option<(T, Vec<u8>)>;

impl<T> Default for CodecPool<T> {
    fn default() -> Self {
        let most = thread::available_parallelism().map_or(1, NonZeroUsize::get);
        let free = (0..most).map(|_| None).collect();
        Self {
            free: Mutex::new(free),
            freed: Condvar::new(),
        }
    }
}

impl<T> CodecPool<T> {
    /// Waits for a state, makes it if it is not, and lets `work` use it.
    ///
    /// # Errors
    /// Fails if `make` does.
    fn with_state<R>(
        &self,
        make: impl FnOnce() -> io::Result<T>,
        work: impl FnOnce(&mut T, &mut [u8]) -> R,
    ) -> io::Result<R> {
        let mut state = self.take_state();
        let done = match &mut state {
            Some((made, room)) => Ok(work(made, room)),
            None => make().map(|made| {
                let (made, room) = state.insert((made, vec![0; BLOCK]));
                work(made, room)
            }),
        };
        lock(&self.free).push(state);
        self.freed.notify_one();
        done
    }

    fn take_state(&self) -> Slot<T> {
        let free = self
            .freed
            .wait_while(lock(&self.free), |free| free.is_empty());
        free.unwrap_or_else(PoisonError::into_inner).pop().flatten()
    }
}

/// Compresses the blocks of one connection.
pub(crate) struct BlockCompression<'s> {
    pool: &'s CodecPool<BlockCompressor>,
    throughput: &'s WriteThroughput,
    choice: CompressionChoice,
}

impl<'s> BlockCompression<'s> {
    pub(crate) fn new(
        pool: &'s CodecPool<BlockCompressor>,
        throughput: &'s WriteThroughput,
    ) -> Self {
        Self {
            pool,
            throughput,
            choice: CompressionChoice::default(),
        }
    }

    /// Compresses a block where it lies, if that saves time. Returns the compressed length.
    pub(crate) fn compress_block(&mut self, block: &mut [u8]) -> Option<usize> {
        let level = self.choice.next_level(block.len())?;
        let began = Instant::now();
        let packed = self.pool.with_state(BlockCompressor::new, |state, room| {
            // What does not become shorter does not fit.
            let length =
                state.compress_block(level, block, &mut room[..block.len().saturating_sub(1)])?;
            block[..length].copy_from_slice(&room[..length]);
            Some(length)
        });
        let packed = packed.ok().flatten();
        // With the wait for a processor, for which all connections compete.
        let took = began.elapsed().into();
        let (payload, way) = (block.len(), self.throughput.mean_rate());
        self.choice.record_trial(&CompressionTrial {
            payload,
            packed: packed.unwrap_or(payload),
            took,
            way,
        });
        packed
    }
}

/// Decompresses a block where it lies. What is none becomes empty.
///
/// # Errors
/// Fails if there is no memory.
pub(crate) fn decompress_block(
    pool: &CodecPool<BlockDecompressor>,
    block: &mut Vec<u8>,
) -> io::Result<()> {
    pool.with_state(BlockDecompressor::new, |state, room| {
        let length = state.decompress_block(block, room).unwrap_or(0);
        block.clear();
        block.extend_from_slice(&room[..length]);
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use fullpipe_testkit::random_bytes;

    fn text() -> Vec<u8> {
        (0..9000)
            .flat_map(|line| format!("line {line}\n").into_bytes())
            .take(BLOCK)
            .collect()
    }

    /// Of a way that takes so many bytes in a second.
    fn throughput(bytes: usize) -> WriteThroughput {
        let throughput = WriteThroughput::default();
        throughput.add_write(bytes, Duration::from_secs(1));
        throughput
    }

    #[test]
    fn a_block_of_text_crosses_compressed_where_the_way_is_slow() {
        let (pool, text) = (CodecPool::default(), text());
        let slow = throughput(2_500_000);
        let mut block = text.clone();
        let length = BlockCompression::new(&pool, &slow)
            .compress_block(&mut block)
            .unwrap();
        assert!(length * 2 < text.len(), "{length}");
        block.truncate(length);
        decompress_block(&CodecPool::default(), &mut block).unwrap();
        assert!(block == text);
        // Nothing is gained where bytes leave sooner than they are compressed.
        let fast = throughput(usize::MAX / 2);
        let mut packing = BlockCompression::new(&pool, &fast);
        assert!(
            packing.compress_block(&mut text.clone()).is_some(),
            "the first is a trial"
        );
        assert!(packing.compress_block(&mut text.clone()).is_none());
    }

    #[test]
    fn what_does_not_become_shorter_crosses_as_it_is() {
        let (pool, slow) = (CodecPool::default(), throughput(1000));
        for content in [random_bytes(BLOCK), b"short".to_vec(), Vec::new()] {
            let mut block = content.clone();
            assert!(
                BlockCompression::new(&pool, &slow)
                    .compress_block(&mut block)
                    .is_none()
                    && block == content
            );
        }
    }

    #[test]
    fn what_holds_more_than_a_block_is_none() {
        let mut bomb = vec![0; BLOCK];
        let length = BlockCompressor::new()
            .unwrap()
            .compress_block(1, &vec![0; 64 << 20], &mut bomb)
            .unwrap();
        bomb.truncate(length);
        for mut block in [bomb, b"none".to_vec()] {
            decompress_block(&CodecPool::default(), &mut block).unwrap();
            assert!(block.is_empty());
        }
    }

    #[test]
    fn more_threads_than_states_wait_for_one() {
        let (pool, text) = (CodecPool::default(), text());
        let slow = || throughput(1000);
        thread::scope(|threads| {
            for _ in 0..16 {
                threads.spawn(|| {
                    assert!(
                        BlockCompression::new(&pool, &slow())
                            .compress_block(&mut text.clone())
                            .is_some()
                    );
                });
            }
        });
        let failing: CodecPool<BlockCompressor> = CodecPool::default();
        for _ in 0..100 {
            assert!(
                failing
                    .with_state(|| Err(io::ErrorKind::OutOfMemory.into()), |_, _| ())
                    .is_err()
            );
        }
    }
}
