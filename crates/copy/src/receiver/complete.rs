//! Files that are complete, or given up.

use std::io;
use std::sync::atomic::Ordering;

use fullpipe_transfer::{CHUNK, Digest, Outcome, Verified};

use super::{Incoming, Receiver};
use crate::locks::lock;
use crate::part::Part;

impl Receiver {
    /// Takes no more of a file. What has arrived of a large one stays for the next run. Returns false if that was so
    /// already.
    pub(super) fn close(&self, file: &Incoming) -> bool {
        let mut state = lock(&file.state);
        self.begun.fetch_sub(std::mem::take(&mut state.begun).len(), Ordering::Relaxed);
        if std::mem::replace(&mut state.is_closed, true) {
            return false;
        }
        let part = state.part.take();
        drop(state);
        match part {
            Some(part) if file.size.get() <= CHUNK as u64 => part.discard(),
            Some(part) => part.wait_for_sync(),
            None => {}
        }
        true
    }

    pub(super) fn complete(&self, file: &Incoming, part: Part, digest: Digest) {
        let finished = match self.is_right_on_disk(file, part) {
            Ok(Some(part)) => self.finish_part(file, part),
            Ok(None) => return,
            Err(error) => Err(error),
        };
        let outcome = finished.map_or_else(|error| Outcome::Failed(error.to_string()), |()| Outcome::Copied(digest));
        self.settle(file, outcome);
    }

    /// Returns the part of a complete file if its disk holds what was sent, or nobody asked for that. Otherwise wants
    /// what is wrong again, and keeps the part.
    fn is_right_on_disk(&self, file: &Incoming, mut part: Part) -> io::Result<Option<Part>> {
        if !self.options.verify_disk {
            return Ok(Some(part));
        }
        // Nobody else reads the hashes of a file that is closed, and others need not wait for the disk.
        let mut verified = std::mem::replace(&mut lock(&file.state).verified, Verified::new(file.size));
        let wrong = self.wrong_on_disk(file, &mut part, &mut verified)?;
        let mut state = lock(&file.state);
        state.verified = verified;
        if wrong.is_empty() {
            return Ok(Some(part));
        }
        (state.part, state.is_closed) = (Some(Box::new(part)), false);
        drop(state);
        for chunk in wrong {
            self.want(file.number, chunk);
        }
        Ok(None)
    }

    /// Takes the chunks that are wrong on the disk out of `verified`, and returns them; none if nobody asked for that.
    pub(super) fn wrong_on_disk(
        &self,
        file: &Incoming,
        part: &mut Part,
        verified: &mut Verified,
    ) -> io::Result<Vec<u32>> {
        if !self.options.verify_disk {
            return Ok(Vec::new());
        }
        let wrong = part.wrong_on_disk(verified)?;
        if !wrong.is_empty() {
            let text =
                format!("chunks of {} that are wrong on the disk, and are fetched again: {}", file.path, wrong.len());
            self.common.note(text);
        }
        Ok(wrong)
    }

    /// Makes a complete file durable under its name, with all that is kept of it.
    pub(super) fn finish_part(&self, file: &Incoming, mut part: Part) -> io::Result<()> {
        part.make_durable()?;
        self.set_extended(&file.path, part.file(), file.attributes.as_deref());
        part.finish(file.mode, file.modified)
    }
}
