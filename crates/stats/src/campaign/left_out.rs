//! Settings that are too much for the machine: their runs do not count, again and again, while
//! those of others do.

use fullpipe_record::{SweepCell, SweepRun};

/// Runs that do not count with which a setting is left out.
const BROKEN: usize = 2;

/// Runs of each setting, those that count and those that do not.
#[derive(Debug, Default)]
pub(crate) struct AttemptCounts(Vec<SettingAttempts>);

#[derive(Debug)]
struct SettingAttempts {
    cell: SweepCell,
    broken: usize,
    counted: usize,
}

impl SettingAttempts {
    /// A setting whose runs count for the most part is not too much for the machine, which has been
    /// busy for a while.
    fn is_left_out(&self) -> bool {
        self.broken >= BROKEN && self.broken > self.counted
    }
}

impl AttemptCounts {
    pub(crate) fn from_runs(runs: &[SweepRun]) -> Self {
        let mut attempts = Self::default();
        for run in runs {
            attempts.add_run(run);
        }
        attempts
    }

    pub(crate) fn add_run(&mut self, run: &SweepRun) {
        let place = self
            .0
            .iter()
            .position(|attempt| attempt.cell == run.cell)
            .unwrap_or_else(|| {
                self.0.push(SettingAttempts {
                    cell: run.cell,
                    broken: 0,
                    counted: 0,
                });
                self.0.len() - 1
            });
        let SettingAttempts {
            broken, counted, ..
        } = &mut self.0[place];
        let count = if run.rate.is_some() { counted } else { broken };
        *count += 1;
    }

    /// Returns the settings that are left out, in the order in which they were first tried.
    pub(crate) fn left_out(&self) -> impl Iterator<Item = SweepCell> {
        self.0
            .iter()
            .filter(|attempt| attempt.is_left_out())
            .map(|attempt| attempt.cell)
    }

    pub(crate) fn is_left_out(&self, cell: SweepCell) -> bool {
        self.left_out().any(|of| of == cell)
    }
}

/// Returns the setting that waits until another run has counted: none of the last two runs did, and
/// both had it.
pub(crate) fn waiting_setting(runs: &[SweepRun]) -> Option<SweepCell> {
    let [.., before, last] = runs else {
        return None;
    };
    (before.cell == last.cell && before.rate.is_none() && last.rate.is_none()).then_some(last.cell)
}

/// Returns the number of settings in the runs since the last one that counts.
pub(crate) fn failing_settings(runs: &[SweepRun]) -> usize {
    let mut cells: Vec<SweepCell> = Vec::new();
    for run in runs.iter().rev().take_while(|run| run.rate.is_none()) {
        if !cells.contains(&run.cell) {
            cells.push(run.cell);
        }
    }
    cells.len()
}

#[cfg(test)]
mod tests {
    use super::*;
    use fullpipe_record::{SweepCost, SweepReason};
    use fullpipe_units::{BitRate, ByteCount};

    /// Returns runs of settings by their streams; a negative number is a run that does not count.
    fn runs(streams: &[i16]) -> Vec<SweepRun> {
        let run = |streams: &i16| {
            let cell = SweepCell {
                window: ByteCount::from_kib(8),
                streams: streams.unsigned_abs(),
            };
            let counted = SweepRun::from_cost(
                cell,
                SweepReason::Edge,
                BitRate::from_mbps(1),
                SweepCost::default(),
            );
            SweepRun {
                rate: counted.rate.filter(|_| *streams > 0),
                ..counted
            }
        };
        streams.iter().map(run).collect()
    }

    fn left_out(streams: &[i16]) -> Vec<u16> {
        AttemptCounts::from_runs(&runs(streams))
            .left_out()
            .map(|cell| cell.streams)
            .collect()
    }

    #[test]
    fn a_setting_is_left_out_once_two_runs_and_more_than_its_half_do_not_count() {
        assert_eq!(left_out(&[-90, 1]), [0; 0]);
        assert_eq!(left_out(&[-90, -90, 1, -64, 64]), [90]);
        assert_eq!(left_out(&[-90, 90, 90, -90]), [0; 0]);
        assert_eq!(left_out(&[-90, 90, -64, -64, -90]), [90, 64]);
    }

    #[test]
    fn a_setting_waits_after_two_runs_in_a_row_that_do_not_count() {
        let waits = |streams: &[i16]| waiting_setting(&runs(streams)).map(|cell| cell.streams);
        assert_eq!(waits(&[8, 8, 8, -8, -8]), Some(8));
        assert_eq!(waits(&[-8, -8, 1]), None);
        assert_eq!(waits(&[-8, 8, -8]), None);
        assert_eq!(waits(&[-8, -1]), None);
    }

    #[test]
    fn settings_that_fail_one_after_another_are_counted_once_each() {
        let failing = |streams: &[i16]| failing_settings(&runs(streams));
        assert_eq!(
            [
                failing(&[]),
                failing(&[-1, 2]),
                failing(&[1, -2, -2, -3, -2])
            ],
            [0, 0, 2]
        );
    }
}
