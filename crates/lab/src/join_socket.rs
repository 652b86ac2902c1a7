//! The way into a lab that stands: a name on this machine, behind which its namespaces are handed
//! out.
//!
//! Every program of this user can list the names, and ask for the end of a lab.
//!
//! The name is that of an abstract Unix socket, so that the kernel forgets it with the lab, however
//! that ends. Whoever connects and is the same user gets descriptors of the lab's namespaces and
//! enters them himself: his program is then his own child, at his own terminal, and ends with the
//! lab.

use std::collections::BTreeSet;
use std::ffi::OsStr;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::process::ExitStatusExt;
use std::process::{Child, Command, ExitStatus};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant, SystemTime};

use fullpipe_sys::{
    NetNamespace, UnsharePrivilege, end_with_this_thread, enter_before_exec, enter_process,
    receive_with_descriptors, send_with_descriptors, wait_readable,
};
use rustix::io::{Errno, retry_on_intr};
use rustix::net::{
    AddressFamily, Shutdown, SocketAddrUnix, SocketFlags, SocketType, accept_with, bind, connect,
    listen, shutdown, socket_with, sockopt,
};
use rustix::process::{
    Pid, PidfdFlags, Signal, geteuid, kill_process, pidfd_open, pidfd_send_signal,
};

use crate::error::LabError;
use crate::protocol::Host;

/// Beginning of the greeting to a program that may join, sent with the descriptors of the
/// namespaces. After it come the time at which the lab was opened, in seconds since 1970, and its
/// description.
const WELCOME: &str = "fullpipe-lab 1";

/// Longest greeting in bytes.
const MAX_GREETING: usize = 1024;

/// Beginning of the names of all labs of this machine in `/proc/net/unix`, before the user and the
/// lab.
const NAMES_BEGIN: &str = "fullpipe-lab/";

/// The longest that a lab that stands may take to answer.
const TIMEOUT: Duration = Duration::from_secs(5);

/// The longest that a program may take to end after it was asked to.
const END_TIMEOUT: Duration = Duration::from_secs(3);

/// The longest that a lab that stands may take to end: its programs, its link and its cross traffic
/// do before.
const END_OF_LAB_TIMEOUT: Duration = Duration::from_secs(10);

/// The longest that a request to stop waits to be seen.
const POLL_INTERVAL: Duration = Duration::from_millis(100);

/// The descriptors with which a program joins a lab.
#[derive(Debug)]
pub(crate) struct LabEntry {
    /// The keeper, whose namespaces are those of every program in the lab.
    pub keeper: OwnedFd,
    /// The network of each host, by its number.
    pub networks: Vec<OwnedFd>,
}

impl LabEntry {
    fn try_clone(&self) -> io::Result<Self> {
        let networks = self
            .networks
            .iter()
            .map(OwnedFd::try_clone)
            .collect::<io::Result<_>>()?;
        Ok(Self {
            keeper: self.keeper.try_clone()?,
            networks,
        })
    }
}

/// A name under which a lab can be entered, for as long as this lives.
#[derive(Debug)]
pub struct JoinSocket {
    listener: Arc<OwnedFd>,
    accept_thread: Option<JoinHandle<()>>,
}

/// A lab that somebody else holds, to be entered.
#[derive(Debug)]
pub struct JoinedLab(LabEntry);

/// A lab that somebody holds with `fullpipe lab up`.
#[derive(Debug)]
pub struct StandingLab {
    /// Name with which its user's programs join it.
    pub name: String,
    /// Description of its path, in one line.
    pub description: String,
    /// Time since which it is open, if its holder says so.
    pub since: Option<SystemTime>,
    /// The process that holds it.
    holder: OwnedFd,
}

impl StandingLab {
    /// Returns this user's labs that answer, by name.
    ///
    /// # Errors
    /// If the kernel's list of sockets cannot be read.
    pub fn find_all() -> Result<Vec<Self>, LabError> {
        let table = std::fs::read_to_string("/proc/net/unix")
            .map_err(LabError::from_io("list the labs that are up"))?;
        let begin = format!("@{NAMES_BEGIN}{}/", geteuid().as_raw());
        let paths = table
            .lines()
            .filter_map(|line| line.split_whitespace().nth(7));
        let names: BTreeSet<&str> = paths.filter_map(|path| path.strip_prefix(&begin)).collect();
        Ok(names
            .into_iter()
            .filter_map(|name| Self::find_named(name).ok())
            .collect())
    }

    /// Returns this user's lab of that name.
    ///
    /// # Errors
    /// If there is none, or it does not answer within 5 s.
    pub fn find_named(name: &str) -> Result<Self, LabError> {
        let (visit, _, greeting) = connect_greeted(name)?;
        let action = format!("find the holder of the lab \"{name}\"");
        let cannot = LabError::from_io(&action);
        let holder = sockopt::socket_peercred(&visit)
            .and_then(|peer| pidfd_open(peer.pid, PidfdFlags::empty()));
        let mut lines = greeting.lines().skip(1);
        let seconds = lines.next().and_then(|seconds| seconds.parse().ok());
        Ok(Self {
            name: name.to_owned(),
            since: seconds.and_then(|seconds| {
                SystemTime::UNIX_EPOCH.checked_add(Duration::from_secs(seconds))
            }),
            description: lines.next().unwrap_or_default().to_owned(),
            holder: holder.map_err(|errno| cannot(errno.into()))?,
        })
    }

    /// Ends the lab and all programs in it, and waits for that.
    ///
    /// # Errors
    /// If its holder cannot be asked, or has not ended after 10 s.
    pub fn end_lab(&self) -> Result<(), LabError> {
        let action = format!("end the lab \"{}\"", self.name);
        let cannot = LabError::from_io(&action);
        match pidfd_send_signal(&self.holder, Signal::TERM) {
            Err(Errno::SRCH) => return Ok(()),
            Err(errno) => return Err(cannot(errno.into())),
            Ok(()) => {}
        }
        match retry_on_intr(|| wait_readable(&self.holder, END_OF_LAB_TIMEOUT)) {
            Ok(false) => Err(cannot(io::Error::new(
                io::ErrorKind::TimedOut,
                "its holder was asked to end and has not",
            ))),
            Ok(true) => Ok(()),
            Err(errno) => Err(cannot(errno.into())),
        }
    }
}

impl JoinSocket {
    /// Lets this user's programs into the lab under `name`, and shows them `description`, a line.
    ///
    /// # Errors
    /// If this user has a lab of that name already, or the name is too long.
    pub(crate) fn open(name: &str, description: &str, inside: &LabEntry) -> Result<Self, LabError> {
        let action = format!("be entered as \"{name}\"");
        let listener = listen_at(name).map_err(|errno| LabError::Refused {
            action: action.clone(),
            reason: match errno {
                Errno::ADDRINUSE => {
                    "there is a lab of that name already; choose another with --name".to_owned()
                }
                errno => io::Error::from(errno).to_string(),
            },
        })?;
        let inside = inside.try_clone().map_err(LabError::from_io(&action))?;
        let listener = Arc::new(listener);
        let watched = Arc::clone(&listener);
        let since = SystemTime::now()
            .duration_since(SystemTime::UNIX_EPOCH)
            .unwrap_or_default()
            .as_secs();
        let mut greeting = format!("{WELCOME}\n{since}\n{description}");
        greeting.truncate(greeting.floor_char_boundary(MAX_GREETING));
        Ok(Self {
            listener,
            accept_thread: Some(thread::spawn(move || {
                admit_programs(&watched, &greeting, &inside);
            })),
        })
    }
}

impl Drop for JoinSocket {
    fn drop(&mut self) {
        let _ = shutdown(&self.listener, Shutdown::Both);
        if let Some(accept_thread) = self.accept_thread.take() {
            let _ = accept_thread.join();
        }
    }
}

impl JoinedLab {
    /// Finds this user's lab of that name.
    ///
    /// # Errors
    /// If there is none, or it does not answer within 5 s.
    pub fn join_named(name: &str) -> Result<Self, LabError> {
        let (_, inside, _) = connect_greeted(name)?;
        Ok(Self(inside))
    }

    /// Runs a program in a host of the lab, with this program's input, output and errors, to its
    /// end, and returns its exit code, or 128 and the signal that ended it. Once `stop` is set, the
    /// program is asked to end. It is killed with this process, which must have one thread and is
    /// in the lab from then on.
    ///
    /// # Errors
    /// If the namespaces cannot be entered, or there is no such program.
    pub fn run(
        self,
        host: Host,
        program: &str,
        arguments: &[String],
        stop: &AtomicBool,
    ) -> Result<i32, LabError> {
        let action = format!("start `{program}` in the {}", host.name());
        let LabEntry { keeper, networks } = self.0;
        let network = networks
            .into_iter()
            .nth(host.index())
            .map(NetNamespace::from);
        let network = network.ok_or_else(|| LabError::from_io(&action)(missing_host(host)))?;
        let folder = std::env::current_dir();
        // Root's lab is in no user namespace, or in one where root lacks what it takes without.
        enter_process(keeper.as_fd(), UnsharePrivilege::AsRoot)
            .or_else(|_| enter_process(keeper.as_fd(), UnsharePrivilege::AsUser))
            .map_err(LabError::from_io("enter the lab"))?;
        let mut command = Command::new(program);
        command.args(arguments.iter().map(OsStr::new));
        // The lab sees the same files, but whoever enters its mounts begins at their root.
        if let Ok(folder) = folder {
            command.current_dir(folder);
        }
        enter_before_exec(&mut command, &network, host.name())
            .map_err(LabError::from_io(&action))?;
        end_with_this_thread(&mut command);
        let mut child = command.spawn().map_err(LabError::from_io(&action))?;
        let status = wait_or_end(&mut child, stop)
            .map_err(LabError::from_io(&format!("wait for `{program}`")))?;
        Ok(status
            .code()
            .unwrap_or_else(|| 128 + status.signal().unwrap_or_default()))
    }
}

/// Connects to this user's lab of that name. Returns the connection, the descriptors with which it
/// is joined, and its greeting.
///
/// # Errors
/// If there is none, or it does not answer within 5 s.
fn connect_greeted(name: &str) -> Result<(OwnedFd, LabEntry, String), LabError> {
    let listener = connect_owned(name).map_err(|errno| {
        let cause = match errno {
            Errno::AGAIN => silent_lab(),
            _ => io::Error::new(
                io::ErrorKind::NotFound,
                format!("this user has no lab of that name; `fullpipe lab up {name}` makes one"),
            ),
        };
        lab_not_entered(name, cause)
    })?;
    let (inside, greeting) =
        receive_inside(&listener).map_err(|cause| lab_not_entered(name, cause))?;
    Ok((listener, inside, greeting))
}

/// Waits for the end of `child`. Once `stop` is set, asks it to end, and kills it [`END_TIMEOUT`]
/// later.
fn wait_or_end(child: &mut Child, stop: &AtomicBool) -> io::Result<ExitStatus> {
    let process = Pid::from_child(child);
    let end = pidfd_open(process, PidfdFlags::empty())?;
    let mut deadline = None;
    loop {
        if let Some(status) = child.try_wait()? {
            return Ok(status);
        }
        match deadline {
            None if stop.load(Ordering::Relaxed) => {
                // It is our child and not waited for, so that the number is still its own.
                let _ = kill_process(process, Signal::TERM);
                deadline = Some(Instant::now() + END_TIMEOUT);
            }
            Some(deadline) if Instant::now() >= deadline => child.kill()?,
            _ => {}
        }
        // A signal cuts the wait short.
        let _ = wait_readable(&end, POLL_INTERVAL);
    }
}

/// Accepts connections, and gives the descriptors to programs of this user.
fn admit_programs(listener: &OwnedFd, greeting: &str, inside: &LabEntry) {
    let keeper = std::iter::once(inside.keeper.as_fd());
    let descriptors: Vec<BorrowedFd<'_>> = keeper
        .chain(inside.networks.iter().map(AsFd::as_fd))
        .collect();
    loop {
        match accept_with(listener, SocketFlags::CLOEXEC) {
            Ok(visitor) => {
                let is_ours =
                    sockopt::socket_peercred(&visitor).is_ok_and(|peer| peer.uid == geteuid());
                if is_ours {
                    // A visitor that went away needs no answer.
                    let _ = send_with_descriptors(&visitor, greeting.as_bytes(), &descriptors);
                }
            }
            Err(Errno::INTR | Errno::CONNABORTED) => {}
            Err(_) => return,
        }
    }
}

/// Connects to the lab of that name, if it is of this user.
fn connect_owned(name: &str) -> Result<OwnedFd, Errno> {
    let (listener, address) = socket_for(name)?;
    // Behind many who wait there is no place in the queue.
    sockopt::set_socket_timeout(&listener, sockopt::Timeout::Send, Some(TIMEOUT))?;
    connect(&listener, &address)?;
    // Anybody may have taken the name.
    if sockopt::socket_peercred(&listener)?.uid != geteuid() {
        return Err(Errno::PERM);
    }
    Ok(listener)
}

fn lab_not_entered(name: &str, cause: io::Error) -> LabError {
    LabError::from_io(&format!("enter the lab \"{name}\""))(cause)
}

fn silent_lab() -> io::Error {
    io::Error::new(
        io::ErrorKind::TimedOut,
        "`fullpipe lab up`, which holds it, does not answer; is it stopped?",
    )
}

/// Fails if nothing comes in time.
fn receive_inside(listener: &OwnedFd) -> io::Result<(LabEntry, String)> {
    if !retry_on_intr(|| wait_readable(listener, TIMEOUT))? {
        return Err(silent_lab());
    }
    let mut words = [0; MAX_GREETING];
    let (length, descriptors) = receive_with_descriptors(listener, &mut words)?;
    let mut descriptors = descriptors.into_iter();
    let keeper = descriptors.next().ok_or_else(other_version)?;
    let greeting = String::from_utf8_lossy(words.get(..length).unwrap_or_default()).into_owned();
    if greeting.lines().next() != Some(WELCOME) {
        return Err(other_version());
    }
    let networks = descriptors.collect();
    Ok((LabEntry { keeper, networks }, greeting))
}

fn other_version() -> io::Error {
    io::Error::new(
        io::ErrorKind::InvalidData,
        "it is of another version of this program",
    )
}

/// Returns the error of a host that this lab does not have.
pub(crate) fn missing_host(host: Host) -> io::Error {
    let why = format!("this lab has no {}: its path has no stretches", host.name());
    io::Error::new(io::ErrorKind::NotFound, why)
}

fn listen_at(name: &str) -> Result<OwnedFd, Errno> {
    let (listener, address) = socket_for(name)?;
    bind(&listener, &address)?;
    listen(&listener, 8)?;
    Ok(listener)
}

/// A socket, and the address of this user's lab of that name.
fn socket_for(name: &str) -> Result<(OwnedFd, SocketAddrUnix), Errno> {
    let address = SocketAddrUnix::new_abstract_name(
        format!("{NAMES_BEGIN}{}/{name}", geteuid().as_raw()).as_bytes(),
    )?;
    let listener = socket_with(
        AddressFamily::UNIX,
        SocketType::SEQPACKET,
        SocketFlags::CLOEXEC,
        None,
    )?;
    Ok((listener, address))
}
