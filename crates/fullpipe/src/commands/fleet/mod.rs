mod agent;
mod controller;

use std::fmt::Write as _;

use fullpipe_control::unix_seconds;
use fullpipe_fleet::{
    FleetAuthority, FleetLedger, FleetStatus, InviteCode, PairStatusKind, fleet_status,
};
use fullpipe_store::Store;
use jiff::Timestamp;

use self::agent::AgentArguments;
use self::controller::ControllerArguments;
use super::every::parse_interval;
use super::prelude::*;

/// Port of controllers.
const CONTROLLER_PORT: u16 = 5290;

/// Seconds for which an invitation is good.
const INVITATION: u64 = 900;

/// Setting of the archive with the authority.
const AUTHORITY: &str = "authority";

/// Many hosts that measure one another by one plan.
///
/// A controller plans who measures whom and when, so that no two tests meet at a host or at the
/// uplink of a site. On each host an agent asks it for its slots; the policy of the host has the
/// last word. docs/fleet.md has examples.
#[derive(Debug, Args)]
pub(crate) struct FleetArguments {
    #[command(subcommand)]
    action: FleetAction,
}

#[derive(Debug, Subcommand)]
enum FleetAction {
    Controller(Box<ControllerArguments>),
    Agent(Box<AgentArguments>),
    Invite(InviteArguments),
    Revoke(RevokeArguments),
    Status(StatusArguments),
}

/// Print codes with which hosts join
#[derive(Debug, Args)]
struct InviteArguments {
    /// Name of the host that the code is for [default: any]
    #[arg(long, value_name = "NAME")]
    host: Option<String>,
    /// Number of codes
    #[arg(long, default_value = "1", value_parser = integer_parser(1..=1000u32), value_name = "N")]
    count: u32,
    /// Hosts that join by one code
    #[arg(long, default_value = "1", value_parser = integer_parser(1..=10_000u32), value_name = "N")]
    uses: u32,
    /// Time for which a code is good
    #[arg(long, default_value = "900", value_parser = parse_interval, value_name = "TIME")]
    valid: Span,
    #[command(flatten)]
    place: PlaceArgument,
}

/// Send a host away: its certificate is good for nothing from now on
#[derive(Debug, Args)]
struct RevokeArguments {
    /// Name of the host
    host: String,
    #[command(flatten)]
    place: PlaceArgument,
}

/// Show incidents, hosts, pairs, and how slots ended
#[derive(Debug, Args)]
struct StatusArguments {
    #[command(flatten)]
    json: JsonArgument,
    #[command(flatten)]
    place: PlaceArgument,
}

impl RunCommand for FleetArguments {
    fn output(&self) -> OutputChoice<'_> {
        match &self.action {
            FleetAction::Status(status) => status.json.output_choice(),
            _ => (OutputFormat::Text, None),
        }
    }

    fn run(&self, terminal: &Terminal) -> Result {
        match &self.action {
            FleetAction::Controller(controller) => controller.run(terminal),
            FleetAction::Agent(agent) => agent.run(terminal),
            FleetAction::Invite(invite) => invite.run(terminal),
            FleetAction::Revoke(revoke) => revoke.run(terminal),
            FleetAction::Status(status) => status.run(terminal),
        }
    }
}

impl InviteArguments {
    fn run(&self, terminal: &Terminal) -> Result {
        let mut store = Store::open(&self.place.location()?)?;
        let authority = fleet_authority(&mut store)?;
        let host = self.host.clone().unwrap_or_default();
        for _ in 0..self.count {
            let (uses, valid) = (self.uses, self.valid.as_secs_f64() as u64);
            let code = new_invitation(&mut store, &authority, &host, uses, valid)?;
            terminal.print_result(&format!("{code}\n"));
        }
        Ok(())
    }
}

impl RevokeArguments {
    fn run(&self, terminal: &Terminal) -> Result {
        let mut store = Store::open(&self.place.location()?)?;
        let now = unix_seconds();
        if FleetLedger::new(&mut store).revoke_host(&self.host, now)? {
            terminal.print_progress(&format!("{} was sent away\n", self.host));
            return Ok(());
        }
        Err(usage_failure(format!(
            "the fleet has no host {:?}; `fullpipe fleet status` lists them",
            self.host
        )))
    }
}

impl StatusArguments {
    fn run(&self, terminal: &Terminal) -> Result {
        let mut store = Store::open(&self.place.location()?)?;
        let now = unix_seconds();
        let status = fleet_status(&mut FleetLedger::new(&mut store), now)?;
        if terminal.format == OutputFormat::Json {
            let json = serde_json::to_string_pretty(&status).map_err(cannot("print the fleet"))?;
            Terminal::print_line(&json);
        } else {
            terminal.print_result(&status_text(&status));
        }
        Ok(())
    }
}

/// Returns incidents, hosts, and how pairs and slots are, as text.
fn status_text(status: &FleetStatus) -> String {
    let mut text = String::new();
    let lasting = status
        .incidents
        .iter()
        .filter(|incident| incident.ended.is_none());
    for incident in lasting {
        let _ = writeln!(text, "{}", incident.sentence);
    }
    for host in &status.hosts {
        let seen = match (host.seen, host.is_silent) {
            (0, _) => "never seen".to_owned(),
            (seen, true) => format!(
                "silent for {}",
                Span::from_secs(status.at.saturating_sub(seen))
            ),
            (_, false) => format!("here, clock {:+} ms", host.offset_ms),
        };
        let slots = counts_text(
            host.slots
                .iter()
                .map(|(outcome, slots)| (outcome.as_str(), *slots)),
        );
        let _ = writeln!(text, "{:<20} {:<12} {seen}; {slots}", host.name, host.site);
    }
    let kinds = [
        (PairStatusKind::Changed, "changed"),
        (PairStatusKind::Unknown, "unknown"),
        (PairStatusKind::New, "new"),
        (PairStatusKind::Usual, "as usual"),
    ];
    let pairs = kinds.map(|(kind, name)| {
        let of_kind = status.pairs.iter().filter(|pair| pair.kind == kind);
        (name, of_kind.count() as u64)
    });
    let slots = status.slots.iter();
    let slots = counts_text(slots.map(|(outcome, slots)| (outcome.as_str(), *slots)));
    let _ = writeln!(
        text,
        "pairs: {}\nslots of a day: {slots}",
        counts_text(pairs)
    );
    text
}

/// Returns counts with their names, without those that are zero: `done 3, late 1`.
fn counts_text<'n>(counts: impl IntoIterator<Item = (&'n str, u64)>) -> String {
    let counts = counts.into_iter().filter(|(_, count)| *count > 0);
    let counts: Vec<String> = counts
        .map(|(name, count)| format!("{name} {count}"))
        .collect();
    if counts.is_empty() {
        return "none yet".to_owned();
    }
    counts.join(", ")
}

/// Returns the authority of the fleet, which is made if there is none.
fn fleet_authority(store: &mut Store) -> Result<FleetAuthority> {
    let mut ledger = FleetLedger::new(store);
    let kept = if let Some(kept) = ledger.setting(AUTHORITY)? {
        kept
    } else {
        let new = FleetAuthority::new(Timestamp::now()).map_err(cannot("begin a fleet"))?;
        let text = serde_json::to_string(&new).map_err(cannot("begin a fleet"))?;
        // Another controller may have made one meanwhile: that one counts.
        ledger.keep_setting(AUTHORITY, &text, false)?
    };
    serde_json::from_str(&kept).map_err(cannot("read the authority of the fleet"))
}

/// Returns a code with which so many hosts can join within so many seconds.
fn new_invitation(
    store: &mut Store,
    authority: &FleetAuthority,
    host: &str,
    uses: u32,
    valid: u64,
) -> Result<String> {
    let fingerprint = authority.fingerprint().map_err(cannot("invite a host"))?;
    let code = InviteCode::new(fingerprint).map_err(cannot("invite a host"))?;
    let now = unix_seconds();
    FleetLedger::new(store).keep_invite(&code.hash(), host, uses, now + valid)?;
    Ok(code.to_text())
}
