//! The command line of a call, checked against what the tool has and what was permitted.

use std::ffi::OsString;

use clap::Arg;
use rmcp::model::JsonObject;
use serde_json::Value;

use super::tools::{CommandTool, has_documents, is_list, name_of};
use super::{Grants, Permission};
use crate::commands::load::ServerAddress;
use crate::commands::measure::stays_here;
use crate::commands::prelude::*;

/// Returns the words behind the name of this program.
///
/// # Errors
/// Returns the sentence for the client if the tool has no such argument, or it is not permitted.
pub(super) fn command_line(
    tool: &CommandTool,
    definition: &clap::Command,
    given: &JsonObject,
    grants: &Grants,
) -> Result<Vec<OsString>, String> {
    let mut words: Vec<OsString> = tool.command.iter().map(OsString::from).collect();
    if has_documents(definition) {
        words.push("--json".into());
    }
    for (name, value) in given {
        let argument = tool
            .arguments(definition)
            .find(|argument| name_of(argument) == name)
            .ok_or_else(|| format!("{} has no argument {name:?}", tool.name))?;
        let texts = texts_of(argument, value)?;
        if argument.is_positional() && tool.needs.contains(&Permission::Measure) {
            texts
                .iter()
                .try_for_each(|target| grants.check_target(target))?;
        }
        for text in texts {
            let text = if tool.files.contains(&argument.get_id().as_str()) {
                grants.file_below(&text)?
            } else {
                text.into()
            };
            words.push(word_of(argument, text)?);
        }
    }
    Ok(words)
}

/// Returns the values of an argument; that of a flag that is set is empty.
fn texts_of(argument: &Arg, value: &Value) -> Result<Vec<String>, String> {
    let takes_values = argument.get_action().takes_values();
    match value {
        Value::Null | Value::Bool(false) if !takes_values => Ok(Vec::new()),
        Value::Bool(true) if !takes_values => Ok(vec![String::new()]),
        Value::String(text) if takes_values => Ok(vec![text.clone()]),
        Value::Number(number) if takes_values => Ok(vec![number.to_string()]),
        Value::Array(values) if is_list(argument) => {
            let texts = values.iter().map(|value| match value {
                Value::Array(_) => Err(format!("{} has a list in a list", name_of(argument))),
                value => texts_of(argument, value),
            });
            Ok(texts.collect::<Result<Vec<_>, _>>()?.concat())
        }
        _ => Err(format!(
            "{} takes {}",
            name_of(argument),
            match (takes_values, is_list(argument)) {
                (false, _) => "true or false",
                (true, true) => "a list of texts",
                (true, false) => "a text",
            }
        )),
    }
}

/// Returns the word of one value. No value can be taken for a flag, nor name another host.
fn word_of(argument: &Arg, value: OsString) -> Result<OsString, String> {
    let Some(flag) = argument.get_long() else {
        let text = value.to_string_lossy();
        if text.starts_with('-') || text.contains("://") {
            let name = name_of(argument);
            return Err(format!(
                "{name} must be neither a flag nor a URL, as {text:?} is"
            ));
        }
        return Ok(value);
    };
    let mut word = OsString::from(format!("--{flag}"));
    if argument.get_action().takes_values() {
        word.push("=");
        word.push(value);
    }
    Ok(word)
}

impl Grants {
    /// Checks that all this is permitted.
    pub(super) fn check_permissions(&self, tool: &CommandTool) -> Result<(), String> {
        let lacks = tool.needs.iter().any(|need| !self.allowed.contains(need));
        if !lacks {
            return Ok(());
        }
        let names: Vec<&str> = tool.needs.iter().map(|need| need.name()).collect();
        Err(format!(
            "{} is not permitted: whoever starts the server permits it with `fullpipe mcp --allow {}`",
            tool.name,
            names.join(",")
        ))
    }

    fn check_target(&self, target: &str) -> Result<(), String> {
        let host = target.parse::<ServerAddress>()?.name;
        let is_named = self
            .targets
            .iter()
            .any(|named| named.eq_ignore_ascii_case(&host));
        if is_named || (self.targets.is_empty() && stays_here(&host)) {
            return Ok(());
        }
        Err(format!(
            "{host} may not be measured: whoever starts the server names hosts with `fullpipe mcp --targets HOST,…`"
        ))
    }

    /// Returns the file of this name below the folders, or the name alone, of a scenario or a
    /// document of the archive, if there is no such file.
    fn file_below(&self, name: &str) -> Result<OsString, String> {
        let found = self
            .folders
            .iter()
            .find_map(|folder| folder.join(name).canonicalize().ok());
        match found {
            Some(file)
                if file.is_file() && self.folders.iter().any(|folder| file.starts_with(folder)) =>
            {
                Ok(file.into())
            }
            None if !name.contains(['/', '.']) => Ok(name.into()),
            _ => Err(format!(
                "{name} is no file below {}",
                self.folders_in_words()
            )),
        }
    }

    fn folders_in_words(&self) -> String {
        if self.folders.is_empty() {
            return "a folder of the server: whoever starts it names them, `fullpipe mcp FOLDER`"
                .to_owned();
        }
        let names = self
            .folders
            .iter()
            .map(|folder| folder.display().to_string());
        names.collect::<Vec<_>>().join(" or ")
    }
}

impl Permission {
    fn name(self) -> &'static str {
        match self {
            Self::Measure => "measure",
            Self::Apply => "apply",
        }
    }
}
