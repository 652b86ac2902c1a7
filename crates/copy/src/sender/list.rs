//! The list of what is to be copied, on its way to the receiver.

use fullpipe_units::printable_bytes;

use super::FileSender;
use crate::attributes::NotKept;
use crate::common::NEVER_COPIED;
use crate::protocol::{CopyMessage, EntryPath, TreeEntry};
use crate::receiver::list_too_long;
use crate::walk::{ListReceiver, SourceFile};

/// Entries of the list that are sent before connections carry data: more would be in the way of the
/// message that says which they are.
const FIRST_LISTED: u32 = 1000;

/// The list on its way to the receiver.
pub(super) struct SentList<'s> {
    sender: &'s FileSender,
    /// Entries up to now.
    count: u32,
}

impl<'s> SentList<'s> {
    pub(super) const fn from_sender(sender: &'s FileSender) -> Self {
        Self { sender, count: 0 }
    }
}

impl ListReceiver for SentList<'_> {
    fn add_entry(&mut self, entry: TreeEntry, file: Option<SourceFile>) {
        if self.count == FIRST_LISTED {
            self.sender.queue.wait_for_streams();
        }
        self.count = self.count.saturating_add(1);
        if let Some(file) = file {
            self.sender.files.add_file(file, || self.is_over());
        }
        self.sender
            .common
            .out
            .send_message(&CopyMessage::Entry(entry));
    }

    fn add_problem(&mut self, path: &[u8], why: &str) {
        let why = format!("{}: {why}", printable_bytes(path));
        self.sender.common.report_unreadable(why);
    }

    fn not_kept(&mut self, path: &EntryPath, what: NotKept) {
        self.sender.common.not_kept(path, what);
    }

    fn not_sent(&mut self, path: &[u8], why: &str) {
        self.sender
            .common
            .send_note(format!("{} is left out: {why}", printable_bytes(path)));
    }

    fn left_out(&mut self, path: &EntryPath) {
        self.sender.common.tally.leave_out(path);
        self.sender
            .common
            .send_note(format!("{path} is left out: {NEVER_COPIED}"));
    }

    fn too_long(&mut self) {
        self.sender.common.abort_transfer(list_too_long());
    }

    fn is_over(&self) -> bool {
        self.sender.common.has_failed()
    }
}
