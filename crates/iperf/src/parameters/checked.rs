//! The load that a client asks for, within the limits of newer iperf3 servers.

use fullpipe_record::{Buffer, Direction, Request, Transport};
use fullpipe_units::{BitRate, ByteCount, Span, without_control_characters};

use super::{
    MAX_DATAGRAM, TestParameters, USUAL_BLOCK, USUAL_DATAGRAM, ZERO_COPY, is_congestion_name,
    is_default, to_saturated_i64, whole_seconds,
};
use crate::{ErrorNumber, MAX_TEST, TestRefusal, udp};

/// An exbibyte takes a link of 100 Gbit/s three years.
const MAX_BYTES: i64 = 1 << 60;

impl TestParameters {
    /// The load that the client asks for, within the limits of newer iperf3 servers.
    ///
    /// A test that bytes limit, or nothing, gets the duration [`MAX_TEST`]: the client ends it.
    /// Control characters in the title, which is printed, are left out.
    ///
    /// # Errors
    ///
    /// Says which value is out of its range, or which kind of test this program does not run, with
    /// the number that iperf3 uses for it.
    pub fn to_request(&self) -> Result<Request, TestRefusal> {
        Ok(Request {
            transport: self.checked_transport()?,
            direction: match (self.bidirectional.0, self.reverse.0) {
                (true, _) => Direction::Both,
                (_, true) => Direction::Download,
                _ => Direction::Upload,
            },
            streams: checked_value(
                self.parallel.0.unwrap_or(1),
                1..=128,
                ErrorNumber::STREAMS,
                "parallel streams",
            )?,
            duration: self.checked_duration()?,
            omit: self.checked_omit()?,
            bytes: self.checked_bytes()?,
            block: self.checked_block()?,
            rate: checked_rate(self.bandwidth.or_zero(), "bit/s")?,
            burst: if_any(checked_value(
                self.burst.or_zero(),
                0..=1000,
                ErrorNumber::BURST,
                "blocks in a burst",
            )?),
            pacing: checked_rate(self.fqrate.or_zero(), "bit/s of pacing")?,
            buffer: self.checked_buffer()?,
            congestion: self.checked_congestion()?,
            mss: if_any(checked_value(
                self.mss.or_zero(),
                0..=32_767,
                ErrorNumber::MSS,
                "bytes of segment",
            )?)
            .map(ByteCount::new),
            no_delay: self.nodelay.0,
            tos: checked_value(
                self.tos.or_zero(),
                0..=255,
                ErrorNumber::TOS,
                "as type of service",
            )?,
            multipath: self.mptcp.0,
            sendfile: self.zerocopy.is_set() && self.zerocopy.or_zero() != ZERO_COPY,
            zero_copy: self.zerocopy.or_zero() == ZERO_COPY,
            discard: self.skip_rx_copy.is_set(),
            offload: self.gso.is_set() || self.gro.is_set(),
            wide_counters: self.udp_counters_64bit.is_set(),
            dont_fragment: self.dont_fragment.is_set(),
            // What is no processor is a wish like that for one that is not there.
            processor: self
                .server_affinity
                .0
                .and_then(|number| u16::try_from(number).ok()),
            title: self.title.0.as_deref().map(without_control_characters),
            extra_data: self.extra_data.0.clone(),
            ..self.beyond_iperf3()
        })
    }

    /// Returns the client's request for the fields that iperf3 has no key for, without those of the
    /// client's own end.
    fn beyond_iperf3(&self) -> Request {
        let usual = Request::default();
        Request {
            far_processor: None,
            near_device: false,
            writer: usual.writer,
            interval: usual.interval,
            ..self.asked_beyond().cloned().unwrap_or(usual)
        }
    }

    /// Returns the time to omit: exactly what a fullpipe client asked for, of which its key has the
    /// whole seconds.
    fn checked_omit(&self) -> Result<Span, TestRefusal> {
        let whole = Span::from_secs(checked_value(
            self.omit.or_zero(),
            0..=600,
            ErrorNumber::OMIT,
            "seconds to omit",
        )?);
        let exact = self.asked_beyond().map(|request| request.omit);
        Ok(exact
            .filter(|exact| whole_seconds(*exact) == self.omit.or_zero())
            .unwrap_or(whole))
    }

    /// The request of a fullpipe client.
    fn asked_beyond(&self) -> Option<&Request> {
        self.x_fullpipe.as_ref()?.request.as_deref()
    }

    fn block(&self) -> i64 {
        let usual = if self.udp.0 {
            USUAL_DATAGRAM
        } else {
            USUAL_BLOCK
        };
        self.len.0.unwrap_or(usual)
    }

    fn checked_transport(&self) -> Result<Transport, TestRefusal> {
        match (self.udp.0, self.sctp.0) {
            (true, _) => Ok(Transport::Udp),
            (_, false) => Ok(Transport::Tcp),
            _ => Err(TestRefusal::new(
                ErrorNumber::NO_SCTP,
                "SCTP tests are not offered",
            )),
        }
    }

    fn checked_duration(&self) -> Result<Span, TestRefusal> {
        let seconds = checked_value(
            self.time.or_zero(),
            0..=whole_seconds(MAX_TEST),
            ErrorNumber::DURATION,
            "seconds of test",
        )?;
        let limited_otherwise = self.num.is_set() || self.blockcount.is_set();
        Ok(if seconds == 0 || limited_otherwise {
            MAX_TEST
        } else {
            Span::from_secs(seconds)
        })
    }

    fn checked_bytes(&self) -> Result<Option<ByteCount>, TestRefusal> {
        let bytes = if self.num.is_set() {
            self.num.or_zero()
        } else {
            self.blockcount.or_zero().saturating_mul(self.block())
        };
        let bytes = checked_value(
            bytes,
            0..=MAX_BYTES,
            ErrorNumber::END_CONDITIONS,
            "bytes of test",
        )?;
        Ok(if_any(bytes).map(ByteCount::new))
    }

    fn checked_block(&self) -> Result<ByteCount, TestRefusal> {
        let block = if self.udp.0 {
            let range = to_saturated_i64(udp::MIN_PAYLOAD as u64)..=MAX_DATAGRAM;
            let what = "bytes of one datagram";
            checked_value(self.block(), range, ErrorNumber::UDP_BLOCK_SIZE, what)
        } else {
            let what = "bytes of one block";
            checked_value(self.block(), 1..=1024 * 1024, ErrorNumber::BLOCK_SIZE, what)
        };
        block.map(ByteCount::new)
    }

    fn checked_buffer(&self) -> Result<Buffer, TestRefusal> {
        let buffer = checked_value(
            self.window.or_zero(),
            0..=512 * 1024 * 1024,
            ErrorNumber::BUFFER_SIZE,
            "bytes of socket buffer",
        )?;
        Ok(if buffer == 0 {
            Buffer::Automatic
        } else {
            Buffer::Request(ByteCount::new(buffer))
        })
    }

    /// A name goes into a socket option, records and error texts, so it must look like one.
    fn checked_congestion(&self) -> Result<Option<String>, TestRefusal> {
        match self.congestion.0.as_deref() {
            None | Some("") => Ok(None),
            Some(name) if is_congestion_name(name) => Ok(Some(name.to_owned())),
            Some(_) => Err(TestRefusal::new(
                ErrorNumber::CONGESTION,
                "the name of the congestion control is not one",
            )),
        }
    }
}

fn checked_rate(bits_per_second: i64, what: &str) -> Result<Option<BitRate>, TestRefusal> {
    let rate = checked_value(bits_per_second, 0..=i64::MAX, ErrorNumber::TOTAL_RATE, what)?;
    Ok(if_any(rate).map(BitRate::from_bps))
}

/// Zero on the wire is what was not asked for.
fn if_any<T: Default + PartialEq>(value: T) -> Option<T> {
    Some(value).filter(|value| !is_default(value))
}

/// Returns `value` if it is in `range`, which `N` must hold.
fn checked_value<N: TryFrom<i64>>(
    value: i64,
    range: std::ops::RangeInclusive<i64>,
    number: ErrorNumber,
    what: &str,
) -> Result<N, TestRefusal> {
    let fitting = Some(value)
        .filter(|value| range.contains(value))
        .and_then(|value| N::try_from(value).ok());
    fitting.ok_or_else(|| TestRefusal {
        number,
        why: format!(
            "{value} {what} asked for; {} to {} are possible",
            range.start(),
            range.end()
        ),
    })
}
