//! Relays in processes of their own. As root, they run as an ordinary user.

use std::error::Error;
use std::os::unix::process::CommandExt;
use std::process::{Child, Command, Stdio};
use std::sync::atomic::AtomicBool;

use fullpipe_iperf::SharedKey;
use fullpipe_relay::{RelayOptions, RelayRole, relay_connections};
use fullpipe_testkit::{free_port, wait_for_listener};
use fullpipe_units::Span;

const KEY: &[u8] = b"correct horse battery";
/// The first argument of a process that relays.
const RELAY: &str = "relay";
/// Nobody, who owns nothing and has no privileges.
const NOBODY: u32 = 65534;
/// Connections of a far relay besides those of clients: they wait at the near relay.
const WAITING: u32 = 16;

/// One relay, or two, in front of a target. They end when this is dropped.
pub(crate) struct Relays {
    pub port: u16,
    /// Their names and processes.
    pub processes: Vec<(&'static str, Child)>,
}

impl Relays {
    /// Starts relays of a `kind` (alone, plain, tls or compress) in front of port `to`, for so many
    /// `connections`.
    pub(crate) fn start(kind: &str, to: u16, connections: usize) -> Result<Self, Box<dyn Error>> {
        let (port, far, to) = (free_port(), free_port(), format!("127.0.0.1:{to}"));
        let via = format!("127.0.0.1:{far}");
        let mut relays = Self {
            port,
            processes: Vec::new(),
        };
        if kind == "alone" {
            relays
                .processes
                .push(("relay", start(port, connections, &["alone", &to])?));
        } else {
            relays
                .processes
                .push(("far relay", start(far, connections, &["far", kind, &to])?));
            relays.processes.push((
                "near relay",
                start(port, connections, &["near", kind, &to, &via])?,
            ));
        }
        Ok(relays)
    }
}

impl Drop for Relays {
    fn drop(&mut self) {
        for (_, process) in &mut self.processes {
            // It has ended, then.
            let _ = process.kill().and_then(|()| process.wait());
        }
    }
}

fn start(port: u16, connections: usize, role: &[&str]) -> Result<Child, Box<dyn Error>> {
    let mut command = Command::new(std::env::current_exe()?);
    command
        .args([RELAY, &port.to_string(), &connections.to_string()])
        .args(role)
        .stdout(Stdio::null());
    if rustix::process::geteuid().is_root() {
        command.uid(NOBODY).gid(NOBODY);
    }
    let child = command.spawn()?;
    wait_for_listener(port);
    Ok(child)
}

/// Relays, and does not return, if `arguments` are those of such a process.
pub(crate) fn serve_if_asked(arguments: &[String]) -> Result<(), Box<dyn Error>> {
    let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
    let [RELAY, port, connections, role @ ..] = &arguments[..] else {
        return Ok(());
    };
    let is = |kind| role.get(1) == Some(&kind);
    let (key, plain, compress) = (
        SharedKey::from_file_content(KEY)?,
        is("plain"),
        is("compress"),
    );
    let mut max_connections = connections.parse()?;
    let role = match *role {
        ["alone", to] => RelayRole::Alone { to: to.parse()? },
        ["far", _, to] => {
            max_connections += WAITING;
            RelayRole::Far {
                targets: vec![to.parse()?],
                key,
                plain,
            }
        }
        ["near", _, to, via] => RelayRole::Near {
            to: to.parse()?,
            via: via.parse()?,
            key,
            plain,
            compress,
            pool: 8,
        },
        _ => return Err("a relay is alone, far or near".into()),
    };
    let (address, drain) = (Some([127, 0, 0, 1].into()), Span::ZERO);
    let (port, allow, interval) = (port.parse()?, Vec::new(), None);
    let max_connections_per_address = max_connections;
    let options = RelayOptions {
        address,
        port,
        allow,
        max_connections,
        max_connections_per_address,
        drain,
        interval,
        role,
    };
    relay_connections(&options, &AtomicBool::new(false), &mut |_| {})?;
    Ok(())
}
