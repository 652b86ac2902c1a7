//! The flags of a load of our own, which have no use where other programs are watched.

use clap::parser::ValueSource;
use clap::{ArgMatches, Args, Command, FromArgMatches};

use super::DiagnoseTarget;
use crate::commands::load::{MeasureLoadArguments, RouteArguments};
use crate::commands::prelude::*;
use crate::commands::until_sure::UntilSureArgument;

/// Flags of a load that were given, by their long names.
#[derive(Debug)]
pub(super) struct OwnFlags(Vec<String>);

impl OwnFlags {
    /// Fails if what is watched has no use for one of them: it has for a time, and a download for a
    /// size.
    pub(super) fn check_target(&self, target: Option<&DiagnoseTarget>) -> Result {
        let useful: &[&str] = match target {
            Some(DiagnoseTarget::Host(_)) => return Ok(()),
            Some(DiagnoseTarget::Url(_)) => &["time", "bytes"],
            None => &["time"],
        };
        let useless = self
            .0
            .iter()
            .filter(|flag| !useful.contains(&flag.as_str()));
        let useless: Vec<String> = useless.map(|flag| format!("--{flag}")).collect();
        if useless.is_empty() {
            return Ok(());
        }
        let stated = useless.join(", ");
        let message = format!(
            "what other programs send is watched as it is; leave out {stated}, or name a HOST"
        );
        Err(usage_failure(message))
    }
}

impl FromArgMatches for OwnFlags {
    fn from_arg_matches(matches: &ArgMatches) -> Result<Self, clap::Error> {
        let load = MeasureLoadArguments::augment_args(Command::new("load"));
        let all = UntilSureArgument::augment_args(RouteArguments::augment_args(load));
        let given = all.get_arguments().filter(|flag| {
            matches.value_source(flag.get_id().as_str()) == Some(ValueSource::CommandLine)
        });
        Ok(Self(
            given
                .filter_map(|flag| Some(flag.get_long()?.to_owned()))
                .collect(),
        ))
    }

    fn update_from_arg_matches(&mut self, matches: &ArgMatches) -> Result<(), clap::Error> {
        *self = Self::from_arg_matches(matches)?;
        Ok(())
    }
}

/// Adds no flag to the command: the arguments of the load, of the way and of its end define them.
impl Args for OwnFlags {
    fn augment_args(command: Command) -> Command {
        command
    }

    fn augment_args_for_update(command: Command) -> Command {
        command
    }
}

#[cfg(test)]
mod tests {
    use super::super::DiagnoseArguments;
    use clap::Parser;

    #[derive(Debug, Parser)]
    struct Line {
        #[command(flatten)]
        arguments: DiagnoseArguments,
    }

    fn refused(words: &str) -> Option<String> {
        let line =
            Line::try_parse_from(std::iter::once("diagnose").chain(words.split(' '))).unwrap();
        line.arguments
            .own_flags
            .check_target(line.arguments.target.as_ref())
            .err()
            .map(|failure| failure.message)
    }

    #[test]
    fn flags_of_a_load_are_refused_where_others_are_watched() {
        for (words, flags) in [
            (
                "--pid 7 -P 4 -R -b 5M -C bbr -t 0.3",
                "leave out --streams, --reverse, --bitrate, --congestion, or",
            ),
            ("--pid 7 --streams 1", "leave out --streams, or"),
            ("--pid 7 -n 1M", "leave out --bytes, or"),
            (
                "--connection 127.0.0.1:1 127.0.0.1:2 -p 5201",
                "leave out --port, or",
            ),
            ("--udp -t 1 -- true", "leave out --udp, or"),
            ("http://h/ -n 1M -4", "leave out --ipv4, or"),
        ] {
            let message = refused(words).unwrap_or_else(|| panic!("{words} passes"));
            assert!(message.contains(flags), "{message}");
        }
        for words in [
            "h -P 4 -R -p 5201",
            "--pid 7 -t 1 --bandwidth 1G",
            "http://h/ -n 1M",
            "-t 1 -- iperf3 -P 4",
        ] {
            assert_eq!(refused(words), None, "{words}");
        }
    }
}
