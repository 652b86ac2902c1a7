use std::net::IpAddr;

use clap::ArgGroup;
use fullpipe_control::AddressPrefix;
use fullpipe_iperf::SharedKey;
use fullpipe_record::event::{ClientFailure, Listening, NoPeer, NotAccepting, RelayStopping};
use fullpipe_relay::{
    AllowedTargets, RelayError, RelayEvent, RelayOptions, RelayRole, TargetAddress,
    relay_connections,
};

use super::every::parse_interval;
use super::log_thread::LogThread;
use super::prelude::*;
use super::serve::rejected_line;
use crate::terminal::{current_time_text, event_line};
use crate::values::read_key_file;

/// Split TCP, for hosts with small windows that nobody may change.
///
/// Takes connections over and passes them on to one target. Alone, it joins a stretch on each side.
/// As a pair, the near relay (--via) and the far one (--allow-to) carry the long stretch with
/// windows that the kernel tunes, and the hosts only fill their short ones.
#[derive(Debug, Args)]
#[command(
    after_help = AFTER_HELP,
    group = ArgGroup::new("part").args(["to", "allow_to"]).required(true),
    override_usage = USAGES
)]
pub(crate) struct RelayArguments {
    /// Address to listen on: ADDRESS:PORT, or :PORT for all addresses
    #[arg(long, value_parser = parse_listen_address, value_name = "ADDRESS:PORT", help_heading = "Relay")]
    listen: ListenAddress,
    /// Target of all connections: HOST:PORT
    #[arg(long, value_name = "HOST:PORT", help_heading = "Relay")]
    to: Option<TargetAddress>,
    /// Far relay that connects to the target
    #[arg(
        long,
        value_name = "HOST:PORT",
        requires = "key_file",
        requires = "to",
        help_heading = "Pair"
    )]
    via: Option<TargetAddress>,
    /// Serve near relays that ask for these targets; repeatable
    ///
    /// NETWORK:PORTS, as 10.0.0.0/8:22,443 or `[2001:db8::/32]:*`. Loopback and link-local
    /// addresses are permitted only by a network that holds nothing else.
    #[arg(
        long,
        value_name = "NETWORK:PORTS",
        requires = "key_file",
        conflicts_with = "via",
        help_heading = "Pair"
    )]
    allow_to: Vec<AllowedTargets>,
    /// Key in FILE that both relays of a pair have
    ///
    /// Each proves to the other that it has it.
    #[arg(long, value_parser = read_key_file, value_name = "FILE", help_heading = "Pair")]
    key_file: Option<SharedKey>,
    /// Do not encrypt between the relays
    ///
    /// Both must say so. Data then moves within the kernel, for a tenth of the processor time.
    #[arg(long, requires = "key_file", help_heading = "Pair")]
    plain: bool,
    /// Compress between the relays, by zstd, where that wins
    ///
    /// Blocks that would not become 5 % shorter, or take more processor time than they save on the
    /// way, pass as they are. The far relay needs no option for it.
    #[arg(
        long,
        requires = "via",
        conflicts_with = "allow_to",
        help_heading = "Pair"
    )]
    compress: bool,
    /// Connections to the far relay that wait for clients
    #[arg(
        long,
        value_name = "N",
        default_value_t = 8,
        value_parser = integer_parser(0..=u16::MAX),
        requires = "via",
        conflicts_with = "allow_to",
        help_heading = "Pair"
    )]
    pool: u16,
    /// Serve only this network, as 192.0.2.0/24; repeatable
    #[arg(long, value_name = "NETWORK", help_heading = "Limits")]
    allow: Vec<AddressPrefix>,
    /// Maximum number of connections at once; more wait
    #[arg(
        long,
        value_name = "N",
        default_value_t = 4096,
        value_parser = integer_parser(1..=1_000_000_u32),
        help_heading = "Limits"
    )]
    max_connections: u32,
    /// Maximum number of connections of one address (IPv6: one /64 network) [default: a quarter of
    /// all]
    ///
    /// More are reset, so that no client takes the places of all.
    #[arg(
        long,
        hide_short_help = true,
        value_name = "N",
        value_parser = integer_parser(1..=1_000_000_u32),
        conflicts_with = "allow_to",
        help_heading = "Limits"
    )]
    max_connections_per_address: Option<u32>,
    /// Time for open connections to end after Ctrl-C; the rest is reset
    #[arg(long, default_value = "30", value_parser = parse_duration, value_name = "SECONDS", help_heading = "Limits")]
    drain: Span,
    /// Report each connection also at its start and this often, unless it is idle
    ///
    /// With the rate and the limit of each stretch since the last report. Seconds where no unit is
    /// given.
    #[arg(long, short, value_parser = parse_interval, value_name = "SECONDS", help_heading = "Output")]
    interval: Option<Span>,
    /// Print one JSON object a line for each event
    #[arg(long, help_heading = "Output")]
    json_lines: bool,
}

/// The group in one line is too wide for a terminal.
const USAGES: &str = "\
fullpipe relay --listen <ADDRESS:PORT> --to <HOST:PORT> [OPTIONS]
       fullpipe relay --listen <ADDRESS:PORT> --to <HOST:PORT> --via <HOST:PORT>
                      --key-file <FILE> [OPTIONS]
       fullpipe relay --listen <ADDRESS:PORT> --allow-to <NETWORK:PORTS>
                      --key-file <FILE> [OPTIONS]";

const AFTER_HELP: &str = "\
A relay acknowledges data before the other end has it. If it dies, or the long
stretch breaks, what was on the way is lost, and both ends see a reset. Programs
that must know that data has arrived need acknowledgements of their own.";

/// The address that a relay listens on.
#[derive(Debug, Clone, Copy)]
struct ListenAddress {
    address: Option<IpAddr>,
    port: u16,
}

fn parse_listen_address(text: &str) -> Result<ListenAddress, String> {
    listen_address(text).ok_or_else(|| "write ADDRESS:PORT, or :PORT for all addresses".to_owned())
}

fn listen_address(text: &str) -> Option<ListenAddress> {
    let (address, port) = text.rsplit_once(':')?;
    let inner = address
        .strip_prefix('[')
        .and_then(|address| address.strip_suffix(']'))
        .unwrap_or(address);
    let address = if inner.is_empty() {
        None
    } else {
        Some(inner.parse().ok()?)
    };
    let port = port.parse().ok()?;
    Some(ListenAddress { address, port })
}

impl RelayArguments {
    fn relay_options(&self) -> Result<RelayOptions> {
        Ok(RelayOptions {
            address: self.listen.address,
            port: self.listen.port,
            allow: self.allow.clone(),
            max_connections: self.max_connections,
            max_connections_per_address: self
                .max_connections_per_address
                .unwrap_or(self.max_connections.div_ceil(4)),
            drain: self.drain,
            interval: self.interval,
            role: self.relay_role()?,
        })
    }

    fn relay_role(&self) -> Result<RelayRole> {
        let plain = self.plain;
        Ok(
            match (self.to.clone(), self.via.clone(), self.key_file.clone()) {
                (Some(to), Some(via), Some(key)) => RelayRole::Near {
                    to,
                    via,
                    key,
                    plain,
                    compress: self.compress,
                    pool: self.pool,
                },
                (None, None, Some(key)) => RelayRole::Far {
                    targets: self.allow_to.clone(),
                    key,
                    plain,
                },
                (Some(to), None, None) => RelayRole::Alone { to },
                _ => {
                    let why = "--key-file is for a pair: add --via at the near relay, or --allow-to at the far one";
                    return Err(usage_failure(why));
                }
            },
        )
    }
}

impl RunCommand for RelayArguments {
    fn output(&self) -> OutputChoice<'_> {
        (OutputFormat::from_flags(false, self.json_lines), None)
    }

    fn run(&self, terminal: &Terminal) -> Result {
        let options = self.relay_options()?;
        let interrupt = super::interrupt_flag()?;
        let format = terminal.format;
        let log = LogThread::start(move |event| print_event(event, format));
        let relayed = relay_connections(&options, &Arc::clone(&interrupt), &mut |event| {
            if interrupt.load(Ordering::Relaxed) {
                log.note_last(event);
            } else {
                log.log_event(event);
            }
        });
        log.finish();
        relayed.map_err(|error| relay_failure(&error))?;
        Failure::after_report(None, interrupt.load(Ordering::Relaxed), true)
    }
}

fn print_event(event: &RelayEvent, format: OutputFormat) {
    if format == OutputFormat::JsonLines {
        let now = current_time_text(jiff::Unit::Millisecond);
        Terminal::print_line(&event_line(&as_event(event), &now));
    } else {
        Terminal::print_line(&describe_event(event));
    }
}

/// Returns an event as one line.
fn describe_event(event: &RelayEvent) -> String {
    match event {
        RelayEvent::Listening(address) => format!("listening on {address}"),
        RelayEvent::Joined(ends) => format!("{} → {}: connected", ends.client, ends.target),
        RelayEvent::Progress(progress) => report::relay_progress(progress),
        RelayEvent::Relayed(done) => report::relay_line(done),
        RelayEvent::NotRelayed { client, why } => format!("{client}: reset, because {why}"),
        RelayEvent::Rejected(refused) => rejected_line(refused),
        RelayEvent::NotAccepting { why } => {
            format!("connections wait, because none can be accepted: {why}")
        }
        RelayEvent::NoPeer { why } => format!("{why}; trying again each second"),
        RelayEvent::Stopping { connections: 0, .. } => "stopping".to_owned(),
        RelayEvent::Stopping {
            connections,
            deadline,
        } => {
            let open = count_noun(connections, "connection");
            format!("stopping: waiting up to {deadline} for {open} to end")
        }
    }
}

/// Returns the record of an event.
fn as_event(event: &RelayEvent) -> Event {
    match event.clone() {
        RelayEvent::Listening(address) => Event::Listening(Listening { address }),
        RelayEvent::Joined(ends) => Event::RelayJoined(ends),
        RelayEvent::Progress(progress) => Event::RelayProgress(progress),
        RelayEvent::Relayed(done) => Event::Relayed(done),
        RelayEvent::NotRelayed { client, why } => Event::NotRelayed(ClientFailure { client, why }),
        RelayEvent::Rejected(refused) => Event::Rejected(refused),
        RelayEvent::NotAccepting { why } => Event::NotAccepting(NotAccepting { why }),
        RelayEvent::NoPeer { why } => Event::NoPeer(NoPeer { why }),
        RelayEvent::Stopping {
            connections,
            deadline,
        } => Event::RelayStopping(RelayStopping {
            connections: connections.into(),
            deadline,
        }),
    }
}

fn relay_failure(error: &RelayError) -> Failure {
    match error {
        RelayError::Listen(error) => Failure::cannot_listen(error, "--listen"),
        RelayError::Descriptors { .. } => Failure::new(LACKING, error),
        _ => run_failure(error),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_to_listen_on_has_a_port() {
        let read = |text| parse_listen_address(text).map(|listen| (listen.address, listen.port));
        assert_eq!(read(":9000"), Ok((None, 9000)));
        assert_eq!(
            read("127.0.0.1:0"),
            Ok((Some(IpAddr::from([127, 0, 0, 1])), 0))
        );
        assert_eq!(read("[::1]:9000").unwrap().0, Some("::1".parse().unwrap()));
        assert!(
            ["", "9000", "host:9000", ":65536", "127.0.0.1"]
                .iter()
                .all(|text| parse_listen_address(text).is_err())
        );
    }
}
