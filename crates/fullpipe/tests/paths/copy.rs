//! Copies over emulated paths: next to other traffic, and by QUIC where packets are lost.

/// Tests whose figures are judged.
mod tests_alone {
    use std::fs;
    use std::path::Path;
    use std::process::Output;
    use std::thread;
    use std::time::Duration;

    use crate::common::run;
    use crate::lab_up::Up;
    use fullpipe_testkit::{Mark, Running, document, path, random_bytes, require, within, write_secret};
    use rustix::process::{Pid, Signal, kill_process};
    use serde_json::Value;

    const PROGRAM: &str = env!("CARGO_BIN_EXE_fullpipe");
    const TIMEOUT: Duration = Duration::from_secs(40);

    const RECEIVER: &str = "198.18.0.2";

    /// Rate of the path, and the part of it that payload has in segments of 1448 bytes, with their headers.
    const RATE: f64 = 20e6;
    const PAYLOAD: f64 = 1448.0 / 1514.0;

    /// Bytes that cross in seven seconds at the rate of the path.
    const SIZE: usize = 17_000_000;

    /// Returns the path, with this loss, that a copy shares with others.
    fn shared(loss: &str) -> String {
        format!("rate = \"20Mbit/s\"\nrtt = \"40ms\"\nloss = \"{loss}\"")
    }

    /// Starts a path with a queue of one BDP, a server in its receiver, and writes a file of so many bytes for it.
    fn scene(mark: &Mark, folder: &Path, path: &str, size: usize) -> (Up, Running) {
        let at = |name: &str| folder.join(name).to_str().unwrap().to_owned();
        let text = format!(
            "name = \"shared\"\ntitle = \"A path\"\n[path]\n{path}\nqueue = \"1bdp\"\n[[step]]\nname = \"none\"\n"
        );
        fs::write(at("path.toml"), text).unwrap();
        write_secret(at("key"), "correct horse battery");
        fs::write(at("file"), random_bytes(size)).unwrap();
        fs::create_dir(at("to")).unwrap();
        let up = Up::of(&at("path.toml"), mark, &["--json-lines"]);
        up.event();
        let server = serve(&up, folder);
        (up, server)
    }

    /// Starts a server in the receiver.
    fn serve(up: &Up, folder: &Path) -> Running {
        let at = |name: &str| folder.join(name).to_str().unwrap().to_owned();
        let serve = [PROGRAM, "serve", "--no-iperf2", "--share", &at("to"), "--key-file", &at("key")];
        let server = Running::start(&mut up.join("receiver", &serve));
        let listens = || {
            let tables = run(&mut up.join("receiver", &["cat", "/proc/net/tcp", "/proc/net/tcp6"]), 20).stdout;
            let tables = String::from_utf8_lossy(&tables).into_owned();
            // 0A is LISTEN of the kernel's tcp_states.h.
            let listens = |port: &str| tables.lines().any(|line| line.contains(port) && line.contains(" 0A "));
            [":1451 ", ":1452 "].iter().all(|port| listens(port))
        };
        assert!(within(TIMEOUT, listens), "nobody listens");
        server
    }

    /// Returns the mean rate of the path over three seconds from now.
    fn rate_now(up: &Up) -> f64 {
        up.events();
        thread::sleep(Duration::from_millis(2500));
        let rate = |event: &Value| event["data"]["forward"]["rate"].as_f64();
        let rates: Vec<f64> = up.events().iter().filter_map(rate).collect();
        rates.iter().sum::<f64>() / rates.len() as f64
    }

    /// Returns the mean rate of a measurement once it has lasted so many seconds.
    fn rate_after(measurement: &Value, seconds: f64) -> f64 {
        let number = |value: &Value| value.as_f64().unwrap();
        let intervals = measurement["intervals"].as_array().unwrap().iter();
        let rates = intervals.filter(|interval| number(&interval["from"]) > seconds - 0.1);
        let rates: Vec<f64> = rates.map(|interval| number(&interval["rate"])).collect();
        rates.iter().sum::<f64>() / rates.len() as f64
    }

    fn copied(output: &Output) -> Value {
        document(output)["copy"].clone()
    }

    #[test]
    fn a_scavenging_copy_leaves_a_path_to_others_and_fills_it_when_they_stop() {
        require!(Lab);
        let _path = path();
        let (mark, folder) = (Mark::new(), tempfile::tempdir().unwrap());
        let (up, _server) = scene(&mark, folder.path(), &shared("0"), SIZE);
        let at = |name: &str| folder.path().join(name).to_str().unwrap().to_owned();
        // What is judged begins three seconds after its start, and two after that of the copy.
        let key = at("key");
        let measure = [PROGRAM, "measure", RECEIVER, "-C", "cubic", "-t", "8", "--json", "--key-file", &key];
        let other = Running::start(&mut up.join("sender", &measure));
        thread::sleep(Duration::from_secs(1));
        let to = format!("fullpipe://{RECEIVER}/");
        let copy = [PROGRAM, "copy", &at("file"), &to, "--key-file", &key, "--scavenge", "--json"];
        let copy = Running::start(&mut up.join("sender", &copy));
        let measured = document(&other.finish(TIMEOUT))["measurement"].clone();
        let kept = rate_after(&measured, 3.0) / (RATE * PAYLOAD);
        thread::sleep(Duration::from_secs(2));
        let alone = rate_now(&up) / RATE;
        let done = copied(&copy.finish(TIMEOUT));
        let gave_way = done["gave_way"].as_f64().unwrap();
        assert!(kept > 0.9 && alone > 0.9, "the other kept {kept}, then it took {alone}: {done}");
        assert!((0.2..0.8).contains(&gave_way), "{done}");
        assert!(fs::read(at("file")).unwrap() == fs::read(folder.path().join("to/file")).unwrap());
    }

    /// Connections for data that were made behind the server's answer took two round trips more: their TCP and TLS.
    #[test]
    fn data_crosses_to_a_server_three_round_trips_after_the_call() {
        require!(Lab);
        let _path = path();
        let (mark, folder) = (Mark::new(), tempfile::tempdir().unwrap());
        let (up, _server) = scene(&mark, folder.path(), "rate = \"20Mbit/s\"\nrtt = \"600ms\"", 10_000);
        let at = |name: &str| folder.path().join(name).to_str().unwrap().to_owned();
        let (file, key, to) = (at("file"), at("key"), format!("fullpipe://{RECEIVER}/"));
        let copy = [PROGRAM, "copy", &file, &to, "--key-file", &key, "--json"];
        let done = copied(&Running::start(&mut up.join("sender", &copy)).finish(TIMEOUT));
        let round_trips = done["set_up"].as_f64().unwrap() / 0.6;
        assert!((3.0..4.0).contains(&round_trips) && done["transport"] == "tcp", "{round_trips}: {done}");
        assert!(fs::read(file).unwrap() == fs::read(at("to/file")).unwrap());
    }

    /// CUBIC would carry 6 Mbit/s, so that the file would take 16 s.
    #[test]
    fn a_copy_by_quic_changes_to_bbr_where_packets_are_lost_without_a_queue() {
        require!(Lab);
        let _path = path();
        let (mark, folder) = (Mark::new(), tempfile::tempdir().unwrap());
        let lossy = "rate = \"50Mbit/s\"\nrtt = \"25ms\"\nloss = \"1%\"";
        let (up, _server) = scene(&mark, folder.path(), lossy, 12_000_000);
        let at = |name: &str| folder.path().join(name).to_str().unwrap().to_owned();
        let (to, key) = (format!("fullpipe://{RECEIVER}/"), at("key"));
        let copy = [PROGRAM, "copy", &at("file"), &to, "--key-file", &key, "--transport", "quic", "--json"];
        let done = copied(&Running::start(&mut up.join("sender", &copy)).finish(TIMEOUT));
        let [transport, control] = ["transport", "congestion_control"].map(|name| done[name].as_str().unwrap());
        assert_eq!((transport, control), ("quic", "bbr"), "{done}");
        assert!(done["rate"].as_f64().unwrap() > 12e6 && done["retransmitted"].as_u64().unwrap() > 50, "{done}");
        assert!(fs::read(at("file")).unwrap() == fs::read(folder.path().join("to/file")).unwrap());
    }

    #[test]
    fn a_copy_under_bbr_leaves_to_others_what_loss_has_left_to_them() {
        require!(Lab);
        let _path = path();
        let (mark, folder) = (Mark::new(), tempfile::tempdir().unwrap());
        let (up, _server) = scene(&mark, folder.path(), &shared("3e-3"), SIZE);
        let at = |name: &str| folder.path().join(name).to_str().unwrap().to_owned();
        let key = at("key");
        let measure = [PROGRAM, "measure", RECEIVER, "-C", "cubic", "-t", "10", "--json", "--key-file", &key];
        let other = Running::start(&mut up.join("sender", &measure));
        let to = format!("fullpipe://{RECEIVER}/");
        let copy = [PROGRAM, "copy", &at("file"), &to, "--key-file", &key, "--json"];
        let copy = Running::start(&mut up.join("sender", &copy));
        // It has found the loss after three or four seconds, and its rate two later.
        thread::sleep(Duration::from_secs(6));
        let together = rate_now(&up) / RATE;
        let measured = document(&other.finish(TIMEOUT))["measurement"].clone();
        let kept = rate_after(&measured, 6.0);
        let late = measured["intervals"].as_array().unwrap().iter().skip(6);
        let mut rtts: Vec<f64> = late.filter_map(|interval| interval["rtt"].as_f64()).collect();
        rtts.sort_by(f64::total_cmp);
        let rtt = rtts[rtts.len() / 2];
        let done = copied(&copy.finish(TIMEOUT));
        assert_eq!(done["congestion_control"], "bbr", "{done}");
        // Alone it has some 22 segments in each round trip, which are 6.4 Mbit/s, and two of its kind 0.64 of the path.
        // BBR by itself makes 80 ms of 40. Of 21 runs, two had more than 52 ms, and one less than 0.9 of the path.
        assert!(kept > 2e6 && rtt < 0.06 && together > 0.7, "{kept} bit/s at {rtt} s, together {together}: {done}");
    }

    /// Kills the programs with this command that use a folder.
    fn kill(command: &str, folder: &Path) {
        let begin = format!("{PROGRAM}\0{command}\0");
        let is_one = |line: String| line.starts_with(&begin) && line.contains(folder.to_str().unwrap());
        let numbers = fs::read_dir("/proc").unwrap().filter_map(|entry| entry.ok()?.file_name().to_str()?.parse().ok());
        let ones = numbers.filter(|pid: &i32| fs::read_to_string(format!("/proc/{pid}/cmdline")).is_ok_and(is_one));
        // It may have ended.
        for pid in ones.filter_map(Pid::from_raw) {
            let _ = kill_process(pid, Signal::KILL);
        }
    }

    #[test]
    #[ignore = "takes some minutes"]
    #[expect(clippy::print_stdout, reason = "the figures of each round")]
    fn a_copy_that_is_killed_50_times_continues_where_it_was() {
        const MIB: u64 = 1 << 20;
        const BYTES: u64 = 6 * MIB;
        require!(Lab);
        let _path = path();
        let (mark, folder) = (Mark::new(), tempfile::tempdir().unwrap());
        let fast = "rate = \"100Mbit/s\"\nrtt = \"20ms\"";
        let (up, mut server) = scene(&mark, folder.path(), fast, BYTES as usize);
        let at = |name: &str| folder.path().join(name).to_str().unwrap().to_owned();
        let (to, key) = (format!("fullpipe://{RECEIVER}/"), at("key"));
        let copy = [PROGRAM, "copy", &at("file"), &to, "--key-file", &key, "--json"];
        let (content, mut struck) = (fs::read(at("file")).unwrap(), 0);
        for round in 0..50 {
            let _ = fs::remove_file(at("to/file"));
            let running = Running::start(&mut up.join("sender", &copy));
            // Fifty moments, the early ones not first.
            thread::sleep(Duration::from_millis(100 + round * 19 % 50 * 18));
            kill(["copy", "serve"][round as usize % 2], folder.path());
            let was_done = running.finish(TIMEOUT).status.success();
            if round % 2 == 1 {
                server.finish(TIMEOUT);
                server = serve(&up, folder.path());
            }
            let found = fs::read(at("to/file")).ok();
            assert!(found.as_ref().is_none_or(|found| *found == content), "round {round}: half of it has its name");
            let held = if found.is_some() { BYTES } else { recorded(&folder.path().join("to")) * MIB };
            let done = copied(&Running::start(&mut up.join("sender", &copy)).finish(TIMEOUT));
            let sent = done["transferred"].as_u64().unwrap();
            println!("round {round}: {held} bytes were there, {sent} of {BYTES} were sent");
            assert!((sent + held).saturating_sub(BYTES) * 100 <= held, "round {round}: {held} were there: {done}");
            assert!(fs::read(at("to/file")).unwrap() == content && fs::read_dir(at("to")).unwrap().count() == 1);
            struck += u32::from(!was_done);
        }
        println!("{struck} of 50 copies had not ended");
        assert!(struck > 25);
    }

    /// Returns the number of chunks that the journals in a folder record.
    fn recorded(folder: &Path) -> u64 {
        let journals = fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path());
        let journals = journals.filter(|path| path.extension().is_some_and(|end| end == "fullpipe-journal"));
        journals.map(|path| fs::metadata(path).unwrap().len().saturating_sub(48) / 48).sum()
    }
}
