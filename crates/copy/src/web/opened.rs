//! A file at a web server, found and asked for once.

use std::net::SocketAddr;
use std::thread;
use std::time::Instant;

use fullpipe_units::{ByteCount, Span};

use super::WebCopy;
use super::connection::{FetchFailure, WebConnection, status_failure};
use crate::http::{ResponseHead, Validator, WebUrl};
use crate::protocol::{CHUNK, FileIdentity, ModificationTime};

/// Redirections that are followed at most.
const MAX_REDIRECTIONS: u32 = 10;

/// Time between two attempts to reach a server that does not answer.
const RETRY_INTERVAL: Span = Span::from_secs(1);

/// A file at a web server.
pub(super) struct OpenedFile {
    /// The URL behind all redirections.
    pub url: WebUrl,
    /// The address that has answered: others of the same name may have another state of the file.
    pub address: SocketAddr,
    pub rtt: Span,
    pub head: ResponseHead,
    /// The time from which its data came.
    pub answered_at: Instant,
}

/// The way in which a file can be had.
#[derive(Clone)]
pub(super) enum FileAccess {
    /// In ranges of a state that the validator shows.
    Ranges(ByteCount, Validator),
    /// As a whole, which the answer holds.
    Whole,
    /// As a whole, which is to be asked for.
    WholeAgain,
}

impl OpenedFile {
    /// Asks for the first chunk of the file. Returns it with the connection, on which the answer
    /// comes.
    ///
    /// # Errors
    /// Fails if the server cannot be reached, does not have it, or breaks the rules.
    pub(super) fn open(copy: &WebCopy) -> Result<(Self, WebConnection), FetchFailure> {
        let first_chunk = Some((0, CHUNK as u64 - 1));
        let mut url = copy.url.clone();
        for _ in 0..=MAX_REDIRECTIONS {
            let (connection, head) = ask_patiently(copy, &url, first_chunk)?;
            let location = head.location.as_deref().filter(|_| head.is_redirection());
            let Some(location) = location else {
                let file = Self {
                    url,
                    address: connection.address,
                    rtt: connection.rtt,
                    head,
                    answered_at: Instant::now(),
                };
                return Ok((file, connection));
            };
            let target = url.redirect_to(location);
            url = target.map_err(|error| FetchFailure::Final(error.to_string()))?;
        }
        Err(FetchFailure::Final(format!(
            "the server redirects more than {MAX_REDIRECTIONS} times"
        )))
    }

    /// Asks for the whole file.
    ///
    /// # Errors
    /// Fails if the server does not send it.
    pub(super) fn open_whole(
        mut self,
        copy: &WebCopy,
    ) -> Result<(Self, WebConnection), FetchFailure> {
        let (connection, head) = ask_patiently(copy, &self.url, None)?;
        if head.status != 200 {
            return Err(status_failure(&head));
        }
        self.head = head;
        Ok((self, connection))
    }

    /// Returns the way in which the file can be had.
    ///
    /// # Errors
    /// Fails if the answer is none that has it.
    pub(super) fn file_access(&self) -> Result<FileAccess, FetchFailure> {
        let head = &self.head;
        match (head.status, head.content_range) {
            (200, _) => Ok(FileAccess::Whole),
            // No range is in an empty file.
            (416, Some(range)) if range.length == Some(0) => Ok(FileAccess::WholeAgain),
            (206, Some(range)) if range.range.is_some_and(|(first, _)| first == 0) => {
                let (length, validator) = (range.length, Validator::from_head(head));
                Ok(length
                    .zip(validator)
                    .map_or(FileAccess::WholeAgain, |(length, validator)| {
                        FileAccess::Ranges(ByteCount::new(length), validator)
                    }))
            }
            (206, _) => Err(FetchFailure::Final(
                "the server sends another range than it was asked for".to_owned(),
            )),
            _ => Err(status_failure(head)),
        }
    }

    /// Returns the time of the last change of the file, if the server names it.
    pub(super) fn modified(&self) -> Option<ModificationTime> {
        let (_, seconds) = self.head.last_modified.as_ref()?;
        Some(ModificationTime {
            seconds: *seconds,
            nanoseconds: 0,
        })
    }
}

/// Returns the identity of a state of the file at a URL, under which what has come of it is kept.
pub(super) fn file_identity(url: &WebUrl, size: ByteCount, validator: &Validator) -> FileIdentity {
    let parts = [
        url.as_str(),
        &size.get().to_string(),
        validator.field_value(),
    ];
    FileIdentity(blake3::hash(parts.join("\n").as_bytes()).into())
}

/// Asks for a file, again and again if the server is away or busy for a while.
fn ask_patiently(
    copy: &WebCopy,
    url: &WebUrl,
    range: Option<(u64, u64)>,
) -> Result<(WebConnection, ResponseHead), FetchFailure> {
    let began = Instant::now();
    loop {
        let (why, wait) = match ask_once(copy, url, range) {
            Err(FetchFailure::Broken(why)) => (why, RETRY_INTERVAL),
            Err(FetchFailure::Busy(status, after)) => {
                let why = format!("the server is busy (status {status})");
                (why, after.unwrap_or_default().max(RETRY_INTERVAL))
            }
            other => return other,
        };
        if Span::from(began.elapsed()) + wait > copy.patience().into() || copy.is_stopped() {
            return Err(FetchFailure::Final(why));
        }
        thread::sleep(wait.into());
    }
}

fn ask_once(
    copy: &WebCopy,
    url: &WebUrl,
    range: Option<(u64, u64)>,
) -> Result<(WebConnection, ResponseHead), FetchFailure> {
    let mut connection = copy.client.connect(url, None)?;
    let head = connection.request(url, range, None)?;
    match head.status {
        429 | 500 | 502..=504 => Err(status_failure(&head)),
        _ => Ok((connection, head)),
    }
}
