//! Sockets as a relay wants them.

use std::io;
use std::mem::MaybeUninit;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::pin::pin;
use std::time::Duration;

use fullpipe_control::{
    ListenError, canonical_address, connect_to_first, listen_tcp, most_descriptors,
};
use socket2::{SockRef, TcpKeepalive};
use tokio::io::Interest;
use tokio::net::{TcpListener, TcpSocket, TcpStream, lookup_host};
use tokio::time::timeout;

use crate::options::{RelayError, RelayOptions, RelayRole};
use crate::pipes::MAX_PIPES;
use crate::quotas::MAX_PENDING;
use crate::rules::TargetAddress;

/// Bytes that are accepted of one side and not yet sent to the other, besides those of its window.
/// With 128 KiB the relay is woken so often that it takes half as much processor time again; more
/// than this saves nothing.
const UNSENT: u32 = 1 << 20;

/// Congestion control without pacing, which Linux permits to everybody (`TCP_CONG_NON_RESTRICTED`).
pub(crate) const UNPACED: &[u8] = b"reno";

/// Time for a connection to a target or a far relay.
pub(crate) const CONNECT_DEADLINE: Duration = Duration::from_secs(10);

/// Time after which the next address of a name is tried, too: that of the first retransmission of a
/// SYN.
pub(crate) const NEXT_ADDRESS: Duration = Duration::from_secs(1);

/// Time without data after which the other end is asked whether it is there, and between two such
/// questions.
const KEEPALIVE: Duration = Duration::from_mins(1);
const KEEPALIVE_INTERVAL: Duration = Duration::from_secs(10);
const KEEPALIVE_PROBES: u32 = 6;

/// Descriptors for other uses than connections.
const RESERVED_DESCRIPTORS: u64 = 64;

/// Returns a socket that listens where `options` say.
///
/// # Errors
/// Fails if the address is in use, or not one of this host.
pub(crate) fn listen_for_clients(options: &RelayOptions) -> Result<TcpListener, ListenError> {
    listen_tcp(options.address, options.port, |socket| {
        socket.set_linger(Some(Duration::ZERO))
    })
}

/// Sets what every socket has. It is reset whenever it goes, even if the program is killed, unless
/// it is set to close in order: the FIN of a relay that dies would be taken for the end of the
/// data.
pub(crate) fn prepare_socket(stream: &TcpStream) -> io::Result<()> {
    let socket = SockRef::from(stream);
    socket.set_linger(Some(Duration::ZERO))?;
    socket.set_tcp_nodelay(true)?;
    // Urgent data keeps its place among the others (RFC 6093, section 4).
    socket.set_out_of_band_inline(true)?;
    socket.set_tcp_notsent_lowat(UNSENT)?;
    let keepalive = TcpKeepalive::new()
        .with_time(KEEPALIVE)
        .with_interval(KEEPALIVE_INTERVAL);
    socket.set_tcp_keepalive(&keepalive.with_retries(KEEPALIVE_PROBES))
}

/// Lets a connection within this host send without pacing.
pub(crate) fn disable_pacing(stream: &std::net::TcpStream) {
    if let (Ok(own), Ok(other)) = (stream.local_addr(), stream.peer_addr())
        && are_within_host(own, other)
    {
        // Where it fails, the connection goes on as it is.
        let _ = SockRef::from(stream).set_tcp_congestion(UNPACED);
    }
}

/// Returns true if two ends of a connection are at this host: who calls one of its addresses has
/// the same one, or one of loopback, unless it chose another.
fn are_within_host(own: SocketAddr, other: SocketAddr) -> bool {
    let [own, other] = [own, other].map(|address| canonical_address(address).ip());
    own == other || other.is_loopback()
}

/// Returns the addresses of `target`.
///
/// # Errors
/// Fails if the name is not known.
pub(crate) async fn resolve_target(target: &TargetAddress) -> io::Result<Vec<SocketAddr>> {
    let found = lookup_host((target.host.as_str(), target.port)).await?;
    Ok(found.map(canonical_address).collect())
}

/// Connects to the first of `addresses` that answers, and tries the next of them after `pause`.
///
/// # Errors
/// Fails with the error of the last of them.
pub(crate) async fn connect_to_any(
    addresses: &[SocketAddr],
    pause: Duration,
) -> io::Result<TcpStream> {
    connect_to_first(addresses, pause, connect_to).await
}

/// Connects to an address. The connection is reset whenever it is given up.
async fn connect_to(address: SocketAddr) -> io::Result<TcpStream> {
    let socket = if address.is_ipv4() {
        TcpSocket::new_v4()
    } else {
        TcpSocket::new_v6()
    }?;
    SockRef::from(&socket).set_linger(Some(Duration::ZERO))?;
    let stream = socket.connect(address).await?;
    prepare_socket(&stream)?;
    Ok(stream)
}

/// Resolves `target` and connects to it, within the deadline.
///
/// # Errors
/// Fails if it is not known, does not answer or is `ours`, the address at which a client called
/// this relay, and with `TimedOut` at the deadline.
pub(crate) async fn connect_target(
    target: &TargetAddress,
    ours: Option<SocketAddr>,
) -> io::Result<TcpStream> {
    let reached = async {
        let addresses = resolve_target(target).await?;
        // Each connection would make another one.
        if ours.is_some_and(|ours| {
            addresses
                .iter()
                .any(|address| other_end(*address) == canonical_address(ours))
        }) {
            return Err(io::Error::other("it is this relay itself"));
        }
        connect_to_any(&addresses, NEXT_ADDRESS).await
    };
    timeout(CONNECT_DEADLINE, reached)
        .await
        .unwrap_or_else(|_| Err(timeout_error(CONNECT_DEADLINE)))
}

/// Returns the address to which a connection to `address` leads: from the unspecified ones to those
/// of loopback.
fn other_end(address: SocketAddr) -> SocketAddr {
    match address.ip() {
        IpAddr::V4(Ipv4Addr::UNSPECIFIED) => {
            SocketAddr::new(Ipv4Addr::LOCALHOST.into(), address.port())
        }
        IpAddr::V6(Ipv6Addr::UNSPECIFIED) => {
            SocketAddr::new(Ipv6Addr::LOCALHOST.into(), address.port())
        }
        _ => address,
    }
}

/// Returns the result of `work`, which is given up if `client` is reset first, and has sent nothing
/// and not closed: what came before a FIN is to be delivered.
///
/// # Errors
/// Fails if `work` does, and with `ConnectionReset`.
pub(crate) async fn unless_reset<T>(
    client: &TcpStream,
    work: impl Future<Output = io::Result<T>>,
) -> io::Result<T> {
    let mut work = pin!(work);
    tokio::select! {
        done = &mut work => return done,
        _ = client.ready(Interest::ERROR) => {}
    }
    match SockRef::from(client).peek(&mut [MaybeUninit::uninit()]) {
        Err(error) if error.kind() == io::ErrorKind::ConnectionReset => {
            Err(io::Error::new(error.kind(), "the client has reset it"))
        }
        _ => work.await,
    }
}

pub(crate) fn timeout_error(deadline: Duration) -> io::Error {
    io::Error::new(
        io::ErrorKind::TimedOut,
        format!("no answer within {} s", deadline.as_secs()),
    )
}

/// Raises the limit of open files to its maximum.
///
/// # Errors
/// Fails if it is too low for so many connections.
pub(crate) fn raise_descriptors(options: &RelayOptions) -> Result<(), RelayError> {
    let permitted = most_descriptors();
    let needed = needed_descriptors(options);
    if permitted < needed {
        return Err(RelayError::Descriptors {
            wanted: options.max_connections,
            needed,
            permitted,
        });
    }
    Ok(())
}

/// Returns the number of file descriptors that a relay needs.
fn needed_descriptors(options: &RelayOptions) -> u64 {
    let more = match options.role {
        RelayRole::Alone { .. } => 0,
        RelayRole::Near { pool, .. } => pool.into(),
        RelayRole::Far { .. } => MAX_PENDING as u64,
    };
    2 * (u64::from(options.max_connections) + MAX_PIPES as u64) + more + RESERVED_DESCRIPTORS
}

#[cfg(test)]
mod tests {
    use super::*;
    use fullpipe_iperf::SharedKey;
    use fullpipe_units::Span;
    use std::io::Write;
    use std::net::Shutdown;
    use std::time::Instant;
    use tokio::runtime::Builder;

    fn within<T>(work: impl Future<Output = T>) -> T {
        let runtime = Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(async {
            timeout(CONNECT_DEADLINE, work)
                .await
                .expect("it does not last so long")
        })
    }

    #[test]
    fn an_address_that_does_not_answer_does_not_keep_others_from_being_tried() {
        within(async {
            let answers = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
            // The queue of connections of this one is full, so that it drops SYNs.
            let silent =
                socket2::Socket::new(socket2::Domain::IPV4, socket2::Type::STREAM, None).unwrap();
            silent
                .bind(&SocketAddr::from(([127, 0, 0, 1], 0)).into())
                .unwrap();
            silent.listen(0).unwrap();
            let drops = silent.local_addr().unwrap().as_socket().unwrap();
            let _queued = TcpStream::connect(drops).await.unwrap();
            let refuses = SocketAddr::from(([127, 0, 0, 1], fullpipe_testkit::free_port()));
            let address = answers.local_addr().unwrap();
            let began = Instant::now();
            let stream = connect_to_any(&[refuses, drops, address], Duration::from_millis(20))
                .await
                .unwrap();
            assert_eq!(stream.peer_addr().unwrap(), address);
            assert!(
                began.elapsed() >= Duration::from_millis(20),
                "the one before it was tried first"
            );
            let error = connect_to_any(&[refuses, refuses], NEXT_ADDRESS)
                .await
                .unwrap_err();
            assert_eq!(error.kind(), io::ErrorKind::ConnectionRefused);
            assert_eq!(
                connect_to_any(&[], NEXT_ADDRESS).await.unwrap_err().kind(),
                io::ErrorKind::NotFound
            );
        });
    }

    #[test]
    fn ends_with_one_address_or_that_of_loopback_are_within_the_host() {
        for (own, other, expected) in [
            ("127.0.0.1:9", "127.0.0.1:22", true),
            ("127.0.0.1:9", "127.0.0.7:22", true),
            ("[::1]:9", "[::1]:22", true),
            ("[::ffff:127.0.0.1]:9", "127.0.0.1:22", true),
            ("192.0.2.1:9", "192.0.2.1:22", true),
            ("192.0.2.1:9", "192.0.2.2:22", false),
            ("[2001:db8::1]:9", "[2001:db8::2]:22", false),
        ] {
            assert_eq!(
                are_within_host(own.parse().unwrap(), other.parse().unwrap()),
                expected,
                "{own} {other}"
            );
        }
    }

    /// The unspecified addresses lead to those of loopback: each connection made another one.
    #[test]
    fn a_relay_is_known_by_every_address_that_leads_to_itself() {
        within(async {
            for (own, targets) in [
                (
                    "127.0.0.1",
                    &[
                        "127.0.0.1",
                        "0.0.0.0",
                        "0",
                        "::ffff:127.0.0.1",
                        "::ffff:0.0.0.0",
                    ][..],
                ),
                ("::ffff:127.0.0.1", &["127.0.0.1", "0.0.0.0"]),
                ("::1", &["::1", "::"]),
            ] {
                let Ok(listener) = std::net::TcpListener::bind((own, 0)) else {
                    continue;
                };
                listener.set_nonblocking(true).unwrap();
                let ours = listener.local_addr().unwrap();
                for host in targets {
                    let target = TargetAddress {
                        host: (*host).to_owned(),
                        port: ours.port(),
                    };
                    let reached = connect_target(&target, Some(ours)).await;
                    assert!(
                        reached.is_err_and(|error| error.to_string().contains("itself")),
                        "{host}"
                    );
                    assert!(listener.accept().is_err(), "{host} was called");
                }
                assert!(
                    connect_target(
                        &TargetAddress {
                            host: own.to_owned(),
                            port: ours.port()
                        },
                        None
                    )
                    .await
                    .is_ok()
                );
            }
        });
    }

    #[test]
    fn nothing_is_done_for_a_client_that_was_reset_unless_it_had_sent_something_or_closed() {
        /// Returns the result of the work for a client that does this and is reset then.
        async fn done(act: impl FnOnce(&std::net::TcpStream)) -> io::Result<u8> {
            let listener = TcpListener::bind("127.0.0.1:0").await?;
            let client = std::net::TcpStream::connect(listener.local_addr()?)?;
            let (accepted, _) = listener.accept().await?;
            act(&client);
            SockRef::from(&client).set_linger(Some(Duration::ZERO))?;
            drop(client);
            let work = async {
                tokio::time::sleep(Duration::from_millis(50)).await;
                Ok(7)
            };
            unless_reset(&accepted, work).await
        }
        within(async {
            assert_eq!(
                done(|_| ()).await.unwrap_err().kind(),
                io::ErrorKind::ConnectionReset
            );
            assert_eq!(
                done(|client| client.shutdown(Shutdown::Write).unwrap())
                    .await
                    .unwrap(),
                7
            );
            assert_eq!(
                done(|mut client| client.write_all(b"last").unwrap())
                    .await
                    .unwrap(),
                7
            );
        });
    }

    #[test]
    fn connections_that_wait_for_clients_need_descriptors_too() {
        let key = || SharedKey::from_file_content(b"correct horse battery").unwrap();
        let target: TargetAddress = "host:22".parse().unwrap();
        let needed = |role| {
            needed_descriptors(&RelayOptions {
                address: None,
                port: 0,
                allow: Vec::new(),
                max_connections: 20,
                max_connections_per_address: 20,
                drain: Span::ZERO,
                interval: None,
                role,
            })
        };
        let near = |pool| RelayRole::Near {
            to: target.clone(),
            via: target.clone(),
            key: key(),
            plain: true,
            compress: false,
            pool,
        };
        let alone = needed(RelayRole::Alone { to: target.clone() });
        assert_eq!(needed(near(240)), alone + 240);
        let far = needed(RelayRole::Far {
            targets: Vec::new(),
            key: key(),
            plain: true,
        });
        assert_eq!(far, alone + MAX_PENDING as u64);
    }
}
