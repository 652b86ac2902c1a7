//! The server: what clients ask, and what they are answered.

use clap::CommandFactory;
use fullpipe_record::document_schema;
use fullpipe_store::ArchiveLocation;
use rmcp::model::{
    CallToolRequestParams, CallToolResponse, CallToolResult, ContentBlock, Implementation,
    JsonObject, ListResourcesResult, ListToolsResult, PaginatedRequestParams,
    ReadResourceRequestParams, ReadResourceResponse, ReadResourceResult, Resource,
    ResourceContents, ServerCapabilities, ServerConfig,
};
use rmcp::service::RequestContext;
use rmcp::{ErrorData, RoleServer, ServerHandler};
use serde_json::Value;
use tokio::sync::{OwnedSemaphorePermit, Semaphore, oneshot};

use super::Grants;
use super::arguments::command_line;
use super::call::{CallOutput, Confinement, ToolCall};
use super::tools::{CommandTool, TOOLS, has_documents};
use crate::cli::Cli;
use crate::commands::prelude::*;

/// Name of the schema of all documents.
pub(super) const SCHEMA: &str = "fullpipe://schema";

/// Calls that are made at the same time. One that does more than read is made alone.
pub(super) const MAX_CALLS: u32 = 4;

/// Longest time of a call that reads.
const READING_TIME: Duration = Duration::from_mins(2);

/// Longest time of a call that measures or changes settings.
const MEASURING_TIME: Duration = Duration::from_mins(10);

/// Most bytes of a document, and of a text: what an assistant can read of one answer.
const MAX_ANSWER: usize = 48 << 10;

/// Longest lists of a document that is too large, from the first that may make it fit.
const THINNED_LISTS: [usize; 6] = [64, 32, 16, 8, 4, 2];

const INSTRUCTIONS: &str = "\
fullpipe says why a transfer over a network is slow, and what to change. Quantities have units: 100Mbit/s, 1G, 173ms, \
64KiB, 0.01%. calc and simulate predict; diagnose and trace judge what was recorded; explain describes a verdict.";

/// Commands as tools, for one client.
pub(super) struct ToolServer {
    grants: Grants,
    commands: clap::Command,
    /// The archive of the user who starts the server, from wherever a tool runs.
    archive: Option<ArchiveLocation>,
    pub(super) slots: Arc<Semaphore>,
}

impl ToolServer {
    pub(super) fn new(grants: Grants) -> Self {
        let mut commands = Cli::command();
        commands.build();
        Self {
            grants,
            commands,
            archive: PlaceArgument::default().location().ok().map(from_anywhere),
            slots: Arc::new(Semaphore::new(MAX_CALLS as usize)),
        }
    }

    /// Returns the call of a tool.
    ///
    /// # Errors
    /// Returns the sentence for the client if it is not permitted.
    fn permitted_call(&self, tool: &CommandTool, given: &JsonObject) -> Result<ToolCall, String> {
        self.grants.check_permissions(tool)?;
        let words = command_line(tool, tool.definition(&self.commands), given, &self.grants)?;
        let is_reading = tool.needs.is_empty();
        let folder = self.grants.folders.first();
        Ok(ToolCall {
            words,
            confined: is_reading.then(|| self.confinement(tool)),
            folder: folder.cloned().unwrap_or_else(|| "/".into()),
            archive: match &self.archive {
                Some(ArchiveLocation::File(file)) => Some(file.clone()),
                _ => None,
            },
            deadline: if is_reading {
                READING_TIME
            } else {
                MEASURING_TIME
            },
        })
    }

    fn confinement(&self, tool: &CommandTool) -> Confinement {
        let mut confined = Confinement {
            readable: self.grants.folders.clone(),
            writable: Vec::new(),
        };
        match &self.archive {
            _ if !tool.reads_archive => {}
            // SQLite has files beside it, to read it too.
            Some(ArchiveLocation::File(file)) => {
                confined.writable.extend(file.parent().map(Path::to_owned));
            }
            // Its host has a name.
            Some(ArchiveLocation::Postgresql(_)) => {
                confined
                    .readable
                    .extend(["/etc", "/run"].map(PathBuf::from));
            }
            None => {}
        }
        confined
    }

    /// Makes a call once fewer than the most are under way.
    async fn answer(
        &self,
        tool: &CommandTool,
        given: &JsonObject,
        context: &RequestContext<RoleServer>,
    ) -> Result<CallOutput, String> {
        let call = self.permitted_call(tool, given)?;
        let count = if tool.needs.is_empty() { 1 } else { MAX_CALLS };
        let slots = Arc::clone(&self.slots).acquire_many_owned(count);
        let slot = tokio::select! {
            slot = slots => slot.map_err(|error| error.to_string())?,
            () = context.ct.cancelled() => return Err("the client ended it".to_owned()),
        };
        run_aside(call, slot, context).await
    }
}

/// Returns the place with the whole name of a file, which leads by no link to another folder.
fn from_anywhere(place: ArchiveLocation) -> ArchiveLocation {
    match &place {
        ArchiveLocation::File(file) => file
            .canonicalize()
            .or_else(|_| std::path::absolute(file))
            .map_or(place, ArchiveLocation::File),
        ArchiveLocation::Postgresql(_) => place,
    }
}

/// Makes a call in a thread of its own, which stays confined.
async fn run_aside(
    call: ToolCall,
    slot: OwnedSemaphorePermit,
    context: &RequestContext<RoleServer>,
) -> Result<CallOutput, String> {
    let (sender, result) = oneshot::channel();
    let cancelled = context.ct.clone();
    let started = std::thread::Builder::new().spawn(move || {
        let output = call.run(|| !cancelled.is_cancelled());
        drop(slot);
        // A client that went away reads nothing.
        let _ = sender.send(output);
    });
    started.map_err(|error| format!("cannot start a thread: {error}"))?;
    result.await.map_err(|error| error.to_string())?
}

impl ServerHandler for ToolServer {
    fn get_info(&self) -> ServerConfig {
        let capabilities = ServerCapabilities::builder()
            .enable_tools()
            .enable_resources()
            .build();
        ServerConfig::new(capabilities)
            .with_server_info(Implementation::new("fullpipe", env!("CARGO_PKG_VERSION")))
            .with_instructions(INSTRUCTIONS)
    }

    async fn list_tools(
        &self,
        _: Option<PaginatedRequestParams>,
        _: RequestContext<RoleServer>,
    ) -> Result<ListToolsResult, ErrorData> {
        let permitted = TOOLS
            .iter()
            .filter(|tool| self.grants.check_permissions(tool).is_ok());
        let tools = permitted.map(|tool| tool.describe(&self.commands));
        Ok(ListToolsResult::with_all_items(tools.collect()))
    }

    async fn call_tool(
        &self,
        request: CallToolRequestParams,
        context: RequestContext<RoleServer>,
    ) -> Result<CallToolResponse, ErrorData> {
        let tool = TOOLS
            .iter()
            .find(|tool| tool.name == request.name)
            .ok_or_else(|| ErrorData::invalid_params("there is no such tool", None))?;
        let given = request.arguments.unwrap_or_default();
        let result = match self.answer(tool, &given, &context).await {
            Ok(output) => tool_result(&output, has_documents(tool.definition(&self.commands))),
            Err(sentence) => CallToolResult::error(vec![ContentBlock::text(sentence)]),
        };
        Ok(result.into())
    }

    async fn list_resources(
        &self,
        _: Option<PaginatedRequestParams>,
        _: RequestContext<RoleServer>,
    ) -> Result<ListResourcesResult, ErrorData> {
        let schema = Resource::new(SCHEMA, "schema")
            .with_description("JSON schema of the documents that tools return")
            .with_mime_type("application/schema+json");
        Ok(ListResourcesResult::with_all_items(vec![schema]))
    }

    async fn read_resource(
        &self,
        request: ReadResourceRequestParams,
        _: RequestContext<RoleServer>,
    ) -> Result<ReadResourceResponse, ErrorData> {
        if request.uri != SCHEMA {
            return Err(ErrorData::resource_not_found(
                "there is only the schema",
                None,
            ));
        }
        let text = ResourceContents::text(document_schema(), SCHEMA);
        let contents = vec![text.with_mime_type("application/schema+json")];
        Ok(ReadResourceResult::new(contents).into())
    }
}

/// Returns what a program printed: a document and, on standard error, its text; or a text alone.
fn tool_result(printed: &CallOutput, has_document: bool) -> CallToolResult {
    let text = match (has_document, printed.succeeded) {
        (false, true) => &printed.output,
        _ => &printed.errors,
    };
    let mut content = vec![ContentBlock::text(shortened_text(text))];
    let document = serde_json::from_slice(&printed.output).ok();
    let document = document.filter(|_| has_document).map(thinned_document);
    let (document, note) = document.unzip();
    content.extend(note.flatten().map(ContentBlock::text));
    let mut result = CallToolResult::success(content);
    result.is_error = Some(!printed.succeeded);
    result.structured_content = document;
    result
}

fn shortened_text(text: &[u8]) -> String {
    if text.len() <= MAX_ANSWER {
        return String::from_utf8_lossy(text).into_owned();
    }
    let begin = String::from_utf8_lossy(&text[..MAX_ANSWER]);
    format!("{begin}\n… {} bytes more", text.len() - MAX_ANSWER)
}

/// Returns a document with lists so short that it fits an answer, and what to say of that. One that
/// does not fit at all keeps its kind and its error.
fn thinned_document(document: Value) -> (Value, Option<String>) {
    if document.to_string().len() <= MAX_ANSWER {
        return (document, None);
    }
    for longest in THINNED_LISTS {
        let thinned = with_lists_of(&document, longest);
        if thinned.to_string().len() <= MAX_ANSWER {
            let note = format!(
                "Lists of the document have at most {longest} of their elements here; the command prints all with \
                 --json."
            );
            return (thinned, Some(note));
        }
    }
    let keys = ["schema", "kind", "error"].map(|key| (key.to_owned(), document[key].clone()));
    let head = keys.into_iter().filter(|(_, value)| !value.is_null());
    let note = "The document is too large for an answer; the command prints it with --json.";
    (Value::Object(head.collect()), Some(note.to_owned()))
}

/// Returns a value whose lists have at most so many of their elements, evenly spaced.
fn with_lists_of(value: &Value, longest: usize) -> Value {
    match value {
        Value::Array(all) => {
            let count = all.len().min(longest);
            let chosen = (0..count).map(|index| &all[index * all.len() / count]);
            chosen.map(|one| with_lists_of(one, longest)).collect()
        }
        Value::Object(all) => {
            let thinned = all
                .iter()
                .map(|(key, one)| (key.clone(), with_lists_of(one, longest)));
            Value::Object(thinned.collect())
        }
        other => other.clone(),
    }
}
