//! The listening socket, whose receive buffer is that of one test while its streams are opened.

use std::cell::Cell;
use std::io;
use std::rc::Rc;

use fullpipe_record::{Buffer, Request, Transport};
use fullpipe_sys::unfix_buffers;
use socket2::SockRef;
use tokio::net::TcpListener;

/// The listening socket that all tests share.
///
/// A connection has the receive buffer of the listening socket, and agrees on its window scale in
/// the handshake. So a test that asks for a buffer gets it on this socket, as from iperf3, while no
/// other test opens streams: with the scale of a tuned buffer the kernel would round a small window
/// up to a multiple of 2^scale (`__tcp_select_window`).
///
/// If iperf2 clients may connect to the same socket, at any time, its buffer stays as it is,
/// because one that connected meanwhile would keep the small window. The accepted sockets of a test
/// get its buffer then.
pub(super) struct StreamListener {
    socket: Rc<TcpListener>,
    /// True if only connections of tests that are expected carry data.
    is_for_tests: bool,
    /// Tests whose streams are expected.
    expecting: Cell<usize>,
    /// Size of the receive buffer before a test fixed it.
    usual: Cell<Option<usize>>,
}

impl StreamListener {
    pub(super) fn new(socket: Rc<TcpListener>, is_for_tests: bool) -> Rc<Self> {
        Rc::new(Self {
            socket,
            is_for_tests,
            expecting: Cell::default(),
            usual: Cell::default(),
        })
    }

    pub(super) fn socket_ref(&self) -> SockRef<'_> {
        SockRef::from(&*self.socket)
    }

    /// Gets ready for the streams of a test, until the result is dropped. A test that has fixed the
    /// buffer loses it: no other one waits for its streams.
    pub(super) fn expect_streams(self: &Rc<Self>, request: &Request) -> ExpectedStreams {
        if request.transport == Transport::Tcp {
            self.restore_buffer_size();
            if let (Buffer::Request(size), 0, true) = (
                request.receive_buffer(),
                self.expecting.get(),
                self.is_for_tests,
            ) {
                // Without it the accepted sockets get their buffer later.
                let _ = self.fix_buffer_size(usize::try_from(size.get()).unwrap_or(usize::MAX));
            }
        }
        self.expecting.update(|tests| tests + 1);
        ExpectedStreams(Rc::clone(self))
    }

    /// Fails if the kernel could not take the size back later, which is asked first.
    fn fix_buffer_size(&self, size: usize) -> io::Result<()> {
        unfix_buffers(&*self.socket)?;
        let usual = self.socket_ref().recv_buffer_size()?;
        self.socket_ref().set_recv_buffer_size(size)?;
        self.usual.set(Some(usual));
        Ok(())
    }

    fn restore_buffer_size(&self) {
        if let Some(usual) = self.usual.take() {
            // The kernel doubles what it is asked for.
            let _ = self.socket_ref().set_recv_buffer_size(usual / 2);
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
            self.0.restore_buffer_size();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use fullpipe_units::ByteCount;
    use std::net::TcpStream;

    async fn listener(is_for_tests: bool) -> Rc<StreamListener> {
        StreamListener::new(
            Rc::new(TcpListener::bind("127.0.0.1:0").await.unwrap()),
            is_for_tests,
        )
    }

    fn asking(buffer: Buffer) -> Request {
        Request {
            buffer,
            ..Request::default()
        }
    }

    /// Returns the shift that a connection gets for its windows.
    fn scale(listener: &StreamListener) -> u8 {
        let client = TcpStream::connect(listener.socket.local_addr().unwrap()).unwrap();
        fullpipe_sys::tcp_info(&client).unwrap().snd_wscale.unwrap()
    }

    #[tokio::test(flavor = "current_thread")]
    async fn a_test_alone_has_its_buffer_from_the_handshake_on() {
        let listener = listener(true).await;
        let [size, tuned] = [
            listener.socket_ref().recv_buffer_size().unwrap(),
            scale(&listener).into(),
        ];
        let small = asking(Buffer::Request(ByteCount::new(20_000)));
        let expected = listener.expect_streams(&small);
        assert_eq!(listener.socket_ref().recv_buffer_size().unwrap(), 40_000);
        assert_eq!(scale(&listener), 0);
        drop(expected);
        assert_eq!(listener.socket_ref().recv_buffer_size().unwrap(), size);
        assert_eq!(usize::from(scale(&listener)), tuned);
    }

    #[tokio::test(flavor = "current_thread")]
    async fn a_test_takes_nothing_from_another_that_opens_streams() {
        let listener = listener(true).await;
        let size = listener.socket_ref().recv_buffer_size().unwrap();
        let _automatic = listener.expect_streams(&asking(Buffer::Automatic));
        let _small = listener.expect_streams(&asking(Buffer::Request(ByteCount::new(20_000))));
        assert_eq!(listener.socket_ref().recv_buffer_size().unwrap(), size);
    }

    /// Such a test delayed the streams that followed by a second.
    #[tokio::test(flavor = "current_thread")]
    async fn a_test_that_does_not_open_its_streams_takes_nothing_from_those_that_follow() {
        let listener = listener(true).await;
        let size = listener.socket_ref().recv_buffer_size().unwrap();
        let slow = listener.expect_streams(&asking(Buffer::Request(ByteCount::new(20_000))));
        let _next = listener.expect_streams(&asking(Buffer::Automatic));
        assert_eq!(listener.socket_ref().recv_buffer_size().unwrap(), size);
        drop(slow);
        assert_eq!(listener.socket_ref().recv_buffer_size().unwrap(), size);
    }

    /// An iperf2 client that connected meanwhile sent a 300th of what it could.
    #[tokio::test(flavor = "current_thread")]
    async fn a_test_that_asks_for_a_small_window_takes_nothing_from_iperf2_clients() {
        let listener = listener(false).await;
        let usual = scale(&listener);
        let _small = listener.expect_streams(&asking(Buffer::Request(ByteCount::new(20_000))));
        assert_eq!(scale(&listener), usual);
    }
}
