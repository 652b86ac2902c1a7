//! Hosts that ssh reaches: a far end there, or a whole command.

use std::io;
use std::str::FromStr;

use fullpipe_control::{FarEndOptions, FarProgram, SshHost};
use fullpipe_experiment::FarEnd;

use super::load::ServerAddress;
use super::prelude::*;

/// Opening of a host that ssh reaches.
pub(crate) const SCHEME: &str = "ssh://";

/// The ssh by which another host is reached.
#[derive(Debug, Args)]
#[command(next_help_heading = "Far end")]
pub(crate) struct SshArguments {
    /// Program with its arguments that reaches the other host
    #[arg(
        long,
        short = 'e',
        value_name = "COMMAND",
        default_value = "ssh",
        value_parser = parse_words
    )]
    ssh: CommandWords,
    /// Configuration of ssh in place of the user's
    #[arg(long, value_name = "FILE")]
    ssh_config: Option<String>,
    /// Folder with fullpipe for other processors
    ///
    /// Its files are fullpipe-x86_64, fullpipe-aarch64 and so on, by the name that `uname -m` has.
    /// By default this program is sent to processors of its kind.
    #[arg(long, value_name = "FOLDER", hide_short_help = true)]
    binaries: Option<PathBuf>,
}

/// A program with its arguments.
#[derive(Debug, Clone)]
struct CommandWords(Vec<String>);

/// Reads words that spaces part, but not inside quotes.
fn parse_words(text: &str) -> Result<CommandWords, String> {
    let (mut words, mut word, mut quote) = (Vec::new(), None::<String>, None);
    for character in text.chars() {
        match (quote, character) {
            (None, '\'' | '"') => {
                quote = Some(character);
                word.get_or_insert_default();
            }
            (Some(open), _) if open == character => quote = None,
            (None, ' ') => words.extend(word.take()),
            _ => word.get_or_insert_default().push(character),
        }
    }
    words.extend(word);
    if quote.is_some() || words.is_empty() {
        return Err("write a program and its arguments; quotes come in pairs".to_owned());
    }
    Ok(CommandWords(words))
}

/// Returns the options of ssh and scp that name a configuration, if one is named.
pub(crate) fn config_options(file: Option<&String>) -> impl Iterator<Item = String> {
    file.into_iter()
        .flat_map(|file| ["-F".to_owned(), file.clone()])
}

impl SshArguments {
    /// Returns the command line of ssh, without the host.
    pub(crate) fn words(&self) -> Vec<String> {
        let config = config_options(self.ssh_config.as_ref());
        self.ssh.0.iter().cloned().chain(config).collect()
    }

    /// Returns how a program is started at the other host.
    pub(crate) fn far_end_options(&self) -> FarEndOptions {
        FarEndOptions {
            ssh: self.words(),
            binaries: self.binaries.clone(),
            leaves_nothing: false,
            uses_sudo: false,
        }
    }
}

/// How a host behind `ssh://` is reached, and what is left there.
#[derive(Debug, Args)]
#[command(
    next_help_heading = "Far end",
    mut_arg("ssh", |flag| flag.hide_short_help(true)),
    mut_arg("ssh_config", |flag| flag.hide_short_help(true))
)]
pub(crate) struct FarEndArguments {
    #[command(flatten)]
    ssh: SshArguments,
    /// Remove the program that was sent there as soon as it runs
    ///
    /// By default it stays in ~/.cache/fullpipe, for the next time.
    #[arg(long, hide_short_help = true)]
    leave_nothing: bool,
    /// Run fullpipe there by sudo
    ///
    /// Only root may change a host's settings. sudo must not ask for a password there.
    #[arg(long, hide_short_help = true)]
    sudo: bool,
}

impl FarEndArguments {
    fn options(&self) -> FarEndOptions {
        FarEndOptions {
            leaves_nothing: self.leave_nothing,
            uses_sudo: self.sudo,
            ..self.ssh.far_end_options()
        }
    }

    /// Starts a far end that serves this program's tests, on `port` or any that is free.
    ///
    /// # Errors
    /// Fails if the host cannot be reached, cannot run it, or its port cannot be reached.
    pub(crate) fn start(&self, host: &SshHost, port: Option<u16>) -> Result<FarEnd> {
        Ok(FarEnd::start(host, &self.options(), port.unwrap_or(0))?)
    }

    /// Runs this very command line at the host, without the flags of the way there.
    ///
    /// # Errors
    /// Fails if the host cannot be reached or cannot run it, and as the command does there.
    pub(crate) fn run_there(&self, host: &SshHost) -> Result {
        let words = words_for_there(std::env::args().skip(1));
        let program = FarProgram::start(host, &self.options(), &words)?;
        match program.copy_output(&mut io::stdout().lock()) {
            Ok(Some(0)) => Ok(()),
            // Whoever reads has seen enough.
            Err(error) if error.kind() == io::ErrorKind::BrokenPipe => Ok(()),
            Err(error) => Err(cannot("print what the host says")(error)),
            Ok(code) => Err(Failure::already_printed(
                code.and_then(|code| u8::try_from(code).ok())
                    .unwrap_or(FAILED),
            )),
        }
    }
}

/// Returns the words of a command line without the host and the flags of the way there.
fn words_for_there(words: impl Iterator<Item = String>) -> Vec<String> {
    const WITH_VALUE: [&str; 4] = ["--ssh", "--ssh-config", "--binaries", "-e"];
    let mut there = Vec::new();
    let mut is_value = false;
    for word in words {
        let is_flag = WITH_VALUE.contains(&&*word);
        let flag = word.split('=').next().unwrap_or_default();
        let is_ours = is_value
            || WITH_VALUE.contains(&flag)
            || word.starts_with("-e")
            || ["--leave-nothing", "--sudo"].contains(&&*word)
            || word.starts_with(SCHEME);
        is_value = is_flag;
        if !is_ours {
            there.push(word);
        }
    }
    there
}

/// A host behind `ssh://`, at the command line.
#[derive(Debug, Clone)]
pub(crate) struct SshUrl(pub(crate) SshHost);

impl FromStr for SshUrl {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let address: ServerAddress = text.parse()?;
        let host = address.ssh.ok_or("another host is written as ssh://HOST")?;
        Ok(Self(host))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_command_is_parted_at_its_spaces() {
        let read = |text| parse_words(text).map(|words| words.0);
        assert_eq!(
            read("ssh -p 2222"),
            Ok(vec!["ssh".to_owned(), "-p".to_owned(), "2222".to_owned()])
        );
        assert_eq!(
            read("ssh  -F '/a b/c' \"\"").unwrap(),
            ["ssh", "-F", "/a b/c", ""]
        );
        assert!(read("").is_err() && read("ssh 'x").is_err());
    }

    #[test]
    fn a_host_is_read_as_ssh_names_it() {
        for (text, login, port) in [
            ("h", "h", None),
            ("me@h:2222", "me@h", Some(2222)),
            ("[2001:db8::1]:22", "2001:db8::1", Some(22)),
            ("me@2001:db8::1", "me@2001:db8::1", None),
        ] {
            let SshUrl(host) = format!("{SCHEME}{text}").parse().unwrap();
            assert_eq!((&*host.login, host.port), (login, port), "{text}");
        }
        for text in [
            "",
            "me@",
            "-oProxyCommand=x",
            "me@-x",
            "-x@h",
            "h:x",
            "h:70000",
            "a b",
            "h/x",
            "h\n",
        ] {
            assert!(
                format!("{SCHEME}{text}").parse::<SshUrl>().is_err(),
                "{text:?}"
            );
        }
        assert!("h".parse::<SshUrl>().is_err());
    }

    #[test]
    fn a_command_goes_there_without_the_way_there() {
        let words = "host apply tcp_rmem=64MiB ssh://me@h --ssh x --binaries=y -e z -ew --ssh-config=v --json --leave-nothing --sudo";
        assert_eq!(
            words_for_there(words.split(' ').map(str::to_owned)),
            ["host", "apply", "tcp_rmem=64MiB", "--json"]
        );
    }
}
