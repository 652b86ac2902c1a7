//! Text of `ss` → the connections in it, as a watch of them would have sampled them.
//!
//! Pure: it reads text, and nothing of this host. Tested against text of iproute2 5.10, 6.1 and 7.1.

mod clock;
mod entry;
mod socket_figures;

use std::collections::{BTreeMap, BTreeSet};
use std::net::SocketAddr;

use fullpipe_record::{Sample, TcpInfo};
use fullpipe_units::{BitRate, ByteCount, Span};

use crate::connections::{ObservedConnection, WatchedConnections};
use crate::readings::MachineReadings;
use entry::ListedConnection;

/// Time between two listings that state none.
const ASSUMED_PERIOD: Span = Span::from_secs(1);

/// Minimum number of samples of a connection that can be judged.
const MIN_SNAPSHOTS: usize = 2;

/// Least age of a connection, and the longest that is estimated from its rate.
const MIN_AGE: Span = Span::from_millis(1);
const MAX_ESTIMATED_AGE: Span = Span::from_secs(1_000_000);

/// Maximum number of connections; more are left out.
const MAX_CONNECTIONS: usize = 10_000;

/// The connections that listings show, and what else the text has.
#[derive(Debug)]
pub struct ConnectionListing<'t> {
    /// The connections. Each has a sample for every listing; where there is one listing, it has one
    /// more at its begin, when the kernel's counters were zero.
    pub watched: WatchedConnections,
    /// Number of listings; one where each connection is in a listing of its own.
    pub listings: usize,
    /// True if the text states no time between listings, and one second is assumed.
    pub is_period_assumed: bool,
    /// Number of words in the lines of connections that are not known.
    pub unknown_words: u64,
    /// Number of connections without figures of TCP, or in other states than established.
    pub without_figures: u64,
    /// Lines that are no part of a listing.
    pub other_lines: Vec<&'t str>,
}

/// Returns the TCP connections that a text of `ss -tinmoe` lists, once or several times. Figures
/// that flags left out are unknown; of those that `ss` leaves out because they are zero, that is
/// known.
pub fn read_listing(text: &str) -> ConnectionListing<'_> {
    let mut reader = ListingReader::default();
    for line in text.lines() {
        reader.read_line(line);
    }
    reader.into_listing()
}

/// Connections that one call of `ss` printed, with the time of the call.
#[derive(Default)]
struct OneListing {
    at: Option<Span>,
    entries: Vec<ListedConnection>,
}

#[derive(Default)]
struct ListingReader<'t> {
    listings: Vec<OneListing>,
    other_lines: Vec<&'t str>,
}

impl<'t> ListingReader<'t> {
    fn read_line(&mut self, line: &'t str) {
        if let Some((entry, rest)) = ListedConnection::from_line(line) {
            let is_again = self.listings.last().is_none_or(|listing| {
                let mut others = listing.entries.iter();
                others.any(|other| other.is_same_socket(&entry))
            });
            if is_again {
                self.begin_listing(None);
            }
            if let Some(listing) = self.listings.last_mut() {
                listing.entries.push(entry);
            }
            self.add_words(rest);
        } else if entry::is_heading(line) {
            self.begin_listing(None);
        } else if socket_figures::are_words_of_socket(line) && self.last_entry().is_some() {
            self.add_words(line);
        } else if let Some(at) = clock::time_in_line(line) {
            self.begin_listing(Some(at));
        } else if !line.trim().is_empty() {
            self.other_lines.push(line);
        }
    }

    fn last_entry(&mut self) -> Option<&mut ListedConnection> {
        self.listings.last_mut()?.entries.last_mut()
    }

    /// Adds words to those of the last connection, whose line may have been broken anywhere.
    fn add_words(&mut self, line: &str) {
        if let Some(entry) = self.last_entry() {
            entry.words.push(' ');
            entry.words += line;
        }
    }

    /// Begins a listing, unless the last one is still empty.
    fn begin_listing(&mut self, at: Option<Span>) {
        match self.listings.last_mut() {
            Some(last) if last.entries.is_empty() => last.at = at.or(last.at),
            _ => self.listings.push(OneListing {
                at,
                entries: Vec::new(),
            }),
        }
    }

    fn into_listing(mut self) -> ConnectionListing<'t> {
        self.listings.retain(|listing| !listing.entries.is_empty());
        let entries = self.listings.iter_mut().flat_map(|one| &mut one.entries);
        let unknown_words = entries.map(ListedConnection::read_words).sum();
        let (times, is_period_assumed) = listing_times(&self.listings);
        let mut entries = self.listings.iter().flat_map(|one| &one.entries);
        let is_only_look = !has_second_look(&self.listings);
        let mut connections = ListedConnections {
            is_only_look,
            shows_windows: entries.any(|entry| entry.figures.tcp.snd_wnd.is_some()),
            ..ListedConnections::default()
        };
        for (listing, at) in self.listings.into_iter().zip(&times) {
            for entry in listing.entries {
                connections.add_entry(entry, *at);
            }
        }
        ConnectionListing {
            listings: if is_only_look {
                times.len().min(1)
            } else {
                times.len()
            },
            is_period_assumed: is_period_assumed && !is_only_look,
            unknown_words,
            without_figures: connections.without_figures,
            watched: connections.into_watched(),
            other_lines: self.other_lines,
        }
    }
}

/// The connections of all listings.
#[derive(Default)]
struct ListedConnections {
    /// True if every connection is listed once.
    is_only_look: bool,
    /// True if the advertised windows are listed.
    shows_windows: bool,
    places: BTreeMap<[SocketAddr; 2], usize>,
    connections: Vec<ObservedConnection>,
    samples: Vec<Sample>,
    without_figures: u64,
}

impl ListedConnections {
    fn add_entry(&mut self, entry: ListedConnection, at: Span) {
        let ends = entry.ends;
        let next = self.connections.len();
        let is_left_out = next == MAX_CONNECTIONS && !self.places.contains_key(&ends);
        if is_left_out || !entry.has_figures() {
            self.without_figures += 1;
            return;
        }
        let figures = entry.figures.with_zeros(self.shows_windows);
        let place = *self.places.entry(ends).or_insert(next);
        if place == next {
            let seen = ObservedConnection::from_listing(ends, entry.owner, figures.congestion);
            self.connections.push(seen);
        }
        let sample = Sample {
            at: if self.is_only_look {
                least_age(&figures.tcp)
            } else {
                at
            },
            stream: place as u16,
            bytes: ByteCount::ZERO,
            tcp: figures.tcp,
            memory: figures.memory,
        };
        if self.is_only_look {
            self.samples.push(first_sample(&sample));
        }
        self.samples.push(sample);
    }

    fn into_watched(self) -> WatchedConnections {
        let took = self.samples.iter().map(|sample| sample.at).max();
        WatchedConnections {
            settings: None,
            took: took.unwrap_or_default(),
            connections: self.connections,
            samples: self.samples,
            machines: MachineReadings::default(),
            processor: Vec::new(),
            fewest_snapshots: MIN_SNAPSHOTS,
        }
    }
}

/// Returns true if a connection is in two listings.
fn has_second_look(listings: &[OneListing]) -> bool {
    let mut seen = BTreeSet::new();
    let mut entries = listings.iter().flat_map(|one| &one.entries);
    entries.any(|entry| entry.has_figures() && !seen.insert(entry.ends))
}

/// Returns the times of the listings since the first, and true if they are assumed.
fn listing_times(listings: &[OneListing]) -> (Vec<Span>, bool) {
    let stated: Option<Vec<Span>> = listings.iter().map(|listing| listing.at).collect();
    let since_first = stated.and_then(|all| clock::times_since_first(&all));
    let assumed = || (0..listings.len() as u64).map(|number| ASSUMED_PERIOD * number);
    match since_first {
        Some(times) => (times, false),
        None => (assumed().collect(), listings.len() > 1),
    }
}

/// Returns the connection at its begin: all that the kernel counts was zero.
fn first_sample(sample: &Sample) -> Sample {
    fn zero<T: Default>(count: Option<T>) -> Option<T> {
        count.map(|_| T::default())
    }
    let tcp = &sample.tcp;
    let tcp = TcpInfo {
        total_retrans: zero(tcp.total_retrans),
        data_segs_out: zero(tcp.data_segs_out),
        data_segs_in: zero(tcp.data_segs_in),
        segs_out: zero(tcp.segs_out),
        segs_in: zero(tcp.segs_in),
        dsack_dups: zero(tcp.dsack_dups),
        delivered: zero(tcp.delivered),
        out_of_order_in: zero(tcp.out_of_order_in),
        bytes_acked: zero(tcp.bytes_acked),
        bytes_received: zero(tcp.bytes_received),
        bytes_sent: zero(tcp.bytes_sent),
        bytes_retrans: zero(tcp.bytes_retrans),
        busy: zero(tcp.busy),
        rwnd_limited: zero(tcp.rwnd_limited),
        sndbuf_limited: zero(tcp.sndbuf_limited),
        ..TcpInfo::default()
    };
    Sample {
        at: Span::ZERO,
        memory: None,
        tcp,
        ..*sample
    }
}

/// Returns the age of a connection, as far as its figures show it. Each of them is a time that has
/// passed at least: the kernel's clocks count from the handshake on, so that at an end which only
/// sends, or only receives, one of them is the age.
fn least_age(tcp: &TcpInfo) -> Span {
    let received = tcp.bytes_received.unwrap_or_default();
    // The best round trip that the receiver saw.
    let best = tcp.rcv_space.zip(tcp.rcv_rtt);
    let arriving = best.map(|(space, rtt)| BitRate::from_bytes_in(space, rtt).time_for(received));
    let clocks = [
        tcp.busy,
        tcp.since_data_sent,
        tcp.since_data_received,
        tcp.since_ack_received,
        arriving.filter(|time| *time < MAX_ESTIMATED_AGE),
    ];
    clocks
        .into_iter()
        .flatten()
        .max()
        .unwrap_or_default()
        .max(MIN_AGE)
}

#[cfg(test)]
mod tests;
