//! The deviation of the lab from the path that it is to be: what it adds to round trips, how late
//! it is, at which rate it sends while packets wait, and what memory it takes for those that are on
//! their way.

use std::sync::atomic::AtomicBool;

use fullpipe_lab::{Backend, Lab, PathMeter};
use fullpipe_record::PathStatus;
use fullpipe_units::{BitRate, ByteCount, Span};
use serde_json::Value;

use crate::comparison::Outcome;
use crate::lab;
use crate::network::{Joint, Network};
use crate::process::RunError;
use crate::program::{Load, Program, Tools, Traffic};
use crate::throughput::{self, Contestant};

/// Round-trip times of the paths, in milliseconds.
const DELAYS: [u64; 4] = [1, 10, 100, 300];

/// Rates of the paths, what is offered, both in Mbit/s, and for how many seconds: the slowest sends
/// a packet in 12 ms, and must be measured for long.
const RATES: [(u64, u16, f64); 4] = [
    (1, 2, 12.0),
    (10, 12, 4.0),
    (100, 120, 4.0),
    (1000, 1200, 4.0),
];

/// Time for which an idle path is measured. Its load is the least that a program offers.
const IDLE: Load = Load {
    traffic: Traffic::Paced(1),
    streams: 1,
    seconds: 4.0,
};

/// Rate over the long path, in Mbit/s of payload: little less than it carries, so that its queue
/// stays empty.
const NEARLY_FULL: u16 = 930;

/// All figures, a line each.
pub(crate) fn measure(tools: &Tools, stop: &AtomicBool) -> Outcome {
    let mut lines = Vec::new();
    let ended = figures(tools, stop, &mut lines);
    let interrupted = matches!(ended, Err(RunError::Interrupted));
    if let Err(RunError::Failed(why)) = ended {
        lines.push(format!("not run to its end: {why}"));
    }
    Outcome {
        tables: Vec::new(),
        notes: lines,
        interrupted,
    }
}

fn figures(tools: &Tools, stop: &AtomicBool, lines: &mut Vec<String>) -> Result<(), RunError> {
    let network = Network::make(Joint::Veth)?;
    let alone = Contestant::alone("", Program::Fullpipe, &[]);
    let veth = round_trips(&throughput::run(&alone, &network, &IDLE, tools, stop)?.stdout)?;
    lines.push(format!(
        "idle, plain veth: round trips p50 {}, p90 {}",
        veth[0], veth[1]
    ));
    for delay in DELAYS {
        lines.push(idle(delay, veth, tools, stop)?);
    }
    for (rate, offered, seconds) in RATES {
        lines.push(backlogged(
            rate,
            Load {
                traffic: Traffic::Paced(offered),
                streams: 1,
                seconds,
            },
            tools,
            stop,
        )?);
    }
    lines.push(memory(tools, stop)?);
    Ok(())
}

fn idle(
    delay: u64,
    [veth_median, veth_p90]: [Span; 2],
    tools: &Tools,
    stop: &AtomicBool,
) -> Result<String, RunError> {
    let lab = started(&format!("rate=1Gbit/s,rtt={delay}ms"))?;
    let mut meter = PathMeter::start(&lab)?;
    let ended = lab::measure(&lab, &IDLE, tools, stop, &mut || Ok(()))?;
    let late = meter.read()?.forward;
    let [median, p90] = round_trips(&ended.stdout)?;
    let above = |time: Span, veth: Span| time.saturating_sub(veth + Span::from_millis(delay));
    let [late_median, late_p90] =
        [late.lateness_median, late.lateness_p90].map(Option::unwrap_or_default);
    Ok(format!(
        "idle, {delay} ms: round trips above veth p50 {}, p90 {} (must be < 100, 250 us); late p50 {late_median}, p90 \
         {late_p90} (< 60, 150 us)",
        above(median, veth_median),
        above(p90, veth_p90)
    ))
}

/// Counts what is delivered between the first and the last snapshot that found packets waiting.
fn backlogged(rate: u64, load: Load, tools: &Tools, stop: &AtomicBool) -> Result<String, RunError> {
    let lab = started(&format!("rate={rate}Mbit/s,rtt=10ms,queue=200ms"))?;
    let mut seen = Vec::new();
    let mut meter = PathMeter::start(&lab)?;
    lab::measure(&lab, &load, tools, stop, &mut || {
        seen.push(meter.read()?);
        Ok(())
    })?;
    let link = BitRate::from_mbps(rate);
    let Some(sent) = while_waiting(&seen) else {
        return Ok(format!("backlogged, {link}: its queue never filled"));
    };
    let off = 100.0 * (sent.relative_to(link) - 1.0);
    Ok(format!(
        "backlogged, {link}: sent at {off:+.3} % of it (must be within 0.5 %)"
    ))
}

/// The rate over the intervals at whose beginning and end packets waited.
fn while_waiting(seen: &[PathStatus]) -> Option<BitRate> {
    let waits = |status: &PathStatus| status.forward.queue > ByteCount::new(10_000);
    let pairs = seen
        .windows(2)
        .filter(|pair| pair.iter().all(waits))
        .map(|pair| &pair[1]);
    let (bits, time) = pairs.fold((0.0, 0.0), |(bits, time), status| {
        let seconds = status.interval.as_secs_f64();
        (
            bits + status.forward.rate.as_f64() * seconds,
            time + seconds,
        )
    });
    (time > 0.0).then(|| BitRate::from_bps_f64(bits / time))
}

/// The link runs in this process, so that its memory is what this process grows by.
fn memory(tools: &Tools, stop: &AtomicBool) -> Result<String, RunError> {
    let lab = started("rate=1Gbit/s,rtt=300ms,queue=64MiB")?;
    let before = resident()?;
    let mut largest = (ByteCount::ZERO, ByteCount::ZERO);
    let mut meter = PathMeter::start(&lab)?;
    let load = Load {
        traffic: Traffic::Paced(NEARLY_FULL),
        streams: 1,
        seconds: 4.0,
    };
    lab::measure(&lab, &load, tools, stop, &mut || {
        let forward = meter.read()?.forward;
        let propagating = forward.propagating + forward.queue;
        largest = (
            largest.0.max(propagating),
            largest.1.max(resident()?.saturating_sub(before)),
        );
        Ok(())
    })?;
    let (propagating, grown) = largest;
    let ratio = grown.get() as f64 / propagating.get().max(1) as f64;
    Ok(format!(
        "memory, 1 Gbit/s x 300 ms: {grown} for {propagating} on their way, {ratio:.2} times (must be at most 2)"
    ))
}

/// Memory of this process that is not swapped out.
fn resident() -> Result<ByteCount, RunError> {
    let text = std::fs::read_to_string("/proc/self/statm")?;
    let pages: Option<u64> = text
        .split_whitespace()
        .nth(1)
        .and_then(|pages| pages.parse().ok());
    let pages = pages.ok_or_else(|| RunError::failed("/proc/self/statm has no second number"))?;
    Ok(ByteCount::new(pages * rustix::param::page_size() as u64))
}

/// Median and 90th percentile of the round trips during the load, which is next to none.
fn round_trips(document: &str) -> Result<[Span; 2], RunError> {
    let document = serde_json::from_str::<Value>(document).unwrap_or_default();
    let times = &document["measurement"]["rtt"]["loaded"];
    let of = |name: &str| times[name].as_f64().map(Span::from_secs_f64);
    let both = of("median")
        .zip(of("p90"))
        .map(|(median, p90)| [median, p90]);
    both.ok_or_else(|| RunError::failed("it does not say round-trip times"))
}

fn started(path: &str) -> Result<Lab, RunError> {
    lab::start(lab::path_of(path)?, Default::default(), Backend::default())
}

#[cfg(test)]
mod tests {
    use fullpipe_record::DirectionStatus;

    use super::*;

    fn status(mbps: u64, queue: u64) -> PathStatus {
        let direction = DirectionStatus {
            rate: BitRate::from_mbps(mbps),
            queue: ByteCount::new(queue),
            propagating: ByteCount::ZERO,
            queue_drops: 0,
            injected_losses: 0,
            lateness_median: None,
            lateness_p90: None,
            lateness_p99: None,
        };
        let interval = Span::from_millis(100);
        PathStatus {
            interval,
            forward: direction.clone(),
            reverse: direction,
            device_drops: 0,
        }
    }

    #[test]
    fn only_time_in_which_packets_waited_counts() {
        let seen = [
            status(1, 0),
            status(2, 20_000),
            status(10, 20_000),
            status(11, 20_000),
            status(5, 0),
            status(9, 20_000),
        ];
        assert_eq!(while_waiting(&seen), Some(BitRate::from_bps(10_500_000)));
        assert_eq!(while_waiting(&seen[..2]), None);
    }

    #[test]
    fn round_trips_are_found_in_what_fullpipe_writes() {
        let document = r#"{"measurement": {"rtt": {"loaded": {"median": 0.0001, "p90": 0.0002}}}}"#;
        assert_eq!(
            round_trips(document).unwrap(),
            [100, 200].map(Span::from_micros)
        );
        assert!(round_trips("{}").is_err());
    }
}
