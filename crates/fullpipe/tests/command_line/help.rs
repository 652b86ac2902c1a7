//! The help of every command, as a terminal of 80 columns shows it.

use crate::common::{fullpipe, run};

fn help(command: &[&str]) -> String {
    let output = run(fullpipe(command).arg("--help"), 15);
    assert!(output.status.success());
    assert!(output.stderr.is_empty());
    String::from_utf8(output.stdout).unwrap()
}

fn check(command: &[&str]) {
    let text = help(command);
    let wide: Vec<&str> = text.lines().filter(|line| line.chars().count() > 80).collect();
    assert!(wide.is_empty(), "wider than 80 columns: {wide:#?}");
    let name = std::iter::once("fullpipe").chain(command.iter().copied()).collect::<Vec<_>>().join("-");
    insta::assert_snapshot!(name, text);
}

#[test]
fn of_the_program() {
    check(&[]);
}

#[test]
fn of_every_command() {
    for command in ["demo", "calc", "serve", "measure", "diagnose", "explain", "iperf3", "host", "lab", "schema"] {
        check(&[command]);
    }
}

#[test]
fn of_every_command_of_the_lab() {
    for command in ["list", "run", "up", "shell", "exec"] {
        check(&["lab", command]);
    }
}

#[test]
fn of_every_command_about_this_host() {
    for command in ["show", "advise", "apply", "confirm", "undo"] {
        check(&["host", command]);
    }
}

#[test]
fn knows_every_command_that_there_is() {
    let text = help(&[]);
    let commands = text.lines().skip_while(|line| *line != "Commands:").skip(1).take_while(|line| !line.is_empty());
    // What a command is for may go on in a line below, further in.
    let names = commands.filter_map(|line| line.strip_prefix("  ").filter(|rest| !rest.starts_with(' ')));
    let names: Vec<&str> = names.filter_map(|line| line.split_whitespace().next()).collect();
    assert_eq!(
        names,
        ["demo", "calc", "serve", "measure", "diagnose", "explain", "iperf3", "host", "lab", "schema", "help"]
    );
}
