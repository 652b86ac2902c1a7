use fullpipe_control::{WebClientTls, unix_seconds};
use fullpipe_fleet::plan::AgentPolicy;
use fullpipe_fleet::service::{
    AgentFolder, AgentIdentity, AgentOptions, HttpsClient, JoinRequest, JoinedHost, run_agent,
};
use fullpipe_fleet::{Agent, AgentDisk, HostKey, InviteCode};
use fullpipe_store::{ArchiveLocation, Store};
use tokio::runtime;

use super::CONTROLLER_PORT;
use crate::commands::prelude::*;
use crate::commands::state::state_folder;
use crate::commands::until_asked_to_end;

/// Variable of systemd that names the folder of a unit's state.
const STATE_DIRECTORY: &str = "STATE_DIRECTORY";

/// Run the tests that the plan has for this host
///
/// The first start needs --invite; later ones need no argument, and join no other fleet. Keeps slots and results until the
/// controller has them. Runs tests by `fullpipe measure`, and serves those of others by
/// `fullpipe serve`, which takes the tickets of this agent alone.
#[derive(Debug, Args)]
pub(super) struct AgentArguments {
    /// The controller: `https://HOST` or `https://HOST:PORT`
    url: Option<String>,
    /// Code of an invitation, with which this host joins
    #[arg(
        long,
        value_name = "CODE",
        requires = "url",
        allow_hyphen_values = true,
        help_heading = "Join"
    )]
    invite: Option<String>,
    /// Name of this host in the fleet [default: its own]
    #[arg(long, value_name = "NAME", requires = "invite", help_heading = "Join")]
    name: Option<String>,
    /// Site whose uplink this host shares [default: the name of the host]
    #[arg(long, value_name = "NAME", requires = "invite", help_heading = "Join")]
    site: Option<String>,
    /// Address and port at which other hosts reach this one; without it, it measures those that
    /// can be reached
    #[arg(
        long,
        value_name = "HOST:PORT",
        requires = "invite",
        help_heading = "Join"
    )]
    reach: Option<String>,
    /// File with what this host permits, in TOML: peers, networks, hours, `bytes_per_day`, bytes, duration,
    /// streams, serves
    #[arg(long, value_name = "FILE", help_heading = "Agent")]
    policy: Option<PathBuf>,
    /// Port on which this host serves tests, if others reach it [default: that of --reach]
    #[arg(long, short, value_parser = integer_parser(1..=u16::MAX), help_heading = "Agent")]
    port: Option<u16>,
    /// Folder with the identity of this host, its slots and results [default: that of this user]
    #[arg(long, value_name = "FOLDER", help_heading = "Agent")]
    state: Option<PathBuf>,
}

impl AgentArguments {
    pub(super) fn run(&self, terminal: &Terminal) -> Result {
        let policy = self.policy()?;
        let folder =
            AgentFolder::new(self.folder()?).map_err(cannot("make the folder of the agent"))?;
        let runtime = runtime::Builder::new_current_thread().enable_all().build();
        let runtime = runtime.map_err(cannot("run the agent"))?;
        runtime.block_on(until_asked_to_end(async {
            let identity = self.identity(&folder, terminal).await?;
            let archive = Store::create(&ArchiveLocation::File(folder.archive()))?;
            let agent = Agent::restored(&identity.host, policy.clone(), AgentDisk::new(archive))?;
            let options = AgentOptions {
                serves: self.serve_words(&identity, policy.serves),
                folder: folder.clone(),
                policy,
                identity,
                controller_port: CONTROLLER_PORT,
                program: std::env::current_exe().map_err(cannot("find fullpipe"))?,
            };
            let log = |line: &str| terminal.print_progress(&format!("{line}\n"));
            run_agent(agent, options, &log)
                .await
                .map_err(|error| run_failure(error.to_string()))
        }))
    }

    fn policy(&self) -> Result<AgentPolicy> {
        let Some(file) = &self.policy else {
            return Ok(AgentPolicy::default());
        };
        let wrong = |why: &dyn std::fmt::Display| {
            usage_failure(format!("cannot use the policy {}: {why}", file.display()))
        };
        let text = std::fs::read_to_string(file).map_err(|error| wrong(&error))?;
        AgentPolicy::from_toml(&text).map_err(|why| wrong(&why))
    }

    fn folder(&self) -> Result<PathBuf> {
        let named = self.state.clone();
        let named = named.or_else(|| std::env::var_os(STATE_DIRECTORY).map(PathBuf::from));
        let folder = named.or_else(|| Some(state_folder()?.join("fleet")));
        let folder = folder.ok_or_else(|| {
            usage_failure("this user has no home for an agent; --state names a folder")
        })?;
        std::path::absolute(folder).map_err(cannot("find the folder of the agent"))
    }

    /// Returns who this host is; it joins the fleet if it has not yet.
    async fn identity(&self, folder: &AgentFolder, terminal: &Terminal) -> Result<AgentIdentity> {
        let known = folder
            .identity()
            .map_err(cannot("read the identity of this host"))?;
        if let Some(known) = known {
            let controller = self.url.clone().unwrap_or(known.controller.clone());
            return Ok(AgentIdentity {
                controller,
                ..known
            });
        }
        let (Some(url), Some(code)) = (&self.url, &self.invite) else {
            return Err(usage_failure(
                "this host has not joined a fleet: `fullpipe fleet agent https://CONTROLLER --invite CODE`",
            ));
        };
        let joined = self.join(url, code).await?;
        folder
            .keep_identity(&joined)
            .map_err(cannot("keep the identity of this host"))?;
        terminal.print_progress(&format!("{} has joined the fleet\n", joined.host));
        Ok(joined)
    }

    async fn join(&self, url: &str, code: &str) -> Result<AgentIdentity> {
        let code = InviteCode::from_text(code)
            .ok_or_else(|| usage_failure("this is no code of an invitation"))?;
        let tls = WebClientTls::pinning_authority(code.authority).map_err(cannot("join"))?;
        let client = HttpsClient::from_url(url, CONTROLLER_PORT, tls).map_err(usage_failure)?;
        let key = HostKey::new().map_err(cannot("join"))?;
        let own = rustix::system::uname()
            .nodename()
            .to_string_lossy()
            .into_owned();
        let host = self.name.clone().unwrap_or(own);
        let request = JoinRequest {
            code: code.hash(),
            site: self.site.clone().unwrap_or_else(|| host.clone()),
            host: host.clone(),
            reach: self.reach.clone(),
            public_key: key.public_key().to_vec(),
        };
        let certificates: JoinedHost = client
            .ask("POST", "/v1/join", &request, Duration::ZERO)
            .await
            .map_err(|error| run_failure(error.to_string()))?;
        Ok(AgentIdentity {
            controller: url.to_owned(),
            host,
            reach: self.reach.clone(),
            certificates,
            key: key.to_pem(),
            signed: unix_seconds(),
        })
    }

    /// Returns the words with which this host serves tests; `None` if nobody reaches it.
    fn serve_words(&self, identity: &AgentIdentity, serves: bool) -> Option<Vec<String>> {
        let reach = identity.reach.as_ref().filter(|_| serves)?;
        let (_, port) = reach.rsplit_once(':')?;
        let port = self
            .port
            .map_or_else(|| port.to_owned(), |port| port.to_string());
        Some(vec![format!("--port={port}"), "--quiet".to_owned()])
    }
}
