//! Connections to a web server, or to an FTP server.

use std::io::{self, BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::sync::Arc;
use std::time::{Duration, Instant};

use fullpipe_units::{Span, printable_line};
use tokio_rustls::rustls::crypto::aws_lc_rs::default_provider;
use tokio_rustls::rustls::pki_types::ServerName;
use tokio_rustls::rustls::{
    ClientConfig, ClientConnection, Error as TlsError, RootCertStore, Stream,
};

use super::ftp::FtpControl;
use crate::address::{MAX_CALLED, at_port, host_addresses};
use crate::http::{
    BodyDecoder, BodyFraming, BodyPart, HeadError, MAX_HEAD, ResponseHead, RuleBroken, Validator,
    WebUrl,
};

/// Time to connect to one address.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);

/// Bytes that one system call receives at most.
const RECEIVED: usize = 64 << 10;

/// The reason why a file, or a range of it, did not come.
pub(super) enum FetchFailure {
    /// The connection broke, or the server failed: another one may help.
    Broken(String),
    /// The server wants to be asked again, after a time if it names one.
    Busy(u16, Option<Span>),
    /// The file at the server is another one than before.
    Changed,
    /// To ask again would not help.
    Final(String),
}

impl From<io::Error> for FetchFailure {
    fn from(error: io::Error) -> Self {
        let of_tls = error
            .get_ref()
            .and_then(|cause| cause.downcast_ref::<TlsError>());
        match (of_tls, error.kind()) {
            (Some(TlsError::InvalidCertificate(why)), _) => Self::Final(format!(
                "its certificate is not accepted: {why:?}; SSL_CERT_FILE names another list of authorities"
            )),
            (Some(why), _) => Self::Final(format!("TLS fails: {why}")),
            (None, io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut) => {
                Self::Broken("the server says nothing any more".to_owned())
            }
            (None, _) => Self::Broken(error.to_string()),
        }
    }
}

impl From<HeadError> for FetchFailure {
    fn from(error: HeadError) -> Self {
        Self::Final(error.to_string())
    }
}

impl From<RuleBroken> for FetchFailure {
    fn from(rule: RuleBroken) -> Self {
        Self::Final(rule.to_owned())
    }
}

/// Makes connections to web servers.
pub(super) struct WebClient {
    tls: Arc<ClientConfig>,
    /// Time for which a server may be silent.
    pub timeout: Duration,
}

impl WebClient {
    /// Returns a client that accepts certificates of the authorities that this host trusts.
    ///
    /// # Errors
    /// Fails if TLS cannot be set up.
    pub(super) fn new(timeout: Duration) -> Result<Self, TlsError> {
        let mut roots = RootCertStore::empty();
        roots.add_parsable_certificates(rustls_native_certs::load_native_certs().certs);
        let mut tls = ClientConfig::builder_with_provider(Arc::new(default_provider()))
            .with_safe_default_protocol_versions()?
            .with_root_certificates(roots)
            .with_no_client_auth();
        tls.alpn_protocols = vec![b"http/1.1".to_vec()];
        Ok(Self {
            tls: Arc::new(tls),
            timeout,
        })
    }

    /// Connects to the host of `url`, or to this address of it.
    ///
    /// # Errors
    /// Fails if it cannot be reached.
    pub(super) fn connect(
        &self,
        url: &WebUrl,
        address: Option<SocketAddr>,
    ) -> Result<WebConnection, FetchFailure> {
        let addresses = match address {
            Some(address) => vec![address],
            None => server_addresses(url)?,
        };
        let mut failure = io::Error::from(io::ErrorKind::NotFound);
        for address in addresses {
            let began = Instant::now();
            match TcpStream::connect_timeout(&address, CONNECT_TIMEOUT) {
                Ok(socket) => {
                    let rtt = Span::from(began.elapsed());
                    return self.begin_connection(url, socket, address, rtt);
                }
                Err(error) => failure = error,
            }
        }
        Err(FetchFailure::Broken(format!("cannot connect: {failure}")))
    }

    fn begin_connection(
        &self,
        url: &WebUrl,
        socket: TcpStream,
        address: SocketAddr,
        rtt: Span,
    ) -> Result<WebConnection, FetchFailure> {
        let mut kept = socket.try_clone()?;
        let mut timed = self.timed_socket(socket)?;
        let mut control = None;
        if url.is_ftp() {
            let mut commands = FtpControl::log_in(timed, address, self.timeout)?;
            let data = TcpStream::connect_timeout(&commands.data_address()?, CONNECT_TIMEOUT)?;
            kept = data.try_clone()?;
            timed = self.timed_socket(data)?;
            control = Some(commands);
        }
        let tls = if url.is_https() {
            let name = ServerName::try_from(url.host().to_owned());
            let name = name.map_err(|_| FetchFailure::Final("its host is no name".to_owned()))?;
            let mut tls = ClientConnection::new(Arc::clone(&self.tls), name)
                .map_err(|error| FetchFailure::Final(error.to_string()))?;
            tls.complete_io(&mut timed)?;
            Some(Box::new(tls))
        } else {
            None
        };
        let stream = WebStream { socket: timed, tls };
        Ok(WebConnection {
            stream: BufReader::with_capacity(RECEIVED, stream),
            control,
            socket: kept,
            address,
            rtt,
            received: 0,
            timeout: self.timeout,
            body: BodyDecoder::new(BodyFraming::Length(0)),
            keeps: true,
        })
    }

    fn timed_socket(&self, socket: TcpStream) -> io::Result<TimedSocket> {
        socket.set_nodelay(true)?;
        socket.set_write_timeout(Some(self.timeout))?;
        Ok(TimedSocket {
            socket: BufReader::with_capacity(RECEIVED, socket),
            deadline: Some(Instant::now() + self.timeout),
        })
    }
}

fn server_addresses(url: &WebUrl) -> Result<Vec<SocketAddr>, FetchFailure> {
    let mut addresses = host_addresses(url.host());
    addresses.truncate(MAX_CALLED);
    if addresses.is_empty() {
        return Err(FetchFailure::Final("its host has no address".to_owned()));
    }
    Ok(addresses
        .into_iter()
        .map(|address| at_port(address, url.port()))
        .collect())
}

/// A socket with a deadline, behind which nothing is read.
pub(super) struct TimedSocket {
    socket: BufReader<TcpStream>,
    deadline: Option<Instant>,
}

impl TimedSocket {
    /// Lets what is expected come until then; without a deadline, each piece within `timeout`.
    pub(super) fn set_deadline(
        &mut self,
        deadline: Option<Instant>,
        timeout: Duration,
    ) -> io::Result<()> {
        self.deadline = deadline;
        self.socket.get_ref().set_read_timeout(Some(timeout))
    }
}

impl Read for TimedSocket {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        if let Some(deadline) = self.deadline {
            let left = deadline.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return Err(io::ErrorKind::TimedOut.into());
            }
            self.socket.get_ref().set_read_timeout(Some(left))?;
        }
        self.socket.read(into)
    }
}

impl Write for TimedSocket {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.socket.get_mut().write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// A socket, and TLS over it where that is wanted.
struct WebStream {
    socket: TimedSocket,
    tls: Option<Box<ClientConnection>>,
}

impl Read for WebStream {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        match &mut self.tls {
            Some(tls) => Stream::new(&mut **tls, &mut self.socket).read(into),
            None => self.socket.read(into),
        }
    }
}

impl WebStream {
    /// Sends all of `bytes`.
    fn send_bytes(&mut self, bytes: &[u8]) -> io::Result<()> {
        let Some(tls) = &mut self.tls else {
            return self.socket.write_all(bytes);
        };
        let mut stream = Stream::new(&mut **tls, &mut self.socket);
        stream.write_all(bytes)?;
        stream.flush()
    }
}

/// A connection to a web server.
pub(super) struct WebConnection {
    stream: BufReader<WebStream>,
    /// The connection of commands, where the server speaks FTP.
    control: Option<FtpControl>,
    /// Another handle of its socket, to watch or to end it.
    pub socket: TcpStream,
    pub address: SocketAddr,
    /// Time that the handshake of TCP took.
    pub rtt: Span,
    /// Bytes of content that have come on it.
    pub received: u64,
    timeout: Duration,
    body: BodyDecoder,
    keeps: bool,
}

impl WebConnection {
    /// Asks for a file, or for the bytes from the first to the last of this `range`, as long as
    /// the file is in the state of the validator. Returns the head of the answer.
    ///
    /// # Errors
    /// Fails if the connection breaks, or the answer breaks the rules.
    pub(super) fn request(
        &mut self,
        url: &WebUrl,
        range: Option<(u64, u64)>,
        validator: Option<&Validator>,
    ) -> Result<ResponseHead, FetchFailure> {
        let head = match &mut self.control {
            Some(control) => control.retrieve(url, range)?,
            None => self.ask_by_http(&request_text(url, range, validator))?,
        };
        let socket = &mut self.stream.get_mut().socket;
        socket.set_deadline(None, self.timeout)?;
        self.body = BodyDecoder::new(head.framing);
        self.keeps = head.keeps_connection;
        Ok(head)
    }

    fn ask_by_http(&mut self, request: &str) -> Result<ResponseHead, FetchFailure> {
        let stream = self.stream.get_mut();
        let deadline = Instant::now() + self.timeout;
        stream.socket.set_deadline(Some(deadline), self.timeout)?;
        stream.send_bytes(request.as_bytes())?;
        loop {
            let head = read_parsed(&mut self.stream, ResponseHead::parse)?;
            if !head.is_interim() {
                return Ok(head);
            }
        }
    }

    /// Receives content of the body, at most `most` bytes. Returns true at its end.
    ///
    /// # Errors
    /// Fails if the connection breaks, or the body breaks the rules.
    pub(super) fn receive_content(
        &mut self,
        into: &mut Vec<u8>,
        most: usize,
    ) -> Result<bool, FetchFailure> {
        if self.body.has_ended() {
            return Ok(true);
        }
        let received = self.stream.fill_buf()?;
        if received.is_empty() {
            return if self.body.may_end() {
                // Only a reply tells the end of a file from that of a server.
                self.control
                    .as_mut()
                    .map_or(Ok(()), FtpControl::confirm_end)?;
                Ok(true)
            } else {
                Err(went_away())
            };
        }
        let taken = match self.body.take_part(received, most)? {
            BodyPart::Content(count) => {
                into.extend(&received[..count]);
                self.received += count as u64;
                count
            }
            BodyPart::Framing(count) => count,
            BodyPart::End => 0,
        };
        self.stream.consume(taken);
        Ok(self.body.has_ended())
    }

    /// Returns true if the connection can be asked again: the body has ended, and the server keeps
    /// the connection.
    pub(super) fn is_reusable(&self) -> bool {
        self.keeps && self.body.has_ended()
    }
}

/// Reads until what was read can be parsed, in [`MAX_HEAD`] bytes at most.
pub(super) fn read_parsed<T, E: Into<FetchFailure>>(
    stream: &mut impl BufRead,
    parse: impl Fn(&[u8]) -> Result<Option<(T, usize)>, E>,
) -> Result<T, FetchFailure> {
    let mut bytes = Vec::new();
    loop {
        let received = stream.fill_buf()?;
        if received.is_empty() {
            return Err(went_away());
        }
        let before = bytes.len();
        bytes.extend(&received[..received.len().min(MAX_HEAD - before)]);
        let parsed = parse(&bytes).map_err(Into::into)?;
        let used = parsed.as_ref().map_or(bytes.len(), |(_, length)| *length);
        stream.consume(used - before);
        if let Some((found, _)) = parsed {
            return Ok(found);
        }
    }
}

fn went_away() -> FetchFailure {
    FetchFailure::Broken("the server closed the connection".to_owned())
}

fn request_text(url: &WebUrl, range: Option<(u64, u64)>, validator: Option<&Validator>) -> String {
    let range = range.map_or_else(String::new, |(first, last)| {
        format!("Range: bytes={first}-{last}\r\n")
    });
    let validator = validator.map_or_else(String::new, |state| {
        format!("If-Range: {}\r\n", state.field_value())
    });
    format!(
        "GET {} HTTP/1.1\r\nHost: {}\r\nUser-Agent: fullpipe/{}\r\nAccept: */*\r\n\
         Accept-Encoding: identity\r\nWant-Repr-Digest: sha-256=2, sha-512=1\r\n{range}{validator}\r\n",
        url.request_target(),
        url.host_field(),
        env!("CARGO_PKG_VERSION"),
    )
}

/// Returns the failure of an answer with this status, which is not the one that was asked for.
pub(super) fn status_failure(head: &ResponseHead) -> FetchFailure {
    match head.status {
        429 | 503 => FetchFailure::Busy(head.status, head.retry_after),
        500 | 502 | 504 => FetchFailure::Broken(format!("the server answers {}", head.status)),
        401 | 403 | 407 => FetchFailure::Final(format!(
            "the server does not permit it to everybody (status {})",
            head.status
        )),
        404 | 410 => FetchFailure::Final(format!(
            "the server has no such file (status {})",
            head.status
        )),
        301..=308 => FetchFailure::Final(format!(
            "the server redirects to {}, which is not followed here",
            printable_line(head.location.as_deref().unwrap_or("nowhere"))
        )),
        other => FetchFailure::Final(format!("the server answers with status {other}")),
    }
}
