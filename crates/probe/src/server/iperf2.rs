//! iperf2 clients that send: there is no agreement before, and no answer after. What comes is counted until it ends.

use std::io;
use std::net::{SocketAddr, TcpStream};

use fullpipe_load::{Channel, Lane, Role, Transfer, TransferPlan};
use fullpipe_record::Request;
use fullpipe_units::{BitRate, ByteCount, Span};
use tokio::task::spawn_blocking;
use tokio::time::sleep;

use super::test::{Carried, moved};
use super::watch::Watch;
use super::{House, LOOK, ServerEvent};

/// Reads and counts what `client` sends on a connection of which `begun` bytes have been read already.
///
/// # Errors
/// Why it ended before the client had finished.
pub(super) async fn count(
    house: &House,
    client: SocketAddr,
    stream: TcpStream,
    begun: usize,
) -> Result<Carried, String> {
    // How long it will last, and how fast it will be, is not said.
    let unknown = Request { duration: Span::ZERO, ..Request::default() };
    let pass = house.gate.load(client.ip(), &unknown).map_err(|refusal| refusal.to_string())?;
    house.tell(ServerEvent::BeganIperf2 { client });
    let transfer = start(stream, &unknown).map_err(|error| format!("cannot start its data thread: {error}"))?;
    let mut watch = Watch::new(house.bounds(unknown.block));
    let mut judged = Ok(());
    while judged.is_ok() && !transfer.is_over() && !*house.closing.borrow() {
        sleep(LOOK).await;
        let totals = transfer.totals();
        judged = watch.look(totals.at, moved(&totals)).and_then(|rate| match rate {
            Some(rate) => house.gate.measured(&pass, rate),
            None => Ok(()),
        });
    }
    let ended = spawn_blocking(move || transfer.finish()).await.map_err(|error| error.to_string())?;
    judged.map_err(|refusal| refusal.to_string())?;
    if let Some((_, error)) = ended.failures.first() {
        return Err(format!("the connection broke: {error}"));
    }
    let bytes = moved(&ended.totals) + ByteCount::new(begun as u64);
    Ok(Carried { bytes, rate: BitRate::of(bytes, ended.totals.at.max(Span::from_nanos(1))) })
}

fn start(stream: TcpStream, request: &Request) -> io::Result<Transfer> {
    let plan = TransferPlan::of(request, None);
    Transfer::start(vec![Lane { channel: Channel::Tcp(stream), role: Role::Receiver }], plan)
}
