//! The flags of the server of speed tests over the web.

use std::net::{IpAddr, Ipv6Addr, SocketAddr};

use crate::commands::keep::PlaceParser;
use crate::commands::prelude::*;
use crate::values::read_protected_file;
use fullpipe_control::{AddressPrefix, WebIdentity};
use fullpipe_diagnose::{diagnose, find_remedies};
use fullpipe_probe::{WebOptions, WebQuotas};
use fullpipe_record::{
    Content, Diagnosis, DiagnosisReport, Direction, Document, Evidence, Framing, Peer, Remedy,
    Verdict,
};
use fullpipe_report::{PageSource, html_page};
use fullpipe_store::{ArchiveLocation, Store};
use rcgen::{CertifiedKey, generate_simple_self_signed};
use zeroize::Zeroizing;

/// The server of speed tests over the web.
#[derive(Debug, Args)]
#[command(next_help_heading = "Web")]
pub(super) struct WebArguments {
    /// Serve speed tests over HTTPS too, at this address [default: all, port 443]
    ///
    /// Speaks ndt7, and the tests of Cloudflare, LibreSpeed and responsiveness. The limits of tests
    /// hold there as well.
    #[arg(
        long,
        value_name = "[ADDRESS:]PORT",
        num_args = 0..=1,
        require_equals = false,
        default_missing_value = "443",
        value_parser = web_address,
        conflicts_with_all = ["key_file", "authorized_users_path"]
    )]
    web: Option<SocketAddr>,
    /// Certificate of the web server in PEM [default: one that nobody has signed]
    #[arg(long, value_name = "FILE", requires_all = ["web", "key_pem"], hide_short_help = true)]
    cert: Option<PathBuf>,
    /// Private key of that certificate in PEM
    #[arg(long, value_name = "FILE", requires = "cert", hide_short_help = true)]
    key_pem: Option<PathBuf>,
    /// Serve clients without TLS at the port of --web, too
    #[arg(long, requires = "web", hide_short_help = true)]
    web_plain: bool,
    /// Maximum bytes that a client of --web moves in an hour
    ///
    /// A client is an IPv4 address or a /64 network of IPv6; a /56 has twice and a /48 four times as
    /// much.
    #[arg(
        long,
        value_name = "BYTES",
        requires = "web",
        hide_short_help = true,
        help_heading = "Limits"
    )]
    web_limit: Option<ByteCount>,
    /// Maximum bytes that all clients of --web together move in a day
    #[arg(
        long,
        value_name = "BYTES",
        requires = "web",
        hide_short_help = true,
        help_heading = "Limits"
    )]
    daily: Option<ByteCount>,
    /// Keep each transfer of --web in an archive: a file, or `postgres://USER@HOST/DATABASE`
    ///
    /// The client is named by its network there: 192.0.2.0/24, or a /48 of IPv6.
    #[arg(long, value_name = "FILE|URL", requires = "web", hide_short_help = true, value_parser = PlaceParser)]
    web_store: Option<ArchiveLocation>,
}

impl WebArguments {
    /// Returns the options of the server, if one is asked for.
    ///
    /// # Errors
    /// Fails if its certificate cannot be read or made.
    pub(super) fn web_options(&self) -> Result<Option<WebOptions>> {
        let Some(address) = self.web else {
            return Ok(None);
        };
        Ok(Some(WebOptions {
            address,
            identity: self.identity(address)?,
            serves_plain: self.web_plain,
            quotas: WebQuotas {
                client: self.web_limit,
                total: self.daily,
            },
            judge: judge_transfer,
            page: result_page,
        }))
    }

    /// Returns the archive for transfers, if they are to be kept, which is made if there is none.
    ///
    /// # Errors
    /// Fails if it cannot be opened.
    pub(super) fn open_archive(&self) -> Result<Option<ArchiveLocation>> {
        if let Some(place) = &self.web_store {
            Store::create(place)?;
        }
        Ok(self.web_store.clone())
    }

    fn identity(&self, address: SocketAddr) -> Result<WebIdentity> {
        if let (Some(certificate), Some(key)) = (&self.cert, &self.key_pem) {
            return read_identity(certificate, key);
        }
        let (certificate, key) = self_signed(address)?;
        identity_from_pem(&certificate, &key)
    }
}

/// Reads the certificate of a server and its private key from two files.
pub(in crate::commands) fn read_identity(certificate: &Path, key: &Path) -> Result<WebIdentity> {
    identity_from_pem(&read_pem(certificate)?, &read_key(key)?)
}

fn identity_from_pem(certificate: &[u8], key: &[u8]) -> Result<WebIdentity> {
    WebIdentity::from_pem(certificate, key)
        .map_err(|error| usage_failure(format!("the certificate of --cert and --key-pem: {error}")))
}

/// Returns a certificate for the names of this host that nobody has signed, and its key.
fn self_signed(address: SocketAddr) -> Result<(Vec<u8>, Zeroizing<Vec<u8>>)> {
    let host = rustix::system::uname();
    let host = host.nodename().to_string_lossy().into_owned();
    let mut names = vec!["localhost".to_owned(), host];
    if !address.ip().is_unspecified() {
        names.push(address.ip().to_string());
    }
    let CertifiedKey { cert, signing_key } = generate_simple_self_signed(names)
        .map_err(cannot("make a certificate for the names of this host"))?;
    let key = signing_key.serialize_pem();
    Ok((cert.pem().into_bytes(), key.into_bytes().into()))
}

fn read_pem(path: &Path) -> Result<Vec<u8>> {
    std::fs::read(path).map_err(cannot(&format!("read {}", path.display())))
}

fn read_key(path: &Path) -> Result<Zeroizing<Vec<u8>>> {
    read_protected_file(path)
        .map_err(|error| usage_failure(format!("cannot use the key {}: {error}", path.display())))
}

/// Reads `443`, `192.0.2.1:443` or `[2001:db8::1]:443`; without an address, all of both families.
fn web_address(text: &str) -> Result<SocketAddr, String> {
    let port = text
        .parse()
        .map(|port| (Ipv6Addr::UNSPECIFIED, port).into());
    port.or_else(|_| text.parse())
        .map_err(|_| "write a port, or an address with a port as 192.0.2.1:443".to_owned())
}

/// Names the limit of a transfer of the web by what this end alone has seen.
fn judge_transfer(measurement: &Measurement) -> (Verdict, Vec<Remedy>) {
    let evidence = Evidence {
        // What a browser sends, it sends as it likes.
        is_watched: measurement.request.direction == Direction::Download,
        ..Evidence::from_measurement(measurement, None, Framing::Ethernet)
    };
    let verdict = diagnose(&evidence);
    let remedies = find_remedies(&evidence, &verdict);
    (verdict, remedies)
}

/// Returns the document of a transfer that has been judged, in which the network of the `client`
/// stands for it.
pub(super) fn archived_transfer(client: IpAddr, measurement: &Measurement) -> Document {
    let length = if client.is_ipv4() { 24 } else { 48 };
    let network = format!("{client}/{length}").parse::<AddressPrefix>();
    let measurement = Measurement {
        peer: Peer {
            host: network.map_or_else(|_| String::new(), |network| network.to_string()),
            address: String::new(),
            ..measurement.peer.clone()
        },
        ..measurement.clone()
    };
    Document::new(Content::Measurement {
        measurement: Box::new(measurement),
        path: None,
        completion: None,
        followed_by: None,
    })
}

/// Returns the page of a result with the charts of `report --html`, without the client's address.
fn result_page(measurement: Measurement, verdict: Verdict, remedies: Vec<Remedy>) -> String {
    let name = match measurement.request.direction {
        Direction::Upload => "download of a client",
        _ => "upload of a client",
    };
    let measurement = Measurement {
        peer: Peer {
            host: String::new(),
            address: String::new(),
            ..measurement.peer
        },
        limit: Some(verdict.clone()),
        ..measurement
    };
    let document = Document::new(Content::Diagnosis {
        measurement: Some(Box::new(measurement)),
        diagnosis: Box::new(DiagnosisReport {
            transfers: vec![Diagnosis {
                verdict,
                remedies,
                transfer: None,
                defects: Vec::new(),
                next: Vec::new(),
                evidence: None,
            }],
            ..DiagnosisReport::default()
        }),
    });
    let source = PageSource {
        name,
        document: &document,
    };
    // Of a diagnosis there always is a page.
    html_page(&[source]).unwrap_or_default()
}
