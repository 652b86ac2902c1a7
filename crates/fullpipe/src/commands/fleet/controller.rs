use std::net::{IpAddr, SocketAddr};

use fullpipe_control::{WebIdentity, listen_tcp};
use fullpipe_fleet::plan::MeshSettings;
use fullpipe_fleet::{FleetAuthority, FleetLedger, WEBHOOK};
use fullpipe_store::Store;
use fullpipe_web::{ControllerOptions, serve_fleet, webhook_client};
use jiff::Timestamp;
use tokio::runtime;

use super::{CONTROLLER_PORT, INVITATION, fleet_authority, new_invitation};
use crate::commands::every::parse_interval;
use crate::commands::prelude::*;
use crate::commands::until_asked_to_end;

/// Plan the slots of a fleet, and keep what its hosts measure
///
/// Any number of controllers may share an archive in PostgreSQL: each plans, and what one has
/// planned the others do not. `fullpipe web --store` shows the fleet of that archive.
#[derive(Debug, Args)]
pub(super) struct ControllerArguments {
    /// Port to listen on
    #[arg(long, short, default_value_t = CONTROLLER_PORT, value_parser = integer_parser(0..=u16::MAX), help_heading = "Server")]
    port: u16,
    /// Address to listen on [default: all]
    #[arg(long, short = 'B', value_name = "ADDRESS", help_heading = "Server")]
    bind: Option<IpAddr>,
    /// Names and addresses by which hosts reach the controller [default: the name of this host]
    #[arg(
        long,
        value_delimiter = ',',
        value_name = "NAME,…", value_parser = host_name,
        help_heading = "Server"
    )]
    names: Vec<String>,
    /// Time in which each pair of hosts has its turn, in each direction [default: 24h]
    #[arg(long, value_parser = parse_interval, value_name = "TIME", help_heading = "Plan")]
    every: Option<Span>,
    /// Duration of a load [default: 5s]
    #[arg(long, short, value_parser = parse_duration, value_name = "SECONDS", help_heading = "Plan")]
    time: Option<Span>,
    /// Most bytes of a load [default: 16 GiB]
    #[arg(long, value_name = "BYTES", help_heading = "Plan")]
    max_bytes: Option<ByteCount>,
    /// Largest share of its time in which a host is busy [default: 10%]
    #[arg(long, value_name = "SHARE", help_heading = "Plan")]
    busy: Option<Ratio>,
    /// Tests that the uplink of a site carries at once [default: 1]
    #[arg(long, value_name = "N", value_parser = integer_parser(1..=64u16), help_heading = "Plan")]
    tests_of_site: Option<u16>,
    /// Where incidents are announced, as JSON: `https://HOST/PATH`
    #[arg(long, value_name = "URL", value_parser = webhook_url, help_heading = "Plan")]
    webhook: Option<String>,
    #[command(flatten)]
    place: PlaceArgument,
}

/// Checks the name or the address of a host.
fn host_name(text: &str) -> Result<String, String> {
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-.:".contains(&byte);
    if text.is_empty() || !text.bytes().all(plain) {
        return Err("it is no name and no address of a host".to_owned());
    }
    Ok(text.to_owned())
}

/// Checks the address to which incidents are announced; an empty one ends that.
fn webhook_url(text: &str) -> Result<String, String> {
    if !text.is_empty() {
        webhook_client(text)?;
    }
    Ok(text.to_owned())
}

impl ControllerArguments {
    pub(super) fn run(&self, terminal: &Terminal) -> Result {
        let archive = self.place.location()?;
        let mut store = Store::create(&archive)?;
        let authority = Arc::new(fleet_authority(&mut store)?);
        self.keep_plan(&mut store, terminal)?;
        let names = self.certified_names();
        let identity = controller_identity(&authority, &names)?;
        let code = new_invitation(&mut store, &authority, "", 1, INVITATION)?;
        // A connection to PostgreSQL has a runtime of its own, which cannot end within another.
        drop(store);
        let runtime = runtime::Builder::new_current_thread().enable_all().build();
        let runtime = runtime.map_err(cannot("serve a fleet"))?;
        let ended = runtime.block_on(async {
            let listener = listen_tcp(self.bind, self.port, |_| Ok(()))
                .map_err(|error| Failure::cannot_listen(&error, "--port"))?;
            let address = listener.local_addr().map_err(cannot("serve a fleet"))?;
            terminal.print_progress(&greeting(&archive.to_string(), &names[0], address, &code));
            let options = ControllerOptions {
                identity,
                archive: archive.clone(),
                authority: Arc::clone(&authority),
            };
            let log = |line: &str| terminal.print_progress(&format!("{line}\n"));
            until_asked_to_end(async {
                serve_fleet(vec![listener], options, &log)
                    .await
                    .map_err(cannot("serve a fleet"))
            })
            .await
        });
        // A question to a database that does not answer cannot be cancelled.
        runtime.shutdown_background();
        ended
    }

    fn certified_names(&self) -> Vec<String> {
        if !self.names.is_empty() {
            return self.names.clone();
        }
        let host = rustix::system::uname();
        let mut names = vec![host.nodename().to_string_lossy().into_owned()];
        names.extend(self.bind.map(|address| address.to_string()));
        names
    }

    /// Keeps the settings that are given, and says what the mesh takes.
    ///
    /// # Errors
    /// Fails if the mesh does not fit, with what would.
    fn keep_plan(&self, store: &mut Store, terminal: &Terminal) -> Result {
        let mut ledger = FleetLedger::new(store);
        let known = ledger.settings()?;
        let settings = MeshSettings {
            every: self.every.unwrap_or(known.every),
            duration: self.time.unwrap_or(known.duration),
            bytes: self.max_bytes.unwrap_or(known.bytes),
            busy: self.busy.map_or(known.busy, Ratio::get),
            tests_of_site: self.tests_of_site.unwrap_or(known.tests_of_site),
            ..known.clone()
        };
        let hosts = ledger.hosts()?;
        let hosts = hosts.iter().filter(|host| host.revoked.is_none()).count();
        let cost = settings
            .cost(hosts)
            .map_err(|error| usage_failure(error.to_string()))?;
        if settings != known {
            ledger.keep_settings(&settings)?;
        }
        if let Some(url) = &self.webhook {
            ledger.keep_setting(WEBHOOK, url, true)?;
        }
        if hosts > 1 {
            terminal.print_progress(&format!(
                "{hosts} hosts meet in {} of {}, {} of each {}; at most {} in that time\n",
                count_noun(cost.rounds, "round"),
                Span::from_secs(settings.slot_seconds(fullpipe_fleet::plan::SlotPurpose::Rotation)),
                cost.time,
                settings.every,
                cost.bytes
            ));
        }
        Ok(())
    }
}

/// Returns what a controller says when it is ready.
fn greeting(archive: &str, name: &str, address: SocketAddr, code: &str) -> String {
    let host = if name.contains(':') {
        format!("[{name}]")
    } else {
        name.to_owned()
    };
    let port = match address.port() {
        CONTROLLER_PORT => String::new(),
        port => format!(":{port}"),
    };
    format!(
        "the archive {archive}\nlistening on {address}\non a host, within 15 minutes (`fullpipe fleet invite` prints \
         more codes):\n\n    fullpipe fleet agent https://{host}{port} --invite {code}\n\n"
    )
}

fn controller_identity(authority: &FleetAuthority, names: &[String]) -> Result<WebIdentity> {
    let (chain, key) = authority
        .controller_identity(names.to_vec(), Timestamp::now())
        .map_err(|error| usage_failure(format!("the names of --names: {error}")))?;
    WebIdentity::knowing_clients(
        chain.as_bytes(),
        key.as_bytes(),
        authority.certificate.as_bytes(),
    )
    .map_err(cannot("use the certificate of the controller"))
}
