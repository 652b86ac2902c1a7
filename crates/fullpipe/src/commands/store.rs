use std::io::Write;

use clap::ArgGroup;
use fullpipe_record::{ArchiveReport, ImportedFile, StoredDocument};
use fullpipe_store::{
    ArchiveLocation, DocumentFilter, NewDocument, Redaction, Store, StoreError, read_import,
};
use jiff::Timestamp;

use super::facts;
use super::prelude::*;
use crate::input;
use crate::values::parse_past_time;

/// Keep results, and find them again.
///
/// The archive is a file of SQLite, or a database of PostgreSQL. Once it exists, `measure`,
/// `diagnose` and `lab run` keep their results in it, unless --no-store is given.
#[derive(Debug, Args)]
pub(crate) struct StoreArguments {
    #[command(flatten)]
    place: PlaceArgument,
    #[command(subcommand)]
    action: StoreAction,
}

#[derive(Debug, Subcommand)]
enum StoreAction {
    /// Make the archive, unless it exists
    Create {
        #[command(flatten)]
        json: JsonArgument,
    },
    /// Print the place and the size of the archive
    Path {
        #[command(flatten)]
        json: JsonArgument,
    },
    /// List documents, newest first
    List {
        #[command(flatten)]
        which: FilterArguments,
        /// Largest number of documents
        #[arg(long, default_value_t = 20, value_parser = integer_parser(1..=u32::MAX), value_name = "N")]
        limit: u32,
        #[command(flatten)]
        redact: RedactArgument,
        #[command(flatten)]
        json: JsonArgument,
    },
    /// Show one document
    Show {
        /// Identifier, or the end of it
        id: String,
        /// Print the document itself, as it was written
        #[arg(long, conflicts_with = "json")]
        original: bool,
        #[command(flatten)]
        redact: RedactArgument,
        #[command(flatten)]
        json: JsonArgument,
    },
    /// Keep results of other programs, and documents of fullpipe
    ///
    /// Reads JSON of iperf3 (-J and --json-stream), data of flent (.flent.gz), runs of pScheduler,
    /// and what fullpipe printed with --json. Makes the archive if there is none. A file that is
    /// refused does not keep the others out.
    Import {
        /// Files; `-` is standard input
        #[arg(required = true, value_name = "FILE")]
        files: Vec<PathBuf>,
        #[command(flatten)]
        json: JsonArgument,
    },
    /// Print the facts of documents for other programs
    Export {
        #[command(flatten)]
        which: FilterArguments,
        /// Print CSV, a row for each direction of each run: the default
        #[arg(long, conflicts_with = "json_lines")]
        csv: bool,
        /// Print one JSON object a line for each document
        #[arg(long)]
        json_lines: bool,
        #[command(flatten)]
        redact: RedactArgument,
    },
    /// Read every document, and compare with its hash and its facts
    Check {
        /// Derive facts again that differ from their document
        #[arg(long)]
        repair: bool,
        #[command(flatten)]
        json: JsonArgument,
    },
    /// Remove samples, or whole documents, that are old; facts remain
    #[command(group = ArgGroup::new("what").args(["samples", "documents"]).required(true).multiple(true))]
    Thin {
        /// Remove samples of documents older than this: 90d, 12w
        #[arg(long, value_parser = parse_past_time, value_name = "AGE")]
        samples: Option<Timestamp>,
        /// Remove the bodies of documents older than this: 2y
        #[arg(long, value_parser = parse_past_time, value_name = "AGE")]
        documents: Option<Timestamp>,
        #[command(flatten)]
        json: JsonArgument,
    },
}

/// Names in the result.
#[derive(Debug, Clone, Copy, Args)]
struct RedactArgument {
    /// Replace addresses, names and paths, the same everywhere
    #[arg(long, help_heading = "Output")]
    redact: bool,
}

/// The documents that are asked for.
#[derive(Debug, Clone, Args)]
struct FilterArguments {
    /// Documents about this other end, by name or address
    #[arg(long, value_name = "HOST")]
    peer: Option<String>,
    /// Documents of this kind: measurement, diagnosis, lab, foreign, …
    #[arg(long, value_name = "KIND")]
    kind: Option<String>,
    /// Documents of this campaign or scenario
    #[arg(long, value_name = "NAME")]
    campaign: Option<String>,
    /// Documents since this time: 30d, 12h, 2026-03-12
    #[arg(long, value_parser = parse_past_time, value_name = "TIME")]
    since: Option<Timestamp>,
}

impl FilterArguments {
    fn to_filter(&self, limit: Option<u32>) -> DocumentFilter {
        let Self {
            peer,
            kind,
            campaign,
            since,
        } = self.clone();
        DocumentFilter {
            peer,
            kind,
            campaign,
            since,
            limit,
            ..DocumentFilter::default()
        }
    }
}

impl RunCommand for StoreArguments {
    fn output(&self) -> OutputChoice<'_> {
        match &self.action {
            StoreAction::Create { json }
            | StoreAction::Path { json }
            | StoreAction::List { json, .. }
            | StoreAction::Show { json, .. }
            | StoreAction::Import { json, .. }
            | StoreAction::Check { json, .. }
            | StoreAction::Thin { json, .. } => json.output_choice(),
            StoreAction::Export { json_lines, .. } => {
                (OutputFormat::from_flags(false, *json_lines), None)
            }
        }
    }

    fn run(&self, terminal: &Terminal) -> Result {
        let place = self.place.location()?;
        match &self.action {
            StoreAction::Create { .. } => create_archive(&place, terminal),
            StoreAction::Path { .. } => describe_archive(&place, terminal),
            StoreAction::List {
                which,
                limit,
                redact,
                ..
            } => list_documents(&place, &which.to_filter(Some(*limit)), *redact, terminal),
            StoreAction::Show {
                id,
                original: true,
                redact,
                ..
            } => print_body(&place, id, *redact),
            StoreAction::Show { id, redact, .. } => show_document(&place, id, *redact, terminal),
            StoreAction::Import { files, .. } => import_files(&place, files, terminal),
            StoreAction::Export { which, redact, .. } => {
                export_facts(&place, &which.to_filter(None), *redact, terminal)
            }
            StoreAction::Check { repair, .. } => check_archive(&place, *repair, terminal),
            StoreAction::Thin {
                samples, documents, ..
            } => thin_archive(&place, *samples, *documents, terminal),
        }
    }
}

fn create_archive(place: &ArchiveLocation, terminal: &Terminal) -> Result {
    print_archive(Store::create(place)?.archive_report()?, terminal);
    Ok(())
}

/// Prints the archive as a whole, also if it does not exist.
fn describe_archive(place: &ArchiveLocation, terminal: &Terminal) -> Result {
    let archive = match Store::open(place) {
        Err(StoreError::Missing(location)) => ArchiveReport {
            location,
            ..ArchiveReport::default()
        },
        opened => opened?.archive_report()?,
    };
    print_archive(archive, terminal);
    Ok(())
}

fn print_archive(archive: ArchiveReport, terminal: &Terminal) {
    terminal.print_result(&report::archive_text(&archive));
    terminal.print_content(Content::Archive {
        archive: Box::new(archive),
    });
}

fn list_documents(
    place: &ArchiveLocation,
    filter: &DocumentFilter,
    redact: RedactArgument,
    terminal: &Terminal,
) -> Result {
    let stored = redact.redact_documents(Store::open(place)?.list_documents(filter)?);
    terminal.print_result(&report::document_list(&stored));
    terminal.print_content(Content::Stored { stored });
    Ok(())
}

impl RedactArgument {
    /// Returns the documents as they are to be printed.
    fn redact_documents(self, mut documents: Vec<StoredDocument>) -> Vec<StoredDocument> {
        if self.redact {
            let mut redaction = Redaction::default();
            for document in &documents {
                redaction.learn_document(document);
            }
            for document in &mut documents {
                *document = redaction.redact_document(document);
            }
        }
        documents
    }
}

fn show_document(
    place: &ArchiveLocation,
    id: &str,
    redact: RedactArgument,
    terminal: &Terminal,
) -> Result {
    let stored = redact.redact_documents(vec![Store::open(place)?.find_document(id)?]);
    for document in &stored {
        terminal.print_result(&report::stored_document(document));
    }
    terminal.print_content(Content::Stored { stored });
    Ok(())
}

/// Prints a document as it was written.
fn print_body(place: &ArchiveLocation, id: &str, redact: RedactArgument) -> Result {
    let mut store = Store::open(place)?;
    let document = store.find_document(id)?;
    let body = store.document_body(&document)?;
    let body = if redact.redact {
        redact_body(&document, &body)?
    } else {
        body
    };
    // A reader that went away, as `head` does, is no failure.
    let _ = Terminal::output_stream().write_all(&body);
    Ok(())
}

fn redact_body(document: &StoredDocument, body: &[u8]) -> Result<Vec<u8>> {
    let mut redaction = Redaction::default();
    redaction.learn_document(document);
    let text = redaction.redact_body(body);
    let text =
        text.ok_or_else(|| run_failure(format!("document {} is no JSON to redact", document.id)))?;
    Ok(text.into_bytes())
}

fn export_facts(
    place: &ArchiveLocation,
    filter: &DocumentFilter,
    redact: RedactArgument,
    terminal: &Terminal,
) -> Result {
    facts::print_facts(
        redact.redact_documents(Store::open(place)?.list_documents(filter)?),
        terminal.format,
    );
    Ok(())
}

fn check_archive(place: &ArchiveLocation, repair: bool, terminal: &Terminal) -> Result {
    let check = Store::open(place)?.check_documents(repair)?;
    let is_good = check.damaged.is_empty() && check.database.is_empty();
    terminal.print_result(&report::archive_check(&check));
    terminal.print_content(Content::ArchiveCheck {
        archive_check: Box::new(check),
    });
    Failure::after_report(None, false, is_good)
}

fn thin_archive(
    place: &ArchiveLocation,
    samples: Option<Timestamp>,
    documents: Option<Timestamp>,
    terminal: &Terminal,
) -> Result {
    let thinned = Store::open(place)?.thin_documents(samples, documents)?;
    terminal.print_result(&report::archive_thinned(&thinned));
    terminal.print_content(Content::ArchiveThinned {
        archive_thinned: thinned,
    });
    Ok(())
}

/// Keeps each file; fails behind the report of all if one was refused.
fn import_files(place: &ArchiveLocation, files: &[PathBuf], terminal: &Terminal) -> Result {
    let mut store = None;
    let mut imported = Vec::new();
    for file in files {
        imported.push(import_file(&mut store, place, file)?);
    }
    let refused = imported.iter().filter(|file| file.error.is_some()).count();
    let message = match files.len() {
        1 => "the file was refused".to_owned(),
        all => format!("{refused} of {all} files were refused"),
    };
    let error = (refused > 0).then_some(ErrorReport {
        message,
        exit_code: USAGE,
    });
    terminal.print_result(&report::imported_files(&imported));
    terminal.print_report(Content::Imported { imported }, error.as_ref());
    Failure::after_report(error.as_ref(), false, true)
}

/// Keeps the documents in a file, in an archive that is made with the first of them.
///
/// # Errors
/// Fails if the archive refuses; a file that is malformed is a result.
fn import_file(
    store: &mut Option<Store>,
    place: &ArchiveLocation,
    file: &Path,
) -> Result<ImportedFile> {
    let name = file.display().to_string();
    let documents = input::read_input(file)
        .map_err(|error| format!("it cannot be read: {error}"))
        .and_then(|bytes| read_import(&bytes, Timestamp::now()));
    let documents = match documents {
        Ok(documents) => documents,
        Err(error) => {
            return Ok(ImportedFile {
                file: name,
                error: Some(error),
                ..ImportedFile::default()
            });
        }
    };
    let store = match store {
        Some(store) => store,
        none => none.insert(Store::create(place)?),
    };
    put_documents(store, &documents, name)
}

fn put_documents(
    store: &mut Store,
    documents: &[NewDocument],
    file: String,
) -> Result<ImportedFile> {
    let kept: Vec<_> = documents
        .iter()
        .map(|document| store.put_document(document))
        .collect::<Result<_, _>>()?;
    Ok(ImportedFile {
        file,
        known: kept
            .iter()
            .filter(|kept| !kept.is_new && !kept.is_restored)
            .count() as u64,
        restored: kept.iter().filter(|kept| kept.is_restored).count() as u64,
        ids: kept.into_iter().map(|kept| kept.id).collect(),
        kind: documents.first().map(|document| document.head.kind.clone()),
        error: None,
    })
}
