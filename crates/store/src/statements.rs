//! The statements that both databases take.

/// Changes of the tables, in order: the first makes them, and the version of an archive is how many
/// it has. A change is added, never edited. `{BLOB}` stands for the type of bytes,
/// and `{NO_OVERLAP}` for what refuses claims that overlap, where the database can.
pub(crate) const MIGRATIONS: &[&str] = &[
    "
    CREATE TABLE document (
        id TEXT NOT NULL PRIMARY KEY,
        kind TEXT NOT NULL,
        schema BIGINT NOT NULL,
        started BIGINT NOT NULL,
        host TEXT NOT NULL,
        peer TEXT NOT NULL,
        address TEXT NOT NULL,
        path_key TEXT NOT NULL,
        campaign TEXT NOT NULL,
        cell TEXT NOT NULL,
        request_key TEXT NOT NULL,
        program TEXT NOT NULL,
        bytes BIGINT NOT NULL,
        blake3 TEXT NOT NULL,
        thinned BIGINT NOT NULL,
        origin TEXT NOT NULL UNIQUE
    );
    CREATE INDEX document_started ON document (started);
    CREATE INDEX document_peer ON document (peer, started);
    CREATE INDEX document_address ON document (address, started);
    CREATE INDEX document_campaign ON document (campaign, started);
    CREATE TABLE body (
        document TEXT NOT NULL PRIMARY KEY,
        content {BLOB} NOT NULL
    );
    CREATE TABLE fact (
        document TEXT NOT NULL,
        part BIGINT NOT NULL,
        step TEXT NOT NULL,
        direction TEXT NOT NULL,
        bits_per_second BIGINT,
        steady_bits_per_second BIGINT,
        rtt_idle_ns BIGINT,
        rtt_loaded_ns BIGINT,
        rtt_loaded_p99_ns BIGINT,
        retransmits BIGINT,
        loss DOUBLE PRECISION,
        limit_kind TEXT,
        limit_cause TEXT,
        limit_share DOUBLE PRECISION,
        cpu_sender DOUBLE PRECISION,
        cpu_receiver DOUBLE PRECISION,
        valid BIGINT NOT NULL,
        streams BIGINT,
        buffer_bytes BIGINT,
        window_bytes BIGINT,
        congestion TEXT,
        sent_bytes BIGINT,
        duration_ns BIGINT,
        PRIMARY KEY (document, part)
    )",
    "
    DROP INDEX document_started;
    DROP INDEX document_peer;
    DROP INDEX document_address;
    CREATE INDEX document_started ON document (started, id);
    CREATE INDEX document_kind ON document (kind, started, id);
    CREATE INDEX document_peer ON document (peer, started, id, kind);
    CREATE INDEX document_address ON document (address, started, id, kind)",
    "
    CREATE TABLE fleet_setting (
        name TEXT NOT NULL PRIMARY KEY,
        value TEXT NOT NULL
    );
    CREATE TABLE fleet_invite (
        code TEXT NOT NULL PRIMARY KEY,
        host TEXT NOT NULL,
        expires BIGINT NOT NULL,
        used BIGINT
    );
    CREATE TABLE fleet_host (
        name TEXT NOT NULL PRIMARY KEY,
        site TEXT NOT NULL,
        reach TEXT NOT NULL,
        certificate TEXT NOT NULL,
        renewed TEXT NOT NULL,
        revoked BIGINT,
        seen BIGINT NOT NULL,
        turn BIGINT NOT NULL,
        offset_ms BIGINT NOT NULL,
        program TEXT NOT NULL
    );
    CREATE TABLE fleet_slot (
        id TEXT NOT NULL PRIMARY KEY,
        client TEXT NOT NULL,
        server TEXT NOT NULL,
        direction TEXT NOT NULL,
        purpose TEXT NOT NULL,
        starts BIGINT NOT NULL,
        ends BIGINT NOT NULL,
        load TEXT NOT NULL,
        ticket TEXT,
        outcome TEXT,
        why TEXT NOT NULL,
        document TEXT NOT NULL,
        watched BIGINT
    );
    CREATE INDEX fleet_slot_unwatched ON fleet_slot (starts) WHERE outcome = 'done' AND watched IS NULL;
    CREATE INDEX fleet_slot_starts ON fleet_slot (starts);
    CREATE INDEX fleet_slot_client ON fleet_slot (client, starts);
    CREATE INDEX fleet_slot_server ON fleet_slot (server, starts);
    CREATE TABLE fleet_claim (
        slot TEXT NOT NULL,
        resource TEXT NOT NULL,
        resource_key BIGINT NOT NULL,
        starts BIGINT NOT NULL,
        ends BIGINT NOT NULL,
        PRIMARY KEY (resource, starts){NO_OVERLAP}
    );
    CREATE INDEX fleet_claim_ends ON fleet_claim (ends);
    CREATE TABLE fleet_pair (
        sender TEXT NOT NULL,
        receiver TEXT NOT NULL,
        planned BIGINT NOT NULL,
        watch TEXT,
        triggered BIGINT NOT NULL DEFAULT 0,
        PRIMARY KEY (sender, receiver)
    );
    CREATE INDEX fleet_pair_planned ON fleet_pair (planned);
    CREATE TABLE fleet_order (
        slot TEXT NOT NULL PRIMARY KEY,
        content TEXT NOT NULL
    );
    CREATE TABLE fleet_echo (
        client TEXT NOT NULL,
        server TEXT NOT NULL,
        minute BIGINT NOT NULL,
        sent BIGINT NOT NULL,
        lost BIGINT NOT NULL,
        rtt_ns BIGINT,
        PRIMARY KEY (client, server, minute)
    );
    CREATE INDEX fleet_echo_minute ON fleet_echo (minute);
    CREATE TABLE fleet_watch (
        client TEXT NOT NULL PRIMARY KEY,
        content TEXT NOT NULL
    );
    CREATE TABLE fleet_incident (
        id TEXT NOT NULL PRIMARY KEY,
        since BIGINT NOT NULL,
        changed BIGINT NOT NULL,
        ended BIGINT,
        content TEXT NOT NULL,
        announced TEXT NOT NULL,
        claimed BIGINT NOT NULL
    );
    CREATE INDEX fleet_incident_changed ON fleet_incident (changed)",
];

/// Refuses two claims of one resource that overlap. Ranges of numbers need no extension of
/// PostgreSQL, as ranges of texts would.
pub(crate) const NO_OVERLAP: &str = ", EXCLUDE USING gist (int8range(resource_key, resource_key, '[]') WITH &&, \
    int8range(starts, ends) WITH &&)";

/// Kinds of documents, each found by a step in an index, of which there are few: those that are
/// `$1`, or begin with it and a `/`.
pub(crate) const KINDS: &str = "
    WITH RECURSIVE known (kind) AS (
        SELECT min(kind) FROM document
        UNION ALL
        SELECT (SELECT min(kind) FROM document WHERE document.kind > known.kind) FROM known
        WHERE known.kind IS NOT NULL
    )
    SELECT kind FROM known WHERE kind = $1 OR kind LIKE CAST($1 AS TEXT) || '/%'";

/// Columns of `document`, in the order of [`crate::columns`], without `origin`.
pub(crate) const DOCUMENT: &str = "id, kind, schema, started, host, peer, address, path_key, campaign, cell, \
    request_key, program, bytes, blake3, thinned";

/// Columns of `fact`, in the order of [`crate::columns`], without the document and the part.
pub(crate) const FACT: &str = "step, direction, bits_per_second, steady_bits_per_second, rtt_idle_ns, rtt_loaded_ns, \
    rtt_loaded_p99_ns, retransmits, loss, limit_kind, limit_cause, limit_share, cpu_sender, cpu_receiver, valid, \
    streams, buffer_bytes, window_bytes, congestion, sent_bytes, duration_ns";

/// Returns the statement that inserts a row, unless there is one with the same key.
pub(crate) fn insert_statement(table: &str, columns: &str) -> String {
    let parameters: Vec<String> = (1..=columns.split(',').count())
        .map(|number| format!("${number}"))
        .collect();
    let parameters = parameters.join(", ");
    let key = columns.split(',').next().unwrap_or_default();
    format!(
        "INSERT INTO {table} ({columns}) VALUES ({parameters}) ON CONFLICT DO NOTHING RETURNING {key}"
    )
}

/// Returns the columns with the name of their table in front.
pub(crate) fn of_table(table: &str, columns: &str) -> String {
    columns
        .split(", ")
        .map(|column| format!("{table}.{column}"))
        .collect::<Vec<_>>()
        .join(", ")
}
