//! PostgreSQL: tables in a schema `fullpipe` of the database that the URL names.

use std::error::Error;
use std::time::Duration;

use postgres::types::private::BytesMut;
use postgres::types::{IsNull, ToSql, Type, to_sql_checked};
use postgres::{Client, Config, NoTls};

use crate::engine::{Engine, EngineError, Row, Value, transaction};

/// Time limit for a connection, where the URL gives none, for data that nobody acknowledges, and for another program
/// that keeps a table for itself.
const TIMEOUT: Duration = Duration::from_secs(10);

/// Key of the lock that keeps other writers out while tables change: `fpip`.
const LOCK: i64 = 0x6670_6970;

/// An archive in a database server.
pub(crate) struct Postgresql {
    client: Client,
}

impl Postgresql {
    /// Connects; makes the schema if `create` and there is none.
    pub(crate) fn open(url: &str, create: bool) -> Result<Self, EngineError> {
        let mut config: Config = url.parse()?;
        if config.get_connect_timeout().is_none() {
            config.connect_timeout(TIMEOUT);
        }
        config.application_name("fullpipe").tcp_user_timeout(TIMEOUT);
        let mut opened = Self { client: config.connect(NoTls)? };
        opened.batch(&format!("SET lock_timeout = {}", TIMEOUT.as_millis()))?;
        if create && !opened.has("SELECT 1 FROM pg_namespace WHERE nspname = 'fullpipe'")? {
            // Another program may make it at the same time.
            transaction(&mut opened, |engine| {
                engine.lock_tables()?;
                engine.batch("CREATE SCHEMA IF NOT EXISTS fullpipe")
            })?;
        }
        opened.batch("SET search_path TO fullpipe; SET client_min_messages TO warning")?;
        Ok(opened)
    }

    fn has(&mut self, sql: &str) -> Result<bool, EngineError> {
        Ok(!self.query(sql, &[])?.is_empty())
    }
}

impl Engine for Postgresql {
    fn blob_type(&self) -> &'static str {
        "BYTEA"
    }

    fn query(&mut self, sql: &str, values: &[Value]) -> Result<Vec<Row>, EngineError> {
        let parameters: Vec<&(dyn ToSql + Sync)> = values.iter().map(|value| value as _).collect();
        let rows = self.client.query(sql, &parameters)?;
        rows.iter().map(|row| (0..row.len()).map(|column| value(row, column)).collect()).collect()
    }

    fn batch(&mut self, sql: &str) -> Result<(), EngineError> {
        Ok(self.client.batch_execute(sql)?)
    }

    fn begin(&mut self) -> Result<(), EngineError> {
        self.batch("BEGIN")
    }

    fn lock_tables(&mut self) -> Result<(), EngineError> {
        self.batch(&format!("SELECT pg_advisory_xact_lock({LOCK})"))
    }

    fn version(&mut self) -> Result<u32, EngineError> {
        if !self.has("SELECT 1 FROM pg_tables WHERE schemaname = 'fullpipe' AND tablename = 'version'")? {
            return Ok(0);
        }
        let rows = self.query("SELECT number FROM version", &[])?;
        Ok(match rows.first().map(Vec::as_slice) {
            Some([Value::Integer(number)]) => u32::try_from(*number).unwrap_or(u32::MAX),
            _ => 0,
        })
    }

    fn set_version(&mut self, version: u32) -> Result<(), EngineError> {
        self.batch(&format!(
            "CREATE TABLE IF NOT EXISTS version (number BIGINT NOT NULL);
             DELETE FROM version;
             INSERT INTO version VALUES ({version})"
        ))
    }

    /// Changes of tables are part of the transaction, and copies are the work of `pg_dump`.
    fn copy_before_change(&mut self, _version: u32) -> Result<(), EngineError> {
        Ok(())
    }

    /// The server checks its pages itself when it reads them.
    fn own_check(&mut self) -> Result<Vec<String>, EngineError> {
        Ok(Vec::new())
    }

    /// The server does it by itself (autovacuum).
    fn shrink(&mut self) -> Result<(), EngineError> {
        Ok(())
    }
}

impl From<postgres::Error> for EngineError {
    fn from(error: postgres::Error) -> Self {
        Self::of(&error)
    }
}

/// Returns the value of a column of one of the types that the tables have.
fn value(row: &postgres::Row, column: usize) -> Result<Value, EngineError> {
    Ok(match *row.columns()[column].type_() {
        Type::INT8 => row.try_get::<_, Option<i64>>(column)?.into(),
        Type::INT4 => row.try_get::<_, Option<i32>>(column)?.map(i64::from).into(),
        Type::FLOAT8 => row.try_get::<_, Option<f64>>(column)?.into(),
        Type::BYTEA => row.try_get::<_, Option<Vec<u8>>>(column)?.into(),
        _ => row.try_get::<_, Option<&str>>(column)?.into(),
    })
}

impl ToSql for Value {
    fn to_sql(&self, of: &Type, out: &mut BytesMut) -> Result<IsNull, Box<dyn Error + Sync + Send>> {
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
