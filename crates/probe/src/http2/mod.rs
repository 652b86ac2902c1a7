//! HTTP/2 (RFC 9113) without sockets: bytes of a connection ↔ requests and what flows by them. The
//! connection of the library reads and writes a pair of buffers, so that whoever has the socket
//! drives it: the server's loop between loads, and the thread of a stream under load.

mod client;
mod pipe;
mod server;

use std::task::{Context, Poll, Waker, ready};

use bytes::Bytes;
use h2::{RecvStream, SendStream};

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

/// Passes what has come of a body to `take`, until that returns false. Ready with true at the end of
/// the body, and with false if it was reset, or nothing more is taken.
fn read_body(body: &mut RecvStream, mut take: impl FnMut(&[u8]) -> bool) -> Poll<bool> {
    while let Some(came) = ready!(body.poll_data(&mut no_wake())) {
        let Ok(bytes) = came else {
            return Poll::Ready(false);
        };
        let _ = body.flow_control().release_capacity(bytes.len());
        if !take(&bytes) {
            return Poll::Ready(false);
        }
    }
    Poll::Ready(true)
}

/// Returns the context of a poll of which nobody is woken: whoever has the socket polls again.
fn no_wake() -> Context<'static> {
    Context::from_waker(Waker::noop())
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::time::{Duration, Instant};

    use fullpipe_http::{Answer, RequestHead};
    use fullpipe_units::Span;

    use super::*;

    /// Passes what each end has to send to the other one, in pieces of so many bytes, until the load
    /// has moved a megabyte and ten probes were answered. Returns what the receiver counted.
    fn exchange(server: &mut Http2Server, client: &mut Http2Client, piece: usize) -> u64 {
        let (mut output, mut came, mut counted) = (Vec::new(), 0, 0);
        let deadline = Instant::now() + Duration::from_mins(1);
        while counted < 1_000_000 && Instant::now() < deadline {
            client.push_output(16 << 10, &mut output);
            for part in output.chunks(piece) {
                counted += server.take_input(part).unwrap();
                server.permit_loads("name");
            }
            server.push_output(Span::from_millis(came), 16 << 10, &mut output);
            for part in output.chunks(piece) {
                counted += client.take_input(part).unwrap();
            }
            came += 1;
        }
        counted
    }

    #[test]
    fn both_ends_understand_each_other_however_their_bytes_come() {
        for (piece, uploads) in [
            (1, true),
            (1, false),
            (1000, true),
            (1000, false),
            (1 << 20, true),
        ] {
            let replies = |head: &RequestHead| {
                Ok(match head.path.as_str() {
                    "/small" => Http2Reply::Answer(Answer::new(200, "text/plain", "s")),
                    "/large" => Http2Reply::Download(1 << 40),
                    _ => Http2Reply::Upload,
                })
            };
            let data = Bytes::from(vec![7; MAX_QUEUED]);
            let mut server = Http2Server::new(data.clone(), Box::new(replies));
            let mut client = Http2Client::new().unwrap();
            let [large, upload, small] = ["large", "upload", "small"]
                .map(|path| format!("https://h/{path}").parse().unwrap());
            let load = if uploads {
                Http2Load::Upload(upload, data)
            } else {
                Http2Load::Download(large)
            };
            let shared = Arc::<SharedProbes>::default();
            shared.set_period(Duration::from_micros(10));
            client.begin_load(load, small, Arc::clone(&shared)).unwrap();
            let counted = exchange(&mut server, &mut client, piece);
            assert!(counted >= 1_000_000, "{piece} {uploads}: {counted}");
            assert!(!shared.take_times().is_empty());
            client.close();
            exchange_rest(&mut server, &mut client);
            assert!(server.has_ended() && client.has_ended());
        }
    }

    fn exchange_rest(server: &mut Http2Server, client: &mut Http2Client) {
        let mut output = Vec::new();
        for _ in 0..1000 {
            client.push_output(16 << 10, &mut output);
            server.take_input(&output).unwrap();
            server.push_output(Span::ZERO, 16 << 10, &mut output);
            client.take_input(&output).unwrap();
        }
    }
}
