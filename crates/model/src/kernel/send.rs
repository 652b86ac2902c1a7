use fullpipe_record::{Segmentation, Writer};

use super::stored_sndbuf;
use crate::loss::CongestionControl;
use crate::prelude::*;
use crate::{LikelyFactor, window};

/// The send buffer of a socket when it has grown: bytes written and not yet acknowledged.
///
/// Without a request (`tcp_sndbuf_expand`) it follows the congestion window up to `tcp_wmem[2]`; a
/// `SO_SNDBUF` request fixes it. [`mean_fill`] gives the share that is payload.
pub fn send_buffer(settings: &HostSettings, request: Option<ByteCount>) -> ByteCount {
    request.map_or(settings.tcp_wmem.max, |request| {
        stored_sndbuf(settings, request)
    })
}

/// The payload in a send buffer ÷ the buffer, on average over `rtt`, as a writer keeps it.
///
/// Each packet costs 832 bytes in addition to its payload (measured: 1448 of every 2280 bytes where
/// segments are held one by one). A writer that checks its buffer every 64th of the round trip, or
/// every millisecond, leaves what is acknowledged in between, and its thread wakes late: together
/// as if the round trip were a twelfth longer, at most 1.5 ms. Where any room is left it puts in a
/// whole chunk, so that on average half a chunk is more than the buffer, whose limit the kernel
/// looks at only where another packet begins. Measured on Linux 6.18 with CUBIC, Reno and BBR from
/// 2 to 680 Mbit/s, over 10 to 200 ms and buffers from 50 KB to 8.7 MB: 0.79 to 0.99, this within
/// four percent, and five where chunks are cut, which are given either way. Where they are cut, a
/// flow of CUBIC or Reno whose window has grown in spite of the buffer sometimes sends them whole:
/// up to 1.08 then, which the upper end allows for. A buffer of few chunks holds a whole number of
/// them: another is put in as long as those that were cut and sent leave room (measured over 40
/// Mbit/s × 34 ms: 15, 29, 31, 43, 46 and 61 KB in 17, 26, 34, 43, 51 and 68 KB, this within five
/// percent).
///
/// A sleeping writer is woken only when a third of the buffer is free (`sk_stream_write_space`),
/// and how much is depends on how what was acknowledged comes in: 0.70 to 0.87 at 1 Gbit/s, 50 to
/// 200 ms and 1 to 8 MiB; 0.66 to 0.74 of what segments held one by one leave of small buffers. The
/// middle is an estimate. With buffers so small that the train is not of 64 KiB, a write of more
/// than one train overruns the buffer up to the congestion window: the kernel looks at the limit
/// only where it begins another packet, and cuts the last one before it is full. Then a sleeping
/// writer does better than this.
pub fn mean_fill(
    writer: Writer,
    segmentation: Segmentation,
    mss: ByteCount,
    buffer: ByteCount,
    rtt: Span,
) -> LikelyFactor {
    let rate = window::rate_of_window(buffer, rtt);
    let (packet, whole, put_in) = match segmentation {
        Segmentation::Trains => (
            train_size(cut_chunk(mss, rate), mss, rate),
            train_size(write_chunk(mss), mss, rate),
            write_chunk(mss),
        ),
        Segmentation::Exact => (mss, mss, mss),
    };
    let memory = memory_share(packet);
    match writer {
        Writer::Retrying => {
            let late =
                Ratio::from_quotient(CHECK_DELAY.min(rtt / 12).as_secs_f64(), rtt.as_secs_f64())
                    .get();
            let overrun = 1.0
                + 0.5 * Ratio::from_quotient(put_in.as_f64(), buffer.max(put_in).as_f64()).get();
            let smooth = overrun / (1.0 + memory + late);
            let share = Ratio::from_quotient(put_in.as_f64(), buffer.as_f64()).get();
            let chunks = (1.0 / share.max(f64::MIN_POSITIVE) / (1.0 + memory)).ceil();
            let of = if chunks <= FEW_CHUNKS {
                chunks * share / (1.0 + late)
            } else {
                smooth
            };
            let off = if packet < whole { 0.05 } else { 0.04 };
            let most = ((1.0 + off) * of.max(smooth)).max(overrun / (1.0 + memory_share(whole)));
            LikelyFactor::new((1.0 - off) * of.min(smooth), of, most)
        }
        Writer::Blocking => {
            let payload = 1.0 / (1.0 + memory);
            LikelyFactor::new(0.62 * payload, 0.76 * payload, 0.89 * payload)
        }
    }
}

/// Returns the length of a train: what is sent in a millisecond (`tcp_tso_autosize`), at least the
/// chunk that a writer puts in at once, and at most 64 KiB.
fn train_size(chunk: ByteCount, mss: ByteCount, rate: BitRate) -> ByteCount {
    rate.bytes_in(TRAIN_LASTS)
        .max(chunk)
        .min(LONG_TRAIN)
        .max(mss)
}

/// Returns the memory that a packet costs beside its payload, as a share of that.
fn memory_share(packet: ByteCount) -> f64 {
    PACKET_COSTS.as_f64() / packet.as_f64().max(1.0)
}

/// Returns the bytes that a program keeps in flight that asks whether its socket takes more, writes
/// at most `each`, and asks again; `None` where that is more than `buffer` takes at a time, so that
/// it is refused before it asks.
///
/// `poll` and `select` say so while a third of the buffer is free (`tcp_poll`,
/// `__sk_stream_is_writeable`): two thirds and `each` are the most. An acknowledgement frees a
/// train at once, of 64 KiB at most, so that half of one is missing from that on average. A writer
/// that is refused overruns the buffer by part of a packet, and is woken later than its last burst
/// is acknowledged, as [`mean_fill`] has it; one that asks in time never is, and has all of this.
/// Measured of rsync on Linux 6.18 with 4 MiB over 98 ms at MTU 9000: 2.73 to 2.76 MB, and 2.76 MB
/// here.
pub fn asked_in_flight(buffer: ByteCount, each: ByteCount) -> Option<ByteCount> {
    let woken_at = buffer.scale_by(2.0 / 3.0);
    let payload =
        1.0 / (1.0 + Ratio::from_quotient(PACKET_COSTS.as_f64(), LONG_TRAIN.as_f64()).get());
    let full = woken_at + each;
    (full <= buffer).then(|| {
        full.saturating_sub(LONG_TRAIN.scale_by(0.5))
            .scale_by(payload)
    })
}

/// Returns the rate of a program that asks whether its socket takes more and writes at most `each`,
/// as [`asked_in_flight`] has it, over a path of this round-trip time and this rate of its link.
///
/// The bytes that it writes at a time leave as a burst. The last of it is acknowledged later than
/// the first by its time on the link, and only then is there room for as much again.
pub fn asked_rate(
    buffer: ByteCount,
    each: ByteCount,
    rtt: Span,
    link: Option<BitRate>,
) -> Option<BitRate> {
    let burst = link
        .filter(|link| *link > BitRate::ZERO)
        .map_or(Span::ZERO, |link| link.time_for(each));
    Some(window::rate_of_window(
        asked_in_flight(buffer, each)?,
        rtt + burst,
    ))
}

/// Returns the bytes that a sender with enough data keeps in flight where the receiver allows
/// `window`, as often as each `rtt`: all of it, or only the whole segments in it.
///
/// A packet may be sent in part only if its first segment fits into the window whole
/// (`tcp_snd_wnd_test`, `tcp_mss_split_point`). So what is left of the window beyond whole packets
/// is filled if it is a segment or more.
pub fn filled_window(
    segmentation: Segmentation,
    control: CongestionControl,
    window: ByteCount,
    mss: ByteCount,
    rtt: Span,
) -> ByteCount {
    let whole = segments_in(window, mss);
    let packet = match segmentation {
        Segmentation::Trains => {
            segments_of_packet(control, window::rate_of_window(window, rtt), mss)
        }
        Segmentation::Exact => 1,
    };
    if whole > 0 && whole.is_multiple_of(packet) {
        SegCount::new(whole).of_size(mss)
    } else {
        window
    }
}

/// The segments of each packet of a flow of `rate` that nothing but a window or a buffer limits:
/// what its pace gives in a millisecond (`tcp_tso_autosize`), two at least, or one of a slow flow
/// under BBR (`bbr_min_tso_segs`).
fn segments_of_packet(control: CongestionControl, rate: BitRate, mss: ByteCount) -> u64 {
    let (pace, least) = match control {
        CongestionControl::Bbr if rate < BBR_SENDS_PAIRS_FROM => (rate, 1),
        CongestionControl::Bbr => (rate, 2),
        _ => (rate.scale_by(PACE_OF_RATE), 2),
    };
    segments_in(pace.bytes_in(TRAIN_LASTS), mss).max(least)
}

/// The sixteen kilobytes that a writer puts in at once, in whole segments.
fn write_chunk(mss: ByteCount) -> ByteCount {
    SegCount::new(segments_in(CHUNK, mss).max(1)).of_size(mss)
}

/// The part of a chunk that a packet in the buffer stands for, on average, in a flow of `rate`.
///
/// A slow flow cuts chunks when it sends them, into trains of what its pace gives in a millisecond,
/// two segments at least. Each costs as much memory as a whole one, which the buffer does not know
/// before; so the more is cut, the less the next round holds. Measured: as if a tenth were never
/// cut. Its pace is about 2.4 times what the whole buffer would give.
fn cut_chunk(mss: ByteCount, rate: BitRate) -> ByteCount {
    let train = segments_in(rate.scale_by(PACE_OF_RATE).bytes_in(TRAIN_LASTS), mss).max(2);
    let cuts = segments_in(CHUNK, mss).max(1).div_ceil(train);
    write_chunk(mss).scale_by(1.0 / (NEVER_CUT + (1.0 - NEVER_CUT) * cuts as f64))
}

fn segments_in(bytes: ByteCount, mss: ByteCount) -> u64 {
    bytes.get().checked_div(mss.get()).unwrap_or(0)
}

/// `sk_pacing_shift` of 10.
const TRAIN_LASTS: Span = Span::from_micros(1024);
const PACE_OF_RATE: f64 = 2.4;
/// `bbr_min_tso_rate`.
const BBR_SENDS_PAIRS_FROM: BitRate = BitRate::from_bps(1_200_000);
const NEVER_CUT: f64 = 0.1;
/// Chunks up to which a buffer holds a whole number of them, as the kernel does.
const FEW_CHUNKS: f64 = 4.0;
const CHUNK: ByteCount = ByteCount::from_kib(16);
const LONG_TRAIN: ByteCount = ByteCount::from_kib(64);
/// Headers and what the kernel keeps of a packet (`skb_shared_info`, `sk_buff`).
const PACKET_COSTS: ByteCount = ByteCount::new(832);
const CHECK_DELAY: Span = Span::from_micros(1500);

#[cfg(test)]
mod tests;
