use std::net::{SocketAddr, ToSocketAddrs};
use std::path::PathBuf;
use std::sync::mpsc;
use std::thread;
use std::time::Duration;

use crate::call_back::CallBack;
use crate::echo::EchoProber;
use crate::engine::LocalEndpoint;
use fullpipe_control::{ClientLogin, TlsTrust};
use fullpipe_iperf::{SealedTicket, SharedKey};
use fullpipe_record::IpVersion;
use fullpipe_units::Span;

use crate::error::ProbeError;

/// Timeout of a name's resolution, and of a connection attempt if no other is set.
const TIMEOUT: Duration = Duration::from_secs(5);

/// The server to measure against, and the client's side of its connections.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Destination {
    /// A name or an address.
    pub host: String,
    /// The server's port.
    pub port: u16,
    /// The family of the server's address; any if not set.
    pub family: Option<IpVersion>,
    /// This end's address, device and port. The port is that of the first stream, never of the
    /// control connection.
    pub local: LocalEndpoint,
    /// Timeout of a connection attempt; five seconds if not set.
    pub connect_timeout: Option<Span>,
    /// Timeout of a test in which the server sends and no data comes; two minutes if not set.
    pub receive_timeout: Option<Span>,
    /// Asks for the text that the server prints of the test.
    pub server_output: bool,
    /// Sends no echo requests; round-trip times are then the kernel's.
    pub without_echoes: bool,
    /// The file that is sent, or to which received data is written.
    pub file: Option<PathBuf>,
    /// The shared key, for a server that asks for one.
    pub key: Option<SharedKey>,
    /// The ticket for one test, for a server that asks for one; its key is proved instead of `key`.
    pub ticket: Option<SealedTicket>,
    /// User name and password, for a server with iperf3's authentication.
    pub login: Option<ClientLogin>,
    /// Certificates that are trusted; if set, the control connection uses TLS. Data connections are
    /// never encrypted.
    pub tls: Option<TlsTrust>,
    /// Set if the server opens the connections.
    pub call_back: Option<CallBack>,
}

impl Destination {
    /// Returns the timeout of a connection attempt.
    pub(crate) fn connect_timeout(&self) -> Duration {
        self.connect_timeout.map_or(TIMEOUT, Into::into)
    }

    /// Starts echo requests to `address`; `None` if they are not wanted, or no thread can be
    /// started.
    pub(crate) fn start_prober(&self, address: SocketAddr) -> Option<EchoProber> {
        if self.without_echoes {
            None
        } else {
            EchoProber::start(address, &self.local).ok()
        }
    }

    /// Returns the addresses of the host that have the family asked for, or that of this end's
    /// address; at least one.
    ///
    /// # Errors
    /// [`ProbeError::UnknownHost`] if there is none, or no name server answers within five seconds.
    pub fn resolve_host(&self) -> Result<Vec<SocketAddr>, ProbeError> {
        self.ask_name_server()
            .map_err(|cause| ProbeError::UnknownHost {
                host: self.host.clone(),
                cause,
            })
    }

    fn ask_name_server(&self) -> Result<Vec<SocketAddr>, String> {
        let (answer, answered) = mpsc::channel();
        let asked = (self.host.clone(), self.port);
        // A name server that does not answer blocks this thread, which is not waited for.
        thread::spawn(move || {
            answer.send(asked.to_socket_addrs().map(Iterator::collect::<Vec<_>>))
        });
        let found = answered
            .recv_timeout(TIMEOUT)
            .map_err(|_| "no name server answers")?;
        let found = found.map_err(|cause| cause.to_string())?;
        let addresses: Vec<SocketAddr> = found
            .into_iter()
            .filter(|address| self.accepts_address(address))
            .collect();
        if addresses.is_empty() {
            Err(self.without_address())
        } else {
            Ok(addresses)
        }
    }

    fn without_address(&self) -> String {
        match self.family {
            None => "it has no address".to_owned(),
            Some(IpVersion::V4) => "it has no IPv4 address".to_owned(),
            Some(IpVersion::V6) => "it has no IPv6 address".to_owned(),
        }
    }

    /// Returns true if `address` is of the family asked for, or of that of this end's address.
    fn accepts_address(&self, address: &SocketAddr) -> bool {
        let wants_ipv4 = self
            .family
            .map(|family| family == IpVersion::V4)
            .or(self.local.address.map(|local| local.is_ipv4()));
        wants_ipv4.is_none_or(|wanted| wanted == address.is_ipv4())
    }
}
