use std::path::PathBuf;

use fullpipe_record::Document;
use fullpipe_report::{Source, text_page};

use crate::commands::Run;
use crate::commands::document::{name_of, read};
use crate::failure::{Failure, USAGE};
use crate::terminal::{Terminal, write_page};

/// Results as a page with charts: one HTML file, or text.
///
/// Reads what demo, measure, diagnose, lab, simulate and trace printed with --json. Several measurements are compared:
/// their courses on one axis, their rates by day and host, and their limits. The HTML file requests nothing when it is
/// opened, follows the light or dark theme of the system, and can be printed.
#[derive(Debug, clap::Args)]
pub(crate) struct Arguments {
    /// JSON document; `-` is standard input
    #[arg(value_name = "FILE", required = true)]
    files: Vec<String>,
    /// Write the result as one HTML file with charts
    #[arg(long, help_heading = "Output", value_name = "FILE", hide_short_help = true)]
    html: Option<PathBuf>,
}

impl Run for Arguments {
    fn run(&self, terminal: &Terminal) -> Result<(), Failure> {
        let documents: Vec<Document> = self.files.iter().map(|file| read(file)).collect::<Result<_, _>>()?;
        let named = self.files.iter().zip(&documents);
        let sources: Vec<Source<'_>> = named.map(|(file, document)| Source { name: name_of(file), document }).collect();
        let Some(file) = &self.html else {
            let text = text_page(&sources, terminal.style()).map_err(|error| Failure::new(USAGE, error.to_string()))?;
            terminal.result(&text);
            return Ok(());
        };
        write_page(file, &sources)?;
        terminal.result(&format!("{}\n", file.display()));
        Ok(())
    }
}
