//! Values that flags and arguments may have beyond those that their definitions list.

use std::collections::BTreeSet;
use std::ffi::{OsStr, OsString};
use std::fs;
use std::path::PathBuf;

use clap::{Arg, Command, CommandFactory};
use clap_complete::engine::{
    ArgValueCandidates, ArgValueCompleter, CompletionCandidate, PathCompleter, ValueCompleter,
};
use fullpipe_lab::StandingLab;
use fullpipe_record::LegalVerdict;
use fullpipe_scenario::{Scenario, builtin_comparisons, builtin_grids, builtin_scenarios};

use crate::cli::Cli;

type Candidates = fn() -> Vec<CompletionCandidate>;

/// Returns `command` with candidates for the values of its arguments and of those of its
/// subcommands.
pub(super) fn with_candidates(command: Command) -> Command {
    let name = command.get_name().to_owned();
    command
        .mut_args(|argument| match candidate_source(&name, &argument) {
            _ if name == "copy" && argument.get_id() == "paths" => {
                argument.add(ArgValueCompleter::new(files_and_hosts))
            }
            Some(candidates) => argument.add(ArgValueCandidates::new(candidates)),
            None => argument,
        })
        .mut_subcommands(with_candidates)
}

/// Returns the source of the values of an argument of `command`, by the name that the help gives
/// them.
fn candidate_source(command: &str, argument: &Arg) -> Option<Candidates> {
    let of_command: Option<Candidates> = match (command, argument.get_id().as_str()) {
        ("shell" | "exec", "host") => Some(hosts_of_a_lab),
        ("shell" | "exec", "scenario") => Some(scenarios_and_labs),
        ("compare", "scenario") => Some(comparison_candidates),
        ("down", "name") => Some(lab_candidates),
        ("explain", "verdict") => Some(verdict_candidates),
        _ => None,
    };
    of_command.or(match argument.get_value_names()?.first()?.as_str() {
        "SCENARIO" => Some(scenario_candidates),
        "GRID" => Some(grid_candidates),
        "HOST" | "HOST|URL" => Some(known_hosts),
        _ => None,
    })
}

fn named_candidate(name: &str, meaning: &str) -> CompletionCandidate {
    let meaning = (!meaning.is_empty()).then(|| meaning.to_owned().into());
    CompletionCandidate::new(name.to_owned()).help(meaning)
}

fn titled_candidates(all: &[(&str, &str)]) -> Vec<CompletionCandidate> {
    all.iter()
        .map(|(name, text)| {
            let title = Scenario::parse(name, text).map(|one| one.title);
            named_candidate(name, &title.unwrap_or_default())
        })
        .collect()
}

fn scenario_candidates() -> Vec<CompletionCandidate> {
    titled_candidates(builtin_scenarios())
}

fn comparison_candidates() -> Vec<CompletionCandidate> {
    titled_candidates(builtin_comparisons())
}

fn grid_candidates() -> Vec<CompletionCandidate> {
    builtin_grids()
        .iter()
        .map(|(name, _)| named_candidate(name, ""))
        .collect()
}

/// Returns the labs that are up.
fn lab_candidates() -> Vec<CompletionCandidate> {
    StandingLab::find_all()
        .unwrap_or_default()
        .iter()
        .map(|lab| named_candidate(&lab.name, &lab.description))
        .collect()
}

fn scenarios_and_labs() -> Vec<CompletionCandidate> {
    lab_candidates()
        .into_iter()
        .chain(scenario_candidates())
        .collect()
}

fn hosts_of_a_lab() -> Vec<CompletionCandidate> {
    ["sender", "receiver", "near-relay", "far-relay"]
        .map(|name| named_candidate(name, ""))
        .into()
}

/// Returns the verdicts by their names, and by their kinds where several have the same.
fn verdict_candidates() -> Vec<CompletionCandidate> {
    let names = LegalVerdict::ALL.iter().map(|verdict| verdict.name());
    let kinds = names.clone().filter_map(|name| name.split('/').next());
    names
        .chain(kinds)
        .collect::<BTreeSet<_>>()
        .into_iter()
        .map(|name| named_candidate(name, ""))
        .collect()
}

/// Returns the commands below the one that `words` name, whose names begin with `begun`; each has a
/// page.
pub(super) fn pages_below(words: &[OsString], begun: &str) -> Vec<CompletionCandidate> {
    let mut command = Cli::command();
    for word in words {
        let Some(inner) = command.find_subcommand(word) else {
            return Vec::new();
        };
        command = inner.clone();
    }
    let all = command
        .get_subcommands()
        .filter(|command| !command.is_hide_set());
    let all = all.filter(|command| command.get_name().starts_with(begun));
    all.map(|command| {
        CompletionCandidate::new(command.get_name()).help(command.get_about().cloned())
    })
    .collect()
}

/// Returns the files and folders that begin with `current`, and the hosts that ssh knows with the
/// colon behind them.
fn files_and_hosts(current: &OsStr) -> Vec<CompletionCandidate> {
    let begun = current.to_string_lossy();
    let hosts = known_hosts()
        .into_iter()
        .map(|host| host.get_value().to_string_lossy().into_owned() + ":");
    let hosts = hosts
        .filter(|host| host.starts_with(&*begun))
        .map(CompletionCandidate::new);
    PathCompleter::any()
        .complete(current)
        .into_iter()
        .chain(hosts)
        .collect()
}

/// Returns the hosts that ssh has met and those of its configuration.
fn known_hosts() -> Vec<CompletionCandidate> {
    let Some(folder) = std::env::var_os("HOME").map(|home| PathBuf::from(home).join(".ssh")) else {
        return Vec::new();
    };
    let [met, configured] = ["known_hosts", "config"]
        .map(|name| fs::read_to_string(folder.join(name)).unwrap_or_default());
    let hosts: BTreeSet<&str> = hosts_met(&met)
        .chain(hosts_configured(&configured))
        .collect();
    hosts
        .into_iter()
        .map(|host| named_candidate(host, ""))
        .collect()
}

/// Returns the hosts of `known_hosts` (sshd(8)) that it names: not those whose names are hashed,
/// nor patterns, nor certificate authorities.
fn hosts_met(text: &str) -> impl Iterator<Item = &str> {
    let lines = text
        .lines()
        .filter(|line| !line.starts_with(['#', '@', '|', ' ']));
    let names = lines
        .filter_map(|line| line.split_whitespace().next())
        .flat_map(|names| names.split(','));
    names
        .map(|name| {
            match name
                .strip_prefix('[')
                .and_then(|name| name.split_once("]:"))
            {
                Some((host, _)) => host,
                None => name,
            }
        })
        .filter(|name| !name.is_empty() && !name.contains(['*', '?', '!']))
}

/// Returns the hosts that a `Host` line of ssh's configuration names in full.
fn hosts_configured(text: &str) -> impl Iterator<Item = &str> {
    text.lines()
        .filter_map(|line| {
            let mut words = line.split_whitespace();
            let is_host = words.next()?.eq_ignore_ascii_case("host");
            is_host.then_some(words)
        })
        .flatten()
        .filter(|name| !name.contains(['*', '?', '!']))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hosts_are_those_that_ssh_names() {
        let met = "# comment\nalpha,192.0.2.1 ssh-ed25519 AAAA\n|1|c2FsdA=|aGFzaA= ssh-rsa A\n[beta]:2222 ssh-rsa A\n\
                   @cert-authority *.example.org ssh-rsa AAAA\n*.lan ssh-rsa AAAA\n";
        assert_eq!(
            hosts_met(met).collect::<Vec<_>>(),
            ["alpha", "192.0.2.1", "beta"]
        );
        let configuration =
            "Host gamma delta *.lan\n  HostName 192.0.2.2\nhost epsilon\nMatch host zeta\n";
        assert_eq!(
            hosts_configured(configuration).collect::<Vec<_>>(),
            ["gamma", "delta", "epsilon"]
        );
    }
}
