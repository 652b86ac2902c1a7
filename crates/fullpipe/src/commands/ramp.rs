//! `fullpipe measure --ramp`: a load that grows in steps.

use std::str::FromStr;

use crate::live::{MeasurementPage, MeasurementUpdate};
use fullpipe_experiment::{LoadRamp, RampLoads, run_ramp};
use fullpipe_probe::{ProbeError, measure_transfer};
use fullpipe_record::RampReport;

use super::prelude::*;
use crate::commands::live::draw_measurement;
use crate::commands::measure::require_whole;
use crate::commands::offered_rate::split_count;

/// Number of steps by default: a tenth of what the path carries each, from one to twelve.
const USUAL_STEPS: u16 = 12;

/// Largest number of steps.
const MAX_STEPS: u16 = 100;

/// `FROM..TO` as shares or rates, and `/N` steps.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct RampArgument(LoadRamp);

impl FromStr for RampArgument {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let (range, steps) = split_count(text);
        let steps = steps.map(|steps| match steps.parse() {
            Ok(count) if (2..=MAX_STEPS).contains(&count) => Ok(count),
            _ => Err(format!(
                "{steps} steps asked for; 2 to {MAX_STEPS} are possible"
            )),
        });
        let steps = steps.transpose()?.unwrap_or(USUAL_STEPS);
        let (from, to) = range
            .split_once("..")
            .ok_or("a ramp goes from one load to another: 10%..120% or 5M..60M")?;
        let loads = if from.ends_with('%') || to.ends_with('%') {
            RampLoads::Shares(parse_quantity(from)?, parse_quantity(to)?)
        } else {
            RampLoads::Rates(parse_quantity(from)?, parse_quantity(to)?)
        };
        let grows = match loads {
            RampLoads::Shares(from, to) => from.get() > 0.0 && from.get() < to.get(),
            RampLoads::Rates(from, to) => from > BitRate::ZERO && from < to,
        };
        if grows {
            Ok(Self(LoadRamp { loads, steps }))
        } else {
            Err("a ramp goes from a load to a greater one".to_owned())
        }
    }
}

impl RampArgument {
    /// Returns true if the ramp needs the capacity of the path.
    fn needs_full(self) -> bool {
        matches!(self.0.loads, RampLoads::Shares(..))
    }
}

/// Measures step by step. What the path carries is `bandwidth`, or found by TCP first, which gives
/// way to others.
pub(crate) fn run_ramp_test(
    ramp: RampArgument,
    bandwidth: Option<BitRate>,
    (destination, request): (&Destination, &Request),
    consent: &dyn Fn(&Request) -> Result,
    (live, interrupts): (LiveArgument, &InterruptFlags),
    terminal: &Terminal,
) -> Result {
    let once =
        |request: &Request| measure_transfer(destination, request, &interrupts.flag, &mut |_| {});
    let full = match bandwidth {
        None if ramp.needs_full() => Some(carried_rate(&once, request, terminal)?),
        known => known,
    };
    let loads = ramp.0.offered_loads(full.unwrap_or(BitRate::ZERO));
    let most = loads
        .last()
        .map(|load| load.scale_by(1.0 / f64::from(request.streams.max(1))));
    consent(&Request {
        rate: most,
        ..request.clone()
    })?;
    let picture = live.start_picture(
        || MeasurementPage::new(&destination.host, request, full),
        interrupts,
    )?;
    let done = run_ramp(
        &loads,
        full,
        request,
        &mut |request| -> Result<Measurement, ProbeError> {
            let measured = match &picture {
                Some(picture) => {
                    draw_measurement(picture, destination, request, interrupts, &mut |_| {})
                }
                None => once(request),
            }?;
            terminal.print_event(&Event::Measurement(Box::new(measured.clone())));
            Ok(measured)
        },
        &mut |step| {
            let line = report::ramp_step(step);
            terminal.print_progress(&format!("{line}\n"));
            if let Some(picture) = &picture {
                picture.send(MeasurementUpdate::Ended(line));
            }
            terminal.print_event(&Event::RampStep(Box::new(step.clone())));
        },
    );
    drop(picture);
    print_ramp(done?, terminal)
}

/// Prints the steps that were measured, also of a ramp that was cut short.
fn print_ramp(done: RampReport, terminal: &Terminal) -> Result {
    terminal.print_result(&report::ramp_text(&done));
    terminal.print_event(&Event::Ramp(Box::new(done.clone())));
    let interrupted = done.interrupted;
    let broken = done.steps.iter().find_map(|step| step.broken_off.clone());
    let error = broken.map(|message| ErrorReport {
        message,
        exit_code: FAILED,
    });
    terminal.print_report(
        Content::Ramp {
            ramp: Box::new(done),
        },
        error.as_ref(),
    );
    Failure::after_report(error.as_ref().filter(|_| !interrupted), interrupted, true)
}

/// Returns the rate that TCP reaches on the path.
fn carried_rate(
    once: &dyn Fn(&Request) -> Result<Measurement, ProbeError>,
    request: &Request,
    terminal: &Terminal,
) -> Result<BitRate> {
    let tcp = tcp_request(request);
    for _ in 0..MAX_PROBES {
        let what = "the probe before the first step";
        let measured = require_whole(once(&tcp)?, "the first step", what)?;
        let steady = measured.summary.steady.map(|steady| steady.rate);
        if let Some(rate) =
            plausible_capacity(steady, measured.summary.rate, measured.summary.received)
        {
            terminal.print_progress(&format!("TCP moves {rate}: that is 100 %\n"));
            return Ok(rate);
        }
    }
    let sentence = "TCP moved too little to show what the path carries; give the capacity with --bandwidth, or the \
                    ramp in rates, as 5M..60M";
    Err(run_failure(sentence))
}

/// Returns the load of a probe, without a limit of its rate.
fn tcp_request(request: &Request) -> Request {
    // What only datagrams have is of no use here, and what they lack is as it usually is.
    let is_tcp = request.transport == Transport::Tcp;
    Request {
        transport: Transport::Tcp,
        block: if is_tcp {
            request.block
        } else {
            ByteCount::ZERO
        },
        rate: None,
        discard: request.discard || !is_tcp,
        offload: false,
        wide_counters: false,
        dont_fragment: false,
        ..request.clone()
    }
}

/// Probes before the first step, of which all but the last may have moved too little.
const MAX_PROBES: usize = 2;

/// A probe that moved less than this shows nothing of the path: it is about the first window of a
/// connection.
const MIN_PROBED: ByteCount = ByteCount::from_kib(16);

/// Returns the capacity that a probe shows: its steady rate, or the mean of the whole where the
/// steady part is none of it. Returns `None` where it moved too little.
fn plausible_capacity(
    steady: Option<BitRate>,
    whole: BitRate,
    moved: ByteCount,
) -> Option<BitRate> {
    let steady = steady.filter(|steady| steady.scale_by(10.0) >= whole);
    (moved >= MIN_PROBED)
        .then(|| steady.unwrap_or(whole))
        .filter(|&rate| rate > BitRate::ZERO)
}

#[cfg(test)]
mod tests {
    use super::*;
    use fullpipe_units::Ratio;

    #[test]
    fn a_ramp_is_read() {
        let shares = RampLoads::Shares(Ratio::new(0.1), Ratio::new(1.2));
        assert_eq!(
            "10%..120%".parse(),
            Ok(RampArgument(LoadRamp {
                loads: shares,
                steps: 12
            }))
        );
        let rates = RampLoads::Rates(BitRate::from_mbps(5), BitRate::from_mbps(60));
        assert_eq!(
            "5M..60Mbit/s/4".parse(),
            Ok(RampArgument(LoadRamp {
                loads: rates,
                steps: 4
            }))
        );
    }

    #[test]
    fn a_tiny_probe_is_no_capacity() {
        // A first probe of a few bytes once gave a ramp from 10 to 120 bit/s.
        let (bits, rate) = (BitRate::from_bps(100), BitRate::from_mbps(50));
        assert_eq!(
            plausible_capacity(Some(bits), bits, ByteCount::new(38)),
            None
        );
        assert_eq!(
            plausible_capacity(Some(bits), rate, ByteCount::from_mib(12)),
            Some(rate)
        );
        assert_eq!(
            plausible_capacity(Some(rate), rate, ByteCount::from_mib(12)),
            Some(rate)
        );
        assert_eq!(
            plausible_capacity(None, BitRate::ZERO, ByteCount::from_mib(1)),
            None
        );
    }

    #[test]
    fn nonsense_is_reported() {
        for text in [
            "",
            "10%",
            "10%..5M",
            "0%..10%",
            "20%..10%",
            "5M..5M",
            "1M..2M/1",
            "1M..2M/101",
            "a..b",
            "10%..inf%",
        ] {
            assert!(text.parse::<RampArgument>().is_err(), "{text}");
        }
    }
}
