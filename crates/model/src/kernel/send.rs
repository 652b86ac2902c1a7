use fullpipe_record::{HostSettings, Segmentation, Writer};
use fullpipe_units::{ByteCount, Ratio};

use super::stored_sndbuf;
use crate::Likely;

/// The send buffer of a socket when it has grown: bytes written and not yet acknowledged.
///
/// Without a request (`tcp_sndbuf_expand`) it follows the congestion window up to `tcp_wmem[2]`; a `SO_SNDBUF` request
/// fixes it. How much of it is payload, [`payload_share`] tells.
pub fn send_buffer(settings: &HostSettings, request: Option<ByteCount>) -> ByteCount {
    request.map_or(settings.tcp_wmem.max, |request| stored_sndbuf(settings, request))
}

/// Payload in a send buffer: nearly all of it where TCP builds trains (0.99 to 1.00 measured on Linux 6.18), and 1448 of
/// every 2280 bytes where each segment is held on its own (measured at MTU 1500; assumed for others).
pub fn payload_share(segmentation: Segmentation) -> Ratio {
    match segmentation {
        Segmentation::Trains => Ratio::ONE,
        Segmentation::Exact => Ratio::of(1448.0, 2280.0),
    }
}

/// How full a writer keeps its send buffer, on average.
///
/// The kernel wakes a sleeping writer when a third of the buffer is free (`sk_stream_write_space`). Measured on Linux
/// 6.18 with CUBIC at 1 Gbit/s, 50 to 200 ms and buffers of 1 to 8 MiB: 0.70 to 0.87 asleep (the middle is an estimate),
/// 0.97 to 0.98 with a retry each millisecond, which is given the three percent of any rule either way.
pub fn writer_fill(writer: Writer) -> Likely {
    match writer {
        Writer::Retrying => Likely::new(0.945, 0.975, 1.0),
        Writer::Blocking => Likely::new(0.70, 0.78, 0.87),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{fixture, window};
    use fullpipe_units::Span;

    #[test]
    fn by_default_four_mebibytes_end_at_a_third_of_a_gigabit() {
        let buffer = send_buffer(&fixture::settings("6.18.44"), None);
        for (rtt_ms, rate) in [(100, "335.5 Mbit/s"), (200, "167.8 Mbit/s")] {
            assert_eq!(window::rate(buffer, Span::from_millis(rtt_ms)).to_string(), rate);
        }
    }

    #[test]
    fn a_request_is_doubled_and_bounded() {
        let settings = fixture::settings("6.18.44");
        assert_eq!(send_buffer(&settings, Some(ByteCount::new(50_000))).get(), 100_000);
        assert_eq!(send_buffer(&settings, Some(ByteCount::from_mib(64))), ByteCount::from_mib(8));
    }

    #[test]
    fn the_sleeping_writer_that_was_measured_is_within_bounds() {
        // iperf3 reached 283 Mbit/s where the buffer allows 335.5.
        let fill = writer_fill(Writer::Blocking);
        assert!(fill.low.get() < 283.0 / 335.5 && 283.0 / 335.5 < fill.high.get());
    }
}
