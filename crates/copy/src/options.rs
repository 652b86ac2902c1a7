use std::io;
use std::path::PathBuf;

use fullpipe_control::AddressPrefix;
use fullpipe_iperf::SharedKey;
use fullpipe_record::{CopyProgress, CopyReport};
use fullpipe_units::{BitRate, Span, printable_bytes};
use thiserror::Error;

use crate::http::{FileDigest, UrlError, WebUrl};
use crate::protocol::{EntryPath, MessageError};

/// A copy that is asked for.
#[derive(Debug, Clone, PartialEq, Eq)]
#[expect(clippy::struct_excessive_bools, reason = "each is a flag of its own")]
pub struct CopyOptions {
    /// The files and folders to copy, all at one end. As for rsync, a folder with a `/` at its end
    /// stands for what is in it.
    pub sources: Vec<CopyPath>,
    /// The folder to copy them to, or for a single file its new name; at the other end.
    pub destination: CopyPath,
    /// Program that runs a command at the far end, with its arguments, as of rsync's `-e`.
    pub ssh: Vec<String>,
    /// The program fullpipe at the far end.
    pub far_path: String,
    /// Nothing is changed.
    pub dry_run: bool,
    /// Entries that the sources lack are deleted in the folders that are copied.
    pub delete: bool,
    /// Patterns of what is neither copied nor deleted ([`crate::protocol::ExcludePatterns`]).
    pub excludes: Vec<Vec<u8>>,
    /// Highest rate of the data.
    pub limit: Option<BitRate>,
    /// First and last port for the connections of data; any if absent.
    pub ports: Option<(u16, u16)>,
    /// Number of connections; chosen by prediction if absent. On a QUIC connection, that of
    /// streams.
    pub streams: Option<u16>,
    /// The way that data shall take.
    pub transport: DataTransport,
    /// Every file is read back from the receiver's disk before it gets its name.
    pub verify_disk: bool,
    /// The connections for data give way to all other traffic.
    pub scavenge: bool,
    /// The connections for data never change to BBR.
    pub no_bbr: bool,
    /// Nothing is compressed.
    pub no_compress: bool,
    /// Extended attributes of users and POSIX access lists are kept.
    pub attributes: bool,
    /// Time after which an end that receives nothing of the other one gives up: two seconds to an
    /// hour.
    pub timeout: Span,
    /// Networks between whose addresses the data is not encrypted.
    pub unencrypted: Vec<AddressPrefix>,
    /// Key of the server, if one is named.
    pub key: Option<SharedKey>,
    /// Digest that a file of a web server must have.
    pub digest: Option<FileDigest>,
}

/// The way that the data of a copy shall take.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum DataTransport {
    /// TCP, and QUIC where TCP does not pass, where it may not use BBR and the path loses packets
    /// without a queue, or where a device takes the windows of TCP away.
    #[default]
    Auto,
    /// TCP connections.
    Tcp,
    /// A QUIC connection; TCP where UDP does not pass.
    Quic,
}

/// Port of a server that shares a folder.
pub const SHARE_PORT: u16 = 5202;

/// A path at this end or at the far one.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum CopyPath {
    /// On this host.
    Near(PathBuf),
    /// On another host.
    Far {
        /// The host.
        host: FarHost,
        /// The path there; relative ones begin in the user's own folder, or in the one that is
        /// shared.
        path: Vec<u8>,
    },
    /// A file at a web server.
    Web(WebUrl),
}

/// Another host, and the way to it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum FarHost {
    /// Through ssh.
    Ssh {
        /// `[USER@]HOST`, as ssh takes it.
        name: String,
    },
    /// A server that shares a folder.
    Server {
        /// The host.
        name: String,
        /// The TCP port of the server.
        port: u16,
    },
}

/// The error of a text that is no place.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum PlaceError {
    /// The path is empty.
    #[error("an empty path stands for nothing; write . for this folder")]
    Empty,
    /// The text is a URL of an unsupported scheme.
    #[error(
        "{0} is a URL of another kind; write [USER@]HOST:PATH, fullpipe://HOST[:PORT]/PATH, or \
         https://, http:// or ftp:// for a file of a web server or FTP server"
    )]
    Url(String),
    /// The text is no URL of a web server.
    #[error("{0}")]
    Web(UrlError),
    /// ssh would take the host for an option.
    #[error("{0} is no host: it begins with a dash")]
    Dash(String),
}

/// Something that happened during a copy.
#[derive(Debug, Clone, PartialEq)]
pub enum CopyEvent {
    /// A step, in one sentence.
    Note(String),
    /// Progress, twice a second.
    Progress(CopyProgress),
    /// A dry run would copy this file, or make this folder or link.
    WouldCopy(EntryPath),
    /// This was deleted, or in a dry run would be.
    Deleted(EntryPath),
}

/// The error of a copy that did not come to its end.
#[derive(Debug, Error)]
pub enum CopyError {
    /// The places do not fit together, or what is asked for does not.
    #[error("{0}")]
    Places(&'static str),
    /// A file or folder that is named cannot be used.
    #[error("{path}: {cause}")]
    Path {
        /// The path, printable.
        path: String,
        /// The error of the system.
        cause: io::Error,
    },
    /// The program for the other end could not be started, or ended too early.
    #[error("{0}")]
    Ssh(String),
    /// The server cannot be reached, or does not have the key.
    #[error("no copy with {server}: {cause}")]
    Server {
        /// Host and port.
        server: String,
        /// The error of the connection.
        cause: io::Error,
    },
    /// The file of a web server does not come, or cannot be kept.
    #[error("{url}: {why}")]
    Web {
        /// The URL that was named.
        url: String,
        /// The reason, in one sentence.
        why: String,
    },
    /// The far end has no fullpipe.
    #[error("{host} has no {program}; name the program there with --far-path")]
    NotThere {
        /// The host.
        host: String,
        /// The program that was asked for.
        program: String,
    },
    /// The other end gives up.
    #[error("{why}")]
    Refused {
        /// Exit code.
        code: u8,
        /// The reason that the other end gave.
        why: String,
    },
    /// The other end broke the rules.
    #[error("the other end broke the protocol: {0}")]
    Protocol(String),
    /// The other end went away.
    #[error(
        "the other end went away before the copy was done; start the same command again to continue"
    )]
    Gone,
    /// The other end says nothing any more.
    #[error("the other end has said nothing for {0}; start the same command again to continue")]
    Silent(Span),
    /// The user stopped it.
    #[error("interrupted; start the same command again to continue")]
    Interrupted,
    /// This host lacks something.
    #[error("{what}: {cause}")]
    Io {
        /// The operation.
        what: &'static str,
        /// The error of the system.
        cause: io::Error,
    },
}

/// A report, and the error that kept it from being whole.
pub type CopyResult = Result<CopyReport, CopyError>;

/// Returns the place of the colon that follows the name of a host; `None` if there is none.
fn colon_after_host(text: &[u8]) -> Option<usize> {
    // Behind the name of a user, too, the colons of an address are in brackets.
    let opens = text
        .iter()
        .position(|byte| b"[:/".contains(byte))
        .filter(|at| text[*at] == b'[');
    let bracketed = opens.filter(|at| *at == 0 || text[at - 1] == b'@');
    let closes = bracketed
        .and_then(|_| text.iter().position(|byte| *byte == b']'))
        .unwrap_or(0);
    let colon = closes + text[closes..].iter().position(|byte| *byte == b':')?;
    (colon > 0 && !text[..colon].contains(&b'/')).then_some(colon)
}

impl CopyPath {
    /// Reads a place as rsync does: what has a colon before its first slash is at another host.
    /// `fullpipe://` names a server, `https://`, `http://` and `ftp://` a file of a web server or FTP server.
    ///
    /// # Errors
    /// Fails if it is empty, a URL of another kind, or ssh would take its host for an option.
    pub fn parse_path(text: &[u8]) -> Result<Self, PlaceError> {
        use std::os::unix::ffi::OsStrExt;
        if text.is_empty() {
            return Err(PlaceError::Empty);
        }
        if let Some(rest) = text.strip_prefix(b"fullpipe://") {
            return Self::at_server(rest).ok_or_else(|| PlaceError::Url(printable_bytes(text)));
        }
        if WebUrl::is_url(text) {
            let url = WebUrl::parse(&String::from_utf8_lossy(text));
            return url.map(Self::Web).map_err(PlaceError::Web);
        }
        let Some(colon) = colon_after_host(text) else {
            return Ok(Self::Near(std::ffi::OsStr::from_bytes(text).into()));
        };
        let (host, path) = (&text[..colon], &text[colon + 1..]);
        if path.starts_with(b"//") {
            return Err(PlaceError::Url(printable_bytes(text)));
        }
        let host = FarHost::Ssh {
            name: printable_bytes(host).replace(['[', ']'], ""),
        };
        if host.is_option() {
            return Err(PlaceError::Dash(printable_bytes(text)));
        }
        Ok(Self::far_path(host, path))
    }

    fn at_server(rest: &[u8]) -> Option<Self> {
        let slash = rest.iter().position(|byte| *byte == b'/');
        let (authority, path) = rest.split_at(slash.unwrap_or(rest.len()));
        let authority = str::from_utf8(authority).ok()?;
        let path = path.strip_prefix(b"/").unwrap_or_default();
        let (host, port) = match authority
            .rsplit_once(':')
            .filter(|(_, port)| !port.ends_with(']'))
        {
            Some((host, port)) => (host, port.parse().ok()?),
            None => (authority, SHARE_PORT),
        };
        let is_host =
            !host.is_empty() && !host.contains(['@', '\\']) && !host.contains(char::is_control);
        let host = FarHost::Server {
            name: without_brackets(host),
            port,
        };
        is_host.then(|| Self::far_path(host, path))
    }

    /// A path at a host; an empty one is the folder in which programs begin there.
    fn far_path(host: FarHost, path: &[u8]) -> Self {
        let path = if path.is_empty() { b"." } else { path };
        Self::Far {
            host,
            path: path.to_vec(),
        }
    }
}

/// Returns a host without the brackets around an IPv6 address.
fn without_brackets(host: &str) -> String {
    host.trim_matches(['[', ']']).to_owned()
}

impl FarHost {
    /// Returns true if ssh would take it for an option, or what stands behind the name of a user.
    fn is_option(&self) -> bool {
        matches!(self, Self::Ssh { name } if name.starts_with('-'))
            || self.host_name().starts_with('-')
    }

    /// Returns the name of the host without a user.
    pub(crate) fn host_name(&self) -> &str {
        match self {
            Self::Ssh { name } => name
                .rsplit_once('@')
                .map_or(name.as_str(), |(_, host)| host),
            Self::Server { name, .. } => name,
        }
    }
}

impl CopyOptions {
    /// Fails if the transport that is asked for cannot do what else is.
    pub(crate) fn check_transport(&self) -> Result<(), CopyError> {
        match () {
            () if self.transport != DataTransport::Quic => Ok(()),
            () if !self.unencrypted.is_empty() => Err(CopyError::Places(
                "QUIC is always encrypted: leave out --insecure-data, or --transport quic",
            )),
            () if self.scavenge => Err(CopyError::Places(
                "QUIC does not give way to others: leave out --scavenge, or --transport quic",
            )),
            () => Ok(()),
        }
    }
}

impl CopyError {
    /// One by which this end refuses what the other one does.
    pub(crate) fn from_refusal(why: &dyn std::fmt::Display) -> Self {
        let why = why.to_string();
        Self::Refused { code: 1, why }
    }

    /// Returns the error of an end that broke this rule.
    pub(crate) fn from_rule(why: &str) -> Self {
        Self::Protocol(why.to_owned())
    }

    /// Returns the exit code of a program that fails for this reason.
    pub fn exit_code(&self) -> u8 {
        match self {
            Self::Places(_) | Self::Path { .. } => 2,
            Self::NotThere { .. } => 3,
            // It is the other end that names it, which may be hostile.
            Self::Refused { code, .. } if (1..=3).contains(code) => *code,
            Self::Interrupted => 130,
            Self::Refused { .. }
            | Self::Ssh(_)
            | Self::Server { .. }
            | Self::Web { .. }
            | Self::Protocol(_)
            | Self::Gone
            | Self::Silent(_)
            | Self::Io { .. } => 1,
        }
    }

    /// Returns the code with which the other end should end, unless it is not there.
    pub(crate) fn code_for_peer(&self) -> Option<u8> {
        (!matches!(self, Self::Gone | Self::Silent(_) | Self::Interrupted))
            .then(|| self.exit_code())
    }

    pub(crate) fn from_io(what: &'static str) -> impl Fn(io::Error) -> Self {
        move |cause| Self::Io { what, cause }
    }

    pub(crate) fn from_path(path: &[u8]) -> impl Fn(io::Error) -> Self {
        let path = printable_bytes(path);
        move |cause| Self::Path {
            path: path.clone(),
            cause,
        }
    }
}

impl From<MessageError> for CopyError {
    fn from(error: MessageError) -> Self {
        Self::Protocol(error.to_string())
    }
}

#[cfg(test)]
mod tests;
