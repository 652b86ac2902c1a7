//! Changes, on disk before they are made: a file of JSON lines for each network namespace and boot.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::time::SystemTime;

use fullpipe_units::printable_line;
use rustix::fs::OFlags;
use serde::{Deserialize, Serialize};
use tracing::debug;

use crate::entry::JournalEntry;
use crate::journal_error::{JournalError, JournalResult};
use crate::setting::replace_file;

/// Size of the largest file that is believed, in bytes: more than any use writes.
const MAX_FILE: u64 = 16 << 20;

/// Of the names of journals.
const EXTENSION: &str = "jsonl";

/// The version of what is written here.
const VERSION: u32 = 1;

/// Whose settings a journal is about.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct Origin {
    /// Changes with each boot, at which every setting is the kernel's again.
    boot: String,
    /// Inode of the network namespace.
    namespace: u64,
    /// Cookie of the network namespace: inodes are used again, cookies are not. Zero before Linux
    /// 5.14.
    cookie: u64,
    /// True if it is the namespace of the machine's, or the container's, first process: there again
    /// after a boot.
    initial: bool,
}

impl Origin {
    /// Of the calling thread.
    pub(crate) fn of_calling_thread() -> io::Result<Self> {
        let namespace = fs::metadata("/proc/thread-self/ns/net")?.ino();
        Ok(Self {
            boot: fs::read_to_string("/proc/sys/kernel/random/boot_id")?
                .trim()
                .to_owned(),
            namespace,
            cookie: fullpipe_sys::network_cookie().unwrap_or(0),
            // Who may not look at the first process is not in its namespaces.
            initial: fs::metadata("/proc/1/ns/net").is_ok_and(|first| first.ino() == namespace),
        })
    }

    /// Returns the relation of a journal of this origin to the process that reads it here.
    pub(crate) fn seen_from(&self, here: &Self) -> JournalRelation {
        // The first process may enter and leave the namespace meanwhile.
        let is_same = (self.namespace, self.cookie) == (here.namespace, here.cookie);
        match (self.boot == here.boot, self.initial) {
            (true, _) if is_same => JournalRelation::Ours,
            (false, true) if here.initial => JournalRelation::BeforeBoot,
            (true, _) | (false, true) => JournalRelation::Elsewhere,
            (false, false) => JournalRelation::Gone,
        }
    }

    pub(crate) fn is_initial(&self) -> bool {
        self.initial
    }

    fn file_name(&self) -> String {
        format!(
            "host-{}-{}-{}.{EXTENSION}",
            self.boot, self.namespace, self.cookie
        )
    }
}

/// The relation of a journal to the process that reads it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum JournalRelation {
    /// Of this namespace, since it was made.
    Ours,
    /// Of another namespace.
    Elsewhere,
    /// Of this machine's first namespace, before it booted.
    BeforeBoot,
    /// Of a namespace that went with its boot.
    Gone,
}

#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Line {
    /// The first.
    Opened { version: u32, origin: Origin },
    /// Begins a group of changes, which lasts `temporary` seconds unless it is confirmed.
    Apply { id: String, temporary: Option<u64> },
    /// About to be written.
    Change(JournalEntry),
    /// As what the change before it was read back, where that says more than what was wanted.
    Made { text: String },
    /// To stay.
    Confirmed { id: String },
}

/// A journal that is damaged, or of another version.
pub(crate) struct UnreadableJournal {
    pub path: PathBuf,
    /// Of its name.
    boot: String,
    pub error: JournalError,
}

impl UnreadableJournal {
    /// The relation by its name: of this namespace, of another that may still be there, or of an
    /// earlier boot.
    pub(crate) fn seen_from(&self, here: &Origin) -> JournalRelation {
        if self
            .path
            .file_name()
            .is_some_and(|name| *name == *here.file_name())
        {
            JournalRelation::Ours
        } else if self.boot == here.boot {
            JournalRelation::Elsewhere
        } else {
            JournalRelation::BeforeBoot
        }
    }
}

/// One file.
#[derive(Debug)]
pub(crate) struct Journal {
    path: PathBuf,
    origin: Origin,
    lines: Vec<Line>,
    /// Of the whole lines; what is behind them was being written when somebody died, and was not
    /// carried out.
    length: u64,
}

impl Journal {
    /// The journal of `origin` in `folder`; an empty one where there is none yet.
    pub(crate) fn for_origin(folder: &Path, origin: &Origin) -> JournalResult<Self> {
        let path = folder.join(origin.file_name());
        let found = if path.exists() {
            Self::read(&path)?
        } else {
            None
        };
        Ok(found.unwrap_or_else(|| Self {
            path,
            origin: origin.clone(),
            lines: Vec::new(),
            length: 0,
        }))
    }

    /// All journals in `folder`, the latest first, and those that cannot be read. One in which
    /// nothing whole was written is removed: whoever made it died before the first change. Files of
    /// other names do not count. The caller holds the lock.
    pub(crate) fn read_all(folder: &Path) -> JournalResult<(Vec<Self>, Vec<UnreadableJournal>)> {
        let files = journal_files(folder).map_err(JournalError::on_path("read", folder))?;
        let (mut journals, mut unreadable) = (Vec::new(), Vec::new());
        for (_, path, boot) in files.into_iter().rev() {
            match Self::read(&path) {
                Ok(Some(journal)) => journals.push(journal),
                Ok(None) => {
                    fs::remove_file(&path).map_err(JournalError::on_path("read", folder))?;
                }
                Err(error) => unreadable.push(UnreadableJournal { path, boot, error }),
            }
        }
        Ok((journals, unreadable))
    }

    /// None where nothing whole was written.
    fn read(path: &Path) -> JournalResult<Option<Self>> {
        let mut bytes = Vec::new();
        open_regular(OpenOptions::new().read(true), path)
            .and_then(|file| file.take(MAX_FILE + 1).read_to_end(&mut bytes))
            .map_err(JournalError::on_path("read", path))?;
        Self::parse(path, &bytes).map_err(|(line, why)| JournalError::Malformed {
            path: path.to_owned(),
            line,
            why,
        })
    }

    /// Fails with the number of the malformed line and the reason.
    fn parse(path: &Path, bytes: &[u8]) -> Result<Option<Self>, (usize, String)> {
        if bytes.len() as u64 > MAX_FILE {
            return Err((0, format!("longer than {MAX_FILE} bytes")));
        }
        let Some(end) = bytes.iter().rposition(|byte| *byte == b'\n') else {
            return Ok(None);
        };
        let numbered = bytes[..end].split(|byte| *byte == b'\n').zip(1..);
        let lines = numbered
            .map(|(line, number)| parse_line(line).map_err(|why| (number, why)))
            .collect::<Result<Vec<Line>, _>>()?;
        let Some(Line::Opened {
            version: VERSION,
            origin,
        }) = lines.first()
        else {
            return Err((1, "not how a journal of this version begins".to_owned()));
        };
        Ok(Some(Self {
            path: path.to_owned(),
            origin: origin.clone(),
            lines,
            length: end as u64 + 1,
        }))
    }

    pub(crate) fn origin(&self) -> &Origin {
        &self.origin
    }

    /// The changes since and including apply `id`, or all, in the order in which they were made.
    pub(crate) fn entries_since(&self, since: Option<&str>) -> Vec<JournalEntry> {
        let from = self
            .lines
            .iter()
            .position(|line| since.is_some_and(|since| is_apply(line, since)));
        let mut changes: Vec<JournalEntry> = Vec::new();
        for line in self.lines.iter().skip(from.unwrap_or(0)) {
            match (line, changes.last_mut()) {
                (Line::Change(entry), _) => changes.push(entry.clone()),
                (Line::Made { text }, Some(change)) => change.made = Some(text.clone()),
                _ => {}
            }
        }
        changes
    }

    /// The apply that waits for somebody to confirm it.
    pub(crate) fn pending_apply(&self) -> Option<&str> {
        self.lines.iter().find_map(|line| match line {
            Line::Apply {
                id,
                temporary: Some(_),
            } if !self.is_confirmed(id) => Some(id.as_str()),
            _ => None,
        })
    }

    fn is_confirmed(&self, apply: &str) -> bool {
        self.lines
            .iter()
            .any(|line| matches!(line, Line::Confirmed { id } if id == apply))
    }

    /// Writes `line` and has it on the disk before it returns.
    pub(crate) fn append_line(&mut self, line: Line) -> JournalResult {
        if self.lines.is_empty() {
            self.write_line(Line::Opened {
                version: VERSION,
                origin: self.origin.clone(),
            })?;
        }
        self.write_line(line)
    }

    fn write_line(&mut self, line: Line) -> JournalResult {
        debug!(journal = %self.path.display(), ?line, "writing to the journal");
        self.length += line_text(&line)
            .and_then(|text| self.write_text(&text))
            .map_err(JournalError::on_path("write", &self.path))?;
        self.lines.push(line);
        Ok(())
    }

    /// Returns the number of bytes written.
    fn write_text(&self, text: &str) -> io::Result<u64> {
        let mut file = open_private(&self.path)?;
        // A line that somebody died over must not become the beginning of this one.
        file.set_len(self.length)?;
        file.seek(SeekFrom::Start(self.length))?;
        file.write_all(text.as_bytes())?;
        file.sync_all()?;
        if self.lines.is_empty() {
            File::open(self.path.parent().unwrap_or(Path::new(".")))?.sync_all()?;
        }
        Ok(text.len() as u64)
    }

    /// Takes apply `id` and what follows it out of the journal, or everything, but for `kept`. A
    /// journal without a change is removed.
    pub(crate) fn forget_entries(
        &mut self,
        since: Option<&str>,
        kept: Vec<JournalEntry>,
    ) -> JournalResult {
        let from = since.and_then(|since| self.lines.iter().position(|line| is_apply(line, since)));
        self.lines.truncate(from.unwrap_or(1));
        for entry in kept {
            let made = entry.made.clone().map(|text| Line::Made { text });
            self.lines.push(Line::Change(entry));
            self.lines.extend(made);
        }
        let is_empty = !self
            .lines
            .iter()
            .any(|line| matches!(line, Line::Change(_)));
        self.length = self
            .lines
            .iter()
            .map(line_text)
            .collect::<io::Result<String>>()
            .and_then(|text| {
                replace_file(&self.path, (!is_empty).then_some(text.as_str()))?;
                Ok(text.len() as u64)
            })
            .map_err(JournalError::on_path("write", &self.path))?;
        Ok(())
    }
}

/// Returns the files in `folder` that have names of journals, the earliest first, each with its time
/// and its boot.
fn journal_files(folder: &Path) -> io::Result<Vec<(SystemTime, PathBuf, String)>> {
    let mut files = Vec::new();
    for entry in fs::read_dir(folder)? {
        let entry = entry?;
        if let Some(boot) = entry.file_name().to_str().and_then(boot_of) {
            files.push((entry.metadata()?.modified()?, entry.path(), boot.to_owned()));
        }
    }
    files.sort();
    Ok(files)
}

/// Opens a regular file of this user's alone for writing, which is made if it is not there.
///
/// # Errors
/// Fails if it cannot be opened, or is no regular file.
pub(crate) fn open_private(path: &Path) -> io::Result<File> {
    let mut options = OpenOptions::new();
    open_regular(
        options.write(true).create(true).truncate(false).mode(0o600),
        path,
    )
}

/// Opens a regular file, and does not wait if it is another one: a pipe would open only when its
/// other end does.
///
/// # Errors
/// Fails if it cannot be opened, or is none.
fn open_regular(options: &mut OpenOptions, path: &Path) -> io::Result<File> {
    let file = options
        .custom_flags(OFlags::NONBLOCK.bits().cast_signed())
        .open(path)?;
    if file.metadata()?.is_file() {
        Ok(file)
    } else {
        Err(io::Error::other("it is no regular file"))
    }
}

/// The boot in the name of a journal; none if it is no such name.
fn boot_of(name: &str) -> Option<&str> {
    let rest = name
        .strip_prefix("host-")?
        .strip_suffix(EXTENSION)?
        .strip_suffix('.')?;
    let (rest, cookie) = rest.rsplit_once('-')?;
    let (boot, namespace) = rest.rsplit_once('-')?;
    let are_numbers = [namespace, cookie]
        .iter()
        .all(|text| text.parse::<u64>().is_ok());
    let is_boot = boot.len() == BOOT
        && boot
            .chars()
            .all(|letter| letter.is_ascii_hexdigit() || letter == '-');
    (is_boot && are_numbers).then_some(boot)
}

/// Letters of a boot's name.
const BOOT: usize = 36;

fn is_apply(line: &Line, wanted: &str) -> bool {
    matches!(line, Line::Apply { id, .. } if id == wanted)
}

fn parse_line(line: &[u8]) -> Result<Line, String> {
    let line: Line =
        serde_json::from_slice(line).map_err(|error| sentence_start(&error.to_string()))?;
    let Line::Change(JournalEntry {
        setting,
        before,
        wanted,
        ..
    }) = &line
    else {
        return Ok(line);
    };
    if !setting.is_sane() {
        let why = format!("{setting} is no setting of the network");
        Err(sentence_start(&why))
    } else if [before, wanted]
        .iter()
        .all(|text| setting.may_have(text.as_deref()))
    {
        Ok(line)
    } else {
        Err(format!("{setting} are not all of the network"))
    }
}

/// Returns the beginning of a sentence that has words of a file.
fn sentence_start(text: &str) -> String {
    printable_line(text).chars().take(MAX_REASON).collect()
}

/// Characters of a reason at most.
const MAX_REASON: usize = 300;

fn line_text(line: &Line) -> io::Result<String> {
    Ok(serde_json::to_string(line).map_err(io::Error::other)? + "\n")
}

#[cfg(test)]
mod tests;
