//! Figures of published measurements next to those of the scenarios that rebuild them.

use fullpipe_record::{LabReport, ProgramsReport, SweepReport};

use super::campaign::{counted_runs, fastest_run, rate_spread, repeated_settings};
use super::prelude::*;
use crate::text::whole_megabits;

/// Scenario that rebuilds Cottrell, "Bulk Throughput Measurements: Manchester University" (SLAC,
/// 2002).
const SLAC: &str = "slac-sweep";

/// Share of the best rate below which a setting lies on the slope, and not on the plateau.
const SLOPE: f64 = 0.9;

/// Top rate of the source, and the rate from which on round trips grew, in Mbit/s, of the 622
/// Mbit/s of its line.
const TOP: f64 = 469.0;
const CLIMBS: f64 = 320.0;
const LINE: f64 = 622.0;

/// Capacity of the scenario's path.
const CAPACITY: BitRate = BitRate::from_bps(62_200_000);

/// Returns the top rate of the source, scaled to the capacity of the scenario; `None` of another
/// path.
pub(super) fn published_top(report: &SweepReport) -> Option<BitRate> {
    (report.plan.target == SLAC).then(|| CAPACITY.scale_by(TOP / LINE))
}

/// Returns the rate from which on round trips grew in the source, and its top, likewise.
pub(super) fn published_climb(report: &SweepReport) -> Option<(BitRate, BitRate)> {
    Some((CAPACITY.scale_by(CLIMBS / LINE), published_top(report)?))
}

/// Figures of that source.
const OF_SLAC: [(&str, &str); 9] = [
    ("top rate", "469 Mbit/s, 75 % of 622 Mbit/s"),
    ("at", "90 × 1024 KB"),
    (
        "round trips grow",
        "from about 320 Mbit/s on, 68 % of the top",
    ),
    (
        "their growth goes with",
        "very little with window, streams or their product",
    ),
    (
        "spread of repeated runs",
        "largest on the slope up to the knee, less with many streams",
    ),
    ("runs without congestion", "most, and many of the fast ones"),
    (
        "dips begin",
        "at 60 × 256, 20 × 512, 10 × 1024 KB: 10 to 15 MB in flight; BDP 11.97 MB",
    ),
    ("processor time of the sender", "20 % at most, of 1133 MHz"),
    ("runs", "10 s of load and 10 s of rest each, 76 min"),
];

/// Returns the figures of the source of a sweep's scenario next to those of the sweep; `None` of
/// another path.
pub(super) fn of_sweep(report: &SweepReport) -> Option<PageSection> {
    let figures = sweep_figures(report).filter(|_| report.plan.target == SLAC)?;
    let rows = OF_SLAC.into_iter().zip(figures);
    let rows = rows.map(|((what, source), own)| cells![what, source, own]);
    let table = compact_table("|SLAC to Manchester, 2002|this sweep", rows);
    let method = "Cottrell: 622 Mbit/s × 154 ms with the traffic of others. The scenario has a tenth of the rate, so \
                  that shares can be compared, and rates cannot.";
    Some(PageSection::new(
        "Next to the figures of the source",
        method,
        table,
    ))
}

/// Returns the figures of a sweep in the order of [`OF_SLAC`]; `None` without an answer.
fn sweep_figures(report: &SweepReport) -> Option<[String; 9]> {
    let knee = report.answer.as_ref()?.knee.cell;
    let (fastest, best) = fastest_run(report)?;
    let capacity = report.plan.predicted.iter().max();
    let of_capacity = capacity
        .map_text(|most| format!(", {} of the {most} predicted", rate_percent(best, *most)));
    let [slope, plateau] = median_spreads(report, best);
    let runs = count_noun(report.runs.len(), "run");
    let (least, minutes) = (SLOPE * 100.0, report.spent.time.as_secs_f64() / 60.0);
    Some([
        format!("{best}{of_capacity}"),
        fastest.cell.to_string(),
        rtt_climb(report, best),
        rtt_correlations(report),
        format!("on the slope {slope}, above {least:.0} % of the best {plateau}"),
        retransmission_free_runs(report, best),
        format!(
            "the knee is {knee}, {} in flight; BDP {}",
            knee.flight_capacity(),
            best.bytes_in(report.plan.rtt)
        ),
        processor_time(report),
        format!("{runs} in {minutes:.0} min"),
    ])
}

fn rtt_climb(report: &SweepReport, best: BitRate) -> String {
    let from = report.rtt.and_then(|rtt| rtt.climbs_from);
    text_or(
        from.map(|from| format!("from {from} on, {} of the top", rate_percent(from, best))),
        "at no rate",
    )
}

fn rtt_correlations(report: &SweepReport) -> String {
    report.rtt.map_text(|rtt| {
        format!(
            "by rank: rate {:.2}, window {:.2}, streams {:.2}, product {:.2}",
            rtt.with_rate, rtt.with_window, rtt.with_streams, rtt.with_product
        )
    })
}

fn processor_time(report: &SweepReport) -> String {
    let shares = report
        .runs
        .iter()
        .filter_map(|run| run.load.as_ref()?.cpu_sender);
    let most = shares.map(Ratio::as_percent).reduce(f64::max);
    text_or(
        most.map(|most| format!("{most:.1} % of a core at most")),
        "not recorded",
    )
}

fn rate_percent(part: BitRate, whole: BitRate) -> String {
    format!(
        "{:.0} %",
        Ratio::from_quotient(part.as_f64(), whole.as_f64()).as_percent()
    )
}

/// Returns the median spread of the settings that were measured more than once, on the slope and on
/// the plateau.
fn median_spreads(report: &SweepReport, best: BitRate) -> [String; 2] {
    [true, false].map(|on_slope| {
        let all = repeated_settings(report);
        let own = all.iter().filter(|(_, rates)| {
            median(rates.clone()).is_some_and(|middle| (middle < best.scale_by(SLOPE)) == on_slope)
        });
        let widths: Vec<f64> = own
            .filter_map(|(_, rates)| rate_spread(rates).map(Ratio::as_percent))
            .collect();
        text_or(
            median(widths).map(|middle| format!("{middle:.1} %")),
            "not known",
        )
    })
}

/// Returns the number of runs that sent nothing again, of all and of the fast ones.
fn retransmission_free_runs(report: &SweepReport, best: BitRate) -> String {
    let counts = [BitRate::ZERO, best.scale_by(CLIMBS / TOP)].map(|least| {
        let fast =
            counted_runs(report).filter(|(run, rate)| *rate >= least && run.retransmits.is_some());
        let all: Vec<_> = fast.collect();
        let calm = all
            .iter()
            .filter(|(run, _)| run.retransmits.is_some_and(|again| again.get() == 0));
        (calm.count(), all.len())
    });
    let [(calm, all), (calm_fast, fast)] = counts;
    format!("{calm} of {all} sent nothing again; {calm_fast} of the {fast} above 68 % of the top")
}

/// The table of a source: what it measured in each column, in Mbit/s, by program.
struct PublishedTable {
    scenario: &'static str,
    title: &'static str,
    method: &'static str,
    /// The columns, by the beginning of the names of their steps. Below them a line each for a
    /// program: its name, whether its steps have one stream or several, or nothing if the scenario
    /// does not run it, and its published figures.
    rows: &'static str,
}

/// Tables of "TCP buffers and throughput over high-latency links between OCI regions" (Oracle).
const SOURCES: [PublishedTable; 2] = [
    PublishedTable {
        scenario: "oci-buffers",
        title: "The source's table of three batches of buffers",
        method: "1 Gbit/s × 98 ms, MTU 9000, a file of 2 GB. What this scenario does not run has the figure of the \
                 source alone: scp and rsync over ssh are limited by the channel of SSH, not by the buffers.",
        rows: "\
program|streams|default|12.5 MB|24.5 MB
iperf, 1 stream|one|250 Mbit/s|500 Mbit/s|900 Mbit/s
iperf, several|several|4 streams fill the link|2 streams fill the link|
scp||119 Mbit/s, 150 at most|no improvement|at most 160 Mbit/s
rsync over ssh||161 Mbit/s, 164 at most|no improvement|at most 160 Mbit/s
rsync daemon||210 Mbit/s|500 Mbit/s|about 1 Gbit/s
curl||258 Mbit/s|500 Mbit/s|950 Mbit/s",
    },
    PublishedTable {
        scenario: "oci-mtu",
        title: "The source's comparison of small and jumbo frames",
        method: "1 Gbit/s × 98 ms, buffers of 24.5 MB. The source states no loss; the scenario has 2 in 100 000.",
        rows: "\
program|streams|MTU 1500|MTU 9000
iperf, 1 stream|one|80 Mbit/s, 300 at most|900 Mbit/s
curl||200 Mbit/s, 300 at most|950 Mbit/s",
    },
];

/// Returns the table of a scenario's source with its own figures next to it; `None` of a scenario
/// without one.
pub(super) fn of_scenario(report: &LabReport) -> Option<PageSection> {
    let source = SOURCES
        .iter()
        .find(|source| source.scenario == report.scenario)?;
    let mut lines = source.rows.lines().map(|line| line.split('|'));
    let columns: Vec<&str> = lines.next()?.skip(2).collect();
    let heads = columns
        .iter()
        .flat_map(|column| [format!("{column}, source"), format!("{column}, here")]);
    let table = FigureTable {
        heads: ["program".to_owned()].into_iter().chain(heads).collect(),
        rows: lines
            .map(|row| scenario_row(report, &columns, row))
            .collect(),
    };
    Some(PageSection::new(source.title, source.method, table))
}

/// Returns what the source has for a program and its streams, each figure next to that of the
/// report.
fn scenario_row<'a>(
    report: &LabReport,
    columns: &[&str],
    mut row: impl Iterator<Item = &'a str>,
) -> Vec<String> {
    let (program, streams) = (row.next(), row.next().unwrap_or_default());
    let cells = columns.iter().zip(row).flat_map(|(column, published)| {
        let measured = measured_step_rate(report, column, streams);
        [published.to_owned(), measured]
    });
    program
        .map(str::to_owned)
        .into_iter()
        .chain(cells)
        .collect()
}

/// Scenario that rebuilds the measurements of programs of the same source.
const PROGRAMS_OF_ORACLE: &str = "oci-applications";

/// Published figures of programs, in Mbit/s, of a file of 2 GB: the beginning of the name of the
/// step that has these settings, the program, its figure, and the explanation of the difference.
/// The source has no figures of its second batch but the target that was reached or not.
const OF_PROGRAMS: &str = "\
batch 1|iperf3|250|window
batch 1|scp|119, at most 150|channel
batch 1|rsync|161, at most 164|channel
batch 1|rsyncd|210|writes
batch 1|curl|258|window
batch 2|iperf3|500|follows
batch 2|scp|no improvement|cipher
batch 2|rsync|no improvement|cipher
batch 2|rsyncd|500|follows
batch 2|curl|500|follows
batch 3: 24.5 MB|iperf3|900|follows
batch 3: 24.5 MB|scp|at most 160|cipher
batch 3: 24.5 MB|rsync|at most 160|cipher
batch 3: 24.5 MB|rsyncd|about 1000|follows
batch 3: 24.5 MB|curl|950|follows
batch 3, MTU 1500|iperf3|80, at most 300|loss
batch 3, MTU 1500|curl|200, at most 300|loss
batch 3, MTU 9000|iperf3|900|loss
batch 3, MTU 9000|curl|950|loss";

/// Explanations of differences.
const REASONS: [(&str, &str); 6] = [
    (
        "window",
        "There, half of a receive buffer of 6 MB is the window: 3 MB a round trip. Here, Linux \
                         advertises more of it, and 4 MiB of send buffer bind first, of which about three quarters are \
                         in use.",
    ),
    (
        "channel",
        "The channel of SSH, then and now: 2 MiB, of which 48 KiB on average are not granted again at \
                       once. Its steady rate is to be compared with the most of the source, and the whole with its \
                       average: both have the login in them, over which a larger file is longer. HPN-SSH at both ends \
                       would have no such window.",
    ),
    (
        "cipher",
        "The channel again: neither buffers nor the cipher matter, whose processor time is a small share.",
    ),
    (
        "writes",
        "rsync writes only while a third of the send buffer is free, so that two thirds are in use: less \
                    than curl has of the same buffer, there as well.",
    ),
    (
        "follows",
        "It follows the buffers. The whole has the handshake and the ramp in it, which count less in 2 GB.",
    ),
    (
        "loss",
        "The source names no loss; 2 · 10⁻⁵ is planted here. Under the same loss a window grows by \
                    segments: with those of MTU 9000 it is six times as large.",
    ),
];

/// Returns the published figures of the programs of a scenario next to those that were measured,
/// with what explains the differences; `None` of other scenarios.
pub(super) fn of_programs(report: &ProgramsReport) -> Option<PageSection> {
    if report.scenario.as_deref() != Some(PROGRAMS_OF_ORACLE) {
        return None;
    }
    let heads = "settings|program|source|whole|steady|limit|what explains the difference";
    let table = FigureTable {
        heads: heads.split('|').map(str::to_owned).collect(),
        rows: OF_PROGRAMS
            .lines()
            .filter_map(|line| published_row(report, line))
            .collect(),
    };
    let method = "Mbit/s. Oracle, TCP buffers and throughput over high-latency links between OCI regions: 1 Gbit/s × \
                  98 ms, a file of 2 GB. Whole: size ÷ time with the login; steady: the rate after the ramp.";
    Some(PageSection::new(
        "The source's figures next to these",
        method,
        table,
    ))
}

/// Returns the measured rate of the step of a column with one stream or several; nothing where no
/// valid run has one.
fn measured_step_rate(report: &LabReport, column: &str, streams: &str) -> String {
    let step = report.steps.iter().find(|step| {
        step.name.starts_with(column)
            && match step.request.streams {
                0 => false,
                1 => streams == "one",
                _ => streams == "several",
            }
    });
    or_empty(step.and_then(|step| step.measured))
}

/// Returns a line of [`OF_PROGRAMS`] with the measured figures and the explanation.
fn published_row(report: &ProgramsReport, line: &str) -> Option<Vec<String>> {
    let [settings, program, published, reason] =
        line.split('|').collect::<Vec<_>>().try_into().ok()?;
    let mut batches = report.batches.iter();
    let batch = batches.find(|batch| batch.name.starts_with(settings));
    let row = batch.and_then(|batch| batch.rows.iter().find(|row| row.program == program));
    let verdict = row.and_then(|row| row.verdict.as_ref());
    let (_, why) = REASONS.iter().find(|(name, _)| *name == reason)?;
    Some(vec![
        batch.map_or(settings, |batch| &batch.name).to_owned(),
        program.to_owned(),
        published.to_owned(),
        row.and_then(|row| row.goodput).map_text(whole_megabits),
        row.and_then(|row| row.steady).map_text(whole_megabits),
        verdict.map_text(|verdict| verdict.name().to_owned()),
        (*why).to_owned(),
    ])
}
