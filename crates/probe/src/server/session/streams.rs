//! The streams of a test: admitted, awaited and accepted.

use std::io::Write;
use std::time::Instant;

use fullpipe_control::{canonical_address, unix_seconds};
use fullpipe_iperf::{ErrorNumber, ServerKey, StateByte, TestParameters, TestRefusal, TestTicket};
use fullpipe_record::{Request, Transport};
use fullpipe_units::ByteCount;
use socket2::SockRef;
use tokio::time::sleep;

use super::super::admission::AdmissionPermit;
use super::super::registry::AcceptedStream;
use super::super::{POLL_INTERVAL, ServerEvent};
use super::ServedTest;
use crate::engine::{StreamChannel, apply_options};

impl ServedTest {
    /// Prepares for the load of a request: checks the user, the limits and the ticket, and expects
    /// the streams.
    pub(super) async fn prepare_load(&mut self, request: Request) {
        let permit = match self.admit_load(&request).await {
            Ok(permit) => permit,
            Err(refusal) => return self.session.refuse_test(refusal, None),
        };
        self.load = Some(permit);
        self.was_admitted = true;
        if self.server.one_off {
            self.prepare_listener(&request);
        } else {
            self.expected_streams = Some(self.server.listener.expect_streams(&request));
        }
        self.server.report_event(ServerEvent::Began {
            client: self.client,
            request: request.clone(),
            ticket: self.ticket.clone().map(Box::new),
        });
        self.request = request;
    }

    async fn admit_load(&mut self, request: &Request) -> Result<AdmissionPermit, TestRefusal> {
        self.authenticate().await?;
        let permit = self.server.admit_load(self.client.ip(), request).await?;
        // A test for which there is no place leaves its ticket as it was.
        self.ticket = self.redeem_ticket(request)?;
        self.expect_udp_streams(request).await?;
        Ok(permit)
    }

    /// Redeems the client's ticket, where the server asks for one.
    fn redeem_ticket(&self, request: &Request) -> Result<Option<TestTicket>, TestRefusal> {
        let Some(ServerKey::OfTickets(_)) = self.server.key else {
            return Ok(None);
        };
        let parameters = self.session.client_parameters();
        let text = parameters.and_then(TestParameters::ticket_text);
        self.server
            .used_slots
            .borrow_mut()
            .redeem_ticket(text.unwrap_or_default(), request, unix_seconds())
            .map(Some)
    }

    /// Accepts UDP streams from now on, if the request has any. First waits until no other test of
    /// the same address is opening its own.
    ///
    /// # Errors
    /// Fails if there is no UDP socket, or the other test takes too long.
    async fn expect_udp_streams(&self, request: &Request) -> Result<(), TestRefusal> {
        if request.transport != Transport::Udp {
            return Ok(());
        }
        if !self.server.has_udp.get() {
            return Err(TestRefusal::new(
                ErrorNumber::UNIMPLEMENTED,
                "another program uses the UDP port",
            ));
        }
        let deadline = Instant::now() + self.server.client_timeout.reply_timeout() / 2;
        while !self.try_expect_udp_streams()? {
            if Instant::now() >= deadline || *self.shutdown.borrow() {
                return Err(TestRefusal::new(
                    ErrorNumber::STREAMS,
                    "another test of its address is still opening its UDP streams",
                ));
            }
            sleep(POLL_INTERVAL).await;
        }
        Ok(())
    }

    /// Accepts UDP streams from now on. Returns false if another test of the same address is opening
    /// its own.
    fn try_expect_udp_streams(&self) -> Result<bool, TestRefusal> {
        let local = self.control.tcp_stream().local_addr().map_err(|_| {
            TestRefusal::new(ErrorNumber::STREAMS, "the control connection is gone")
        })?;
        let mut registry = self.server.registry.borrow_mut();
        Ok(registry.expect_udp_streams(
            self.cookie,
            self.client.ip(),
            canonical_address(local),
            self.client_states(TestParameters::sends_cookies),
        ))
    }

    /// Sets the options of the listening socket, so that data connections have them from the SYN
    /// on, as with iperf3. A server of several tests, which share the listening socket, sets the
    /// receive buffer only, and the other options of accepted sockets. Errors are ignored here:
    /// setting the accepted sockets fails in the same way.
    fn prepare_listener(&self, request: &Request) {
        let _ = apply_options(&self.server.listener.socket_ref(), request);
    }

    /// Accepts a stream: a connection with the test's cookie, or a UDP socket.
    pub(super) fn accept_stream(&mut self, stream: AcceptedStream) {
        let AcceptedStream { channel, permit } = stream;
        if let Err(error) = apply_options(&SockRef::from(&channel), &self.request) {
            let refusal = TestRefusal::new(ErrorNumber::CONGESTION, error.to_string());
            self.session.refuse_test(refusal, error.os_error());
            return;
        }
        let is_udp = matches!(channel, StreamChannel::Udp(_));
        let fits = is_udp == (self.request.transport == Transport::Udp);
        if fits && self.session.stream_connected(self.now()) {
            self.streams.push((permit.permit_number(), channel));
        } else {
            refuse_stream(&channel);
        }
    }
}

/// Returns the bytes that wait at streams on which no data flows yet.
pub(super) fn received_early(streams: &[(u64, StreamChannel)]) -> ByteCount {
    streams
        .iter()
        .filter_map(|(_, channel)| fullpipe_sys::socket_memory(channel).ok())
        .map(|memory| memory.rmem_alloc)
        .sum()
}

/// Refuses a data connection with the same answer as iperf3: one byte, which fits into the empty
/// send buffer. Without it, the client still sees that the connection is closed. UDP streams get no
/// answer.
fn refuse_stream(channel: &StreamChannel) {
    if let StreamChannel::Tcp(stream) = channel {
        let mut stream = stream;
        let _ = stream
            .set_nonblocking(true)
            .and_then(|()| stream.write(&[StateByte::AccessDenied.to_byte()]));
    }
}
