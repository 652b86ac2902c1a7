use super::program::TransferProgram;

/// A participant of a comparison.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Participant {
    /// A program of the closed list.
    Known(TransferProgram),
    /// The user's own command, with its placeholders.
    Command(Vec<String>),
}

impl Participant {
    /// Returns the programs, and the command if it has words, as participants.
    pub(crate) fn from_programs(programs: &[TransferProgram], command: &[String]) -> Vec<Self> {
        let own = (!command.is_empty()).then(|| Self::Command(command.to_vec()));
        programs
            .iter()
            .copied()
            .map(Self::Known)
            .chain(own)
            .collect()
    }

    /// Returns the name of its row.
    pub(crate) const fn name(&self) -> &'static str {
        match self {
            Self::Known(program) => program.name(),
            Self::Command(_) => "command",
        }
    }
}

/// Returns the words of a command with its placeholders, as `{file}`, replaced.
pub(crate) fn fill_placeholders(words: &[String], placeholders: &[(&str, &str)]) -> Vec<String> {
    let mut words = words.to_vec();
    for (name, value) in placeholders {
        for word in &mut words {
            *word = word.replace(&format!("{{{name}}}"), value);
        }
    }
    words
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn placeholders_are_replaced_wherever_they_stand() {
        let words = ["nc", "{host}", "-x{file}", "{other}"].map(str::to_owned);
        let filled = fill_placeholders(&words, &[("host", "198.18.0.2"), ("file", "/a b")]);
        assert_eq!(filled, ["nc", "198.18.0.2", "-x/a b", "{other}"]);
    }

    #[test]
    fn a_command_is_a_participant_of_its_own() {
        let participants =
            Participant::from_programs(&[TransferProgram::Scp], &["true".to_owned()]);
        let names: Vec<&str> = participants.iter().map(Participant::name).collect();
        assert_eq!(names, ["scp", "command"]);
        assert_eq!(
            Participant::from_programs(&[TransferProgram::Scp], &[]).len(),
            1
        );
    }
}
