//! Guards the JSON schema: within one `SCHEMA_VERSION` it only grows. The snapshots are what the
//! program prints.

use fullpipe_record::{Document, EventLine};
use insta::{assert_snapshot, with_settings};
use schemars::{JsonSchema, schema_for};

#[test]
fn the_schema_changes_only_on_purpose() {
    assert_schema::<Document>("document");
}

#[test]
fn the_schema_of_events_changes_only_on_purpose() {
    assert_schema::<EventLine<'_>>("event");
}

fn assert_schema<T: JsonSchema>(name: &str) {
    let schema = serde_json::to_string_pretty(&schema_for!(T)).unwrap();
    with_settings!({ snapshot_path => "../schema", prepend_module_to_snapshot => false }, {
        assert_snapshot!(name, schema);
    });
}
