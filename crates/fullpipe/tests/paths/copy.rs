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
    use fullpipe_testkit::{Mark, Running, document, path, require, within, write_secret};
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
        fs::write(at("file"), (0..size).map(|at| ((at as u64 * at as u64) >> 7) as u8).collect::<Vec<_>>()).unwrap();
        fs::create_dir(at("to")).unwrap();
        let up = Up::of(&at("path.toml"), mark, &["--json-lines"]);
        up.event();
        let serve = [PROGRAM, "serve", "--no-iperf2", "--share", &at("to"), "--key-file", &at("key")];
        let server = Running::start(&mut up.join("receiver", &serve));
        let listens = || {
            let tables = run(&mut up.join("receiver", &["cat", "/proc/net/tcp", "/proc/net/tcp6"]), 20).stdout;
            let tables = String::from_utf8_lossy(&tables).into_owned();
            [":1451 ", ":1452 "].iter().all(|port| tables.contains(port))
        };
        assert!(within(TIMEOUT, listens), "nobody listens");
        (up, server)
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
        // Alone it has some 22 segments in each round trip, which are 6.4 Mbit/s. BBR by itself makes 80 ms of 40.
        assert!(kept > 2e6 && rtt < 0.052 && together > 0.8, "{kept} bit/s at {rtt} s, together {together}: {done}");
    }
}
