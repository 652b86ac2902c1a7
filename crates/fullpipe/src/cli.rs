//! The command line.

use clap::builder::styling::{AnsiColor, Styles};
use clap::{ArgAction, Parser};

use crate::commands::{Command, help_template};
use crate::terminal::{OutputFormat, terminal_columns};

/// The flags for JSON, needed where the command line itself is wrong.
const JSON_FLAGS: [(&str, OutputFormat); 3] = [
    ("--json", OutputFormat::Json),
    ("-J", OutputFormat::Json),
    ("--json-lines", OutputFormat::JsonLines),
];

const STYLES: Styles = Styles::styled()
    .header(AnsiColor::Green.on_default().bold())
    .usage(AnsiColor::Green.on_default().bold())
    .literal(AnsiColor::Cyan.on_default().bold())
    .placeholder(AnsiColor::Cyan.on_default());

const AFTER_SHORT_HELP: &str =
    "`fullpipe help COMMAND` explains one; `fullpipe demo` shows the whole loop.";

const AFTER_HELP: &str = "\
Quantities have units: 100Mbit/s, 1G, 173ms, 64KiB, 0.01%. A bare k, M or G is
decimal for rates and binary for byte counts, as in iperf3.

Exit codes: 0 done; 1 it ran and failed, or the result is invalid; 2 the command
line or a file is wrong; 3 the machine lacks a permission or a feature;
130 interrupted.";

/// Why a transfer does not fill the pipe, and what exactly would fix it.
#[derive(Debug, Parser)]
#[command(version, after_help = AFTER_SHORT_HELP, after_long_help = AFTER_HELP)]
#[command(styles = STYLES, help_template = help_template(&STYLES), term_width = help_columns())]
pub(crate) struct Cli {
    /// Print results only
    #[arg(long, short, global = true, help_heading = "Output")]
    pub(crate) quiet: bool,
    /// Report each step on standard error; -vv in detail
    #[arg(long, short, global = true, action = ArgAction::Count, conflicts_with = "quiet", help_heading = "Output")]
    pub(crate) verbose: u8,
    #[command(subcommand)]
    pub(crate) command: Command,
}

/// Returns the columns of the help: those of the terminal, up to 120.
fn help_columns() -> usize {
    terminal_columns().min(120)
}

/// Returns the form of standard output, as far as a wrong command line shows it.
pub(crate) fn format_of(mut arguments: impl Iterator<Item = String>) -> OutputFormat {
    let format =
        arguments.find_map(|argument| JSON_FLAGS.iter().find(|(flag, _)| *flag == argument));
    format.map_or(OutputFormat::Text, |(_, format)| *format)
}

#[cfg(test)]
mod tests {
    use std::collections::HashMap;

    use clap::CommandFactory;

    use super::*;

    #[test]
    fn the_definition_is_sound() {
        Cli::command().debug_assert();
    }

    /// Flags whose meaning differs between commands, with the reason.
    const EXCEPTIONS: &[(&str, &str)] = &[
        (
            "--allow",
            "the networks of clients of `serve`, and what tools of `mcp` may do",
        ),
        (
            "-i",
            "the interval of iperf3 in `measure`, the device of tcpdump in `trace`",
        ),
        (
            "--capture",
            "one file of a test, and a folder for those of both hosts and of all runs in the lab",
        ),
        (
            "--store",
            "the folder for uploads of `serve`, and the archive of results elsewhere",
        ),
        (
            "--streams",
            "one number of a load or `auto`, and those that `sweep` may try",
        ),
        (
            "--redact",
            "the new file of `trace`, and other names in what the archive prints",
        ),
    ];

    /// Collects every command with its path, but not the drop-in, which has a parser of its own.
    fn walk(command: &clap::Command, path: &str, found: &mut Vec<(String, clap::Command)>) {
        found.push((path.to_owned(), command.clone()));
        for inner in command
            .get_subcommands()
            .filter(|inner| !["help", "iperf3"].contains(&inner.get_name()))
        {
            walk(inner, &format!("{path} {}", inner.get_name()), found);
        }
    }

    /// The names and the value of a flag: what a user reads of its meaning.
    fn meaning(flag: &clap::Arg) -> String {
        let short = flag
            .get_short()
            .map_or_else(String::new, |letter| format!("-{letter} "));
        let values: Vec<&str> = flag
            .get_value_names()
            .unwrap_or_default()
            .iter()
            .map(clap::builder::Str::as_str)
            .collect();
        let values = if flag.get_action().takes_values() {
            values.join(" ")
        } else {
            String::new()
        };
        format!(
            "{short}--{} ({}) {values}",
            flag.get_long().unwrap_or_default(),
            flag.get_id()
        )
    }

    #[test]
    fn a_flag_means_one_thing_in_all_commands() {
        let mut command = Cli::command();
        command.build();
        let mut commands = Vec::new();
        walk(&command, "fullpipe", &mut commands);
        let mut known: HashMap<String, (String, String)> = HashMap::new();
        for (path, command) in commands {
            for flag in command.get_arguments().filter(|flag| !flag.is_positional()) {
                let long = flag.get_long().map(|name| format!("--{name}"));
                let aliases = flag
                    .get_visible_aliases()
                    .unwrap_or_default()
                    .into_iter()
                    .map(|name| format!("--{name}"));
                let short = flag.get_short().map(|letter| format!("-{letter}"));
                for name in long.into_iter().chain(aliases).chain(short) {
                    let (first, meant) = known
                        .entry(name.clone())
                        .or_insert_with(|| (path.clone(), meaning(flag)));
                    let excepted = EXCEPTIONS.iter().any(|(flag, _)| *flag == name);
                    assert!(
                        excepted || *meant == meaning(flag),
                        "{name}: {first} has {meant}, {path} {}",
                        meaning(flag)
                    );
                }
            }
        }
    }
}
