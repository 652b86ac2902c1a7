//! `fullpipe mcp`: commands as tools of the Model Context Protocol.

mod arguments;
mod call;
mod server;
mod tools;

use rmcp::transport::async_rw::AsyncRwTransport;
use rmcp::{ServiceExt, transport};
use tokio::runtime;

use self::server::ToolServer;
use super::prelude::*;
use super::until_asked_to_end;

/// Longest message of a client: more than any call needs.
const MAX_MESSAGE: usize = 1 << 20;

/// Commands as tools for assistants (Model Context Protocol)
///
/// An assistant's program starts it, and speaks with it over standard input and output. Its tools
/// are calc, explain, trace, diagnose of files, simulate, history and report, which send and change
/// nothing. They read files below the named folders alone, which the kernel ensures (Landlock,
/// Linux 5.13). docs/mcp.md has the configuration of clients.
#[derive(Debug, Args)]
pub(crate) struct McpArguments {
    /// Folders whose files the tools may read; without one, none
    #[arg(value_name = "FOLDER")]
    folders: Vec<PathBuf>,
    /// Let tools do more than read
    ///
    /// `measure` adds tools that send load to the hosts of --targets, `apply` those that change
    /// settings of this host, with a journal for the way back. Both together add one that tries a
    /// remedy.
    #[arg(long, value_delimiter = ',', value_name = "WHAT")]
    allow: Vec<Permission>,
    /// Hosts that may be measured [default: this one, over loopback]
    #[arg(long, value_delimiter = ',', requires = "allow", value_name = "HOST,…")]
    targets: Vec<String>,
}

/// What a tool does besides reading.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
enum Permission {
    /// Sends load.
    Measure,
    /// Changes settings.
    Apply,
}

impl RunCommand for McpArguments {
    fn run(&self, _: &Terminal) -> Result {
        let folders = self.folders.iter().map(|folder| whole_path(folder));
        let server = ToolServer::new(Grants {
            folders: folders.collect::<Result<_>>()?,
            allowed: self.allow.clone(),
            targets: self.targets.clone(),
        });
        let runtime = runtime::Builder::new_current_thread().enable_all().build();
        let runtime = runtime.map_err(cannot("serve tools"))?;
        let ended = runtime.block_on(serve(server));
        // A read of standard input cannot be cancelled.
        runtime.shutdown_background();
        ended
    }
}

/// What whoever starts the server permits.
struct Grants {
    /// Folders as the kernel has them, without links.
    folders: Vec<PathBuf>,
    allowed: Vec<Permission>,
    targets: Vec<String>,
}

fn whole_path(folder: &Path) -> Result<PathBuf> {
    let found = folder.canonicalize().map_err(|error| {
        usage_failure(format!(
            "cannot read the folder {}: {error}",
            folder.display()
        ))
    })?;
    if found.is_dir() {
        Ok(found)
    } else {
        Err(usage_failure(format!(
            "{} is no folder; name the one that it is in",
            folder.display()
        )))
    }
}

/// Serves one client until it goes, or until the user ends the program, and then waits for the
/// programs of calls, which end with their client.
async fn serve(server: ToolServer) -> Result {
    let slots = Arc::clone(&server.slots);
    let served = until_asked_to_end(Box::pin(serve_client(server))).await;
    let all_ended = slots.acquire_many(server::MAX_CALLS);
    let _ = tokio::time::timeout(call::GRACE * 2, all_ended).await;
    served
}

async fn serve_client(server: ToolServer) -> Result {
    let (input, output) = transport::stdio();
    let messages = AsyncRwTransport::new_server(input, output).with_max_line_length(MAX_MESSAGE);
    let Ok(running) = server.serve(messages).await else {
        return Err(run_failure(
            "no client of the Model Context Protocol has introduced itself on standard input; docs/mcp.md has the \
             configuration of clients",
        ));
    };
    running
        .waiting()
        .await
        .map(drop)
        .map_err(cannot("serve tools"))
}
