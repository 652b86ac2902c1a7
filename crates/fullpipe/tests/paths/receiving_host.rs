//! Receiving hosts that lack room: for packets of a burst, or for what all their TCP sockets hold.
//! The settings are those of the whole machine: they are changed for these tests alone, and put
//! back when they end.

mod tests_alone {
    use std::fs;
    use std::io::{ErrorKind, Write};
    use std::net::{Ipv4Addr, TcpListener, TcpStream};
    use std::path::Path;
    use std::process::{Child, Command, Stdio};

    use crate::common::{fullpipe, run};
    use fullpipe_testkit::{document, note_skipped, path, require, valid_within};
    use serde_json::Value;

    /// Longest time until the program has printed its report, in seconds.
    const TIMEOUT: u64 = 60;

    /// Pages, in three values: below, from here on memory is saved, never more.
    const TCP_MEM: &str = "/proc/sys/net/ipv4/tcp_mem";

    /// Packets that may wait for a processor.
    const BACKLOG: &str = "/proc/sys/net/core/netdev_max_backlog";

    /// Pages that sockets of this test hold, and at most so many pairs of sockets for that.
    const HELD: u64 = 2_000;
    const MAX_PAIRS: usize = 64;

    /// Two namespaces with a pair of virtual devices. Data leaves in bursts of 80 packets, which
    /// all come into the queue of one processor before it looks at the first.
    const BURSTS: &str = "set -e; mount -t tmpfs none /run; mkdir /run/netns; ip netns add far
        ip link add v0 type veth peer name v0 netns far
        ip address add 198.18.7.1/24 dev v0; ip -n far address add 198.18.7.2/24 dev v0
        ip link set lo up; ip link set v0 up; ip -n far link set v0 up
        ethtool -K v0 tso off gso off gro off >&2
        ip netns exec far ethtool -K v0 tso off gso off gro off >&2
        tc qdisc add dev v0 root tbf rate 800mbit burst 128kb limit 4mb
        ip netns exec far timeout 50 \"$0\" serve --one-off >&2 & sleep 1
        exec \"$0\" diagnose 198.18.7.2 -t 4 -C reno --json";

    /// Rate from which the shaper that makes the bursts is the limit, and no drop: it lets 765
    /// Mbit/s of data through.
    const NEARLY_SHAPED: f64 = 700e6;

    /// A setting of the whole machine with another value, until this is dropped. A shell puts the
    /// old one back once its input ends, also where this process is killed.
    struct ChangedSetting {
        file: &'static str,
        before: String,
        restorer: Child,
    }

    impl ChangedSetting {
        fn to(file: &'static str, value: &str) -> Self {
            let before = fs::read_to_string(file).unwrap();
            let restore = format!("trap '' INT TERM; cat; echo '{}' > {file}", before.trim());
            let restorer = Command::new("sh")
                .args(["-c", &restore])
                .stdin(Stdio::piped())
                .spawn()
                .unwrap();
            fs::write(file, value).unwrap();
            Self {
                file,
                before,
                restorer,
            }
        }
    }

    impl Drop for ChangedSetting {
        fn drop(&mut self) {
            drop(self.restorer.stdin.take());
            let _ = self.restorer.wait();
            assert_eq!(fs::read_to_string(self.file).unwrap(), self.before);
        }
    }

    /// Returns true, and says so, if a setting is that of another network namespace than this one.
    fn is_out_of_reach(file: &str) -> bool {
        let is_missing = !Path::new(file).exists();
        if is_missing {
            note_skipped(
                "receiving_host.rs",
                &format!("{file} is not of this namespace"),
            );
        }
        is_missing
    }

    /// Returns the memory of all TCP sockets, in pages.
    fn tcp_pages() -> u64 {
        let text = fs::read_to_string("/proc/net/protocols").unwrap();
        let line = text.lines().find(|line| line.starts_with("TCP ")).unwrap();
        line.split_whitespace().nth(3).unwrap().parse().unwrap()
    }

    /// Returns connections over loopback whose data nobody reads.
    fn unread_connections() -> Vec<(TcpStream, TcpStream)> {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        let mut pairs = Vec::new();
        while tcp_pages() < HELD && pairs.len() < MAX_PAIRS {
            let mut writer = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
            writer.set_nonblocking(true).unwrap();
            pairs.push((writer.try_clone().unwrap(), listener.accept().unwrap().0));
            let refused = loop {
                if let Err(error) = writer.write(&[0; 16 << 10]) {
                    break error;
                }
            };
            assert_eq!(refused.kind(), ErrorKind::WouldBlock);
        }
        assert!(tcp_pages() >= HELD, "{} pages", tcp_pages());
        pairs
    }

    fn assert_verdict(verdict: &Value, expected: [&str; 3]) {
        assert_eq!(
            ["kind", "cause", "at"].map(|key| &verdict[key]),
            expected.map(Value::from).each_ref(),
            "{verdict:#}"
        );
    }

    #[test]
    fn a_receiving_host_whose_memory_other_sockets_hold_is_named() {
        require!(Lab, Root);
        if is_out_of_reach(TCP_MEM) {
            return;
        }
        let _path = path();
        let _held = unread_connections();
        let pages = tcp_pages() / 2;
        let most = fs::read_to_string(TCP_MEM).unwrap();
        let most = most.split_whitespace().nth(2).unwrap().to_owned();
        let lowered = ChangedSetting::to(TCP_MEM, &format!("{} {pages} {most}", pages / 2));
        let report = valid_within(3, || {
            let arguments = ["demo", "--path", "rate=100M,rtt=40ms", "-t", "6", "--json"];
            let report = document(&run(&mut fullpipe(&arguments), TIMEOUT))["experiment"].clone();
            let broken = report["measurement"]["validity"]["broken"].as_array();
            let broken: Vec<String> = broken
                .into_iter()
                .flatten()
                .map(ToString::to_string)
                .collect();
            (report, broken)
        });
        drop(lowered);
        let verdict = &report["verdict"];
        assert_verdict(verdict, ["receive-window", "memory-pressure", "receiver"]);
        let memory = verdict["evidence"]["TCP memory of the receiving host"].as_str();
        assert!(memory.unwrap().contains("in all sockets"), "{memory:?}");
        let seen = &report["measurement"]["remote"]["network"];
        assert!(
            seen["under_memory_pressure"].as_f64().unwrap()
                >= seen["sampled"].as_f64().unwrap() * 0.9,
            "other sockets held it all the time: {seen:#}"
        );
    }

    /// The ring of a card cannot overflow here, as virtual devices have none: bursts overflow the
    /// queue behind it.
    #[test]
    fn a_receiving_host_whose_processors_have_no_room_for_bursts_is_named() {
        require!(Root, Unshare, Ethtool);
        if is_out_of_reach(BACKLOG) {
            return;
        }
        let _path = path();
        let short = ChangedSetting::to(BACKLOG, "1");
        let report = valid_within(3, || {
            let mut command = Command::new("unshare");
            command
                .args(["--mount", "--net", "sh", "-c", BURSTS])
                .arg(fullpipe(&[]).get_program());
            let report = document(&run(&mut command, TIMEOUT))["measurement"].clone();
            let rate = report["summary"]["rate"].as_f64().unwrap();
            let shaped = (rate > NEARLY_SHAPED).then(|| format!("{rate} bit/s pass"));
            (report, shaped.into_iter().collect())
        });
        drop(short);
        let verdict = &report["limit"];
        assert_verdict(verdict, ["loss", "receiver-host", "receiver"]);
        let seen = &report["remote"]["network"];
        assert!(seen["backlog_dropped"].as_u64().unwrap() >= 10, "{seen:#}");
        let sentence = verdict["sentence"].as_str().unwrap();
        assert!(sentence.contains("netdev_max_backlog"), "{sentence}");
    }
}
