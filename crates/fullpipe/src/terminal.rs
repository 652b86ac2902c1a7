//! The only place that prints.

use std::io::{self, IsTerminal, Write};

use fullpipe_experiment::MeasureEvent;
use fullpipe_record::{Document, ErrorReport};
use fullpipe_report::{Style, document};

use crate::failure::Failure;

/// What standard output is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Format {
    /// Text for people.
    Text,
    /// One JSON document.
    Json,
    /// One JSON object a line, as things happen.
    JsonLines,
}

/// Where results and progress go, and how they look.
#[derive(Debug)]
pub(crate) struct Terminal {
    format: Format,
    quiet: bool,
    style: Style,
}

impl Terminal {
    /// With `quiet`, only results are printed.
    pub(crate) fn new(format: Format, quiet: bool) -> Self {
        let plain = format != Format::Text
            || !io::stdout().is_terminal()
            || std::env::var_os("NO_COLOR").is_some_and(|v| !v.is_empty());
        Self { format, quiet, style: if plain { Style::PLAIN } else { Style::COLOR } }
    }

    pub(crate) fn style(&self) -> Style {
        self.style
    }

    /// Part of the result as text; nothing where the result is JSON.
    pub(crate) fn result(&self, text: &str) {
        if self.format == Format::Text {
            print(&mut io::stdout(), text);
        }
    }

    /// What happens meanwhile; nothing where the result is JSON or little was asked for.
    pub(crate) fn progress(&self, text: &str) {
        if self.format == Format::Text && !self.quiet {
            print(&mut io::stdout(), text);
        }
    }

    /// The result as JSON; nothing where it is text or events.
    pub(crate) fn document(&self, result: &Document) {
        if self.format == Format::Json {
            print(&mut io::stdout(), &document(result));
        }
    }

    /// What happened as one line of JSON; nothing where the result is text or a document.
    pub(crate) fn event(&self, event: &MeasureEvent) {
        if self.format == Format::JsonLines
            && let Ok(line) = serde_json::to_string(event)
        {
            Self::line(&line);
        }
    }

    /// One line that another program reads, whatever else was asked for.
    pub(crate) fn line(text: &str) {
        print(&mut io::stdout(), &format!("{text}\n"));
    }

    /// Where rows go that are too many to be held; whoever writes there minds a reader that went away.
    pub(crate) fn stream() -> impl Write {
        io::stdout().lock()
    }

    /// What the user answers; `None` where nobody is there to ask.
    pub(crate) fn ask(question: &str) -> Option<String> {
        if !io::stdin().is_terminal() || !io::stderr().is_terminal() {
            return None;
        }
        print(&mut io::stderr(), question);
        let mut answer = String::new();
        io::stdin().read_line(&mut answer).ok()?;
        Some(answer)
    }

    /// What the user should know although it is no result.
    pub(crate) fn notice(&self, text: &str) {
        if !self.quiet {
            print(&mut io::stderr(), &format!("fullpipe: {text}\n"));
        }
    }

    /// One sentence on standard error, whatever else was asked for.
    pub(crate) fn complain(sentence: &str) {
        print(&mut io::stderr(), &format!("fullpipe: {sentence}\n"));
    }

    /// Why the program ends without success: a sentence on standard error, and a document or an event where JSON was
    /// asked for.
    pub(crate) fn failure(&self, failure: &Failure) {
        if failure.message.is_empty() {
            return;
        }
        Self::complain(&failure.message);
        let error = ErrorReport { message: failure.message.clone(), exit_code: failure.code };
        self.event(&MeasureEvent::Error(error.clone()));
        self.document(&Document { error: Some(error), ..Document::new() });
    }
}

/// A reader that went away, as `head` does, is no failure of ours.
fn print(to: &mut impl Write, text: &str) {
    let _ = to.write_all(text.as_bytes()).and_then(|()| to.flush());
}
