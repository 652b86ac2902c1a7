//! The archive: lists, one document, histories, and what was done to it.

use fullpipe_record::{
    ArchiveCheck, ArchiveReport, ArchiveThinned, Direction, HistoryReport, HistorySeries, ImportedFile, StoredDocument,
    StoredFacts,
};
use fullpipe_stats::MIN_RUNS_WITH_CHANGE;
use fullpipe_units::{ByteCount, Ratio, SegCount, Span, counted, printable};

use super::style::{Style, cut, heading, wrapped};
use super::table::{Align, Table, or_dash};

/// Characters of an identifier that are shown: its end, because documents of one hour begin alike.
const SHOWN_ID: usize = 8;

/// Characters of the name of another end in a list.
const MAX_PEER: usize = 15;

/// Returns an archive as a whole.
pub fn archive(archive: &ArchiveReport) -> String {
    if !archive.exists {
        return format!("{}\nThere is no archive yet; `fullpipe store create` makes it.\n", archive.location);
    }
    let count: u64 = archive.documents.values().sum();
    let kinds: Vec<String> = archive.documents.iter().map(|(kind, count)| format!("{count} {kind}")).collect();
    let kinds = if kinds.is_empty() { String::new() } else { format!(": {}", kinds.join(", ")) };
    let read_only = if archive.read_only { "; a newer fullpipe has changed it: it can only be read" } else { "" };
    let size = archive.bytes;
    format!(
        "{}\n{}",
        archive.location,
        wrapped(&format!("{}, {size}{kinds}{read_only}", counted(count, "document")), 0, str::to_owned)
    )
}

/// Returns documents as a list, a line each.
pub fn stored(documents: &[StoredDocument], style: Style) -> String {
    if documents.is_empty() {
        return "no documents\n".to_owned();
    }
    let heads = ["document", "started (UTC)", "to", "rate", "result"];
    let mut table = Table::new(&heads.map(|head| (head, if head == "rate" { Align::Right } else { Align::Left })));
    for document in documents {
        let rate = document.facts.iter().find_map(|facts| facts.steady.or(facts.rate));
        let to = if document.peer.is_empty() { &document.campaign } else { &document.peer };
        table.row([
            short_id(&document.id).to_owned(),
            minute(&document.started),
            cut(&printable(to), MAX_PEER),
            or_dash(rate.map(|rate| rate.to_string())),
            result(document),
        ]);
    }
    table.render(0, |head| style.dim(head))
}

/// Returns the kind of a document and the limit of its first run.
fn result(document: &StoredDocument) -> String {
    let kind = document.kind.strip_prefix("foreign/").unwrap_or(&document.kind);
    let first = document.facts.first();
    let limit = first.and_then(|facts| facts.limit.as_deref()).map_or_else(String::new, |limit| format!(", {limit}"));
    let valid = if document.facts.iter().all(|facts| facts.valid) { "" } else { ", invalid" };
    printable(&format!("{kind}{limit}{valid}"))
}

fn limit(facts: &StoredFacts) -> Option<String> {
    let kind = facts.limit.as_deref()?;
    Some(facts.cause.as_deref().map_or_else(|| kind.to_owned(), |cause| format!("{kind}/{cause}")))
}

pub(crate) fn short_id(id: &str) -> &str {
    id.len().checked_sub(SHOWN_ID).and_then(|from| id.get(from..)).unwrap_or(id)
}

/// Returns a time in RFC 3339 to the minute.
fn minute(started: &str) -> String {
    started.chars().take("2026-03-12T10:00".len()).collect::<String>().replace('T', " ")
}

/// Returns one document with all that is known of it.
pub fn stored_document(document: &StoredDocument, style: Style) -> String {
    let mut text = style.bold(&document.id) + "\n";
    let thinned = if document.thinned { ", samples or body removed" } else { "" };
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
        text += &format!("  {name:<9} {}\n", printable(value));
    }
    document.facts.iter().for_each(|facts| text += &figures(facts, style));
    text
}

fn figures(facts: &StoredFacts, style: Style) -> String {
    let step = if facts.step.is_empty() { String::new() } else { format!("{}: ", printable(&facts.step)) };
    let valid = if facts.valid { "" } else { " (invalid)" };
    let mut text = heading(style, &format!("{step}{}{valid}", direction(facts.direction)));
    let percent = |share: Option<Ratio>| share.map(|share| share.to_string());
    let span = |span: Option<Span>| span.map(|span| span.to_string());
    let bytes = |bytes: Option<ByteCount>| bytes.map(|bytes| bytes.to_string());
    let lines = [
        ("rate", facts.rate.map(|rate| rate.to_string())),
        ("after the ramp", facts.steady.map(|rate| rate.to_string())),
        ("limit", limit(facts)),
        ("share of time", percent(facts.share)),
        ("RTT without load", span(facts.rtt_idle)),
        ("RTT under load", span(facts.rtt_loaded)),
        ("its 99th percentile", span(facts.rtt_loaded_p99)),
        ("retransmissions", facts.retransmits.map(|count: SegCount| count.get().to_string())),
        ("loss", percent(facts.loss)),
        ("streams", facts.streams.map(|streams| streams.to_string())),
        ("buffer requested", bytes(facts.buffer)),
        ("window advertised", bytes(facts.window)),
        ("congestion control", facts.congestion.clone()),
        ("sent", bytes(facts.sent)),
        ("duration", span(facts.duration)),
        ("CPU of sender", percent(facts.cpu_sender)),
        ("CPU of receiver", percent(facts.cpu_receiver)),
    ];
    for (name, value) in lines.into_iter().filter_map(|(name, value)| Some((name, value?))) {
        text += &format!("  {name:<19} {}\n", printable(&value));
    }
    text
}

pub(crate) const fn direction(direction: Direction) -> &'static str {
    match direction {
        Direction::Upload => "upload",
        Direction::Download => "download",
        Direction::Both => "both ways",
    }
}

/// Returns a line for each file of an import, and the error of each that was refused.
pub fn imported(files: &[ImportedFile], style: Style) -> String {
    let line = |file: &ImportedFile| {
        let name = printable(&file.file);
        if let Some(error) = &file.error {
            return wrapped(&format!("{name}: {error}"), 0, |line| style.bad(line));
        }
        let new = file.ids.len() as u64 - file.known - file.restored;
        let kind = file.kind.as_deref().unwrap_or_default();
        let ids: Vec<&str> = file.ids.iter().take(MAX_IDS).map(|id| short_id(id)).collect();
        let more = if file.ids.len() > MAX_IDS { ", …" } else { "" };
        let also = [(file.restored, "whole again"), (file.known, "known already")];
        let also = also.into_iter().filter(|(count, _)| *count > 0);
        let also = also.fold(String::new(), |text, (count, what)| text + &format!(", {count} {what}"));
        wrapped(&format!("{name}: {new} kept{also} ({kind}; {}{more})", ids.join(", ")), 0, str::to_owned)
    };
    files.iter().map(line).collect()
}

/// Identifiers that are shown of one file.
const MAX_IDS: usize = 3;

/// Returns the result of a check.
pub fn archive_check(check: &ArchiveCheck, style: Style) -> String {
    let mut text = String::new();
    for damaged in &check.damaged {
        text += &wrapped(&format!("{} is damaged: {}", damaged.id, damaged.why), 0, |line| style.bad(line));
    }
    for error in &check.database {
        text += &wrapped(&format!("database: {}", printable(error)), 0, |line| style.bad(line));
    }
    let stale = match (check.stale, check.repaired) {
        (0, _) => String::new(),
        (count, true) => format!("; facts of {count} derived again"),
        (count, false) => format!("; facts of {count} are stale: --repair derives them again"),
    };
    text + &format!("{}, {} damaged{stale}\n", counted(check.documents, "document"), check.damaged.len())
}

/// Returns the result of thinning.
pub fn archive_thinned(thinned: &ArchiveThinned) -> String {
    let ArchiveThinned { samples, bodies, freed } = thinned;
    format!("samples of {} removed, whole bodies of {bodies}, {freed}\n", counted(samples, "document"))
}

/// Days of a series that are shown, the newest.
const MAX_DAYS: usize = 31;

/// Returns the history of one host: for each series the medians by day, and the changes.
pub fn history(history: &HistoryReport, style: Style) -> String {
    if history.series.is_empty() {
        return format!("no runs towards {} are kept\n", printable(&history.host));
    }
    history.series.iter().map(|series| one_series(series, style)).collect()
}

fn one_series(series: &HistorySeries, style: Style) -> String {
    let way = direction(series.direction);
    let runs = series.points.len();
    let title = format!("{}, {way}: {} ({})", series.path_key, series.request_key, counted(runs, "run"));
    let mut text = heading(style, &printable(&title));
    for change in &series.changes {
        text += &wrapped(&change.sentence, 2, str::to_owned);
    }
    if let Some(sentence) = no_change(series) {
        text += &wrapped(&sentence, 2, str::to_owned);
    }
    let mut table = Table::new(&[
        ("day (UTC)", Align::Left),
        ("runs", Align::Right),
        ("median", Align::Right),
        ("least", Align::Right),
        ("idle RTT", Align::Right),
        ("limit", Align::Left),
    ]);
    let skipped = series.days.len().saturating_sub(MAX_DAYS);
    for day in series.days.iter().skip(skipped) {
        table.row([
            day.date.clone(),
            day.runs.to_string(),
            day.rate.to_string(),
            day.min.to_string(),
            or_dash(day.rtt_idle.map(|rtt| rtt.to_string())),
            or_dash(day.limit.as_deref().map(kind_of)),
        ]);
    }
    text += &table.without_unknown().render(2, |head| style.dim(head));
    if skipped > 0 {
        text += &format!("  {} not shown\n", counted(skipped, "earlier day"));
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
            least.percent().ceil(),
            MIN_RUNS_WITH_CHANGE / 2
        ),
        None if runs < MIN_RUNS_WITH_CHANGE => {
            format!(
                "{} cannot show a change of the rate: that takes {MIN_RUNS_WITH_CHANGE}.",
                counted(runs, "valid run")
            )
        }
        // A document of before that was stated.
        None => format!("No change of the rate was found in {runs} runs."),
    })
}

/// Returns the kind of a limit, without its cause, for which a line has no room.
fn kind_of(limit: &str) -> String {
    printable(limit.split('/').next().unwrap_or_default())
}

#[cfg(test)]
mod tests {
    use super::*;
    use fullpipe_record::{HistoryDay, HistoryPoint};
    use fullpipe_units::BitRate;

    fn document() -> StoredDocument {
        StoredDocument {
            id: "01a2121b-a32a-720a-9996-66dd5db307ad".to_owned(),
            kind: "measurement".to_owned(),
            started: "2026-03-12T10:00:00.25Z".to_owned(),
            peer: "a-host-with-a-long-name.of-a-long-domain.example.org".to_owned(),
            facts: vec![StoredFacts {
                steady: Some(BitRate::from_mbps(941)),
                limit: Some("receiver-application".to_owned()),
                cause: Some("window-scale-rewritten".to_owned()),
                ..StoredFacts::default()
            }],
            ..StoredDocument::default()
        }
    }

    #[test]
    fn a_list_fits_a_terminal_and_shows_the_end_of_the_identifier() {
        let list = stored(&[document()], Style::PLAIN);
        assert!(list.lines().all(|line| line.chars().count() <= 80), "{list}");
        for part in ["5db307ad  2026-03-12 10:00  a-host-with-a-…", "941 Mbit/s", "invalid"] {
            assert!(list.contains(part), "{list}");
        }
        assert_eq!(stored(&[], Style::PLAIN), "no documents\n");
    }

    #[test]
    fn one_document_has_all_figures_that_are_known_and_no_others() {
        let text = stored_document(&document(), Style::PLAIN);
        assert!(text.contains("upload (invalid)") && text.contains("receiver-application/window-scale-rewritten"));
        assert!(!text.contains("loss") && !text.contains("campaign"), "{text}");
    }

    #[test]
    fn a_history_shows_changes_first_and_the_newest_days() {
        let day = |number: usize| HistoryDay {
            date: format!("day-{number}"),
            runs: 4,
            rate: BitRate::from_mbps(612),
            min: BitRate::from_mbps(600),
            max: BitRate::from_mbps(620),
            rtt_idle: None,
            limit: Some("receiver-application/slow-reader".to_owned()),
        };
        let point = HistoryPoint {
            id: String::new(),
            started: String::new(),
            rate: BitRate::from_mbps(612),
            rtt_idle: None,
            rtt_loaded: None,
            limit: None,
            valid: true,
        };
        let series = HistorySeries {
            path_key: "alpha → 192.0.2.1".to_owned(),
            request_key: "tcp upload, 1 stream, 10 s".to_owned(),
            direction: Direction::Upload,
            points: vec![point],
            days: (0..40).map(day).collect(),
            changes: Vec::new(),
            detectable: None,
        };
        let text = history(&HistoryReport { host: "beta".to_owned(), series: vec![series.clone()] }, Style::PLAIN);
        assert!(text.lines().all(|line| line.chars().count() <= 80), "{text}");
        assert!(text.contains("(1 run)") && text.contains("day-39") && !text.contains("day-8 "), "{text}");
        assert!(text.contains("1 valid run cannot show a change of the rate: that takes 16."), "{text}");
        assert!(text.contains("9 earlier days not shown") && !text.contains("idle RTT"), "{text}");
        let quiet = HistorySeries { detectable: Some(Ratio::new(0.1234)), ..series };
        let sentence = "No change of the rate: one of 13 % or more, with 8 of the 1 runs or more on either side";
        assert!(no_change(&quiet).is_some_and(|said| said.starts_with(sentence)), "{:?}", no_change(&quiet));
        let none = history(&HistoryReport { host: "beta".to_owned(), series: Vec::new() }, Style::PLAIN);
        assert_eq!(none, "no runs towards beta are kept\n");
    }
}
