use clap::CommandFactory;
use clap_complete::{Shell, generate};

use super::Run;
use crate::cli::Cli;
use crate::failure::Failure;
use crate::terminal::Terminal;

const AFTER_HELP: &str = "\
Install, for example:
  D=~/.local/share/bash-completion/completions; mkdir -p $D
  fullpipe completions bash > $D/fullpipe
  fullpipe completions zsh > ~/.zfunc/_fullpipe        (a folder of $fpath)
  fullpipe completions fish > ~/.config/fish/completions/fullpipe.fish";

/// Print completions for a shell.
#[derive(Debug, clap::Args)]
#[command(after_help = AFTER_HELP)]
pub(crate) struct Arguments {
    /// Shell
    shell: Shell,
}

impl Run for Arguments {
    fn run(&self, terminal: &Terminal) -> Result<(), Failure> {
        let mut script = Vec::new();
        generate(self.shell, &mut Cli::command(), "fullpipe", &mut script);
        terminal.result(&String::from_utf8_lossy(&script));
        Ok(())
    }
}
