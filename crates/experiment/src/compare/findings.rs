//! Sentences on what the rows of the programs show.

use fullpipe_record::{ProgramBatch, ProgramRow};

use crate::prelude::*;

use super::transfer::NEAR;

/// Share of the fastest program's rate below which a program is held back by something of its own.
const HELD_BACK: f64 = 0.5;

/// Largest ÷ least rate up to which a program has the same rate under all settings.
const FLAT: f64 = 1.1;

/// Largest ÷ least rate of the fastest programs from which on the settings made a difference.
const SETTINGS_MATTER: f64 = 1.5;

/// Returns a sentence or more for each program that is held back: by how much, by what, which
/// programs are not, and what those are predicted to carry.
pub(crate) fn batch_findings(batches: &[ProgramBatch]) -> Vec<String> {
    let Some(last) = batches.last() else {
        return Vec::new();
    };
    last.rows
        .iter()
        .filter_map(|row| of_program(row, last, batches))
        .chain(as_predicted(batches))
        .collect()
}

/// Returns in how many rows the limit that was named is the one that the prediction has, in how
/// many the steady rate is near the predicted one, and which others there are.
fn as_predicted(batches: &[ProgramBatch]) -> Vec<String> {
    let rows = batches
        .iter()
        .flat_map(|batch| batch.rows.iter().map(move |row| (batch, row)));
    let named: Vec<bool> = rows
        .clone()
        .filter_map(|(_, row)| is_limit_predicted(row))
        .collect();
    let near: Vec<bool> = rows.clone().filter_map(|(_, row)| is_near(row)).collect();
    let limits = share_phrase(&named)
        .map(|share| format!("The limit that was named is the predicted one in {share} rows."));
    let otherwise = listed(
        "Named and predicted limits differ: ",
        rows.clone()
            .filter(|(_, row)| is_limit_predicted(row) == Some(false))
            .filter_map(|(batch, row)| named_otherwise(batch, row, batches)),
    );
    let rates = share_phrase(&near).map(|share| {
        format!(
            "The steady rate is within {} of the prediction in {share} rows.",
            Ratio::new(NEAR)
        )
    });
    let off = listed(
        "It is not that of ",
        rows.filter(|(_, row)| is_near(row) == Some(false))
            .filter_map(|(batch, row)| off_by(batch, row, batches)),
    );
    [limits, otherwise, rates, off]
        .into_iter()
        .flatten()
        .collect()
}

/// Returns a sentence of a beginning and a list; `None` of an empty one.
fn listed(beginning: &str, items: impl Iterator<Item = String>) -> Option<String> {
    let items: Vec<String> = items.collect();
    (!items.is_empty()).then(|| format!("{beginning}{}.", items.join("; ")))
}

/// Returns the limit that was named for a row next to the predicted ones.
fn named_otherwise(
    batch: &ProgramBatch,
    row: &ProgramRow,
    batches: &[ProgramBatch],
) -> Option<String> {
    let verdict = row.verdict.as_ref()?;
    let predicted: Vec<&str> = predicted_limits(row).map(Limit::name).collect();
    Some(format!(
        "{}{}, {} where {} was predicted",
        row.program,
        batch_suffix(batch, batches),
        verdict.name(),
        join_with_or(&predicted)
    ))
}

/// Returns the limit that a row is predicted to have, and those that cannot be told from it.
fn predicted_limits(row: &ProgramRow) -> impl Iterator<Item = Limit> {
    let near = row.predicted_near_limits.iter().copied();
    row.predicted_limit.into_iter().chain(near)
}

/// Returns the name of a batch behind that of a program, where there are several.
fn batch_suffix(batch: &ProgramBatch, batches: &[ProgramBatch]) -> String {
    if batches.len() > 1 {
        format!(" ({})", batch.name)
    } else {
        String::new()
    }
}

/// Returns the steady rate of a row next to the predicted one, with its batch where there are
/// several.
fn off_by(batch: &ProgramBatch, row: &ProgramRow, batches: &[ProgramBatch]) -> Option<String> {
    let (steady, predicted) = (row.steady?, row.predicted?);
    let predicted = match row.predicted_range {
        Some([low, high]) => format!("{low} to {high}"),
        None => predicted.to_string(),
    };
    Some(format!(
        "{}{}, {steady} where {predicted} was predicted",
        row.program,
        batch_suffix(batch, batches)
    ))
}

/// Returns "n of m"; `None` of nothing.
fn share_phrase(all: &[bool]) -> Option<String> {
    let right = all.iter().filter(|is_right| **is_right).count();
    (!all.is_empty()).then(|| format!("{right} of {}", all.len()))
}

/// Returns true if the steady rate of a row is near the predicted one or, where it falls to chance,
/// its range.
pub(crate) fn is_near(row: &ProgramRow) -> Option<bool> {
    let (steady, predicted) = (row.steady?, row.predicted?);
    let [low, high] = row.predicted_range.unwrap_or([predicted; 2]);
    Some(steady >= low.scale_by(1.0 - NEAR) && steady <= high.scale_by(1.0 + NEAR))
}

/// Returns true if the verdict of a row names a limit that the prediction has, or has the predicted
/// one among its candidates.
pub(crate) fn is_limit_predicted(row: &ProgramRow) -> Option<bool> {
    let (verdict, predicted) = (row.verdict.as_ref()?, row.predicted_limit?);
    let mut candidates = verdict.candidates.iter();
    let is_named = predicted_limits(row).any(|limit| limit == verdict.kind);
    Some(is_named || candidates.any(|candidate| candidate.kind == predicted))
}

fn of_program(row: &ProgramRow, last: &ProgramBatch, batches: &[ProgramBatch]) -> Option<String> {
    let rate = row.goodput?;
    let sentences: Vec<String> = [held_back(row, rate, last, batches), would_carry(row, last)]
        .into_iter()
        .flatten()
        .collect();
    (!sentences.is_empty()).then(|| sentences.join(" "))
}

/// Returns sentences on a program far behind the fastest: its rate, its limit, and the rates of
/// faster programs.
fn held_back(
    row: &ProgramRow,
    rate: BitRate,
    last: &ProgramBatch,
    batches: &[ProgramBatch],
) -> Option<String> {
    let best = fastest_rate(last)?;
    if rate >= best.scale_by(HELD_BACK) {
        return None;
    }
    let name = &row.program;
    let own = figure_range(batches, |batch| {
        batch.rows.iter().find(|row| row.program == *name)?.goodput
    })?;
    let all = figure_range(batches, fastest_rate)?;
    let is_flat =
        batches.len() > 1 && growth_factor(own) <= FLAT && growth_factor(all) >= SETTINGS_MATTER;
    let how = if is_flat {
        format!(
            "{name} moves {rate} whatever the settings, while the fastest goes from {} to {}",
            all[0], all[1]
        )
    } else {
        format!(
            "{name} moves {rate}, {} of what the fastest moves",
            Ratio::new(rate.relative_to(best))
        )
    };
    let why = row
        .verdict
        .as_ref()
        .map_or_else(String::new, |verdict| format!(" {}", verdict.sentence));
    Some(format!("{how}.{why}{}", faster_programs(rate, last)))
}

/// Returns the programs that are much faster than `rate`, in a sentence behind others; nothing if
/// there are none.
fn faster_programs(rate: BitRate, batch: &ProgramBatch) -> String {
    let faster: Vec<String> = batch
        .rows
        .iter()
        .filter(|row| row.program != "iperf3")
        .filter_map(|row| Some((&row.program, row.goodput?)))
        .filter(|(_, goodput)| goodput.scale_by(HELD_BACK) >= rate)
        .map(|(program, goodput)| format!("{program} moves {goodput}"))
        .collect();
    if faster.is_empty() {
        String::new()
    } else {
        format!(" Instead, {}.", faster.join(", "))
    }
}

/// Returns, for a program that a window of its own holds, what programs without one are predicted
/// to carry.
fn would_carry(row: &ProgramRow, batch: &ProgramBatch) -> Option<String> {
    let limit = row.verdict.as_ref().map(|verdict| verdict.kind);
    let rate = row.steady.or(row.goodput)?;
    let more = batch.predictions.iter().filter(|other| {
        other.limit != Limit::ApplicationWindow && other.rate.scale_by(HELD_BACK) >= rate
    });
    // Several programs have the same prediction.
    let mut by_rate: Vec<(String, Vec<&str>)> = Vec::new();
    for other in more {
        let rate = other.rate.to_string();
        match by_rate.iter_mut().find(|(known, _)| *known == rate) {
            Some((_, programs)) => programs.push(&other.program),
            None => by_rate.push((rate, vec![&other.program])),
        }
    }
    let all: Vec<String> = by_rate
        .iter()
        .map(|(rate, programs)| format!("{} would carry {rate}", join_with_or(programs)))
        .collect();
    (limit == Some(Limit::ApplicationWindow) && !all.is_empty()).then(|| {
        format!(
            "{} is held to {rate} by its channel; {} (predicted).",
            row.program,
            all.join(", ")
        )
    })
}

/// Returns `a, b or c`.
fn join_with_or(names: &[&str]) -> String {
    match names {
        [] => String::new(),
        [one] => (*one).to_owned(),
        [first @ .., last] => format!("{} or {last}", first.join(", ")),
    }
}

fn fastest_rate(batch: &ProgramBatch) -> Option<BitRate> {
    batch.rows.iter().filter_map(|row| row.goodput).max()
}

/// Returns the least and the most of a figure of each batch.
fn figure_range(
    batches: &[ProgramBatch],
    of: impl Fn(&ProgramBatch) -> Option<BitRate>,
) -> Option<[BitRate; 2]> {
    let all: Vec<BitRate> = batches.iter().filter_map(of).collect();
    Some([*all.iter().min()?, *all.iter().max()?])
}

fn growth_factor([least, most]: [BitRate; 2]) -> f64 {
    most.relative_to(least)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::target::Interrupt;
    use fullpipe_record::HostSettings;
    use fullpipe_scenario::Scenario;
    use fullpipe_units::ByteCount;
    use std::sync::atomic::AtomicBool;

    use super::super::rounds::program_row;
    use super::super::transfer::PredictedTransfer;

    fn batch(rates: &[(&str, u64)]) -> ProgramBatch {
        let row = |(program, mbps): &(&str, u64)| ProgramRow {
            goodput: Some(BitRate::from_mbps(*mbps)),
            ..program_row(program, None, Vec::new())
        };
        let host = HostSettings::of_linux_6_18();
        let text = "name = 'x'\ntitle = 'x'\n[path]\nrate = '1Gbit/s'\nrtt = '50ms'\n[[step]]\nname = 'a'\n";
        let path = Scenario::parse("x.toml", text).unwrap().path;
        let rows = rates.iter().map(row).collect();
        let size = ByteCount::from_mib(1);
        let predicted = PredictedTransfer {
            path: &path,
            hosts: [&host, &host],
            size,
            iperf3: Some((3, 12)),
        };
        let predictions = predicted.predict_all(Interrupt(&AtomicBool::new(false)));
        ProgramBatch {
            name: "x".to_owned(),
            path,
            sender: host.clone(),
            receiver: Some(host),
            predictions,
            rows,
        }
    }

    #[test]
    fn a_program_that_is_held_back_stands_next_to_those_that_are_not() {
        let found = batch_findings(&[batch(&[("iperf3", 900), ("scp", 130), ("curl", 850)])]);
        assert_eq!(
            found,
            [
                "scp moves 130 Mbit/s, 14.44 % of what the fastest moves. Instead, curl moves 850 Mbit/s."
            ]
        );
    }

    #[test]
    fn the_same_rate_under_all_settings_is_said() {
        let found = batch_findings(&[
            batch(&[("scp", 128), ("curl", 220)]),
            batch(&[("scp", 130), ("curl", 850)]),
        ]);
        let sentence = "scp moves 130 Mbit/s whatever the settings, while the fastest goes from 220 Mbit/s to 850 Mbit/s.";
        assert_eq!(
            found,
            [format!("{sentence} Instead, curl moves 850 Mbit/s.")]
        );
    }

    #[test]
    fn a_program_with_a_window_of_its_own_stands_next_to_what_others_would_carry() {
        let mut alone = batch(&[("scp", 130)]);
        assert!(
            batch_findings(std::slice::from_ref(&alone)).is_empty(),
            "no limit was named"
        );
        let verdict = r#"{ "kind": "application-window", "cause": "ssh-channel", "at": "receiver", "share": 1.0,
            "sentence": "", "ceilings": {}, "evidence": {} }"#;
        alone.rows[0].verdict = Some(serde_json::from_str(verdict).unwrap());
        let found = batch_findings(&[alone]).join(" ");
        assert!(
            found.starts_with("scp is held to 130 Mbit/s by its channel; iperf3 would carry 532.1"),
            "{found}"
        );
        assert!(
            found.contains("curl, curl-h2 or ftp would carry") && found.ends_with("(predicted)."),
            "{found}"
        );
        assert!(found.contains("rsyncd would carry 439.5 Mbit/s"), "{found}");
    }

    #[test]
    fn rows_whose_limit_is_the_predicted_one_or_one_as_near_are_counted() {
        let mut batch = batch(&[("scp", 800), ("rsync", 800), ("curl", 900)]);
        let verdict = r#"{ "kind": "capacity", "cause": "link", "at": "path", "share": 1.0, "sentence": "",
            "ceilings": {}, "evidence": {} }"#;
        for (row, limit) in batch
            .rows
            .iter_mut()
            .zip([Limit::Capacity, Limit::SendBuffer])
        {
            row.verdict = Some(serde_json::from_str(verdict).unwrap());
            row.predicted_limit = Some(limit);
        }
        let differ = "Named and predicted limits differ: rsync, capacity/link where send-buffer was predicted.";
        let counted =
            |right| format!("The limit that was named is the predicted one in {right} of 2 rows.");
        assert_eq!(
            batch_findings(&[batch.clone()]),
            [counted(1), differ.to_owned()]
        );
        batch.rows[1].predicted_near_limits = vec![Limit::ReceiveWindow];
        let found = batch_findings(&[batch.clone()]).join(" ");
        assert!(
            found.ends_with("where send-buffer or receive-window was predicted."),
            "{found}"
        );
        batch.rows[1].predicted_near_limits.push(Limit::Capacity);
        assert_eq!(batch_findings(&[batch]), [counted(2)]);
    }

    #[test]
    fn steady_rates_near_the_predicted_one_or_its_range_are_counted() {
        let mut batch = batch(&[("scp", 800), ("curl", 800), ("ftp", 800)]);
        let mbps = |mbps| BitRate::from_mbps(mbps);
        for (row, steady) in batch.rows.iter_mut().zip([889, 909, 911]) {
            (row.steady, row.predicted) = (Some(mbps(steady)), Some(mbps(990)));
        }
        batch.rows[2].predicted_range = Some([mbps(300), mbps(820)]);
        let near = "The steady rate is within 10 % of the prediction in 1 of 3 rows.";
        let others = "It is not that of scp, 889 Mbit/s where 990 Mbit/s was predicted; ftp, 911 Mbit/s where \
            300 Mbit/s to 820 Mbit/s was predicted.";
        assert_eq!(batch_findings(&[batch.clone()]), [near, others]);
        let several = batch_findings(&[batch.clone(), batch]).join(" ");
        assert!(
            several.contains("not that of scp (x), 889 Mbit/s where"),
            "{several}"
        );
    }

    #[test]
    fn programs_of_about_one_rate_are_no_finding() {
        assert!(
            batch_findings(&[batch(&[("iperf3", 900), ("scp", 800)])]).is_empty()
                && batch_findings(&[]).is_empty()
        );
    }
}
