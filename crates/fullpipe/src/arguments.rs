//! Command lines, read.

use std::ffi::OsString;

use clap::{Arg, Parser};

/// Reads a command line.
///
/// # Errors
/// Fails with help or a version if that is asked for, or with what is wrong.
pub(crate) fn parse_arguments<C: Parser>(
    arguments: impl Iterator<Item = OsString>,
) -> Result<C, clap::Error> {
    let mut command = with_negative_numbers(C::command());
    let matches = command.try_get_matches_from_mut(arguments)?;
    C::from_arg_matches(&matches).map_err(|error| error.format(&mut command))
}

/// Lets flags take negative numbers, and refuse them in a sentence: `-t -1` is no flag `-1`.
fn with_negative_numbers(command: clap::Command) -> clap::Command {
    command
        .mut_args(with_negative_number)
        .mut_subcommands(with_negative_numbers)
}

fn with_negative_number(flag: Arg) -> Arg {
    let has_value = !flag.is_positional() && flag.get_action().takes_values();
    let needs_value = flag
        .get_num_args()
        .is_none_or(|count| count.min_values() > 0);
    if has_value && needs_value {
        flag.allow_negative_numbers(true)
    } else {
        flag
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cli::Cli;

    #[test]
    fn a_negative_number_is_the_value_of_a_flag_and_digits_are_flags_elsewhere() {
        let read = |words: &str| parse_arguments::<Cli>(words.split(' ').map(OsString::from));
        let refused = read("fullpipe simulate -t -1").unwrap_err().to_string();
        assert!(
            refused.contains("--time") && refused.contains("must not be negative"),
            "{refused}"
        );
        assert!(read("fullpipe measure host -4 -t 1").is_ok());
        assert!(read("fullpipe sweep host --resume -4").is_ok());
    }
}
