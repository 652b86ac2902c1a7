//! Remedies with the commands that carry them out.

use fullpipe_diagnose::find_remedies;
use fullpipe_host::{change_commands, commands_for_unread_host, other_system_commands};
use fullpipe_record::{At, Commands, Evidence, Remedy, Verdict};

/// Returns the remedies for the limit that `verdict` names, best first, each with its commands,
/// those of one end with those of the other.
///
/// For an end whose settings the evidence does not have, the commands only raise what is too small,
/// how to undo them is not known, and those for other systems stand with them.
pub fn ranked_remedies(evidence: &Evidence, verdict: &Verdict) -> Vec<Remedy> {
    let mut remedies = find_remedies(evidence, verdict);
    for remedy in &mut remedies {
        remedy.commands = commands_at(remedy, evidence);
    }
    remedies
}

fn commands_at(remedy: &Remedy, evidence: &Evidence) -> Commands {
    let mut all = Commands::default();
    for (at, changes) in remedy.by_end() {
        let (settings, end) = match at {
            At::Receiver => (evidence.receiver.as_ref(), "receiver"),
            _ => (evidence.sender.as_ref(), "sender"),
        };
        let commands = match settings {
            Some(settings) => change_commands(&changes, settings),
            None => Commands {
                elsewhere: other_system_commands(&changes),
                ..commands_for_unread_host(&changes)
            },
        };
        all.elsewhere.extend(commands.elsewhere);
        let [apply, undo] = [commands.apply, commands.undo].map(|commands| {
            let there = commands.iter().map(|command| format!("{command}  # {end}"));
            there.collect::<Vec<_>>()
        });
        all.apply.extend(apply);
        all.undo.splice(0..0, undo);
    }
    all
}
