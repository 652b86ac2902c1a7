use std::io;
use std::net::SocketAddr;
use std::time::Duration;

use fullpipe_control::{WebClientTls, connect_to_first};
use serde::Serialize;
use serde::de::DeserializeOwned;
use thiserror::Error;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpStream, lookup_host};
use tokio::time::timeout;

/// Time for a connection and a request, beyond what the request waits for.
const TIMEOUT: Duration = Duration::from_secs(20);

/// Time after which another address of the controller is tried.
const PAUSE: Duration = Duration::from_millis(300);

/// Largest answer, in bytes.
const MAX_ANSWER: u64 = 16 << 20;

/// Header fields of an answer, at most.
const MAX_FIELDS: usize = 64;

/// Why a server has not answered.
#[derive(Debug, Error)]
pub enum ClientError {
    /// It cannot be reached, or breaks off.
    #[error("{address} cannot be reached: {cause}")]
    Away {
        /// Its address.
        address: String,
        /// The reason.
        cause: String,
    },
    /// It refuses.
    #[error("refused: {why}")]
    Refused {
        /// HTTP status.
        status: u16,
        /// Its sentence.
        why: String,
    },
}

/// A server of HTTPS, as the controller of a fleet is one for its agents: a connection for each
/// request.
#[derive(Debug, Clone)]
pub struct HttpsClient {
    /// Name or address.
    host: String,
    port: u16,
    tls: WebClientTls,
}

impl HttpsClient {
    /// Returns the server at `https://HOST[:PORT]`.
    ///
    /// # Errors
    /// Fails with a sentence if the URL is none.
    pub fn from_url(url: &str, default_port: u16, tls: WebClientTls) -> Result<Self, String> {
        let wrong = || format!("{url:?} names no server: https://HOST or https://HOST:PORT");
        let authority = url.strip_prefix("https://").ok_or_else(wrong)?;
        let authority = authority.trim_end_matches('/');
        let (host, port) = match authority.rsplit_once(':') {
            Some((host, port)) if !host.contains(':') || host.ends_with(']') => {
                (host, port.parse().map_err(|_| wrong())?)
            }
            _ => (authority, default_port),
        };
        let host = host.trim_start_matches('[').trim_end_matches(']');
        let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || b".-:_".contains(&byte);
        if host.is_empty() || !host.bytes().all(is_plain) {
            return Err(wrong());
        }
        Ok(Self {
            host: host.to_owned(),
            port,
            tls,
        })
    }

    /// Sends JSON and reads JSON, which may take `wait` longer than usual.
    ///
    /// # Errors
    /// Fails if the server cannot be reached, refuses, or answers something else.
    pub async fn ask<T: DeserializeOwned>(
        &self,
        method: &str,
        path: &str,
        body: &impl Serialize,
        wait: Duration,
    ) -> Result<T, ClientError> {
        let body = serde_json::to_vec(body).unwrap_or_default();
        let answer = self.request(method, path, &body, wait).await?;
        serde_json::from_slice(&answer).map_err(|error| self.away(&error))
    }

    /// Sends a body and reads one.
    ///
    /// # Errors
    /// Fails if the server cannot be reached, or refuses.
    pub async fn request(
        &self,
        method: &str,
        path: &str,
        body: &[u8],
        wait: Duration,
    ) -> Result<Vec<u8>, ClientError> {
        let asked = timeout(TIMEOUT + wait, self.exchange(method, path, body)).await;
        let asked = asked.unwrap_or_else(|_| Err(io::ErrorKind::TimedOut.into()));
        let answer = asked.map_err(|error| self.away(&error))?;
        let (status, body) = parse_answer(&answer)
            .ok_or_else(|| self.away(&"it does not speak HTTP, or broke off"))?;
        if (200..300).contains(&status) {
            return Ok(body.to_vec());
        }
        Err(ClientError::Refused {
            status,
            why: sentence_of_refusal(body),
        })
    }

    async fn exchange(&self, method: &str, path: &str, body: &[u8]) -> io::Result<Vec<u8>> {
        let addresses: Vec<SocketAddr> = lookup_host((self.host.as_str(), self.port))
            .await?
            .collect();
        let stream = connect_to_first(&addresses, PAUSE, TcpStream::connect).await?;
        let mut connection = self.tls.connect_tls(&self.host, stream).await?;
        let authority = if self.host.contains(':') {
            format!("[{}]:{}", self.host, self.port)
        } else {
            format!("{}:{}", self.host, self.port)
        };
        let head = format!(
            "{method} {path} HTTP/1.1\r\nHost: {authority}\r\nContent-Type: application/json\r\n\
             Content-Length: {}\r\nConnection: close\r\n\r\n",
            body.len()
        );
        connection
            .write_all(&[head.as_bytes(), body].concat())
            .await?;
        connection.flush().await?;
        let mut answer = Vec::new();
        let read = connection.take(MAX_ANSWER).read_to_end(&mut answer).await;
        // An end without a word of TLS is seen by the length.
        if answer.is_empty() {
            read.map(|_| answer)
        } else {
            Ok(answer)
        }
    }

    fn away(&self, cause: &dyn std::fmt::Display) -> ClientError {
        ClientError::Away {
            address: format!("{}:{}", self.host, self.port),
            cause: cause.to_string(),
        }
    }
}

/// Returns the status and the body of an answer; `None` if it is not whole.
fn parse_answer(answer: &[u8]) -> Option<(u16, &[u8])> {
    let mut fields = [httparse::EMPTY_HEADER; MAX_FIELDS];
    let mut head = httparse::Response::new(&mut fields);
    let httparse::Status::Complete(length) = head.parse(answer).ok()? else {
        return None;
    };
    let stated = head
        .headers
        .iter()
        .find(|field| field.name.eq_ignore_ascii_case("content-length"))?;
    let stated: usize = str::from_utf8(stated.value).ok()?.parse().ok()?;
    let body = answer.get(length..)?;
    (body.len() == stated).then_some((head.code?, body))
}

/// Returns the sentence of a refusal, which stands in JSON as `error.message`.
fn sentence_of_refusal(body: &[u8]) -> String {
    let json: serde_json::Value = serde_json::from_slice(body).unwrap_or_default();
    let sentence = json["error"]["message"]
        .as_str()
        .unwrap_or("it says no more");
    fullpipe_units::printable_line(sentence)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_answer_is_whole_or_none() {
        let whole = b"HTTP/1.1 401 No\r\ncontent-length: 2\r\n\r\n{}";
        assert_eq!(parse_answer(whole), Some((401, &b"{}"[..])));
        for cut in 0..whole.len() {
            assert_eq!(parse_answer(&whole[..cut]), None, "{cut}");
        }
        assert_eq!(parse_answer(b"HTTP/1.1 200 OK\r\n\r\n"), None);
    }

    #[test]
    fn a_controller_has_a_url_of_https() {
        let tls = WebClientTls::unverified().unwrap();
        let parse = |url: &str| {
            let client = HttpsClient::from_url(url, 5290, tls.clone());
            client.map(|client| (client.host, client.port)).ok()
        };
        let found = |host: &str, port| Some((host.to_owned(), port));
        assert_eq!(parse("https://a.example"), found("a.example", 5290));
        assert_eq!(parse("https://a.example:1/"), found("a.example", 1));
        assert_eq!(parse("https://[2001:db8::1]:2"), found("2001:db8::1", 2));
        assert_eq!(parse("https://[2001:db8::1]"), found("2001:db8::1", 5290));
        for wrong in [
            "",
            "a",
            "http://a",
            "https://",
            "https://a:b",
            "https://a/b",
            "https://a b",
        ] {
            assert_eq!(parse(wrong), None, "{wrong}");
        }
    }
}
