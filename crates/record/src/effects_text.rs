//! The text forms of what a path does besides rate, delay, queue and loss, as scenarios and
//! `--path` have them. A value of several parts has them in a fixed order with spaces between.

use std::fmt::{self, Display, Formatter};
use std::str::FromStr;

use fullpipe_units::{
    BitRate, ByteCount, Ratio, Span, parse_quantity, parse_within, require_valid,
};

use crate::{
    Codel, Distribution, Edit, LossPattern, NarrowLink, Opportunities, PathChange, PathStep,
    Policer, Queueing, Reordering, TooBig,
};

impl FromStr for LossPattern {
    type Err = String;

    /// Reads `gilbert-elliott 0.1% 20%`, followed by the loss in each state where that is not 0 and
    /// 100 %; `packets 3 17`; or `data 3 17`.
    fn from_str(text: &str) -> Result<Self, String> {
        let parts: Vec<_> = text.split_whitespace().collect();
        match parts.as_slice() {
            ["gilbert-elliott", p, r] => gilbert_elliott([p, r, "0", "1"]),
            ["gilbert-elliott", p, r, good, bad] => gilbert_elliott([p, r, good, bad]),
            ["packets", numbers @ ..] if !numbers.is_empty() => {
                parse_packets(text, numbers).map(LossPattern::Listed)
            }
            ["data", numbers @ ..] if !numbers.is_empty() => {
                parse_packets(text, numbers).map(LossPattern::ListedData)
            }
            _ => Err(format!(
                "\"{text}\" is not a loss: write for example 0.01%, gilbert-elliott 0.1% 20%, packets 3 17 or data 3 17"
            )),
        }
    }
}

fn parse_packets(text: &str, numbers: &[&str]) -> Result<Vec<u64>, String> {
    let mut numbers = numbers
        .iter()
        .map(|text| text.parse().ok().filter(|number| *number > 0))
        .collect::<Option<Vec<u64>>>()
        .ok_or_else(|| format!("\"{text}\" does not list packets: they count from 1"))?;
    numbers.sort_unstable();
    Ok(numbers)
}

fn gilbert_elliott(parts: [&str; 4]) -> Result<LossPattern, String> {
    let [to_bad, to_good, in_good, in_bad] = parts.map(parse_probability);
    let pattern = LossPattern::GilbertElliott {
        to_bad: to_bad?,
        to_good: to_good?,
        in_good: in_good?,
        in_bad: in_bad?,
    };
    require_valid(
        pattern.clone(),
        pattern.mean_loss() < Ratio::ONE,
        &parts.join(" "),
        "a loss",
        "nothing would ever arrive",
    )
}

/// Reads a share of the packets, from 0 to 100 %.
pub(crate) fn parse_probability(text: &str) -> Result<Ratio, String> {
    parse_within(
        text,
        ..=Ratio::ONE,
        "a share of packets",
        "it must not be above 100 %",
    )
}

impl FromStr for Distribution {
    type Err = String;

    /// Reads `uniform 2ms`, `normal 2ms 1ms`, `exponential 1ms`, `pareto 1ms 3` or
    /// `listed 0ms 5ms`.
    fn from_str(text: &str) -> Result<Self, String> {
        let parts: Vec<_> = text.split_whitespace().collect();
        Ok(match parts.as_slice() {
            ["uniform", max] => Distribution::Uniform(jitter_delay(max)?),
            ["normal", mean, deviation] => Distribution::Normal {
                mean: jitter_delay(mean)?,
                deviation: jitter_delay(deviation)?,
            },
            ["exponential", mean] => Distribution::Exponential(jitter_delay(mean)?),
            ["pareto", least, shape] => {
                let exponent: Ratio = parse_quantity(shape)?;
                let shape = require_valid(
                    exponent,
                    exponent > Ratio::ONE,
                    shape,
                    "a shape",
                    "above 1 it has a mean",
                )?;
                Distribution::Pareto {
                    least: jitter_delay(least)?,
                    shape,
                }
            }
            ["listed", delays @ ..] if !delays.is_empty() => Distribution::Listed(
                delays
                    .iter()
                    .map(|delay| jitter_delay(delay))
                    .collect::<Result<_, _>>()?,
            ),
            _ => {
                return Err(format!(
                    "\"{text}\" is not a jitter: write for example uniform 2ms, normal 2ms 1ms, exponential 1ms, \
                     pareto 1ms 3 or listed 0ms 5ms"
                ));
            }
        })
    }
}

fn jitter_delay(text: &str) -> Result<Span, String> {
    parse_within(
        text,
        ..=Span::from_secs(10),
        "a jitter",
        "it must not be above 10 s",
    )
}

/// Reads `kept` or `free`: whether a packet may pass one that was sent before it.
pub(crate) fn parse_reorders(text: &str) -> Result<bool, String> {
    match text {
        "kept" => Ok(false),
        "free" => Ok(true),
        _ => Err(format!("\"{text}\" is not an order: write kept or free")),
    }
}

impl FromStr for Reordering {
    type Err = String;

    /// Reads `0.1% 5ms`: a share of the packets, and the time for which they are held back.
    fn from_str(text: &str) -> Result<Self, String> {
        let Some((share, by)) = key_and_value(text) else {
            return Err(format!(
                "\"{text}\" is not a reordering: write for example 0.1% 5ms"
            ));
        };
        Ok(Reordering {
            share: parse_probability(share)?,
            by: jitter_delay(by)?,
        })
    }
}

impl FromStr for Policer {
    type Err = String;

    /// Reads `20Mbit/s 64KiB`: rate and burst.
    fn from_str(text: &str) -> Result<Self, String> {
        let Some((rate, burst)) = key_and_value(text) else {
            return Err(format!(
                "\"{text}\" is not a policer: write for example 20Mbit/s 64KiB"
            ));
        };
        Ok(Policer {
            rate: path_rate(rate)?,
            burst: parse_quantity(burst)?,
        })
    }
}

impl FromStr for NarrowLink {
    type Err = String;

    /// Reads `1400`, which is answered, or `1400 swallowed`.
    fn from_str(text: &str) -> Result<Self, String> {
        let (size, too_big) = match key_and_value(text) {
            Some((size, "answered")) => (size, TooBig::Answered),
            Some((size, "swallowed")) => (size, TooBig::Swallowed),
            Some(_) => {
                return Err(format!(
                    "\"{text}\" is not a narrow link: write for example 1400 or 1400 swallowed"
                ));
            }
            None => (text, TooBig::Answered),
        };
        Ok(NarrowLink {
            mtu: path_mtu(size)?,
            too_big,
        })
    }
}

impl FromStr for Queueing {
    type Err = String;

    /// Reads `drop-tail`, `threshold 30KiB`, `codel` or `fq-codel`, the last two with target and
    /// interval, or `ecn`, or both.
    fn from_str(text: &str) -> Result<Self, String> {
        let parts: Vec<_> = text.split_whitespace().collect();
        match parts.as_slice() {
            ["drop-tail"] => Ok(Queueing::DropTail),
            ["threshold", bytes] => parse_quantity(bytes).map(Queueing::Threshold),
            ["codel", rest @ ..] => parse_codel(text, rest).map(Queueing::Codel),
            ["fq-codel", rest @ ..] => parse_codel(text, rest).map(Queueing::FqCodel),
            _ => Err(bad_queueing(text)),
        }
    }
}

fn parse_codel(text: &str, parts: &[&str]) -> Result<Codel, String> {
    let (times, ecn) = match parts {
        [times @ .., "ecn"] => (times, true),
        times => (times, false),
    };
    let codel = match times {
        [] => Codel {
            ecn,
            ..Codel::default()
        },
        [target, interval] => Codel {
            target: parse_quantity(target)?,
            interval: parse_quantity(interval)?,
            ecn,
        },
        _ => return Err(bad_queueing(text)),
    };
    let valid = Span::ZERO < codel.target && codel.target < codel.interval;
    require_valid(
        codel,
        valid,
        text,
        "a managed queue",
        "its target must be above 0 and below its interval",
    )
}

fn bad_queueing(text: &str) -> String {
    format!(
        "\"{text}\" is not the management of a queue: write drop-tail, threshold 30KiB, codel, codel 5ms 100ms ecn, or \
         fq-codel likewise"
    )
}

/// Reads `strip-sack clamp-mss=1200`: one edit after the other.
pub(crate) fn parse_edits(text: &str) -> Result<Vec<Edit>, String> {
    text.split_whitespace().map(str::parse).collect()
}

impl FromStr for Edit {
    type Err = String;

    /// Reads `strip-sack` or `clamp-mss=1200`, for example.
    fn from_str(text: &str) -> Result<Self, String> {
        Ok(match text.split_once('=').unwrap_or((text, "")) {
            ("strip-window-scale", "") => Edit::StripWindowScale,
            ("window-scale", shift) => {
                let valid = shift.parse().ok().filter(|shift| *shift <= 14);
                Edit::RewriteWindowScale(valid.ok_or_else(|| {
                    format!("\"{shift}\" is not a window scale: it must be from 0 to 14")
                })?)
            }
            ("strip-sack", "") => Edit::StripSack,
            ("strip-timestamps", "") => Edit::StripTimestamps,
            ("clamp-mss", size) => Edit::ClampMss(sixteen_bits(size)?),
            ("clamp-window", size) => Edit::ClampWindow(sixteen_bits(size)?),
            ("router", address) => Edit::Router(
                address
                    .parse()
                    .map_err(|_| format!("\"{address}\" is not the address of a router"))?,
            ),
            _ => {
                return Err(format!(
                    "\"{text}\" is not an edit: write strip-window-scale, window-scale=2, strip-sack, \
                 strip-timestamps, clamp-mss=1200, clamp-window=32KiB or router=198.18.1.1"
                ));
            }
        })
    }
}

/// Reads a size that a field of 16 bits in TCP's header can hold.
fn sixteen_bits(text: &str) -> Result<ByteCount, String> {
    parse_within(
        text,
        ByteCount::new(1)..=ByteCount::new(65_535),
        "what TCP's header can say",
        "it must be from 1 to 65535 B",
    )
}

/// Reads `10s rate=50M delay=20ms; 20s loss=1%`, in order of time.
pub(crate) fn parse_steps(text: &str) -> Result<Vec<PathStep>, String> {
    let steps = text
        .split(';')
        .map(str::parse)
        .collect::<Result<Vec<PathStep>, _>>()?;
    if let Some(pair) = steps.windows(2).find(|pair| pair[0].after > pair[1].after) {
        return Err(format!(
            "{} comes after {}; write the changes in order of time",
            pair[1].after, pair[0].after
        ));
    }
    let last = steps.iter().rev().find_map(|step| step.change.rate);
    require_valid(
        steps,
        last != Some(BitRate::ZERO),
        text,
        "a course of changes",
        "in the end nothing would ever arrive",
    )
}

impl FromStr for PathStep {
    type Err = String;

    /// Reads `10s rate=50M delay=20ms`.
    fn from_str(text: &str) -> Result<Self, String> {
        let mut parts = text.split_whitespace();
        let after = parse_quantity(parts.next().unwrap_or_default())?;
        let mut change = PathChange::default();
        for part in parts {
            match part.split_once('=') {
                Some(("rate", rate)) => change.rate = Some(parse_quantity(rate)?),
                Some(("delay", delay)) => change.delay = Some(parse_quantity(delay)?),
                Some(("loss", loss)) => change.loss = Some(parse_probability(loss)?),
                _ => {
                    return Err(format!(
                        "\"{part}\" is not a change: write rate=50M, delay=20ms or loss=1%"
                    ));
                }
            }
        }
        let changes = change != PathChange::default();
        require_valid(
            PathStep { after, change },
            changes,
            text.trim(),
            "a change",
            "write for example 10s rate=50M delay=20ms",
        )
    }
}

/// Reads the rate of a path: above zero.
///
/// # Errors
/// Returns a sentence if it is none.
pub fn path_rate(text: &str) -> Result<BitRate, String> {
    parse_within(
        text,
        BitRate::from_bps(1)..,
        "the rate of a path",
        "nothing would ever arrive",
    )
}

/// Reads the MTU of a path. Every host forwards 68 B (RFC 791); the length field ends at 65 535.
///
/// # Errors
/// Returns a sentence if it is none.
pub fn path_mtu(text: &str) -> Result<ByteCount, String> {
    parse_within(
        text,
        ByteCount::new(68)..=ByteCount::new(65_535),
        "an MTU",
        "it must be from 68 to 65535 B",
    )
}

fn key_and_value(text: &str) -> Option<(&str, &str)> {
    text.split_once(char::is_whitespace)
        .map(|(first, second)| (first, second.trim()))
}

impl Display for LossPattern {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        match self {
            Self::GilbertElliott {
                to_bad,
                to_good,
                in_good,
                in_bad,
            } => {
                let [p, r, good, bad] = [to_bad, to_good, in_good, in_bad].map(compact_text);
                write!(f, "gilbert-elliott {p} {r} {good} {bad}")
            }
            Self::Listed(numbers) => write!(f, "packets {}", joined_text(numbers, " ")),
            Self::ListedData(numbers) => write!(f, "data {}", joined_text(numbers, " ")),
        }
    }
}

impl Display for Distribution {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        match self {
            Self::Uniform(max) => write!(f, "uniform {}", compact_text(max)),
            Self::Normal { mean, deviation } => write!(
                f,
                "normal {} {}",
                compact_text(mean),
                compact_text(deviation)
            ),
            Self::Exponential(mean) => write!(f, "exponential {}", compact_text(mean)),
            Self::Pareto { least, shape } => {
                write!(f, "pareto {} {}", compact_text(least), shape.get())
            }
            Self::Listed(delays) => {
                write!(
                    f,
                    "listed {}",
                    joined_text(&delays.iter().map(compact_text).collect::<Vec<_>>(), " ")
                )
            }
        }
    }
}

impl Display for Reordering {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}", compact_text(self.share), compact_text(self.by))
    }
}

impl Display for Policer {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{} {}",
            compact_text(self.rate),
            compact_text(self.burst)
        )
    }
}

impl Display for NarrowLink {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        let too_big = match self.too_big {
            TooBig::Answered => "answered",
            TooBig::Swallowed => "swallowed",
        };
        write!(f, "{} {too_big}", self.mtu.get())
    }
}

impl Display for Queueing {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        match self {
            Self::DropTail => f.write_str("drop-tail"),
            Self::Threshold(bytes) => write!(f, "threshold {}", compact_text(bytes)),
            Self::Codel(codel) => write!(f, "codel {codel}"),
            Self::FqCodel(codel) => write!(f, "fq-codel {codel}"),
        }
    }
}

impl Display for Codel {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        let ecn = if self.ecn { " ecn" } else { "" };
        write!(
            f,
            "{} {}{ecn}",
            compact_text(self.target),
            compact_text(self.interval)
        )
    }
}

impl Display for Edit {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        match self {
            Self::StripWindowScale => f.write_str("strip-window-scale"),
            Self::RewriteWindowScale(shift) => write!(f, "window-scale={shift}"),
            Self::StripSack => f.write_str("strip-sack"),
            Self::StripTimestamps => f.write_str("strip-timestamps"),
            Self::ClampMss(size) => write!(f, "clamp-mss={}", size.get()),
            Self::ClampWindow(size) => write!(f, "clamp-window={}", size.get()),
            Self::Router(address) => write!(f, "router={address}"),
        }
    }
}

impl Display for Opportunities {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{} opportunities in {} ms",
            self.millis.len(),
            self.millis.last().unwrap_or(&0)
        )
    }
}

impl Display for PathStep {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        let PathChange { rate, delay, loss } = self.change;
        let rate = rate.map(|rate| format!(" rate={}", compact_text(rate)));
        let delay = delay.map(|delay| format!(" delay={}", compact_text(delay)));
        let loss = loss.map(|loss| format!(" loss={}", compact_text(loss)));
        let changes: String = [rate, delay, loss].into_iter().flatten().collect();
        write!(f, "{}{changes}", compact_text(self.after))
    }
}

/// Returns a quantity without the space before its unit.
pub(crate) fn compact_text(quantity: impl Display) -> String {
    quantity.to_string().replace(' ', "")
}

pub(crate) fn joined_text(parts: &[impl Display], separator: &str) -> String {
    parts
        .iter()
        .map(ToString::to_string)
        .collect::<Vec<_>>()
        .join(separator)
}
