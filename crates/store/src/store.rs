use std::collections::BTreeMap;

use fullpipe_record::{ArchiveReport, StoredDocument, StoredFacts};
use fullpipe_units::{ByteCount, printable_line};
use jiff::Timestamp;
use uuid::{Builder, Uuid};

use crate::columns::{RowReader, document_row, facts_row, timestamp_nanoseconds};
use crate::document::{NewDocument, SWEEP_RUN, is_kind};
use crate::engine::{
    DatabaseEngine, DatabaseValue, EngineError, EngineResult, Row, run_transaction,
};
use crate::postgresql::PostgresEngine;
use crate::sqlite::SqliteEngine;
use crate::statements::{DOCUMENT, FACT, KINDS, MIGRATIONS, insert_statement};
use crate::text::host_of;
use crate::{ArchiveLocation, StoreError};

/// Level of zstd. A measurement of 10 s has 658 kB, and 20 kB compressed.
const LEVEL: i32 = 9;

/// Size of the largest body, decompressed, in bytes; a larger one was made to exhaust memory.
const MAX_BODY: usize = 1 << 30;

/// The body of a document, compressed.
const CONTENT: &str = "SELECT content FROM body WHERE document = $1";

/// Attempts to keep a document: with its own identifier, with a new one, and after another writer.
const ATTEMPTS: u32 = 3;

/// An archive: immutable documents with their facts.
pub struct Store {
    pub(crate) engine: Box<dyn DatabaseEngine>,
    location: ArchiveLocation,
    version: u32,
}

/// Documents that are asked for.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct DocumentFilter {
    /// Name or address of the other end; a port behind it takes no part.
    pub peer: Option<String>,
    /// Kind, or the beginning of one before a `/`.
    pub kind: Option<String>,
    /// Campaign or scenario.
    pub campaign: Option<String>,
    /// Earliest start.
    pub since: Option<Timestamp>,
    /// First start that is too late.
    pub before: Option<Timestamp>,
    /// Place in the list, newest first, behind which documents are asked for.
    pub behind: Option<DocumentPosition>,
    /// Kind of the limit of one of its runs, or kind and cause with a `/` between them.
    pub limited_by: Option<String>,
    /// Largest number of documents, the newest; all if not set.
    pub limit: Option<u32>,
}

/// The place of a document in the list of all, newest first.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DocumentPosition {
    /// When its data began to flow.
    pub started: Timestamp,
    /// Its identifier.
    pub id: String,
}

/// A document that was given to the archive.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct KeptDocument {
    /// Identifier of the document.
    pub id: String,
    /// False if the archive had it already.
    pub is_new: bool,
    /// True if the archive had it thinned or damaged, and has it whole again.
    pub is_restored: bool,
}

/// Changes of an archive that happen together or not at all.
pub struct ArchiveTransaction<'e>(&'e mut dyn DatabaseEngine);

impl ArchiveTransaction<'_> {
    /// Returns the rows of a statement, which may change tables; its parameters are `$1`, `$2`, ….
    ///
    /// # Errors
    /// Fails if the database refuses.
    pub fn query(&mut self, sql: &str, values: &[DatabaseValue]) -> EngineResult<Vec<RowReader>> {
        let rows = self.0.query(sql, values)?;
        Ok(rows.into_iter().map(RowReader::new).collect())
    }

    /// Waits until no other program changes the tables, and keeps others from it until the end.
    ///
    /// # Errors
    /// Fails if another program has them for too long.
    pub fn lock_tables(&mut self) -> EngineResult {
        self.0.lock_tables()
    }

    /// Keeps a document.
    ///
    /// # Errors
    /// Fails if the database refuses.
    pub fn keep_document(&mut self, document: &NewDocument) -> EngineResult<KeptDocument> {
        keep_document(self.0, document, compress_body(&document.body))
    }
}

impl Store {
    /// Opens an archive; makes it if there is none.
    ///
    /// # Errors
    /// Fails if it cannot be made, or for the reasons of [`Store::open`].
    pub fn create(location: &ArchiveLocation) -> Result<Self, StoreError> {
        Self::connect(location, true)
    }

    /// Opens an archive that exists, and brings the layout of its tables up to date, after a copy
    /// where it is a file. One that a newer program has changed can only be read.
    ///
    /// # Errors
    /// Fails if there is none, if it is something else, or if the database refuses.
    pub fn open(location: &ArchiveLocation) -> Result<Self, StoreError> {
        if let ArchiveLocation::File(file) = location {
            let exists = file
                .try_exists()
                .map_err(|error| StoreError::from_engine("find", location, error.into()))?;
            if !exists {
                return Err(StoreError::Missing(location.to_string()));
            }
        }
        Self::connect(location, false)
    }

    fn connect(location: &ArchiveLocation, create: bool) -> Result<Self, StoreError> {
        let opened: EngineResult<Box<dyn DatabaseEngine>> = match location {
            ArchiveLocation::File(file) => {
                SqliteEngine::open(file, create).map(|engine| Box::new(engine) as _)
            }
            ArchiveLocation::Postgresql(url) => {
                PostgresEngine::open(url, create).map(|engine| Box::new(engine) as _)
            }
        };
        let (mut version, mut engine) = opened
            .and_then(|mut engine| Ok((engine.schema_version()?, engine)))
            .map_err(|error| StoreError::from_engine("open", location, error))?;
        if version == 0 && !create {
            return Err(StoreError::Missing(location.to_string()));
        }
        if version < KNOWN {
            version = migrate_tables(&mut *engine, version, KNOWN).map_err(|error| {
                StoreError::from_engine("change the tables of", location, error)
            })?;
        }
        Ok(Self {
            engine,
            location: location.clone(),
            version,
        })
    }

    /// Keeps a document, whole or not at all. When this returns, it is on the disk.
    ///
    /// # Errors
    /// Fails if the archive is of a newer program, or if the database refuses: a full disk, another
    /// writer for more than ten seconds.
    pub fn put_document(&mut self, document: &NewDocument) -> Result<KeptDocument, StoreError> {
        let packed = compress_body(&document.body);
        self.write(|engine| keep_document(engine, document, packed))
    }

    /// Returns documents with their facts, newest first.
    ///
    /// # Errors
    /// Fails if there is no such kind, or if the database refuses.
    pub fn list_documents(
        &mut self,
        filter: &DocumentFilter,
    ) -> Result<Vec<StoredDocument>, StoreError> {
        let kinds = match &filter.kind {
            Some(kind) => self.read(KINDS, &[kind.as_str().into()])?,
            None => vec![vec![DatabaseValue::Null]],
        };
        if kinds.is_empty() {
            let kind = filter.kind.as_deref().unwrap_or_default();
            return if is_kind(kind) {
                Ok(Vec::new())
            } else {
                Err(StoreError::unknown_kind(kind))
            };
        }
        let (ids, values) = filter.id_query(kinds.into_iter().flatten());
        let limit = filter
            .limit
            .map_or_else(String::new, |limit| format!(" LIMIT {limit}"));
        let newest = format!("WHERE id IN ({ids}) ORDER BY started DESC, id DESC{limit}");
        let documents = self.read(
            &format!("SELECT {DOCUMENT} FROM document {newest}"),
            &values,
        )?;
        let facts = format!(
            "SELECT document, {FACT} FROM fact WHERE document IN (SELECT id FROM document {newest}) ORDER BY part"
        );
        let mut by_document: BTreeMap<String, Vec<StoredFacts>> = BTreeMap::new();
        for row in self.read(&facts, &values)? {
            let mut reader = RowReader::new(row);
            let id = reader.next_text().unwrap_or_default();
            by_document.entry(id).or_default().push(reader.next_facts());
        }
        Ok(documents
            .into_iter()
            .map(|row| {
                let document = RowReader::new(row).next_document();
                StoredDocument {
                    facts: by_document.remove(&document.id).unwrap_or_default(),
                    ..document
                }
            })
            .collect())
    }

    /// Returns the names of all other ends, in their order.
    ///
    /// # Errors
    /// Fails if the database refuses.
    pub fn list_peers(&mut self) -> Result<Vec<String>, StoreError> {
        let peers = "SELECT DISTINCT peer FROM document WHERE peer <> '' ORDER BY peer";
        Ok(self
            .read(peers, &[])?
            .into_iter()
            .filter_map(|row| RowReader::new(row).next_text())
            .collect())
    }

    /// Returns sweeps and scenarios, the newest first: the name of each, with its newest document
    /// and the number of its documents.
    ///
    /// # Errors
    /// Fails if the database refuses.
    pub fn list_campaigns(&mut self, count: u32) -> Result<Vec<(StoredDocument, u64)>, StoreError> {
        let campaigns = format!(
            "SELECT campaign, count(*) FROM document WHERE campaign <> '' GROUP BY campaign
             ORDER BY max(started) DESC LIMIT {count}"
        );
        let mut newest = Vec::new();
        for row in self.read(&campaigns, &[])? {
            let mut reader = RowReader::new(row);
            let (campaign, documents) = (reader.next_text(), reader.next_count());
            let found = self.list_documents(&DocumentFilter {
                campaign,
                limit: Some(1),
                ..DocumentFilter::default()
            })?;
            newest.extend(found.into_iter().map(|head| (head, documents.unwrap_or(0))));
        }
        Ok(newest)
    }

    /// Returns the `count` newest documents of each other end, by the name of that, newest first.
    ///
    /// # Errors
    /// Fails if the database refuses.
    pub fn newest_by_peer(&mut self, count: u32) -> Result<Vec<StoredDocument>, StoreError> {
        let mut newest = Vec::new();
        for peer in self.list_peers()? {
            newest.extend(self.list_documents(&DocumentFilter {
                peer: Some(peer),
                limit: Some(count),
                ..DocumentFilter::default()
            })?);
        }
        // The address of one may be the name of another.
        newest.sort_by(|one: &StoredDocument, next| {
            (&one.peer, &next.started, &next.id).cmp(&(&next.peer, &one.started, &one.id))
        });
        newest.dedup_by(|one, next| one.id == next.id);
        Ok(newest)
    }

    /// Returns the document with this identifier, or the only one whose identifier ends so.
    ///
    /// # Errors
    /// Fails if there is none or more than one, or if the database refuses.
    pub fn find_document(&mut self, id: &str) -> Result<StoredDocument, StoreError> {
        let id = id.to_ascii_lowercase();
        let is_end = !id.is_empty()
            && id
                .bytes()
                .all(|byte| byte.is_ascii_hexdigit() || byte == b'-');
        if !is_end {
            return Err(StoreError::Unknown(if id.is_empty() {
                "\"\"".to_owned()
            } else {
                printable_line(&id)
            }));
        }
        let like = format!("%{id}");
        // Identifiers alone are in an index.
        let ids = "SELECT id FROM document WHERE id LIKE $1 LIMIT 2";
        let sql = format!("SELECT {DOCUMENT} FROM document WHERE id IN ({ids})");
        let mut found = self.read(&sql, &[like.as_str().into()])?;
        let row = found.pop().ok_or_else(|| StoreError::Unknown(id.clone()))?;
        if !found.is_empty() {
            return Err(StoreError::Ambiguous(id));
        }
        let document = RowReader::new(row).next_document();
        Ok(StoredDocument {
            facts: self.facts_of_document(&document.id)?,
            ..document
        })
    }

    /// Returns the body of the document with exactly this identifier; `None` if the archive does not
    /// have it whole.
    ///
    /// # Errors
    /// Fails if the database refuses.
    pub fn body_of_id(&mut self, id: &str) -> Result<Option<Vec<u8>>, StoreError> {
        let sql = format!("SELECT {DOCUMENT} FROM document WHERE id = $1 AND thinned = 0");
        let Some(row) = self.read(&sql, &[id.into()])?.pop() else {
            return Ok(None);
        };
        match self.document_body(&RowReader::new(row).next_document()) {
            Err(StoreError::Damaged { .. }) => Ok(None),
            read => read.map(Some),
        }
    }

    /// Returns the body of a document as it was written, or as `store thin` left it.
    ///
    /// # Errors
    /// Fails if it was removed or is damaged, or if the database refuses.
    pub fn document_body(&mut self, document: &StoredDocument) -> Result<Vec<u8>, StoreError> {
        if document.blake3.is_empty() {
            return Err(StoreError::Removed(document.id.clone()));
        }
        let rows = self.read(CONTENT, &[document.id.as_str().into()])?;
        verify_body(rows, &document.blake3).map_err(|why: &str| StoreError::Damaged {
            id: document.id.clone(),
            why: why.to_owned(),
        })
    }

    /// Returns the archive as a whole.
    ///
    /// # Errors
    /// Fails if the database refuses.
    pub fn archive_report(&mut self) -> Result<ArchiveReport, StoreError> {
        let kinds = self.read("SELECT kind, count(*) FROM document GROUP BY kind", &[])?;
        let bytes =
            self.read_count("SELECT CAST(coalesce(sum(length(content)), 0) AS BIGINT) FROM body")?;
        Ok(ArchiveReport {
            location: self.location.to_string(),
            exists: true,
            read_only: self.version > KNOWN,
            version: self.version,
            documents: kinds
                .into_iter()
                .map(|row| {
                    let mut reader = RowReader::new(row);
                    (
                        reader.next_text().unwrap_or_default(),
                        reader.next_count().unwrap_or(0),
                    )
                })
                .collect(),
            bytes: ByteCount::new(bytes),
        })
    }

    /// Carries out `work` on the tables as a whole or not at all.
    ///
    /// # Errors
    /// Fails if `work` does, if the archive is of a newer program, or if the database refuses.
    pub fn transact<T>(
        &mut self,
        work: impl FnOnce(&mut ArchiveTransaction<'_>) -> EngineResult<T>,
    ) -> Result<T, StoreError> {
        self.write(|engine| work(&mut ArchiveTransaction(engine)))
    }

    /// Returns the rows that a statement finds, which changes nothing; its parameters are `$1`,
    /// `$2`, ….
    ///
    /// # Errors
    /// Fails if the database refuses.
    pub fn query(
        &mut self,
        sql: &str,
        values: &[DatabaseValue],
    ) -> Result<Vec<RowReader>, StoreError> {
        let rows = self.read(sql, values)?;
        Ok(rows.into_iter().map(RowReader::new).collect())
    }

    /// Returns the number that a query finds.
    pub(crate) fn read_count(&mut self, sql: &str) -> Result<u64, StoreError> {
        let row = self.read(sql, &[])?.into_iter().next();
        Ok(row
            .and_then(|row| RowReader::new(row).next_count())
            .unwrap_or(0))
    }

    pub(crate) fn facts_of_document(&mut self, id: &str) -> Result<Vec<StoredFacts>, StoreError> {
        let sql = format!("SELECT {FACT} FROM fact WHERE document = $1 ORDER BY part");
        Ok(self
            .read(&sql, &[id.into()])?
            .into_iter()
            .map(|row| RowReader::new(row).next_facts())
            .collect())
    }

    pub(crate) fn read(
        &mut self,
        sql: &str,
        values: &[DatabaseValue],
    ) -> Result<Vec<Row>, StoreError> {
        self.engine
            .query(sql, values)
            .map_err(|error| self.database_error("read", error))
    }

    pub(crate) fn write<T>(
        &mut self,
        work: impl FnOnce(&mut dyn DatabaseEngine) -> EngineResult<T>,
    ) -> Result<T, StoreError> {
        self.require_writable()?;
        run_transaction(&mut *self.engine, work)
            .map_err(|error| self.database_error("write to", error))
    }

    pub(crate) fn database_error(&self, operation: &'static str, error: EngineError) -> StoreError {
        StoreError::from_engine(operation, &self.location, error)
    }

    fn require_writable(&self) -> Result<(), StoreError> {
        if self.version <= KNOWN {
            return Ok(());
        }
        Err(StoreError::Newer {
            location: self.location.to_string(),
            found: self.version,
            known: KNOWN,
        })
    }
}

/// Newest version of the tables that this program knows.
pub(crate) const KNOWN: u32 = MIGRATIONS.len() as u32;

/// Brings the tables from version `from` to version `to`, whole or not at all; another program may
/// do so first.
pub(crate) fn migrate_tables(
    engine: &mut dyn DatabaseEngine,
    from: u32,
    to: u32,
) -> EngineResult<u32> {
    if from > 0 {
        engine.copy_before_change(from)?;
    }
    let (blob, no_overlap) = (engine.blob_type(), engine.overlap_constraint());
    run_transaction(engine, |engine| {
        engine.lock_tables()?;
        let version = engine.schema_version()?;
        for migration in MIGRATIONS.iter().take(to as usize).skip(version as usize) {
            let migration = migration.replace("{BLOB}", blob);
            engine.execute_batch(&migration.replace("{NO_OVERLAP}", no_overlap))?;
        }
        if version < to {
            engine.set_version(to)?;
        }
        Ok(version.max(to))
    })
}

/// Returns the key of a document that an archive has only once: the hash of its bytes; of a run of
/// a sweep its campaign and setting, even if two programs go on with that sweep at the same time.
fn document_origin(head: &StoredDocument) -> String {
    if head.kind == SWEEP_RUN {
        format!("{}/{}", head.campaign, head.cell)
    } else {
        head.blake3.clone()
    }
}

/// Keeps a document, whose compressed body this is.
pub(crate) fn keep_document(
    engine: &mut dyn DatabaseEngine,
    document: &NewDocument,
    packed: Vec<u8>,
) -> EngineResult<KeptDocument> {
    let NewDocument { head, body } = document;
    let head = StoredDocument {
        id: if is_id(&head.id) {
            head.id.clone()
        } else {
            id_of_bytes(body)
        },
        bytes: ByteCount::new(body.len() as u64),
        blake3: blake3::hash(body).to_hex().to_string(),
        ..head.clone()
    };
    let origin = document_origin(&head);
    insert_document(engine, head, &origin, packed)
}

/// Inserts a document, unless the archive has one of the same origin.
fn insert_document(
    engine: &mut dyn DatabaseEngine,
    head: StoredDocument,
    origin: &str,
    packed: Vec<u8>,
) -> EngineResult<KeptDocument> {
    let known = format!("SELECT {DOCUMENT} FROM document WHERE origin = $1");
    let sql = insert_statement("document", &format!("{DOCUMENT}, origin"));
    let mut head = head;
    for _ in 0..ATTEMPTS {
        let known = engine.query(&known, &[origin.into()])?;
        if let Some(row) = known.into_iter().next() {
            let known = RowReader::new(row).next_document();
            let is_restored = restore_body(engine, &known, &head, packed)?;
            return Ok(KeptDocument {
                id: known.id,
                is_new: false,
                is_restored,
            });
        }
        if !engine
            .query(&sql, &[document_row(&head), vec![origin.into()]].concat())?
            .is_empty()
        {
            insert_body(engine, &head.id, packed)?;
            insert_facts(engine, &head.id, &head.facts)?;
            return Ok(KeptDocument {
                id: head.id,
                is_new: true,
                is_restored: false,
            });
        }
        // Another document has this identifier: the same measurement within a diagnosis. Or another
        // writer has kept this document meanwhile.
        head.id = new_id();
    }
    Err(EngineError::from_cause(
        "another program keeps and removes this document",
    ))
}

/// Keeps the body of a known document again if it was thinned or removed, or is damaged; returns
/// whether it did. Facts remain. A run of a sweep may be another one in the same place, and is left
/// as it is.
fn restore_body(
    engine: &mut dyn DatabaseEngine,
    known: &StoredDocument,
    head: &StoredDocument,
    packed: Vec<u8>,
) -> EngineResult<bool> {
    let id = known.id.as_str();
    let is_whole =
        !known.thinned && verify_body(engine.query(CONTENT, &[id.into()])?, &known.blake3).is_ok();
    if is_whole || known.bytes != head.bytes {
        return Ok(false);
    }
    engine.query("DELETE FROM body WHERE document = $1", &[id.into()])?;
    insert_body(engine, id, packed)?;
    let sql = "UPDATE document SET blake3 = $2, thinned = 0 WHERE id = $1";
    engine.query(sql, &[id.into(), head.blake3.as_str().into()])?;
    Ok(true)
}

fn insert_body(engine: &mut dyn DatabaseEngine, id: &str, packed: Vec<u8>) -> EngineResult {
    engine
        .query(
            &insert_statement("body", "document, content"),
            &[id.into(), packed.into()],
        )
        .map(drop)
}

/// Returns a body that was read by [`CONTENT`], if it is the one with this hash, or else why not.
fn verify_body(rows: Vec<Row>, blake3: &str) -> Result<Vec<u8>, &'static str> {
    let packed = rows
        .into_iter()
        .next()
        .and_then(|row| RowReader::new(row).next_blob())
        .ok_or("its body is missing")?;
    let body = decompress_body(&packed).ok_or("its body cannot be decompressed")?;
    if blake3::hash(&body).to_hex().as_str() != blake3 {
        return Err("its body is not the one whose hash was kept");
    }
    Ok(body)
}

pub(crate) fn insert_facts(
    engine: &mut dyn DatabaseEngine,
    id: &str,
    facts: &[StoredFacts],
) -> EngineResult {
    let sql = insert_statement("fact", &format!("document, part, {FACT}"));
    for (part, facts) in facts.iter().enumerate() {
        let key = vec![id.into(), (part as u64).into()];
        engine.query(&sql, &[key, facts_row(facts)].concat())?;
    }
    Ok(())
}

/// Returns a body as it was before compression; `None` if it is damaged.
fn decompress_body(packed: &[u8]) -> Option<Vec<u8>> {
    use std::io::Read;
    let mut body = Vec::new();
    let decoder = zstd::Decoder::new(packed).ok()?;
    decoder.take(MAX_BODY as u64).read_to_end(&mut body).ok()?;
    Some(body)
}

pub(crate) fn compress_body(body: &[u8]) -> Vec<u8> {
    zstd::encode_all(body, LEVEL).unwrap_or_else(|_| unreachable!("memory takes every byte"))
}

/// Returns the identifier of what these bytes stand for: a UUID of version 8 (RFC 9562, 5.8) from
/// their hash.
pub fn id_of_bytes(bytes: &[u8]) -> String {
    let hash = blake3::hash(bytes);
    let first = std::array::from_fn(|index| hash.as_bytes()[index]);
    Builder::from_custom_bytes(first).into_uuid().to_string()
}

fn new_id() -> String {
    Uuid::now_v7().to_string()
}

/// Returns true if `text` is an identifier in the one form that [`Store::find_document`] searches.
fn is_id(text: &str) -> bool {
    text.parse::<Uuid>().is_ok_and(|id| id.to_string() == text)
}

impl DocumentFilter {
    /// Returns a query of the identifiers of documents of these `kinds`, a null for any, with the
    /// values of its parameters. It has a part for each kind, and for name and address of a peer,
    /// which follows an index and has no more than the limit.
    fn id_query(&self, kinds: impl Iterator<Item = DatabaseValue>) -> (String, Vec<DatabaseValue>) {
        let mut values = Vec::new();
        let bounds = [
            ("campaign =", self.campaign.as_deref().map(Into::into)),
            ("started >=", self.since.map(timestamp_value)),
            ("started <", self.before.map(timestamp_value)),
        ];
        let mut common = Vec::new();
        for (comparison, value) in bounds {
            common.extend(
                value.map(|value| format!("{comparison} {}", add_parameter(&mut values, value))),
            );
        }
        if let Some(DocumentPosition { started, id }) = &self.behind {
            let started = add_parameter(&mut values, timestamp_value(*started));
            let id = add_parameter(&mut values, id.as_str().into());
            common.push(format!("(started, id) < ({started}, {id})"));
        }
        if let Some(limit) = &self.limited_by {
            let (kind, cause) = limit.split_once('/').unwrap_or((limit, ""));
            let kind = add_parameter(&mut values, kind.into());
            let cause = add_parameter(&mut values, cause.into());
            common.push(format!(
                "EXISTS (SELECT 1 FROM fact WHERE fact.document = document.id AND limit_kind = {kind}
                 AND ({cause} = '' OR limit_cause = {cause}))"
            ));
        }
        let mut peers = vec![None];
        if let Some(peer) = &self.peer {
            let peer = add_parameter(&mut values, host_of(peer).as_str().into());
            peers = ["peer", "address"]
                .map(|name| Some(format!("{name} = {peer}")))
                .to_vec();
        }
        let mut parts = Vec::new();
        for kind in kinds {
            // With a peer, the index of that is to be followed, and not the one of kinds.
            let column = if self.peer.is_some() {
                "kind || ''"
            } else {
                "kind"
            };
            let kind = (kind != DatabaseValue::Null)
                .then(|| format!("{column} = {}", add_parameter(&mut values, kind)));
            for peer in &peers {
                let own = [peer.clone(), kind.clone()].into_iter().flatten();
                let conditions: Vec<String> = own.chain(common.iter().cloned()).collect();
                parts.push(self.newest_query(&conditions, parts.len()));
            }
        }
        (parts.join(" UNION "), values)
    }

    /// Returns a query of the identifiers of the newest documents that meet these conditions, by
    /// the number of the part that it is.
    fn newest_query(&self, conditions: &[String], part: usize) -> String {
        let conditions = if conditions.is_empty() {
            String::new()
        } else {
            format!("WHERE {}", conditions.join(" AND "))
        };
        let Some(limit) = self.limit else {
            return format!("SELECT id FROM document {conditions}");
        };
        format!(
            "SELECT id FROM (SELECT id, started FROM document {conditions} ORDER BY started DESC, id DESC LIMIT {limit})
             AS part_{part}"
        )
    }
}

/// Adds the value of a parameter, and returns its name in the query.
fn add_parameter(values: &mut Vec<DatabaseValue>, value: DatabaseValue) -> String {
    values.push(value);
    format!("${}", values.len())
}

/// Returns nanoseconds since 1970.
pub(crate) fn timestamp_value(time: Timestamp) -> DatabaseValue {
    DatabaseValue::Integer(timestamp_nanoseconds(time))
}
