//! Uploads of iperf2 clients over TCP. Nothing is agreed on before, and nothing is reported to the
//! client after: the data is counted until the connection ends.

use std::io;
use std::net::{SocketAddr, TcpStream as StdTcpStream};
use std::time::Duration;

use crate::engine::{PlannedStream, RunningTransfer, StreamChannel, StreamRole, TransferPlan};
use fullpipe_iperf::MAX_TEST;
use fullpipe_iperf::iperf2::{ANSWER, Iperf2Header, Iperf2TestKind};
use fullpipe_record::Request;
use fullpipe_units::{ByteCount, Span};
use socket2::SockRef;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::task::spawn_blocking;
use tokio::time::{sleep, timeout};

use super::monitor::{TransferBounds, TransferMonitor};
use super::session::{TestTotals, bytes_of};
use super::{POLL_INTERVAL, ServerEvent, TestFailure, TestServer, into_blocking};

/// Receives and counts the data that `client` sends on a connection from which `first_bytes` have
/// been read already.
///
/// # Errors
/// Fails, with the reason as a sentence, if the client is not served, or the test ends before the
/// client has finished.
pub(super) async fn receive_upload(
    server: &TestServer,
    client: SocketAddr,
    mut stream: TcpStream,
    mut first_bytes: Vec<u8>,
) -> Result<TestTotals, TestFailure> {
    // The client states neither duration nor rate.
    let unknown = Request {
        duration: Span::ZERO,
        ..Request::default()
    };
    let permit = server
        .admit_load(client.ip(), &unknown)
        .await
        .map_err(|refusal| refusal.to_string())?;
    let header = timeout(
        server.client_timeout.reply_timeout(),
        read_header(&mut stream, &mut first_bytes),
    )
    .await;
    send_answer(
        &mut stream,
        header.unwrap_or_default(),
        server.client_timeout.reply_timeout(),
    )
    .await?;
    let first_bytes = ByteCount::new(first_bytes.len() as u64);
    server.report_event(ServerEvent::BeganIperf2 { client });
    let stream = into_blocking(stream)
        .ok_or_else(|| "cannot pass its connection to a data thread".to_owned())?;
    let transfer = start_transfer(stream, &unknown)
        .map_err(|error| format!("cannot start its data thread: {error}"))?;
    let bounds = server.transfer_bounds(&unknown, 1);
    let bounds = TransferBounds {
        max_duration: bounds.max_duration.or(Some(MAX_TEST)),
        ..bounds
    };
    let mut monitor = TransferMonitor::new(bounds, vec![StreamRole::Receiver]);
    let mut checked = Ok(());
    while checked.is_ok() && !transfer.is_over() && !*server.shutdown.borrow() {
        sleep(POLL_INTERVAL).await;
        let activity = monitor.check_progress(&transfer.totals(), || transfer.sample_now());
        checked = activity.and_then(|activity| server.admission.record_activity(&permit, activity));
    }
    let ended = spawn_blocking(move || transfer.finish_transfer())
        .await
        .map_err(|error| error.to_string())?;
    let received = bytes_of(&ended.totals.streams);
    if received == ByteCount::ZERO {
        return Err(TestFailure {
            is_no_test: true,
            ..TestFailure::from("an iperf2 client sent no data".to_owned())
        });
    }
    checked.map_err(|refusal| TestFailure::after_data(refusal.to_string()))?;
    if let Some((_, error)) = ended.failures.first() {
        return Err(TestFailure::after_data(format!(
            "the connection broke: {error}"
        )));
    }
    Ok(TestTotals::from_bytes(
        received + first_bytes,
        ended.totals.at,
    ))
}

/// Returns the header of the client; `None` if its data ends first.
async fn read_header(stream: &mut TcpStream, first_bytes: &mut Vec<u8>) -> Option<Iperf2Header> {
    let mut byte = [0];
    loop {
        if let Some(header) = Iperf2Header::read_stream(first_bytes) {
            return Some(header);
        }
        // Byte by byte: the bytes after the header belong to the load.
        match stream.read(&mut byte).await {
            Ok(1) => first_bytes.push(byte[0]),
            _ => return None,
        }
    }
}

/// Answers a client that waits for an answer before it sends.
///
/// # Errors
/// Fails if the client asks for a test that is not offered, or does not accept the answer within
/// `timeout`.
async fn send_answer(
    stream: &mut TcpStream,
    header: Option<Iperf2Header>,
    timeout: Duration,
) -> Result<(), String> {
    match header {
        Some(Iperf2Header { kind, .. }) if kind != Iperf2TestKind::Upload => {
            // Close with a reset: clients that wait for data, as with --bounceback, would go on
            // waiting after a FIN.
            let _ = SockRef::from(&*stream).set_linger(Some(Duration::ZERO));
            Err(format!(
                "an iperf2 client asked for {kind}, which is not offered: let it send, or use iperf3"
            ))
        }
        Some(Iperf2Header {
            waits_for_answer: true,
            ..
        }) => match tokio::time::timeout(timeout, stream.write_all(&ANSWER)).await {
            Ok(Ok(())) => Ok(()),
            _ => Err("an iperf2 client did not accept the answer that it waits for".to_owned()),
        },
        _ => Ok(()),
    }
}

fn start_transfer(stream: StdTcpStream, request: &Request) -> io::Result<RunningTransfer> {
    let lane = PlannedStream {
        channel: StreamChannel::Tcp(stream),
        role: StreamRole::Receiver,
    };
    RunningTransfer::start_transfer(vec![lane], TransferPlan::from_request(request, None))
}
