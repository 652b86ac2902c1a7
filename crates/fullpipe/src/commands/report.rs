use fullpipe_record::StoredDocument;
use fullpipe_report::{PageSource, text_page};
use fullpipe_store::{DocumentFilter, NewDocument, Store};
use jiff::Timestamp;

use super::prelude::*;
use crate::commands::document::{name_of, read_document};
use crate::commands::facts;
use crate::terminal::write_page;
use crate::values::parse_past_time;

/// Documents of the archive that are shown whole; of more, their facts are compared.
const MAX_WHOLE: usize = 4;

/// Results as a page with charts: one HTML file, or text.
///
/// Reads what demo, measure, diagnose, diff, sweep, compare, lab, simulate, trace and history
/// printed with --json, and documents of the archive. Several measurements are compared: their
/// courses on one axis, their rates by day and host, and their limits. The HTML file requests
/// nothing when it is opened, follows the light or dark theme of the system, and can be printed.
#[derive(Debug, Args)]
pub(crate) struct ReportArguments {
    /// JSON document, `-` for standard input; or the identifier of one in the archive, or the end
    /// of it
    #[arg(value_name = "FILE|ID", required_unless_present = "since")]
    sources: Vec<String>,
    /// Documents since this time: 30d, 12h, 2026-03-12
    #[arg(long, value_parser = parse_past_time, value_name = "TIME")]
    since: Option<Timestamp>,
    /// Write the result as one HTML file with charts
    #[arg(
        long,
        help_heading = "Output",
        value_name = "FILE",
        hide_short_help = true
    )]
    html: Option<PathBuf>,
    /// Print CSV, a row for each direction of each run
    #[arg(long, help_heading = "Output", conflicts_with_all = ["json_lines", "html"])]
    csv: bool,
    /// Print one JSON object a line for each document
    #[arg(long, help_heading = "Output", conflicts_with = "html")]
    json_lines: bool,
    #[command(flatten)]
    place: PlaceArgument,
}

impl RunCommand for ReportArguments {
    fn output(&self) -> OutputChoice<'_> {
        (OutputFormat::from_flags(false, self.json_lines), None)
    }

    fn run(&self, terminal: &Terminal) -> Result {
        let (files, ids): (Vec<&str>, Vec<&str>) = self
            .sources
            .iter()
            .map(String::as_str)
            .partition(|source| !is_identifier(source));
        let mut named: Vec<(String, Document)> = files
            .iter()
            .map(|file| Ok((name_of(file).to_owned(), read_document(file)?)))
            .collect::<Result<_>>()?;
        if self.csv || self.json_lines {
            let mut documents = facts_of(&named)?;
            documents.extend(self.stored_documents(&ids)?.1);
            facts::print_facts(documents, terminal.format);
            return Ok(());
        }
        let (store, stored) = self.stored_documents(&ids)?;
        if let Some(mut store) = store {
            named.extend(load_documents(&mut store, stored)?);
        }
        self.print_report(&named, terminal)
    }
}

impl ReportArguments {
    /// Returns the documents of the archive that are asked for, without their bodies, and the
    /// archive if it is needed.
    fn stored_documents(&self, ids: &[&str]) -> Result<(Option<Store>, Vec<StoredDocument>)> {
        if ids.is_empty() && self.since.is_none() {
            return Ok((None, Vec::new()));
        }
        let mut store = Store::open(&self.place.location()?)?;
        let mut stored = ids
            .iter()
            .map(|id| store.find_document(id))
            .collect::<Result<Vec<_>, _>>()?;
        if let Some(since) = self.since {
            stored.extend(store.list_documents(&DocumentFilter {
                since: Some(since),
                ..DocumentFilter::default()
            })?);
        }
        Ok((Some(store), stored))
    }

    fn print_report(&self, named: &[(String, Document)], terminal: &Terminal) -> Result {
        let sources: Vec<PageSource<'_>> = named
            .iter()
            .map(|(name, document)| PageSource { name, document })
            .collect();
        let Some(file) = &self.html else {
            let text = text_page(&sources).map_err(usage_failure)?;
            terminal.print_result(&text);
            return Ok(());
        };
        write_page(file, &sources)?;
        terminal.print_result(&format!("{}\n", file.display()));
        Ok(())
    }
}

/// Returns true for what can be the end of an identifier and is no file.
fn is_identifier(source: &str) -> bool {
    let is_hex = source
        .bytes()
        .all(|byte| byte.is_ascii_hexdigit() || byte == b'-');
    source.len() > 1 && is_hex && !Path::new(source).exists()
}

/// Returns the facts of documents in files.
fn facts_of(named: &[(String, Document)]) -> Result<Vec<StoredDocument>> {
    let mut all = Vec::new();
    for (name, document) in named {
        let of = NewDocument::from_document(document, Timestamp::now());
        if of.is_empty() {
            return Err(usage_failure(format!(
                "{name} has no run whose figures could be printed"
            )));
        }
        all.extend(of.into_iter().map(|new| new.head));
    }
    Ok(all)
}

/// Returns documents of the archive as they are to be shown: the whole of a few that fullpipe
/// wrote, and of others all together their facts, which is quick also of many.
fn load_documents(
    store: &mut Store,
    stored: Vec<StoredDocument>,
) -> Result<Vec<(String, Document)>> {
    let is_few = stored.len() <= MAX_WHOLE;
    let (whole, rest): (Vec<_>, Vec<_>) = stored
        .into_iter()
        .partition(|one| is_few && one.schema > 0 && !one.blake3.is_empty());
    let mut named = Vec::new();
    for document in whole {
        named.push((
            document.id.clone(),
            parse_document(&document, &store.document_body(&document)?)?,
        ));
    }
    if !rest.is_empty() || named.is_empty() {
        named.push((
            "archive".to_owned(),
            Document::new(Content::Stored { stored: rest }),
        ));
    }
    Ok(named)
}

fn parse_document(document: &StoredDocument, body: &[u8]) -> Result<Document> {
    Document::from_json(body).map_err(|error| super::document::not_a_document(&document.id, &error))
}
