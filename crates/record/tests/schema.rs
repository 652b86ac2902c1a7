//! Guards the JSON schema: within one `SCHEMA_VERSION` it only grows.

use fullpipe_record::{Document, EventLine};
use schemars::{JsonSchema, schema_for};

#[test]
fn the_schema_changes_only_on_purpose() {
    insta::assert_snapshot!(schema_of::<Document>());
}

#[test]
fn the_schema_of_events_changes_only_on_purpose() {
    insta::assert_snapshot!(schema_of::<EventLine<'_>>());
}

fn schema_of<T: JsonSchema>() -> String {
    serde_json::to_string_pretty(&schema_for!(T)).unwrap()
}
