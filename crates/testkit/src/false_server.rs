use std::io::{Read, Write};
use std::net::{Ipv4Addr, TcpListener, TcpStream};
use std::thread;

/// Length of an iperf3 client's first message.
const COOKIE_LENGTH: usize = 37;

/// The state with which a client announces the end of the test.
const TEST_END: u8 = 4;

/// The behaviour of a server that is none, or that fails in the middle of a test.
#[derive(Debug, Clone, Copy)]
pub enum Part {
    /// It closes at once.
    HangsUp,
    /// It says this at once, and then waits for the client to go.
    Says(&'static [u8]),
    /// It reads the cookie, answers so, and closes.
    Answers(&'static [u8]),
    /// It goes through these states of an iperf3 server for a test of one stream, and then holds
    /// its connections without a word.
    FallsSilentAfter(&'static [u8]),
}

/// A server on a loopback port that serves one client badly.
#[derive(Debug)]
pub struct FalseServer {
    port: u16,
}

impl FalseServer {
    /// Starts it. It ends with the test's process.
    ///
    /// # Panics
    /// If no port is free.
    pub fn start(part: Part) -> Self {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("a port is free");
        let port = listener
            .local_addr()
            .expect("a bound socket has an address")
            .port();
        thread::spawn(move || play(&listener, part));
        Self { port }
    }

    /// Its port.
    pub fn port(&self) -> u16 {
        self.port
    }
}

fn play(listener: &TcpListener, part: Part) -> std::io::Result<()> {
    let (mut control, _) = listener.accept()?;
    match part {
        Part::HangsUp => Ok(()),
        Part::Says(words) => {
            control.write_all(words)?;
            control.read_to_end(&mut Vec::new()).map(drop)
        }
        Part::Answers(words) => {
            control.read_exact(&mut [0; COOKIE_LENGTH])?;
            control.write_all(words)
        }
        Part::FallsSilentAfter(states) => {
            control.read_exact(&mut [0; COOKIE_LENGTH])?;
            let mut data = Vec::new();
            for state in states {
                enter(*state, &mut control, listener, &mut data)?;
            }
            // The connections stay open as long as this thread lives.
            loop {
                thread::park();
            }
        }
    }
}

/// Sends one state, and waits for what the client does before the next.
fn enter(
    state: u8,
    control: &mut TcpStream,
    listener: &TcpListener,
    data: &mut Vec<TcpStream>,
) -> std::io::Result<()> {
    const PARAMETER_EXCHANGE: u8 = 9;
    const CREATE_STREAMS: u8 = 10;
    const EXCHANGE_RESULTS: u8 = 13;
    if state == EXCHANGE_RESULTS {
        let mut byte = [0];
        while byte != [TEST_END] {
            control.read_exact(&mut byte)?;
        }
    }
    control.write_all(&[state])?;
    match state {
        PARAMETER_EXCHANGE => {
            let mut length = [0; 4];
            control.read_exact(&mut length)?;
            control.read_exact(&mut vec![0; u32::from_be_bytes(length) as usize])?;
        }
        CREATE_STREAMS => data.push(listener.accept()?.0),
        _ => {}
    }
    Ok(())
}
