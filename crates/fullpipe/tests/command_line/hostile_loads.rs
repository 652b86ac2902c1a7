//! Loads of admitted clients that take a server's processors, memory or places: they cost it
//! little, and others are served meanwhile.

use std::io::{self, ErrorKind, Read, Write};
use std::net::{Ipv4Addr, Shutdown, SocketAddr, TcpListener, TcpStream};
use std::thread;
use std::time::{Duration, Instant};

use fullpipe_testkit::{load_slot, path, sentence, within};

use super::common::{fullpipe, run};
use super::hostile::{
    HONEST, HOSTILE, PROMPT, Peer, Server, connect, raise_descriptors, state, upload,
};

const MIB: u64 = 1 << 20;

/// A download that is begun on so many streams, of which nobody reads anything.
fn unread(
    server: SocketAddr,
    from: Ipv4Addr,
    streams: usize,
) -> io::Result<(Peer, Vec<TcpStream>)> {
    let mut peer = Peer::call(server, from)?;
    let parameters = format!(r#"{{"tcp":true,"time":600,"parallel":{streams},"reverse":true}}"#);
    let data = peer.begin(&parameters, streams)?;
    Ok((peer, data))
}

/// Returns the bytes in send queues of a server's sockets, those at `port`.
fn queued(port: u16) -> u64 {
    queues(port).0
}

/// Returns the bytes in send queues and in receive queues of this host's sockets at `port`.
fn queues(port: u16) -> (u64, u64) {
    let tables = ["/proc/net/tcp", "/proc/net/tcp6"]
        .map(|file| std::fs::read_to_string(file).unwrap_or_default());
    let lines = tables.iter().flat_map(|table| table.lines().skip(1));
    let of_port = lines.filter_map(|line| {
        let fields: Vec<&str> = line.split_whitespace().collect();
        let (unsent, unread) = fields[4].split_once(':')?;
        let bytes = |text| u64::from_str_radix(text, 16).unwrap();
        fields[1]
            .ends_with(&format!(":{port:04X}"))
            .then(|| (bytes(unsent), bytes(unread)))
    });
    of_port.fold((0, 0), |sum, queues| (sum.0 + queues.0, sum.1 + queues.1))
}

/// Returns the bytes that may wait in this host's kernel for all clients together: an eighth of
/// `tcp_mem`.
pub(super) fn total_limit() -> u64 {
    let tcp_mem = std::fs::read_to_string("/proc/sys/net/ipv4/tcp_mem").unwrap();
    let pages: u64 = tcp_mem.split_whitespace().nth(1).unwrap().parse().unwrap();
    pages * rustix::param::page_size() as u64 / 8
}

/// Returns the processor time that a process has used so far.
fn processor_time(pid: u32) -> Duration {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap();
    // User and system time are the 14th and 15th fields; the second one, in brackets, may contain
    // spaces.
    let ticks: u64 = stat
        .rsplit_once(')')
        .unwrap()
        .1
        .split_whitespace()
        .skip(11)
        .take(2)
        .map(number)
        .sum();
    Duration::from_millis(ticks * 1_000 / rustix::param::clock_ticks_per_second())
}

fn number(text: &str) -> u64 {
    text.parse().unwrap()
}

/// Returns the bytes that a connection over loopback, which has nothing to do with any server,
/// carries in each of some tenths of a second.
fn unrelated_bytes() -> Vec<u64> {
    let listener = TcpListener::bind((HONEST, 0)).unwrap();
    let mut sender = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
    let mut receiver = listener.accept().unwrap().0;
    let reader = thread::spawn(move || io::copy(&mut receiver, &mut io::sink()).unwrap());
    let block = vec![0; 1 << 17];
    let tenths = (0..8).map(|_| {
        let (begun, mut sent) = (Instant::now(), 0);
        while begun.elapsed() < Duration::from_millis(100) {
            sender.write_all(&block).unwrap();
            sent += block.len() as u64;
        }
        sent
    });
    let sent = tenths.collect();
    sender.shutdown(Shutdown::Write).unwrap();
    reader.join().unwrap();
    sent
}

fn median(values: &[u64]) -> f64 {
    let mut sorted = values.to_vec();
    sorted.sort_unstable();
    sorted[sorted.len() / 2] as f64
}

/// 128 streams took two processors, and 512 of them 1.5 GiB of the memory that all connections of a
/// host share.
#[test]
fn downloads_that_nobody_reads_cost_a_server_hardly_anything() {
    let _slot = load_slot();
    raise_descriptors();
    for tests in [1, 4] {
        let server = Server::start(&["--max-streams-per-address", "512"]);
        let port = server.address.port();
        let stalled: Vec<_> = (0..tests)
            .map(|_| unread(server.address, HOSTILE, 128).unwrap())
            .collect();
        thread::sleep(Duration::from_secs(3));
        let (before, begun) = (processor_time(server.running.pid()), Instant::now());
        let mut most = 0;
        while begun.elapsed() < Duration::from_secs(4) {
            most = most.max(queued(port));
            thread::sleep(Duration::from_millis(200));
        }
        let used = processor_time(server.running.pid()).saturating_sub(before);
        let share = used.as_secs_f64() / begun.elapsed().as_secs_f64();
        println!(
            "{tests}: {:.1} % of a processor, {} KiB",
            share * 100.0,
            most >> 10
        );
        // Their samples cost 0.04 to 0.05 on an idle machine; trying each again and again cost 2.
        assert!(share <= 0.1, "{tests} tests take {share} of a processor");
        assert!(most <= 64 * MIB, "{tests} tests hold {most} bytes");
        server.assert_serves();
        // What is left over is dropped with the test, although its data connections stay open.
        let data: Vec<_> = stalled.into_iter().map(|(_, data)| data).collect();
        assert!(
            within(PROMPT, || queued(port) == 0),
            "{} bytes are kept",
            queued(port)
        );
        drop(data);
    }
}

/// Reads what has arrived on each connection, for so long.
fn read_for(data: &[TcpStream], time: Duration) {
    let mut block = vec![0; 1 << 18];
    let begun = Instant::now();
    while begun.elapsed() < time {
        for mut stream in data {
            stream.set_nonblocking(true).unwrap();
            while stream.read(&mut block).is_ok_and(|length| length > 0) {}
        }
    }
}

#[test]
fn a_client_that_stops_to_read_a_fast_download_is_ended_if_too_much_waits_for_it() {
    let _slot = load_slot();
    let server = Server::start(&[]);
    let (mut peer, data) = unread(server.address, HOSTILE, 128).unwrap();
    read_for(&data, Duration::from_secs(2));
    let port = server.address.port();
    let most = queued(port);
    println!("{} KiB under way", most >> 10);
    if most > 64 * MIB {
        let (said, after) = peer.ending(2 * PROMPT);
        assert!(
            after.is_some() && said.contains(&state::DENIED),
            "{said:?} after {after:?}: {}",
            server.log()
        );
        println!("ended after {after:?}");
        // It took up to three seconds.
        assert!(
            most < total_limit() || after < Some(Duration::from_millis(1_900)),
            "{after:?} for {most} bytes"
        );
        server.assert_says("does not take");
    } else {
        thread::sleep(Duration::from_secs(3));
    }
    assert!(
        within(PROMPT, || queued(port) <= 64 * MIB),
        "{} bytes wait",
        queued(port)
    );
    server.assert_serves();
}

#[test]
fn five_addresses_that_take_all_streams_keep_nobody_out() {
    let _slot = load_slot();
    raise_descriptors();
    let server = Server::start(&["--max-streams-per-address", "512"]);
    let hostile = (2..=6).map(|last| Ipv4Addr::new(127, 0, 0, last));
    // Each takes what it gets: whole tests first, then single streams.
    let taken: Vec<_> = hostile
        .flat_map(|from| [128, 128, 128, 128, 16, 1].map(|streams| (from, streams)))
        .filter_map(|(from, streams)| Some((streams, unread(server.address, from, streams).ok()?)))
        .collect();
    let streams: usize = taken.iter().map(|(streams, _)| streams).sum();
    assert!((1_600..=2_048).contains(&streams), "{streams}");
    let refused = unread(server.address, Ipv4Addr::new(127, 0, 0, 7), 128);
    assert!(
        refused.is_err(),
        "all streams are taken, but for the reserve"
    );
    for last in 1..=20 {
        let begun = Instant::now();
        let served = upload(server.address, Ipv4Addr::new(127, 0, 1, last), 1, 100_000);
        assert_eq!(served, Ok(100_000), "client {last}: {}", server.log());
        assert!(
            begun.elapsed() < Duration::from_secs(1),
            "client {last} waited for {:?}",
            begun.elapsed()
        );
    }
}

#[test]
fn reads_now_and_then_do_not_keep_a_download_alive() {
    let server = Server::start(&["--client-timeout", "1"]);
    let (mut peer, data) = unread(server.address, HOSTILE, 16).unwrap();
    let reads = thread::spawn(move || {
        let mut few = [0; 4096];
        for _ in 0..20 {
            thread::sleep(Duration::from_secs(1));
            if (&data[0]).read(&mut few).is_err() {
                return;
            }
        }
    });
    let (_, after) = peer.ending(Duration::from_secs(15));
    assert!(
        after.is_some_and(|after| after < Duration::from_secs(8)),
        "{after:?}: {}",
        server.log()
    );
    server.assert_says("no data flowed");
    reads.join().unwrap();
}

/// The server of such a client ended with success.
#[test]
fn a_few_zero_bytes_do_not_end_a_server_for_one_test() {
    let server = Server::start(&["-1"]);
    connect(server.address, HOSTILE)
        .unwrap()
        .write_all(&[0; 24])
        .unwrap();
    server.assert_says("no data");
    server.assert_serves();
    assert!(
        within(PROMPT, || connect(server.address, HONEST).is_err()),
        "it serves one test and ends"
    );
}

/// `measure` said that the receiving program read too slowly, and with `-n` it hung for two
/// minutes.
#[test]
fn a_full_disk_at_the_server_ends_the_test_and_is_named() {
    let folder = std::env::temp_dir();
    // A file that would be longer than 100 blocks of 512 or 1024 bytes cannot be written.
    let starter = [
        "sh",
        "-c",
        r#"trap '' XFSZ; ulimit -f 100; exec "$@""#,
        "sh",
    ];
    let server = Server::start_with(&starter, &["--store", folder.to_str().unwrap()]);
    let port = server.address.port().to_string();
    for amount in [["-t", "5"], ["-n", "100M"]] {
        let begun = Instant::now();
        let output = run(
            fullpipe(&["measure", "127.0.0.1", "-p", &port]).args(amount),
            20,
        );
        let said = sentence(&output, 1);
        assert!(said.contains("File too large"), "{said}");
        assert!(
            begun.elapsed() < Duration::from_secs(5),
            "{:?}",
            begun.elapsed()
        );
    }
    server.assert_says("File too large");
}

/// Bytes that come before their time fill the memory that all connections share.
#[test]
fn data_before_the_start_of_a_test_is_bounded() {
    let server = Server::start(&["--client-timeout", "30"]);
    let mut peer = Peer::call(server.address, HOSTILE).unwrap();
    peer.ask(r#"{"tcp":true,"time":600,"parallel":128,"window":4194304}"#)
        .unwrap();
    peer.expect(state::CREATE_STREAMS).unwrap();
    let block = vec![0; 1 << 16];
    let mut data = Vec::new();
    for _ in 0..127 {
        let Ok(mut stream) = peer.open() else { break };
        stream.set_nonblocking(true).unwrap();
        let begun = Instant::now();
        while begun.elapsed() < Duration::from_millis(20) {
            match stream.write(&block) {
                Err(error) if error.kind() != ErrorKind::WouldBlock => break,
                _ => {}
            }
        }
        data.push(stream);
    }
    let unread = || queues(server.address.port()).1;
    println!("{} KiB unread", unread() >> 10);
    assert!(
        within(PROMPT, || unread() <= 64 * MIB),
        "{} bytes: {}",
        unread(),
        server.log()
    );
    server.assert_serves();
}

/// Tests of rates, which the load of others would change.
mod tests_alone {
    use super::*;

    /// It fell from 878 to 12 MiB/s: the memory that all connections share was used up.
    #[test]
    fn downloads_that_nobody_reads_leave_unrelated_connections_their_rate() {
        const ROUNDS: usize = 7;
        let _path = path();
        raise_descriptors();
        for tests in [1, 4] {
            let server = Server::start(&["--max-streams-per-address", "512"]);
            let (mut alone, mut meanwhile, mut ratios) = (Vec::new(), Vec::new(), Vec::new());
            for _ in 0..ROUNDS {
                // In turn, so that both have the same machine.
                let before = unrelated_bytes();
                let stalled: Vec<_> = (0..tests)
                    .map(|_| unread(server.address, HOSTILE, 128).unwrap())
                    .collect();
                thread::sleep(Duration::from_millis(1_500));
                let during = unrelated_bytes();
                drop(stalled);
                assert!(within(PROMPT, || queued(server.address.port()) == 0));
                ratios.push(median(&during) / median(&before));
                alone.extend(before);
                meanwhile.extend(during);
            }
            ratios.sort_by(f64::total_cmp);
            let of_medians = median(&meanwhile) / median(&alone);
            let of_best =
                *meanwhile.iter().max().unwrap() as f64 / *alone.iter().max().unwrap() as f64;
            println!(
                "{} downloads: {of_medians:.3} of the median rate, {of_best:.3} of the best; in rounds {:.2} to {:.2}",
                128 * tests,
                ratios[0],
                ratios[ROUNDS - 1]
            );
            // What the machine does besides moves the best of either side, or some of the rounds by
            // far more than a tenth. Six of seven that are below show a median below (sign test, one
            // side: 0.06), and a server that holds the memory of others moves all of them.
            let of_rounds = ratios[ROUNDS - 2];
            assert!(
                of_best.max(of_rounds) > 0.9,
                "{of_best} of the best rate, {ratios:?}"
            );
        }
    }
}
