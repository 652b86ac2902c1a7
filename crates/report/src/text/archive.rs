//! The archive: lists, one document, histories, and what was done to it.

use fullpipe_record::{
    ArchiveCheck, ArchiveReport, ArchiveThinned, HistoryDay, HistoryReport, HistorySeries,
    ImportedFile, StoredDocument, StoredFacts,
};
use fullpipe_stats::MIN_RUNS_WITH_CHANGE;

use super::prelude::*;

/// Characters of an identifier that are shown: its end, because documents of one hour begin alike.
const SHOWN_ID: usize = 8;

/// Characters of the name of another end in a list.
const MAX_PEER: usize = 15;

/// Returns an archive as a whole.
pub fn archive_text(archive: &ArchiveReport) -> String {
    if !archive.exists {
        return format!(
            "{}\nThere is no archive yet; `fullpipe store create` makes it.\n",
            archive.location
        );
    }
    let documents = archive.documents.iter();
    let kinds: Vec<String> = documents
        .map(|(kind, count)| format!("{count} {kind}"))
        .collect();
    let kinds = format_if(!kinds.is_empty(), || format!(": {}", kinds.join(", ")));
    let read_only = text_if(
        archive.read_only,
        "; a newer fullpipe has changed it: it can only be read",
    );
    let count: u64 = archive.documents.values().sum();
    let (count, size) = (count_noun(count, "document"), archive.bytes);
    let summary = paragraph(&format!("{count}, {size}{kinds}{read_only}"), 0);
    format!("{}\n{summary}", archive.location)
}

/// Returns documents as a list, a line each.
pub fn document_list(documents: &[StoredDocument]) -> String {
    if documents.is_empty() {
        return "no documents\n".to_owned();
    }
    let mut table = TextTable::new("document|started (UTC)|to|>rate|result");
    for document in documents {
        let mut facts = document.facts.iter();
        let rate = facts.find_map(|facts| facts.steady.or(facts.rate));
        let to = if document.peer.is_empty() {
            &document.campaign
        } else {
            &document.peer
        };
        table.push_row(cells![
            short_id(&document.id),
            cut_time(&document.started, "2026-03-12 10:00"),
            cut_text(&printable_line(to), MAX_PEER),
            or_dash(rate),
            result_summary(document),
        ]);
    }
    table.render(0)
}

/// Returns the kind of a document and the limit of its first run.
fn result_summary(document: &StoredDocument) -> String {
    let kind = document
        .kind
        .strip_prefix("foreign/")
        .unwrap_or(&document.kind);
    let first = document.facts.first();
    let limit = first
        .and_then(|facts| facts.limit.as_deref())
        .map_text(|limit| format!(", {limit}"));
    let valid = text_if(!document.facts.iter().all(|facts| facts.valid), ", invalid");
    printable_line(&format!("{kind}{limit}{valid}"))
}

pub(crate) fn short_id(id: &str) -> &str {
    id.len()
        .checked_sub(SHOWN_ID)
        .and_then(|from| id.get(from..))
        .unwrap_or(id)
}

/// Returns a time in RFC 3339 as far as it is in `shown`, such as `2026-03-12 10:00`.
pub fn cut_time(started: &str, shown: &str) -> String {
    let cut: String = started.chars().take(shown.len()).collect();
    cut.replace('T', " ")
}

/// Returns one document with all that is known of it.
pub fn stored_document(document: &StoredDocument) -> String {
    let mut text = bold_text(&document.id) + "\n";
    let thinned = text_if(document.thinned, ", samples or body removed");
    let lines = [
        ("kind", document.kind.clone()),
        ("started", document.started.clone()),
        ("path", document.path_key.clone()),
        ("to", document.peer.clone()),
        ("campaign", document.campaign.clone()),
        ("load", document.request_key.clone()),
        ("program", document.program.clone()),
        ("size", format!("{}{thinned}", document.bytes)),
        ("BLAKE3", document.blake3.clone()),
    ];
    for (name, value) in lines.iter().filter(|(_, value)| !value.is_empty()) {
        text += &format!("  {name:<9} {}\n", printable_line(value));
    }
    document
        .facts
        .iter()
        .for_each(|facts| text += &stored_figures(facts));
    text
}

fn stored_figures(facts: &StoredFacts) -> String {
    let step = format_if(!facts.step.is_empty(), || {
        format!("{}: ", printable_line(&facts.step))
    });
    let valid = text_if(!facts.valid, " (invalid)");
    let title = format!("{step}{}{valid}", facts.direction.name());
    let mut text = heading_line(&title);
    let lines = [
        ("rate", figure_text(facts.rate)),
        ("after the ramp", figure_text(facts.steady)),
        ("limit", facts.limit_name()),
        ("share of time", figure_text(facts.share)),
        ("RTT without load", figure_text(facts.rtt_idle)),
        ("RTT under load", figure_text(facts.rtt_loaded)),
        ("its 99th percentile", figure_text(facts.rtt_loaded_p99)),
        ("retransmissions", figure_text(facts.retransmits)),
        ("loss", figure_text(facts.loss)),
        ("streams", figure_text(facts.streams)),
        ("buffer requested", figure_text(facts.buffer)),
        ("window advertised", figure_text(facts.window)),
        ("congestion control", facts.congestion.clone()),
        ("sent", figure_text(facts.sent)),
        ("duration", figure_text(facts.duration)),
        ("CPU of sender", figure_text(facts.cpu_sender)),
        ("CPU of receiver", figure_text(facts.cpu_receiver)),
    ];
    for (name, value) in lines {
        if let Some(value) = value {
            text += &format!("  {name:<19} {}\n", printable_line(&value));
        }
    }
    text
}

/// Returns a line for each file of an import, and the error of each that was refused.
pub fn imported_files(files: &[ImportedFile]) -> String {
    files
        .iter()
        .map(|file| {
            let name = printable_line(&file.file);
            match &file.error {
                Some(error) => failure_paragraph(&format!("{name}: {error}"), 0),
                None => paragraph(&format!("{name}: {}", import_result(file)), 0),
            }
        })
        .collect()
}

/// Returns the documents that an import kept of a file: `1 kept, 2 known already (kind; ids)`.
fn import_result(file: &ImportedFile) -> String {
    let new = file.ids.len() as u64 - file.known - file.restored;
    let restored = nonzero_count(file.restored, "whole again");
    let known = nonzero_count(file.known, "known already");
    let kind = file.kind.as_deref().unwrap_or_default();
    let shown = file.ids.iter().take(MAX_IDS);
    let ids: Vec<&str> = shown.map(|id| short_id(id)).collect();
    let more = text_if(file.ids.len() > MAX_IDS, ", …");
    format!(
        "{new} kept{restored}{known} ({kind}; {}{more})",
        ids.join(", ")
    )
}

/// Identifiers that are shown of one file.
const MAX_IDS: usize = 3;

/// Returns the result of a check.
pub fn archive_check(check: &ArchiveCheck) -> String {
    let mut text = String::new();
    for damaged in &check.damaged {
        text += &failure_paragraph(&format!("{} is damaged: {}", damaged.id, damaged.why), 0);
    }
    for error in &check.database {
        text += &failure_paragraph(&format!("database: {}", printable_line(error)), 0);
    }
    let stale = match (check.stale, check.repaired) {
        (0, _) => String::new(),
        (count, true) => format!("; facts of {count} derived again"),
        (count, false) => format!("; facts of {count} are stale: --repair derives them again"),
    };
    text + &format!(
        "{}, {} damaged{stale}\n",
        count_noun(check.documents, "document"),
        check.damaged.len()
    )
}

/// Returns the result of thinning.
pub fn archive_thinned(thinned: &ArchiveThinned) -> String {
    let ArchiveThinned {
        samples,
        bodies,
        freed,
    } = thinned;
    format!(
        "samples of {} removed, whole bodies of {bodies}, {freed}\n",
        count_noun(samples, "document")
    )
}

/// Days of a series that are shown, the newest.
const MAX_DAYS: usize = 31;

/// Returns the history of one host: for each series the medians by day, and the changes.
pub fn history_text(history: &HistoryReport) -> String {
    if history.series.is_empty() {
        return format!(
            "no runs towards {} are kept\n",
            printable_line(&history.host)
        );
    }
    history.series.iter().map(one_series).collect()
}

fn one_series(series: &HistorySeries) -> String {
    let way = series.direction.name();
    let runs = count_noun(series.points.len(), "run");
    let title = format!(
        "{}, {way}: {} ({runs})",
        series.path_key, series.request_key
    );
    let mut text = heading_line(&printable_line(&title));
    for change in &series.changes {
        text += &paragraph(&change.sentence, 2);
    }
    if let Some(sentence) = no_change(series) {
        text += &paragraph(&sentence, 2);
    }
    text + &day_table(&series.days)
}

fn day_table(days: &[HistoryDay]) -> String {
    let mut table = TextTable::new("day (UTC)|>runs|>median|>least|>idle RTT|limit");
    let skipped = days.len().saturating_sub(MAX_DAYS);
    for day in &days[skipped..] {
        table.push_row(cells![
            day.date,
            day.runs,
            day.rate,
            day.min,
            or_dash(day.rtt_idle),
            or_dash(day.limit.as_deref().map(kind_of))
        ]);
    }
    let mut text = table.without_unknown().render(2);
    if skipped > 0 {
        text += &format!("  {} not shown\n", count_noun(skipped, "earlier day"));
    }
    text
}

/// Returns a sentence on a series without a change, with the change that its runs would have shown;
/// `None` with a change.
pub(crate) fn no_change(series: &HistorySeries) -> Option<String> {
    if !series.changes.is_empty() {
        return None;
    }
    let runs = series.points.iter().filter(|point| point.valid).count();
    Some(match series.detectable {
        Some(least) => format!(
            "No change of the rate: one of {:.0} % or more, with {} of the {runs} runs or more on either side, would \
             have been found.",
            least.as_percent().ceil(),
            MIN_RUNS_WITH_CHANGE / 2
        ),
        None if runs < MIN_RUNS_WITH_CHANGE => {
            format!(
                "{} cannot show a change of the rate: that takes {MIN_RUNS_WITH_CHANGE}.",
                count_noun(runs, "valid run")
            )
        }
        // A document of before that was stated.
        None => format!("No change of the rate was found in {runs} runs."),
    })
}

/// Returns the kind of a limit, without its cause, for which a line has no room.
fn kind_of(limit: &str) -> String {
    printable_line(limit.split('/').next().unwrap_or_default())
}

#[cfg(test)]
mod tests;
