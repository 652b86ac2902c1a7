//! Output to standard output or to a file.

use std::fs::{File, OpenOptions};
use std::io::{self, Write};
use std::path::Path;

use jiff::Zoned;
use jiff::fmt::strtime;

/// Writes results; puts the time before each line if the user asks for it.
#[derive(Debug)]
pub(super) struct ResultWriter {
    file: Option<File>,
    stamp: Option<String>,
}

impl ResultWriter {
    /// Appends to `logfile`, or writes to standard output. `stamp` is a format of strftime.
    pub(super) fn open(logfile: Option<&Path>, stamp: Option<&str>) -> Result<Self, String> {
        let file = logfile
            .map(|path| OpenOptions::new().append(true).create(true).open(path))
            .transpose()
            .map_err(|error| format!("unable to open log file: {error}"))?;
        if let Some(format) = stamp {
            strtime::format(format, &Zoned::now())
                .map_err(|error| format!("--timestamps={format}: {error}"))?;
        }
        Ok(Self {
            file,
            stamp: stamp.map(str::to_owned),
        })
    }

    /// Writes a part of the result, in whole lines.
    pub(super) fn write_text(&mut self, text: &str) {
        let text = self.prefix_timestamps(text);
        match &mut self.file {
            Some(file) => write_ignoring_errors(file, &text),
            None => write_ignoring_errors(&mut io::stdout(), &text),
        }
    }

    /// Writes an error into the file, or to standard error.
    pub(super) fn print_error(&mut self, sentence: &str) {
        let line = format!("iperf3: {sentence}\n");
        match &mut self.file {
            Some(file) => write_ignoring_errors(file, &line),
            None => write_ignoring_errors(&mut io::stderr(), &line),
        }
    }

    /// Writes a warning to standard error, also if there is a file.
    pub(super) fn print_warning(text: &str) {
        write_ignoring_errors(&mut io::stderr(), text);
    }

    fn prefix_timestamps(&self, text: &str) -> String {
        let Some(format) = &self.stamp else {
            return text.to_owned();
        };
        // The format was tried when the output was opened.
        let stamp = strtime::format(format, &Zoned::now()).unwrap_or_default();
        text.split_inclusive('\n')
            .fold(String::new(), |all, line| all + &stamp + line)
    }
}

/// A reader that went away, as `head` does, is no failure of ours.
fn write_ignoring_errors(to: &mut impl Write, text: &str) {
    let _ = to.write_all(text.as_bytes()).and_then(|()| to.flush());
}
