//! Two settings measured in pairs.

use std::ffi::OsString;

use clap::Parser;
use fullpipe_experiment::{PairedSide, forecast_pairs, run_pairs};
use fullpipe_probe::{ProbeError, measure_transfer};
use fullpipe_record::{DifferenceReport, PairForecast};
use fullpipe_sys::random_bytes;
use fullpipe_units::printable_line;

use crate::arguments::parse_arguments;
use crate::commands::load::{MeasureLoadArguments, ServerAddress};
use crate::commands::measure::{ask_consent, ask_question, require_whole, stays_here};
use crate::commands::prelude::*;

/// Usual duration of a run: the ramp of a wide-area path is over then.
const USUAL_TIME: Span = Span::from_secs(5);

/// Bytes that are sent without asking.
const MAX_UNASKED: ByteCount = ByteCount::from_mib(1024);

/// The flags of one side.
#[derive(Debug, Parser)]
#[command(no_binary_name = true, disable_help_flag = true)]
struct SideArguments {
    #[command(flatten)]
    load: MeasureLoadArguments,
}

/// Measures both sides once for the forecast, then in pairs.
pub(super) fn run(arguments: &super::DiffArguments, pairs: u32, terminal: &Terminal) -> Result {
    let flag = crate::commands::interrupt_flag()?;
    let server: ServerAddress = arguments
        .a
        .parse()
        .map_err(|error| usage_failure(format!("{}: {error}", arguments.a)))?;
    let (destination, _far_end) = arguments.access.destination(&server)?;
    let sides = parse_sides(&arguments.sides, arguments.time.unwrap_or(USUAL_TIME))?;
    if !arguments.yes {
        sides
            .iter()
            .try_for_each(|side| ask_consent(&destination, &side.request))?;
    }
    let once: &mut dyn FnMut(&Request) -> Result<Measurement, ProbeError> =
        &mut |request| measure_transfer(&destination, request, &flag, &mut |_| {});
    let forecast = forecast_of(&sides, pairs, once, terminal)?;
    if !arguments.yes {
        consent_to(&forecast, &destination)?;
    }
    let (compared, error) = run_pairs(
        &sides,
        pairs,
        random_seed()?,
        once,
        &mut |pair, side, run| {
            terminal.print_progress(&format!("pair {pair:>3}, {side:?}: {}\n", run.summary.rate));
            terminal.print_event(&Event::Measurement(Box::new(run.clone())));
        },
    );
    let error = error.map(Failure::from);
    let Some(compared) = compared else {
        return Err(error
            .unwrap_or_else(|| nothing_complete(flag.load(std::sync::atomic::Ordering::Relaxed))));
    };
    finish_comparison(
        DifferenceReport {
            forecast: Some(forecast),
            ..compared
        },
        error,
        terminal,
    )
}

fn nothing_complete(interrupted: bool) -> Failure {
    if interrupted {
        Failure::new(INTERRUPTED, "interrupted before a pair was complete")
    } else {
        run_failure("no pair has two valid runs")
    }
}

fn finish_comparison(
    compared: DifferenceReport,
    error: Option<Failure>,
    terminal: &Terminal,
) -> Result {
    let interrupted = compared.interrupted;
    let error = error.map(ErrorReport::from);
    super::print_difference(compared, error.as_ref(), terminal);
    Failure::after_report(error.as_ref(), interrupted, true)
}

/// Reads the flags of A and of B, with `--` between them.
fn parse_sides(flags: &[String], time: Span) -> Result<[PairedSide; 2]> {
    let parts: Vec<&[String]> = flags.split(|flag| flag == "--").collect();
    let [a, b] = parts[..] else {
        let sentence = "the flags of A and those of B stand behind a -- each: \
                        fullpipe diff HOST --pairs 12 -- -C cubic -- -C bbr";
        return Err(usage_failure(sentence));
    };
    Ok([parse_side("A", a, time)?, parse_side("B", b, time)?])
}

fn parse_side(name: &str, flags: &[String], time: Span) -> Result<PairedSide> {
    let parsed =
        parse_arguments::<SideArguments>(flags.iter().map(OsString::from)).map_err(|error| {
            let error = error.to_string();
            let first = error
                .lines()
                .next()
                .unwrap_or_default()
                .trim_start_matches("error: ");
            usage_failure(format!("flags of {name}: {first}"))
        })?;
    let name = if flags.is_empty() {
        "no flags".to_owned()
    } else {
        printable_line(&flags.join(" "))
    };
    Ok(PairedSide {
        name,
        request: parsed.load.to_request(time)?,
    })
}

/// Returns the forecast from one run of each side, which do not count: the first runs on a path are
/// like no others.
fn forecast_of(
    sides: &[PairedSide; 2],
    pairs: u32,
    once: &mut dyn FnMut(&Request) -> Result<Measurement, ProbeError>,
    terminal: &Terminal,
) -> Result<PairForecast> {
    let mut runs = Vec::new();
    for side in sides {
        let what = "the run before the first pair";
        runs.push(require_whole(once(&side.request)?, "the first pair", what)?);
    }
    let forecast = forecast_pairs(pairs, [&runs[0], &runs[1]]);
    terminal.print_progress(&report::pair_forecast(&forecast));
    Ok(forecast)
}

/// Asks for consent to many bytes, where they leave this host.
fn consent_to(forecast: &PairForecast, destination: &Destination) -> Result {
    if forecast.bytes <= MAX_UNASKED || stays_here(&destination.host) {
        return Ok(());
    }
    let warning = format!("{} pairs send about {}", forecast.pairs, forecast.bytes);
    ask_question(
        &format!("{warning}. Go on? [y/N] "),
        &format!("{warning}; add --yes if you mean it"),
    )
}

/// Returns a random seed for the order of the pairs.
fn random_seed() -> Result<u64> {
    let seed = random_bytes()
        .map_err(|error| run_failure(format!("the kernel gave no random numbers: {error}")))?;
    Ok(u64::from_ne_bytes(seed))
}
