//! The pages about verdicts.

use fullpipe_record::LegalVerdict;
use fullpipe_report as report;

use crate::commands::Run;
use crate::failure::{Failure, USAGE};
use crate::terminal::Terminal;

/// The page about a verdict: what it means, what shows it, what to do.
#[derive(Debug, clap::Args)]
pub(crate) struct Arguments {
    /// Kind, cause or both: loss, policer, loss/policer
    ///
    /// Without it, all verdicts are listed.
    verdict: Option<String>,
}

impl Run for Arguments {
    fn run(&self, terminal: &Terminal) -> Result<(), Failure> {
        run(self, terminal)
    }
}

fn run(arguments: &Arguments, terminal: &Terminal) -> Result<(), Failure> {
    let found = arguments.verdict.as_deref().map_or_else(all, matching);
    match found.as_slice() {
        [] => {
            let wanted = arguments.verdict.as_deref().unwrap_or_default();
            Err(Failure::new(USAGE, format!("there is no verdict {wanted:?}; `fullpipe explain` lists them all")))
        }
        [one] => {
            terminal.result(one.page());
            Ok(())
        }
        several => {
            terminal.result(&several.iter().map(|verdict| lines(*verdict)).collect::<String>());
            Ok(())
        }
    }
}

/// Returns one verdict a page, in the order of the table.
fn all() -> Vec<LegalVerdict> {
    let mut verdicts = LegalVerdict::ALL.to_vec();
    verdicts.dedup_by_key(|verdict| verdict.name());
    verdicts
}

fn matching(wanted: &str) -> Vec<LegalVerdict> {
    let is_wanted = |verdict: &LegalVerdict| {
        let name = verdict.name();
        name == wanted || name.split('/').any(|part| part == wanted)
    };
    all().into_iter().filter(is_wanted).collect()
}

/// Returns the name and the first sentence of the page.
fn lines(verdict: LegalVerdict) -> String {
    let paragraph = verdict.page().split("\n\n").find(|text| !text.starts_with('#') && !text.starts_with("At: "));
    let paragraph = paragraph.unwrap_or_default().replace('\n', " ");
    let sentence = paragraph.split_inclusive(". ").next().unwrap_or_default().trim_end();
    format!("{}\n{}", verdict.name(), report::paragraph(sentence, 4))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_verdict_is_found_by_its_name_or_a_part_of_it() {
        let names = |wanted| matching(wanted).into_iter().map(LegalVerdict::name).collect::<Vec<_>>();
        assert_eq!(names("loss/policer"), ["loss/policer"]);
        assert_eq!(names("policer"), ["loss/policer"]);
        assert_eq!(names("cpu"), ["cpu/user", "cpu/system", "cpu/stolen"]);
        assert_eq!(names("storage"), ["receiver-application/storage", "sender-application/storage"]);
        assert!(names("loss/").is_empty() && names("").is_empty());
    }

    #[test]
    fn each_verdict_of_the_list_has_a_sentence() {
        for verdict in all() {
            let lines = lines(verdict);
            let is_indented = lines.lines().skip(1).all(|line| line.starts_with("    "));
            assert!(lines.ends_with(".\n") && is_indented && (2..=4).contains(&lines.lines().count()), "{lines}");
        }
    }
}
