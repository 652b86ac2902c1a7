//! The help of every command, as a terminal of 80 columns shows it.

use crate::common::{fullpipe, run};

/// Lines of the short help of a command: two screens.
const MAX_SHORT_LINES: usize = 60;
/// Lines of the short help of the program: one screen.
const MAX_LINES_OF_PROGRAM: usize = 42;
/// Groups of commands in the help of the program.
const GROUPS: [&str; 6] = [
    "Measure:", "Explain:", "Change:", "Emulate:", "Keep:", "Tools:",
];

fn help(command: &[&str], flag: &str) -> String {
    let output = run(fullpipe(command).arg(flag), 15);
    assert!(output.status.success(), "{command:?}");
    assert!(output.stderr.is_empty(), "{command:?}");
    String::from_utf8(output.stdout).unwrap()
}

/// The commands that the help of `command` lists.
fn listed(help: &str) -> Vec<String> {
    let is_heading = |line: &&str| *line == "Commands:" || GROUPS.contains(line);
    let commands = help
        .lines()
        .skip_while(|line| !is_heading(line))
        .skip(1)
        .take_while(|line| !line.is_empty());
    // The description of a command may continue in a line below, further in.
    let names = commands.filter_map(|line| {
        line.strip_prefix("  ")
            .filter(|rest| !rest.starts_with(' '))
    });
    names
        .filter_map(|line| line.split_whitespace().next())
        .map(str::to_owned)
        .collect()
}

/// Returns every command that a help lists, the program itself first.
fn all_commands() -> Vec<Vec<String>> {
    let mut found = vec![Vec::new()];
    let mut next = 0;
    while let Some(command) = found.get(next).cloned() {
        let words: Vec<&str> = command.iter().map(String::as_str).collect();
        for name in listed(&help(&words, "-h"))
            .into_iter()
            .filter(|name| name != "help")
        {
            found.push(command.iter().cloned().chain([name]).collect());
        }
        next += 1;
    }
    found
}

#[test]
fn of_every_command_fits_a_terminal() {
    let commands = all_commands();
    assert!(
        commands.contains(&vec!["lab".to_owned(), "grid".to_owned()]),
        "{commands:?}"
    );
    for command in commands {
        let words: Vec<&str> = command.iter().map(String::as_str).collect();
        let name = [&["fullpipe"], &words[..]].concat().join("-");
        // The drop-in has one help, with iperf3's flags all in one list as there.
        let is_drop_in = command == ["iperf3"];
        for flag in ["-h", "--help"].into_iter().skip(usize::from(is_drop_in)) {
            let text = help(&words, flag);
            let wide: Vec<&str> = text
                .lines()
                .filter(|line| line.chars().count() > 80)
                .collect();
            assert!(
                wide.is_empty(),
                "{name} {flag} is wider than 80 columns: {wide:#?}"
            );
            let lines = text.lines().count();
            assert!(
                flag == "--help" || lines <= MAX_SHORT_LINES,
                "{name} {flag} has {lines} lines"
            );
            insta::assert_snapshot!(
                format!("{name}{}", if flag == "-h" { "-short" } else { "" }),
                text
            );
        }
    }
}

#[test]
fn the_commands_are_listed_by_group_on_one_screen() {
    let text = help(&[], "-h");
    assert!(text.lines().count() <= MAX_LINES_OF_PROGRAM, "{text}");
    let found: Vec<&str> = text.lines().filter(|line| GROUPS.contains(line)).collect();
    assert_eq!(found, GROUPS);
    assert_eq!(listed(&text).len(), 25, "each command has a line: {text}");
}

#[test]
fn a_default_in_the_help_has_the_unit_that_it_is_read_with() {
    // It was `--connect-timeout <MILLISECONDS> [default: 5]`, and meant 5 s.
    let text = help(&["measure"], "--help")
        .split_whitespace()
        .collect::<Vec<_>>()
        .join(" ");
    assert!(
        text.contains("[default: 5s]") && text.contains("[default: 120s]"),
        "{text}"
    );
    assert!(!text.contains("[default: 120000]"), "{text}");
}

#[test]
fn the_drop_in_takes_every_flag_itself() {
    // `-v` and `-q` of the other commands are not the drop-in's: `-v` is its version.
    assert!(help(&["iperf3"], "-v").starts_with("iperf 3."));
}
