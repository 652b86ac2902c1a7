//! The only place that prints.

use std::io::{self, IsTerminal, Write};

use fullpipe_record::{Document, ErrorReport};
use fullpipe_report::{Style, document};

use crate::failure::Failure;

/// Where results and progress go, and how they look.
#[derive(Debug)]
pub(crate) struct Terminal {
    json: bool,
    quiet: bool,
    style: Style,
}

impl Terminal {
    /// With `json`, standard output belongs to the one document. With `quiet`, only results are printed.
    pub(crate) fn new(json: bool, quiet: bool) -> Self {
        let plain = json || !io::stdout().is_terminal() || std::env::var_os("NO_COLOR").is_some_and(|v| !v.is_empty());
        Self { json, quiet, style: if plain { Style::PLAIN } else { Style::COLOR } }
    }

    pub(crate) fn style(&self) -> Style {
        self.style
    }

    /// Part of the result as text; nothing where the result is JSON.
    pub(crate) fn result(&self, text: &str) {
        if !self.json {
            print(&mut io::stdout(), text);
        }
    }

    /// What happens meanwhile; nothing where the result is JSON or little was asked for.
    pub(crate) fn progress(&self, text: &str) {
        if !self.json && !self.quiet {
            print(&mut io::stdout(), text);
        }
    }

    /// The result as JSON; nothing where it is text.
    pub(crate) fn document(&self, result: &Document) {
        if self.json {
            print(&mut io::stdout(), &document(result));
        }
    }

    /// One line that another program reads, whatever else was asked for.
    pub(crate) fn line(text: &str) {
        print(&mut io::stdout(), &format!("{text}\n"));
    }

    /// What the user should know although it is no result.
    pub(crate) fn notice(&self, text: &str) {
        if !self.quiet {
            print(&mut io::stderr(), &format!("fullpipe: {text}\n"));
        }
    }

    /// Why the program ends without success: a sentence on standard error, and a document where JSON was asked for.
    pub(crate) fn failure(&self, failure: &Failure) {
        if failure.message.is_empty() {
            return;
        }
        print(&mut io::stderr(), &format!("fullpipe: {}\n", failure.message));
        let error = ErrorReport { message: failure.message.clone(), exit_code: failure.code };
        self.document(&Document { error: Some(error), ..Document::new() });
    }
}

/// A reader that went away, as `head` does, is no failure of ours.
fn print(to: &mut impl Write, text: &str) {
    let _ = to.write_all(text.as_bytes()).and_then(|()| to.flush());
}
