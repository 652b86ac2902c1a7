use fullpipe_record::{document_schema, event_schema};

use super::prelude::*;

/// Print the JSON schema of what --json and --json-lines print.
#[derive(Debug, Args)]
pub(crate) struct SchemaArguments {
    /// Print the schema of one line of --json-lines instead
    #[arg(long)]
    events: bool,
}

impl RunCommand for SchemaArguments {
    fn run(&self, terminal: &Terminal) -> Result {
        terminal.print_result(&if self.events {
            event_schema()
        } else {
            document_schema()
        });
        Ok(())
    }
}
