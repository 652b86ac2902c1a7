//! Listening sockets, and the number of connections that the process may hold.

use std::io;
use std::net::IpAddr;

use fullpipe_control::{ListenError, most_descriptors};
use socket2::{Domain, Protocol, SockRef, Socket, Type};
use tokio::net::{TcpListener, UdpSocket};

use crate::error::ServeError;

/// Receive buffer of a UDP socket, in bytes.
const UDP_RECEIVE_BUFFER: usize = 4 << 20;

/// Descriptors that are kept for other uses than connections: listeners, files of settings, the
/// log, the runtime.
const RESERVED_DESCRIPTORS: u64 = 64;

/// Minimum number of descriptors with which a server can serve a test.
const MIN_DESCRIPTORS: u64 = 64;

/// Returns a socket that listens on `address`; by default on every address, of both families if the
/// host has IPv6. Connections must come through `device`, if it is set.
///
/// # Errors
/// Fails if the address is in use, or not one of this host or of the device.
pub(super) fn listen_tcp(
    address: Option<IpAddr>,
    device: Option<&str>,
    port: u16,
) -> Result<TcpListener, ListenError> {
    fullpipe_control::listen_tcp(address, port, |socket| {
        if let Some(device) = device {
            socket.bind_device(Some(device.as_bytes()))?;
        }
        // The SYN of a client shows what devices on the path changed. A kernel that cannot save it
        // is no reason to stop.
        let _ = fullpipe_sys::save_syn(socket);
        Ok(())
    })
}

/// Returns a UDP socket at the address and the device of `listener`. The sockets of streams share
/// the address, each connected to its client.
///
/// # Errors
/// Fails if the address is in use by another program, or another system call fails.
pub(super) fn listen_udp(listener: &TcpListener) -> io::Result<UdpSocket> {
    let address = listener.local_addr()?;
    let socket = Socket::new(
        Domain::for_address(address),
        Type::DGRAM,
        Some(Protocol::UDP),
    )?;
    if address.is_ipv6() {
        socket.set_only_v6(SockRef::from(listener).only_v6()?)?;
    }
    if let Some(device) = SockRef::from(listener).device()? {
        socket.bind_device(Some(&device))?;
    }
    socket.set_reuse_address(true)?;
    // As much as the kernel permits: iperf2 clients send without waiting for the server.
    let _ = socket.set_recv_buffer_size(UDP_RECEIVE_BUFFER);
    socket.set_nonblocking(true)?;
    socket.bind(&address.into())?;
    UdpSocket::from_std(socket.into())
}

/// Raises the limit of open files to its maximum, and returns the number of connections that it
/// allows.
///
/// # Errors
/// Fails if there are too few descriptors for a test.
pub(super) fn max_connections() -> Result<u32, ServeError> {
    connections_within(most_descriptors())
}

fn connections_within(descriptors: u64) -> Result<u32, ServeError> {
    if descriptors < MIN_DESCRIPTORS {
        return Err(ServeError::Descriptors {
            permitted: descriptors,
            needed: MIN_DESCRIPTORS,
        });
    }
    Ok(u32::try_from(descriptors - RESERVED_DESCRIPTORS.min(descriptors / 2)).unwrap_or(u32::MAX))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::Ipv4Addr;

    #[tokio::test]
    async fn both_sockets_of_a_port_are_at_the_device() {
        for wanted in [Some("lo"), None] {
            let listener = listen_tcp(Some(Ipv4Addr::LOCALHOST.into()), wanted, 0).unwrap();
            let datagrams = listen_udp(&listener).unwrap();
            let device = wanted.map(|name| name.as_bytes().to_vec());
            assert_eq!(SockRef::from(&listener).device().unwrap(), device);
            assert_eq!(SockRef::from(&datagrams).device().unwrap(), device);
        }
        let error = listen_tcp(None, Some("no-such-device"), 0).unwrap_err();
        assert!(error.to_string().contains("No such device"), "{error}");
    }

    #[test]
    fn too_few_descriptors_are_an_error_with_a_remedy() {
        assert_eq!(connections_within(64).ok(), Some(32));
        assert_eq!(connections_within(1024).ok(), Some(960));
        let error = connections_within(63).unwrap_err().to_string();
        assert!(
            error.contains("63 open files") && error.contains("ulimit -n"),
            "{error}"
        );
    }
}
