//! A file that comes as a whole, on one connection: its server sends no ranges, does not say how
//! long it is, or nothing by which its states can be distinguished.

use std::time::Instant;

use fullpipe_units::ByteCount;

use super::connection::{FetchFailure, WebConnection};
use super::{ArrivedFile, PlacedFile, WebCopy, not_written};
use crate::part::PartialFile;
use crate::protocol::{CHUNK, Digest, FileIdentity, VerifiedChunks};

impl WebCopy {
    /// Receives the file to its end. Nothing of it stays if that fails: it could not be continued.
    pub(super) fn receive_whole(
        &self,
        place: &PlacedFile,
        connection: WebConnection,
    ) -> Result<ArrivedFile, FetchFailure> {
        // Its size is not known until its end; without a size there is no journal.
        let mut none = VerifiedChunks::new(ByteCount::ZERO);
        let opened = PartialFile::open_part(
            &place.tree,
            &place.name,
            ByteCount::ZERO,
            FileIdentity::from_numbers(&[]),
            &mut none,
        );
        let (part, _) = opened.map_err(not_written)?;
        match self.receive_to_end(&part, connection) {
            Ok((digest, size)) => Ok(ArrivedFile { part, digest, size }),
            Err(failure) => {
                part.discard_data();
                Err(failure)
            }
        }
    }

    fn receive_to_end(
        &self,
        part: &PartialFile,
        connection: WebConnection,
    ) -> Result<(Digest, ByteCount), FetchFailure> {
        let Some((stream, mut connection)) = self.watch_connection(connection) else {
            return Err(FetchFailure::Final("interrupted".to_owned()));
        };
        let received = self.receive_chunks(part, &mut connection);
        self.watch.close_socket(stream);
        received
    }

    fn receive_chunks(
        &self,
        part: &PartialFile,
        connection: &mut WebConnection,
    ) -> Result<(Digest, ByteCount), FetchFailure> {
        let (writer, mut hasher) = (part.new_writer(), blake3::Hasher::new());
        let (mut chunk, mut index, mut sampled_at) = (Vec::with_capacity(CHUNK), 0, Instant::now());
        loop {
            let before = chunk.len();
            let most = (CHUNK - before).min(self.receive_at_once());
            let has_ended = connection.receive_content(&mut chunk, most)?;
            self.bounds.wait_for_bytes(chunk.len() - before);
            if sampled_at.elapsed() >= super::watch::SAMPLE_INTERVAL {
                sampled_at = Instant::now();
                self.watch.sample_sockets();
            }
            if chunk.len() < CHUNK && !has_ended {
                continue;
            }
            hasher.update(&chunk);
            writer.write_block(index, 0, &chunk).map_err(not_written)?;
            self.tally.verified.increase_by(chunk.len() as u64);
            if has_ended {
                let digest = hasher.finalize().into();
                return Ok((digest, ByteCount::new(hasher.count())));
            }
            index += 1;
            chunk.clear();
        }
    }
}
