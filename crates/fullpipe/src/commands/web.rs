use std::fs::OpenOptions;
use std::io::Write;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::os::unix::fs::OpenOptionsExt;

use fullpipe_control::{WebIdentity, listen_tcp};
use fullpipe_store::ArchiveLocation;
use fullpipe_sys::random_bytes;
use fullpipe_units::to_hexadecimal;
use fullpipe_web::{AccessToken, HostList, TestProgram, WebOptions, serve_pages};
use tokio::net::TcpListener;
use tokio::runtime;

use super::keep::VARIABLE as ARCHIVE_VARIABLE;
use super::prelude::*;
use super::serve::read_identity;
use super::state::state_folder;
use super::until_asked_to_end;
use crate::values::read_protected_file;

/// Port of the pages.
const PORT: u16 = 5280;

/// The archive, and what runs now, in a browser
///
/// Lists measurements, compares two, shows the history of a host, and starts tests, whose rate it
/// draws as they run. Other programs find the same under /api/v1, and metrics for Prometheus under
/// /metrics and /probe. docs/pages.md has examples.
#[derive(Debug, Args)]
pub(crate) struct WebArguments {
    /// Port to listen on [default: 5280]
    #[arg(long, short, value_parser = integer_parser(0..=u16::MAX), help_heading = "Server")]
    port: Option<u16>,
    /// Address to listen on [default: loopback]
    ///
    /// One that other hosts reach needs --token-file, and --cert with --key-pem.
    #[arg(long, short = 'B', value_name = "ADDRESS", help_heading = "Server")]
    bind: Option<IpAddr>,
    /// Further names by which browsers call this server
    #[arg(
        long,
        value_delimiter = ',',
        value_name = "NAME,…",
        help_heading = "Server"
    )]
    allow_host: Vec<String>,
    /// File with the token that opens the pages [default: one of this user, made at the first start]
    #[arg(long, value_name = "FILE", help_heading = "Security")]
    token_file: Option<PathBuf>,
    /// Certificate in PEM, for HTTPS
    #[arg(
        long,
        value_name = "FILE",
        requires = "key_pem",
        help_heading = "Security"
    )]
    cert: Option<PathBuf>,
    /// Private key of that certificate in PEM
    #[arg(
        long,
        value_name = "FILE",
        requires = "cert",
        help_heading = "Security"
    )]
    key_pem: Option<PathBuf>,
    /// Hosts that may be measured, besides those in the archive
    #[arg(
        long,
        value_delimiter = ',',
        value_name = "HOST,…",
        help_heading = "Tests"
    )]
    targets: Vec<String>,
    #[command(flatten)]
    place: PlaceArgument,
}

impl RunCommand for WebArguments {
    fn run(&self, terminal: &Terminal) -> Result {
        let address = SocketAddr::new(
            self.bind.unwrap_or(Ipv4Addr::LOCALHOST.into()),
            self.port.unwrap_or(PORT),
        );
        self.check_secrets(address.ip())?;
        let identity = match (&self.cert, &self.key_pem) {
            (Some(certificate), Some(key)) => Some(read_identity(certificate, key)?),
            _ => None,
        };
        let token = self.token()?;
        let runtime = runtime::Builder::new_current_thread().enable_all().build();
        let runtime = runtime.map_err(cannot("serve pages"))?;
        let ended = runtime.block_on(self.serve(address, identity, token, terminal));
        // A question to a database that does not answer cannot be cancelled.
        runtime.shutdown_background();
        ended
    }
}

impl WebArguments {
    /// # Errors
    /// Fails if other hosts could read what crosses the network, or a token that stood nowhere.
    fn check_secrets(&self, address: IpAddr) -> Result {
        if address.is_loopback() || (self.token_file.is_some() && self.cert.is_some()) {
            return Ok(());
        }
        Err(usage_failure(
            "other hosts reach this address: name a token with --token-file, and a certificate with --cert and --key-pem",
        ))
    }

    fn token(&self) -> Result<AccessToken> {
        let file = match (&self.token_file, state_folder()) {
            (Some(file), _) => file.clone(),
            (None, Some(folder)) => token_of_user(&folder)?,
            (None, None) => return new_token(),
        };
        let name = file.display();
        let wrong = |why: &dyn std::fmt::Display| {
            usage_failure(format!("cannot use the token {name}: {why}"))
        };
        let content = read_protected_file(&file).map_err(|error| wrong(&error))?;
        let text = std::str::from_utf8(&content).map_err(|error| wrong(&error))?;
        AccessToken::from_text(text).map_err(|why| wrong(&why))
    }

    /// Listens on the address; by default on loopback of IPv6, too, where the host has it.
    fn listen(&self, address: SocketAddr) -> Result<Vec<TcpListener>> {
        let first = listen_tcp(Some(address.ip()), address.port(), |_| Ok(()))
            .map_err(|error| Failure::cannot_listen(&error, "--port"))?;
        let port = first.local_addr().map_err(cannot("serve pages"))?.port();
        let mut listeners = vec![first];
        if self.bind.is_none() {
            let loopback = Some(Ipv6Addr::LOCALHOST.into());
            listeners.extend(listen_tcp(loopback, port, |_| Ok(())).ok());
        }
        Ok(listeners)
    }

    async fn serve(
        &self,
        address: SocketAddr,
        identity: Option<WebIdentity>,
        token: AccessToken,
        terminal: &Terminal,
    ) -> Result {
        let listeners = self.listen(address)?;
        let address = listeners[0].local_addr().map_err(cannot("serve pages"))?;
        let scheme = if identity.is_some() { "https" } else { "http" };
        let archive = self.place.location()?;
        terminal.print_progress(&format!(
            "the archive {archive}\nopen {scheme}://{address}/#{}\n",
            token.as_str()
        ));
        let options = WebOptions {
            identity,
            token,
            hosts: HostList::new(address, &self.allow_host),
            targets: self.targets.clone(),
            program: test_program(&archive)?,
            archive,
        };
        until_asked_to_end(async {
            serve_pages(listeners, options)
                .await
                .map_err(cannot("serve pages"))
        })
        .await
    }
}

fn new_token() -> Result<AccessToken> {
    let bytes = random_bytes::<16>().map_err(cannot("make a token"))?;
    AccessToken::from_text(&to_hexadecimal(&bytes)).map_err(run_failure)
}

/// Returns the file of this user's token, which is made if there is none.
fn token_of_user(folder: &Path) -> Result<PathBuf> {
    let file = folder.join("web-token");
    if file.exists() {
        return Ok(file);
    }
    let token = new_token()?;
    std::fs::create_dir_all(folder)
        .and_then(|()| {
            OpenOptions::new()
                .write(true)
                .create_new(true)
                .mode(0o600)
                .open(&file)
        })
        .and_then(|mut opened| writeln!(opened, "{}", token.as_str()))
        .map_err(cannot(&format!("make the token {}", file.display())))?;
    Ok(file)
}

/// Returns what runs tests: this program, which keeps them in the archive of the pages.
fn test_program(archive: &ArchiveLocation) -> Result<TestProgram> {
    let value = match archive {
        ArchiveLocation::File(file) => std::path::absolute(file)
            .map_err(cannot("find the archive"))?
            .into(),
        ArchiveLocation::Postgresql(url) => url.into(),
    };
    let lock = state_folder().unwrap_or_else(std::env::temp_dir);
    std::fs::create_dir_all(&lock).map_err(cannot("make the folder of this user's state"))?;
    Ok(TestProgram {
        file: std::env::current_exe().map_err(cannot("find fullpipe"))?,
        archive: (ARCHIVE_VARIABLE, value),
        lock: lock.join("web-test.lock"),
    })
}
