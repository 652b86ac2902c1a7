//! Counters of a host, read before and after a transfer: text of `nstat -az`, `netstat -s`,
//! `ethtool -S` and `-g`, `tc -s qdisc` and `/proc/net/softnet_stat` → what the host dropped and
//! lacked between the two.
//!
//! Pure: it reads text, and nothing of this host.

mod lines;
mod machine;

use std::collections::BTreeMap;

use fullpipe_record::{At, DeviceReport, Evidence, Machine, QdiscReport};
use fullpipe_units::BitRate;

/// A program, or a file of the kernel, that prints counters.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum CounterSource {
    /// `nstat -az`.
    Nstat,
    /// `netstat -s`.
    Netstat,
    /// `ethtool -S DEVICE`.
    Driver,
    /// `ethtool -g DEVICE`, whose figures are settings and not counters.
    Rings,
    /// `tc -s qdisc`.
    Qdiscs,
    /// `/proc/net/softnet_stat`.
    Softnet,
}

impl CounterSource {
    /// Returns the command that prints it.
    pub const fn command(self) -> &'static str {
        match self {
            Self::Nstat => "nstat -az",
            Self::Netstat => "netstat -s",
            Self::Driver => "ethtool -S",
            Self::Rings => "ethtool -g",
            Self::Qdiscs => "tc -s qdisc",
            Self::Softnet => "/proc/net/softnet_stat",
        }
    }
}

/// Counts of one source at one time, by name.
type Reading = BTreeMap<String, u64>;

fn count_of(reading: &Reading, name: &str) -> u64 {
    reading.get(name).copied().unwrap_or(0)
}

/// The first and the last reading of a source.
#[derive(Debug, Default)]
struct SourceReadings {
    first: Reading,
    last: Reading,
    /// Number of readings.
    count: u64,
    /// Number of the file that the last one stands in.
    file: u64,
}

impl SourceReadings {
    /// Returns the growth of each counter between the first reading and the last, in whichever order
    /// they were handed over; `None` of a single one.
    fn growth(&self) -> Option<Reading> {
        let [mut before, mut after] = [&self.first, &self.last];
        let growths = before
            .iter()
            .filter_map(|(name, count)| Some(i128::from(*after.get(name)?) - i128::from(*count)));
        if growths.sum::<i128>() < 0 {
            (before, after) = (after, before);
        }
        let more = |(name, count): (&String, &u64)| {
            (name.clone(), count.saturating_sub(count_of(before, name)))
        };
        (self.count > 1).then(|| after.iter().map(more).collect())
    }
}

/// A queueing discipline in `tc -s qdisc`.
#[derive(Debug)]
struct ListedQdisc {
    device: String,
    kind: String,
    /// Device, kind, handle and parent, by which its counters are known.
    name: String,
    rate: Option<BitRate>,
}

/// Reads counters out of the lines of one file after another.
#[derive(Debug, Default)]
pub struct CounterReader {
    sources: BTreeMap<CounterSource, SourceReadings>,
    /// Source whose lines follow its heading.
    section: Option<CounterSource>,
    qdiscs: Vec<ListedQdisc>,
    /// Place in `qdiscs` whose counters follow.
    qdisc: usize,
    device: Option<String>,
    /// Current and largest number of descriptors of the receive ring.
    ring: [Option<u64>; 2],
    is_ring_maximum: bool,
    file: u64,
}

/// What the counters of a host show.
#[derive(Debug, Clone, Default)]
pub struct HostCounters {
    /// The counters as growth between two readings; of a host of which no counter was read twice,
    /// since it started.
    pub machine: Machine,
    /// True if counters were read twice.
    pub are_of_transfer: bool,
    /// The end that most of the data came to, or left; `None` if no counter shows it.
    pub end: Option<At>,
    /// The sources, each with the number of its readings.
    pub sources: Vec<(CounterSource, u64)>,
}

impl HostCounters {
    /// Puts the counts beside the evidence of a transfer: at the end that they show, or else at
    /// `own_end`, where the transfer was seen.
    pub fn add_to(&self, evidence: &mut Evidence, own_end: Option<At>) {
        let machine = match self.end.or(own_end) {
            Some(At::Receiver) => &mut evidence.receiver_machine,
            Some(At::Sender) => &mut evidence.sender_machine,
            _ => return,
        };
        let counted = self.machine_of_transfer();
        machine.device = counted.device.or(machine.device.take());
        machine.network = counted.network.or(machine.network);
    }

    /// Returns the figures of the machine during a transfer: without counts where none was read
    /// twice, since those are of all the time before.
    pub fn machine_of_transfer(&self) -> Machine {
        let mut machine = self.machine.clone();
        if self.are_of_transfer {
            return machine;
        }
        machine.network = None;
        machine.device = machine.device.map(|device| DeviceReport {
            name: device.name,
            receive_ring: device.receive_ring,
            qdiscs: device.qdiscs.into_iter().map(without_counts).collect(),
            ..DeviceReport::default()
        });
        machine
    }
}

fn without_counts(qdisc: QdiscReport) -> QdiscReport {
    QdiscReport {
        kind: qdisc.kind,
        rate: qdisc.rate,
        ..QdiscReport::default()
    }
}

impl CounterReader {
    /// Begins with the lines of another file, which begin another reading.
    pub fn begin_file(&mut self) {
        self.file += 1;
        self.section = None;
    }

    /// Takes the counters of a line. Returns false of a line that is none of a known source.
    pub fn read_line(&mut self, line: &str) -> bool {
        self.read_heading(line) || self.read_counter(line)
    }

    /// Takes a count. Returns false of what is none.
    fn add_count(&mut self, source: CounterSource, name: &str, count: Option<u64>) -> bool {
        let Some(count) = count else {
            return false;
        };
        let readings = self.sources.entry(source).or_default();
        let is_next = readings.file != self.file || readings.last.contains_key(name);
        if readings.count == 0 || is_next {
            if readings.count == 1 {
                readings.first = std::mem::take(&mut readings.last);
            }
            readings.last.clear();
            readings.count += 1;
            readings.file = self.file;
        }
        readings.last.insert(name.to_owned(), count);
        true
    }

    /// Returns what the counters show; `None` where there are none.
    pub fn into_counters(self) -> Option<HostCounters> {
        let ring = self.ring[0].map(|_| (CounterSource::Rings, 1));
        let sources: Vec<_> = self
            .sources
            .iter()
            .map(|(source, all)| (*source, all.count))
            .chain(ring)
            .collect();
        if sources.is_empty() {
            return None;
        }
        let are_of_transfer = sources.iter().any(|(_, count)| *count > 1);
        let counted = |readings: &SourceReadings| {
            if are_of_transfer {
                readings.growth()
            } else {
                Some(readings.last.clone())
            }
        };
        let counts: BTreeMap<CounterSource, Reading> = self
            .sources
            .iter()
            .filter_map(|(source, readings)| Some((*source, counted(readings)?)))
            .collect();
        Some(HostCounters {
            end: machine::end_of_data(&counts),
            machine: self.counted_machine(&counts),
            are_of_transfer,
            sources,
        })
    }
}

#[cfg(test)]
mod tests;
