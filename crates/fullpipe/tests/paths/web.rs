//! Speed tests over the web on an emulated path: clients of others and ours, against our server.

mod tests_alone {
    use std::time::Duration;

    use fullpipe_testkit::{
        Browser, Mark, document, npm_file, path, require, valid_within, within,
    };
    use serde_json::{Value, json};

    use crate::common::run;
    use crate::diagnose::{Lab, SELF};

    const TIMEOUT: u64 = 90;

    const PATH: &str = "rate = \"100Mbit/s\"\nrtt = \"40ms\"\nqueue = \"1bdp\"";

    /// Payload that the path carries at most, in bit/s: 1448 bytes of payload of 1538 on Ethernet.
    const CAPACITY: f64 = 100e6 * 1448.0 / 1538.0;

    /// Starts the server of the web in the receiving host.
    fn start(lab: &Lab, log: &str) -> fullpipe_testkit::Running {
        let command = [
            SELF,
            "serve",
            "--no-iperf2",
            "--web",
            "198.18.0.2:4443",
            "--web-plain",
            "--json-lines",
            "--logfile",
            log,
        ];
        lab.serve(&command, 4443)
    }

    /// Waits until a server has logged so many transfers, and returns its measurements.
    fn measured(log: &str, count: usize) -> Vec<Value> {
        let events = || {
            let text = std::fs::read_to_string(log).unwrap_or_default();
            let lines = text
                .lines()
                .filter_map(|line| serde_json::from_str(line).ok());
            lines.collect::<Vec<Value>>()
        };
        let ended = |event: &&Value| event["event"] == "measurement";
        within(Duration::from_secs(10), || {
            events().iter().filter(ended).count() == count
        });
        let events = events();
        let seen: Vec<Value> = events
            .iter()
            .filter(ended)
            .map(|event| event["data"].clone())
            .collect();
        assert_eq!(seen.len(), count, "{events:?}");
        seen
    }

    fn log_of(mark: &Mark) -> String {
        let log = format!("{}/web-{}.log", env!("CARGO_TARGET_TMPDIR"), mark.as_str());
        let _ = std::fs::remove_file(&log);
        log
    }

    fn assert_near(what: &str, client: f64, server: f64) {
        println!(
            "{what}: client {:.2}, server {:.2} Mbit/s",
            client / 1e6,
            server / 1e6
        );
        let ratio = client / server;
        assert!(
            (0.95..=1.05).contains(&ratio),
            "{what}: {client} and {server}"
        );
        assert!(
            (0.80..=1.0).contains(&(server / CAPACITY)),
            "{what}: {server} of {CAPACITY}"
        );
    }

    #[test]
    fn mlabs_client_and_this_server_see_the_same_rate() {
        require!(Lab, Ndt7Client);
        let (_path, mark) = (path(), Mark::new());
        let lab = Lab::start(&mark, PATH, "");
        for scheme in ["wss", "ws"] {
            let log = log_of(&mark);
            let server = start(&lab, &log);
            let output = lab.sender(&[
                "ndt7-client",
                "-server",
                "198.18.0.2:4443",
                "-no-verify",
                "-scheme",
                scheme,
                "-format",
                "json",
                "-quiet",
            ]);
            assert!(output.status.success(), "{output:?}");
            let summary: Value = serde_json::from_slice(&output.stdout).unwrap();
            let seen = measured(&log, 2);
            drop(server);
            for (test, seen) in ["Download", "Upload"].into_iter().zip(&seen) {
                let client = summary[test]["Throughput"]["Value"].as_f64().unwrap() * 1e6;
                assert_near(
                    &format!("{scheme} {test}"),
                    client,
                    seen["summary"]["rate"].as_f64().unwrap(),
                );
                println!("  {}", seen["limit"]["sentence"]);
            }
        }
    }

    #[test]
    fn a_download_by_http_2_has_the_rate_that_curl_sees_and_small_windows_are_named() {
        require!(Lab, Curl, Nghttp);
        let (_path, mark) = (path(), Mark::new());
        let lab = Lab::start(&mark, PATH, "");
        let log = log_of(&mark);
        let server = start(&lab, &log);
        let url = "https://198.18.0.2:4443/__down?bytes=60000000";
        let curl = [
            "curl",
            "-sSk",
            "--http2",
            "-o",
            "/dev/null",
            "-w",
            "%{speed_download}",
            url,
        ];
        let output = lab.sender(&curl);
        let rate: f64 = String::from_utf8_lossy(&output.stdout).parse().unwrap();
        let small = "https://198.18.0.2:4443/__down?bytes=6000000";
        for bits in ["16", "18"] {
            let nghttp = ["nghttp", "-n", "--no-dep", "-w", bits, "-W", bits, small];
            assert!(lab.sender(&nghttp).status.success(), "{bits}");
        }
        let seen = measured(&log, 3);
        drop(server);
        assert_near(
            "HTTP/2",
            8.0 * rate,
            seen[0]["summary"]["rate"].as_f64().unwrap(),
        );
        for (seen, window) in seen[1..].iter().zip([65_535, 262_143]) {
            println!("  {}", seen["limit"]["sentence"]);
            let limit = (&seen["limit"]["kind"], &seen["limit"]["cause"]);
            assert_eq!(
                limit,
                (&"application-window".into(), &"http2".into()),
                "{}",
                seen["limit"]
            );
            // What the client has, though it grants half of that at a time.
            assert_eq!(seen["local"]["http2_wait"]["window"], window);
        }
    }

    #[test]
    fn responsiveness_is_that_of_the_queue() {
        require!(Lab);
        let (_path, mark) = (path(), Mark::new());
        // 200 ms of a queue at 50 Mbit/s.
        let path = "rate = \"50Mbit/s\"\nrtt = \"20ms\"\nqueue = \"1250000B\"";
        let lab = Lab::start(&mark, path, "");
        let _server = start(&lab, &log_of(&mark));
        let url = "https://198.18.0.2:4443";
        let command = [SELF, "measure", url, "--rpm", "--json", "--no-store"];
        let report = document(&run(&mut lab.host("sender", &command), TIMEOUT));
        for direction in ["measurement", "followed_by"] {
            let measured = &report[direction];
            let rpm = &measured["rtt"]["rpm"];
            println!("{direction} {rpm} {}", measured["limit"]["sentence"]);
            // A handshake waits for the queue and the path, unless the queue was just emptied by losses.
            let tcp = rpm["tcp"].as_f64().unwrap();
            assert!((0.1..0.25).contains(&tcp), "{rpm}");
            assert!(
                (50.0..600.0).contains(&rpm["per_minute"].as_f64().unwrap()),
                "{rpm}"
            );
            // Data behind a hole counts when that is filled, two times the queue and the path later,
            // which is 11 % of the four seconds; and what overflows is sent again.
            assert!(
                (30e6..56e6).contains(&rpm["goodput"].as_f64().unwrap()),
                "{rpm}"
            );
            // Most connections were not there at first.
            assert_eq!(measured["limit"]["kind"], "capacity", "{report:#}");
        }
    }

    #[test]
    fn this_client_and_this_server_see_the_same_rate() {
        require!(Lab);
        let (_path, mark) = (path(), Mark::new());
        let lab = Lab::start(&mark, PATH, "");
        for server_url in ["ndt7://198.18.0.2:4443", "ndt7+ws://198.18.0.2:4443"] {
            let (report, seen) = valid_within(3, || {
                let log = log_of(&mark);
                let server = start(&lab, &log);
                let output = run(
                    &mut lab.host(
                        "sender",
                        &[SELF, "measure", server_url, "--json", "--no-store"],
                    ),
                    TIMEOUT,
                );
                let seen = measured(&log, 2);
                drop(server);
                let report = document(&output);
                let broken = ["measurement", "followed_by"]
                    .map(|part| report[part]["validity"]["broken"].as_array().cloned());
                let broken = broken
                    .into_iter()
                    .flatten()
                    .flatten()
                    .map(|why| why.to_string());
                ((report, seen), broken.collect())
            });
            for (part, seen) in ["measurement", "followed_by"].into_iter().zip(&seen) {
                let rate = report[part]["summary"]["rate"].as_f64().unwrap();
                assert_near(part, rate, seen["summary"]["rate"].as_f64().unwrap());
                println!(
                    "  {}\n  {}",
                    report[part]["limit"]["sentence"], seen["limit"]["sentence"]
                );
                let stated = report[part]["remote"]["samples"].as_array().unwrap();
                assert!((10..=60).contains(&stated.len()), "{}", stated.len());
            }
        }
    }

    /// The rates that the server states are of bytes with TLS, which adds 22 to 16384.
    #[test]
    fn mlabs_server_states_the_rate_that_this_client_sees() {
        require!(Lab, NdtServer);
        let (_path, mark) = (path(), Mark::new());
        let lab = Lab::start(&mark, PATH, "");
        let folder = tempfile::tempdir().unwrap();
        let made = rcgen::generate_simple_self_signed(vec!["localhost".to_owned()]).unwrap();
        let in_folder = |name: &str| folder.path().join(name).to_str().unwrap().to_owned();
        let [certificate, key, data] = ["cert.pem", "key.pem", "data"].map(in_folder);
        std::fs::write(&certificate, made.cert.pem()).unwrap();
        std::fs::write(&key, made.signing_key.serialize_pem()).unwrap();
        std::fs::create_dir(&data).unwrap();
        let command = [
            "ndt-server",
            "-cert",
            &certificate,
            "-key",
            &key,
            "-datadir",
            &data,
            "-ndt7_addr",
            "198.18.0.2:4443",
            "-ndt7_addr_cleartext",
            "198.18.0.2:4444",
            "-ndt5_addr",
            "198.18.0.2:4445",
            "-ndt5_ws_addr",
            "198.18.0.2:4446",
            "-ndt5_wss_addr",
            "198.18.0.2:4447",
            "-health_addr",
            "198.18.0.2:4448",
            "-prometheusx.listen-address",
            "198.18.0.2:4449",
        ];
        let _server = lab.serve(&command, 4443);
        for server_url in ["ndt7://198.18.0.2:4443", "ndt7+ws://198.18.0.2:4444"] {
            let command = [SELF, "measure", server_url, "--json", "--no-store"];
            let report = document(&run(&mut lab.host("sender", &command), TIMEOUT));
            for (part, counter) in [
                ("measurement", "bytes_acked"),
                ("followed_by", "bytes_received"),
            ] {
                let rate = report[part]["summary"]["rate"].as_f64().unwrap();
                let stated = report[part]["remote"]["samples"].as_array().unwrap();
                let last = stated.last().unwrap();
                let bytes = last["tcp"][counter].as_f64().unwrap();
                assert_near(
                    &format!("ndt-server, {part}"),
                    rate,
                    8.0 * bytes / last["at"].as_f64().unwrap(),
                );
            }
        }
    }

    /// A document of the server without a policy, from which a script of it may do all that its
    /// origin may.
    const EMPTY_PAGE: &str = "http://198.18.0.2:4443/config";

    /// Runs a script in a browser in the sending host until both transfers of both ends agree, or
    /// the browser did not fill the path.
    fn browsed(lab: &Lab, mark: &Mark, script: &str) -> (Value, Vec<Value>) {
        valid_within(3, || {
            let log = log_of(mark);
            let _server = start(lab, &log);
            let mut browser = Browser::start_in(lab.host("sender", &["sh"]));
            browser.open_url(EMPTY_PAGE);
            let said = browser.evaluate(script);
            let seen = measured(&log, 2);
            let rates = seen.iter().map(rate_of);
            let slow = rates.filter(|rate| *rate < 0.8 * CAPACITY);
            let slow = slow.map(|rate| format!("the browser moves {rate} bit/s"));
            let broken = slow.collect();
            ((said, seen), broken)
        })
    }

    fn rate_of(measurement: &Value) -> f64 {
        measurement["summary"]["rate"].as_f64().unwrap()
    }

    /// Returns a script that makes `name` the address of a file of a library.
    fn addressed(name: &str, file: &str) -> String {
        let text = json!(std::fs::read_to_string(npm_file(file)).unwrap());
        format!(
            "const {name} = URL.createObjectURL(new Blob([{text}], {{ type: 'text/javascript' }}));"
        )
    }

    #[test]
    fn mlabs_client_in_a_browser_and_this_server_see_the_same_rate() {
        require!(Lab, Chromium, BrowserClients);
        let (_path, mark) = (path(), Mark::new());
        let lab = Lab::start(&mark, PATH, "");
        let client = std::fs::read_to_string(npm_file("@m-lab/ndt7/src/ndt7.js")).unwrap();
        let script = format!(
            "{client}; (async () => {{ {} {} const ends = {{}}; \
             const config = {{ server: location.host, protocol: 'ws', mlabDataPolicyInapplicable: true, \
             downloadworkerfile: download, uploadworkerfile: upload }}; \
             ends.code = await ndt7.test(config, {{ downloadComplete: (end) => ends.download = end, \
             uploadComplete: (end) => ends.upload = end }}); return ends; }})()",
            addressed("download", "@m-lab/ndt7/src/ndt7-download-worker.js"),
            addressed("upload", "@m-lab/ndt7/src/ndt7-upload-worker.js"),
        );
        let (ends, seen) = browsed(&lab, &mark, &script);
        assert_eq!(ends["code"], 0, "{ends}");
        let download = &ends["download"]["LastClientMeasurement"];
        let client = download["MeanClientMbps"].as_f64().unwrap() * 1e6;
        assert_near("@m-lab/ndt7 download", client, rate_of(&seen[0]));
        // The rate of an upload is that of what the server states, as the browser cannot know.
        let info = &ends["upload"]["LastServerMeasurement"]["TCPInfo"];
        let figure = |name: &str| info[name].as_f64().unwrap();
        let stated = 8e6 * figure("BytesReceived") / figure("ElapsedTime");
        assert_near("@m-lab/ndt7 upload", stated, rate_of(&seen[1]));
    }

    /// The client counts from its request on, and adds half a percent for headers.
    #[test]
    fn cloudflares_client_in_a_browser_and_this_server_see_the_same_rate() {
        require!(Lab, Chromium, BrowserClients);
        let (_path, mark) = (path(), Mark::new());
        let lab = Lab::start(&mark, PATH, "");
        let script = format!(
            "(async () => {{ {} const {{ default: Engine }} = await import(client); \
             const load = {{ bytes: 6e7, count: 1 }}; \
             const engine = new Engine({{ autoStart: false, downloadApiUrl: '/__down', uploadApiUrl: '/__up', \
             logAimApiUrl: null, measureDownloadLoadedLatency: false, measureUploadLoadedLatency: false, \
             measurements: [{{ type: 'download', ...load }}, {{ type: 'upload', ...load }}] }}); \
             const results = await new Promise((resolve, reject) => {{ engine.onFinish = resolve; \
             engine.onError = reject; engine.play(); }}); \
             return [results.getDownloadBandwidth(), results.getUploadBandwidth()]; }})()",
            addressed("client", "@cloudflare/speedtest/dist/speedtest.js"),
        );
        let (rates, seen) = browsed(&lab, &mark, &script);
        for (place, way) in ["download", "upload"].into_iter().enumerate() {
            let client = rates[place].as_f64().unwrap();
            assert_near(
                &format!("@cloudflare/speedtest {way}"),
                client,
                rate_of(&seen[place]),
            );
        }
    }

    /// Returns the rate of all transfers of a direction that a server has logged, together.
    fn rate_of_all(log: &str, direction: &str) -> f64 {
        let text = std::fs::read_to_string(log).unwrap();
        let events = text.lines().map(|line| serde_json::from_str(line).unwrap());
        let (mut bits, mut seconds) = (0.0, 0.0);
        for event in events {
            let event: Value = event;
            let one = &event["data"];
            if event["event"] == "measurement" && one["request"]["direction"] == direction {
                let duration = one["summary"]["duration"].as_f64().unwrap();
                bits += rate_of(one) * duration;
                seconds += duration;
            }
        }
        assert!(seconds > 5.0, "{direction}: {seconds} s, {text}");
        bits / seconds
    }

    /// Each request takes long enough to be judged.
    #[test]
    #[ignore = "librespeed-cli is in no registry: it is built from its repository"]
    fn librespeeds_client_and_this_server_see_the_same_rate() {
        require!(Lab, LibrespeedClient);
        let (_path, mark) = (path(), Mark::new());
        let lab = Lab::start(&mark, PATH, "");
        let folder = tempfile::tempdir().unwrap();
        let servers = folder.path().join("servers.json");
        let server = json!({ "id": 1, "name": "here", "server": "http://198.18.0.2:4443/", "dlURL": "garbage",
            "ulURL": "empty", "pingURL": "empty", "getIpURL": "getIP" });
        std::fs::write(&servers, json!([server]).to_string()).unwrap();
        let log = log_of(&mark);
        let _server = start(&lab, &log);
        let sizes = ["--chunks", "20", "--upload-size", "20480"];
        let usual = ["--server", "1", "--json", "--no-icmp", "--concurrent", "1"];
        let list = ["librespeed-cli", "--duration", "10", "--local-json"];
        let place = [servers.to_str().unwrap()];
        let output = lab.sender(&[&list[..], &place, &usual, &sizes].concat());
        assert!(output.status.success(), "{output:?}");
        let report: Value = serde_json::from_slice(&output.stdout).unwrap();
        for (way, direction) in [("download", "upload"), ("upload", "download")] {
            let client = report[0][way].as_f64().unwrap() * 1e6;
            assert_near(
                &format!("LibreSpeed {way}"),
                client,
                rate_of_all(&log, direction),
            );
        }
    }
}
