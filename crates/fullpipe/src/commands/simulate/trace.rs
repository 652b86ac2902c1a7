//! The course of a simulated transfer as CSV.

use std::io::{self, BufWriter, Write};

use fullpipe_experiment::{TracePoint, simulate_traced};
use fullpipe_record::CongestionState;
use fullpipe_sim::SimulationPlan;
use fullpipe_units::SegCount;

use crate::commands::prelude::*;
use crate::whole_file::WholeFile;

/// The names of the columns: seconds, segments, bytes, bit/s.
const HEAD: &str =
    "time,stream,cwnd,ssthresh,in_flight,queue,rate_bps,srtt,pacing_bps,retransmits,state";

/// The file, and how often its state is written.
#[derive(Debug, Args)]
#[command(next_help_heading = "Output")]
pub(super) struct TraceArguments {
    /// Write the course of the transfer to this file as CSV
    ///
    /// A row for each stream and interval: time, congestion window, slow-start threshold and
    /// segments in flight, bytes in the queue of the path, rate of what was acknowledged, smoothed
    /// round-trip time, pacing rate, segments sent again. The file is written whole or not at all.
    #[arg(long, value_name = "FILE", conflicts_with_all = ["from", "csv"])]
    trace: Option<PathBuf>,
    /// Interval between the rows of --trace
    #[arg(
        long,
        requires = "trace",
        conflicts_with_all = ["from", "csv"],
        default_value = "50ms",
        value_parser = trace_interval,
        value_name = "SECONDS",
        hide_short_help = true
    )]
    trace_interval: Span,
}

impl TraceArguments {
    /// Returns the file, if there is one.
    pub(super) fn file_path(&self) -> Option<&Path> {
        self.trace.as_deref()
    }

    /// Simulates `plan`, whose course it writes to `file`.
    ///
    /// # Errors
    /// Fails if the file cannot be written; then, and if the simulation fails, there is none.
    pub(super) fn simulate_to_file(
        &self,
        file: &Path,
        plan: SimulationPlan,
        interrupt: Interrupt<'_>,
    ) -> Result<Measurement> {
        let written = |done: io::Result<()>| done.map_err(|error| write_failure(file, &error));
        let trace = WholeFile::create(file).map_err(|error| write_failure(file, &error))?;
        let mut out = BufWriter::new(&trace.file);
        written(writeln!(out, "{HEAD}"))?;
        let measurement = simulate_traced(plan, self.trace_interval, interrupt, &mut |point| {
            written(writeln!(out, "{}", trace_row(point)))
        })?;
        written(out.flush())?;
        drop(out);
        written(trace.rename_into_place())?;
        Ok(measurement)
    }
}

fn write_failure(file: &Path, error: &io::Error) -> Failure {
    run_failure(format!(
        "cannot write the trace {}: {error}",
        file.display()
    ))
}

fn trace_row(point: &TracePoint) -> String {
    let (sample, tcp) = (&point.sender, &point.sender.tcp);
    let segments = |count: Option<SegCount>| count.map_text(|count| count.get().to_string());
    let in_flight = sample
        .pipe_bytes()
        .zip(tcp.snd_mss)
        .map(|(pipe, mss)| pipe.get() / mss.get().max(1));
    let state = tcp.congestion_state.map_or("", congestion_name);
    [
        sample.at.as_secs_f64().to_string(),
        sample.stream.to_string(),
        segments(tcp.cwnd),
        segments(tcp.ssthresh),
        in_flight.map_text(|count| count.to_string()),
        point.queued.get().to_string(),
        point.rate.bps().to_string(),
        tcp.rtt.map_text(|rtt| rtt.as_secs_f64().to_string()),
        tcp.pacing_rate.map_text(|rate| rate.bps().to_string()),
        segments(tcp.total_retrans),
        state.to_owned(),
    ]
    .join(",")
}

fn congestion_name(state: CongestionState) -> &'static str {
    match state {
        CongestionState::Open => "open",
        CongestionState::Disorder => "disorder",
        CongestionState::Cwr => "cwr",
        CongestionState::Recovery => "recovery",
        CongestionState::Loss => "loss",
    }
}

fn trace_interval(text: &str) -> Result<Span, String> {
    let bounds = Span::from_micros(10)..=Span::MAX;
    let sentence = "the interval must be at least 10 µs";
    value_within(parse_duration(text)?, bounds, sentence)
}

/// Fails if the course of these transfers cannot be one file.
///
/// # Errors
/// A sentence for the user.
pub(super) fn check_transfer_count(transfers: usize, file: &Path) -> Result {
    if file == Path::new("-") {
        let why = "--trace writes a file, as standard output has the result: name one";
        return Err(usage_failure(why));
    }
    if transfers != 1 {
        let why = format!(
            "--trace is of one transfer, and these are {transfers}: leave out lists, steps and --seeds"
        );
        return Err(usage_failure(why));
    }
    Ok(())
}
