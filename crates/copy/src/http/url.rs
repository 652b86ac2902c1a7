//! The URL of a file at a web server, or at an FTP server.

use fluent_uri::{Uri, UriRef};
use fullpipe_units::printable_line;
use thiserror::Error;

use crate::protocol::EntryPath;

/// The URL of a file at a web server: `http`, `https` or `ftp`, with a host, and without a user.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct WebUrl {
    text: Uri<String>,
    port: u16,
}

/// The error of a text that names no file at a web server.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum UrlError {
    /// The syntax of RFC 3986 is broken.
    #[error(
        "{0} is no URL (RFC 3986): spaces and letters outside ASCII are written as %20 and so on"
    )]
    Syntax(String),
    /// The scheme is another one.
    #[error("{0} is none of http://, https:// and ftp://")]
    Scheme(String),
    /// The host is missing, or its port is no number from 1 to 65535.
    #[error("{0} names no host and port that can be called")]
    Host(String),
    /// The URL has a user or a password.
    #[error(
        "a URL with a user or a password is refused: other users of this host see the command line"
    )]
    User,
    /// The last name of the path cannot be that of a file.
    #[error("{0} has no last name that a file can have; name the file at the destination")]
    FileName(String),
    /// A redirection would give up the encryption, or lead to another protocol.
    #[error("the server redirects to {0}, which is less protected")]
    Downgrade(String),
}

impl WebUrl {
    /// Reads a URL.
    ///
    /// # Errors
    /// Fails if it is no URL of this kind.
    pub fn parse(text: &str) -> Result<Self, UrlError> {
        let parsed = Uri::parse(text.to_owned());
        Self::from_uri(&parsed.map_err(|_| UrlError::Syntax(printable_line(text)))?)
    }

    /// Returns true if a text begins as a URL of this kind does.
    pub fn is_url(text: &[u8]) -> bool {
        [&b"http://"[..], b"https://", b"ftp://"]
            .iter()
            .any(|scheme| {
                text.get(..scheme.len())
                    .is_some_and(|begin| begin.eq_ignore_ascii_case(scheme))
            })
    }

    fn from_uri(uri: &Uri<String>) -> Result<Self, UrlError> {
        let mut text = uri.normalize();
        text.set_fragment(None);
        let named = || text.as_str().to_owned();
        let usual_port = match text.scheme().as_str() {
            "http" => 80,
            "https" => 443,
            "ftp" => 21,
            _ => return Err(UrlError::Scheme(named())),
        };
        let authority = text.authority().ok_or_else(|| UrlError::Host(named()))?;
        if authority.has_userinfo() {
            return Err(UrlError::User);
        }
        let port = authority.port_to_u16().ok();
        let port = port.map(|port| port.unwrap_or(usual_port));
        if text.scheme().as_str() == "ftp" && ftp_path(&text).iter().any(u8::is_ascii_control) {
            return Err(UrlError::FileName(named()));
        }
        match port.filter(|port| *port > 0 && !authority.host().is_empty()) {
            Some(port) => Ok(Self { text, port }),
            None => Err(UrlError::Host(named())),
        }
    }

    /// Returns the URL that a server names in the field `Location`, which may be relative to this
    /// one.
    ///
    /// # Errors
    /// Fails if it is no URL of this kind, and if it leads from `https` to `http`, or to `ftp`.
    pub fn redirect_to(&self, location: &str) -> Result<Self, UrlError> {
        let wrong = || UrlError::Syntax(printable_line(location));
        let location = UriRef::parse(location).map_err(|_| wrong())?;
        let target = location.resolve_against(&self.text).map_err(|_| wrong())?;
        let target = Self::from_uri(&target)?;
        if target.is_ftp() || self.is_https() && !target.is_https() {
            return Err(UrlError::Downgrade(target.as_str().to_owned()));
        }
        Ok(target)
    }

    /// Returns the URL, normalized and without a fragment.
    pub fn as_str(&self) -> &str {
        self.text.as_str()
    }

    /// Returns true if its connections are encrypted.
    pub fn is_https(&self) -> bool {
        self.text.scheme().as_str() == "https"
    }

    /// Returns true if the server speaks FTP.
    pub fn is_ftp(&self) -> bool {
        self.text.scheme().as_str() == "ftp"
    }

    /// Returns the host, an IPv6 address without its brackets.
    pub fn host(&self) -> &str {
        let host = self.text.authority().map_or("", |found| found.host());
        host.trim_matches(['[', ']'])
    }

    /// Returns the TCP port.
    pub const fn port(&self) -> u16 {
        self.port
    }

    /// Returns the value of the field `Host`.
    pub fn host_field(&self) -> &str {
        self.text.authority().map_or("", |found| found.as_str())
    }

    /// Returns the target of a request: path and query.
    pub fn request_target(&self) -> String {
        let path = match self.text.path().as_str() {
            "" => "/",
            path => path,
        };
        let query = self.text.query();
        query.map_or_else(|| path.to_owned(), |query| format!("{path}?{query}"))
    }

    /// Returns the path of a file at an FTP server, decoded, without control characters. It begins
    /// at the folder of the user, as in RFC 1738, section 3.2.2; with `%2F`, at the root.
    pub fn ftp_path(&self) -> Vec<u8> {
        ftp_path(&self.text)
    }

    /// Returns the last name of its path, decoded.
    ///
    /// # Errors
    /// Fails if no file can have it: it is empty, leads elsewhere, or has control characters.
    pub fn file_name(&self) -> Result<EntryPath, UrlError> {
        let wrong = || UrlError::FileName(self.as_str().to_owned());
        let last = self.text.path().split('/').next_back().ok_or_else(wrong)?;
        let name = last.decode().to_bytes();
        let is_plain = !name
            .iter()
            .any(|byte| byte.is_ascii_control() || *byte == b'/');
        let path = EntryPath::new(name.into_owned()).ok();
        path.filter(|_| is_plain).ok_or_else(wrong)
    }
}

fn ftp_path(url: &Uri<String>) -> Vec<u8> {
    let path = url.path().decode().to_bytes();
    path.strip_prefix(b"/").unwrap_or(&path).to_vec()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn url(text: &str) -> WebUrl {
        WebUrl::parse(text).unwrap()
    }

    fn file_name(text: &str) -> Option<Vec<u8>> {
        Some(url(text).file_name().ok()?.as_bytes().to_vec())
    }

    #[test]
    fn a_url_has_a_host_a_port_and_a_target() {
        let one = url("HTTPS://Example.org:8443/a/b.nc?x=1&y#part");
        assert_eq!((one.host(), one.port()), ("example.org", 8443));
        assert_eq!(one.host_field(), "example.org:8443");
        assert_eq!(one.request_target(), "/a/b.nc?x=1&y");
        let other = url("http://[2001:db8::1]");
        assert_eq!((other.host(), other.port()), ("2001:db8::1", 80));
        assert_eq!(other.request_target(), "/");
    }

    #[test]
    fn urls_of_other_kinds_are_refused() {
        for text in [
            "ftps://h/a",
            "ftp://h/a%0d%0aDELE%20b/c",
            "ftp://u@h/a",
            "http:/a",
            "http:///a",
            "http://h:0/a",
            "http://h:70000/a",
            "http://u@h/a",
            "http://u:p@h/a",
            "http://h/a b",
            "http://h/ä",
            "http://h\r\nX: y/a",
            "",
        ] {
            assert!(WebUrl::parse(text).is_err(), "{text}");
        }
        assert!(WebUrl::is_url(b"HttpS://h") && !WebUrl::is_url(b"http:/h"));
    }

    #[test]
    fn a_path_of_ftp_begins_at_the_folder_of_the_user_or_at_the_root() {
        let path = |text| String::from_utf8(url(text).ftp_path()).unwrap();
        assert_eq!(
            (url("ftp://h/a").port(), url("FTP://h/a").is_ftp()),
            (21, true)
        );
        assert_eq!(path("ftp://h/pub/a%20b"), "pub/a b");
        assert_eq!(path("ftp://h/%2Fpub/a"), "/pub/a");
    }

    #[test]
    fn a_file_gets_the_last_name_if_that_is_a_plain_one() {
        assert_eq!(
            file_name("http://h/a/b%20c.nc?d/e"),
            Some(b"b c.nc".to_vec())
        );
        assert_eq!(file_name("http://h/caf%E9"), Some(b"caf\xe9".to_vec()));
        for text in [
            "http://h",
            "http://h/a/",
            "http://h/a/..",
            "http://h/%2e%2e",
            "http://h/.",
            "http://h/a%2Fb",
            "http://h/..%2f..%2fetc%2fpasswd",
            "http://h/a%00b",
            "http://h/a%0ab",
            "http://h/%1b%5b2J",
        ] {
            assert_eq!(file_name(text), None, "{text}");
        }
    }

    #[test]
    fn a_redirection_may_be_relative_and_never_gives_up_encryption() {
        let base = url("https://h:1/a/b?c");
        let to = |location| {
            base.redirect_to(location)
                .map(|url| url.as_str().to_owned())
        };
        assert_eq!(to("d").unwrap(), "https://h:1/a/d");
        assert_eq!(to("/d?e").unwrap(), "https://h:1/d?e");
        assert_eq!(to("//i/d").unwrap(), "https://i/d");
        assert_eq!(to("https://i/d#e").unwrap(), "https://i/d");
        for location in [
            "http://h/a",
            "ftp://h/a",
            "https://u@h/a",
            "a b",
            "https://",
        ] {
            assert!(to(location).is_err(), "{location}");
        }
        assert!(url("http://h/a").redirect_to("https://h/a").is_ok());
    }
}
