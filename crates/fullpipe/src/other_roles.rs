//! What this program is besides its commands: the keeper of a lab, a file that was sent for one
//! command, and a drop-in for iperf3.

use std::fs;
use std::path::Path;
use std::process::ExitCode;

use fullpipe_lab::keeper;
use fullpipe_sys::look_up_without_modules;

use crate::commands::iperf3;
use crate::finish_program;
use crate::terminal::{OutputFormat, Terminal};

/// Carries out what the program was started for, if that is none of its commands.
pub(crate) fn run() -> Option<ExitCode> {
    look_up_without_modules();
    // Before a thread starts, because the keeper may not have a second one.
    if std::env::args_os()
        .nth(1)
        .is_some_and(|argument| argument == keeper::ARGUMENT)
    {
        return Some(keeper::main());
    }
    remove_own_file();
    let arguments = iperf3::arguments_of(std::env::args_os())?;
    let terminal = Terminal::new(OutputFormat::Text, false);
    Some(finish_program(&terminal, iperf3::run(&arguments)))
}

/// Removes the file of this program, and its folders, if it was sent here for one command that is to
/// leave nothing: the script that ssh started names its folder in the environment.
fn remove_own_file() {
    let sent_to = std::env::var_os("FULLPIPE_REMOVE_PROGRAM");
    let own = std::env::current_exe().ok();
    if let Some((own, sent_to)) = own.zip(sent_to)
        && own.parent() == Some(Path::new(&sent_to))
    {
        // What fails stays, as a program that is kept does.
        let _ = fs::remove_file(&own);
        let _ = own.ancestors().skip(1).take(2).try_for_each(fs::remove_dir);
    }
}
