use std::fs::File;
use std::io::{self, Write};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use fullpipe_iperf::SharedKey;
use fullpipe_sys::random_bytes;
use fullpipe_units::to_hexadecimal;
use serde::{Deserialize, Serialize};

/// What a new host says to a controller.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct JoinRequest {
    /// Hash of the secret of its invitation.
    pub code: String,
    /// Its name.
    pub host: String,
    /// Its site.
    pub site: String,
    /// Address and port at which others reach its server; `None` if they cannot.
    pub reach: Option<String>,
    /// Its public key, of Ed25519.
    pub public_key: Vec<u8>,
}

impl JoinRequest {
    /// Checks the names of the host, which others read.
    ///
    /// # Errors
    /// Fails with a sentence if it cannot have these.
    pub fn check_names(&self) -> Result<(), String> {
        let is_name = |name: &str| {
            let plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-._".contains(&byte);
            (1..=63).contains(&name.len()) && name.bytes().all(plain) && !name.starts_with('-')
        };
        for (what, name) in [("host", &self.host), ("site", &self.site)] {
            if !is_name(name) {
                return Err(format!(
                    "the name of a {what} has 1 to 63 letters, digits, -, _ and dots"
                ));
            }
        }
        let is_address = |reach: &str| {
            let plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-._:[]".contains(&byte);
            let port = reach.rsplit_once(':').map(|(_, port)| port.parse::<u16>());
            reach.len() <= 300
                && reach.bytes().all(plain)
                && matches!(port, Some(Ok(1..)))
                && !reach.starts_with('-')
        };
        match &self.reach {
            Some(reach) if !is_address(reach) => {
                Err("others reach a host at an address or a name with a port".to_owned())
            }
            _ => Ok(()),
        }
    }
}

/// What a host says whose certificate ends soon.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RenewRequest {
    /// Its new public key, of Ed25519.
    pub public_key: Vec<u8>,
}

/// What a controller gives to a host: certificates in PEM.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct JoinedHost {
    /// Of the host.
    pub certificate: String,
    /// Of the authority.
    pub authority: String,
}

/// Who a host is in its fleet, as its folder has it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct AgentIdentity {
    /// URL of the controller.
    pub controller: String,
    /// Name of the host.
    pub host: String,
    /// Address and port at which others reach its server; `None` if they cannot.
    pub reach: Option<String>,
    /// Certificates.
    pub certificates: JoinedHost,
    /// Its private key in PEM.
    pub key: String,
    /// When it got its certificate, in seconds since 1970.
    pub signed: u64,
}

/// The folder of an agent, which only its user reads.
#[derive(Debug, Clone)]
pub struct AgentFolder(PathBuf);

impl AgentFolder {
    /// Returns the folder, which is made if there is none.
    ///
    /// # Errors
    /// Fails if it cannot be made.
    pub fn new(folder: PathBuf) -> io::Result<Self> {
        std::fs::DirBuilder::new()
            .recursive(true)
            .mode(0o700)
            .create(&folder)?;
        Ok(Self(folder))
    }

    /// Returns the file of the archive.
    pub fn archive(&self) -> PathBuf {
        self.0.join("agent.db")
    }

    /// Returns the file of the secret by which the server checks tickets.
    pub fn ticket_secret_file(&self) -> PathBuf {
        self.0.join("tickets")
    }

    /// Returns the file of the ticket of the test that runs.
    pub(super) fn ticket_file(&self) -> PathBuf {
        self.0.join("ticket")
    }

    /// Returns who the host is; `None` before it has joined.
    ///
    /// # Errors
    /// Fails if the file cannot be read, or is damaged.
    pub fn identity(&self) -> io::Result<Option<AgentIdentity>> {
        match std::fs::read(self.0.join("identity.json")) {
            Ok(content) => Ok(Some(serde_json::from_slice(&content)?)),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// Keeps who the host is, whole or not at all.
    ///
    /// # Errors
    /// Fails if the disk refuses.
    pub fn keep_identity(&self, identity: &AgentIdentity) -> io::Result<()> {
        self.write_secret(
            &self.0.join("identity.json"),
            &serde_json::to_vec(identity)?,
        )
    }

    /// Returns the secret by which the server checks tickets, which is made if there is none.
    ///
    /// # Errors
    /// Fails if it cannot be read or made.
    pub fn ticket_secret(&self) -> io::Result<SharedKey> {
        let file = self.ticket_secret_file();
        if !file.try_exists()? {
            let secret = to_hexadecimal(&random_bytes::<32>()?);
            self.write_secret(&file, secret.as_bytes())?;
        }
        SharedKey::from_file_content(&std::fs::read(&file)?).map_err(io::Error::other)
    }

    /// Writes a file that only this user reads, whole or not at all.
    pub(super) fn write_secret(&self, file: &Path, content: &[u8]) -> io::Result<()> {
        let unfinished = self.0.join("unfinished");
        let mut opened = File::options()
            .write(true)
            .create(true)
            .truncate(true)
            .mode(0o600)
            .open(&unfinished)?;
        opened.write_all(content)?;
        opened.sync_all()?;
        std::fs::rename(&unfinished, file)?;
        File::open(&self.0)?.sync_all()
    }
}
