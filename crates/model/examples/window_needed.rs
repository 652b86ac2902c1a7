//! Prints the window that a path needs, and the rate that common windows give on it.
//!
//!     cargo run -p fullpipe-model --example window_needed -- 100Mbit/s 173ms

#![expect(clippy::print_stdout, reason = "an example prints its result")]

use std::error::Error;

use fullpipe_model::window::{bdp, rate_of_window};
use fullpipe_units::{BitRate, ByteCount, Span};

fn main() -> Result<(), Box<dyn Error>> {
    let mut arguments = std::env::args().skip(1);
    let capacity: BitRate = arguments
        .next()
        .unwrap_or_else(|| "100Mbit/s".to_owned())
        .parse()?;
    let rtt: Span = arguments
        .next()
        .unwrap_or_else(|| "173ms".to_owned())
        .parse()?;
    println!(
        "{capacity} over {rtt} needs a window of {}",
        bdp(capacity, rtt)
    );
    for window in [
        ByteCount::from_kib(64),
        ByteCount::from_mib(1),
        ByteCount::from_mib(16),
    ] {
        println!(
            "a window of {window} gives {}",
            rate_of_window(window, rtt).min(capacity)
        );
    }
    Ok(())
}
