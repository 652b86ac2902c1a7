//! The far end itself: what ssh starts.

use std::io::{self, BufRead, Write};
use std::net::{IpAddr, SocketAddr, TcpStream};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, sync_channel};
use std::thread::{self, ScopedJoinHandle};
use std::time::Duration;

use fullpipe_control::ConnectionHandover;
use fullpipe_iperf::{ServerKey, SharedKey};
use fullpipe_probe::{Printer, ServeError, ServeOptions, ServerEvent, serve_opened};
use fullpipe_record::Change;
use fullpipe_sys::random_bytes;
use fullpipe_units::to_hexadecimal;

use crate::pending_changes::WatchedJournal;

use super::{FarAnswer, FarRequest, SILENCE};

/// Longest request: the changes of a remedy are far shorter.
const MAX_REQUEST: u64 = 1 << 20;

/// Maximum number of connections that are opened at the same time.
const MAX_CALLS: u16 = 128;

/// Time for the near end to take a connection.
const CALL_DEADLINE: Duration = Duration::from_secs(5);

/// Serves tests on `port` (0 for any that is free) of an address, or else of that to which ssh
/// connected, to who has the key that it prints, and changes this host by `journal` as the near end
/// asks for over standard input. Returns when the near end closes its side, or is silent for a
/// minute; then changes that were not to stay have been taken back.
///
/// # Errors
/// Fails if no test can be served, of which the near end has been told, or if this system has no
/// random bytes.
pub fn serve_far_end(
    address: Option<IpAddr>,
    port: u16,
    journal: WatchedJournal,
    printer: Printer,
    interrupt: &AtomicBool,
) -> Result<(), ServeError> {
    let text = to_hexadecimal(&random_bytes::<32>().map_err(ServeError::Start)?);
    let key = SharedKey::from_file_content(text.as_bytes())
        .map_err(|error| ServeError::Start(io::Error::other(error)))?;
    let options = ServeOptions {
        bind: address.or_else(called_address),
        port,
        iperf2: false,
        key: Some(ServerKey::Shared(key)),
        ..ServeOptions::default()
    };
    let (handover, opened) = ConnectionHandover::new();
    thread::scope(|threads| {
        threads.spawn(move || {
            FarHost::new(journal, handover).obey(&read_requests());
            interrupt.store(true, Ordering::Relaxed);
        });
        let served = serve_opened(&options, opened, printer, interrupt, &mut |event| {
            if let ServerEvent::Listening(address) = event {
                answer(&FarAnswer::Serves {
                    key: text.clone(),
                    port: address.port(),
                });
            }
        });
        if let Err(error) = &served {
            answer(&FarAnswer::Failed(error.to_string()));
        }
        served
    })
}

/// Returns the address to which ssh connected, if others reach it too.
fn called_address() -> Option<IpAddr> {
    ssh_address(2).filter(|address| !address.is_loopback())
}

/// Returns an address of ssh's connection, which is word `place` of what sshd says of it (sshd(8),
/// `SSH_CONNECTION`): 0 is that of the near end, 2 of this one.
fn ssh_address(place: usize) -> Option<IpAddr> {
    let connection = std::env::var("SSH_CONNECTION").ok()?;
    connection.split(' ').nth(place)?.parse().ok()
}

/// Opens `count` connections to `near`, each of which begins with `token`.
fn open_calls(near: SocketAddr, count: u16, token: &str) -> io::Result<Vec<TcpStream>> {
    let open_call = || {
        let mut call = TcpStream::connect_timeout(&near, CALL_DEADLINE)?;
        call.write_all(token.as_bytes())?;
        call.set_nonblocking(true)?;
        Ok(call)
    };
    thread::scope(|threads| {
        let calls: Vec<_> = (0..count).map(|_| threads.spawn(open_call)).collect();
        let opened = calls.into_iter().map(ScopedJoinHandle::join);
        opened
            .map(|call| call.unwrap_or_else(|_| Err(io::Error::other("a thread ended"))))
            .collect()
    })
}

/// Returns the requests on standard input; they end with it, or with a line that is none.
fn read_requests() -> Receiver<FarRequest> {
    let (sender, requests) = sync_channel(1);
    thread::spawn(move || {
        let mut lines = io::stdin().lock();
        loop {
            let mut line = Vec::new();
            let mut bounded = io::Read::take(&mut lines, MAX_REQUEST);
            let read = bounded.read_until(b'\n', &mut line);
            let Some(request) = read.ok().and_then(|_| serde_json::from_slice(&line).ok()) else {
                return;
            };
            if sender.send(request).is_err() {
                return;
            }
        }
    });
    requests
}

/// Writes an answer; a near end that is gone is noticed by its silence.
fn answer(answer: &FarAnswer) {
    if let Ok(text) = serde_json::to_string(answer) {
        let _ = writeln!(io::stdout().lock(), "{text}");
        let _ = io::stdout().flush();
    }
}

/// The host of the far end, and what of it waits to be taken back.
struct FarHost {
    journal: WatchedJournal,
    /// Names of the changes in the journal, in order.
    pending: Vec<String>,
    /// Where connections to the near end are served.
    handover: ConnectionHandover,
}

impl FarHost {
    const fn new(journal: WatchedJournal, handover: ConnectionHandover) -> Self {
        Self {
            journal,
            pending: Vec::new(),
            handover,
        }
    }

    /// Does what is asked until the near end is gone, and takes back what waits.
    fn obey(mut self, requests: &Receiver<FarRequest>) {
        loop {
            match requests.recv_timeout(SILENCE) {
                Ok(FarRequest::Pulse) => {}
                Ok(FarRequest::Call { port, count, token }) => {
                    answer(&self.call_near_end(port, count, &token));
                }
                Ok(FarRequest::Apply(changes)) => answer(&self.apply(&changes)),
                Ok(FarRequest::Settle { stay }) => answer(&self.settle(stay)),
                Err(RecvTimeoutError::Timeout | RecvTimeoutError::Disconnected) => break,
            }
        }
        self.settle(false);
    }

    /// Opens connections to a port of the near end, and has them served.
    fn call_near_end(&self, port: u16, count: u16, token: &str) -> FarAnswer {
        if count > MAX_CALLS {
            return FarAnswer::Failed(format!("more than {MAX_CALLS} connections are asked for"));
        }
        let Some(near) = ssh_address(0) else {
            return FarAnswer::Failed("no address of the near end is known".to_owned());
        };
        let near = SocketAddr::new(near, port);
        match open_calls(near, count, token) {
            Ok(calls) => {
                for call in calls {
                    self.handover.pass_connection(call, near);
                }
                FarAnswer::Done
            }
            Err(error) => FarAnswer::Failed(format!("cannot reach {near}: {error}")),
        }
    }

    fn apply(&mut self, changes: &[Change]) -> FarAnswer {
        match self.journal.apply_pending(changes) {
            Ok(name) => {
                self.pending.extend(name);
                FarAnswer::Done
            }
            Err(error) => FarAnswer::Failed(error.to_string()),
        }
    }

    fn settle(&mut self, stay: bool) -> FarAnswer {
        let names = self.pending.drain(..).rev();
        let left: Vec<String> = names
            .filter_map(|name| self.journal.settle_changes(&name, stay))
            .collect();
        if left.is_empty() {
            FarAnswer::Done
        } else {
            FarAnswer::Failed(left.join("; "))
        }
    }
}
