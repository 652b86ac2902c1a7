//! The rate that a stream offers.

use std::str::FromStr;

use super::prelude::*;

/// A rate, and how many blocks go at once.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct OfferedRate {
    pub(crate) rate: BitRate,
    pub(crate) burst: Option<u16>,
}

impl FromStr for OfferedRate {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        const MAX_STREAMS: u16 = 1000;
        let (rate, burst) = split_count(text);
        let burst = burst.map(|burst| match burst.parse() {
            Ok(count) if (1..=MAX_STREAMS).contains(&count) => Ok(count),
            _ => Err(format!(
                "{burst} blocks in a row asked for; 1 to {MAX_STREAMS} are possible"
            )),
        });
        let rate = if rate == "0" {
            BitRate::ZERO
        } else {
            parse_quantity(rate)?
        };
        Ok(Self {
            rate,
            burst: burst.transpose()?,
        })
    }
}

/// Returns a value or a range of values, and the number behind its slash. The slash of a unit, as
/// in Mbit/s, is followed by a letter.
pub(crate) fn split_count(text: &str) -> (&str, Option<&str>) {
    match text.rsplit_once('/') {
        Some((value, count)) if count.bytes().all(|byte| byte.is_ascii_digit()) => {
            (value, Some(count))
        }
        _ => (text, None),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_rate_may_say_how_many_go_at_once() {
        assert_eq!(
            "10M".parse(),
            Ok(OfferedRate {
                rate: BitRate::from_mbps(10),
                burst: None
            })
        );
        assert_eq!(
            "10Mbit/s/4".parse(),
            Ok(OfferedRate {
                rate: BitRate::from_mbps(10),
                burst: Some(4)
            })
        );
        assert_eq!(
            "0/8".parse(),
            Ok(OfferedRate {
                rate: BitRate::ZERO,
                burst: Some(8)
            })
        );
        for text in ["10M/", "10M/0", "10M/1001", "fast"] {
            assert!(text.parse::<OfferedRate>().is_err(), "{text}");
        }
    }
}
