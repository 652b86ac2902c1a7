//! The network between client and server: both on loopback, or in two network namespaces joined by
//! a pair of devices.

use std::io;
use std::net::{Ipv4Addr, TcpListener};
use std::process::Command;
use std::thread;

use fullpipe_sys::{
    Ipv4Link, NetNamespace, configure_ipv4, create_veth, enter_before_exec, loopback_up,
    single_segments,
};
use fullpipe_units::{ByteCount, SegCount};

use crate::process::RunError;

/// Name of both devices of the pair.
const DEVICE: &str = "bench0";

/// Of the block that RFC 2544 reserves for benchmarks.
const CLIENT: Ipv4Addr = Ipv4Addr::new(198, 18, 1, 1);
const SERVER: Ipv4Addr = Ipv4Addr::new(198, 18, 1, 2);

/// The connection between client and server.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Joint {
    Loopback,
    /// A pair of Ethernet devices that take what the kernel hands them, however long.
    Veth,
    /// The same, but trains of segments or datagrams are cut before the device, as for one that
    /// cannot do it.
    VethSingle,
}

/// One of them, ready.
#[derive(Debug)]
pub(crate) enum Network {
    Loopback,
    Joined(Pair),
}

#[derive(Debug)]
pub(crate) struct Pair {
    client: NetNamespace,
    server: NetNamespace,
}

impl Network {
    /// Makes it; the error says what would permit it. It goes with the value.
    pub(crate) fn make(joint: Joint) -> Result<Self, RunError> {
        if joint == Joint::Loopback {
            return Ok(Self::Loopback);
        }
        // On a thread of its own, because it moves into the namespaces that it makes.
        let made = thread::spawn(move || Pair::make(joint)).join();
        let made = made.map_err(|_| RunError::failed("making two namespaces failed"))?;
        made.map(Self::Joined).map_err(|error| {
            let hint = if error.kind() == io::ErrorKind::PermissionDenied {
                "; run it as root"
            } else {
                ""
            };
            RunError::Failed(format!(
                "no two namespaces can be made and joined: {error}{hint}"
            ))
        })
    }

    /// Returns where the client finds the server.
    pub(crate) fn server_address(&self) -> Ipv4Addr {
        match self {
            Self::Loopback => Ipv4Addr::LOCALHOST,
            Self::Joined(_) => SERVER,
        }
    }

    /// Lets `command` start as the client's side.
    pub(crate) fn place_client(&self, command: &mut Command) -> Result<(), RunError> {
        self.place(command, "client", |pair| &pair.client)
    }

    /// Lets `command` start as the server's side.
    pub(crate) fn place_server(&self, command: &mut Command) -> Result<(), RunError> {
        self.place(command, "server", |pair| &pair.server)
    }

    fn place(
        &self,
        command: &mut Command,
        name: &str,
        side: fn(&Pair) -> &NetNamespace,
    ) -> Result<(), RunError> {
        match self {
            Self::Loopback => Ok(()),
            Self::Joined(pair) => {
                enter_before_exec(command, side(pair), name).map_err(RunError::failed)
            }
        }
    }
}

impl Pair {
    fn make(joint: Joint) -> io::Result<Self> {
        let server = NetNamespace::create()?;
        let client = NetNamespace::create()?;
        let single = joint == Joint::VethSingle;
        create_veth(DEVICE, [&client, &server])?;
        configure(CLIENT, SERVER, single)?;
        server.enter()?;
        configure(SERVER, CLIENT, single)?;
        Ok(Self { client, server })
    }
}

/// Sets up the namespace of the calling thread.
fn configure(local: Ipv4Addr, peer: Ipv4Addr, single: bool) -> io::Result<()> {
    const MTU: ByteCount = ByteCount::new(1500);
    const TRANSMIT_QUEUE: SegCount = SegCount::new(20_000);
    loopback_up()?;
    if single {
        single_segments(DEVICE)?;
    }
    configure_ipv4(
        DEVICE,
        Ipv4Link {
            local,
            peer,
            mtu: MTU,
            transmit_queue: TRANSMIT_QUEUE,
        },
    )
}

/// A port that nobody has at the moment.
pub(crate) fn free_port() -> Result<u16, RunError> {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?;
    Ok(listener.local_addr()?.port())
}
