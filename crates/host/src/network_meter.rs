//! Drops and memory of the network stack.

use std::fs::{self, File};
use std::io::{Read, Seek};
use std::path::Path;

use fullpipe_record::NetworkStack;
use fullpipe_units::{ByteCount, Span};

use crate::counters::parse_backlog_drops;

/// Counts what the network stack of this host drops and lacks, from when it was made on. Its files
/// stay open, and are read again at each sample.
#[derive(Debug)]
pub struct NetworkMeter {
    /// `/proc/net/netstat`, `/proc/net/softnet_stat` and `/proc/net/protocols`.
    files: [Option<File>; 3],
    before: NetworkStack,
    report: NetworkStack,
    text: String,
}

impl NetworkMeter {
    /// Starts to count in the network namespace of the calling thread.
    pub fn of_this_thread() -> Self {
        Self::from_folders(Path::new("/proc/thread-self/net"), Path::new("/proc/sys"))
    }

    fn from_folders(net: &Path, sysctls: &Path) -> Self {
        let files =
            ["netstat", "softnet_stat", "protocols"].map(|name| File::open(net.join(name)).ok());
        let tcp_mem = fs::read_to_string(sysctls.join("net/ipv4/tcp_mem")).unwrap_or_default();
        let mut meter = Self {
            files,
            before: NetworkStack::default(),
            report: NetworkStack {
                tcp_memory_limit: tcp_mem.split_whitespace().nth(1).and_then(parse_pages),
                ..NetworkStack::default()
            },
            text: String::new(),
        };
        meter.before = meter.read_counters().unwrap_or_default();
        meter
    }

    /// Returns the figures since the meter was made, at time `at` since data began to flow; `None`
    /// if the kernel reports none.
    pub fn take_sample(&mut self, at: Span) -> Option<NetworkStack> {
        let counted = self.read_counters()?.growth_since(self.before);
        let memory = self.read_file(2).and_then(parse_memory);
        let (memory, is_pressed) = memory.unwrap_or_default();
        let before = self.report;
        let since = at.saturating_sub(before.sampled);
        let pressed = if is_pressed { since } else { Span::ZERO };
        self.report = NetworkStack {
            under_memory_pressure: before.under_memory_pressure + pressed,
            sampled: at.max(before.sampled),
            tcp_memory: memory.max(before.tcp_memory),
            tcp_memory_limit: before.tcp_memory_limit,
            ..counted
        };
        Some(self.report)
    }

    fn read_counters(&mut self) -> Option<NetworkStack> {
        let mut counted = parse_tcp_counters(self.read_file(0)?);
        counted.backlog_dropped = self.read_file(1).map_or(0, parse_backlog_drops);
        Some(counted)
    }

    /// Returns the whole text of a file; `None` where it cannot be read.
    fn read_file(&mut self, number: usize) -> Option<&str> {
        let mut file = self.files[number].as_ref()?;
        self.text.clear();
        file.rewind().ok()?;
        file.read_to_string(&mut self.text).ok()?;
        Some(&self.text)
    }
}

/// Reads the line of names and the line of numbers that begin with `TcpExt:`. One that this kernel
/// does not have is zero.
fn parse_tcp_counters(text: &str) -> NetworkStack {
    let mut lines = text.lines().filter(|line| line.starts_with("TcpExt:"));
    let [names, numbers] = [lines.next(), lines.next()].map(Option::unwrap_or_default);
    let mut counted = NetworkStack::default();
    for (name, number) in names.split_whitespace().zip(numbers.split_whitespace()) {
        if let Some(count) = counted.counter_mut(name) {
            *count = number.parse().unwrap_or(0);
        }
    }
    counted
}

/// Returns the memory of all TCP sockets, and whether the kernel saves it: the fourth and fifth
/// column of a protocol in `protocols`. TCP over IPv6 has the same.
fn parse_memory(text: &str) -> Option<(ByteCount, bool)> {
    let mut lines = text.lines().map(str::split_whitespace);
    let mut fields =
        lines.find_map(|mut fields| matches!(fields.next()?, "TCP" | "TCPv6").then_some(fields))?;
    Some((parse_pages(fields.nth(2)?)?, fields.next()? == "yes"))
}

fn parse_pages(text: &str) -> Option<ByteCount> {
    let pages: u64 = text.parse().ok()?;
    Some(ByteCount::new(pages) * rustix::param::page_size() as u64)
}

#[cfg(test)]
mod tests {
    use super::*;

    const NETSTAT: &str = "TcpExt: SyncookiesSent PruneCalled TCPRcvCollapsed TCPMemoryPressures \
                           TCPBacklogDrop TCPOFODrop TCPRcvQDrop\n\
                           TcpExt: 8 9 58 1 3 2 700\nIpExt: InNoRoutes PruneCalled\nIpExt: 1 77\n";
    const SOFTNET: &str = "0509aa02 00000010 00000007 00000000\n04ef3926 0000000f 0000000d 0\n";

    fn protocols(pages: u64, pressed: &str) -> String {
        format!(
            "protocol  size sockets  memory press maxhdr  slab module\n\
             PACKET    1600      0      -1   NI       0   no   kernel\n\
             TCPv6     2432      3  {pages:>6}   {pressed:<3}    192   yes  kernel\n\
             TCP       2304      3  {pages:>6}   {pressed:<3}    192   yes  kernel\n"
        )
    }

    fn write(tree: &tempfile::TempDir, name: &str, text: &str) {
        fs::create_dir_all(tree.path().join(name).parent().unwrap()).unwrap();
        fs::write(tree.path().join(name), text).unwrap();
    }

    #[test]
    fn counters_are_those_since_the_begin_and_pressure_has_its_time() {
        let tree = tempfile::tempdir().unwrap();
        write(&tree, "net/netstat", NETSTAT);
        write(&tree, "net/softnet_stat", SOFTNET);
        write(&tree, "net/protocols", &protocols(100, "no"));
        write(&tree, "sys/net/ipv4/tcp_mem", "300\t500\t900\n");
        let mut meter =
            NetworkMeter::from_folders(&tree.path().join("net"), &tree.path().join("sys"));
        let first = meter.take_sample(Span::from_secs(1)).unwrap();
        let page = rustix::param::page_size() as u64;
        let at_first = NetworkStack {
            sampled: Span::from_secs(1),
            tcp_memory: ByteCount::new(100 * page),
            tcp_memory_limit: Some(ByteCount::new(500 * page)),
            ..NetworkStack::default()
        };
        assert_eq!(first, at_first);
        write(
            &tree,
            "net/netstat",
            &NETSTAT.replace("8 9 58 1 3 2 700", "8 11 158 2 7 2 720"),
        );
        write(
            &tree,
            "net/softnet_stat",
            &SOFTNET.replace("00000010", "00000024"),
        );
        write(&tree, "net/protocols", &protocols(600, "yes"));
        meter.take_sample(Span::from_secs(3)).unwrap();
        write(&tree, "net/protocols", &protocols(200, "no"));
        let last = meter.take_sample(Span::from_secs(4)).unwrap();
        assert_eq!((last.backlog_dropped, last.receive_queue_dropped), (20, 20));
        assert_eq!(
            (last.socket_backlog_dropped, last.out_of_order_dropped),
            (4, 0)
        );
        assert_eq!(
            (last.pruned, last.collapsed, last.memory_pressures),
            (2, 100, 1)
        );
        assert_eq!(
            (last.under_memory_pressure, last.sampled, last.tcp_memory),
            (
                Span::from_secs(2),
                Span::from_secs(4),
                ByteCount::new(600 * page)
            )
        );
        assert_eq!(last.dropped_by_sockets(), 24);
    }

    #[test]
    fn the_kernel_of_this_machine_is_read_and_one_without_files_is_not() {
        let stack = NetworkMeter::of_this_thread()
            .take_sample(Span::from_secs(1))
            .unwrap();
        assert_eq!(stack.sampled, Span::from_secs(1));
        let nowhere = tempfile::tempdir().unwrap();
        let mut none = NetworkMeter::from_folders(nowhere.path(), nowhere.path());
        assert_eq!(none.take_sample(Span::from_secs(1)), None);
    }
}
