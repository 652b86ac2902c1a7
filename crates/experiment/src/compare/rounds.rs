//! The order of the transfers, and what a row takes from them.

use crate::prelude::*;
use crate::target::Interrupt;
use fullpipe_record::event::ProgramMoved;
use fullpipe_record::{ProgramPrediction, ProgramRow};
use fullpipe_units::Midpoint;

use super::error::CompareError;
use super::participant::Participant;

/// Attempts of a transfer until one is valid.
const ATTEMPTS: usize = 3;

/// The rounds of one set of settings.
pub(crate) struct ComparisonRounds<'r> {
    /// Name of the set of settings.
    pub(crate) batch: &'r str,
    pub(crate) participants: &'r [Participant],
    /// Number of rounds.
    pub(crate) count: u32,
    pub(crate) interrupt: Interrupt<'r>,
}

impl ComparisonRounds<'_> {
    /// Lets each participant move the file once in each round by `transfer`, the order turned by
    /// one from round to round, and passes each transfer to `observe`. Returns the transfers of
    /// each participant; after an interrupt, those that were complete.
    pub(crate) fn run(
        &self,
        transfer: &mut dyn FnMut(&Participant, u32) -> Result<ProgramRun, CompareError>,
        observe: &mut dyn FnMut(ProgramMoved),
    ) -> Result<Vec<Vec<ProgramRun>>, CompareError> {
        let participants = self.participants;
        let mut runs: Vec<Vec<ProgramRun>> = vec![Vec::new(); participants.len()];
        for round in 0..self.count {
            for turn in 0..participants.len() {
                let index = (turn + round as usize) % participants.len();
                for _ in 0..ATTEMPTS {
                    let run = transfer(&participants[index], round + 1)?;
                    if self.interrupt.is_requested() {
                        return Ok(runs);
                    }
                    let (batch, program) =
                        (self.batch.to_owned(), participants[index].name().to_owned());
                    observe(ProgramMoved {
                        batch,
                        program,
                        run: run.clone(),
                    });
                    let is_valid = run.validity.broken.is_empty();
                    runs[index].push(run);
                    if is_valid {
                        break;
                    }
                }
            }
        }
        Ok(runs)
    }
}

/// Returns the row of a program from its runs.
pub(crate) fn program_row(
    program: &str,
    prediction: Option<&ProgramPrediction>,
    runs: Vec<ProgramRun>,
) -> ProgramRow {
    let counted: Vec<&ProgramRun> = runs.iter().filter(|run| run.is_counted()).collect();
    let goodput = median_of(&counted, |run| run.goodput);
    let typical = counted
        .iter()
        .filter(|run| run.goodput.is_some())
        .min_by_key(|run| Some(run.goodput?.bps().abs_diff(goodput?.bps())));
    ProgramRow {
        program: program.to_owned(),
        predicted: prediction.map(|prediction| prediction.rate),
        predicted_range: prediction.and_then(|prediction| prediction.range),
        predicted_limit: prediction.map(|prediction| prediction.limit),
        predicted_near_limits: prediction
            .map_or_else(Vec::new, |prediction| prediction.near_limits.clone()),
        goodput,
        spread: goodput_spread(&counted),
        steady: median_of(&counted, |run| run.steady),
        top: counted.iter().filter_map(|run| run.top).max(),
        start_up: median_of(&counted, |run| run.start_up),
        rtt: median_of(&counted, |run| run.rtt),
        sender_cpu: median_of(&counted, |run| cpu_share(run, run.sender_cpu)),
        receiver_cpu: median_of(&counted, |run| cpu_share(run, run.receiver_cpu)),
        verdict: typical.and_then(|run| run.verdict.clone()),
        runs,
    }
}

fn median_of<T: Midpoint>(runs: &[&ProgramRun], figure: fn(&ProgramRun) -> Option<T>) -> Option<T> {
    median(runs.iter().filter_map(|run| figure(run)).collect())
}

/// Returns the least and the greatest rate, of several.
fn goodput_spread(runs: &[&ProgramRun]) -> Option<[BitRate; 2]> {
    let rates: Vec<BitRate> = runs.iter().filter_map(|run| run.goodput).collect();
    let ends = [*rates.iter().min()?, *rates.iter().max()?];
    (rates.len() > 1).then_some(ends)
}

/// Returns the rows of all participants from their runs, those first that moved the file fastest.
pub(crate) fn program_rows<'p>(
    participants: &[Participant],
    runs: Vec<Vec<ProgramRun>>,
    prediction: impl Fn(&Participant) -> Option<&'p ProgramPrediction>,
) -> Vec<ProgramRow> {
    let each = participants.iter().zip(runs);
    by_rate(
        each.map(|(one, runs)| program_row(one.name(), prediction(one), runs))
            .collect(),
    )
}

/// Returns `rows` with those first that moved the file fastest, and those last that did not move
/// it.
fn by_rate(mut rows: Vec<ProgramRow>) -> Vec<ProgramRow> {
    rows.sort_by_key(|row| std::cmp::Reverse(row.goodput));
    rows
}

/// Returns the processor time ÷ time of the transfer.
fn cpu_share(run: &ProgramRun, cpu: Option<Span>) -> Option<Ratio> {
    Some(Ratio::from_quotient(
        cpu?.as_secs_f64(),
        run.took?.as_secs_f64(),
    ))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::AtomicBool;

    use super::super::program::TransferProgram;

    fn run(mbps: u64) -> ProgramRun {
        ProgramRun {
            goodput: Some(BitRate::from_mbps(mbps)),
            ..ProgramRun::default()
        }
    }

    fn late() -> ProgramRun {
        let validity = fullpipe_record::Validity {
            broken: vec!["late".to_owned()],
            ..Default::default()
        };
        ProgramRun { validity, ..run(1) }
    }

    #[test]
    fn figures_are_medians_of_the_runs_that_count() {
        let failed = ProgramRun {
            failed: Some("no".to_owned()),
            ..run(2)
        };
        let took = Some(Span::from_secs(10));
        let busy = ProgramRun {
            took,
            sender_cpu: Some(Span::from_secs(4)),
            ..run(95)
        };
        let row = program_row("scp", None, vec![run(90), late(), run(80), failed, busy]);
        assert_eq!(row.goodput, Some(BitRate::from_mbps(90)));
        assert_eq!(
            row.spread,
            Some([BitRate::from_mbps(80), BitRate::from_mbps(95)])
        );
        assert_eq!(
            (row.sender_cpu, row.receiver_cpu),
            (Some(Ratio::new(0.4)), None)
        );
        assert_eq!(row.runs.len(), 5);
    }

    #[test]
    fn the_order_turns_with_each_round_and_a_late_run_is_repeated() {
        let participants = Participant::from_programs(
            &[
                TransferProgram::Scp,
                TransferProgram::Curl,
                TransferProgram::Ftp,
            ],
            &[],
        );
        let flag = AtomicBool::new(false);
        let rounds = ComparisonRounds {
            batch: "x",
            participants: &participants,
            count: 2,
            interrupt: Interrupt(&flag),
        };
        let mut order = Vec::new();
        let mut transfer = |participant: &Participant, round: u32| {
            order.push(format!("{} {round}", participant.name()));
            Ok(if order.len() == 1 { late() } else { run(10) })
        };
        let runs = rounds.run(&mut transfer, &mut |_| {}).unwrap();
        assert_eq!(
            order,
            [
                "scp 1", "scp 1", "curl 1", "ftp 1", "curl 2", "ftp 2", "scp 2"
            ]
        );
        assert_eq!(runs.iter().map(Vec::len).collect::<Vec<_>>(), [3, 2, 2]);
    }

    #[test]
    fn the_fastest_stands_first_and_what_failed_last() {
        let rows = [("a", vec![]), ("b", vec![run(10)]), ("c", vec![run(20)])];
        let sorted = by_rate(
            rows.map(|(name, runs)| program_row(name, None, runs))
                .to_vec(),
        );
        assert_eq!(
            sorted
                .iter()
                .map(|row| row.program.as_str())
                .collect::<Vec<_>>(),
            ["c", "b", "a"]
        );
    }
}
