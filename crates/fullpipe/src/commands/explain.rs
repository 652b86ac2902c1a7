//! The pages about verdicts.

use fullpipe_record::LegalVerdict;
use strsim::levenshtein;

use super::prelude::*;

/// The page on what can be handed over.
const INPUTS: &str = include_str!("../../../../docs/inputs.md");

/// The meaning of a verdict, what shows it, and what to do.
#[derive(Debug, Args)]
pub(crate) struct ExplainArguments {
    /// Kind, cause or both: loss, policer, loss/policer; or inputs
    ///
    /// Without it, all verdicts are listed. `inputs` prints what you can hand over to `diagnose
    /// --from`, and what to type.
    verdict: Option<String>,
}

impl RunCommand for ExplainArguments {
    fn run(&self, terminal: &Terminal) -> Result {
        if self.verdict.as_deref() == Some("inputs") {
            terminal.print_result(&report::markdown_text(INPUTS));
            return Ok(());
        }
        let found = self
            .verdict
            .as_deref()
            .map_or_else(all_verdicts, matching_verdicts);
        match found.as_slice() {
            [] => {
                let wanted = self.verdict.as_deref().unwrap_or_default();
                return Err(unknown_verdict(wanted));
            }
            [one] => {
                let page = one.documentation_page();
                terminal.print_result(&report::markdown_text(page));
            }
            several => {
                let rows = several
                    .iter()
                    .map(|verdict| (verdict.name().to_owned(), in_one_line(*verdict)));
                terminal.print_result(&report::name_list(&rows.collect::<Vec<_>>()));
            }
        }
        Ok(())
    }
}

fn unknown_verdict(wanted: &str) -> Failure {
    let near = nearest_name(wanted).map_text(|name| format!(", but there is {name}"));
    usage_failure(format!(
        "there is no verdict {wanted:?}{near}; `fullpipe explain` lists them all"
    ))
}

/// Returns one verdict a page, in the order of the table.
fn all_verdicts() -> Vec<LegalVerdict> {
    let mut verdicts = LegalVerdict::ALL.to_vec();
    verdicts.dedup_by_key(|verdict| verdict.name());
    verdicts
}

/// Returns the verdicts of this name, or of which this is a part, or else a word.
fn matching_verdicts(wanted: &str) -> Vec<LegalVerdict> {
    let wanted = wanted.to_lowercase();
    let (mut exact, mut of_word) = (all_verdicts(), all_verdicts());
    exact.retain(|verdict| {
        let name = verdict.name();
        name == wanted || name.split('/').any(|part| part == wanted)
    });
    of_word.retain(|verdict| verdict.name().split(['/', '-']).any(|word| word == wanted));
    if exact.is_empty() { of_word } else { exact }
}

/// Returns the kind, the cause or the name of a verdict that is spelled most like `wanted`, if any
/// is alike.
fn nearest_name(wanted: &str) -> Option<&'static str> {
    let wanted = wanted.to_lowercase();
    let names = all_verdicts().into_iter().map(LegalVerdict::name);
    let parts = names.clone().flat_map(|name| name.split('/')).chain(names);
    let (distance, nearest) = parts
        .map(|name| (levenshtein(&wanted, name), name))
        .min_by_key(|(distance, _)| *distance)?;
    (distance * 3 <= nearest.len()).then_some(nearest)
}

/// Returns the sentence on one verdict in the table of all verdicts.
fn in_one_line(verdict: LegalVerdict) -> String {
    const TABLE: &str = include_str!("../../../../docs/diagnosis/README.md");
    let start = format!("| [{}](", verdict.name());
    let row = TABLE
        .lines()
        .find(|line| line.starts_with(&start))
        .unwrap_or_default();
    row.trim_end_matches(" |")
        .rsplit(" | ")
        .next()
        .unwrap_or_default()
        .to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_verdict_is_found_by_its_name_or_a_part_of_it() {
        let names = |wanted| {
            matching_verdicts(wanted)
                .into_iter()
                .map(LegalVerdict::name)
                .collect::<Vec<_>>()
        };
        assert_eq!(names("loss/policer"), ["loss/policer"]);
        assert_eq!(names("policer"), ["loss/policer"]);
        assert_eq!(names("cpu"), ["cpu/user", "cpu/system", "cpu/stolen"]);
        assert_eq!(
            names("storage"),
            ["receiver-application/storage", "sender-application/storage"]
        );
        assert_eq!(names("Policer"), ["loss/policer"]);
        assert_eq!(names("rmem"), ["receive-window/tcp-rmem-max"]);
        assert!(names("loss/").is_empty() && names("").is_empty());
    }

    #[test]
    fn a_name_that_is_spelled_wrong_leads_to_the_nearest() {
        for (wanted, name) in [
            ("send-buffr", Some("send-buffer")),
            ("loss/polcer", Some("loss/policer")),
            ("capasity", Some("capacity")),
            ("nothing-like-it", None),
            ("", None),
        ] {
            assert_eq!(nearest_name(wanted), name, "{wanted}");
        }
    }

    #[test]
    fn each_verdict_of_the_list_has_a_line_of_its_own() {
        let lines: Vec<String> = all_verdicts().into_iter().map(in_one_line).collect();
        assert!(
            lines
                .iter()
                .all(|line| line.len() > 10 && !line.contains(['|', '['])),
            "{lines:?}"
        );
        let distinct: std::collections::BTreeSet<&String> = lines.iter().collect();
        assert_eq!(distinct.len(), lines.len(), "{lines:?}");
    }
}
