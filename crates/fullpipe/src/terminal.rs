//! The only place that prints.

#[cfg(target_os = "linux")]
mod keys;

#[cfg(target_os = "linux")]
pub(crate) use self::keys::KeyReader;
use std::borrow::Cow;
use std::collections::VecDeque;
use std::io::{self, IsTerminal, StdoutLock, Write};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, MutexGuard, OnceLock, PoisonError};

use fullpipe_record::{Content, Document, ErrorReport, Event, EventLine};
use fullpipe_report::{DEFAULT_COLUMNS, PageSource, html_page, set_columns, without_marks};
use fullpipe_units::printable_line;

use crate::failure::{Failure, Result, cannot, run_failure, usage_failure};
use crate::whole_file::WholeFile;

/// Format of standard output.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum OutputFormat {
    /// Text for people.
    Text,
    /// One JSON document.
    Json,
    /// One JSON object a line, as things happen.
    JsonLines,
}

impl OutputFormat {
    /// Returns the form that the flags `--json` and `--json-lines` ask for.
    pub(crate) fn from_flags(json: bool, json_lines: bool) -> Self {
        match (json, json_lines) {
            (_, true) => Self::JsonLines,
            (true, false) => Self::Json,
            (false, false) => Self::Text,
        }
    }
}

/// Variable of the environment for whoever wants both forms of a result: where it is set, the text
/// goes to standard error if standard output has JSON.
pub(crate) const TEXT_ASIDE: &str = "FULLPIPE_TEXT_ASIDE";

/// Characters of a status line that fit every terminal.
const STATUS_WIDTH: usize = 79;

/// Prints results and progress in the format that the user asked for.
#[derive(Debug)]
pub(crate) struct Terminal {
    pub(crate) format: OutputFormat,
    quiet: bool,
    has_colours: bool,
    /// Set if the text goes to standard error where standard output has JSON.
    text_aside: bool,
    /// File for the result as a page.
    page: Option<PathBuf>,
    /// Set if that file could not be written.
    lacks_page: AtomicBool,
}

impl Terminal {
    /// Returns a terminal for this format; with `quiet` it prints results only.
    pub(crate) fn new(format: OutputFormat, quiet: bool) -> Self {
        set_columns(terminal_columns());
        let has_colours = format == OutputFormat::Text && shows_colours(&io::stdout());
        Self {
            format,
            quiet,
            has_colours,
            text_aside: std::env::var_os(TEXT_ASIDE).is_some(),
            page: None,
            lacks_page: AtomicBool::new(false),
        }
    }

    /// Returns the same terminal, which writes the result to `file` as a page, too.
    pub(crate) fn with_page(self, file: Option<&Path>) -> Self {
        Self {
            page: file.map(Path::to_owned),
            ..self
        }
    }

    /// Returns true if the page could not be written, which has been printed then.
    pub(crate) fn lacks_page(&self) -> bool {
        self.lacks_page.load(Ordering::Relaxed)
    }

    /// Returns the failure of a program whose standard output did not take everything, as on a full
    /// disk.
    pub(crate) fn output_failure() -> Option<Failure> {
        let why = UNWRITTEN.get()?;
        Some(run_failure(format!(
            "standard output is not complete: {why}"
        )))
    }

    /// Prints a part of the result as text; if the result is JSON, prints nothing, or on standard
    /// error where that was asked for.
    pub(crate) fn print_result(&self, text: &str) {
        if self.format == OutputFormat::Text {
            self.print_marked(text);
        } else if self.text_aside {
            print_text(StandardStream::Error, &without_marks(text));
        }
    }

    /// Returns true if progress is printed.
    pub(crate) fn shows_progress(&self) -> bool {
        self.format == OutputFormat::Text && !self.quiet
    }

    /// Prints progress; prints nothing if the result is JSON or with `quiet`.
    pub(crate) fn print_progress(&self, text: &str) {
        if self.shows_progress() {
            self.print_marked(text);
        }
    }

    /// Prints text of a report, with its colours if the terminal shows them.
    fn print_marked(&self, text: &str) {
        if self.has_colours {
            print_text(StandardStream::Output, text);
        } else {
            print_text(StandardStream::Output, &without_marks(text));
        }
    }

    /// Prints the result as JSON, but not if it is text or events; and writes it as a page, if that
    /// was asked for.
    pub(crate) fn print_document(&self, result: &Document) {
        self.print_json(result);
        let Some(file) = &self.page else { return };
        if let Err(failure) = write_page(
            file,
            &[PageSource {
                name: "",
                document: result,
            }],
        ) {
            self.lacks_page.store(true, Ordering::Relaxed);
            Self::print_error(&failure.message);
        }
    }

    /// Prints what a command has found as JSON, and as a page.
    pub(crate) fn print_content(&self, content: Content) {
        self.print_document(&Document::new(content));
    }

    /// Prints what a command has found as JSON, with the error after which it ended, which is
    /// printed as text, too.
    pub(crate) fn print_report(&self, content: Content, error: Option<&ErrorReport>) -> Document {
        if let Some(error) = error {
            Self::print_error(&error.message);
            self.print_event(&Event::Error(error.clone()));
        }
        let document = Document::new(content).with_error(error.cloned());
        self.print_document(&document);
        document
    }

    fn print_json(&self, result: &Document) {
        if self.format == OutputFormat::Json {
            print_text(StandardStream::Output, &result.to_indented_json());
        }
    }

    /// Prints an event as one line of JSON; prints nothing if the result is text or a document.
    pub(crate) fn print_event(&self, event: &Event) {
        if self.format == OutputFormat::JsonLines {
            Self::print_line(&event_line(
                event,
                &current_time_text(jiff::Unit::Millisecond),
            ));
        }
    }

    /// Prints a status line: in place of the last one on a terminal, below it elsewhere. Prints
    /// nothing if the result is JSON or with `quiet`.
    pub(crate) fn print_live_status(&self, text: &str) {
        if !Self::can_redraw() {
            return self.print_progress(&format!("{text}\n"));
        }
        // A line over the edge could not be replaced.
        let shown: String = text.chars().take(terminal_columns() - 1).collect();
        self.print_progress(&format!("\r{shown}\x1b[K"));
    }

    /// Prints a status line on standard error if that is a terminal, in place of the last one; an
    /// empty one removes it. Prints nothing with `quiet`.
    pub(crate) fn print_status_line(&self, text: &str) {
        if !self.quiet && io::stderr().is_terminal() && !is_dumb() {
            let shown: String = text.chars().take(STATUS_WIDTH).collect();
            print_text(StandardStream::Error, &format!("\r{shown}\x1b[K"));
        }
    }

    /// Returns true if a line of standard output can be replaced by another.
    pub(crate) fn can_redraw() -> bool {
        io::stdout().is_terminal() && !is_dumb()
    }

    /// Prints one line that another program reads, in every format and also with `quiet`.
    pub(crate) fn print_line(text: &str) {
        print_text(StandardStream::Output, &format!("{text}\n"));
    }

    /// Returns standard output, for rows that are too many to hold in memory, and for bytes that
    /// may be no text. That it does not take everything is reported when the program ends; a reader
    /// that went away, as `head` does, is an error for the caller alone.
    pub(crate) fn output_stream() -> impl Write {
        StandardOutput(io::stdout().lock())
    }

    /// Returns true if a user can read a question and press a key.
    pub(crate) fn can_ask() -> bool {
        io::stdin().is_terminal() && io::stdout().is_terminal()
    }

    /// Returns the user's answer; `None` if no user can be asked.
    pub(crate) fn ask_user(question: &str) -> Option<String> {
        if !io::stdin().is_terminal() || !io::stderr().is_terminal() {
            return None;
        }
        print_text(StandardStream::Error, question);
        let mut answer = String::new();
        io::stdin().read_line(&mut answer).ok()?;
        Some(answer)
    }

    /// Prints a notice, which is no part of the result, on standard error.
    pub(crate) fn print_notice(&self, text: &str) {
        if !self.quiet {
            Self::print_error(text);
        }
    }

    /// Prints an error on standard error, in every format and also with `quiet`, in one line that
    /// commands no terminal: files may have any name.
    pub(crate) fn print_error(sentence: &str) {
        print_text(
            StandardStream::Error,
            &format!("fullpipe: {}\n", printable_line(sentence)),
        );
    }

    /// Prints the reason for which the program fails: a sentence on standard error, and a document
    /// or an event if the result is JSON. Returns the exit code.
    pub(crate) fn print_failure(&self, failure: Failure) -> u8 {
        let code = failure.code;
        if !failure.message.is_empty() {
            Self::print_error(&failure.message);
            let error = ErrorReport::from(failure);
            self.print_event(&Event::Error(error.clone()));
            self.print_json(&Document::from_error(error));
        }
        code
    }
}

/// Writes results as a page.
///
/// # Errors
/// Fails if a document has no result that a page can show, or the file cannot be written.
pub(crate) fn write_page(file: &Path, sources: &[PageSource<'_>]) -> Result {
    let page = html_page(sources).map_err(usage_failure)?;
    let written = WholeFile::create(file).and_then(|mut whole| {
        whole.file.write_all(page.as_bytes())?;
        whole.rename_into_place()
    });
    written.map_err(cannot(&format!("write the page {}", file.display())))
}

/// Returns true if the user sees colours there, and wants them.
pub(crate) fn shows_colours(stream: &impl IsTerminal) -> bool {
    stream.is_terminal()
        && !is_dumb()
        && std::env::var_os("NO_COLOR").is_none_or(|value| value.is_empty())
}

/// Returns the columns of the terminal that shows standard output, or the default where no terminal
/// does, where its width is 0 (not set), and on other systems than Linux.
pub(crate) fn terminal_columns() -> usize {
    #[cfg(target_os = "linux")]
    if let Some(columns) = keys::columns_of_output() {
        return columns;
    }
    DEFAULT_COLUMNS
}

/// Returns true for a terminal that takes lines only.
fn is_dumb() -> bool {
    std::env::var_os("TERM").is_some_and(|kind| kind == "dumb")
}

/// Returns the time, to the millisecond.
pub(crate) fn current_time_text(to: jiff::Unit) -> String {
    jiff::Timestamp::now()
        .round(to)
        .map(|now| now.to_string())
        .unwrap_or_default()
}

/// Returns an event as a line of JSON, without the end of the line.
pub(crate) fn event_line(event: &Event, time: &str) -> String {
    let line = EventLine {
        time: time.to_owned(),
        event: Cow::Borrowed(event),
    };
    serde_json::to_string(&line).unwrap_or_default()
}

/// A standard stream.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum StandardStream {
    Output,
    Error,
}

impl StandardStream {
    fn is_terminal(self) -> bool {
        match self {
            Self::Output => io::stdout().is_terminal(),
            Self::Error => io::stderr().is_terminal(),
        }
    }

    /// A reader that went away, as `head` does, is no failure of ours.
    fn write(self, text: &str) {
        fn write(to: &mut impl Write, text: &str) -> io::Result<()> {
            to.write_all(text.as_bytes()).and_then(|()| to.flush())
        }
        // What standard output does not take is noted, and nobody is left who could be informed of
        // the rest.
        let _ = match self {
            Self::Output => write(&mut StandardOutput(io::stdout().lock()), text),
            Self::Error => write(&mut io::stderr(), text),
        };
    }
}

/// Standard output, which notes what it does not take, and is flushed at its end.
struct StandardOutput(StdoutLock<'static>);

impl StandardOutput {
    fn record_write_error<R>(result: io::Result<R>) -> io::Result<R> {
        if let Err(error) = &result
            && ![io::ErrorKind::BrokenPipe, io::ErrorKind::Interrupted].contains(&error.kind())
        {
            // The first reason is the one that is reported.
            let _ = UNWRITTEN.set(error.to_string());
        }
        result
    }
}

impl Write for StandardOutput {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        Self::record_write_error(self.0.write(bytes))
    }

    fn flush(&mut self) -> io::Result<()> {
        Self::record_write_error(self.0.flush())
    }
}

impl Drop for StandardOutput {
    fn drop(&mut self) {
        let _ = self.flush();
    }
}

/// The reason for which standard output did not take a text.
static UNWRITTEN: OnceLock<String> = OnceLock::new();

/// Texts that wait for a picture to leave the terminal, the oldest first; `None` without a picture.
static WAITING: Mutex<Option<VecDeque<(StandardStream, String)>>> = Mutex::new(None);

/// Texts that may wait: the picture of a server may stay for months. The oldest are left out.
const MAX_WAITING: usize = 10_000;

/// As long as this lives, what is printed on a terminal waits, and then appears.
pub(crate) struct OutputHold(());

impl OutputHold {
    pub(crate) fn start_hold() -> Self {
        *lock_held_output() = Some(VecDeque::new());
        Self(())
    }
}

impl Drop for OutputHold {
    fn drop(&mut self) {
        let held = lock_held_output().take();
        held.into_iter()
            .flatten()
            .for_each(|(stream, text)| stream.write(&text));
    }
}

fn lock_held_output() -> MutexGuard<'static, Option<VecDeque<(StandardStream, String)>>> {
    WAITING.lock().unwrap_or_else(PoisonError::into_inner)
}

fn print_text(to: StandardStream, text: &str) {
    if let Some(held) = lock_held_output().as_mut().filter(|_| to.is_terminal()) {
        held.push_back((to, text.to_owned()));
        if held.len() > MAX_WAITING {
            held.pop_front();
        }
        return;
    }
    to.write(text);
}

/// Standard error for the log.
pub(crate) struct LogWriter;

impl Write for LogWriter {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        print_text(StandardStream::Error, &String::from_utf8_lossy(bytes));
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}
