//! Programs on the hosts of a lab.

use crate::commands::prelude::*;
use crate::commands::scenario_file::load_scenario;
use fullpipe_experiment::start_lab;
use fullpipe_lab::{Backend, Host, JoinedLab, Lab, LabPlan, ProgramStdio, StandingLab};
use fullpipe_scenario::Scenario;

pub(super) fn enter_shell(
    scenario: &str,
    joins: bool,
    backend: Backend,
    host: Host,
    terminal: &Terminal,
) -> Result {
    let shell = std::env::var("SHELL").unwrap_or_else(|_| "/bin/sh".to_owned());
    let peer = host.peer_host();
    let (name, peer, address) = (host.name(), peer.name(), peer.address());
    let text = format!(
        "shell on the {name}; the {peer} has the address {address}; `exit` leaves the shell"
    );
    enter_host(scenario, joins, backend, host, &[shell], &|| {
        terminal.print_notice(&text);
    })
}

/// Prints name, path and age of each lab of this user that is up.
pub(super) fn list_standing(terminal: &Terminal) -> Result {
    let labs = StandingLab::find_all()?.into_iter();
    let rows: Vec<_> = labs.map(standing_lab_row).collect();
    if rows.is_empty() {
        terminal.print_progress("No lab is up; `fullpipe lab up` makes one.\n");
    }
    terminal.print_result(&report::name_list(&rows));
    Ok(())
}

/// Returns the name of a lab, and its path and age.
fn standing_lab_row(lab: StandingLab) -> (String, String) {
    let since = lab
        .since
        .and_then(|since| jiff::Timestamp::try_from(since).ok());
    let since = since.map_or_else(
        || "a time that is not known".to_owned(),
        |since| {
            let since = since.to_zoned(jiff::tz::TimeZone::system());
            since.strftime("%F %T").to_string()
        },
    );
    (lab.name, format!("{}, since {since}", lab.description))
}

/// Runs `command` on `host`. If `join` is true, the host belongs to the running lab `name`; or else
/// it belongs to a lab that is built from the scenario `name` and ends with the command. `ready` is
/// called once the host exists.
///
/// # Errors
/// Fails if there is no such lab or scenario, or if the lab or the program cannot be started. Fails
/// with the exit code of the program if the code is not 0.
pub(super) fn enter_host(
    name: &str,
    join: bool,
    backend: Backend,
    host: Host,
    command: &[String],
    ready: &dyn Fn(),
) -> Result {
    let [program, arguments @ ..] = command else {
        return Err(usage_failure("the program to run is missing"));
    };
    crate::commands::leave_interrupts_to_others()?;
    let code = if join {
        let lab = JoinedLab::join_named(name)?;
        ready();
        lab.run(host, program, arguments, &*crate::commands::end_flag()?)?
    } else {
        let lab = lab_of(&load_scenario(name)?, backend, host)?;
        ready();
        let end = lab.while_witnessed(|| {
            lab.start_program(host, program, arguments, ProgramStdio::Inherited)?
                .wait_for_end()
        })??;
        end.code
    };
    match u8::try_from(code) {
        Ok(0) => Ok(()),
        code => Err(Failure::already_printed(code.unwrap_or(FAILED))),
    }
}

/// Returns a new lab of `scenario`, which must have `host`, for programs that read from the
/// terminal.
fn lab_of(scenario: &Scenario, backend: Backend, host: Host) -> Result<Lab> {
    if scenario.stretches.is_none() && !Host::ALL.contains(&host) {
        let why = format!(
            "{} has no {}: its path has no stretches",
            scenario.name,
            host.name()
        );
        return Err(usage_failure(why));
    }
    let plan = LabPlan {
        interactive: true,
        ..lab_plan(scenario, backend)
    };
    Ok(start_lab(
        &plan,
        scenario.stretches.as_ref(),
        &scenario.relay,
    )?)
}

/// Returns the plan for a lab of `scenario` whose programs do not read from the terminal.
pub(crate) fn lab_plan(scenario: &Scenario, backend: Backend) -> LabPlan {
    LabPlan {
        path: scenario.path.clone(),
        seed: scenario.seed,
        sender: scenario.sender.clone(),
        receiver: scenario.receiver.clone(),
        backend,
        interactive: false,
    }
}
