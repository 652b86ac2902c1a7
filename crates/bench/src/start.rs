//! From the start of a program to its first byte of data, as a relay before the server sees it.

use std::io::{self, Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::AtomicBool;
use std::sync::mpsc::{self, Receiver, RecvTimeoutError, Sender};
use std::thread;
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};

use crate::comparison::{Outcome, Quantity, alternate};
use crate::figures;
use crate::network::free_port;
use crate::process::{Process, RunError, check_interrupt};
use crate::program::{Load, Program, Tools, Traffic};

/// Number of starts of each program.
const STARTS: usize = 20;

const CONTESTANTS: [(&str, Program); 2] =
    [("fullpipe", Program::Fullpipe), ("iperf3", Program::Iperf3)];

/// The first bytes of each connection: 36 letters and a zero (iperf3's protocol).
const COOKIE: usize = 37;

/// Time that a server may take to answer, and a client to send data.
const TIMEOUT: Duration = Duration::from_secs(10);

/// Longest that Ctrl-C goes unheard.
const INTERRUPT_POLL_INTERVAL: Duration = Duration::from_millis(100);

/// Compares how soon each program sends data.
pub(crate) fn compare(tools: &Tools, stop: &AtomicBool) -> Outcome {
    let names = CONTESTANTS.map(|(name, _)| name.to_owned());
    alternate(&names, &[Quantity::MillisecondsToData], STARTS, |number| {
        let taken = time_to_data(CONTESTANTS[number].1, tools, stop)?;
        Ok(vec![taken.as_secs_f64() * 1e3])
    })
}

/// The client is killed as soon as it is known: what it would measure is not asked.
fn time_to_data(program: Program, tools: &Tools, stop: &AtomicBool) -> Result<Duration, RunError> {
    let load = Load {
        traffic: Traffic::Tcp,
        streams: 1,
        seconds: 1.0,
    };
    let port = free_port()?;
    let mut server =
        Process::start(&mut program.server(tools, Ipv4Addr::LOCALHOST, port, load.traffic))?;
    server.wait_for_port(program.port(port, load.traffic), TIMEOUT, stop)?;
    let relay = Relay::start(port)?;
    let mut client = program.client(tools, Ipv4Addr::LOCALHOST, relay.port, &load, &[]);
    let began = Instant::now();
    let client = Process::start(&mut client)?;
    match relay.first_data(stop) {
        Ok(stamp) => Ok(stamp.saturating_duration_since(began)),
        Err(RunError::Failed(why)) => {
            Err(own_words(program, client, stop).unwrap_or(RunError::Failed(why)))
        }
        Err(interrupted) => Err(interrupted),
    }
}

/// Returns what a client says that has ended without data.
fn own_words(program: Program, client: Process, stop: &AtomicBool) -> Option<RunError> {
    let ended = client.finish(INTERRUPT_POLL_INTERVAL, stop).ok()?;
    figures::read(program, &ended, "")
        .err()
        .map(RunError::Failed)
}

/// Forwards two connections to a server, the control connection and one of data, and stamps the
/// first byte of data.
struct Relay {
    port: u16,
    stamp: Receiver<Instant>,
}

impl Relay {
    fn start(server: u16) -> io::Result<Self> {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?;
        let port = listener.local_addr()?.port();
        let (found, stamp) = mpsc::channel();
        thread::spawn(move || forward_two(&listener, (Ipv4Addr::LOCALHOST, server).into(), &found));
        Ok(Self { port, stamp })
    }

    fn first_data(&self, stop: &AtomicBool) -> Result<Instant, RunError> {
        let deadline = Instant::now() + TIMEOUT;
        while Instant::now() < deadline {
            check_interrupt(stop)?;
            match self.stamp.recv_timeout(INTERRUPT_POLL_INTERVAL) {
                Ok(stamp) => return Ok(stamp),
                Err(RecvTimeoutError::Disconnected) => {
                    return Err(RunError::failed("it ended without sending data"));
                }
                Err(RecvTimeoutError::Timeout) => {}
            }
        }
        Err(RunError::Failed(format!(
            "it sent no data within {TIMEOUT:?}"
        )))
    }
}

/// Joins the control connection to the server, and hands the cookie of the second one over.
fn forward_two(
    listener: &TcpListener,
    server: SocketAddr,
    found: &Sender<Instant>,
) -> io::Result<()> {
    let (client, far) = (accept(listener)?, connect(server)?);
    let (client_again, far_again) = (client.try_clone()?, far.try_clone()?);
    thread::spawn(move || io::copy(&mut &client, &mut &far));
    thread::spawn(move || io::copy(&mut &far_again, &mut &client_again));
    let (mut client, mut far) = (accept(listener)?, connect(server)?);
    let mut cookie = [0; COOKIE];
    client.read_exact(&mut cookie)?;
    far.write_all(&cookie)?;
    client.read_exact(&mut [0])?;
    // Nobody asks any more once it is too late.
    let _ = found.send(Instant::now());
    // The client is killed then.
    io::copy(&mut client, &mut far).map(drop)
}

fn connect(server: SocketAddr) -> io::Result<TcpStream> {
    let stream = TcpStream::connect_timeout(&server, TIMEOUT)?;
    stream.set_nodelay(true)?;
    Ok(stream)
}

/// The next connection, if it comes in time.
fn accept(listener: &TcpListener) -> io::Result<TcpStream> {
    let timeout = Timespec {
        tv_sec: TIMEOUT.as_secs().cast_signed(),
        tv_nsec: 0,
    };
    if poll(&mut [PollFd::new(listener, PollFlags::IN)], Some(&timeout))? == 0 {
        return Err(io::ErrorKind::TimedOut.into());
    }
    let stream = listener.accept()?.0;
    stream.set_nodelay(true)?;
    Ok(stream)
}

#[cfg(test)]
mod tests {
    use super::*;

    static NEVER: AtomicBool = AtomicBool::new(false);

    #[test]
    fn data_begins_after_the_cookie_of_the_second_connection() {
        let server = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        let relay = Relay::start(server.local_addr().unwrap().port()).unwrap();
        let connect = || TcpStream::connect((Ipv4Addr::LOCALHOST, relay.port)).unwrap();
        let mut control = connect();
        control.write_all(&[0; 2 * COOKIE]).unwrap();
        let mut data = connect();
        data.write_all(&[0; COOKIE]).unwrap();
        let (_control, mut far) = (server.accept().unwrap().0, server.accept().unwrap().0);
        let mut cookie = [1; COOKIE];
        far.read_exact(&mut cookie).unwrap();
        assert!(
            relay.stamp.try_recv().is_err(),
            "nothing but cookies has come"
        );
        let before = Instant::now();
        data.write_all(&[0]).unwrap();
        let stamp = relay.first_data(&NEVER).unwrap();
        assert!(stamp >= before && stamp <= Instant::now());
    }

    #[test]
    fn a_client_that_ends_without_data_is_reported() {
        let server = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        let relay = Relay::start(server.local_addr().unwrap().port()).unwrap();
        let connect = || drop(TcpStream::connect((Ipv4Addr::LOCALHOST, relay.port)).unwrap());
        connect();
        connect();
        let (_first, _second) = (server.accept().unwrap(), server.accept().unwrap());
        let error = relay.first_data(&NEVER).unwrap_err();
        assert_eq!(error.to_string(), "it ended without sending data");
    }
}
