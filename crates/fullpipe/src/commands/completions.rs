//! Completions: a function for each shell that asks this program what may come next, so that it
//! knows the labs that are up and the hosts that ssh knows.

mod candidates;
mod scripts;

use std::ffi::OsString;

use clap::CommandFactory;
use clap_complete::engine::{CompletionCandidate, complete};
use clap_complete::{Shell, generate};

use super::prelude::*;
use crate::cli::Cli;

const AFTER_HELP: &str = "\
Install, for example:
  D=~/.local/share/bash-completion/completions; mkdir -p $D
  fullpipe completions bash > $D/fullpipe
  fullpipe completions zsh > ~/.zfunc/_fullpipe        (a folder of $fpath)
  fullpipe completions fish > ~/.config/fish/completions/fullpipe.fish";

/// Print completions for a shell.
#[derive(Debug, Args)]
#[command(after_help = AFTER_HELP)]
pub(crate) struct CompletionsArguments {
    /// Shell
    shell: Shell,
    /// Words of a command line whose last is to be completed: what the functions of the shells ask
    #[arg(last = true, hide = true)]
    words: Vec<OsString>,
}

impl RunCommand for CompletionsArguments {
    fn run(&self, terminal: &Terminal) -> Result {
        let text = if self.words.is_empty() {
            completion_script(self.shell)
        } else {
            list_candidates(self.shell, &self.words)?
        };
        terminal.print_result(&text);
        Ok(())
    }
}

/// Returns the script that a shell reads at its start.
fn completion_script(shell: Shell) -> String {
    let asking = match shell {
        Shell::Bash => scripts::BASH,
        Shell::Zsh => scripts::ZSH,
        Shell::Fish => scripts::FISH,
        _ => {
            let mut script = Vec::new();
            generate(shell, &mut Cli::command(), "fullpipe", &mut script);
            return String::from_utf8_lossy(&script).into_owned();
        }
    };
    asking.to_owned()
}

/// Returns the completions of the last of `words`, one a line; behind a tab, for shells that show
/// it, the meaning of each.
fn list_candidates(shell: Shell, words: &[OsString]) -> Result<String> {
    let mut command = candidates::with_candidates(Cli::command());
    let folder = std::env::current_dir().ok();
    let found = match words {
        [_, man, above @ .., last]
            if man == "man" && !last.as_encoded_bytes().starts_with(b"-") =>
        {
            candidates::pages_below(above, &last.to_string_lossy())
        }
        _ => complete(
            &mut command,
            words.to_vec(),
            words.len() - 1,
            folder.as_deref(),
        )
        .map_err(|error| run_failure(format!("nothing completes these words: {error}")))?,
    };
    // Flags only where one is begun: what a shell lists unasked should be short.
    let lists_flags = words.last().is_some_and(|word| !word.is_empty());
    Ok(found
        .iter()
        .filter(|one| lists_flags || !one.get_value().as_encoded_bytes().starts_with(b"-"))
        .map(|candidate| candidate_line(candidate, shell != Shell::Bash))
        .collect())
}

fn candidate_line(candidate: &CompletionCandidate, with_meaning: bool) -> String {
    let value = candidate.get_value().to_string_lossy();
    let meaning = candidate
        .get_help()
        .filter(|_| with_meaning)
        .map(ToString::to_string)
        .unwrap_or_default();
    match meaning.lines().next() {
        Some(meaning) => format!("{value}\t{meaning}\n"),
        None => format!("{value}\n"),
    }
}
