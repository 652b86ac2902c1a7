use std::collections::{BTreeMap, BTreeSet};
use std::net::SocketAddr;
use std::thread;
use std::time::{Duration, Instant};

use fullpipe_host::{SysctlTree, inspect};
use fullpipe_load::thin_out;
use fullpipe_record::{HostSettings, Sample};
use fullpipe_sys::{Connection, Connections, NetNamespace, fixed_buffers};
use fullpipe_units::{ByteCount, Span};

use crate::error::WatchError;
use crate::process;

/// Time between two looks at first.
const PERIOD: Duration = Duration::from_millis(50);

/// A process's descriptors are read at every so manieth look.
const LOOKS_BETWEEN_SEARCHES: u32 = 4;

/// A socket that was not found among the connections so often is none, or not of TCP.
const SEARCHES: u8 = 20;

/// More connections are not watched.
const MAX_CONNECTIONS: usize = 1024;

/// With more samples than this, every second look is dropped, and they come half as often from then on.
const MAX_SAMPLES: usize = 40_000;

/// What to watch.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Subject {
    /// The connections of a process and of all that it started.
    Process(u32),
    /// The same of a process that was started to be watched: no connection of it is older than the watching.
    Started(u32),
    /// One connection: this end, and the other.
    Connection(SocketAddr, SocketAddr),
}

/// What was seen.
#[derive(Debug)]
pub struct Watched {
    /// Settings of the host, in the network of what was watched.
    pub settings: HostSettings,
    /// How long it was watched.
    pub took: Span,
    /// The connections, by their number as a stream.
    pub(crate) connections: Vec<Seen>,
    /// The looks at them, in the order of time.
    pub(crate) samples: Vec<Sample>,
}

/// A connection that was seen.
#[derive(Debug, Clone)]
pub(crate) struct Seen {
    cookie: u64,
    pub(crate) owner: Owner,
    pub(crate) local: SocketAddr,
    pub(crate) remote: SocketAddr,
    pub(crate) congestion: String,
    /// Whether its program fixed the receive buffer, as far as that is known.
    pub(crate) has_fixed_rcvbuf: bool,
    /// Whether it was there when the watching began.
    pub(crate) is_old: bool,
    /// Whether it was there at the last look.
    pub(crate) is_open: bool,
}

/// Whose connection it is, as far as that is known.
#[derive(Debug, Clone, Default)]
pub(crate) struct Owner {
    pub(crate) pid: Option<u32>,
    pub(crate) program: Option<String>,
    descriptor: Option<i32>,
}

impl Owner {
    fn new(pid: u32, descriptor: i32) -> Self {
        Self { pid: Some(pid), program: process::name(pid), descriptor: Some(descriptor) }
    }

    /// Whether it fixed the receive buffer of its socket; not where that cannot be known.
    fn fixed_the_receive_buffer(&self) -> bool {
        let stated = self.pid.zip(self.descriptor).and_then(|(pid, descriptor)| fixed_buffers(pid, descriptor).ok());
        stated.is_some_and(|[_, receive]| receive)
    }
}

/// How things stand while it is watched.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Standing {
    /// Since the watching began.
    pub elapsed: Span,
    /// Bytes that moved over all connections, either way, since each was first seen or began.
    pub moved: ByteCount,
}

/// Watches until `stop` says so, or until nothing is left that could be watched.
///
/// # Errors
/// If there is no such process or connection, or it is not ours to look at.
pub fn watch_others(subject: Subject, stop: &mut dyn FnMut(Standing) -> bool) -> Result<Watched, WatchError> {
    let (connections, settings) = in_its_network(subject)?;
    let mut watch = Watch {
        subject,
        connections,
        origin: Instant::now(),
        seen: Vec::new(),
        samples: Vec::new(),
        owners: BTreeMap::new(),
        fruitless: BTreeMap::new(),
    };
    let (mut next, mut period, mut looks) = (watch.origin, PERIOD, 0_u32);
    loop {
        if looks.is_multiple_of(LOOKS_BETWEEN_SEARCHES) {
            watch.search(looks == 0)?;
        }
        watch.look()?;
        looks = looks.wrapping_add(1);
        if watch.samples.len() > MAX_SAMPLES {
            thin_out(&mut watch.samples);
            period *= 2;
        }
        if stop(watch.standing()) || watch.is_over() {
            break;
        }
        next += period;
        thread::sleep(next.saturating_duration_since(Instant::now()));
    }
    Ok(Watched { settings, took: watch.origin.elapsed().into(), connections: watch.seen, samples: watch.samples })
}

/// The kernel's table of connections and the settings, of the network that the subject lives in.
fn in_its_network(subject: Subject) -> Result<(Connections, HostSettings), WatchError> {
    let here = || -> Result<_, WatchError> {
        let connections = Connections::open().map_err(WatchError::Table)?;
        Ok((connections, inspect(&SysctlTree::of_this_host())?))
    };
    let (Subject::Process(pid) | Subject::Started(pid)) = subject else { return here() };
    let Some(network) = process::foreign_network(pid).map_err(|cause| WatchError::of_process(pid, cause))? else {
        return here();
    };
    let network = NetNamespace::from(std::os::fd::OwnedFd::from(network));
    // Only a thread that ends afterwards may move.
    let there = thread::scope(|scope| {
        let moved = scope.spawn(|| {
            network.enter().map_err(|cause| WatchError::of_process(pid, cause))?;
            here()
        });
        moved.join()
    });
    there.unwrap_or_else(|_| Err(WatchError::Table(std::io::ErrorKind::Other.into())))
}

struct Watch {
    subject: Subject,
    connections: Connections,
    origin: Instant,
    seen: Vec<Seen>,
    samples: Vec<Sample>,
    /// Whose sockets are known to be whose, by their numbers.
    owners: BTreeMap<u64, Owner>,
    /// How often a socket was looked for in vain.
    fruitless: BTreeMap<u64, u8>,
}

impl Watch {
    /// Finds connections that are not yet known.
    fn search(&mut self, is_first: bool) -> Result<(), WatchError> {
        match self.subject {
            Subject::Process(pid) | Subject::Started(pid) => self.search_process(pid, is_first),
            Subject::Connection(local, remote) if is_first => self.search_connection(local, remote),
            Subject::Connection(..) => Ok(()),
        }
    }

    fn search_connection(&mut self, local: SocketAddr, remote: SocketAddr) -> Result<(), WatchError> {
        let same = |one: SocketAddr, other: SocketAddr| {
            one.port() == other.port() && one.ip().to_canonical() == other.ip().to_canonical()
        };
        let all = self.connections.all().map_err(WatchError::Table)?;
        let found = all.into_iter().find(|one| same(one.local, local) && same(one.remote, remote));
        let found = found.ok_or(WatchError::NoConnection { local, remote })?;
        let owner = process::owner(found.inode).map(|(pid, descriptor)| Owner::new(pid, descriptor));
        self.add(&found, owner.unwrap_or_default(), true);
        Ok(())
    }

    fn search_process(&mut self, root: u32, is_first: bool) -> Result<(), WatchError> {
        let (mut new, mut present) = (BTreeSet::new(), BTreeSet::new());
        for pid in process::tree(root) {
            let sockets = match process::sockets(pid) {
                Ok(sockets) => sockets,
                Err(cause) if pid == root && is_first => return Err(WatchError::of_process(pid, cause)),
                // It has ended, or is now somebody else's.
                Err(_) => continue,
            };
            for (socket, descriptor) in sockets {
                present.insert(socket);
                // Where processes share one, the youngest is the one that uses it.
                let owner = self.owners.entry(socket).or_default();
                if owner.pid < Some(pid) {
                    *owner = Owner::new(pid, descriptor);
                }
                let tries = self.fruitless.entry(socket).or_default();
                if *tries < SEARCHES {
                    *tries += 1;
                    new.insert(socket);
                }
            }
        }
        self.owners.retain(|socket, _| present.contains(socket));
        self.fruitless.retain(|socket, _| present.contains(socket));
        if new.is_empty() {
            return Ok(());
        }
        let all = self.connections.all().map_err(WatchError::Table)?;
        for found in all.into_iter().filter(|one| new.contains(&one.inode)) {
            self.fruitless.insert(found.inode, SEARCHES);
            let owner = self.owners.get(&found.inode).cloned().unwrap_or_default();
            self.add(&found, owner, is_first && self.subject != Subject::Started(root));
        }
        Ok(())
    }

    fn add(&mut self, found: &Connection, owner: Owner, is_old: bool) {
        if self.seen.len() < MAX_CONNECTIONS && self.seen.iter().all(|seen| seen.cookie != found.cookie) {
            self.seen.push(Seen {
                cookie: found.cookie,
                has_fixed_rcvbuf: owner.fixed_the_receive_buffer(),
                owner,
                local: found.local,
                remote: found.remote,
                congestion: found.congestion.clone(),
                is_old,
                is_open: true,
            });
        }
    }

    /// One sample of each connection that is open.
    fn look(&mut self) -> Result<(), WatchError> {
        let open = self.seen.iter().filter(|seen| seen.is_open);
        let ends: Vec<_> = open.map(|seen| (seen.local, seen.remote)).collect();
        let found = self.connections.between(&ends).map_err(WatchError::Table)?;
        let mut by_cookie: BTreeMap<u64, Connection> = found.into_iter().map(|one| (one.cookie, one)).collect();
        let at = Span::from(self.origin.elapsed());
        for (stream, seen) in self.seen.iter_mut().enumerate().filter(|(_, seen)| seen.is_open) {
            match by_cookie.remove(&seen.cookie) {
                Some(now) => self.samples.push(Sample {
                    at,
                    stream: stream as u16,
                    bytes: ByteCount::ZERO,
                    tcp: now.tcp,
                    memory: now.memory,
                }),
                None => seen.is_open = false,
            }
        }
        Ok(())
    }

    fn standing(&self) -> Standing {
        let now =
            self.samples.iter().rev().take_while(|sample| Some(sample.at) == self.samples.last().map(|last| last.at));
        let both = |sample: &Sample| {
            sample.tcp.bytes_acked.unwrap_or_default() + sample.tcp.bytes_received.unwrap_or_default()
        };
        Standing { elapsed: self.origin.elapsed().into(), moved: now.map(both).sum() }
    }

    /// Whether nothing can come any more.
    fn is_over(&self) -> bool {
        match self.subject {
            Subject::Process(pid) | Subject::Started(pid) => {
                !process::is_alive(pid) && self.seen.iter().all(|seen| !seen.is_open)
            }
            Subject::Connection(..) => self.seen.iter().all(|seen| !seen.is_open),
        }
    }
}
