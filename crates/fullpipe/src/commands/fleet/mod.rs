mod agent;
mod controller;

use std::fmt::Write as _;

use fullpipe_fleet::{FleetAuthority, FleetLedger, InviteCode};
use fullpipe_store::Store;
use jiff::Timestamp;

use self::agent::AgentArguments;
use self::controller::ControllerArguments;
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

/// Print codes with which hosts join, each once
#[derive(Debug, Args)]
struct InviteArguments {
    /// Name of the host that the code is for [default: any]
    #[arg(long, value_name = "NAME")]
    host: Option<String>,
    /// Number of codes
    #[arg(long, default_value = "1", value_parser = integer_parser(1..=1000u32), value_name = "N")]
    count: u32,
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

/// Show hosts, and how slots ended
#[derive(Debug, Args)]
struct StatusArguments {
    #[command(flatten)]
    place: PlaceArgument,
}

impl RunCommand for FleetArguments {
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
            let code = new_invitation(&mut store, &authority, &host)?;
            terminal.print_progress(&format!("{code}\n"));
        }
        Ok(())
    }
}

impl RevokeArguments {
    fn run(&self, terminal: &Terminal) -> Result {
        let mut store = Store::open(&self.place.location()?)?;
        let now = Timestamp::now().as_second().max(0).cast_unsigned();
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
        let now = Timestamp::now().as_second().max(0).cast_unsigned();
        let mut ledger = FleetLedger::new(&mut store);
        let mut text = String::new();
        for host in ledger.hosts()? {
            let state = match (host.revoked, host.seen) {
                (Some(_), _) => "sent away".to_owned(),
                (None, 0) => "never seen".to_owned(),
                (None, seen) => {
                    let silence = Span::from_secs(now.saturating_sub(seen));
                    format!("seen {silence} ago, clock {:+} ms", host.offset_ms)
                }
            };
            let _ = writeln!(
                text,
                "{:<24} {:<16} {state}",
                host.mesh.name, host.mesh.site
            );
        }
        for (outcome, count) in ledger.outcome_counts(now.saturating_sub(86_400), now)? {
            let name = outcome.map_or("under way", |outcome| outcome.name());
            let _ = writeln!(text, "{name:<24} {}", count_noun(count, "slot"));
        }
        terminal.print_progress(&text);
        Ok(())
    }
}

/// Returns the authority of the fleet, which is made if there is none.
fn fleet_authority(store: &mut Store) -> Result<FleetAuthority> {
    let mut ledger = FleetLedger::new(store);
    let kept = match ledger.setting(AUTHORITY)? {
        Some(kept) => kept,
        None => {
            let new = FleetAuthority::new(Timestamp::now()).map_err(cannot("begin a fleet"))?;
            let text = serde_json::to_string(&new).map_err(cannot("begin a fleet"))?;
            // Another controller may have made one meanwhile: that one counts.
            ledger.keep_setting(AUTHORITY, &text, false)?
        }
    };
    serde_json::from_str(&kept).map_err(cannot("read the authority of the fleet"))
}

/// Returns a code with which one host can join.
fn new_invitation(store: &mut Store, authority: &FleetAuthority, host: &str) -> Result<String> {
    let fingerprint = authority.fingerprint().map_err(cannot("invite a host"))?;
    let code = InviteCode::new(fingerprint).map_err(cannot("invite a host"))?;
    let now = Timestamp::now().as_second().max(0).cast_unsigned();
    FleetLedger::new(store).keep_invite(&code.hash(), host, now + INVITATION)?;
    Ok(code.to_text())
}
