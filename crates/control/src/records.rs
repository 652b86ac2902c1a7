//! Records of TLS 1.3 (RFC 8446, section 5) after the handshake, without buffers of their own.
//!
//! A connection of the TLS library holds several KiB while it is idle. A program with thousands of them takes the keys
//! over, and seals and opens records in buffers that all its connections share.

use std::fmt;
use std::mem::take;
use std::sync::{Mutex, PoisonError};

use aws_lc_rs::aead::{AES_256_GCM, Aad, LessSafeKey, NONCE_LEN, Nonce, UnboundKey};
use aws_lc_rs::error::Unspecified;
use aws_lc_rs::hkdf::{HKDF_SHA384, KeyType, Prk};
use thiserror::Error;
use tokio_rustls::rustls::KeyLog;
use zeroize::Zeroizing;

/// Bytes before each record.
pub(crate) const HEADER: usize = 5;

/// Content of a record, at most.
const MAX_CONTENT: usize = 1 << 14;

/// Length of a record with its header, at most.
pub const MAX_RECORD: usize = HEADER + MAX_BODY;
const MAX_BODY: usize = MAX_CONTENT + 256;

/// Bytes of the tag that ends each record.
const TAG: usize = 16;

/// Types of content.
const ALERT: u8 = 21;
const HANDSHAKE: u8 = 22;
const DATA: u8 = 23;

/// Alerts: level and description.
const CLOSE_NOTIFY: [u8; 2] = [1, 0];
const USER_CANCELED: u8 = 90;

/// The message that the next records have new keys; the last byte is 1 if the other end is to do the same.
const KEY_UPDATE: [u8; 5] = [24, 0, 0, 1, 0];

/// Records that are sealed with one key. AES-GCM bears 2^24.5 of full size (RFC 8446, section 5.5).
const MAX_RECORDS: u64 = 1 << 23;

/// A secret of one direction, of the length of SHA-384.
type Secret = Zeroizing<[u8; 48]>;

/// The keys of both directions of a TLS connection, and what has come and not been read.
pub struct Records {
    sending: Keys,
    receiving: Keys,
    /// The other end has asked for new keys of this one.
    owes_update: bool,
    /// The other end has closed its direction.
    has_ended: bool,
    /// Payload that came before the keys were taken over.
    arrived: Vec<u8>,
    /// The begin of a record that is not complete.
    held: Vec<u8>,
}

/// The error of bytes that are no records of the other end.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
pub enum RecordError {
    /// A header is none of a record that may come.
    #[error("a record of {1} bytes and type {0} cannot come here")]
    Header(u8, usize),
    /// A record was changed, is none of the other end, or comes again.
    #[error("a record cannot be decrypted")]
    Encrypted,
    /// A record holds what may not come.
    #[error("a record holds what may not come")]
    Content,
    /// The other end gives up.
    #[error("the other end sent the alert {0} of TLS")]
    Alert(u8),
}

impl From<Unspecified> for RecordError {
    fn from(_: Unspecified) -> Self {
        Self::Encrypted
    }
}

impl Records {
    /// Takes over the two directions, each with its secret and the number of its next record, after `arrived` was read.
    pub(crate) fn new(
        [sending, receiving]: [(Secret, u64); 2],
        arrived: Vec<u8>,
        has_ended: bool,
    ) -> Result<Self, RecordError> {
        let [sending, receiving] = [Keys::new(sending)?, Keys::new(receiving)?];
        Ok(Self { sending, receiving, owes_update: false, has_ended, arrived, held: Vec::new() })
    }

    /// Appends `payload` to `into`, in records of at most 16 KiB.
    ///
    /// # Errors
    /// Fails if the library cannot encrypt.
    pub fn seal(&mut self, payload: &[u8], into: &mut Vec<u8>) -> Result<(), RecordError> {
        let mut key = self.sending.key()?;
        for content in payload.chunks(MAX_CONTENT) {
            if take(&mut self.owes_update) || self.sending.next >= MAX_RECORDS {
                self.sending.seal(&key, HANDSHAKE, &KEY_UPDATE, into)?;
                self.sending = self.sending.updated()?;
                key = self.sending.key()?;
            }
            self.sending.seal(&key, DATA, content, into)?;
        }
        Ok(())
    }

    /// Appends the record that ends this direction to `into`.
    ///
    /// # Errors
    /// Fails if the library cannot encrypt.
    pub fn seal_end(&mut self, into: &mut Vec<u8>) -> Result<(), RecordError> {
        let key = self.sending.key()?;
        Ok(self.sending.seal(&key, ALERT, &CLOSE_NOTIFY, into)?)
    }

    /// Returns payload that came before the keys were taken over, at most 16 KiB; it is empty the second time.
    pub fn take_arrived(&mut self) -> Vec<u8> {
        take(&mut self.arrived)
    }

    /// Returns the begin of a record, to which what comes next is to be appended for [`Records::open`].
    pub fn held(&self) -> &[u8] {
        &self.held
    }

    /// Opens the records at the begin of `bytes`, which are [`Records::held`] and what came after it, and moves their
    /// payload to the front. Returns its length. Keeps a record that is not complete.
    ///
    /// # Errors
    /// Fails if they are no records of the other end. Then nothing that follows can be read.
    pub fn open(&mut self, bytes: &mut [u8]) -> Result<usize, RecordError> {
        let mut key = self.receiving.key()?;
        let (mut opened, mut begin) = (0, 0);
        while !self.has_ended
            && let Some(end) = end_of_record(&bytes[begin..])?.map(|length| begin + length)
        {
            let (kind, length) = self.receiving.open(&key, &mut bytes[begin..end])?;
            let content = begin + HEADER..begin + HEADER + length;
            match kind {
                DATA => {
                    bytes.copy_within(content, opened);
                    opened += length;
                }
                ALERT => self.note_alert(&bytes[content])?,
                HANDSHAKE => {
                    self.note_update(&bytes[content])?;
                    key = self.receiving.key()?;
                }
                _ => return Err(RecordError::Content),
            }
            begin = end;
        }
        self.held = if self.has_ended { Vec::new() } else { bytes[begin..].to_vec() };
        Ok(opened)
    }

    /// Returns whether the other end has closed its direction, and all payload before that was returned.
    pub fn has_ended(&self) -> bool {
        self.has_ended && self.arrived.is_empty()
    }

    fn note_alert(&mut self, alert: &[u8]) -> Result<(), RecordError> {
        match *alert {
            [_, description] if description == CLOSE_NOTIFY[1] => self.has_ended = true,
            [_, USER_CANCELED] => {}
            [_, description] => return Err(RecordError::Alert(description)),
            _ => return Err(RecordError::Content),
        }
        Ok(())
    }

    fn note_update(&mut self, message: &[u8]) -> Result<(), RecordError> {
        match message.split_last() {
            Some((0 | 1, rest)) if *rest == KEY_UPDATE[..4] => {}
            _ => return Err(RecordError::Content),
        }
        self.owes_update |= message.ends_with(&[1]);
        self.receiving = self.receiving.updated()?;
        Ok(())
    }
}

impl fmt::Debug for Records {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Records(…)")
    }
}

/// Returns the length of the record at the begin of `bytes`; `None` if it is not complete.
fn end_of_record(bytes: &[u8]) -> Result<Option<usize>, RecordError> {
    let Some(&[kind, _, _, high, low]) = bytes.first_chunk::<HEADER>() else { return Ok(None) };
    let body = usize::from(u16::from_be_bytes([high, low]));
    if kind != DATA || !(TAG + 1..=MAX_BODY).contains(&body) {
        return Err(RecordError::Header(kind, body));
    }
    Ok(Some(HEADER + body).filter(|length| *length <= bytes.len()))
}

/// The keys of one direction.
struct Keys {
    secret: Secret,
    key: Zeroizing<[u8; 32]>,
    iv: Zeroizing<[u8; NONCE_LEN]>,
    /// Number of the next record.
    next: u64,
}

impl Keys {
    fn new((secret, next): (Secret, u64)) -> Result<Self, Unspecified> {
        Ok(Self { key: expand(&secret, "key")?, iv: expand(&secret, "iv")?, secret, next })
    }

    /// Returns the keys that follow (RFC 8446, section 7.2).
    fn updated(&self) -> Result<Self, Unspecified> {
        Self::new((expand(&self.secret, "traffic upd")?, 0))
    }

    /// Returns the key with its tables, 600 bytes, which are made anew in less time than a record takes.
    fn key(&self) -> Result<LessSafeKey, Unspecified> {
        UnboundKey::new(&AES_256_GCM, &*self.key).map(LessSafeKey::new)
    }

    /// Returns the nonce of the next record (RFC 8446, section 5.3).
    fn nonce(&mut self) -> Nonce {
        let mut nonce = *self.iv;
        for (byte, number) in nonce.iter_mut().rev().zip(self.next.to_le_bytes()) {
            *byte ^= number;
        }
        self.next += 1;
        Nonce::assume_unique_for_key(nonce)
    }

    fn seal(&mut self, key: &LessSafeKey, kind: u8, content: &[u8], into: &mut Vec<u8>) -> Result<(), Unspecified> {
        let [high, low] = ((content.len() + 1 + TAG) as u16).to_be_bytes();
        let header = [DATA, 3, 3, high, low];
        let begin = into.len() + HEADER;
        into.extend_from_slice(&header);
        into.extend_from_slice(content);
        into.push(kind);
        let tag = key.seal_in_place_separate_tag(self.nonce(), Aad::from(header), &mut into[begin..])?;
        into.extend_from_slice(tag.as_ref());
        Ok(())
    }

    /// Opens one record in its place. Returns the type of its content, and the length, which begins behind the header.
    fn open(&mut self, key: &LessSafeKey, record: &mut [u8]) -> Result<(u8, usize), RecordError> {
        let (header, body) = record.split_first_chunk_mut::<HEADER>().ok_or(RecordError::Content)?;
        let content = key.open_in_place(self.nonce(), Aad::from(*header), body)?;
        // Behind the type there may be zeros.
        let length = content.iter().rposition(|byte| *byte != 0).ok_or(RecordError::Content)?;
        if length > MAX_CONTENT {
            return Err(RecordError::Content);
        }
        Ok((content[length], length))
    }
}

/// Returns bytes of a secret for a purpose (HKDF-Expand-Label of RFC 8446, section 7.1, with an empty context).
fn expand<const N: usize>(secret: &Secret, label: &str) -> Result<Zeroizing<[u8; N]>, Unspecified> {
    let length = (N as u16).to_be_bytes();
    let prefix = [length[0], length[1], PREFIX.len() as u8 + label.len() as u8];
    let info = [&prefix[..], PREFIX, label.as_bytes(), &[0]];
    let mut bytes = Zeroizing::new([0; N]);
    Prk::new_less_safe(HKDF_SHA384, &**secret).expand(&info, Length(N))?.fill(&mut *bytes)?;
    Ok(bytes)
}

const PREFIX: &[u8] = b"tls13 ";

struct Length(usize);

impl KeyType for Length {
    fn len(&self) -> usize {
        self.0
    }
}

/// The secrets of a connection, as its handshake states them: that of the client, and that of the server.
#[derive(Default)]
pub(crate) struct Secrets(Mutex<[Option<Secret>; 2]>);

const LABELS: [&str; 2] = ["CLIENT_TRAFFIC_SECRET_0", "SERVER_TRAFFIC_SECRET_0"];

impl Secrets {
    /// Returns both secrets, once.
    pub(crate) fn take(&self) -> Option<[Secret; 2]> {
        let [client, server] = take(&mut *self.0.lock().unwrap_or_else(PoisonError::into_inner));
        Some([client?, server?])
    }
}

impl KeyLog for Secrets {
    fn log(&self, label: &str, _: &[u8], secret: &[u8]) {
        if let Some(index) = LABELS.iter().position(|known| *known == label)
            && let Ok(secret) = <[u8; 48]>::try_from(secret)
        {
            self.0.lock().unwrap_or_else(PoisonError::into_inner)[index] = Some(Zeroizing::new(secret));
        }
    }

    fn will_log(&self, label: &str) -> bool {
        LABELS.contains(&label)
    }
}

impl fmt::Debug for Secrets {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Secrets(…)")
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// Both ends of a connection.
    fn ends() -> [Records; 2] {
        let secrets = || [[1; 48], [2; 48]].map(|secret| (Zeroizing::new(secret), 7));
        let [ours, theirs] = secrets();
        [secrets(), [theirs, ours]].map(|secrets| Records::new(secrets, Vec::new(), false).unwrap())
    }

    fn receive(records: &mut Records, bytes: &[u8]) -> Result<Vec<u8>, RecordError> {
        let mut buffer = [records.held(), bytes].concat();
        let opened = records.open(&mut buffer)?;
        buffer.truncate(opened);
        Ok(buffer)
    }

    fn sealed(records: &mut Records, kind: u8, content: &[u8]) -> Vec<u8> {
        let mut bytes = Vec::new();
        let key = records.sending.key().unwrap();
        records.sending.seal(&key, kind, content, &mut bytes).unwrap();
        bytes
    }

    #[test]
    fn what_was_changed_or_comes_again_is_refused() {
        let [mut near, mut far] = ends();
        let record = sealed(&mut near, DATA, b"payload");
        for index in HEADER..record.len() {
            let mut changed = record.clone();
            changed[index] ^= 1;
            assert_eq!(receive(&mut ends()[1], &changed), Err(RecordError::Encrypted), "{index}");
        }
        assert_eq!(receive(&mut far, &record).unwrap(), b"payload");
        assert_eq!(receive(&mut far, &record), Err(RecordError::Encrypted));
    }

    #[test]
    fn what_may_not_come_is_refused() {
        for (bytes, error) in [
            (vec![DATA, 3, 3, 0, 16], RecordError::Header(DATA, 16)),
            (vec![DATA, 3, 3, 0x41, 1], RecordError::Header(DATA, MAX_BODY + 1)),
            (vec![HANDSHAKE, 3, 3, 0, 40], RecordError::Header(HANDSHAKE, 40)),
        ] {
            assert_eq!(receive(&mut ends()[1], &bytes), Err(error));
        }
        for (kind, content, error) in [
            (0, &[0_u8; 9][..], RecordError::Content),
            (20, &[1], RecordError::Content),
            (HANDSHAKE, &[24, 0, 0, 1, 2], RecordError::Content),
            (HANDSHAKE, &[4, 0, 0, 1, 0], RecordError::Content),
            (HANDSHAKE, &[], RecordError::Content),
            (ALERT, &[2, 80], RecordError::Alert(80)),
            (ALERT, &[2], RecordError::Content),
        ] {
            let [mut near, mut far] = ends();
            let record = sealed(&mut near, kind, content);
            assert_eq!(receive(&mut far, &record), Err(error), "{kind} {content:?}");
        }
    }

    #[test]
    fn zeros_behind_the_content_are_none_of_it() {
        let [mut near, mut far] = ends();
        let mut padded = b"payload".to_vec();
        padded.push(DATA);
        padded.extend([0; 20]);
        // The last zero stands where the type would.
        let record = sealed(&mut near, 0, &padded);
        assert_eq!(receive(&mut far, &record).unwrap(), b"payload");
    }

    #[test]
    fn what_follows_the_end_is_ignored() {
        let [mut near, mut far] = ends();
        let mut bytes = sealed(&mut near, DATA, b"last");
        near.seal_end(&mut bytes).unwrap();
        bytes.extend(b"rubbish");
        assert!(!far.has_ended());
        assert_eq!(receive(&mut far, &bytes).unwrap(), b"last");
        assert!(far.has_ended() && far.held().is_empty());
        assert_eq!(receive(&mut far, b"more").unwrap(), b"");
    }

    #[test]
    fn keys_are_updated_before_they_have_sealed_too_much() {
        let [mut near, mut far] = ends();
        (near.sending.next, far.receiving.next) = (MAX_RECORDS - 1, MAX_RECORDS - 1);
        let payload = vec![5; 3 * MAX_CONTENT];
        let mut bytes = Vec::new();
        near.seal(&payload, &mut bytes).unwrap();
        assert_eq!(receive(&mut far, &bytes).unwrap(), payload);
        assert_eq!((near.sending.next, far.receiving.next), (2, 2));
        assert!(!far.owes_update);
    }

    #[test]
    fn an_end_that_is_asked_for_new_keys_makes_them_before_it_sends_payload() {
        let [mut near, mut far] = ends();
        let asks = sealed(&mut near, HANDSHAKE, &[24, 0, 0, 1, 1]);
        near.sending = near.sending.updated().unwrap();
        assert_eq!(receive(&mut far, &asks).unwrap(), b"");
        let mut answer = Vec::new();
        far.seal(b"payload", &mut answer).unwrap();
        assert_eq!(receive(&mut near, &answer).unwrap(), b"payload");
        assert_eq!((far.receiving.next, far.sending.next, near.receiving.next), (0, 1, 1));
    }

    proptest! {
        /// In whatever parts records arrive, their payload is that of the sender, and nothing is held between them.
        #[test]
        fn records_arrive_in_any_parts(
            payloads in prop::collection::vec((prop::collection::vec(any::<u8>(), 0..400), any::<bool>()), 1..6),
            large in 1_usize..40_000,
            part in 1_usize..900,
        ) {
            let [mut near, mut far] = ends();
            let (mut sent, mut wire) = (vec![9; large], Vec::new());
            near.seal(&sent, &mut wire).unwrap();
            for (payload, updates) in &payloads {
                near.owes_update |= updates;
                near.seal(payload, &mut wire).unwrap();
                sent.extend(payload);
            }
            let mut received = Vec::new();
            for bytes in wire.chunks(part) {
                received.extend(receive(&mut far, bytes).unwrap());
            }
            prop_assert!(received == sent);
            prop_assert_eq!((far.held().len(), far.held.capacity()), (0, 0));
        }
    }
}
