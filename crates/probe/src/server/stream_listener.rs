//! The listening socket, whose receive buffer is that of one test while its streams are opened.

use std::cell::Cell;
use std::io;
use std::rc::Rc;
use std::time::{Duration, Instant};

use fullpipe_record::{Buffer, Request, Transport};
use fullpipe_sys::unfix_buffers;
use socket2::SockRef;
use tokio::net::TcpListener;
use tokio::time::sleep;

use super::POLL_INTERVAL;

/// Maximum time that a test waits for another one to open its streams.
const MAX_WAIT: Duration = Duration::from_secs(1);

/// The listening socket that all tests share.
///
/// A connection has the receive buffer of the listening socket, and agrees on its window scale in the handshake. So a
/// test that asks for a buffer gets it on this socket, as from iperf3, while no other test opens streams: with the
/// scale of a tuned buffer the kernel would round a small window up to a multiple of 2^scale (`__tcp_select_window`).
pub(super) struct StreamListener {
    socket: Rc<TcpListener>,
    /// Tests whose streams are expected.
    expecting: Cell<usize>,
    /// Size of the receive buffer before a test fixed it.
    usual: Cell<Option<usize>>,
}

impl StreamListener {
    pub(super) fn new(socket: Rc<TcpListener>) -> Rc<Self> {
        Rc::new(Self { socket, expecting: Cell::default(), usual: Cell::default() })
    }

    pub(super) fn socket(&self) -> SockRef<'_> {
        SockRef::from(&*self.socket)
    }

    /// Gets ready for the streams of a test, until the result is dropped. First waits for a test that has fixed the
    /// buffer, but not for long.
    pub(super) async fn expect_streams(self: &Rc<Self>, request: &Request) -> ExpectedStreams {
        if request.transport == Transport::Tcp {
            let deadline = Instant::now() + MAX_WAIT;
            while self.usual.get().is_some() && Instant::now() < deadline {
                sleep(POLL_INTERVAL).await;
            }
            self.restore();
            if let (Buffer::Request(size), 0) = (request.buffer, self.expecting.get()) {
                // Without it the accepted sockets get their buffer later.
                let _ = self.fix(usize::try_from(size.get()).unwrap_or(usize::MAX));
            }
        }
        self.expecting.update(|tests| tests + 1);
        ExpectedStreams(Rc::clone(self))
    }

    /// Fails if the kernel could not take the size back later, which is asked first.
    fn fix(&self, size: usize) -> io::Result<()> {
        unfix_buffers(&*self.socket)?;
        let usual = self.socket().recv_buffer_size()?;
        self.socket().set_recv_buffer_size(size)?;
        self.usual.set(Some(usual));
        Ok(())
    }

    fn restore(&self) {
        if let Some(usual) = self.usual.take() {
            // The kernel doubles what it is asked for.
            let _ = self.socket().set_recv_buffer_size(usual / 2);
            let _ = unfix_buffers(&*self.socket);
        }
    }
}

/// A test whose streams are expected.
pub(super) struct ExpectedStreams(Rc<StreamListener>);

impl Drop for ExpectedStreams {
    fn drop(&mut self) {
        self.0.expecting.update(|tests| tests - 1);
        if self.0.expecting.get() == 0 {
            self.0.restore();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use fullpipe_units::ByteCount;
    use std::net::TcpStream;

    async fn listener() -> Rc<StreamListener> {
        StreamListener::new(Rc::new(TcpListener::bind("127.0.0.1:0").await.unwrap()))
    }

    fn asking(buffer: Buffer) -> Request {
        Request { buffer, ..Request::default() }
    }

    /// Returns the shift that a connection gets for its windows.
    fn scale(listener: &StreamListener) -> u8 {
        let client = TcpStream::connect(listener.socket.local_addr().unwrap()).unwrap();
        fullpipe_sys::tcp_info(&client).unwrap().snd_wscale.unwrap()
    }

    #[tokio::test(flavor = "current_thread")]
    async fn a_test_alone_has_its_buffer_from_the_handshake_on() {
        let listener = listener().await;
        let [size, tuned] = [listener.socket().recv_buffer_size().unwrap(), scale(&listener).into()];
        let small = asking(Buffer::Request(ByteCount::new(20_000)));
        let expected = listener.expect_streams(&small).await;
        assert_eq!(listener.socket().recv_buffer_size().unwrap(), 40_000);
        assert_eq!(scale(&listener), 0);
        drop(expected);
        assert_eq!(listener.socket().recv_buffer_size().unwrap(), size);
        assert_eq!(usize::from(scale(&listener)), tuned);
    }

    #[tokio::test(flavor = "current_thread")]
    async fn a_test_takes_nothing_from_another_that_opens_streams() {
        let listener = listener().await;
        let size = listener.socket().recv_buffer_size().unwrap();
        let _automatic = listener.expect_streams(&asking(Buffer::Automatic)).await;
        let _small = listener.expect_streams(&asking(Buffer::Request(ByteCount::new(20_000)))).await;
        assert_eq!(listener.socket().recv_buffer_size().unwrap(), size);
    }

    #[tokio::test(flavor = "current_thread")]
    async fn a_test_that_is_slow_to_open_its_streams_delays_no_other_for_long() {
        let listener = listener().await;
        let size = listener.socket().recv_buffer_size().unwrap();
        let slow = listener.expect_streams(&asking(Buffer::Request(ByteCount::new(20_000)))).await;
        let begun = Instant::now();
        let _next = listener.expect_streams(&asking(Buffer::Automatic)).await;
        assert!(begun.elapsed() < MAX_WAIT * 2);
        assert_eq!(listener.socket().recv_buffer_size().unwrap(), size);
        drop(slow);
        assert_eq!(listener.socket().recv_buffer_size().unwrap(), size);
    }
}
