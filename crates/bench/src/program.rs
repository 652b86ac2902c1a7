//! The programs that are compared, and how each is asked to do the same.

use std::net::Ipv4Addr;
use std::path::PathBuf;
use std::process::Command;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use crate::process::{Port, Process, last_words};

/// A load engine, as client or as server.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Program {
    Fullpipe,
    /// `fullpipe iperf3`, which takes iperf3's arguments and prints its document.
    DropIn,
    Iperf3,
    Iperf2,
}

/// A load.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Load {
    pub(crate) traffic: Traffic,
    /// Number of streams.
    pub(crate) streams: u16,
    /// For how long.
    pub(crate) seconds: f64,
}

/// Of which kind it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Traffic {
    /// TCP with CUBIC.
    Tcp,
    /// UDP, [`DATAGRAM`] bytes each, as fast as they go.
    Flood,
    /// The same datagrams at so many Mbit/s.
    Paced(u16),
}

/// Bytes of a datagram: what is left of a packet of 1500 bytes with IP, UDP and twelve bytes of
/// TCP's options.
pub(crate) const DATAGRAM: &str = "1448";

/// iperf2 takes no 0 for "as fast as it goes", but a rate that no machine reaches.
const BEYOND_REACH: &str = "100g";

/// An installed program.
#[derive(Debug)]
pub(crate) struct Tool {
    pub(crate) path: PathBuf,
    /// Its name and version, or why it cannot be run.
    pub(crate) version: Result<String, String>,
    /// Its help.
    help: String,
}

/// All of them.
#[derive(Debug)]
pub(crate) struct Tools {
    pub(crate) fullpipe: Tool,
    pub(crate) iperf3: Tool,
    pub(crate) iperf2: Tool,
}

impl Tool {
    fn find(path: PathBuf, help: &[&str], stop: &AtomicBool) -> Self {
        const TIMEOUT: Duration = Duration::from_secs(5);
        let ask = |arguments: &[&str]| {
            let ended =
                Process::start(Command::new(&path).args(arguments))?.finish(TIMEOUT, stop)?;
            // iperf2 says its version on standard error.
            Ok(format!("{}{}", ended.stdout, ended.stderr))
        };
        let version =
            ask(&["--version"]).map_err(|error: crate::process::RunError| error.to_string());
        let version = version.map(|text| {
            last_words(
                text.lines().next().unwrap_or_default(),
                "of unknown version",
            )
        });
        let help = if version.is_ok() {
            ask(help).unwrap_or_default()
        } else {
            String::new()
        };
        Self {
            path,
            version,
            help,
        }
    }

    /// Returns whether it knows a flag.
    pub(crate) fn knows(&self, flag: &str) -> bool {
        self.help
            .split(|c: char| c.is_whitespace() || [',', '=', '[', ']'].contains(&c))
            .any(|word| word == flag)
    }
}

impl Tools {
    /// Asks each program what it is and can do.
    pub(crate) fn find(
        fullpipe: PathBuf,
        iperf3: PathBuf,
        iperf2: PathBuf,
        stop: &AtomicBool,
    ) -> Self {
        Self {
            fullpipe: Tool::find(fullpipe, &["measure", "--help"], stop),
            iperf3: Tool::find(iperf3, &["--help"], stop),
            iperf2: Tool::find(iperf2, &["--help"], stop),
        }
    }

    pub(crate) fn of(&self, program: Program) -> &Tool {
        match program {
            Program::Fullpipe | Program::DropIn => &self.fullpipe,
            Program::Iperf3 => &self.iperf3,
            Program::Iperf2 => &self.iperf2,
        }
    }
}

impl Program {
    /// Its server, at `address` and `port`.
    pub(crate) fn server(
        self,
        tools: &Tools,
        address: Ipv4Addr,
        port: u16,
        traffic: Traffic,
    ) -> Command {
        let mut command = Command::new(&tools.of(self).path);
        match self {
            Self::Fullpipe => command.arg("serve"),
            Self::DropIn => command.args(["iperf3", "-s"]),
            Self::Iperf3 => command.arg("-s"),
            Self::Iperf2 if traffic == Traffic::Tcp => command.args(["-s", "-y", "C"]),
            Self::Iperf2 => command.args(["-s", "-u", "-y", "C"]),
        };
        command.args(["-B", &address.to_string(), "-p", &port.to_string()]);
        command
    }

    /// Returns where its server can be seen to be ready.
    pub(crate) fn port(self, port: u16, traffic: Traffic) -> Port {
        if self == Self::Iperf2 && traffic != Traffic::Tcp {
            Port::Udp(port)
        } else {
            Port::Tcp(port)
        }
    }

    /// Its client, against the server at `address` and `port`.
    pub(crate) fn client(
        self,
        tools: &Tools,
        address: Ipv4Addr,
        port: u16,
        load: &Load,
        flags: &[&str],
    ) -> Command {
        let mut command = Command::new(&tools.of(self).path);
        match self {
            Self::Fullpipe => command.args(["measure", &address.to_string(), "--json"]),
            Self::DropIn => command.args(["iperf3", "-c", &address.to_string(), "-J"]),
            Self::Iperf3 => command.args(["-c", &address.to_string(), "-J"]),
            Self::Iperf2 => command.args(["-c", &address.to_string(), "-y", "C"]),
        };
        command.args([
            "-p",
            &port.to_string(),
            "-P",
            &load.streams.to_string(),
            "-t",
            &self.duration(load),
        ]);
        command.args(self.traffic(load.traffic)).args(flags);
        command
    }

    /// iperf3 takes whole seconds only, and 0 for ever.
    fn duration(self, load: &Load) -> String {
        let is_whole = matches!(self, Self::Iperf3 | Self::DropIn);
        if is_whole {
            load.seconds.ceil().max(1.0).to_string()
        } else {
            load.seconds.to_string()
        }
    }

    fn traffic(self, traffic: Traffic) -> Vec<String> {
        let rate = match (self, traffic) {
            (Self::Iperf2, Traffic::Tcp) => return ["-Z", "cubic"].map(str::to_owned).to_vec(),
            (_, Traffic::Tcp) => return ["-C", "cubic"].map(str::to_owned).to_vec(),
            (Self::Iperf2, Traffic::Flood) => BEYOND_REACH.to_owned(),
            (_, Traffic::Flood) => "0".to_owned(),
            (_, Traffic::Paced(megabits)) => format!("{megabits}M"),
        };
        let consent = (self == Self::Fullpipe).then_some("--yes");
        ["-u", "-l", DATAGRAM, "-b", &rate]
            .into_iter()
            .chain(consent)
            .map(str::to_owned)
            .collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tools() -> Tools {
        let tool = |name: &str| Tool {
            path: name.into(),
            version: Ok(String::new()),
            help: String::new(),
        };
        Tools {
            fullpipe: tool("fullpipe"),
            iperf3: tool("iperf3"),
            iperf2: tool("iperf"),
        }
    }

    fn words(command: &Command) -> String {
        let words = std::iter::once(command.get_program()).chain(command.get_args());
        words
            .map(|word| word.to_string_lossy())
            .collect::<Vec<_>>()
            .join(" ")
    }

    #[test]
    fn each_program_is_asked_to_do_the_same() {
        let load = Load {
            traffic: Traffic::Flood,
            streams: 2,
            seconds: 0.5,
        };
        let client = |program: Program| {
            words(&program.client(&tools(), Ipv4Addr::LOCALHOST, 9, &load, &["--x"]))
        };
        let expected =
            "fullpipe measure 127.0.0.1 --json -p 9 -P 2 -t 0.5 -u -l 1448 -b 0 --yes --x";
        assert_eq!(client(Program::Fullpipe), expected);
        assert_eq!(
            client(Program::Iperf3),
            "iperf3 -c 127.0.0.1 -J -p 9 -P 2 -t 1 -u -l 1448 -b 0 --x"
        );
        let drop_in = client(Program::DropIn);
        assert_eq!(
            drop_in,
            client(Program::Iperf3).replacen("iperf3", "fullpipe iperf3", 1)
        );
        assert_eq!(
            client(Program::Iperf2),
            "iperf -c 127.0.0.1 -y C -p 9 -P 2 -t 0.5 -u -l 1448 -b 100g --x"
        );
        let server = Program::Iperf2.server(&tools(), Ipv4Addr::LOCALHOST, 9, Traffic::Flood);
        assert_eq!(words(&server), "iperf -s -u -y C -B 127.0.0.1 -p 9");
    }

    #[test]
    fn a_flag_is_known_by_its_whole_name() {
        let help = "  -t, --time  #  seconds\n      --skip-rx-copy    discard\n      --timestamps<=format>".to_owned();
        let tool = Tool {
            path: "iperf3".into(),
            version: Ok(String::new()),
            help,
        };
        assert!(tool.knows("--skip-rx-copy") && tool.knows("-t") && tool.knows("--time"));
        assert!(!tool.knows("--skip") && !tool.knows("--rx-copy"));
    }
}
