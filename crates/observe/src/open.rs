use std::cmp::Reverse;
use std::collections::BTreeSet;
use std::net::SocketAddr;

use fullpipe_sys::ConnectionTable;

use crate::WatchSubject;
use crate::error::WatchError;
use crate::process;

/// Returns the connections that a subject has now: this end and the other of each, those that moved
/// most first.
///
/// # Errors
/// Fails as [`crate::watch_others`] does, and for a process in another network namespace.
pub fn open_connections(subject: WatchSubject) -> Result<Vec<[SocketAddr; 2]>, WatchError> {
    let (WatchSubject::Process(root) | WatchSubject::Started(root)) = subject else {
        let WatchSubject::Connection(local, remote) = subject else {
            return Ok(Vec::new());
        };
        return Ok(vec![[local, remote]]);
    };
    let sockets = tree_sockets(root)?;
    let mut open = ConnectionTable::open()
        .and_then(|mut all| all.list_all())
        .map_err(WatchError::Table)?;
    open.retain(|one| sockets.contains(&one.inode));
    open.sort_by_key(|one| {
        Reverse(
            one.tcp.bytes_acked.unwrap_or_default() + one.tcp.bytes_received.unwrap_or_default(),
        )
    });
    Ok(open
        .into_iter()
        .map(|one| [one.local, one.remote])
        .collect())
}

/// Returns the sockets of a process and of all that it started, by inode number.
fn tree_sockets(root: u32) -> Result<BTreeSet<u64>, WatchError> {
    let foreign = process::foreign_network(root);
    if foreign
        .map_err(|cause| WatchError::of_process(root, cause))?
        .is_some()
    {
        return Err(WatchError::OtherNetwork(root));
    }
    let own =
        process::process_sockets(root).map_err(|cause| WatchError::of_process(root, cause))?;
    // A child may have ended, or belong to another user.
    let of_children = process::process_tree(root)
        .into_iter()
        .filter_map(|pid| process::process_sockets(pid).ok());
    let all = own.into_iter().chain(of_children.flatten());
    Ok(all.map(|(socket, _)| socket).collect())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::{TcpListener, TcpStream};

    #[test]
    fn the_connections_of_a_process_are_those_that_it_has_open() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let client = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let ends = [client.local_addr().unwrap(), client.peer_addr().unwrap()];
        let found = open_connections(WatchSubject::Process(std::process::id())).unwrap();
        assert!(found.contains(&ends), "{found:?}");
        assert!(matches!(
            open_connections(WatchSubject::Process(1 << 30)),
            Err(WatchError::NoProcess(_))
        ));
    }
}
