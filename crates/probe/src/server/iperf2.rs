//! iperf2 clients that send over TCP: there is no agreement before, and no answer after. What comes is counted until it
//! ends.

use std::io;
use std::net::{SocketAddr, TcpStream as StdTcpStream};
use std::time::Duration;

use fullpipe_iperf::MAX_TEST;
use fullpipe_iperf::iperf2::{ANSWER, Header, Kind};
use fullpipe_load::{Channel, Lane, Role, Transfer, TransferPlan};
use fullpipe_record::Request;
use fullpipe_units::{BitRate, ByteCount, Span};
use socket2::SockRef;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::task::spawn_blocking;
use tokio::time::{sleep, timeout};

use super::monitor::{Bounds, Monitor};
use super::test::{Carried, bytes_of};
use super::{POLL_INTERVAL, Server, ServerEvent, blocking};

/// Reads and counts what `client` sends on a connection on which `begun` has been read already.
///
/// # Errors
/// Why it is not served, or ended before the client had finished.
pub(super) async fn count(
    server: &Server,
    client: SocketAddr,
    mut stream: TcpStream,
    mut begun: Vec<u8>,
) -> Result<Carried, String> {
    // How long it will last, and how fast it will be, is not said.
    let unknown = Request { duration: Span::ZERO, ..Request::default() };
    let permit = server.admit_load(client.ip(), &unknown).await.map_err(|refusal| refusal.to_string())?;
    let header = timeout(server.client_timeout.greeting(), header(&mut stream, &mut begun)).await;
    answer(&mut stream, header.unwrap_or_default(), server.client_timeout.greeting()).await?;
    let begun = ByteCount::new(begun.len() as u64);
    server.report(ServerEvent::BeganIperf2 { client });
    let stream = blocking(stream).ok_or("cannot take over its connection")?;
    let transfer = start(stream, &unknown).map_err(|error| format!("cannot start its data thread: {error}"))?;
    let bounds = server.bounds(unknown.block, 1);
    let mut monitor = Monitor::new(Bounds { max_duration: bounds.max_duration.or(Some(MAX_TEST)), ..bounds });
    let mut judged = Ok(());
    while judged.is_ok() && !transfer.is_over() && !*server.closing.borrow() {
        sleep(POLL_INTERVAL).await;
        let totals = transfer.totals();
        judged = monitor.check(totals.at, bytes_of(&totals.streams)).and_then(|rate| match rate {
            Some(rate) => server.admission.record_activity(&permit, rate),
            None => Ok(()),
        });
    }
    let ended = spawn_blocking(move || transfer.finish()).await.map_err(|error| error.to_string())?;
    judged.map_err(|refusal| refusal.to_string())?;
    if let Some((_, error)) = ended.failures.first() {
        return Err(format!("the connection broke: {error}"));
    }
    let bytes = bytes_of(&ended.totals.streams) + begun;
    Ok(Carried { bytes, rate: BitRate::of(bytes, ended.totals.at.max(Span::from_nanos(1))), seen: None })
}

/// What the client asks for; nothing where its data ends before it can be told.
async fn header(stream: &mut TcpStream, begun: &mut Vec<u8>) -> Option<Header> {
    let mut byte = [0];
    loop {
        if let Some(header) = Header::read(begun) {
            return Some(header);
        }
        // One at a time: what follows belongs to the load.
        match stream.read(&mut byte).await {
            Ok(1) => begun.push(byte[0]),
            _ => return None,
        }
    }
}

/// Tells a client that waits for it that it may send.
async fn answer(stream: &mut TcpStream, header: Option<Header>, timeout: Duration) -> Result<(), String> {
    match header {
        Some(Header { kind, .. }) if kind != Kind::Upload => {
            // By a reset: clients that wait for data, as with --bounceback, take an orderly end for silence.
            let _ = SockRef::from(&*stream).set_linger(Some(Duration::ZERO));
            Err(format!("an iperf2 client asked for {kind}, which is not offered: let it send, or use iperf3"))
        }
        Some(Header { waits_for_answer: true, .. }) => {
            match tokio::time::timeout(timeout, stream.write_all(&ANSWER)).await {
                Ok(Ok(())) => Ok(()),
                _ => Err("an iperf2 client did not take the answer that it waits for".to_owned()),
            }
        }
        _ => Ok(()),
    }
}

fn start(stream: StdTcpStream, request: &Request) -> io::Result<Transfer> {
    let lane = Lane { channel: Channel::Tcp(stream), role: Role::Receiver };
    Transfer::start(vec![lane], TransferPlan::of(request, None))
}
