//! A far end that nobody installed: brought and started over ssh, changed and undone from here.

use fullpipe_testkit::{Mark, SshServer, path, require};
use serde_json::Value;

use crate::diagnose::{Lab, SELF, undisturbed, verdict};

/// Port of the server of OpenSSH at the receiver.
const SSH_PORT: u16 = 2222;

/// Tests whose figures are judged.
mod tests_alone {
    use super::*;

    /// Plants `setting` at the host behind ssh, and lets its remedy be tried there.
    fn assert_mended(setting: &str, direction: &[&str], remedy: &str, named: (&str, &str)) {
        let _path = path();
        let (mark, sshd) = (Mark::new(), SshServer::on(SSH_PORT));
        let path = format!(
            "rate = \"100Mbit/s\"\nrtt = \"80ms\"\nqueue = \"1bdp\"\n[receiver]\n{setting}"
        );
        let lab = Lab::start(&mark, &path, "tcp_wmem = \"16MiB\"\ntcp_rmem = \"16MiB\"");
        let command = sshd.command();
        let _server = lab.serve(
            &command.iter().map(String::as_str).collect::<Vec<_>>(),
            SSH_PORT,
        );
        let settings = || {
            let sysctls = ["net.ipv4.tcp_rmem", "net.ipv4.tcp_wmem"];
            lab.receiver(&[&["sysctl"], &sysctls[..]].concat()).stdout
        };
        let before = settings();
        let (host, journal) = (
            format!("ssh://{}", Lab::RECEIVER),
            tempfile::tempdir().unwrap(),
        );
        let journal = journal.path().display().to_string();
        let ssh = sshd.client();
        // Brings the program there, which takes its time over this path.
        let shown = lab.sender(&[SELF, "host", "show", &host, "--ssh", &ssh]);
        assert_eq!(shown.status.code(), Some(0), "{shown:?}");
        let words = [
            SELF,
            "diagnose",
            &host,
            "--ssh",
            &ssh,
            "--json",
            "-t",
            "6",
            "--bandwidth",
            "100M",
            "--apply",
            remedy,
            "--journal",
            &journal,
        ];
        let report = undisturbed(&lab, 0.08, &[&words[..], direction].concat());
        assert_eq!(verdict(&report), named, "{report:#}");
        let trial = &report["diagnosis"]["trial"];
        let figure = |name: &str| trial[name].as_f64().unwrap();
        let predicted = trial["predicted"]["bits_per_second"].as_f64().unwrap();
        let accuracy = figure("measured") / predicted;
        assert!((0.9..=1.15).contains(&accuracy), "{trial:#}");
        assert!(figure("measured") > 1.3 * figure("before"), "{trial:#}");
        assert_eq!(
            (&trial["kept"], &trial["not_undone"]),
            (&Value::Bool(false), &Value::Null)
        );
        assert_eq!(settings(), before);
    }

    #[test]
    fn a_small_receive_buffer_behind_ssh_is_raised_there_and_put_back() {
        require!(Lab, Root, Sshd);
        assert_mended(
            "tcp_rmem = \"1MiB\"\ntcp_wmem = \"16MiB\"",
            &[],
            "raise-tcp-rmem",
            ("receive-window", "tcp-rmem-max"),
        );
    }

    #[test]
    fn a_small_send_buffer_behind_ssh_is_raised_there_and_put_back() {
        require!(Lab, Root, Sshd);
        assert_mended(
            "tcp_wmem = \"512KiB\"\ntcp_rmem = \"16MiB\"",
            &["-R", "-C", "cubic"],
            "raise-tcp-wmem",
            ("send-buffer", "tcp-wmem-max"),
        );
    }
}
