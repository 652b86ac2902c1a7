//! The rows of a grid that one process computes, and the archive from which it takes others.

use fullpipe_store::{ArchiveLocation, NewDocument, Store};
use fullpipe_units::Shard;
use jiff::Timestamp;

use super::keep::PlaceParser;
use super::prelude::*;

/// The rows to compute.
#[derive(Debug, Args)]
#[command(next_help_heading = "Shards")]
pub(crate) struct RowArguments {
    /// Compute one shard of the rows: 3/16 is the third of 16
    ///
    /// It has row 3 and every 16th row from there on, so that all shards take about as long. The
    /// results are those of the whole grid; `store import` puts together what shards print with
    /// --json, and drops what it has already.
    #[arg(long, value_name = "I/N", hide_short_help = true)]
    shard: Option<Shard>,
    /// Take the rows that this archive has from it, and keep the others there as they are done
    ///
    /// A row is known by everything that it was computed from and the version of fullpipe.
    #[arg(long, value_name = "FILE|URL", value_parser = PlaceParser, hide_short_help = true)]
    fill: Option<ArchiveLocation>,
}

impl RowArguments {
    pub(super) fn is_shard(&self) -> bool {
        self.shard.is_some()
    }

    pub(super) fn fills_archive(&self) -> bool {
        self.fill.is_some()
    }

    /// Returns the rows of the shard, or all.
    ///
    /// # Errors
    /// Fails if there are fewer rows than shards.
    pub(super) fn own_rows<T>(&self, rows: Vec<T>) -> Result<Vec<T>> {
        match self.shard {
            Some(shard) => shard
                .rows_of(rows)
                .map_err(|why| usage_failure(format!("--shard: {why}"))),
            None => Ok(rows),
        }
    }

    /// Opens the archive, and makes it if there is none; `None` if none was named.
    ///
    /// # Errors
    /// Fails if it cannot be opened.
    pub(super) fn open_archive(&self) -> Result<Option<RowArchive>> {
        let opened = self.fill.as_ref().map(Store::create).transpose()?;
        Ok(opened.map(RowArchive))
    }
}

/// An archive of rows.
pub(super) struct RowArchive(Store);

impl RowArchive {
    /// Returns the row with this identifier.
    ///
    /// # Errors
    /// Fails if the archive cannot be read.
    pub(super) fn find_row(&mut self, id: &str) -> Result<Option<Content>> {
        let body = self.0.body_of_id(id)?;
        let document = body.and_then(|body| Document::from_json(&body).ok());
        Ok(document.map(|document| document.content))
    }

    /// Keeps a row.
    ///
    /// # Errors
    /// Fails if the archive does not take it.
    pub(super) fn keep_row(&mut self, row: &Document) -> Result {
        for document in NewDocument::from_document(row, Timestamp::now()) {
            self.0.put_document(&document)?;
        }
        Ok(())
    }
}
