//! Processes and their sockets, from `/proc` (`proc(5)`).

use std::collections::BTreeSet;
use std::fs;
use std::io;
use std::path::PathBuf;

use fullpipe_units::Span;

/// Maximum number of processes in a tree.
const MAX_PROCESSES: usize = 1024;

/// Maximum number of descriptors that are read of one process.
const MAX_DESCRIPTORS: usize = 65_536;

/// Returns the process and all its descendants whose parents still live.
pub fn process_tree(root: u32) -> BTreeSet<u32> {
    let (mut found, mut new) = (BTreeSet::from([root]), vec![root]);
    while let Some(pid) = new.pop() {
        for child in child_pids(pid) {
            if found.len() < MAX_PROCESSES && found.insert(child) {
                new.push(child);
            }
        }
    }
    found
}

/// Returns the children of a process; each is listed with the thread that started it.
fn child_pids(pid: u32) -> Vec<u32> {
    let Ok(threads) = fs::read_dir(proc_path(pid, "task")) else {
        return Vec::new();
    };
    let lists = threads
        .flatten()
        .filter_map(|thread| fs::read_to_string(thread.path().join("children")).ok());
    lists
        .flat_map(|list| {
            list.split_whitespace()
                .filter_map(|pid| pid.parse().ok())
                .collect::<Vec<_>>()
        })
        .collect()
}

/// Returns the sockets of a process: their inode numbers and descriptors.
///
/// # Errors
/// `NotFound` if there is no such process, `PermissionDenied` if it belongs to another user.
pub(crate) fn process_sockets(pid: u32) -> io::Result<Vec<(u64, i32)>> {
    let descriptors = fs::read_dir(proc_path(pid, "fd"))?
        .take(MAX_DESCRIPTORS)
        .flatten();
    Ok(descriptors
        .filter_map(|entry| entry_socket(&entry))
        .collect())
}

/// Returns the descriptors of a process; none of one that is not there, or of another user.
pub(crate) fn descriptor_numbers(pid: u32) -> Vec<i32> {
    let entries = fs::read_dir(proc_path(pid, "fd")).into_iter().flatten();
    let names = entries.take(MAX_DESCRIPTORS).flatten();
    names
        .filter_map(|entry| entry.file_name().to_str()?.parse().ok())
        .collect()
}

/// Returns the socket of a descriptor, if it is one. The link of a descriptor that was closed
/// meanwhile cannot be read.
fn entry_socket(entry: &fs::DirEntry) -> Option<(u64, i32)> {
    let number = socket_number(fs::read_link(entry.path()).ok()?.to_str()?)?;
    Some((number, entry.file_name().to_str()?.parse().ok()?))
}

/// Returns the process that has this socket and the descriptor, the youngest process if several
/// have it; `None` if there is none, or it belongs to another user.
pub(crate) fn socket_owner(socket: u64) -> Option<(u32, i32)> {
    let processes = fs::read_dir("/proc").ok()?.flatten();
    let numbers = processes.filter_map(|entry| entry.file_name().to_str()?.parse::<u32>().ok());
    numbers
        .filter_map(|pid| {
            let mut sockets = process_sockets(pid).ok()?.into_iter();
            let (_, descriptor) = sockets.find(|(number, _)| *number == socket)?;
            Some((pid, descriptor))
        })
        .max()
}

fn socket_number(target: &str) -> Option<u64> {
    target
        .strip_prefix("socket:[")?
        .strip_suffix(']')?
        .parse()
        .ok()
}

/// Returns the name of a process; `None` if there is no such process, or it has no name.
pub(crate) fn process_name(pid: u32) -> Option<String> {
    let name = read_proc_file(pid, "comm").ok()?;
    Some(name.trim_end().to_owned()).filter(|name| !name.is_empty())
}

/// Returns the name of the program whose transfer a process carries: that of the one which started
/// it where that moves files through `ssh`.
pub(crate) fn transfer_program(pid: u32) -> Option<String> {
    const THROUGH_SSH: [&str; 3] = ["sftp", "scp", "sshfs"];
    let name = process_name(pid)?;
    let parent = || process_name(parent_pid(&read_proc_file(pid, "stat").ok()?)?);
    let through = parent().filter(|parent| THROUGH_SSH.contains(&parent.as_str()));
    Some(through.filter(|_| name == "ssh").unwrap_or(name))
}

/// Returns the parent that this `stat` names.
fn parent_pid(stat: &str) -> Option<u32> {
    let (_, fields) = stat.rsplit_once(')')?;
    fields.split_whitespace().nth(1)?.parse().ok()
}

/// Returns the processor time of a process and of the children that it has waited for (fields 14 to
/// 17 of `stat`); nothing if there is no such process.
pub(crate) fn processor_time(pid: u32) -> Span {
    read_proc_file(pid, "stat").map_or(Span::ZERO, |stat| used_time(&stat))
}

fn used_time(stat: &str) -> Span {
    /// The kernel reports times in hundredths of a second on every machine (`USER_HZ`).
    const TICK: Span = Span::from_millis(10);
    let fields = stat
        .rsplit_once(')')
        .map_or("", |(_, rest)| rest)
        .split_whitespace();
    let ticks: u64 = fields
        .skip(11)
        .take(4)
        .filter_map(|field| field.parse::<u64>().ok())
        .sum();
    TICK * ticks
}

/// Returns true if there is such a process. One that is ending does not count, nor does a zombie.
pub(crate) fn is_alive(pid: u32) -> bool {
    read_proc_file(pid, "stat").is_ok_and(|stat| is_running(&stat))
}

/// Returns the text of a file of a process. The kernel cuts names after 15 bytes, amid a character
/// too, so that not all of it need be UTF-8.
pub(crate) fn read_proc_file(pid: u32, file: &str) -> io::Result<String> {
    Ok(String::from_utf8_lossy(&fs::read(proc_path(pid, file))?).into_owned())
}

/// Returns true if this `stat` is of a process that has not begun to end.
fn is_running(stat: &str) -> bool {
    /// `PF_EXITING` (`linux/sched.h`).
    const EXITING: u32 = 4;
    // The name before it may contain any character, but ends with the last bracket.
    let mut fields = stat
        .rsplit_once(')')
        .map_or("", |(_, rest)| rest)
        .split_whitespace();
    let is_there = fields
        .next()
        .is_some_and(|state| !matches!(state, "Z" | "X"));
    let flags: u32 = fields
        .nth(5)
        .and_then(|flags| flags.parse().ok())
        .unwrap_or_default();
    is_there && flags & EXITING == 0
}

/// Returns the network namespace of a process; `None` if it is that of this thread.
///
/// # Errors
/// Fails as [`process_sockets`] does.
pub(crate) fn foreign_network(pid: u32) -> io::Result<Option<fs::File>> {
    let theirs = proc_path(pid, "ns/net");
    let ours = fs::read_link("/proc/thread-self/ns/net")?;
    if fs::read_link(&theirs)? == ours {
        Ok(None)
    } else {
        fs::File::open(theirs).map(Some)
    }
}

fn proc_path(pid: u32, file: &str) -> PathBuf {
    PathBuf::from(format!("/proc/{pid}")).join(file)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::WatchError;
    use std::io::Read;
    use std::net::TcpListener;
    use std::os::fd::AsRawFd;
    use std::process::{Command, Stdio};

    #[test]
    fn this_process_has_the_sockets_that_it_opened() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let link = fs::read_link(format!("/proc/self/fd/{}", listener.as_raw_fd())).unwrap();
        let number = socket_number(link.to_str().unwrap()).unwrap();
        let found = (number, listener.as_raw_fd());
        assert!(
            process_sockets(std::process::id())
                .unwrap()
                .contains(&found)
        );
        // A child that another test starts just now has it too, for a moment.
        assert!(
            socket_owner(number).unwrap().0 >= std::process::id()
                && socket_owner(u64::MAX).is_none()
        );
        assert!(is_alive(std::process::id()) && process_name(std::process::id()).is_some());
        assert!(foreign_network(std::process::id()).unwrap().is_none());
    }

    #[test]
    fn grandchildren_are_found_and_the_dead_are_not_alive() {
        let mut command = Command::new("sh");
        let mut child = command
            .args(["-c", "sleep 30 & wait"])
            .stdin(Stdio::null())
            .spawn()
            .unwrap();
        let found = fullpipe_testkit::within(std::time::Duration::from_secs(10), || {
            process_tree(child.id())
                .iter()
                .any(|pid| process_name(*pid).as_deref() == Some("sleep"))
        });
        let own: Vec<u32> = process_tree(child.id())
            .into_iter()
            .filter(|pid| *pid != child.id())
            .collect();
        for pid in own {
            let pid = rustix::process::Pid::from_raw(pid.cast_signed()).unwrap();
            let _ = rustix::process::kill_process(pid, rustix::process::Signal::KILL);
        }
        child.kill().unwrap();
        assert!(
            fullpipe_testkit::within(std::time::Duration::from_secs(10), || !is_alive(child.id())),
            "a zombie"
        );
        child.wait().unwrap();
        assert!(found);
        assert_eq!(
            process_sockets(child.id()).unwrap_err().kind(),
            io::ErrorKind::NotFound
        );
    }

    #[test]
    fn a_process_whose_name_is_no_text_lives_and_has_a_name() {
        let script = "printf 'na\\377me' > /proc/$$/comm; echo named; read -r line";
        let mut command = Command::new("sh");
        let mut child = command
            .args(["-c", script])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        child
            .stdout
            .as_mut()
            .unwrap()
            .read_exact(&mut [0; 5])
            .unwrap();
        let (is_alive, name) = (is_alive(child.id()), process_name(child.id()));
        child.kill().unwrap();
        child.wait().unwrap();
        assert_eq!((is_alive, name.as_deref()), (true, Some("na\u{fffd}me")));
    }

    #[test]
    fn one_that_is_ending_lives_no_more() {
        for (stat, is_alive) in [
            ("7 (a) b) S 1 7 7 0 -1 4194560 90", true),
            ("7 (a) b) R 1 7 7 0 -1 4194564 90", false),
            ("7 (a) Z 1 7 7 0 -1 4194560 90", false),
            ("7 (Z) R", true),
            ("", false),
        ] {
            assert_eq!(is_running(stat), is_alive, "{stat}");
        }
    }

    #[test]
    fn the_parent_stands_behind_a_name_with_brackets() {
        assert_eq!(parent_pid("7 (a) b) S 11 7 7 0"), Some(11));
        assert_eq!(parent_pid("7 (a"), None);
        let own = std::process::id();
        assert_eq!(transfer_program(own), process_name(own));
    }

    #[test]
    fn the_time_of_children_that_were_waited_for_is_counted() {
        let stat = "7 (a) b) S 1 7 7 0 -1 4194560 90 80 70 60 11 12 300 4000 20 0 1";
        assert_eq!(used_time(stat), Span::from_millis(43_230));
        assert_eq!(used_time("7 (a"), Span::ZERO);
        let mut spent = 0_u64;
        let is_counted = fullpipe_testkit::within(std::time::Duration::from_secs(10), || {
            spent = (0..10_000_000_u64).fold(spent, u64::wrapping_add);
            processor_time(std::process::id()) > Span::ZERO
        });
        assert!(is_counted, "{spent}");
    }

    #[test]
    fn one_that_has_ended_is_not_taken_for_that_of_another_user() {
        let mut child = Command::new("true").spawn().unwrap();
        assert!(fullpipe_testkit::within(
            std::time::Duration::from_secs(10),
            || !is_alive(child.id())
        ));
        // As `/proc` answers whoever is not root.
        let error = WatchError::of_process(child.id(), io::ErrorKind::PermissionDenied.into());
        assert!(matches!(error, WatchError::NoProcess(_)), "{error}");
        child.wait().unwrap();
        let error =
            WatchError::of_process(std::process::id(), io::ErrorKind::PermissionDenied.into());
        assert!(matches!(error, WatchError::Forbidden { .. }), "{error}");
    }

    #[test]
    fn a_link_that_names_no_socket_has_no_number() {
        for target in ["pipe:[7]", "socket:[", "socket:[x]", "/dev/null", ""] {
            assert_eq!(socket_number(target), None, "{target}");
        }
    }
}
