//! UDP streams on their way to their tests.
//!
//! A hello carries no cookie: all that joins it to a test is the address that it comes from. So it is answered only to an
//! address from which a control connection, a whole TCP handshake, has asked for a test that waits for streams; and the
//! tests of one address open their streams one after the other. Whatever else arrives is dropped without an answer: a
//! forged sender gets nothing reflected.

use std::cell::RefCell;
use std::collections::HashMap;
use std::io;
use std::net::{IpAddr, SocketAddr, UdpSocket as StdUdpSocket};
use std::rc::Rc;

use fullpipe_iperf::udp;
use fullpipe_load::{Local, PrepareError, prepare_udp};
use fullpipe_record::Request;
use socket2::{Domain, Protocol, Socket, Type};
use tokio::net::UdpSocket;
use tokio::sync::{Notify, mpsc};
use tokio::time::sleep;

use super::LOOK;
use super::listen::canonical;

/// Hellos that may wait for their test: as many as a test has streams in both directions.
const MOST_HELLOS: usize = 256;

/// Bytes that are read of a datagram; no hello is longer.
const READ: usize = 64;

/// Where hellos arrive.
pub(super) struct Flows {
    socket: UdpSocket,
    openings: RefCell<HashMap<IpAddr, mpsc::Sender<SocketAddr>>>,
    freed: Notify,
}

/// The turn of a test to have its streams opened, as long as this lives.
pub(super) struct Opening {
    flows: Rc<Flows>,
    client: IpAddr,
    hellos: mpsc::Receiver<SocketAddr>,
}

impl Flows {
    /// Waits for datagrams where a server listens for connections.
    ///
    /// # Errors
    /// If the address is taken or not ours.
    pub(super) fn listen(address: SocketAddr) -> io::Result<Rc<Self>> {
        let socket = bound(address)?;
        socket.set_nonblocking(true)?;
        let socket = UdpSocket::from_std(socket.into())?;
        Ok(Rc::new(Self { socket, openings: RefCell::default(), freed: Notify::new() }))
    }

    /// Hands hellos to the tests that wait for them.
    pub(super) async fn run(self: Rc<Self>) {
        let mut buffer = [0; READ];
        loop {
            match self.socket.recv_from(&mut buffer).await {
                Ok((length, from)) if udp::is_hello(&buffer[..length]) => self.hand_over(from),
                Ok(_) => {}
                // An answer to a caller that is gone may come back as an error.
                Err(_) => sleep(LOOK).await,
            }
        }
    }

    fn hand_over(&self, from: SocketAddr) {
        if let Some(test) = self.openings.borrow().get(&canonical(from).ip()) {
            // More hellos than a test has streams are not from its client.
            let _ = test.try_send(canonical(from));
        }
    }

    /// Waits until no other test of `client` is opening streams.
    pub(super) async fn turn(self: &Rc<Self>, client: IpAddr) -> Opening {
        loop {
            let freed = self.freed.notified();
            if !self.openings.borrow().contains_key(&client) {
                let (sender, hellos) = mpsc::channel(MOST_HELLOS);
                self.openings.borrow_mut().insert(client, sender);
                return Opening { flows: Rc::clone(self), client, hellos };
            }
            freed.await;
        }
    }
}

impl Opening {
    /// Who asks for the next stream.
    pub(super) async fn hello(&mut self) -> Option<SocketAddr> {
        self.hellos.recv().await
    }
}

impl Drop for Opening {
    fn drop(&mut self) {
        self.flows.openings.borrow_mut().remove(&self.client);
        self.flows.freed.notify_waiters();
    }
}

/// A stream of its own for `peer`, from the address at which its client reached the server, with the hello answered. The
/// kernel gives a datagram to the socket that is connected to its sender rather than to the one that waits for anybody.
///
/// # Errors
/// What the kernel refused.
pub(super) fn answer(peer: SocketAddr, here: SocketAddr, request: &Request) -> Result<StdUdpSocket, PrepareError> {
    let socket = prepare_udp(peer, request, &Local::default())?;
    let connected = socket
        .set_reuse_address(true)
        .and_then(|()| socket.bind(&here.into()))
        .and_then(|()| socket.connect(&peer.into()))
        .and_then(|()| socket.send(&udp::REPLY));
    connected.map_err(PrepareError::of("the address of a UDP stream"))?;
    Ok(socket.into())
}

fn bound(address: SocketAddr) -> io::Result<Socket> {
    let socket = Socket::new(Domain::for_address(address), Type::DGRAM, Some(Protocol::UDP))?;
    if address.is_ipv6() {
        socket.set_only_v6(!address.ip().is_unspecified())?;
    }
    socket.set_reuse_address(true)?;
    socket.bind(&address.into())?;
    Ok(socket)
}
