//! HTTP/2 (RFC 9113) without sockets: bytes of a connection ↔ requests and what flows by them. The
//! connection of the library reads and writes a pair of buffers, so that whoever has the socket
//! drives it: the server's loop between loads, and the thread of a stream under load.

mod client;
mod pipe;
mod server;

use std::task::{Context, Waker};

use bytes::Bytes;
use h2::SendStream;

pub(crate) use client::{Http2Client, Http2Load, SharedProbes, SmallObject};
pub(crate) use server::{Http2Reply, Http2Server};

/// Bytes that each stream, and all of them together, may send to this end before it has read any:
/// less would hold long paths back.
const WINDOW: u32 = 16 << 20;

/// Bytes of a frame that this end takes at most.
const MAX_FRAME: u32 = 64 << 10;

/// Bytes of the load that wait inside the library at most, for each stream.
pub(crate) const MAX_QUEUED: usize = 64 << 10;

/// Hands data to the library, `room` bytes at most, as much as the windows of the other end permit.
/// The stream ends with the last of the bytes that are `left`, if they are counted. Returns how much
/// was handed over; `None` if the other end has reset the stream.
fn queue_data(
    stream: &mut SendStream<Bytes>,
    data: &Bytes,
    room: usize,
    left: Option<u64>,
) -> Option<u64> {
    let left = left.unwrap_or(u64::MAX);
    let most = room
        .min(data.len())
        .min(usize::try_from(left).unwrap_or(room));
    stream.reserve_capacity(most);
    let count = stream.capacity().min(most);
    if count == 0 {
        return stream.poll_reset(&mut no_wake()).is_pending().then_some(0);
    }
    let ends = count as u64 == left;
    let handed = stream.send_data(data.slice(..count), ends);
    handed.ok().map(|()| count as u64)
}

/// Returns the context of a poll of which nobody is woken: whoever has the socket polls again.
fn no_wake() -> Context<'static> {
    Context::from_waker(Waker::noop())
}
