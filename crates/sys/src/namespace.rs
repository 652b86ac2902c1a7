//! Namespaces, and the processes that live in them.

use std::fs::File;
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::os::unix::process::CommandExt;
use std::process::Command;

use rustix::thread::{
    LinkNameSpaceType, ThreadNameSpaceType, move_into_link_name_space, move_into_thread_name_spaces,
};

use crate::socket::{check_call, control_socket, socket_option};

/// A network namespace, kept alive by a descriptor.
#[derive(Debug)]
pub struct NetNamespace(File);

impl NetNamespace {
    /// Moves the calling thread into a new network namespace and keeps hold of it.
    ///
    /// # Errors
    /// Fails as `unshare` does (`PermissionDenied` without the capability), or if the namespace
    /// cannot be opened.
    pub fn create() -> io::Result<Self> {
        // SAFETY: CLONE_NEWNET changes which network the thread sees and shares no memory.
        check_call(unsafe { libc::unshare(libc::CLONE_NEWNET) } == 0)?;
        Ok(Self(File::open("/proc/thread-self/ns/net")?))
    }

    /// Moves the calling thread into this namespace. `/proc/sys/net` follows at once; `/proc/net`
    /// only under `/proc/thread-self`.
    ///
    /// # Errors
    /// Fails as `setns` does.
    pub fn enter(&self) -> io::Result<()> {
        Ok(move_into_link_name_space(
            self.0.as_fd(),
            Some(LinkNameSpaceType::Network),
        )?)
    }
}

impl AsFd for NetNamespace {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

impl From<OwnedFd> for NetNamespace {
    /// Takes a descriptor of a network namespace, as another process handed it over. That it is one
    /// shows when it is entered.
    fn from(descriptor: OwnedFd) -> Self {
        Self(File::from(descriptor))
    }
}

/// The number that the kernel gives to the network namespace of the calling thread and, until it
/// boots again, to no other (`SO_NETNS_COOKIE`).
///
/// # Errors
/// `Other` (`ENOPROTOOPT`) before Linux 5.14.
pub fn network_cookie() -> io::Result<u64> {
    let socket = control_socket()?;
    let cookie = socket_option(socket, libc::SOL_SOCKET, SO_NETNS_COOKIE, 8)?;
    Ok(cookie.first_chunk().copied().map_or(0, u64::from_ne_bytes))
}

/// `asm-generic/socket.h`; the libc crate lacks it for some targets.
const SO_NETNS_COOKIE: libc::c_int = 71;

/// Moves this process, which has one thread, into the mount and IPC namespaces of the process
/// behind `pidfd`, and the programs that it starts into its PID namespace; into its user namespace
/// too if that process is of [`UnsharePrivilege::AsUser`].
///
/// # Errors
/// Fails as `setns` does: with `InvalidInput` from a process with more threads, or before Linux
/// 5.8; with `NotFound` (`ESRCH`) if the process is gone.
pub fn enter_process(pidfd: BorrowedFd<'_>, unsharing: UnsharePrivilege) -> io::Result<()> {
    let others = ThreadNameSpaceType::MOUNT
        | ThreadNameSpaceType::PROCESS_ID
        | ThreadNameSpaceType::INTER_PROCESS_COMMUNICATION;
    let user = match unsharing {
        UnsharePrivilege::AsRoot => ThreadNameSpaceType::empty(),
        UnsharePrivilege::AsUser => ThreadNameSpaceType::USER,
    };
    Ok(move_into_thread_name_spaces(pidfd, others | user)?)
}

/// True if the namespaces of a program are made with the caller's own rights or below a new user
/// namespace.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum UnsharePrivilege {
    /// The caller is root: no user namespace.
    AsRoot,
    /// In a new user namespace, where the caller becomes root.
    AsUser,
}

/// Makes `command` start in new mount, PID, IPC and UTS namespaces, and below a new user namespace
/// where asked. The program itself stays outside the PID namespace: its first child is PID 1 there.
///
/// `spawn` then fails with what the kernel refused: `EPERM` where user namespaces are forbidden or
/// their identity map may not be written, `ENOSPC` where there are too many.
pub fn unshare_before_exec(command: &mut Command, unsharing: UnsharePrivilege) {
    // Formatted here because nothing may be allocated between fork and exec.
    let user_map = format!("0 {} 1", rustix::process::geteuid().as_raw());
    let group_map = format!("0 {} 1", rustix::process::getegid().as_raw());
    // SAFETY: between fork and exec the closure makes only system calls (unshare, open, write,
    // close) and allocates nothing: `io::Error::last_os_error` holds a bare number.
    unsafe { command.pre_exec(move || unshare_namespaces(unsharing, &user_map, &group_map)) };
}

/// Moves this process, the child of a fork, into new namespaces; in a user namespace with these
/// identity maps.
fn unshare_namespaces(
    unsharing: UnsharePrivilege,
    user_map: &str,
    group_map: &str,
) -> io::Result<()> {
    let others = libc::CLONE_NEWNS | libc::CLONE_NEWPID | libc::CLONE_NEWIPC | libc::CLONE_NEWUTS;
    let flags = match unsharing {
        UnsharePrivilege::AsRoot => others,
        UnsharePrivilege::AsUser => others | libc::CLONE_NEWUSER,
    };
    // SAFETY: the child of a fork has one thread, as CLONE_NEWUSER demands; no memory is shared or
    // freed.
    check_call(unsafe { libc::unshare(flags) } == 0)?;
    if unsharing == UnsharePrivilege::AsUser {
        write_file(c"/proc/self/setgroups", b"deny")?;
        write_file(c"/proc/self/uid_map", user_map.as_bytes())?;
        write_file(c"/proc/self/gid_map", group_map.as_bytes())?;
    }
    Ok(())
}

/// Makes `command` start in the network namespace `network`, under the host name `host_name`.
///
/// # Errors
/// If the namespace's descriptor cannot be duplicated.
pub fn enter_before_exec(
    command: &mut Command,
    network: &NetNamespace,
    host_name: &str,
) -> io::Result<()> {
    let network = network.as_fd().try_clone_to_owned()?;
    let host_name = host_name.to_owned();
    // SAFETY: between fork and exec the closure makes only system calls and allocates nothing.
    unsafe { command.pre_exec(move || enter_network(&network, &host_name)) };
    Ok(())
}

/// Moves this process into a network namespace, and gives it a host name of its own.
fn enter_network(network: &OwnedFd, host_name: &str) -> io::Result<()> {
    // SAFETY: the descriptor is open for the borrow; setns and unshare share no memory; sethostname
    // reads exactly the bytes of `host_name`.
    check_call(unsafe {
        libc::setns(network.as_raw_fd(), libc::CLONE_NEWNET) == 0
            && libc::unshare(libc::CLONE_NEWUTS) == 0
            && libc::sethostname(host_name.as_ptr().cast(), host_name.len()) == 0
    })
}

/// Makes `command` be killed when the thread that starts it ends, however that comes about.
pub fn end_with_this_thread(command: &mut Command) {
    let parent = std::process::id();
    // SAFETY: between fork and exec the function makes two system calls and allocates nothing.
    unsafe { command.pre_exec(move || ask_for_death_signal(parent)) };
}

/// Has the kernel kill this process when the thread of `parent` that started it ends. Fails if the
/// parent is gone already.
fn ask_for_death_signal(parent: u32) -> io::Result<()> {
    // SAFETY: PR_SET_PDEATHSIG takes a signal's number and concerns the calling process alone.
    check_call(unsafe { libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL) } == 0)?;
    // A process that has joined another PID namespace cannot see its parent.
    if [parent, 0].contains(&std::os::unix::process::parent_id()) {
        Ok(())
    } else {
        Err(io::Error::from_raw_os_error(libc::ESRCH))
    }
}

/// The side of a fork that a process is on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ForkSide {
    /// The process that forked; the child's PID as it sees it.
    Parent(i32),
    /// The new process.
    Child,
}

/// Forks a process that has one thread.
///
/// # Errors
/// Fails as `fork` does, and with `Other` if the process has more than one thread: the child would
/// hold locks that no thread releases.
pub fn fork_single_threaded() -> io::Result<ForkSide> {
    if std::fs::read_dir("/proc/self/task")?.count() != 1 {
        return Err(io::Error::other(
            "a process with several threads cannot be forked safely",
        ));
    }
    // SAFETY: there is one thread, so no lock is held by another, and the child may go on as the
    // parent would.
    match unsafe { libc::fork() } {
        -1 => Err(io::Error::last_os_error()),
        0 => Ok(ForkSide::Child),
        pid => Ok(ForkSide::Parent(pid)),
    }
}

/// Makes this process outlive what a terminal sends to everything in it: interrupts, and its own
/// closing. What it executes afterwards would ignore them too.
pub fn ignore_terminal_signals() {
    for signal in [libc::SIGINT, libc::SIGQUIT, libc::SIGHUP, libc::SIGTERM] {
        // SAFETY: SIG_IGN is a valid disposition for each of these signals, and no handler of ours
        // is replaced.
        unsafe { libc::signal(signal, libc::SIG_IGN) };
    }
}

/// Writes a file with bare system calls, as is needed between fork and exec.
fn write_file(path: &std::ffi::CStr, bytes: &[u8]) -> io::Result<()> {
    // SAFETY: `path` ends with a zero byte; `bytes` is valid for its length; the descriptor is
    // closed once.
    unsafe {
        let file = libc::open(path.as_ptr(), libc::O_WRONLY | libc::O_CLOEXEC);
        if file < 0 {
            return Err(io::Error::last_os_error());
        }
        let written = libc::write(file, bytes.as_ptr().cast(), bytes.len());
        let result = check_call(written == bytes.len() as isize);
        libc::close(file);
        result
    }
}
