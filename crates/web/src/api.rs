//! The interface for programs: the documents of `--json`, lists of them, and its description.

use fullpipe_record::{Content, Document, document_schema};
use http::{HeaderValue, StatusCode, header};
use serde_json::{Value, json};

use crate::answer::{Answer, JSON, Refusal, whole_answer};
use crate::page::{MAX_LENGTH, PAGE_LENGTH};
use crate::runs::TestRequest;

/// Returns what a command would print with `--json`.
pub(crate) fn document_answer(content: Content) -> Answer {
    whole_answer(StatusCode::OK, JSON, Document::new(content).to_json())
}

/// Returns the refusal of a request of a program.
pub(crate) fn refusal_answer(refusal: &Refusal) -> Answer {
    let body = json!({"error": {"message": refusal.why}});
    whole_answer(refusal.status, JSON, body.to_string())
}

/// Returns a list with the address of the next part of it (RFC 8288).
pub(crate) fn with_next_link(mut answer: Answer, next: Option<String>) -> Answer {
    let link = next.and_then(|next| HeaderValue::from_str(&format!("<{next}>; rel=\"next\"")).ok());
    if let Some(link) = link {
        answer.headers_mut().insert(header::LINK, link);
    }
    answer
}

/// What the parameter `since` takes.
const SINCE: &str = "An age as 12h or 30d, a date, or a time (RFC 3339)";

/// Returns the description of the interface (`OpenAPI` 3.1).
pub(crate) fn openapi_description() -> Value {
    let text = |name: &str, what: &str| json!({"name": name, "in": "query", "description": what, "schema": {"type": "string"}});
    let listed = [
        text("host", "Name or address of the other end"),
        text("limit", "Kind of the limit, or kind/cause"),
        text("since", SINCE),
        text("kind", "Kind of the documents"),
        text("campaign", "Sweep or scenario"),
        text(
            "length",
            &format!("Most documents, up to {MAX_LENGTH}; {PAGE_LENGTH} if not stated"),
        ),
        text(
            "behind",
            "Where the list goes on; the field Link of an answer has it",
        ),
    ];
    let history = [
        text("host", "Name or address of the other end"),
        text("since", SINCE),
    ];
    let id = json!([{
        "name": "id", "in": "path", "required": true, "schema": {"type": "string"},
        "description": "The identifier of a document, or the end of it",
    }]);
    let started = json!({
        "required": true,
        "content": {JSON: {"schema": {
            "type": "object", "additionalProperties": false,
            "required": ["host", "reverse", "seconds", "streams"],
            "properties": {
                "host": {"type": "string", "description": "One that the archive or the operator names"},
                "reverse": {"type": "boolean", "description": "True if the other end sends"},
                "seconds": {"type": "integer", "minimum": 1, "maximum": TestRequest::MAX_SECONDS},
                "streams": {"type": "integer", "minimum": 1, "maximum": TestRequest::MAX_STREAMS},
            },
        }}},
    });
    let mut schema: Value = serde_json::from_str(&document_schema()).unwrap_or_default();
    // Its references are relative to itself.
    schema["$id"] = "document.schema.json".into();
    json!({
        "openapi": "3.1.0",
        "info": {"title": "fullpipe", "version": env!("CARGO_PKG_VERSION")},
        "security": [{"token": []}],
        "paths": {
            "/api/v1/documents": {"get": operation("Documents, newest first", &json!(listed))},
            "/api/v1/documents/{id}": {"get": operation("A document as it was written", &id)},
            "/api/v1/history": {"get": operation("The runs to a host over time", &json!(history))},
            "/api/v1/fleet": {"get": fleet_operation()},
            "/api/v1/runs": {
                "get": run_operation("The newest test: its state, what was asked for, and what there is of it"),
                "post": with_body(run_operation("Starts a test"), &started),
                "delete": run_operation("Ends the test that runs"),
            },
        },
        "components": {
            "securitySchemes": {"token": {"type": "http", "scheme": "bearer"}},
            "schemas": {"Document": schema},
        },
    })
}

fn operation(summary: &str, parameters: &Value) -> Value {
    operation_with(
        summary,
        parameters,
        &json!({"$ref": "#/components/schemas/Document"}),
    )
}

/// Returns the operation whose answer is the fleet.
fn fleet_operation() -> Value {
    let list = json!({"type": "array", "items": {"type": "object"}});
    let schema = json!({
        "type": "object", "required": ["at", "incidents", "hosts", "slots", "pairs"],
        "properties": {
            "at": {"type": "integer", "description": "Seconds since 1970"},
            "incidents": list, "hosts": list, "pairs": list,
            "slots": {"type": "object", "additionalProperties": {"type": "integer"}},
        },
    });
    let summary = "The hosts that measure each other, their pairs, and what changed of late";
    operation_with(summary, &json!([]), &schema)
}

/// Returns an operation whose answer is the state of the newest test.
fn run_operation(summary: &str) -> Value {
    let states = ["idle", "running", "kept", "failed"];
    let schema = json!({
        "type": "object", "required": ["state"],
        "properties": {"state": {"enum": states}, "id": {"type": "string"}, "why": {"type": "string"}},
    });
    operation_with(summary, &json!([]), &schema)
}

fn operation_with(summary: &str, parameters: &Value, schema: &Value) -> Value {
    let content = json!({JSON: {"schema": schema}});
    json!({
        "summary": summary,
        "parameters": parameters,
        "responses": {
            "200": {"description": "What was asked for", "content": content},
            "default": {"description": "Why there is no result, as error.message"},
        },
    })
}

fn with_body(mut operation: Value, body: &Value) -> Value {
    operation["requestBody"] = body.clone();
    operation
}
