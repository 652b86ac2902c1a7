//! The control connection of a test.

use std::io::{self, ErrorKind};
use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use fullpipe_control::{ControlConnection, canonical_address, connect_to_first};
use fullpipe_record::Transport;
use socket2::SockRef;
use tokio::net::{TcpSocket, TcpStream};
use tokio::time::timeout;
use tracing::info;

use super::session::POLL_INTERVAL;
use crate::call_back::{CallBack, GETTING_CALLS};
use crate::destination::Destination;
use crate::echo::EchoProber;
use crate::engine::LocalEndpoint;
use crate::error::ProbeError;

/// Time after which the next address of a name is tried, too: that of the first retransmission of a
/// SYN.
const NEXT_ADDRESS: Duration = Duration::from_secs(1);

/// Payload bytes of a segment of the control connection of a test over TCP: with headers they fit
/// into the smallest MTU of IPv6 (RFC 8200, section 5). Reports and results are longer than a
/// packet, and over a path that swallows large packets the byte that ends the test would wait
/// behind them for ever.
const CONTROL_SEGMENT: u32 = 1220;

/// Returns the control connection to the first address of the server that answers, and the echo
/// requests to it.
pub(super) async fn connect_control(
    destination: &Destination,
    transport: Transport,
) -> Result<(TcpStream, Option<EchoProber>), ProbeError> {
    if let Some(call_back) = &destination.call_back {
        return await_control(destination, call_back).await;
    }
    let found = destination.resolve_host()?;
    info!(host = %destination.host, addresses = ?found, "resolved the name of the server");
    connect_to_any(destination, &found, transport).await
}

/// Returns the control connection that the server opens, and the echo requests to it.
async fn await_control(
    destination: &Destination,
    call_back: &CallBack,
) -> Result<(TcpStream, Option<EchoProber>), ProbeError> {
    let limit = destination.connect_timeout();
    let called = call_back.await_calls(1, &destination.local, limit, |socket| {
        let _ = socket.set_tcp_mss(CONTROL_SEGMENT);
    });
    let not_called = ProbeError::from_io(GETTING_CALLS);
    let control = match called.await {
        Ok(mut calls) => calls.pop().ok_or_else(|| ErrorKind::NotConnected.into()),
        Err(error) => Err(error),
    };
    let control = control.and_then(|control| {
        control.set_nodelay(true)?;
        Ok((canonical_address(control.peer_addr()?), control))
    });
    let (server, control) = control.map_err(not_called)?;
    Ok((control, destination.start_prober(server)))
}

/// Returns the control connection to the first of `addresses` that answers, and the echo requests
/// to it.
///
/// # Errors
/// Fails if none answers, with the last reason.
async fn connect_to_any(
    destination: &Destination,
    addresses: &[SocketAddr],
    transport: Transport,
) -> Result<(TcpStream, Option<EchoProber>), ProbeError> {
    let (host, limit) = (&destination.host, destination.connect_timeout());
    let connected = connect_to_first(addresses, NEXT_ADDRESS, |address| {
        info!(%address, "connecting");
        let prober = destination.start_prober(address);
        let (host, local) = (host.clone(), destination.local.clone());
        async move {
            let connected = timeout(limit, connect_to(address, &local, transport)).await;
            let control = connected.map_err(|_| ProbeError::Silent {
                host: host.clone(),
                address,
                after: limit.into(),
            });
            let control = control.and_then(|connected| {
                connected.map_err(|cause| not_connected(host, address, cause))
            });
            Ok((control.map_err(io::Error::other)?, prober))
        }
    });
    connected.await.map_err(|error| {
        error
            .downcast()
            .unwrap_or_else(ProbeError::from_io("connect to the server"))
    })
}

pub(super) fn not_connected(host: String, address: SocketAddr, cause: io::Error) -> ProbeError {
    let refused = cause.kind() == ErrorKind::ConnectionRefused;
    let hint = if refused {
        "; start `fullpipe serve` or `iperf3 -s` there"
    } else {
        ""
    };
    ProbeError::Connect {
        host,
        address,
        cause,
        hint,
    }
}

/// Runs `work` to its result, or to [`ProbeError::Interrupted`] once the user interrupts it.
pub(super) async fn unless_interrupted<T, E: From<ProbeError>>(
    interrupt: &AtomicBool,
    work: impl Future<Output = Result<T, E>>,
) -> Result<T, E> {
    let interrupted = async {
        while !interrupt.load(Ordering::Relaxed) {
            tokio::time::sleep(POLL_INTERVAL).await;
        }
    };
    tokio::select! {
        done = work => done,
        () = interrupted => Err(ProbeError::Interrupted.into()),
    }
}

/// Returns the control connection, over TLS if that was asked for.
pub(super) async fn encrypt_control(
    destination: &Destination,
    stream: TcpStream,
) -> Result<ControlConnection, ProbeError> {
    let Some(trust) = &destination.tls else {
        return Ok(ControlConnection::Plain(stream));
    };
    let agreed = timeout(
        destination.connect_timeout(),
        trust.connect_tls(&destination.host, stream),
    )
    .await;
    let control = agreed.unwrap_or_else(|_| {
        let why = "the server does not answer";
        Err(io::Error::new(ErrorKind::TimedOut, why))
    });
    control.map_err(|cause| {
        ProbeError::Failed(format!(
            "cannot agree on TLS with {}: {cause}; does `fullpipe serve --tls` run there, and is its certificate for \
             this name?",
            destination.host
        ))
    })
}

/// Opens the control connection from the address and the device that were asked for; the kernel
/// chooses its port.
async fn connect_to(
    address: SocketAddr,
    local: &LocalEndpoint,
    transport: Transport,
) -> io::Result<TcpStream> {
    let socket = if address.is_ipv4() {
        TcpSocket::new_v4()
    } else {
        TcpSocket::new_v6()
    }?;
    // Over UDP the segments of this connection show what a packet of the path holds.
    if transport == Transport::Tcp {
        // Where the kernel refuses, segments are as long as the path's.
        let _ = SockRef::from(&socket).set_tcp_mss(CONTROL_SEGMENT);
    }
    if let Some(device) = &local.device {
        SockRef::from(&socket).bind_device(Some(device.as_bytes()))?;
    }
    if let Some(own) = local.address {
        socket.bind(SocketAddr::new(own, 0))?;
    }
    let control = socket.connect(address).await?;
    control.set_nodelay(true)?;
    Ok(control)
}

#[cfg(test)]
mod tests;
