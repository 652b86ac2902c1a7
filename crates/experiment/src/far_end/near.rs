//! The near end's side of a far end.

use std::io;
use std::net::{TcpStream, ToSocketAddrs};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::Duration;

use fullpipe_control::{
    FarEndError, FarEndOptions, FarProgram, SshHost, SshTunnel, configured_host,
};
use fullpipe_iperf::SharedKey;
use fullpipe_probe::{CallBack, LocalEndpoint};
use fullpipe_record::Change;
use fullpipe_sys::lock;
use fullpipe_units::printable_line;
use thiserror::Error;

use super::{FarAnswer, FarRequest, PULSE};

/// Time for a port of the far end to answer.
const CONNECT_DEADLINE: Duration = Duration::from_secs(5);

/// Time for an answer of the far end: more than the journal's lock may take.
const ANSWER_DEADLINE: Duration = Duration::from_secs(30);

/// Address of the data that goes through ssh, at both hosts.
const LOOPBACK: &str = "127.0.0.1";

/// A far end that cannot be had, or does not do what is asked.
#[derive(Debug, Error)]
pub enum FarEndFailure {
    /// The program there.
    #[error(transparent)]
    Program(#[from] FarEndError),
    /// The far end refused, or ssh reaches the host and data does not.
    #[error("{0}")]
    Other(String),
}

/// A far end that serves this one's tests. It ends with this value, and takes back what was changed
/// there and not told to stay.
#[derive(Debug)]
pub struct FarEnd {
    program: Arc<Mutex<FarProgram>>,
    login: String,
    /// Host to which tests connect.
    pub host: String,
    /// Port at which the far end listens.
    port: u16,
    /// Key that the far end asks for.
    pub key: SharedKey,
    /// Set if the port does not answer: the far end opens the connections.
    pub call_back: Option<CallBack>,
    /// The way of the data, if it goes through ssh.
    tunnel: Option<SshTunnel>,
}

impl FarEnd {
    /// Starts a far end on `port` of a host (0 for any that is free).
    ///
    /// # Errors
    /// Fails if the program cannot be started there, or its port cannot be reached from here.
    pub fn start(
        host: &SshHost,
        options: &FarEndOptions,
        port: u16,
    ) -> Result<Self, FarEndFailure> {
        let mut words = ["serve", "--far-end", "--port", &port.to_string()]
            .map(str::to_owned)
            .to_vec();
        if host.tunnels_data {
            words.extend(["--bind", LOOPBACK].map(str::to_owned));
        }
        let mut program = FarProgram::start(host, options, &words)?;
        let login = host.login.clone();
        let FarAnswer::Serves { key, port: served } = next_answer(&mut program, &login)? else {
            return Err(program.nonsense("no port").into());
        };
        let key =
            SharedKey::from_file_content(key.as_bytes()).map_err(|_| program.nonsense("no key"))?;
        let mut far = Self {
            program: Arc::new(Mutex::new(program)),
            host: LOOPBACK.to_owned(),
            login,
            port: served,
            key,
            call_back: None,
            tunnel: None,
        };
        far.find_way(host, options, port)?;
        far.start_pulse();
        Ok(far)
    }

    /// Finds the way of the data: to the port of the far end, from there to `port` of this one, or
    /// through ssh if that was asked for.
    fn find_way(
        &mut self,
        host: &SshHost,
        options: &FarEndOptions,
        port: u16,
    ) -> Result<(), FarEndFailure> {
        if host.tunnels_data {
            self.tunnel = Some(SshTunnel::open(host, &options.ssh, self.port)?);
            return Ok(());
        }
        let login = &self.login;
        let name = login.rsplit_once('@').map_or(&**login, |(_, name)| name);
        self.host = configured_host(&options.ssh, login).unwrap_or_else(|| name.to_owned());
        if let Err(cause) = self.check_port() {
            self.call_back = Some(self.arrange_calls(port, &cause)?);
        }
        Ok(())
    }

    /// Returns the port of [`FarEnd::host`] to which tests connect.
    pub fn port(&self) -> u16 {
        self.tunnel.as_ref().map_or(self.port, |tunnel| tunnel.port)
    }

    /// Makes changes at the far end, as ones that wait to be settled.
    ///
    /// # Errors
    /// Fails if the far end refuses one; then none is made.
    pub fn apply_changes(&self, changes: &[Change]) -> Result<(), FarEndFailure> {
        self.ask(&FarRequest::Apply(changes.to_vec()))
    }

    /// Lets the changes at the far end stay, or takes them back.
    ///
    /// # Errors
    /// Fails if something could not be put back, with why.
    pub fn settle_changes(&self, stay: bool) -> Result<(), FarEndFailure> {
        self.ask(&FarRequest::Settle { stay })
    }

    fn ask(&self, request: &FarRequest) -> Result<(), FarEndFailure> {
        let mut program = lock(&self.program);
        match ask(&mut program, request, &self.login)? {
            FarAnswer::Done => Ok(()),
            _ => Err(program.nonsense("a port").into()),
        }
    }

    /// Returns the way in which the far end opens connections to `port` of this end.
    ///
    /// # Errors
    /// Fails if none arrives; `cause` is why its own port cannot be reached.
    fn arrange_calls(&self, port: u16, cause: &io::Error) -> Result<CallBack, FarEndFailure> {
        let (program, login) = (Arc::downgrade(&self.program), self.login.clone());
        let way = CallBack::new(port, move |calls| {
            let gone = || io::Error::other("the far end has ended");
            let program = program.upgrade().ok_or_else(gone)?;
            let request = FarRequest::Call {
                port: calls.port,
                count: calls.count,
                token: calls.token.clone(),
            };
            ask(&mut lock(&program), &request, &login)
                .map(drop)
                .map_err(io::Error::other)
        });
        match way.check(&LocalEndpoint::default(), CONNECT_DEADLINE) {
            Ok(()) => Ok(way),
            Err(call) => Err(FarEndFailure::Other(format!(
                "ssh reaches {}, but port {} of {}, where its far end waits, does not answer ({cause}), and the far \
                 end cannot call back ({call}): open the port in the firewall there, or choose another by --port; \
                 `measure --through-ssh` measures ssh in place of the path",
                self.login, self.port, self.host
            ))),
        }
    }

    /// Fails if the port cannot be reached from here.
    fn check_port(&self) -> io::Result<()> {
        let mut failed = io::Error::new(io::ErrorKind::NotFound, "it has no address");
        let addresses = (&*self.host, self.port).to_socket_addrs();
        for address in addresses.into_iter().flatten() {
            match TcpStream::connect_timeout(&address, CONNECT_DEADLINE) {
                Ok(_) => return Ok(()),
                Err(error) => failed = error,
            }
        }
        Err(failed)
    }

    /// Shows the far end that this end is there, for as long as it is.
    fn start_pulse(&self) {
        let program = Arc::downgrade(&self.program);
        thread::spawn(move || {
            loop {
                thread::sleep(PULSE);
                let Some(program) = program.upgrade() else {
                    return;
                };
                if send(&mut lock(&program), &FarRequest::Pulse).is_err() {
                    return;
                }
            }
        });
    }
}

fn send(program: &mut FarProgram, request: &FarRequest) -> Result<(), FarEndError> {
    let text =
        serde_json::to_string(request).map_err(|error| program.nonsense(&error.to_string()))?;
    program.write(format!("{text}\n").as_bytes())
}

/// Sends a request and returns its answer.
fn ask(
    program: &mut FarProgram,
    request: &FarRequest,
    login: &str,
) -> Result<FarAnswer, FarEndFailure> {
    send(program, request)?;
    next_answer(program, login)
}

fn next_answer(program: &mut FarProgram, login: &str) -> Result<FarAnswer, FarEndFailure> {
    let line = program.next_line(ANSWER_DEADLINE, "when it was asked to work")?;
    match serde_json::from_str(&line) {
        Ok(FarAnswer::Failed(why)) => Err(FarEndFailure::Other(format!(
            "{login}: {}",
            printable_line(&why)
        ))),
        Ok(answer) => Ok(answer),
        Err(_) => Err(program.nonsense(&line).into()),
    }
}
