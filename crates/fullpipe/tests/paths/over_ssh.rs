//! A far end that nobody installed: brought and started over ssh, changed and undone from here.

use std::process::Output;
use std::time::Duration;

use fullpipe_testkit::{
    Mark, Running, SshServer, assert_says, document, path, require, sentence, within,
};
use rustix::process::{Signal, kill_process};
use serde_json::Value;
use tempfile::TempDir;

use crate::diagnose::{Lab, SELF, undisturbed, verdict};

/// Port of the server of OpenSSH at the receiver.
const SSH_PORT: u16 = 2222;

/// The receiver, as ssh reaches it.
const SSH_HOST: &str = "ssh://198.18.0.2";

/// A receive buffer that does not fill the path.
const SMALL_RMEM: &str = "tcp_rmem = \"1MiB\"\ntcp_wmem = \"16MiB\"";

/// A path of 100 Mbit/s to a host that ssh reaches, and that has this program already.
struct SshLab {
    lab: Lab,
    sshd: SshServer,
    /// The command line of its client.
    ssh: String,
    _server: Running,
    /// Of the sender.
    journal: TempDir,
}

impl SshLab {
    /// Starts it, with `setting` at the receiver.
    fn start(mark: &Mark, setting: &str) -> Self {
        let sshd = SshServer::on(SSH_PORT);
        let path = format!(
            "rate = \"100Mbit/s\"\nrtt = \"80ms\"\nqueue = \"1bdp\"\n[receiver]\n{setting}"
        );
        let lab = Lab::start(mark, &path, "tcp_wmem = \"16MiB\"\ntcp_rmem = \"16MiB\"");
        let command = sshd.command();
        let server = lab.serve(
            &command.iter().map(String::as_str).collect::<Vec<_>>(),
            SSH_PORT,
        );
        let ssh = sshd.client();
        // Brings the program there, which takes its time over this path.
        let shown = lab.sender(&[SELF, "host", "show", SSH_HOST, "--ssh", &ssh]);
        assert_eq!(shown.status.code(), Some(0), "{shown:?}");
        Self {
            lab,
            sshd,
            ssh,
            _server: server,
            journal: tempfile::tempdir().unwrap(),
        }
    }

    /// Returns the command that tries a remedy.
    fn trial<'w>(&'w self, remedy: &'w str, flags: &[&'w str]) -> Vec<&'w str> {
        let journal = self.journal.path().to_str().unwrap();
        let host = [
            SELF,
            "diagnose",
            SSH_HOST,
            "--ssh",
            &self.ssh,
            "--journal",
            journal,
        ];
        let load = [
            "--json",
            "-t",
            "6",
            "--bandwidth",
            "100M",
            "--apply",
            remedy,
        ];
        [&host[..], &load, flags].concat()
    }

    /// Lets `host` answer no connection that others open to it, but for ssh's.
    fn close_ports(&self, host: &str) {
        let rules = format!(
            "add table inet t; add chain inet t c {{ type filter hook input priority 0; }}; \
             add rule inet t c tcp flags & (syn | ack) == syn tcp dport != {SSH_PORT} drop"
        );
        let closed = self.lab.host(host, &["nft", &rules]).status().unwrap();
        assert!(closed.success(), "{host}");
    }

    /// Returns the end of a measurement to the receiver with `flags`.
    fn measure(&self, flags: &[&str]) -> Output {
        let words = [SELF, "measure", SSH_HOST, "--ssh", &self.ssh, "-t", "2"];
        self.lab.sender(&[&words, flags].concat())
    }

    /// Returns the settings of the receiver that a remedy may change.
    fn settings(&self) -> Vec<u8> {
        let sysctls = ["sysctl", "net.ipv4.tcp_rmem", "net.ipv4.tcp_wmem"];
        self.lab.receiver(&sysctls).stdout
    }
}

/// Tests whose figures are judged.
mod tests_alone {
    use super::*;

    /// Plants `setting` at the host behind ssh, and lets its remedy be tried there.
    fn assert_mended(setting: &str, direction: &[&str], remedy: &str, named: (&str, &str)) {
        let _path = path();
        let mark = Mark::new();
        let host = SshLab::start(&mark, setting);
        let before = host.settings();
        let words = host.trial(remedy, direction);
        let report = undisturbed(&host.lab, 0.08, &words);
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
        assert_eq!(host.settings(), before);
    }

    #[test]
    fn a_setting_of_a_far_end_that_is_killed_does_not_stay() {
        require!(Lab, Root, Sshd);
        let _path = path();
        let mark = Mark::new();
        let host = SshLab::start(&mark, SMALL_RMEM);
        let before = host.settings();
        let words = host.trial("raise-tcp-rmem", &[]);
        let near = Running::start(&mut host.lab.host("sender", &words));
        let is_changed = || host.settings() != before;
        assert!(
            within(Duration::from_secs(30), is_changed),
            "nothing is tried"
        );
        let far_end = host.sshd.far_ends()[0];
        kill_process(far_end, Signal::KILL).unwrap();
        let is_back = || host.settings() == before;
        assert!(within(Duration::from_secs(10), is_back), "it stays");
        sentence(&near.finish(Duration::from_secs(30)), 1);
    }

    #[test]
    fn a_small_receive_buffer_behind_ssh_is_raised_there_and_put_back() {
        require!(Lab, Root, Sshd);
        assert_mended(
            SMALL_RMEM,
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

    #[test]
    fn a_far_end_whose_port_is_closed_calls_back() {
        require!(Lab, Root, Sshd, Nft);
        let _path = path();
        let mark = Mark::new();
        let host = SshLab::start(&mark, "tcp_rmem = \"16MiB\"\ntcp_wmem = \"16MiB\"");
        host.close_ports("receiver");
        for (flags, streams) in [(&[][..], 1), (&["-R", "-P", "3"], 3), (&["--bidir"], 2)] {
            let output = host.measure(&[flags, &["--json"]].concat());
            assert_eq!(output.status.code(), Some(0), "{flags:?}: {output:?}");
            let measurement = &document(&output)["measurement"];
            let [local, remote] = ["local", "remote"].map(|end| &measurement[end]["sockets"]);
            let carried = [local, remote].map(|sockets| sockets.as_array().map(Vec::len));
            assert_eq!(carried, [Some(streams); 2], "{measurement:#}");
            let rate = measurement["summary"]["rate"].as_f64().unwrap();
            assert!(rate > 5e6, "{measurement:#}");
        }
        assert_says(
            &sentence(&host.measure(&["--udp"]), 2),
            &["opens the connections", "--udp"],
        );
        host.close_ports("sender");
        assert_says(
            &sentence(&host.measure(&[]), 1),
            &["does not answer", "cannot call back", "firewall"],
        );
    }
}
