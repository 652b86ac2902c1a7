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
    let with_commands = |remedy: Remedy| Remedy {
        commands: commands_at(&remedy, evidence),
        ..remedy
    };
    find_remedies(evidence, verdict)
        .into_iter()
        .map(with_commands)
        .collect()
}

fn commands_at(remedy: &Remedy, evidence: &Evidence) -> Commands {
    let mut all = Commands::default();
    for (at, changes) in remedy.by_end() {
        let (settings, end) = match at {
            At::Receiver => (evidence.receiver.as_ref(), "receiver"),
            _ => (evidence.sender.as_ref(), "sender"),
        };
        let there = |command: String| format!("{command}  # {end}");
        let Commands {
            apply,
            undo,
            elsewhere,
        } = match settings {
            Some(settings) => change_commands(&changes, settings),
            None => Commands {
                elsewhere: other_system_commands(&changes),
                ..commands_for_unread_host(&changes)
            },
        };
        all.elsewhere.extend(elsewhere);
        all.apply.extend(apply.into_iter().map(there));
        all.undo.splice(0..0, undo.into_iter().map(there));
    }
    all
}
