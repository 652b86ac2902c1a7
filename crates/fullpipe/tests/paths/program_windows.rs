//! Windows that real programs keep above TCP, beyond that of SSH.

use std::fs;
use std::path::Path;

use fullpipe_testkit::{Mark, SshServer, path, require};
use serde_json::Value;

use crate::diagnose::{Lab, SELF, undisturbed, verdict};

/// Port of a server of HTTP/2.
const PORT: u16 = 8080;

/// Port behind it, to which it passes uploads on.
const SINK: u16 = 8081;

/// Round-trip time of the path, in seconds. 64 KiB over it are 2.6 Mbit/s, of 40 that it carries.
const RTT: f64 = 0.2;

const PATH: &str = "rate = \"40Mbit/s\"\nrtt = \"200ms\"\nqueue = \"1bdp\"";

/// Writes the configuration of an nginx that serves `folder` by HTTP/2, and takes what is put there
/// into a buffer of 64 KiB.
fn nginx_configuration(folder: &Path) -> String {
    let place = folder.display();
    let configuration = format!(
        "daemon off; worker_processes 1; user root; pid {place}/pid; error_log /dev/null;\nevents {{}}\n\
         http {{ access_log off; client_body_temp_path {place}; client_max_body_size 0;\n\
         server {{ listen {PORT} http2; root {place}; client_body_buffer_size 64k;\n\
         location /up {{ proxy_request_buffering off; proxy_http_version 1.1;\n\
         proxy_pass http://127.0.0.1:{SINK}; }} }} }}\n"
    );
    let file = folder.join("nginx.conf");
    fs::write(&file, configuration).unwrap();
    file.display().to_string()
}

/// Returns the names of what the verdict cannot distinguish.
fn candidate_causes(report: &Value) -> Vec<&str> {
    let candidates = &report["diagnosis"]["transfers"][0]["verdict"]["candidates"];
    let all = candidates.as_array().into_iter().flatten();
    all.filter_map(|one| one["cause"].as_str()).collect()
}

/// Returns the rate that the window allows, by the verdict, in Mbit/s.
fn allowed_mbps(report: &Value) -> f64 {
    let ceilings = &report["diagnosis"]["transfers"][0]["verdict"]["ceilings"];
    ceilings["application-window"].as_f64().unwrap() / 1e6
}

/// Tests whose figures are judged.
mod tests_alone {
    use super::*;

    #[test]
    fn the_window_of_http2_is_named_from_either_end() {
        require!(Lab, Root, Nginx, Nghttp, Curl, Socat);
        let _path = path();
        let (mark, folder) = (Mark::new(), tempfile::tempdir().unwrap());
        let big = folder.path().join("big");
        fs::write(&big, vec![0; 20_000_000]).unwrap();
        let configuration = nginx_configuration(folder.path());
        let lab = Lab::start(&mark, PATH, "tcp_wmem = \"4MiB\"");
        let _server = lab.serve(&["/usr/sbin/nginx", "-c", &configuration], PORT);
        let listen = format!("TCP-LISTEN:{SINK},fork,reuseaddr");
        let _sink = lab.serve(&["socat", "-u", &listen, "OPEN:/dev/null"], SINK);
        let watched = |command: &[&str]| {
            let all = [&[SELF, "diagnose", "--json", "-t", "8", "--"], command].concat();
            undisturbed(&lab, RTT, &all)
        };
        let server = format!("http://{}:{PORT}", Lab::RECEIVER);
        let up = format!("{server}/up");
        let file = big.display().to_string();
        let curl = ["curl", "-s", "--http2-prior-knowledge", "-T", &file, &up];
        let report = watched(&curl);
        assert_eq!(
            verdict(&report),
            ("application-window", "http2"),
            "{report:#}"
        );
        let allowed = allowed_mbps(&report);
        assert!((2.3..2.8).contains(&allowed), "{allowed}");
        let down = format!("{server}/big");
        let report = watched(&["nghttp", "-n", "--no-dep", "-w", "16", "-W", "16", &down]);
        assert_eq!(
            verdict(&report),
            ("application-window", "http2"),
            "{report:#}"
        );
        assert_eq!(candidate_causes(&report), ["http2", "tcp-wmem-max", "idle"]);
    }

    #[test]
    fn the_requests_of_sftp_are_named_from_either_end() {
        require!(Lab, Root, Sshd);
        let _path = path();
        let (mark, folder) = (Mark::new(), tempfile::tempdir().unwrap());
        let big = folder.path().join("big").display().to_string();
        fs::write(&big, vec![7; 6_000_000]).unwrap();
        let sshd = SshServer::on(2222);
        let lab = Lab::start(&mark, PATH, "tcp_wmem = \"4MiB\"");
        let command = sshd.command();
        let _server = lab.serve(
            &command.iter().map(String::as_str).collect::<Vec<_>>(),
            2222,
        );
        // Four requests of 16 KiB.
        let sftp = format!("{} -R 4 -B 16384 {}", sshd.sftp_client(), Lab::RECEIVER);
        for script in [
            format!("echo put {big} /dev/null | {sftp}"),
            format!("echo get {big} /dev/null | {sftp}"),
        ] {
            let watching = [SELF, "diagnose", "--json", "-t", "12", "--"];
            let report = undisturbed(&lab, RTT, &[&watching[..], &["sh", "-c", &script]].concat());
            assert_eq!(
                verdict(&report),
                ("application-window", "sftp"),
                "{script}: {report:#}"
            );
            assert_eq!(
                report["diagnosis"]["transfers"][0]["transfer"]["program"],
                "sftp"
            );
        }
    }
}
