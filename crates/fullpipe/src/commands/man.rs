use std::fs;
use std::io;

use clap::CommandFactory;
use clap_mangen::Man;

use super::iperf3;
use super::prelude::*;
use crate::cli::Cli;

/// Print a manual page, or write all pages to a folder.
///
/// To read one: fullpipe man measure | man -l -
#[derive(Debug, Args)]
pub(crate) struct ManArguments {
    /// Command of the page, as `measure` or `lab up`; none for fullpipe itself
    #[arg(value_name = "COMMAND")]
    command: Vec<String>,
    /// Write the pages of all commands to this folder
    #[arg(long, value_name = "FOLDER", conflicts_with = "command")]
    dir: Option<PathBuf>,
}

impl RunCommand for ManArguments {
    fn run(&self, terminal: &Terminal) -> Result {
        let all = documented_command();
        if let Some(folder) = &self.dir {
            return fs::create_dir_all(folder)
                .and_then(|()| write_pages(&all, folder))
                .map_err(cannot(&format!("write pages to {}", folder.display())));
        }
        let found = self.command.iter().try_fold(&all, |command, name| {
            command.find_subcommand(name).ok_or_else(|| {
                usage_failure(format!("{name} is no command; `fullpipe help` lists them"))
            })
        })?;
        let page = manual_page(found).map_err(cannot("make the page"))?;
        terminal.print_result(&String::from_utf8_lossy(&page));
        Ok(())
    }
}

/// Returns the program's definition with the name of each page in it.
fn documented_command() -> clap::Command {
    let mut command = with_all_texts(Cli::command()).disable_help_subcommand(true);
    command.build();
    command
}

/// Returns `command` with the text of each flag, also of those that only `--help` shows:
/// `clap_mangen` leaves out the text of a flag that the short help hides and that has no second
/// paragraph.
fn with_all_texts(command: clap::Command) -> clap::Command {
    command
        .mut_args(|flag| flag.hide_short_help(false))
        .mut_subcommands(with_all_texts)
}

/// Returns the page of `command`; that of the drop-in lists iperf3's flags.
fn manual_page(command: &clap::Command) -> io::Result<Vec<u8>> {
    const DROP_IN: &str = "fullpipe-iperf3";
    let mut page = Vec::new();
    Man::new(if command.get_display_name() == Some(DROP_IN) {
        iperf3::iperf3_command().display_name(DROP_IN)
    } else {
        command.clone()
    })
    .render(&mut page)?;
    Ok(page)
}

fn write_pages(command: &clap::Command, folder: &Path) -> io::Result<()> {
    let name = command.get_display_name().unwrap_or(command.get_name());
    fs::write(folder.join(format!("{name}.1")), manual_page(command)?)?;
    command
        .get_subcommands()
        .filter(|inner| !inner.is_hide_set())
        .try_for_each(|inner| write_pages(inner, folder))
}
