//! Twelve paths from 10 Mbit/s to 1 Gbit/s, 4 to 300 ms, without loss to one packet in a hundred.

use fullpipe_units::{BitRate, ByteCount, Span};

use super::Cell;

/// Each path: Mbit/s, ms, the probability that a packet is lost, and megabytes of the file, which takes ours some
/// seconds and the slowest of the others some minutes.
const TWELVE: [(u64, u64, f64, u64); 12] = [
    (10, 4, 0.0, 12),
    (10, 100, 1e-3, 12),
    (10, 300, 0.0, 12),
    (50, 30, 1e-4, 60),
    (100, 4, 1e-3, 120),
    (100, 60, 0.0, 120),
    (100, 300, 1e-4, 60),
    (200, 20, 1e-2, 20),
    (300, 150, 0.0, 300),
    (500, 10, 1e-3, 150),
    (1000, 4, 0.0, 1000),
    (1000, 200, 1e-4, 200),
];

fn name(mbps: u64, milliseconds: u64, loss: f64) -> String {
    let loss = if loss > 0.0 { format!("{loss:e}") } else { "clean".to_owned() };
    format!("twelve-{mbps}-{milliseconds}ms-{loss}")
}

/// Returns the paths, over which all programs move the same file.
pub(super) fn twelve() -> impl Iterator<Item = Cell> {
    TWELVE.into_iter().map(|(mbps, milliseconds, loss, megabytes)| {
        let size = ByteCount::new(megabytes * 1_000_000);
        Cell {
            name: name(mbps, milliseconds, loss),
            rate: BitRate::from_mbps(mbps),
            rtt: Span::from_millis(milliseconds),
            loss,
            ours: size,
            rivals: size,
            no_bbr: false,
        }
    })
}
