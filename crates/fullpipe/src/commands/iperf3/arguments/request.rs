//! The request and the login that a client's flags make, and the users that a server knows.

use super::{ClientFlags, ServerFlags};
use crate::commands::load::data_direction;
use crate::commands::login::read_login;
use crate::commands::prelude::*;
use crate::values::{read_secret_file, rsa_public_key};
use fullpipe_control::{ClientLogin, LoginAuthenticator, RsaPadding, RsaPrivateKey};
use fullpipe_iperf::UserList;
use fullpipe_record::Buffer;

/// Default rate of a UDP sender: a binary million, though `-b 1M` is a decimal one.
const DEFAULT_UDP_RATE: BitRate = BitRate::from_bps(1_048_576);

/// Payload of a datagram where blocks are counted before the path has been seen.
const COMMON_DATAGRAM: ByteCount = ByteCount::new(1460);

/// The longest test, in seconds, and the longest time to be left out.
const MAX_SECONDS: i64 = 86_400;

const MAX_OMIT: i64 = 600;

/// Largest number of streams.
const MAX_STREAMS: i64 = 128;

/// Default for the largest difference of a user's clock.
const USUAL_SKEW: Span = Span::from_secs(10);

impl ServerFlags {
    pub(super) fn authenticator(
        &self,
        padding: RsaPadding,
    ) -> Result<Option<LoginAuthenticator>, String> {
        const INCOMPLETE: &str =
            "you must specify a path to a valid RSA private key and a user credential file";
        let skew = match self.time_skew_threshold.map(u64::try_from) {
            None => USUAL_SKEW,
            Some(Ok(seconds @ 1..)) => Span::from_secs(seconds),
            Some(_) => return Err("skew threshold must be a positive number".to_owned()),
        };
        let (key, file) = match (&self.rsa_private_key_path, &self.authorized_users_path) {
            (None, None) => return Ok(None),
            (Some(key), Some(file)) => (key, file),
            _ => return Err(INCOMPLETE.to_owned()),
        };
        // iperf3 does not ask who else may read them.
        let read = read_secret_file(key, RsaPrivateKey::from_pem)
            .and_then(|key| Ok((key, read_secret_file(file, UserList::from_file_content)?)));
        let (key, users) = read.map_err(|why| format!("{INCOMPLETE} ({why})"))?;
        Ok(Some(LoginAuthenticator::new(users, key, padding, skew)))
    }
}

impl ClientFlags {
    pub(super) fn login(&self, padding: RsaPadding) -> Result<Option<ClientLogin>, String> {
        const INCOMPLETE: &str =
            "you must specify a username, password, and path to a valid RSA public key";
        let (user, path) = match (&self.username, &self.rsa_public_key_path) {
            (None, None) => return Ok(None),
            (Some(user), Some(path)) => (user, path),
            _ => return Err(INCOMPLETE.to_owned()),
        };
        let made = rsa_public_key(path)
            .and_then(|key| read_login(user, &key, padding).map_err(|failure| failure.message));
        made.map(Some)
            .map_err(|why| format!("{INCOMPLETE} ({why})"))
    }

    pub(super) fn to_request(
        &self,
        interval: Span,
        far_processor: Option<usize>,
    ) -> Result<Request, String> {
        let transport = if self.udp {
            Transport::Udp
        } else {
            Transport::Tcp
        };
        self.check_conflicts()?;
        let block = self.block_size(transport)?;
        let (rate, burst) = match self.bitrate {
            Some((rate, burst)) => (Some(rate), burst),
            None => (self.udp.then_some(DEFAULT_UDP_RATE), None),
        };
        let paced = self.fq_rate.filter(|_| !self.no_fq_socket_pacing);
        Ok(Request {
            transport,
            direction: data_direction(self.reverse, self.bidir),
            streams: self.stream_count()?,
            duration: Span::from_secs(self.test_duration()?),
            omit: Span::from_secs(self.omitted_seconds()?),
            bytes: self.byte_budget(block),
            block,
            rate: rate.filter(|rate| *rate > BitRate::ZERO),
            burst,
            catches_up_at_once: true,
            pacing: paced.filter(|rate| *rate > BitRate::ZERO),
            buffer: self.socket_buffer()?,
            congestion: self.congestion.clone(),
            mss: self.segment_size()?,
            no_delay: self.no_delay,
            tos: self.tos.or(self.dscp).unwrap_or(0),
            multipath: self.mptcp,
            sendfile: self.zerocopy,
            far_processor: far_processor.and_then(|number| u16::try_from(number).ok()),
            discard: self.skip_rx_copy,
            offload: self.gsro,
            wide_counters: self.udp_counters_64bit,
            dont_fragment: self.dont_fragment,
            interval,
            title: self.title.clone(),
            extra_data: self.extra_data.clone(),
            ..Request::default()
        })
    }

    fn check_conflicts(&self) -> Result<(), String> {
        if self.reverse && self.bidir {
            return Err("cannot be both reverse and bidirectional".to_owned());
        }
        let ends = [
            self.time.is_some(),
            self.bytes.is_some(),
            self.blockcount.is_some(),
        ];
        if ends.into_iter().filter(|given| *given).count() > 1 {
            return Err("only one test end condition (-t, -n, -k) may be specified".to_owned());
        }
        Ok(())
    }

    fn stream_count(&self) -> Result<u16, String> {
        let streams = u16::try_from(self.parallel.unwrap_or(1))
            .ok()
            .filter(|streams| (1..=MAX_STREAMS).contains(&(*streams).into()));
        streams.ok_or_else(|| {
            format!("number of parallel streams too large (maximum = {MAX_STREAMS})")
        })
    }

    fn test_duration(&self) -> Result<u64, String> {
        match self.time {
            None => Ok(10),
            // iperf3 goes on for ever; a day is as long as a test may be.
            Some(0) => Ok(MAX_SECONDS.unsigned_abs()),
            Some(time) if (1..=MAX_SECONDS).contains(&time) => Ok(time.unsigned_abs()),
            Some(_) => Err(format!(
                "test duration too long (maximum = {MAX_SECONDS} seconds)"
            )),
        }
    }

    fn omitted_seconds(&self) -> Result<u64, String> {
        let omit = self.omit.unwrap_or(0);
        let is_possible = (0..=MAX_OMIT).contains(&omit);
        if is_possible {
            Ok(omit.unsigned_abs())
        } else {
            Err("bogus value for --omit".to_owned())
        }
    }

    /// Zero is whatever a packet holds.
    fn block_size(&self, transport: Transport) -> Result<ByteCount, String> {
        const MAX_BLOCK: u64 = 1_048_576;
        const DATAGRAMS: std::ops::RangeInclusive<u64> = 16..=65_507;
        match (
            transport,
            self.length.map(ByteCount::get).filter(|length| *length > 0),
        ) {
            (Transport::Tcp, None) => Ok(Request::default().block),
            (Transport::Udp, None) if self.blockcount.is_some() => Ok(COMMON_DATAGRAM),
            (Transport::Udp, None) => Ok(ByteCount::ZERO),
            (Transport::Tcp, Some(length)) if length > MAX_BLOCK => Err(format!(
                "block size too large (maximum = {MAX_BLOCK} bytes)"
            )),
            (Transport::Udp, Some(length)) if !DATAGRAMS.contains(&length) => {
                let (least, most) = (DATAGRAMS.start(), DATAGRAMS.end());
                Err(format!(
                    "block size invalid (minimum = {least} bytes, maximum = {most} bytes)"
                ))
            }
            (_, Some(length)) => Ok(ByteCount::new(length)),
        }
    }

    fn byte_budget(&self, block: ByteCount) -> Option<ByteCount> {
        let blocks = self
            .blockcount
            .map(|blocks| ByteCount::new(block.get().saturating_mul(blocks)));
        self.bytes
            .or(blocks)
            .filter(|budget| *budget > ByteCount::ZERO)
    }

    fn socket_buffer(&self) -> Result<Buffer, String> {
        const MAX_WINDOW: ByteCount = ByteCount::from_mib(512);
        match self.window.filter(|window| *window > ByteCount::ZERO) {
            None => Ok(Buffer::Automatic),
            Some(window) if window > MAX_WINDOW => Err(format!(
                "socket buffer size too large (maximum = {} bytes)",
                MAX_WINDOW.get()
            )),
            Some(window) => Ok(Buffer::Request(window)),
        }
    }

    fn segment_size(&self) -> Result<Option<ByteCount>, String> {
        const MAX_MSS: i64 = 9 * 1024;
        match self.set_mss {
            None | Some(0) => Ok(None),
            Some(mss) if (1..=MAX_MSS).contains(&mss) => {
                Ok(Some(ByteCount::new(mss.unsigned_abs())))
            }
            Some(_) => Err(format!("TCP MSS too large (maximum = {MAX_MSS} bytes)")),
        }
    }
}
