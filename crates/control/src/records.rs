//! Records of TLS 1.3 (RFC 8446, section 5) after the handshake, without buffers of their own.
//!
//! A connection of the TLS library holds several KiB while it is idle. A program with thousands of
//! them takes the keys over, and seals and opens records in buffers that all its connections share.

use std::fmt;
use std::io::{self, Read};
use std::mem::take;
use std::sync::{Arc, Mutex};

use aws_lc_rs::aead::{AES_256_GCM, Aad, LessSafeKey, NONCE_LEN, Nonce, UnboundKey};
use aws_lc_rs::error::Unspecified;
use aws_lc_rs::hkdf::{HKDF_SHA384, KeyType, Prk};
use fullpipe_sys::lock;
use thiserror::Error;
use tokio_rustls::rustls::{
    CipherSuite, ClientConfig, Connection, ConnectionTrafficSecrets, KeyLog, ServerConfig,
};
use zeroize::Zeroizing;

/// The cipher suite whose records this room seals itself.
pub(crate) const SUITE_OF_RECORDS: CipherSuite = CipherSuite::TLS13_AES_256_GCM_SHA384;

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

/// The message that the next records have new keys; the last byte is 1 if the other end is to do
/// the same.
const KEY_UPDATE: [u8; 5] = [24, 0, 0, 1, 0];

/// Records that are sealed with one key. AES-GCM bears 2^24.5 of full size (RFC 8446, section 5.5).
const MAX_RECORDS: u64 = 1 << 23;

/// Records without payload that may come in a row. One that updates keys costs more time than its
/// few bytes are worth, so each is to be made up for with the payload of a full record.
const MAX_IDLE: usize = 32;

/// A secret of one direction, of the length of SHA-384.
type Secret = Zeroizing<[u8; 48]>;

/// The keys of both directions of a TLS connection, and what has come and not been read.
pub struct TlsRecords {
    sending: DirectionKeys,
    receiving: DirectionKeys,
    /// The other end has asked for new keys of this one.
    owes_update: bool,
    /// The other end has closed its direction.
    has_ended: bool,
    /// The error after which nothing more is read.
    failed: Option<RecordError>,
    /// Payload that records without any may still stand in for.
    idle_left: usize,
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
    /// The other end sends too many records without payload.
    #[error("the other end sends too many records without payload")]
    Idle,
    /// The secrets of the handshake are not those in use.
    #[error("the keys of TLS were changed before its records were taken over")]
    Updated,
}

impl From<Unspecified> for RecordError {
    fn from(_: Unspecified) -> Self {
        Self::Encrypted
    }
}

impl TlsRecords {
    /// Takes over a connection of the TLS library whose handshake stated `secrets`, after which the
    /// begin of a record has come.
    ///
    /// # Errors
    /// Fails if the handshake is not over, if the library has bytes left to send, and if keys were
    /// updated since.
    pub(crate) fn take_over(
        mut tls: Connection,
        secrets: &TrafficSecrets,
        begun: Vec<u8>,
    ) -> io::Result<Self> {
        let mut arrived = Vec::new();
        let has_ended = match tls.reader().read_to_end(&mut arrived) {
            Ok(_) => true,
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => false,
            Err(error) => return Err(error),
        };
        let is_client = matches!(tls, Connection::Client(_));
        let used = tls.dangerous_extract_secrets().map_err(io::Error::other)?;
        let [client, server] = secrets
            .take_secrets()
            .ok_or_else(|| io::Error::other("the handshake stated no secrets"))?;
        let [ours, theirs] = if is_client {
            [client, server]
        } else {
            [server, client]
        };
        let sending = DirectionKeys::taken_over(ours, used.tx).map_err(io::Error::other)?;
        let receiving = DirectionKeys::taken_over(theirs, used.rx).map_err(io::Error::other)?;
        Ok(Self {
            has_ended,
            arrived,
            held: begun,
            ..Self::new([sending, receiving])
        })
    }

    fn new([sending, receiving]: [DirectionKeys; 2]) -> Self {
        Self {
            sending,
            receiving,
            owes_update: false,
            has_ended: false,
            failed: None,
            idle_left: MAX_IDLE * MAX_CONTENT,
            arrived: Vec::new(),
            held: Vec::new(),
        }
    }

    /// Appends `payload` to `into`, in records of at most 16 KiB.
    ///
    /// # Errors
    /// Fails if the library cannot encrypt.
    pub fn seal_payload(&mut self, payload: &[u8], into: &mut Vec<u8>) -> Result<(), RecordError> {
        let mut key = self.sending.cipher_key()?;
        for content in payload.chunks(MAX_CONTENT) {
            if take(&mut self.owes_update) || self.sending.next >= MAX_RECORDS {
                self.sending
                    .seal_record(&key, HANDSHAKE, &KEY_UPDATE, into)?;
                self.sending = self.sending.next_keys()?;
                key = self.sending.cipher_key()?;
            }
            self.sending.seal_record(&key, DATA, content, into)?;
        }
        Ok(())
    }

    /// Appends the record that ends this direction to `into`.
    ///
    /// # Errors
    /// Fails if the library cannot encrypt.
    pub fn seal_end(&mut self, into: &mut Vec<u8>) -> Result<(), RecordError> {
        let key = self.sending.cipher_key()?;
        Ok(self.sending.seal_record(&key, ALERT, &CLOSE_NOTIFY, into)?)
    }

    /// Returns payload that came before the keys were taken over, at most 16 KiB; it is empty the
    /// second time.
    pub fn take_arrived(&mut self) -> Vec<u8> {
        take(&mut self.arrived)
    }

    /// Returns the begin of a record, to which what comes next is to be appended for
    /// [`TlsRecords::open_records`].
    pub fn partial_record(&self) -> &[u8] {
        &self.held
    }

    /// Opens the records at the begin of `bytes`, which are [`TlsRecords::partial_record`] and what
    /// came after it, and moves their payload to the front. Returns the length of the payload.
    /// Keeps a record that is not complete.
    ///
    /// # Errors
    /// Fails if they are no records of the other end. Then nothing that follows is read.
    pub fn open_records(&mut self, bytes: &mut [u8]) -> Result<usize, RecordError> {
        if let Some(error) = self.failed {
            return Err(error);
        }
        let opened = self.open_all(bytes);
        self.failed = opened.err();
        opened
    }

    fn open_all(&mut self, bytes: &mut [u8]) -> Result<usize, RecordError> {
        let mut key = self.receiving.cipher_key()?;
        let (mut opened, mut begin) = (0, 0);
        while !self.has_ended
            && let Some(end) = end_of_record(&bytes[begin..])?.map(|length| begin + length)
        {
            let (kind, length) = self.receiving.open_record(&key, &mut bytes[begin..end])?;
            let content = begin + HEADER..begin + HEADER + length;
            match kind {
                DATA if length > 0 => {
                    bytes.copy_within(content, opened);
                    opened += length;
                    self.idle_left = (self.idle_left + length).min(MAX_IDLE * MAX_CONTENT);
                }
                DATA => self.note_idle()?,
                ALERT => self.note_alert(&bytes[content])?,
                HANDSHAKE => {
                    self.note_update(&bytes[content])?;
                    key = self.receiving.cipher_key()?;
                }
                _ => return Err(RecordError::Content),
            }
            begin = end;
        }
        self.held = if self.has_ended {
            Vec::new()
        } else {
            bytes[begin..].to_vec()
        };
        Ok(opened)
    }

    /// Returns both ends of a connection, with secrets that everybody knows.
    ///
    /// # Panics
    /// Panics if the library derives no keys.
    #[cfg(any(test, fuzzing))]
    pub fn known_ends() -> [Self; 2] {
        let keys =
            |byte| DirectionKeys::new(Zeroizing::new([byte; 48]), 7).expect("there are keys");
        [[1, 2], [2, 1]].map(|bytes| Self::new(bytes.map(keys)))
    }

    /// Appends a record of any kind and content to `into`, as a hostile peer can. New keys follow
    /// its own update.
    ///
    /// # Errors
    /// Fails if the library cannot encrypt.
    #[cfg(any(test, fuzzing))]
    pub fn seal_any(
        &mut self,
        kind: u8,
        content: &[u8],
        into: &mut Vec<u8>,
    ) -> Result<(), RecordError> {
        let key = self.sending.cipher_key()?;
        self.sending.seal_record(&key, kind, content, into)?;
        if kind == HANDSHAKE && content.starts_with(&KEY_UPDATE[..4]) {
            self.sending = self.sending.next_keys()?;
        }
        Ok(())
    }

    /// Returns true if the other end has closed its direction, and all payload before that was
    /// returned.
    pub fn has_ended(&self) -> bool {
        self.has_ended && self.arrived.is_empty()
    }

    fn note_alert(&mut self, alert: &[u8]) -> Result<(), RecordError> {
        match *alert {
            [_, description] if description == CLOSE_NOTIFY[1] => self.has_ended = true,
            [_, USER_CANCELED] => self.note_idle()?,
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
        self.note_idle()?;
        self.owes_update |= message.ends_with(&[1]);
        self.receiving = self.receiving.next_keys()?;
        Ok(())
    }

    /// Notes a record without payload.
    fn note_idle(&mut self) -> Result<(), RecordError> {
        self.idle_left = self
            .idle_left
            .checked_sub(MAX_CONTENT)
            .ok_or(RecordError::Idle)?;
        Ok(())
    }
}

impl fmt::Debug for TlsRecords {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Records(…)")
    }
}

/// Returns the length of the record at the begin of `bytes`; `None` if it is not complete.
fn end_of_record(bytes: &[u8]) -> Result<Option<usize>, RecordError> {
    let Some(&[kind, _, _, high, low]) = bytes.first_chunk::<HEADER>() else {
        return Ok(None);
    };
    let body = usize::from(u16::from_be_bytes([high, low]));
    if kind != DATA || !(TAG + 1..=MAX_BODY).contains(&body) {
        return Err(RecordError::Header(kind, body));
    }
    Ok(Some(HEADER + body).filter(|length| *length <= bytes.len()))
}

/// The keys of one direction.
struct DirectionKeys {
    secret: Secret,
    key: Zeroizing<[u8; 32]>,
    iv: Zeroizing<[u8; NONCE_LEN]>,
    /// Number of the next record.
    next: u64,
}

impl DirectionKeys {
    fn new(secret: Secret, next: u64) -> Result<Self, Unspecified> {
        Ok(Self {
            key: expand_secret(&secret, "key")?,
            iv: expand_secret(&secret, "iv")?,
            secret,
            next,
        })
    }

    /// Returns the keys of `secret`, if they are those that the TLS library has `used` so far: with
    /// others, the number of the next record would be one of theirs, and a nonce might be used
    /// twice.
    fn taken_over(
        secret: Secret,
        (next, used): (u64, ConnectionTrafficSecrets),
    ) -> Result<Self, RecordError> {
        let keys = Self::new(secret, next)?;
        match &used {
            ConnectionTrafficSecrets::Aes256Gcm { key, iv }
                if *key.as_ref() == keys.key[..] && *iv.as_ref() == keys.iv[..] =>
            {
                Ok(keys)
            }
            _ => Err(RecordError::Updated),
        }
    }

    /// Returns the keys that follow (RFC 8446, section 7.2).
    fn next_keys(&self) -> Result<Self, Unspecified> {
        Self::new(expand_secret(&self.secret, "traffic upd")?, 0)
    }

    /// Returns the key with its tables, 600 bytes, which are made anew in less time than a record
    /// takes.
    fn cipher_key(&self) -> Result<LessSafeKey, Unspecified> {
        UnboundKey::new(&AES_256_GCM, &*self.key).map(LessSafeKey::new)
    }

    /// Returns the nonce of the next record (RFC 8446, section 5.3); fails if there are no more.
    fn next_nonce(&mut self) -> Result<Nonce, Unspecified> {
        let mut nonce = *self.iv;
        for (byte, number) in nonce.iter_mut().rev().zip(self.next.to_le_bytes()) {
            *byte ^= number;
        }
        self.next = self.next.checked_add(1).ok_or(Unspecified)?;
        Ok(Nonce::assume_unique_for_key(nonce))
    }

    fn seal_record(
        &mut self,
        key: &LessSafeKey,
        kind: u8,
        content: &[u8],
        into: &mut Vec<u8>,
    ) -> Result<(), Unspecified> {
        let [high, low] = ((content.len() + 1 + TAG) as u16).to_be_bytes();
        let header = [DATA, 3, 3, high, low];
        let begin = into.len() + HEADER;
        into.extend_from_slice(&header);
        into.extend_from_slice(content);
        into.push(kind);
        let tag = key.seal_in_place_separate_tag(
            self.next_nonce()?,
            Aad::from(header),
            &mut into[begin..],
        )?;
        into.extend_from_slice(tag.as_ref());
        Ok(())
    }

    /// Opens one record in its place. Returns the type of its content, and the length, which begins
    /// behind the header.
    fn open_record(
        &mut self,
        key: &LessSafeKey,
        record: &mut [u8],
    ) -> Result<(u8, usize), RecordError> {
        let (header, body) = record
            .split_first_chunk_mut::<HEADER>()
            .ok_or(RecordError::Content)?;
        let content = key.open_in_place(self.next_nonce()?, Aad::from(*header), body)?;
        if content.len() > MAX_CONTENT + 1 {
            return Err(RecordError::Content);
        }
        // Behind the type there may be zeros.
        let length = content
            .iter()
            .rposition(|byte| *byte != 0)
            .ok_or(RecordError::Content)?;
        Ok((content[length], length))
    }
}

/// Returns bytes of a secret for a purpose (HKDF-Expand-Label of RFC 8446, section 7.1, with an
/// empty context).
fn expand_secret<const N: usize>(
    secret: &Secret,
    label: &str,
) -> Result<Zeroizing<[u8; N]>, Unspecified> {
    let length = (N as u16).to_be_bytes();
    let prefix = [length[0], length[1], PREFIX.len() as u8 + label.len() as u8];
    let info = [&prefix[..], PREFIX, label.as_bytes(), &[0]];
    let mut bytes = Zeroizing::new([0; N]);
    Prk::new_less_safe(HKDF_SHA384, &**secret)
        .expand(&info, KeyLength(N))?
        .fill(&mut *bytes)?;
    Ok(bytes)
}

const PREFIX: &[u8] = b"tls13 ";

struct KeyLength(usize);

impl KeyType for KeyLength {
    fn len(&self) -> usize {
        self.0
    }
}

/// The secrets of a connection, as its handshake states them: that of the client, and that of the
/// server.
#[derive(Default)]
pub(crate) struct TrafficSecrets(Mutex<[Option<Secret>; 2]>);

const LABELS: [&str; 2] = ["CLIENT_TRAFFIC_SECRET_0", "SERVER_TRAFFIC_SECRET_0"];

impl TrafficSecrets {
    /// Returns both secrets, once.
    fn take_secrets(&self) -> Option<[Secret; 2]> {
        let [client, server] = take(&mut *lock(&self.0));
        Some([client?, server?])
    }
}

impl KeyLog for TrafficSecrets {
    fn log(&self, label: &str, _: &[u8], secret: &[u8]) {
        if let Some(index) = LABELS.iter().position(|known| *known == label)
            && let Ok(secret) = <[u8; 48]>::try_from(secret)
        {
            lock(&self.0)[index] = Some(Zeroizing::new(secret));
        }
    }

    fn will_log(&self, label: &str) -> bool {
        LABELS.contains(&label)
    }
}

/// Returns the configuration of a listener whose handshake states its `secrets`, so that its
/// records can be taken over.
pub(crate) fn server_that_states(
    config: &ServerConfig,
    secrets: &Arc<TrafficSecrets>,
) -> Arc<ServerConfig> {
    let mut config = ServerConfig::clone(config);
    config.key_log = Arc::<TrafficSecrets>::clone(secrets);
    config.enable_secret_extraction = true;
    Arc::new(config)
}

/// Returns the configuration of a caller whose handshake states its `secrets`.
pub(crate) fn client_that_states(
    config: &ClientConfig,
    secrets: &Arc<TrafficSecrets>,
) -> Arc<ClientConfig> {
    let mut config = ClientConfig::clone(config);
    config.key_log = Arc::<TrafficSecrets>::clone(secrets);
    config.enable_secret_extraction = true;
    Arc::new(config)
}

impl fmt::Debug for TrafficSecrets {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Secrets(…)")
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use proptest::prelude::*;

    fn ends() -> [TlsRecords; 2] {
        TlsRecords::known_ends()
    }

    pub(crate) fn receive(records: &mut TlsRecords, bytes: &[u8]) -> Result<Vec<u8>, RecordError> {
        let mut buffer = [records.partial_record(), bytes].concat();
        let opened = records.open_records(&mut buffer)?;
        buffer.truncate(opened);
        Ok(buffer)
    }

    pub(crate) fn sealed(records: &mut TlsRecords, kind: u8, content: &[u8]) -> Vec<u8> {
        let mut bytes = Vec::new();
        records.seal_any(kind, content, &mut bytes).unwrap();
        bytes
    }

    #[test]
    fn what_was_changed_or_comes_again_is_refused() {
        let [mut near, mut far] = ends();
        let record = sealed(&mut near, DATA, b"payload");
        for (index, bit) in (0..record.len()).flat_map(|index| (0..8).map(move |bit| (index, bit)))
        {
            let mut changed = record.clone();
            changed[index] ^= 1 << bit;
            let body = usize::from(u16::from_be_bytes([changed[3], changed[4]]));
            let expected = match index {
                0 => Err(RecordError::Header(changed[0], body)),
                3 | 4 if !(TAG + 1..=MAX_BODY).contains(&body) => {
                    Err(RecordError::Header(DATA, body))
                }
                // The record is longer now, and not complete.
                3 | 4 if HEADER + body > record.len() => Ok(Vec::new()),
                _ => Err(RecordError::Encrypted),
            };
            assert_eq!(
                receive(&mut ends()[1], &changed),
                expected,
                "byte {index}, bit {bit}"
            );
        }
        assert_eq!(receive(&mut far, &record).unwrap(), b"payload");
        assert_eq!(receive(&mut far, &record), Err(RecordError::Encrypted));
    }

    #[test]
    fn nothing_is_read_after_an_error() {
        for bad in [
            &[HANDSHAKE, 3, 3, 0, 40][..],
            &sealed(&mut ends()[0], HANDSHAKE, &[4, 0, 0, 1, 0]),
        ] {
            let [mut near, mut far] = ends();
            let error = receive(&mut far, bad).unwrap_err();
            // The record that would follow.
            far.receiving.next = near.sending.next;
            let record = sealed(&mut near, DATA, b"payload");
            assert_eq!(receive(&mut far, &record), Err(error));
        }
    }

    #[test]
    fn records_that_come_in_another_order_or_not_at_all_are_refused() {
        let [mut near, mut far] = ends();
        let records = [&b"first"[..], b"second"].map(|payload| sealed(&mut near, DATA, payload));
        assert_eq!(receive(&mut far, &records[1]), Err(RecordError::Encrypted));
    }

    #[test]
    fn no_number_of_a_record_comes_again() {
        let [mut near, mut far] = ends();
        (near.sending.next, far.receiving.next) = (u64::MAX, u64::MAX);
        assert_eq!(near.seal_end(&mut Vec::new()), Err(RecordError::Encrypted));
        assert_eq!(
            receive(&mut far, &sealed(&mut ends()[0], DATA, b"payload")),
            Err(RecordError::Encrypted)
        );
    }

    /// Receives `count` records of `content` in a row, each under the keys that it is due, and then
    /// a payload.
    fn flooded(kind: u8, content: &[u8], count: usize) -> Result<Vec<u8>, RecordError> {
        let [mut near, mut far] = ends();
        let mut bytes = Vec::new();
        for _ in 0..count {
            bytes.extend(sealed(&mut near, kind, content));
        }
        bytes.extend(sealed(&mut near, DATA, b"payload"));
        receive(&mut far, &bytes)
    }

    #[test]
    fn a_flood_of_records_without_payload_is_refused() {
        for (kind, content) in [
            (HANDSHAKE, &KEY_UPDATE[..]),
            (DATA, &[]),
            (ALERT, &[1, USER_CANCELED]),
        ] {
            assert_eq!(
                flooded(kind, content, MAX_IDLE).unwrap(),
                b"payload",
                "{kind}"
            );
            assert_eq!(
                flooded(kind, content, MAX_IDLE + 1),
                Err(RecordError::Idle),
                "{kind}"
            );
        }
    }

    #[test]
    fn payload_makes_up_for_records_without_any() {
        let [mut near, mut far] = ends();
        for _ in 0..3 * MAX_IDLE {
            let mut bytes = Vec::new();
            near.owes_update = true;
            near.seal_payload(&[5; MAX_CONTENT], &mut bytes).unwrap();
            assert_eq!(receive(&mut far, &bytes).unwrap().len(), MAX_CONTENT);
        }
        // A byte does not.
        let flood = (0..=2 * MAX_IDLE).try_for_each(|_| {
            let mut bytes = Vec::new();
            near.owes_update = true;
            near.seal_payload(&[5], &mut bytes).unwrap();
            receive(&mut far, &bytes).map(|_| ())
        });
        assert_eq!(flood, Err(RecordError::Idle));
    }

    #[test]
    fn content_has_the_length_that_it_may_have_at_most() {
        for (padding, expected) in [(0, Ok(MAX_CONTENT)), (1, Err(RecordError::Content))] {
            let [mut near, mut far] = ends();
            let content = [vec![5; MAX_CONTENT], vec![DATA; usize::from(padding > 0)]].concat();
            let record = sealed(&mut near, if padding > 0 { 0 } else { DATA }, &content);
            assert_eq!(
                receive(&mut far, &record).map(|payload| payload.len()),
                expected,
                "{padding}"
            );
        }
        for (length, expected) in [
            (0, &[][..]),
            (1, &[18]),
            (MAX_CONTENT, &[16_401]),
            (16_385, &[16_401, 18]),
        ] {
            let mut bytes = Vec::new();
            ends()[0]
                .seal_payload(&vec![5; length], &mut bytes)
                .unwrap();
            assert_eq!(bodies(&bytes), expected, "{length}");
        }
    }

    /// Returns the lengths of the records that `bytes` consist of, without their headers.
    fn bodies(mut bytes: &[u8]) -> Vec<usize> {
        let mut lengths = Vec::new();
        while let Some(end) = end_of_record(bytes).unwrap() {
            lengths.push(end - HEADER);
            bytes = &bytes[end..];
        }
        assert!(bytes.is_empty());
        lengths
    }

    #[test]
    fn what_may_not_come_is_refused() {
        for (bytes, error) in [
            (vec![DATA, 3, 3, 0, 16], RecordError::Header(DATA, 16)),
            (
                vec![DATA, 3, 3, 0x41, 1],
                RecordError::Header(DATA, MAX_BODY + 1),
            ),
            (
                vec![HANDSHAKE, 3, 3, 0, 40],
                RecordError::Header(HANDSHAKE, 40),
            ),
        ] {
            assert_eq!(receive(&mut ends()[1], &bytes), Err(error));
        }
        for (kind, content, error) in [
            (0, &[0_u8; 9][..], RecordError::Content),
            (20, &[1], RecordError::Content),
            (HANDSHAKE, &[24, 0, 0, 1, 2], RecordError::Content),
            (HANDSHAKE, &[4, 0, 0, 1, 0], RecordError::Content),
            // A key update that is not the last message of its record, two in one, and a part of
            // one.
            (HANDSHAKE, &[24, 0, 0, 1, 0, 4], RecordError::Content),
            (
                HANDSHAKE,
                &[24, 0, 0, 1, 0, 24, 0, 0, 1, 0],
                RecordError::Content,
            ),
            (HANDSHAKE, &[24, 0, 0, 1], RecordError::Content),
            // A request for a certificate of the client.
            (HANDSHAKE, &[13, 0, 0, 3, 0, 0, 0], RecordError::Content),
            (HANDSHAKE, &[], RecordError::Content),
            (ALERT, &[], RecordError::Content),
            (ALERT, &[1, 0, 1, 0], RecordError::Content),
            (24, &[1], RecordError::Content),
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
        assert!(far.has_ended() && far.partial_record().is_empty());
        assert_eq!(receive(&mut far, b"more").unwrap(), b"");
    }

    #[test]
    fn keys_are_updated_before_they_have_sealed_too_much() {
        let [mut near, mut far] = ends();
        (near.sending.next, far.receiving.next) = (MAX_RECORDS - 1, MAX_RECORDS - 1);
        let payload = vec![5; 3 * MAX_CONTENT];
        let mut bytes = Vec::new();
        near.seal_payload(&payload, &mut bytes).unwrap();
        assert_eq!(receive(&mut far, &bytes).unwrap(), payload);
        assert_eq!((near.sending.next, far.receiving.next), (2, 2));
        assert!(!far.owes_update);
    }

    #[test]
    fn an_end_that_is_asked_for_new_keys_makes_them_before_it_sends_payload() {
        let [mut near, mut far] = ends();
        let asks = sealed(&mut near, HANDSHAKE, &[24, 0, 0, 1, 1]);
        assert_eq!(receive(&mut far, &asks).unwrap(), b"");
        let mut answer = Vec::new();
        far.seal_payload(b"payload", &mut answer).unwrap();
        assert_eq!(receive(&mut near, &answer).unwrap(), b"payload");
        assert_eq!(
            (far.receiving.next, far.sending.next, near.receiving.next),
            (0, 1, 1)
        );
    }

    proptest! {
        /// In whatever parts records arrive, their payload is that of the sender, and nothing is
        /// held between them.
        #[test]
        fn records_arrive_in_any_parts(
            payloads in prop::collection::vec((prop::collection::vec(any::<u8>(), 0..400), any::<bool>()), 1..6),
            large in 1_usize..40_000,
            part in 1_usize..900,
        ) {
            let [mut near, mut far] = ends();
            let (mut sent, mut wire) = (vec![9; large], Vec::new());
            near.seal_payload(&sent, &mut wire).unwrap();
            for (payload, updates) in &payloads {
                near.owes_update |= updates;
                near.seal_payload(payload, &mut wire).unwrap();
                sent.extend(payload);
            }
            let mut received = Vec::new();
            for bytes in wire.chunks(part) {
                received.extend(receive(&mut far, bytes).unwrap());
            }
            prop_assert!(received == sent);
            prop_assert_eq!((far.partial_record().len(), far.held.capacity()), (0, 0));
        }
    }
}
