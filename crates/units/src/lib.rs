//! Quantities as types: what a person writes (`100Mbit/s`, `173ms`, `64KiB`, `0.01%`) on one side,
//! exact numbers on the other.
//!
//! Rates are whole bits per second and print decimal; byte counts are whole bytes and print binary
//! (KiB, MiB); times are whole nanoseconds; distances are whole metres and print in kilometres. In
//! text, a bare `k`, `M` or `G` is decimal for rates and binary for byte counts, as in iperf3. In
//! JSON a rate is bits per second, a size is bytes, a time is seconds, a distance is metres and a
//! ratio is a fraction.
//!
//! ```
//! use fullpipe_units::{BitRate, ByteCount, Span};
//!
//! # fn main() -> Result<(), fullpipe_units::ParseError> {
//! let rate: BitRate = "100Mbit/s".parse()?;
//! let rtt: Span = "173ms".parse()?;
//! assert_eq!(rate.bytes_in(rtt), ByteCount::new(2_162_500));
//! assert_eq!("64KiB".parse(), Ok(ByteCount::from_kib(64)));
//! # Ok(())
//! # }
//! ```

mod bytes;
mod checked;
mod counted;
mod distance;
mod median;
mod optional;
mod parse;
mod printable;
mod rate;
mod ratio;
mod shard;
mod span;

pub use bytes::{ByteCount, SegCount};
pub use checked::{parse_quantity, require_valid};
pub use counted::count_noun;
pub use distance::Distance;
pub use median::{Midpoint, median};
pub use optional::OptionText;
pub use parse::ParseError;
pub use printable::{
    is_one_line, printable_bytes, printable_line, to_hexadecimal, without_control_characters,
};
pub use rate::BitRate;
pub use ratio::Ratio;
pub use shard::Shard;
pub use span::{Span, Time};
