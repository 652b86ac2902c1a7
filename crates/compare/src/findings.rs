//! Sentences on what the rows of the programs show.

use fullpipe_record::{ProgramBatch, ProgramRow};
use fullpipe_units::{BitRate, Ratio};

/// Share of the fastest program's rate below which a program is held back by something of its own.
const HELD_BACK: f64 = 0.5;

/// Largest ÷ least rate up to which a program has the same rate under all settings.
const FLAT: f64 = 1.1;

/// The same of the fastest programs from which on the settings made a difference.
const SETTINGS_MATTER: f64 = 1.5;

/// Returns a sentence for each program that is held back: by how much, by what, and which programs are not.
pub(crate) fn findings(batches: &[ProgramBatch]) -> Vec<String> {
    let Some(last) = batches.last() else { return Vec::new() };
    last.rows.iter().filter_map(|row| of_program(row, last, batches)).collect()
}

fn of_program(row: &ProgramRow, last: &ProgramBatch, batches: &[ProgramBatch]) -> Option<String> {
    let rate = row.goodput?;
    let best = fastest(last)?;
    if rate >= best.scaled(HELD_BACK) {
        return None;
    }
    let name = &row.program;
    let own = range(batches, |batch| batch.rows.iter().find(|row| row.program == *name)?.goodput)?;
    let all = range(batches, fastest)?;
    let is_flat = batches.len() > 1 && grew(own) <= FLAT && grew(all) >= SETTINGS_MATTER;
    let how = if is_flat {
        format!("{name} moves {rate} whatever the settings, while the fastest goes from {} to {}", all[0], all[1])
    } else {
        format!("{name} moves {rate}, {} of what the fastest moves", Ratio::new(rate.relative_to(best)))
    };
    let why = row.verdict.as_ref().map_or_else(String::new, |verdict| format!(" {}", verdict.sentence));
    let faster: Vec<String> = last
        .rows
        .iter()
        .filter(|other| other.program != "iperf3" && other.goodput.is_some_and(|other| other.scaled(HELD_BACK) >= rate))
        .filter_map(|other| Some(format!("{} moves {}", other.program, other.goodput?)))
        .collect();
    let instead = if faster.is_empty() { String::new() } else { format!(" Instead, {}.", faster.join(", ")) };
    Some(format!("{how}.{why}{instead}"))
}

fn fastest(batch: &ProgramBatch) -> Option<BitRate> {
    batch.rows.iter().filter_map(|row| row.goodput).max()
}

/// Returns the least and the most of a figure of each batch.
fn range(batches: &[ProgramBatch], of: impl Fn(&ProgramBatch) -> Option<BitRate>) -> Option<[BitRate; 2]> {
    let all: Vec<BitRate> = batches.iter().filter_map(of).collect();
    Some([*all.iter().min()?, *all.iter().max()?])
}

fn grew([least, most]: [BitRate; 2]) -> f64 {
    most.relative_to(least)
}

#[cfg(test)]
mod tests {
    use super::*;
    use fullpipe_record::{HostSettings, Limit};
    use fullpipe_scenario::Scenario;

    fn batch(rates: &[(&str, u64)]) -> ProgramBatch {
        let row = |(program, mbps): &(&str, u64)| ProgramRow {
            program: (*program).to_owned(),
            predicted: BitRate::from_mbps(*mbps),
            predicted_limit: Limit::Capacity,
            goodput: Some(BitRate::from_mbps(*mbps)),
            spread: None,
            steady: None,
            top: None,
            start_up: None,
            rtt: None,
            verdict: None,
            runs: Vec::new(),
        };
        let host = HostSettings::of_linux_6_18();
        let text = "name = 'x'\ntitle = 'x'\n[path]\nrate = '1Gbit/s'\nrtt = '50ms'\n[[step]]\nname = 'a'\n";
        let path = Scenario::parse("x.toml", text).unwrap().path;
        let rows = rates.iter().map(row).collect();
        ProgramBatch { name: "x".to_owned(), path, sender: host.clone(), receiver: host, rows }
    }

    #[test]
    fn a_program_that_is_held_back_stands_next_to_those_that_are_not() {
        let found = findings(&[batch(&[("iperf3", 900), ("scp", 130), ("curl", 850)])]);
        assert_eq!(found, ["scp moves 130 Mbit/s, 14.44 % of what the fastest moves. Instead, curl moves 850 Mbit/s."]);
    }

    #[test]
    fn the_same_rate_under_all_settings_is_said() {
        let found = findings(&[batch(&[("scp", 128), ("curl", 220)]), batch(&[("scp", 130), ("curl", 850)])]);
        let sentence =
            "scp moves 130 Mbit/s whatever the settings, while the fastest goes from 220 Mbit/s to 850 Mbit/s.";
        assert_eq!(found, [format!("{sentence} Instead, curl moves 850 Mbit/s.")]);
    }

    #[test]
    fn programs_of_about_one_rate_are_no_finding() {
        assert!(findings(&[batch(&[("iperf3", 900), ("scp", 800)])]).is_empty() && findings(&[]).is_empty());
    }
}
