//! Shared by both ends of a transfer: the way to the other, the counts, and the error that ends it.

use std::collections::HashSet;
use std::sync::mpsc::Sender;
use std::sync::{Arc, Mutex};

use crate::protocol::{CopyMessage, Digest, EntryPath, FileOutcome};

use crate::attributes::NotKept;
use crate::bounds::CopyBounds;
use crate::control::MessageSender;
use crate::options::{CopyError, CopyEvent};
use crate::shared::{SharedFlag, SharedNumber};
use fullpipe_sys::lock;

/// Failures, and entries that are left out, that are kept with their reason.
const MAX_NAMED: usize = 100;

/// The reason for which an entry is never copied.
pub(crate) const NEVER_COPIED: &str = "it is neither file nor folder nor link";

/// Counts of a transfer, as far as the near end shows them.
#[derive(Default)]
pub(crate) struct CopyCounts {
    /// Bytes that have crossed and are verified.
    pub verified: SharedNumber,
    /// Bytes that compression has saved on the way.
    pub saved: SharedNumber,
    /// Bytes that are wanted, as far as is known.
    pub wanted: SharedNumber,
    /// Files that were copied, and their bytes.
    pub files: SharedNumber,
    pub bytes: SharedNumber,
    pub present: SharedNumber,
    pub deleted: SharedNumber,
    pub failed: SharedNumber,
    pub left_out: SharedNumber,
    failures: Mutex<Vec<String>>,
    left_out_entries: Mutex<Vec<String>>,
    digest: Mutex<Option<Digest>>,
}

impl CopyCounts {
    pub(crate) fn record_failure(&self, what: String) {
        self.failed.increase_by(1);
        name_first(&self.failures, || what);
    }

    /// Counts a file of `size` bytes that is there.
    pub(crate) fn count_copied(&self, size: u64, digest: Digest) {
        self.files.increase_by(1);
        self.bytes.increase_by(size);
        *lock(&self.digest) = Some(digest);
    }

    /// Counts a device, a pipe or a socket.
    pub(crate) fn leave_out(&self, path: &EntryPath) {
        self.left_out.increase_by(1);
        name_first(&self.left_out_entries, || format!("{path}: {NEVER_COPIED}"));
    }

    pub(crate) fn failure_names(&self) -> Vec<String> {
        lock(&self.failures).clone()
    }

    pub(crate) fn left_out_entries(&self) -> Vec<String> {
        lock(&self.left_out_entries).clone()
    }

    /// Returns the digest of the last file that was copied.
    pub(crate) fn last_digest(&self) -> Option<Digest> {
        *lock(&self.digest)
    }
}

fn name_first(names: &Mutex<Vec<String>>, name: impl FnOnce() -> String) {
    let mut names = lock(names);
    if names.len() < MAX_NAMED {
        names.push(name());
    }
}

/// One end of a transfer.
pub(crate) struct TransferContext {
    pub out: MessageSender,
    pub tally: Arc<CopyCounts>,
    pub bounds: CopyBounds,
    /// The one who shows events; at the far end there is none.
    pub events: Option<Sender<CopyEvent>>,
    /// Kinds of attributes that are not kept, of which the user knows.
    not_kept: Mutex<HashSet<String>>,
    failed: Mutex<Option<CopyError>>,
    has_failed: SharedFlag,
}

impl TransferContext {
    pub(crate) fn new(
        out: MessageSender,
        tally: Arc<CopyCounts>,
        events: Option<Sender<CopyEvent>>,
    ) -> Self {
        Self {
            out,
            tally,
            bounds: CopyBounds::default(),
            events,
            not_kept: Mutex::default(),
            failed: Mutex::default(),
            has_failed: SharedFlag::default(),
        }
    }

    /// Returns this state with other bounds.
    pub(crate) fn with_bounds(self, bounds: CopyBounds) -> Self {
        Self { bounds, ..self }
    }

    /// Shows a step to the user, who may be at the other end.
    pub(crate) fn send_note(&self, text: String) {
        match &self.events {
            Some(events) => drop(events.send(CopyEvent::Note(text))),
            None => self.out.send_message(&CopyMessage::Note { text }),
        }
    }

    /// Notes something that cannot be sent or made, for the user, who may be at the other end.
    pub(crate) fn report_unreadable(&self, why: String) {
        match self.events {
            Some(_) => self.tally.record_failure(why),
            None => self.out.send_message(&CopyMessage::Unreadable {
                file: u32::MAX,
                why,
            }),
        }
    }

    /// Says that attributes are not kept, once for each kind.
    pub(crate) fn not_kept(&self, path: &EntryPath, what: NotKept) {
        let NotKept { kind, why } = what;
        if lock(&self.not_kept).insert(kind.clone()) {
            self.send_note(format!(
                "{path} does not keep its {kind}: {why}; others of this kind are not named"
            ));
        }
    }

    pub(crate) fn send_event(&self, event: CopyEvent) {
        if let Some(events) = &self.events {
            let _ = events.send(event);
        }
    }

    /// Counts what became of a file.
    pub(crate) fn count_outcome(&self, path: &EntryPath, size: u64, outcome: &FileOutcome) {
        match outcome {
            FileOutcome::Copied(digest) => self.tally.count_copied(size, *digest),
            FileOutcome::Present => {
                self.tally.present.increase_by(1);
            }
            FileOutcome::Wanted => {
                self.tally.files.increase_by(1);
                self.tally.bytes.increase_by(size);
                self.send_event(CopyEvent::WouldCopy(path.clone()));
            }
            FileOutcome::Failed(why) => self.tally.record_failure(format!("{path}: {why}")),
        }
    }

    /// Ends the transfer, for the first of all reasons.
    pub(crate) fn abort_transfer(&self, error: CopyError) {
        lock(&self.failed).get_or_insert(error);
        self.has_failed.raise_flag();
    }

    pub(crate) fn has_failed(&self) -> bool {
        self.has_failed.is_raised()
    }

    /// Returns the reason for which the transfer was ended, once.
    pub(crate) fn take_error(&self) -> Option<CopyError> {
        lock(&self.failed).take()
    }
}
