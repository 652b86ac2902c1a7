//! Who may ask: the names of this server, the token, and the page that a request comes from.

use std::net::SocketAddr;

use http::{HeaderMap, HeaderName, header};

/// What a browser says of the page that a request comes from (Fetch Metadata, section 2.4).
const FETCH_SITE: HeaderName = HeaderName::from_static("sec-fetch-site");

/// What a cookie is derived from besides the token, so that neither can stand for the other.
const COOKIE_CONTEXT: &str = "fullpipe 2026 cookie of a browser";

/// Least characters of a token: more than can be guessed over a network.
const MIN_TOKEN: usize = 16;

/// The names and addresses by which this server may be called.
///
/// A page of another site may have its name lead to this address (DNS rebinding). It then calls
/// this server by that name, which is not listed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HostList(Vec<String>);

impl HostList {
    /// Returns the names of loopback and the address that is listened on, and `others`.
    pub fn new(listening: SocketAddr, others: &[String]) -> Self {
        let usual = ["localhost", "127.0.0.1", "::1"].map(str::to_owned);
        let others = others.iter().map(|name| name.to_ascii_lowercase());
        Self(
            usual
                .into_iter()
                .chain([listening.ip().to_string()])
                .chain(others)
                .collect(),
        )
    }

    /// Returns true if `authority`, a name or an address with a port or without, is this server.
    pub fn has_authority(&self, authority: &str) -> bool {
        let host = host_of_authority(authority).to_ascii_lowercase();
        self.0.contains(&host)
    }

    /// Returns true unless the request came from a page of another server.
    pub fn has_origin(&self, fields: &HeaderMap) -> bool {
        let is_own = |name, accepts: &dyn Fn(&str) -> bool| {
            fields
                .get_all(name)
                .iter()
                .all(|field| field.to_str().is_ok_and(accepts))
        };
        is_own(FETCH_SITE, &|site| ["same-origin", "none"].contains(&site))
            && is_own(header::ORIGIN, &|origin| {
                origin
                    .split_once("://")
                    .is_some_and(|(_, authority)| self.has_authority(authority))
            })
    }
}

/// Returns the host of an authority, an IPv6 address without its brackets.
fn host_of_authority(authority: &str) -> &str {
    let end = |text: &str| text.is_empty() || text.starts_with(':');
    if let Some((address, rest)) = authority
        .strip_prefix('[')
        .and_then(|rest| rest.split_once(']'))
    {
        return if end(rest) { address } else { authority };
    }
    match authority.split_once(':') {
        Some((host, port)) if port.parse::<u16>().is_ok() => host,
        _ => authority,
    }
}

/// The secret that whoever opens a page must know.
#[derive(Clone, PartialEq, Eq)]
pub struct AccessToken(String);

impl std::fmt::Debug for AccessToken {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.write_str("AccessToken(…)")
    }
}

impl AccessToken {
    /// Returns the token of a text, without the white space around it.
    ///
    /// # Errors
    /// Fails if it has fewer than 16 characters, or others than letters, digits, `-` and `_`.
    pub fn from_text(text: &str) -> Result<Self, &'static str> {
        let token = text.trim();
        if token.len() < MIN_TOKEN {
            return Err("a token has 16 characters or more");
        }
        let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-_".contains(&byte);
        if !token.bytes().all(is_plain) {
            return Err("a token has letters, digits, - and _");
        }
        Ok(Self(token.to_owned()))
    }

    /// Returns the token as it is handed to a person.
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// Returns true if this is the token; how long that takes tells nothing of it.
    pub fn is_token(&self, offered: &str) -> bool {
        blake3::hash(self.0.as_bytes()) == blake3::hash(offered.as_bytes())
    }

    /// Returns the value of the cookie of a browser that has shown the token.
    pub fn cookie_value(&self) -> String {
        self.cookie_hash().to_hex().to_string()
    }

    fn cookie_hash(&self) -> blake3::Hash {
        blake3::Hash::from_bytes(blake3::derive_key(COOKIE_CONTEXT, self.0.as_bytes()))
    }

    /// Returns true if a request has the token, or the cookie with this name.
    pub fn is_shown(&self, fields: &HeaderMap, cookie: &str) -> bool {
        let bearer = fields.get(header::AUTHORIZATION);
        let bearer = bearer.and_then(|field| field.to_str().ok()?.strip_prefix("Bearer "));
        if bearer.is_some_and(|token| self.is_token(token)) {
            return true;
        }
        let cookies = fields.get_all(header::COOKIE).iter();
        let cookies = cookies.filter_map(|field| field.to_str().ok());
        cookies
            .flat_map(|list| list.split("; "))
            .filter_map(|pair| pair.strip_prefix(cookie)?.strip_prefix('='))
            .any(|value| blake3::Hash::from_hex(value).is_ok_and(|hash| hash == self.cookie_hash()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn fields(pairs: &[(&'static str, &'static str)]) -> HeaderMap {
        let pairs = pairs.iter().map(|(name, value)| {
            (
                HeaderName::from_static(name),
                header::HeaderValue::from_static(value),
            )
        });
        pairs.collect()
    }

    #[test]
    fn a_server_answers_to_its_names_alone() {
        let hosts = HostList::new("192.0.2.1:8080".parse().unwrap(), &["Grafana.lan".into()]);
        for own in [
            "localhost",
            "LOCALHOST:8080",
            "127.0.0.1:1",
            "[::1]",
            "[::1]:80",
            "192.0.2.1",
            "grafana.lan:443",
        ] {
            assert!(hosts.has_authority(own), "{own}");
        }
        for foreign in [
            "",
            "evil.example",
            "localhost.evil.example",
            "[::1].evil.example",
            "localhost:x",
            "::1:80",
        ] {
            assert!(!hosts.has_authority(foreign), "{foreign}");
        }
    }

    #[test]
    fn what_a_page_of_another_site_causes_is_known() {
        let hosts = HostList::new("127.0.0.1:8080".parse().unwrap(), &[]);
        let is_own = |pairs: &[(&'static str, &'static str)]| hosts.has_origin(&fields(pairs));
        assert!(is_own(&[]));
        assert!(is_own(&[
            ("origin", "http://127.0.0.1:8080"),
            ("sec-fetch-site", "same-origin")
        ]));
        assert!(is_own(&[("sec-fetch-site", "none")]));
        assert!(!is_own(&[("origin", "http://evil.example")]));
        assert!(!is_own(&[("origin", "null")]));
        assert!(!is_own(&[("sec-fetch-site", "cross-site")]));
        assert!(!is_own(&[("sec-fetch-site", "same-site")]));
    }

    #[test]
    fn a_token_opens_and_its_cookie_does_and_neither_stands_for_the_other() {
        let token = AccessToken::from_text(" 0123456789abcdef\n").unwrap();
        assert!(AccessToken::from_text("short").is_err());
        assert!(AccessToken::from_text("0123456789abcde f").is_err());
        let cookie = format!("other=1; fullpipe={}", token.cookie_value());
        let mut own = fields(&[]);
        own.insert(header::COOKIE, cookie.parse().unwrap());
        assert!(token.is_shown(&own, "fullpipe"));
        assert!(!token.is_shown(&own, "other"));
        assert!(token.is_shown(
            &fields(&[("authorization", "Bearer 0123456789abcdef")]),
            "x"
        ));
        for wrong in [
            ("authorization", "Bearer 0123456789abcdee"),
            ("authorization", "0123456789abcdef"),
            ("cookie", "fullpipe=0123456789abcdef"),
            ("cookie", "fullpipe="),
        ] {
            assert!(!token.is_shown(&fields(&[wrong]), "fullpipe"), "{wrong:?}");
        }
    }
}
