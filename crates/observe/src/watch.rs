use std::collections::{BTreeMap, BTreeSet};
use std::net::SocketAddr;
use std::thread;
use std::time::{Duration, Instant};

use fullpipe_host::{SysctlTree, inspect_host};
use fullpipe_record::{HostSettings, Sample, thin_out_snapshots};
use fullpipe_sys::{ConnectionTable, NetNamespace, TcpConnection, fixed_buffers};
use fullpipe_units::{ByteCount, Span};

use crate::connections::{
    ConnectionOwner, ObservedConnection, WatchedConnections, acknowledged_bytes, both_ways,
    received_bytes,
};
use crate::error::WatchError;
use crate::machines::MachineMeters;
use crate::process;
use crate::readings::MachineReadings;

/// Time between two snapshots.
const PERIOD: Duration = Duration::from_millis(50);

/// Time between two snapshots, and two searches, while a program that was just started may be done
/// soon.
const PERIOD_AT_FIRST: Duration = Duration::from_millis(10);

/// Time for which a program counts as just started.
const AT_FIRST: Duration = Duration::from_millis(500);

/// Snapshots from one sample of the processors and buffers to the next.
const SNAPSHOTS_PER_SAMPLE: u32 = 4;

/// Time from one search for new sockets of a process to the next, in multiples of what the search
/// took. A search that is cheap comes with each snapshot, so that connections of a tenth of a
/// second are seen.
const SEARCH_PAUSE: u32 = 20;

/// Longest such time.
const MAX_SEARCH_PAUSE: Duration = Duration::from_millis(200);

/// Minimum number of samples of a connection that can be judged.
const MIN_SNAPSHOTS: usize = 5;

/// State of a socket whose connection is not yet established (`net/tcp_states.h`).
const SYN_SENT: u8 = 2;

/// Searches after which a socket that is not among the TCP connections is rarely searched for: it
/// may be none of TCP, or connect late.
const SEARCHES: u8 = 20;

/// Number of searches for a socket that was found.
const FOUND: u8 = u8::MAX;

/// Time from one search for such sockets to the next, in multiples of what the kernel took to list
/// its connections.
const TABLE_PAUSE: u32 = 100;

/// Longest such time.
const MAX_TABLE_PAUSE: Duration = Duration::from_secs(1);

/// Failures in a row after which the kernel is not asked any more; the first of all is final, as
/// nothing is lost.
const MAX_FAILURES: u8 = 3;

/// Maximum number of connections that are watched: of more, the closed ones that moved the fewest
/// bytes are left out.
const MAX_CONNECTIONS: usize = 1024;

/// Maximum number of samples; with more, every second snapshot is dropped and the period is
/// doubled.
const MAX_SAMPLES: usize = 40_000;

/// The connections to watch.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum WatchSubject {
    /// The connections of a process and of all that it started.
    Process(u32),
    /// The connections of a process that was started to be watched, so that none of them is older
    /// than the watching.
    Started(u32),
    /// One connection: the address of this end, and that of the other.
    Connection(SocketAddr, SocketAddr),
}

/// The progress while connections are watched.
#[derive(Clone, Copy)]
pub struct WatchProgress<'w> {
    /// Time since the watching began.
    pub elapsed: Span,
    /// Bytes that moved over the open connections, in both directions, since each was opened.
    pub moved: ByteCount,
    /// Set if data that a program has written is still on its way, even if that program has ended.
    pub is_sending: bool,
    /// Smoothed round-trip time of the open connection that moved most.
    pub rtt: Option<Span>,
    watch: &'w ConnectionWatch,
    settings: &'w HostSettings,
}

impl WatchProgress<'_> {
    /// Returns the bytes that were sent, and those that arrived, over all connections since the
    /// watching began.
    pub fn moved_each_way(&self) -> [ByteCount; 2] {
        [acknowledged_bytes, received_bytes].map(|count| {
            let mut ends: BTreeMap<u16, [ByteCount; 2]> = BTreeMap::new();
            for sample in &self.watch.samples {
                let seen = self.watch.sampled_connection(sample);
                let first = if seen.is_some_and(|seen| seen.is_old) {
                    count(sample)
                } else {
                    ByteCount::ZERO
                };
                ends.entry(sample.stream).or_insert([first; 2])[1] = count(sample);
            }
            ends.values()
                .map(|[first, last]| last.saturating_sub(*first))
                .sum()
        })
    }

    /// Returns the last `time` as if the watching had begun then.
    pub fn recent_interval(&self, time: Span) -> WatchedConnections {
        let begin = self.elapsed.saturating_sub(time);
        let recent = self
            .watch
            .samples
            .iter()
            .rev()
            .take_while(|sample| sample.at >= begin);
        let mut samples: Vec<Sample> = recent
            .map(|one| Sample {
                at: one.at.saturating_sub(begin),
                ..one.clone()
            })
            .collect();
        samples.reverse();
        let connections = self.watch.seen.iter().map(|seen| ObservedConnection {
            is_old: seen.is_old || seen.found < begin,
            found: seen.found.saturating_sub(begin),
            ..seen.clone()
        });
        let processor = self
            .watch
            .processor
            .iter()
            .filter(|(at, _)| *at >= begin)
            .map(|(at, used)| (at.saturating_sub(begin), *used));
        WatchedConnections {
            settings: Some(self.settings.clone()),
            fewest_snapshots: MIN_SNAPSHOTS,
            took: time.min(self.elapsed),
            connections: connections.collect(),
            samples,
            machines: MachineReadings::default(),
            processor: processor.collect(),
        }
    }
}

/// Watches until `stop` returns true, or nothing is left to watch.
///
/// # Errors
/// Fails if there is no such process or connection, or it belongs to another user.
pub fn watch_others(
    subject: WatchSubject,
    stop: &mut dyn FnMut(WatchProgress<'_>) -> bool,
) -> Result<WatchedConnections, WatchError> {
    let SubjectNetwork {
        connections,
        settings,
        is_ours,
    } = in_its_network(subject)?;
    let mut watch = ConnectionWatch::new(subject, connections, MachineMeters::new(is_ours));
    let (mut next, mut period, mut snapshots) = (watch.origin, PERIOD, 0_u32);
    let mut failures = MAX_FAILURES - 1;
    loop {
        let just_started =
            matches!(subject, WatchSubject::Started(_)) && watch.origin.elapsed() < AT_FIRST;
        let done = watch.observe_connections(snapshots == 0, just_started);
        unless_repeated(done, &mut failures)?;
        let is_sampled = snapshots.is_multiple_of(SNAPSHOTS_PER_SAMPLE);
        if just_started || is_sampled {
            watch.read_receive_buffers();
        }
        if is_sampled {
            watch.machines.take_sample(watch.origin.elapsed().into());
        }
        snapshots = snapshots.wrapping_add(1);
        if watch.samples.len() > MAX_SAMPLES {
            thin_out_snapshots(&mut watch.samples);
            period *= 2;
        }
        if stop(watch.current_progress(&settings)) || watch.is_over() {
            break;
        }
        let pause = if just_started {
            PERIOD_AT_FIRST
        } else {
            period
        };
        next = (next + pause).max(Instant::now());
        thread::sleep(next.saturating_duration_since(Instant::now()));
    }
    let took = Span::from(watch.origin.elapsed());
    watch.machines.take_sample(took);
    Ok(WatchedConnections {
        settings: Some(settings),
        fewest_snapshots: MIN_SNAPSHOTS,
        took,
        connections: watch.seen,
        samples: watch.samples,
        machines: watch.machines.into_readings(),
        processor: watch.processor,
    })
}

/// Passes over a failure, unless it is one too many in a row.
fn unless_repeated(done: Result<(), WatchError>, failures: &mut u8) -> Result<(), WatchError> {
    match done {
        Err(_) if *failures + 1 < MAX_FAILURES => *failures += 1,
        Err(error) => return Err(error),
        Ok(()) => *failures = 0,
    }
    Ok(())
}

/// Returns the time from a search that took so long to the next.
fn until_next_search(took: Duration) -> Duration {
    (took * SEARCH_PAUSE).min(MAX_SEARCH_PAUSE)
}

/// The network namespace of what is watched.
struct SubjectNetwork {
    connections: ConnectionTable,
    settings: HostSettings,
    /// Set if it is the one of this process.
    is_ours: bool,
}

impl SubjectNetwork {
    /// Reads the network namespace of this thread.
    fn of_this_thread(is_ours: bool) -> Result<Self, WatchError> {
        Ok(Self {
            connections: ConnectionTable::open().map_err(WatchError::Table)?,
            settings: inspect_host(&SysctlTree::of_this_host())?,
            is_ours,
        })
    }
}

/// Returns the network namespace that the subject is in.
fn in_its_network(subject: WatchSubject) -> Result<SubjectNetwork, WatchError> {
    let (WatchSubject::Process(pid) | WatchSubject::Started(pid)) = subject else {
        return SubjectNetwork::of_this_thread(true);
    };
    let Some(network) =
        process::foreign_network(pid).map_err(|cause| WatchError::of_process(pid, cause))?
    else {
        return SubjectNetwork::of_this_thread(true);
    };
    let network = NetNamespace::from(std::os::fd::OwnedFd::from(network));
    // A thread that enters a namespace must not be used for anything else.
    let there = thread::scope(|scope| {
        let moved = scope.spawn(|| {
            network
                .enter()
                .map_err(|cause| WatchError::of_process(pid, cause))?;
            SubjectNetwork::of_this_thread(false)
        });
        moved.join()
    });
    there.unwrap_or_else(|_| Err(WatchError::Table(std::io::ErrorKind::Other.into())))
}

impl ConnectionOwner {
    fn new(pid: u32, descriptor: i32) -> Self {
        Self {
            pid: Some(pid),
            program: process::transfer_program(pid),
            descriptor: Some(descriptor),
        }
    }

    /// Returns true if the process fixed the receive buffer of its socket; false also if that
    /// cannot be read.
    fn fixed_the_receive_buffer(&self) -> bool {
        let stated = self
            .pid
            .zip(self.descriptor)
            .and_then(|(pid, descriptor)| fixed_buffers(pid, descriptor).ok());
        stated.is_some_and(|[_, receive]| receive)
    }
}

struct ConnectionWatch {
    subject: WatchSubject,
    connections: ConnectionTable,
    origin: Instant,
    seen: Vec<ObservedConnection>,
    samples: Vec<Sample>,
    /// Owners of sockets, by inode number.
    owners: BTreeMap<u64, ConnectionOwner>,
    /// Searches in which a socket was not among the connections, up to [`SEARCHES`], by inode
    /// number; [`FOUND`] once it is known.
    misses: BTreeMap<u64, u8>,
    /// Earliest time of the next search.
    search_due: Instant,
    /// Earliest time of the next search for sockets that were not found before.
    table_due: Instant,
    machines: MachineMeters,
    processor: Vec<(Span, Span)>,
}

impl ConnectionWatch {
    fn new(subject: WatchSubject, connections: ConnectionTable, machines: MachineMeters) -> Self {
        let origin = Instant::now();
        Self {
            subject,
            connections,
            origin,
            seen: Vec::new(),
            samples: Vec::new(),
            owners: BTreeMap::new(),
            misses: BTreeMap::new(),
            search_due: origin,
            table_due: origin,
            machines,
            processor: Vec::new(),
        }
    }

    /// Takes a snapshot, before which it searches for new connections if `must_search` or a search
    /// is due.
    fn observe_connections(&mut self, is_first: bool, must_search: bool) -> Result<(), WatchError> {
        let began = Instant::now();
        if must_search || began >= self.search_due {
            self.search_connections(is_first)?;
            self.search_due = Instant::now() + until_next_search(began.elapsed());
        }
        self.take_snapshot()
    }

    /// Adds connections that are not yet known.
    fn search_connections(&mut self, is_first: bool) -> Result<(), WatchError> {
        match self.subject {
            WatchSubject::Process(pid) | WatchSubject::Started(pid) => {
                self.search_process(pid, is_first)
            }
            WatchSubject::Connection(local, remote) if is_first => {
                self.search_connection(local, remote)
            }
            WatchSubject::Connection(..) => Ok(()),
        }
    }

    fn search_connection(
        &mut self,
        local: SocketAddr,
        remote: SocketAddr,
    ) -> Result<(), WatchError> {
        let all = self.connections.list_all().map_err(WatchError::Table)?;
        let found = all
            .into_iter()
            .find(|one| is_same_end(one.local, local) && is_same_end(one.remote, remote));
        let found = found.ok_or(WatchError::NoConnection { local, remote })?;
        let owner = process::socket_owner(found.inode)
            .map(|(pid, descriptor)| ConnectionOwner::new(pid, descriptor));
        self.add_connection(&found, owner.unwrap_or_default(), true);
        Ok(())
    }

    fn search_process(&mut self, root: u32, is_first: bool) -> Result<(), WatchError> {
        let (mut new, mut present) = (BTreeSet::new(), BTreeSet::new());
        let asks_again = Instant::now() >= self.table_due;
        let processes = process::process_tree(root);
        self.note_processor_time(&processes);
        for pid in processes {
            let sockets = match process::process_sockets(pid) {
                Ok(sockets) => sockets,
                Err(cause) if pid == root && is_first => {
                    return Err(WatchError::of_process(pid, cause));
                }
                // The process has ended, or belongs to another user now.
                Err(_) => continue,
            };
            for (socket, descriptor) in sockets {
                present.insert(socket);
                if self.note_socket(pid, socket, descriptor, asks_again) {
                    new.insert(socket);
                }
            }
        }
        self.owners.retain(|socket, _| present.contains(socket));
        self.misses.retain(|socket, _| present.contains(socket));
        if new.is_empty() {
            return Ok(());
        }
        self.find_sockets(
            &new,
            is_first && self.subject != WatchSubject::Started(root),
        )
    }

    /// Notes the owner of a socket. Returns true if its connection is to be searched for, once more
    /// if `asks_again`.
    fn note_socket(&mut self, pid: u32, socket: u64, descriptor: i32, asks_again: bool) -> bool {
        // If processes share a socket, the youngest is the one that uses it.
        let owner = self.owners.entry(socket).or_default();
        if owner.pid < Some(pid) {
            *owner = ConnectionOwner::new(pid, descriptor);
        }
        let tries = self.misses.entry(socket).or_default();
        let is_new = *tries < SEARCHES || *tries == SEARCHES && asks_again;
        if is_new {
            *tries = (*tries + 1).min(SEARCHES);
        }
        is_new
    }

    /// Adds those of the sockets that are connections.
    fn find_sockets(&mut self, sockets: &BTreeSet<u64>, is_old: bool) -> Result<(), WatchError> {
        let began = Instant::now();
        let all = self.connections.list_all().map_err(WatchError::Table)?;
        self.table_due = Instant::now() + (began.elapsed() * TABLE_PAUSE).min(MAX_TABLE_PAUSE);
        for found in all.into_iter().filter(|one| sockets.contains(&one.inode)) {
            self.misses.insert(found.inode, FOUND);
            let owner = self.owners.get(&found.inode).cloned().unwrap_or_default();
            self.add_connection(&found, owner, is_old);
        }
        Ok(())
    }

    fn note_processor_time(&mut self, processes: &BTreeSet<u32>) {
        let used: Span = processes
            .iter()
            .map(|pid| process::processor_time(*pid))
            .sum();
        self.processor.push((self.origin.elapsed().into(), used));
        if self.processor.len() > MAX_SAMPLES {
            let mut is_kept = false;
            self.processor.retain(|_| {
                is_kept = !is_kept;
                is_kept
            });
        }
    }

    /// A program may ask for a buffer once it is connected.
    fn read_receive_buffers(&mut self) {
        for seen in self
            .seen
            .iter_mut()
            .filter(|seen| seen.is_open() && !seen.has_fixed_rcvbuf)
        {
            seen.has_fixed_rcvbuf = seen.owner.fixed_the_receive_buffer();
        }
    }

    fn add_connection(&mut self, found: &TcpConnection, owner: ConnectionOwner, is_old: bool) {
        if self.seen.iter().any(|seen| seen.cookie == found.cookie) {
            return;
        }
        let Some(place) = self.free_place() else {
            return;
        };
        self.machines.add_connection(owner.pid, found.remote.ip());
        let seen = ObservedConnection {
            cookie: found.cookie,
            has_fixed_rcvbuf: owner.fixed_the_receive_buffer(),
            owner,
            local: found.local,
            remote: found.remote,
            congestion: found.congestion.clone(),
            is_old,
            found: self.origin.elapsed().into(),
            misses: 0,
        };
        match self.seen.get_mut(place) {
            Some(closed) => {
                *closed = seen;
                self.samples
                    .retain(|sample| usize::from(sample.stream) != place);
            }
            None => self.seen.push(seen),
        }
    }

    /// Returns the place of the next connection. Where all are taken, that is the place of the
    /// closed one that moved the fewest bytes: a program that has thousands of short connections
    /// may have a long one after them. `None` if all are open.
    fn free_place(&self) -> Option<usize> {
        if self.seen.len() < MAX_CONNECTIONS {
            return Some(self.seen.len());
        }
        let mut moved = vec![ByteCount::ZERO; self.seen.len()];
        for sample in &self.samples {
            moved[usize::from(sample.stream)] = both_ways(sample);
        }
        let closed = (0..moved.len()).filter(|place| !self.seen[*place].is_open());
        closed.min_by_key(|place| moved[*place])
    }

    /// Takes one sample of each open connection.
    fn take_snapshot(&mut self) -> Result<(), WatchError> {
        let open = self.seen.iter().filter(|seen| seen.is_open());
        let ends: Vec<_> = open.map(|seen| (seen.local, seen.remote)).collect();
        let found = self
            .connections
            .find_by_ends(&ends)
            .map_err(WatchError::Table)?;
        let mut by_cookie: BTreeMap<u64, TcpConnection> =
            found.into_iter().map(|one| (one.cookie, one)).collect();
        let at = Span::from(self.origin.elapsed());
        for (stream, seen) in self
            .seen
            .iter_mut()
            .enumerate()
            .filter(|(_, seen)| seen.is_open())
        {
            let Some(now) = by_cookie.remove(&seen.cookie) else {
                seen.misses += 1;
                continue;
            };
            seen.misses = 0;
            // Its counters begin with the connection.
            if now.tcp.state != Some(SYN_SENT) {
                self.samples.push(Sample {
                    at,
                    stream: stream as u16,
                    bytes: ByteCount::ZERO,
                    tcp: now.tcp,
                    memory: now.memory,
                });
            }
        }
        Ok(())
    }

    fn current_progress<'w>(&'w self, settings: &'w HostSettings) -> WatchProgress<'w> {
        let now = self
            .samples
            .iter()
            .rev()
            .take_while(|sample| Some(sample.at) == self.samples.last().map(|last| last.at));
        let is_sending = now.clone().any(|sample| {
            let seen = self.sampled_connection(sample);
            seen.is_some_and(ObservedConnection::is_open)
                && sample.unacknowledged_bytes() > ByteCount::ZERO
        });
        WatchProgress {
            elapsed: self.origin.elapsed().into(),
            moved: now.clone().map(both_ways).sum(),
            is_sending,
            rtt: now
                .clone()
                .max_by_key(|sample| both_ways(sample))
                .and_then(|sample| sample.tcp.rtt),
            watch: self,
            settings,
        }
    }

    fn sampled_connection(&self, sample: &Sample) -> Option<&ObservedConnection> {
        self.seen.get(usize::from(sample.stream))
    }

    /// Returns true if no more samples can come.
    fn is_over(&self) -> bool {
        match self.subject {
            WatchSubject::Process(pid) | WatchSubject::Started(pid) => {
                !process::is_alive(pid) && self.seen.iter().all(|seen| !seen.is_open())
            }
            WatchSubject::Connection(..) => self.seen.iter().all(|seen| !seen.is_open()),
        }
    }
}

/// Returns true if two addresses are the same, IPv4 in IPv6 or not.
fn is_same_end(one: SocketAddr, other: SocketAddr) -> bool {
    one.port() == other.port() && one.ip().to_canonical() == other.ip().to_canonical()
}

#[cfg(test)]
mod tests;
