//! The command line.

use std::fmt::Display;

use clap::builder::styling::{AnsiColor, Styles};
use clap::{Parser, Subcommand};
use fullpipe_control::{RsaPrivateKey, RsaPublicKey, TlsIdentity, TlsTrust};
use fullpipe_iperf::{Key, Users};
use fullpipe_lab::Backend;
use fullpipe_units::Span;
use zeroize::Zeroizing;

use crate::commands::{calc, demo, diagnose, explain, host, iperf3, lab, measure, schema, serve};
use crate::terminal::Format;

/// How JSON is asked for; needed where the command line itself is wrong.
const JSON_FLAGS: [(&str, Format); 3] =
    [("--json", Format::Json), ("-J", Format::Json), ("--json-lines", Format::JsonLines)];

const STYLES: Styles = Styles::styled()
    .header(AnsiColor::Green.on_default().bold())
    .usage(AnsiColor::Green.on_default().bold())
    .literal(AnsiColor::Cyan.on_default().bold())
    .placeholder(AnsiColor::Cyan.on_default());

const AFTER_HELP: &str = "\
Quantities are written as people write them: 100Mbit/s, 1G, 173ms, 64KiB, 0.01%.
A bare k, M or G is decimal for rates and binary for byte counts, as in iperf3.

Exit codes: 0 done; 1 it ran and failed, or the result is invalid; 2 the command
line or a file is wrong; 3 the machine lacks a permission or a feature;
130 interrupted.";

/// Why a transfer does not fill the pipe, and what exactly would fix it.
#[derive(Debug, Parser)]
#[command(version, styles = STYLES, after_help = AFTER_HELP, max_term_width = 80)]
pub(crate) struct Cli {
    /// Print results only
    #[arg(long, short, global = true)]
    pub(crate) quiet: bool,
    #[command(subcommand)]
    pub(crate) command: Command,
}

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// The whole loop on an emulated path: predict, measure, explain, fix, prove
    Demo(demo::Arguments),
    /// Solve the path equations: any of bandwidth, RTT, window, loss, streams …
    Calc(Box<calc::Arguments>),
    /// The far end, for fullpipe and iperf3 clients
    Serve(serve::Arguments),
    /// One TCP measurement, against `fullpipe serve` or any iperf3 server
    Measure(measure::Arguments),
    /// What limits a transfer, what would lift the limit, and the proof
    Diagnose(Box<diagnose::Arguments>),
    /// The page about a verdict: what it means, what shows it, what to do
    Explain(explain::Arguments),
    /// In place of iperf3: its flags, its text, its JSON
    #[command(disable_help_flag = true)]
    Iperf3(iperf3::Raw),
    /// This host's settings: show, advise, apply with a way back, undo
    Host(host::Arguments),
    /// Emulated paths: run scenarios, or any program in their hosts
    Lab(lab::Arguments),
    /// Print the JSON schema of what --json and --json-lines print
    Schema(schema::Arguments),
}

impl Cli {
    /// What standard output is for.
    pub(crate) fn format(&self) -> Format {
        let json = match &self.command {
            Command::Measure(arguments) => return arguments.output.format(),
            Command::Diagnose(arguments) => return arguments.output.format(),
            Command::Demo(arguments) => return arguments.output.format(),
            Command::Lab(arguments) => return arguments.format(),
            Command::Serve(arguments) if arguments.json_lines() => return Format::JsonLines,
            Command::Calc(arguments) => arguments.json,
            Command::Host(arguments) => arguments.wants_json(),
            Command::Serve(_) | Command::Explain(_) | Command::Iperf3(_) | Command::Schema(_) => false,
        };
        if json { Format::Json } else { Format::Text }
    }
}

/// The format of the result, for commands that run for a while.
#[derive(Debug, Clone, Copy, clap::Args)]
pub(crate) struct OutputArguments {
    /// Print one JSON document
    #[arg(long, short = 'J')]
    json: bool,
    /// Print one JSON object a line, as things happen
    #[arg(long, conflicts_with = "json")]
    json_lines: bool,
}

impl OutputArguments {
    pub(crate) fn format(self) -> Format {
        match (self.json, self.json_lines) {
            (true, _) => Format::Json,
            (_, true) => Format::JsonLines,
            _ => Format::Text,
        }
    }
}

/// What standard output is for, as far as a command line that is wrong tells.
pub(crate) fn format_of(mut arguments: impl Iterator<Item = String>) -> Format {
    let format = arguments.find_map(|argument| JSON_FLAGS.iter().find(|(flag, _)| *flag == argument));
    format.map_or(Format::Text, |(_, format)| *format)
}

/// A duration as iperf3 takes it, in seconds without a unit, or with any unit.
pub(crate) fn duration(text: &str) -> Result<Span, String> {
    let with_unit = if text.parse::<f64>().is_ok() { format!("{text}s") } else { text.to_owned() };
    with_unit.parse().map_err(|error: fullpipe_units::ParseError| error.to_string())
}

/// What leads the packets of an emulated path's hosts to the link.
pub(crate) fn backend(name: &str) -> Result<Backend, String> {
    Backend::named(name).ok_or_else(|| "the backends are auto, tun, packet and kernel".to_owned())
}

/// The key in a file that both ends have.
pub(crate) fn key(path: &str) -> Result<Key, String> {
    read(path, Key::from_file_content)
}

/// The certificate of a server and its private key, in a file.
pub(crate) fn tls_identity(path: &str) -> Result<TlsIdentity, String> {
    read(path, TlsIdentity::from_pem)
}

/// The certificates that a client trusts, in a file.
pub(crate) fn tls_trust(path: &str) -> Result<TlsTrust, String> {
    read(path, TlsTrust::from_pem)
}

/// The public part of a server's RSA key, in a file.
pub(crate) fn rsa_public_key(path: &str) -> Result<RsaPublicKey, String> {
    read(path, RsaPublicKey::from_pem)
}

/// A server's RSA key, in a file.
pub(crate) fn rsa_private_key(path: &str) -> Result<RsaPrivateKey, String> {
    read(path, RsaPrivateKey::from_pem)
}

/// The users whom a server serves, in a file.
pub(crate) fn users(path: &str) -> Result<Users, String> {
    read(path, Users::from_file_content)
}

/// What `from` makes of a file. Most of them are secret, so no copy of the content is left in memory.
fn read<T, E: Display>(path: &str, from: impl FnOnce(&[u8]) -> Result<T, E>) -> Result<T, String> {
    let content = std::fs::read(path).map(Zeroizing::new).map_err(|error| error.to_string())?;
    from(&content).map_err(|error| error.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::CommandFactory;

    #[test]
    fn the_definition_is_sound() {
        Cli::command().debug_assert();
    }

    #[test]
    fn seconds_need_no_unit() {
        assert_eq!(duration("10"), Ok(Span::from_secs(10)));
        assert_eq!(duration("0.5"), Ok(Span::from_millis(500)));
        assert_eq!(duration("250ms"), Ok(Span::from_millis(250)));
        assert!(duration("-1").is_err());
    }
}
