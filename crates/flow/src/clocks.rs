//! The clocks of two captures: skew, offset, and the one-way delays that remain.

use fullpipe_record::{ClockOffset, ClockSkew, OneWayDelay};
use fullpipe_units::{Ratio, Span, Time, median};

use crate::losses::nanos_ahead;

/// Minimum number of packets of a direction that show a skew.
const MIN_PACKETS: usize = 32;

/// Maximum error of a skew that is stated.
const MAX_ERROR: f64 = 20e-6;

/// Seconds in which no clock changes by more than delays do.
const SHORT: f64 = 2.0;

/// Maximum skew: NTP sets no clock faster or slower than this (RFC 5905, 11.3: 500 parts per
/// million). What seems more is a queue that grows.
const MAX_SKEW: f64 = 500e-6;

/// Resolution of the times in most captures, in seconds.
const RESOLUTION: f64 = 1e-6;

/// Minimum number of packets of which delays are stated.
const MIN_DELAYS: usize = 10;

/// Packets of a connection that passed both captures.
#[derive(Debug)]
pub(crate) struct CommonPackets {
    /// By direction, in the order of the first capture.
    directions: [Vec<CommonPacket>; 2],
    /// Nanoseconds by which the second clock was ahead at the first packet, with its delay.
    base: i128,
}

/// A packet that passed both captures, in seconds.
#[derive(Debug, Clone, Copy, PartialEq)]
struct CommonPacket {
    /// Time in the first capture, since the first packet.
    at: f64,
    /// Time in the second capture less that in the first, beyond the difference of the first
    /// packet.
    ahead: f64,
}

/// The figures of two clocks.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct ClockFigures {
    pub(crate) skew: Option<ClockSkew>,
    pub(crate) offset: Option<ClockOffset>,
    /// One-way delays by direction.
    pub(crate) delays: [Option<OneWayDelay>; 2],
}

/// The rate of the second clock by that of the first, less one.
#[derive(Debug, Clone, Copy, PartialEq)]
struct SkewEstimate {
    rate: f64,
    error: f64,
    packets: usize,
}

/// A line below all points.
#[derive(Debug, Clone, Copy, PartialEq)]
struct LowerLine {
    slope: f64,
    at_zero: f64,
}

impl CommonPackets {
    /// Takes the times of packets in both captures, by direction.
    pub(crate) fn new(mut times: [Vec<[Time; 2]>; 2]) -> Self {
        for packets in &mut times {
            packets.sort_unstable();
        }
        let first = times
            .iter()
            .filter_map(|packets| packets.first().copied())
            .min()
            .unwrap_or([Time::ZERO; 2]);
        let base = nanos_ahead(first);
        let directions = times.map(|packets| {
            packets
                .into_iter()
                .map(|times| CommonPacket {
                    at: times[0].duration_since(first[0]).as_secs_f64(),
                    ahead: (nanos_ahead(times) - base) as f64 / 1e9,
                })
                .collect()
        });
        Self { directions, base }
    }

    /// Returns the index of the capture that is nearer to the first end: there and back take time,
    /// whatever the clocks show. `None` without packets of both directions.
    pub(crate) fn nearer_to_first(&self) -> Option<usize> {
        let [there, back] = &self.directions;
        // Of packets of about the same time, which no skew matters between.
        let mut later = there.iter().peekable();
        let mut last = None;
        let mut sums = Vec::new();
        for packet in back {
            while let Some(next) = later.next_if(|next| next.at <= packet.at) {
                last = Some(next.ahead);
            }
            sums.extend(last.map(|ahead| ((ahead - packet.ahead) * 1e9) as i64));
        }
        let both_ways = median(sums)?;
        (both_ways != 0).then_some(usize::from(both_ways < 0))
    }

    /// Returns the figures of the clocks if the capture at index `nearer` is nearer to the first
    /// end.
    pub(crate) fn compare_clocks(&self, nearer: usize) -> ClockFigures {
        // A delay adds to the time in the capture that comes later.
        let signs = if nearer == 0 {
            [1.0, -1.0]
        } else {
            [-1.0, 1.0]
        };
        let directions = [0, 1].map(|end| (self.directions[end].as_slice(), signs[end]));
        // A queue hides the skew: the direction with less of it shows it better.
        let skew = directions
            .iter()
            .filter_map(|(packets, sign)| clock_skew(packets, *sign))
            .min_by(|one, other| one.error.total_cmp(&other.error))
            .filter(|skew| skew.rate.abs() <= MAX_SKEW && skew.error <= MAX_ERROR);
        let [there, back] = directions.map(|(packets, _)| capture_duration(packets));
        let longest = there.max(back);
        if skew.is_none() && longest >= SHORT {
            return ClockFigures::default();
        }
        let rate = skew.map_or(0.0, |skew| skew.rate);
        let delays = directions.map(|(packets, sign)| one_way_delays(packets, sign, rate));
        let [there, back] = delays.each_ref().map(|delays| delays.first().copied());
        let floors = there.zip(back);
        // Nothing arrives before it was sent, but for the error of what the clocks were corrected
        // by.
        let tolerance = skew.map_or(MAX_SKEW, |skew| skew.error) * longest + RESOLUTION;
        if floors.is_some_and(|(there, back)| there + back < -tolerance) {
            return ClockFigures::default();
        }
        ClockFigures {
            skew: skew.map(SkewEstimate::to_figures),
            offset: floors.map(|(there, back)| {
                let middle = f64::midpoint(signs[0] * there, signs[1] * back);
                clock_offset(self.base as f64 / 1e9 + middle, there + back)
            }),
            delays: delays.each_ref().map(|delays| delay_figures(delays)),
        }
    }
}

impl SkewEstimate {
    fn to_figures(self) -> ClockSkew {
        ClockSkew {
            faster: usize::from(self.rate > 0.0),
            by: Ratio::new(self.rate.abs()),
            error: Ratio::new(self.error),
            packets: self.packets as u64,
        }
    }
}

/// Returns the offset of a second clock that is `ahead`, where a round trip takes `rtt`.
fn clock_offset(ahead: f64, rtt: f64) -> ClockOffset {
    ClockOffset {
        ahead: usize::from(ahead > 0.0),
        by: Span::from_secs_f64(ahead.abs()),
        rtt: Span::from_secs_f64(rtt.max(0.0)),
    }
}

fn capture_duration(packets: &[CommonPacket]) -> f64 {
    packets
        .first()
        .zip(packets.last())
        .map_or(0.0, |(first, last)| last.at - first.at)
}

/// Returns the skew of the second clock as the packets of a direction show it, or `None` if they
/// are too few. `sign` is that of a delay.
fn clock_skew(packets: &[CommonPacket], sign: f64) -> Option<SkewEstimate> {
    // So many packets have delays as small as those that the line rests on, and their spread is
    // that of the line.
    const FASTEST: f64 = 0.1;
    if packets.len() < MIN_PACKETS {
        return None;
    }
    let points: Vec<(f64, f64)> = packets
        .iter()
        .map(|packet| (packet.at, packet.ahead * sign))
        .collect();
    let line = lower_line(&points)?;
    let mut above: Vec<f64> = points
        .iter()
        .map(|(at, delay)| delay - line.at_zero - line.slope * at)
        .collect();
    above.sort_unstable_by(f64::total_cmp);
    let error = above[(FASTEST * above.len() as f64) as usize].max(0.0) / capture_duration(packets);
    Some(SkewEstimate {
        rate: line.slope * sign,
        error,
        packets: packets.len(),
    })
}

/// Returns the line below all points that has the least mean distance from them: the edge of the
/// lower convex hull at the mean of their times (Zhang, Liu and Xia, "Clock synchronization
/// algorithms for network measurements", 2002). `points` are in order of time.
fn lower_line(points: &[(f64, f64)]) -> Option<LowerLine> {
    let mut hull: Vec<(f64, f64)> = Vec::new();
    for point in points {
        while let [.., one, two] = hull[..]
            && (two.0 - one.0) * (point.1 - one.1) <= (point.0 - one.0) * (two.1 - one.1)
        {
            hull.pop();
        }
        hull.push(*point);
    }
    let mean = points.iter().map(|(at, _)| at).sum::<f64>() / points.len() as f64;
    let edge = hull
        .windows(2)
        .find(|edge| edge[1].0 > edge[0].0 && edge[1].0 >= mean)?;
    let slope = (edge[1].1 - edge[0].1) / (edge[1].0 - edge[0].0);
    Some(LowerLine {
        slope,
        at_zero: edge[0].1 - slope * edge[0].0,
    })
}

/// Returns the one-way delays in ascending order, which the offset of the clocks adds to.
fn one_way_delays(packets: &[CommonPacket], sign: f64, rate: f64) -> Vec<f64> {
    let mut delays: Vec<f64> = packets
        .iter()
        .map(|packet| sign * (packet.ahead - rate * packet.at))
        .collect();
    delays.sort_unstable_by(f64::total_cmp);
    delays
}

/// Returns the figures of delays in ascending order above the least.
fn delay_figures(delays: &[f64]) -> Option<OneWayDelay> {
    let floor = delays.first().filter(|_| delays.len() >= MIN_DELAYS)?;
    let middle = Span::from_secs_f64(median(delays.to_vec())? - floor);
    let [p95, most] = [0.95, 1.0].map(|share| {
        let place = ((share * delays.len() as f64).ceil() as usize).clamp(1, delays.len()) - 1;
        Span::from_secs_f64(delays[place] - floor)
    });
    Some(OneWayDelay {
        packets: delays.len() as u64,
        median: middle,
        p95,
        most,
    })
}

#[cfg(test)]
mod tests;
