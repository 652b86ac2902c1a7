//! PostgreSQL: tables in a schema `fullpipe` of the database that the URL names.

use std::error::Error;
use std::sync::mpsc;
use std::thread;
use std::time::Duration;

use postgres::error::SqlState;
use postgres::types::private::BytesMut;
use postgres::types::{IsNull, ToSql, Type, to_sql_checked};
use postgres::{Client, Config, NoTls};

use crate::engine::{
    DatabaseEngine, DatabaseValue, EngineError, EngineResult, Row, run_transaction,
};
use crate::statements::NO_OVERLAP;

/// Time limit for a connection, where the URL gives none, for data that the server does not
/// acknowledge, and for another program that keeps a table for itself.
const TIMEOUT: Duration = Duration::from_secs(10);

/// Longest wait for the answer to one statement.
const ANSWER_TIMEOUT: Duration = Duration::from_mins(2);

/// Key of the lock that keeps other writers out while tables change: `fpip`.
const LOCK: i64 = 0x6670_6970;

/// An archive in a database server.
pub(crate) struct PostgresEngine {
    /// `None` once the server has not answered.
    client: Option<Client>,
    /// Longest wait for an answer.
    timeout: Duration,
}

impl PostgresEngine {
    /// Connects; makes the schema if `create` and there is none.
    pub(crate) fn open(url: &str, create: bool) -> EngineResult<Self> {
        let mut config: Config = url.parse()?;
        let connecting = config.get_connect_timeout().copied().unwrap_or(TIMEOUT);
        config
            .connect_timeout(connecting)
            .application_name("fullpipe")
            .tcp_user_timeout(TIMEOUT);
        // The time limit of a connection ends where a server is to answer.
        let mut opened = Self::connect(config, connecting.saturating_add(TIMEOUT))?;
        opened.prepare_schema(create)?;
        opened.timeout = ANSWER_TIMEOUT;
        Ok(opened)
    }

    fn connect(config: Config, timeout: Duration) -> EngineResult<Self> {
        let client = run_with_timeout(timeout, move || config.connect(NoTls))??;
        Ok(Self {
            client: Some(client),
            timeout,
        })
    }

    fn prepare_schema(&mut self, create: bool) -> EngineResult {
        self.execute_batch(&format!("SET lock_timeout = {}", TIMEOUT.as_millis()))?;
        if create && !self.has_rows("SELECT 1 FROM pg_namespace WHERE nspname = 'fullpipe'")? {
            // Another program may make it at the same time.
            run_transaction(self, |engine| {
                engine.lock_tables()?;
                engine.execute_batch("CREATE SCHEMA IF NOT EXISTS fullpipe")
            })?;
        }
        self.execute_batch("SET search_path TO fullpipe; SET client_min_messages TO warning")
    }

    fn has_rows(&mut self, sql: &str) -> EngineResult<bool> {
        Ok(!self.query(sql, &[])?.is_empty())
    }

    /// Asks the server. One that has not answered once is asked no more.
    fn ask_server<T: Send + 'static>(
        &mut self,
        ask: impl FnOnce(&mut Client) -> EngineResult<T> + Send + 'static,
    ) -> EngineResult<T> {
        let mut client = self.client.take().ok_or_else(timeout_error)?;
        let (client, answer) = run_with_timeout(self.timeout, move || {
            let answer = ask(&mut client);
            (client, answer)
        })?;
        self.client = Some(client);
        answer
    }
}

/// Returns the result of `work` within `timeout`. The work goes on in a thread of its own until
/// then, which the end of the program ends: the library waits for a server without end.
fn run_with_timeout<T: Send + 'static>(
    timeout: Duration,
    work: impl FnOnce() -> T + Send + 'static,
) -> EngineResult<T> {
    let (sender, receiver) = mpsc::channel();
    thread::Builder::new()
        .name("postgresql".to_owned())
        .spawn(move || drop(sender.send(work())))?;
    receiver.recv_timeout(timeout).map_err(|_| timeout_error())
}

fn timeout_error() -> EngineError {
    EngineError::from_cause("the server does not answer")
}

impl DatabaseEngine for PostgresEngine {
    fn blob_type(&self) -> &'static str {
        "BYTEA"
    }

    fn overlap_constraint(&self) -> &'static str {
        NO_OVERLAP
    }

    fn query(&mut self, sql: &str, values: &[DatabaseValue]) -> EngineResult<Vec<Row>> {
        let (sql, values) = (sql.to_owned(), values.to_vec());
        self.ask_server(move |client| {
            let parameters: Vec<&(dyn ToSql + Sync)> =
                values.iter().map(|value| value as _).collect();
            let rows = client.query(&sql, &parameters)?;
            rows.iter()
                .map(|row| {
                    (0..row.len())
                        .map(|column| column_value(row, column))
                        .collect()
                })
                .collect()
        })
    }

    fn execute_batch(&mut self, sql: &str) -> EngineResult {
        let sql = sql.to_owned();
        self.ask_server(move |client| Ok(client.batch_execute(&sql)?))
    }

    fn begin_transaction(&mut self) -> EngineResult {
        self.execute_batch("BEGIN")
    }

    fn lock_tables(&mut self) -> EngineResult {
        self.execute_batch(&format!("SELECT pg_advisory_xact_lock({LOCK})"))
    }

    fn schema_version(&mut self) -> EngineResult<u32> {
        if !self.has_rows(
            "SELECT 1 FROM pg_tables WHERE schemaname = 'fullpipe' AND tablename = 'version'",
        )? {
            return Ok(0);
        }
        // By its full name: without a permission for the schema, the search path leads nowhere.
        let rows = self.query("SELECT number FROM fullpipe.version", &[])?;
        Ok(match rows.first().map(Vec::as_slice) {
            Some([DatabaseValue::Integer(number)]) => u32::try_from(*number).unwrap_or(u32::MAX),
            _ => 0,
        })
    }

    fn set_version(&mut self, version: u32) -> EngineResult {
        self.execute_batch(&format!(
            "CREATE TABLE IF NOT EXISTS version (number BIGINT NOT NULL);
             DELETE FROM version;
             INSERT INTO version VALUES ({version})"
        ))
    }

    /// Changes of tables are part of the transaction, and copies are the work of `pg_dump`.
    fn copy_before_change(&mut self, _version: u32) -> EngineResult {
        Ok(())
    }

    /// The server checks its pages itself when it reads them.
    fn own_check(&mut self) -> EngineResult<Vec<String>> {
        Ok(Vec::new())
    }

    /// The server does it by itself (autovacuum).
    fn release_space(&mut self) -> EngineResult {
        Ok(())
    }
}

impl From<postgres::Error> for EngineError {
    fn from(error: postgres::Error) -> Self {
        Self::from_error(&error).forbidden_if(error.code().is_some_and(is_forbidden))
    }
}

/// Returns true if the server refuses this user: a permission that it lacks, a wrong password, or a
/// copy of a database that can only be read.
fn is_forbidden(code: &SqlState) -> bool {
    const LACKS: [SqlState; 2] = [
        SqlState::INSUFFICIENT_PRIVILEGE,
        SqlState::READ_ONLY_SQL_TRANSACTION,
    ];
    // Class 28: invalid authorization.
    LACKS.contains(code) || code.code().starts_with("28")
}

/// Returns the value of a column of one of the types that the tables have.
fn column_value(row: &postgres::Row, column: usize) -> EngineResult<DatabaseValue> {
    Ok(match *row.columns()[column].type_() {
        Type::INT8 => row.try_get::<_, Option<i64>>(column)?.into(),
        Type::INT4 => row.try_get::<_, Option<i32>>(column)?.map(i64::from).into(),
        Type::FLOAT8 => row.try_get::<_, Option<f64>>(column)?.into(),
        Type::BYTEA => row.try_get::<_, Option<Vec<u8>>>(column)?.into(),
        _ => row.try_get::<_, Option<&str>>(column)?.into(),
    })
}

impl ToSql for DatabaseValue {
    fn to_sql(
        &self,
        of: &Type,
        out: &mut BytesMut,
    ) -> Result<IsNull, Box<dyn Error + Sync + Send>> {
        match self {
            Self::Null => Ok(IsNull::Yes),
            Self::Integer(number) => number.to_sql(of, out),
            Self::Real(number) => number.to_sql(of, out),
            Self::Text(text) => text.to_sql(of, out),
            Self::Blob(bytes) => bytes.to_sql(of, out),
        }
    }

    fn accepts(of: &Type) -> bool {
        [Type::INT8, Type::FLOAT8, Type::TEXT, Type::BYTEA].contains(of)
    }

    to_sql_checked!();
}

#[cfg(test)]
mod tests {
    use std::net::TcpListener;
    use std::time::Instant;

    use fullpipe_testkit::{Postgres, require};

    use super::*;

    #[test]
    fn a_server_that_accepts_and_says_nothing_is_waited_for_with_a_limit() {
        let deaf = TcpListener::bind("127.0.0.1:0").unwrap();
        let url = format!(
            "postgres://me@127.0.0.1:{}/x",
            deaf.local_addr().unwrap().port()
        );
        let begun = Instant::now();
        let refused =
            PostgresEngine::connect(url.parse().unwrap(), Duration::from_millis(50)).err();
        assert_eq!(refused, Some(timeout_error()));
        assert!(begun.elapsed() < TIMEOUT);
    }

    #[test]
    fn a_server_that_falls_silent_is_asked_no_more() {
        require!(Postgres);
        let server = Postgres::start();
        let mut engine = PostgresEngine::open(&server.database("silent"), true).unwrap();
        engine.timeout = Duration::from_millis(100);
        assert_eq!(
            engine.execute_batch("SELECT pg_sleep(30)"),
            Err(timeout_error())
        );
        let begun = Instant::now();
        engine.timeout = TIMEOUT;
        assert_eq!(engine.begin_transaction(), Err(timeout_error()));
        assert!(begun.elapsed() < TIMEOUT / 2);
    }
}
