use fullpipe_store::{DatabaseValue, EngineError, RowReader, StoreError};
use thiserror::Error;

use super::FleetLedger;
use crate::plan::{MeshHost, MeshSettings};

/// A host of the fleet.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FleetHost {
    /// The host in the mesh.
    pub mesh: MeshHost,
    /// Hash of its certificate.
    pub certificate: String,
    /// When it was sent away, in seconds since 1970.
    pub revoked: Option<u64>,
    /// When it last asked for its slots, in seconds since 1970; 0 if it never did.
    pub seen: u64,
    /// Start of its newest turn, in seconds since 1970; 0 if it had none.
    pub turn: u64,
    /// Milliseconds by which the controller's clock was ahead of its clock.
    pub offset_ms: i64,
    /// Version of its program.
    pub program: String,
}

/// Why a host cannot join.
#[derive(Debug, Error)]
pub enum InviteError {
    /// The code is none that was given out, was used, or is too old.
    #[error(
        "the invitation is unknown, was used, or is older than its time; `fullpipe fleet invite` gives another"
    )]
    Code,
    /// The invitation is for a host of another name.
    #[error("the invitation is for the host {0}")]
    Name(String),
    /// The fleet has a host of this name.
    #[error("the fleet has a host {0}; `fullpipe fleet revoke {0}` sends it away")]
    Known(String),
    /// The archive fails.
    #[error(transparent)]
    Store(#[from] StoreError),
}

const HOST: &str = "name, site, reach, certificate, revoked, seen, turn, offset_ms, program";

fn next_host(row: &mut RowReader) -> FleetHost {
    let [name, site, reach, certificate] = std::array::from_fn(|_| row.next_string());
    FleetHost {
        mesh: MeshHost {
            name,
            site,
            reach: Some(reach).filter(|reach| !reach.is_empty()),
        },
        certificate,
        revoked: row.next_count(),
        seen: row.next_count().unwrap_or(0),
        turn: row.next_count().unwrap_or(0),
        offset_ms: row.next_integer().unwrap_or(0),
        program: row.next_string(),
    }
}

impl FleetLedger<'_> {
    /// Returns the hosts of the fleet by their names, also those that were sent away.
    ///
    /// # Errors
    /// Fails if the archive does.
    pub fn hosts(&mut self) -> Result<Vec<FleetHost>, StoreError> {
        let rows = self
            .0
            .query(&format!("SELECT {HOST} FROM fleet_host ORDER BY name"), &[])?;
        Ok(rows
            .into_iter()
            .map(|mut row| next_host(&mut row))
            .collect())
    }

    /// Returns true if the archive has a fleet: hosts that take part.
    ///
    /// # Errors
    /// Fails if the archive does.
    pub fn has_hosts(&mut self) -> Result<bool, StoreError> {
        let sql = "SELECT 1 FROM fleet_host WHERE revoked IS NULL LIMIT 1";
        Ok(!self.0.query(sql, &[])?.is_empty())
    }

    /// Returns the host whose certificate has this hash, unless it was sent away. A new certificate
    /// takes the place of the old one when it is first used.
    ///
    /// # Errors
    /// Fails if the archive does.
    pub fn host_of_certificate(&mut self, hash: &str) -> Result<Option<FleetHost>, StoreError> {
        let sql = format!(
            "SELECT {HOST} FROM fleet_host WHERE (certificate = $1 OR renewed = $1) AND revoked IS NULL"
        );
        let rows = self.0.query(&sql, &[hash.into()])?;
        let host = rows.into_iter().next().map(|mut row| next_host(&mut row));
        if host.as_ref().is_some_and(|host| host.certificate != hash) {
            self.0.transact(|archive| {
                archive
                    .query(
                        "UPDATE fleet_host SET certificate = $1, renewed = '' WHERE renewed = $1",
                        &[hash.into()],
                    )
                    .map(drop)
            })?;
        }
        Ok(host)
    }

    /// Returns how the mesh is measured.
    ///
    /// # Errors
    /// Fails if the archive does.
    pub fn settings(&mut self) -> Result<MeshSettings, StoreError> {
        Ok(self
            .setting("mesh")?
            .and_then(|text| serde_json::from_str(&text).ok())
            .unwrap_or_default())
    }

    /// Returns a setting of the fleet.
    ///
    /// # Errors
    /// Fails if the archive does.
    pub fn setting(&mut self, name: &str) -> Result<Option<String>, StoreError> {
        let sql = "SELECT value FROM fleet_setting WHERE name = $1";
        let rows = self.0.query(sql, &[name.into()])?;
        Ok(rows.into_iter().next().and_then(|mut row| row.next_text()))
    }

    /// Keeps a setting of the fleet, unless there is one and `replace` is false; returns the one
    /// that there is then.
    ///
    /// # Errors
    /// Fails if the archive does.
    pub fn keep_setting(
        &mut self,
        name: &str,
        value: &str,
        replace: bool,
    ) -> Result<String, StoreError> {
        let conflict = if replace {
            "(name) DO UPDATE SET value = excluded.value"
        } else {
            "DO NOTHING"
        };
        let sql = format!(
            "INSERT INTO fleet_setting (name, value) VALUES ($1, $2) ON CONFLICT {conflict}"
        );
        let values = [name.into(), value.into()];
        self.0
            .transact(|archive| archive.query(&sql, &values).map(drop))?;
        Ok(self.setting(name)?.unwrap_or_default())
    }

    /// Keeps how the mesh is measured.
    ///
    /// # Errors
    /// Fails if the archive does.
    pub fn keep_settings(&mut self, settings: &MeshSettings) -> Result<(), StoreError> {
        let text = serde_json::to_string(settings).unwrap_or_default();
        self.keep_setting("mesh", &text, true).map(drop)
    }

    /// Keeps an invitation by the hash of its code, for a host of this name or, if that is empty,
    /// of any, until a time in seconds since 1970.
    ///
    /// # Errors
    /// Fails if the archive does.
    pub fn keep_invite(&mut self, code: &str, host: &str, expires: u64) -> Result<(), StoreError> {
        let values = [code.into(), host.into(), expires.into()];
        self.0.transact(|archive| {
            archive
                .query(
                    "INSERT INTO fleet_invite (code, host, expires) VALUES ($1, $2, $3)",
                    &values,
                )
                .map(drop)
        })
    }

    /// Takes a host into the fleet by an invitation, which is used up by that.
    ///
    /// # Errors
    /// Fails if the invitation is not good for it at `now`, in seconds since 1970, if there is a
    /// host of its name, or if the archive does.
    pub fn enrol_host(
        &mut self,
        code: &str,
        host: &MeshHost,
        certificate: &str,
        now: u64,
    ) -> Result<(), InviteError> {
        let enrolled: Result<_, StoreError> = self.0.transact(|archive| {
            archive.lock_tables()?;
            let invited = archive.query(
                "SELECT host FROM fleet_invite WHERE code = $1 AND used IS NULL AND expires >= $2",
                &[code.into(), now.into()],
            )?;
            let Some(mut invited) = invited.into_iter().next() else {
                return Ok(Err(InviteError::Code));
            };
            let wanted = invited.next_string();
            if !wanted.is_empty() && wanted != host.name {
                return Ok(Err(InviteError::Name(wanted)));
            }
            let known = archive.query(
                "SELECT 1 FROM fleet_host WHERE name = $1 AND revoked IS NULL",
                &[host.name.as_str().into()],
            )?;
            if !known.is_empty() {
                return Ok(Err(InviteError::Known(host.name.clone())));
            }
            archive.query(
                "UPDATE fleet_invite SET used = $2 WHERE code = $1",
                &[code.into(), now.into()],
            )?;
            insert_host(archive, host, certificate)?;
            Ok(Ok(()))
        });
        enrolled?
    }

    /// Gives a host a new certificate beside the one that it has, until it uses that.
    ///
    /// # Errors
    /// Fails if the archive does.
    pub fn renew_host(&mut self, name: &str, certificate: &str) -> Result<(), StoreError> {
        let values = [name.into(), certificate.into()];
        self.0.transact(|archive| {
            archive
                .query(
                    "UPDATE fleet_host SET renewed = $2 WHERE name = $1",
                    &values,
                )
                .map(drop)
        })
    }

    /// Sends a host away: its certificate is good for nothing, and its slots to come are no more.
    /// Returns false if the fleet has none of this name.
    ///
    /// # Errors
    /// Fails if the archive does.
    pub fn revoke_host(&mut self, name: &str, now: u64) -> Result<bool, StoreError> {
        let values: [DatabaseValue; 2] = [name.into(), now.into()];
        self.0.transact(|archive| {
            archive.lock_tables()?;
            let revoked = archive.query(
                "UPDATE fleet_host SET revoked = $2 WHERE name = $1 AND revoked IS NULL RETURNING name",
                &values,
            )?;
            for statement in [
                "DELETE FROM fleet_claim WHERE slot IN (SELECT id FROM fleet_slot
                 WHERE (client = $1 OR server = $1) AND starts > $2 AND outcome IS NULL)",
                "DELETE FROM fleet_slot WHERE (client = $1 OR server = $1) AND starts > $2 AND outcome IS NULL",
            ] {
                archive.query(statement, &values)?;
            }
            let pairs = "DELETE FROM fleet_pair WHERE sender = $1 OR receiver = $1";
            archive.query(pairs, &values[..1])?;
            Ok(!revoked.is_empty())
        })
    }
}

/// Inserts a host, and its pairs with all others.
fn insert_host(
    archive: &mut fullpipe_store::ArchiveTransaction<'_>,
    host: &MeshHost,
    certificate: &str,
) -> Result<(), EngineError> {
    archive.query(
        "INSERT INTO fleet_host (name, site, reach, certificate, renewed, seen, turn, offset_ms, program)
         VALUES ($1, $2, $3, $4, '', 0, 0, 0, '')
         ON CONFLICT (name) DO UPDATE SET site = excluded.site, reach = excluded.reach,
         certificate = excluded.certificate, renewed = '', revoked = NULL",
        &[
            host.name.as_str().into(),
            host.site.as_str().into(),
            host.reach.as_deref().unwrap_or_default().into(),
            certificate.into(),
        ],
    )?;
    let name = [host.name.as_str().into()];
    let others =
        "FROM fleet_host WHERE name <> CAST($1 AS TEXT) AND revoked IS NULL ON CONFLICT DO NOTHING";
    for pair in ["CAST($1 AS TEXT), name", "name, CAST($1 AS TEXT)"] {
        archive.query(
            &format!(
                "INSERT INTO fleet_pair (sender, receiver, planned) SELECT {pair}, 0 {others}"
            ),
            &name,
        )?;
    }
    Ok(())
}
