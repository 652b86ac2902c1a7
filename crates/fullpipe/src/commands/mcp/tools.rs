//! The tools: which commands they run, and which of their arguments they have.

use std::fmt::Write as _;

use clap::{Arg, ArgAction, ValueHint};
use rmcp::model::{JsonObject, Tool, ToolAnnotations};
use serde_json::{Value, json};

use super::Permission;

/// Groups of flags that no tool has: they choose the form of the output, write files, run programs
/// of the user's choice, name keys, or share work with other machines.
const WITHHELD_GROUPS: [&str; 6] = [
    "Output", "Archive", "Far end", "Journal", "Security", "Shards",
];

/// Names of values that are files. An argument that has one is in a tool only if its list of files
/// says so.
const FILE_VALUES: [&str; 3] = ["FILE", "FOLDER", "OUT"];

/// A command as a tool.
pub(super) struct CommandTool {
    pub(super) name: &'static str,
    /// What it is for, where the help of the command says more than is offered.
    purpose: Option<&'static str>,
    pub(super) command: &'static [&'static str],
    pub(super) needs: &'static [Permission],
    offered: Offered,
    /// Arguments that name files to read.
    pub(super) files: &'static [&'static str],
    pub(super) reads_archive: bool,
}

/// Arguments of a command that its tool has, by their identifiers.
enum Offered {
    AllBut(&'static [&'static str]),
    Only(&'static [&'static str]),
}

const READING: CommandTool = CommandTool {
    name: "",
    purpose: None,
    command: &[],
    needs: &[],
    offered: Offered::AllBut(&[]),
    files: &[],
    reads_archive: false,
};

pub(super) const TOOLS: [CommandTool; 12] = [
    CommandTool {
        name: "calc",
        command: &["calc"],
        ..READING
    },
    CommandTool {
        name: "explain",
        command: &["explain"],
        ..READING
    },
    CommandTool {
        name: "trace",
        command: &["trace"],
        offered: Offered::AllBut(&["interface", "time"]),
        files: &["files", "sender_host", "receiver_host"],
        ..READING
    },
    CommandTool {
        name: "diagnose",
        purpose: Some(
            "The limit of transfers that are over, from files: listings of `ss -tinmoe`, results of `iperf3 -J` or \
             fullpipe, captures and counters. `explain` with the verdict `inputs` says what to collect.",
        ),
        command: &["diagnose"],
        offered: Offered::Only(&["from", "bandwidth"]),
        files: &["from"],
        ..READING
    },
    CommandTool {
        name: "simulate",
        command: &["simulate"],
        files: &["scenario", "from"],
        ..READING
    },
    CommandTool {
        name: "history",
        command: &["history"],
        reads_archive: true,
        ..READING
    },
    CommandTool {
        name: "report",
        command: &["report"],
        files: &["sources"],
        reads_archive: true,
        ..READING
    },
    CommandTool {
        name: "measure",
        command: &["measure"],
        needs: &[Permission::Measure],
        // A user's consent is not an assistant's to give.
        offered: Offered::AllBut(&["yes"]),
        ..READING
    },
    CommandTool {
        name: "diagnose_host",
        purpose: Some("Measures the path to a host, names the limit, and lists remedies."),
        command: &["diagnose"],
        needs: &[Permission::Measure],
        offered: Offered::AllBut(&["from", "pid", "connection", "command", "apply", "keep"]),
        ..READING
    },
    CommandTool {
        name: "try_remedy",
        purpose: Some(
            "Measures the path to a host, applies a remedy, measures again, and undoes the change.",
        ),
        command: &["diagnose"],
        needs: &[Permission::Measure, Permission::Apply],
        offered: Offered::AllBut(&["from", "pid", "connection", "command", "keep"]),
        ..READING
    },
    CommandTool {
        name: "host_apply",
        command: &["host", "apply"],
        needs: &[Permission::Apply],
        offered: Offered::AllBut(&["temporary", "persist"]),
        ..READING
    },
    CommandTool {
        name: "host_undo",
        command: &["host", "undo"],
        needs: &[Permission::Apply],
        offered: Offered::Only(&[]),
        ..READING
    },
];

impl CommandTool {
    /// Returns the command in the definition of all.
    ///
    /// # Panics
    /// If there is no such command, which a test would show.
    pub(super) fn definition<'c>(&self, all: &'c clap::Command) -> &'c clap::Command {
        self.command.iter().fold(all, |command, name| {
            let found = command.find_subcommand(name);
            found.expect("each tool runs a command that there is")
        })
    }

    /// Returns the arguments that the tool has.
    pub(super) fn arguments<'c>(
        &self,
        definition: &'c clap::Command,
    ) -> impl Iterator<Item = &'c Arg> {
        definition
            .get_arguments()
            .filter(|argument| self.offers(argument))
    }

    fn offers(&self, argument: &Arg) -> bool {
        let id = argument.get_id().as_str();
        let group = argument.get_help_heading().unwrap_or_default();
        let is_chosen = match self.offered {
            Offered::AllBut(others) => !others.contains(&id),
            Offered::Only(these) => these.contains(&id),
        };
        is_chosen
            && id != "help"
            && !argument.is_hide_set()
            && !WITHHELD_GROUPS.contains(&group)
            && (self.files.contains(&id) || !is_file(argument))
    }

    /// Returns the tool as clients see it.
    pub(super) fn describe(&self, all: &clap::Command) -> Tool {
        let definition = self.definition(all);
        let about = definition
            .get_long_about()
            .or_else(|| definition.get_about())
            .map(ToString::to_string);
        let purpose = self.purpose.map(str::to_owned).or(about);
        let reads_only = self.needs.is_empty();
        let annotations = ToolAnnotations::new()
            .read_only(reads_only)
            .destructive(self.needs.contains(&Permission::Apply))
            .open_world(!reads_only);
        let tool = Tool::new(
            self.name,
            purpose.unwrap_or_default(),
            self.input_schema(definition),
        )
        .with_annotations(annotations);
        if has_documents(definition) {
            tool.with_raw_output_schema(object(common_schema()).into())
        } else {
            tool
        }
    }

    fn input_schema(&self, definition: &clap::Command) -> JsonObject {
        let properties: JsonObject = self
            .arguments(definition)
            .map(|argument| (name_of(argument).to_owned(), self.property(argument)))
            .collect();
        let required: Vec<&str> = self
            .arguments(definition)
            .filter(|argument| argument.is_required_set())
            .map(name_of)
            .collect();
        object(json!({
            "type": "object",
            "properties": properties,
            "required": required,
            "additionalProperties": false,
        }))
    }

    fn property(&self, argument: &Arg) -> Value {
        let mut text = argument
            .get_long_help()
            .or_else(|| argument.get_help())
            .map(ToString::to_string)
            .unwrap_or_default();
        if !argument.get_action().takes_values() {
            return json!({"type": "boolean", "description": text});
        }
        for default in argument.get_default_values() {
            let _ = write!(text, " [default: {}]", default.to_string_lossy());
        }
        if self.files.contains(&argument.get_id().as_str()) {
            text += " (files below the named folders)";
        }
        if is_list(argument) {
            return json!({"type": "array", "items": {"type": "string"}, "description": text});
        }
        json!({"type": "string", "description": text})
    }
}

/// Returns true if the command prints a document with `--json`.
pub(super) fn has_documents(definition: &clap::Command) -> bool {
    definition
        .get_arguments()
        .any(|argument| argument.get_long() == Some("json"))
}

/// Returns the name of an argument of a tool: that of the flag, or what the command calls it.
pub(super) fn name_of(argument: &Arg) -> &str {
    argument
        .get_long()
        .unwrap_or_else(|| argument.get_id().as_str())
}

pub(super) fn is_list(argument: &Arg) -> bool {
    let count = argument.get_num_args();
    matches!(argument.get_action(), ArgAction::Append)
        || count.is_some_and(|count| count.max_values() > 1)
}

fn is_file(argument: &Arg) -> bool {
    let mut names = argument.get_value_names().unwrap_or_default().iter();
    argument.get_value_hint() != ValueHint::Unknown
        || names.any(|name| {
            FILE_VALUES
                .iter()
                .any(|file| name.split('|').any(|part| part == *file))
        })
}

/// Returns what is common to all documents, in place of the schema of all, which is larger than
/// everything else that a client reads of the tools.
fn common_schema() -> Value {
    json!({
        "type": "object",
        "description": format!(
            "The document that the command prints with --json; the resource {} has its schema. Long lists are thinned.",
            super::server::SCHEMA
        ),
        "properties": {
            "schema": {"type": "integer"},
            "kind": {"type": "string", "description": "The kind of result, and the key that has it"},
            "error": {"type": "object", "description": "Why the command failed"},
        },
        "required": ["schema", "kind"],
    })
}

fn object(value: Value) -> JsonObject {
    match value {
        Value::Object(object) => object,
        _ => JsonObject::new(),
    }
}
