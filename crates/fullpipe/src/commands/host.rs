//! `fullpipe host`: this host's settings, and a way back.

mod journal_folder;
mod settings;
mod watchdog;

pub(crate) use self::journal_folder::JournalFolder;
use self::settings::{parse_rtt, parse_setting, parse_temporary_time};
use self::watchdog::{run_watchdog, start_watchdog};

use fullpipe_host::{
    ApplyOptions, HostSystem, SysctlTree, advise_changes, buffer_allowances, check_changes,
    host_report, inspect_host, preview_changes, setting_managers, usual_path, who_else,
};
use fullpipe_model::calc::{HostPair, calculate};
use fullpipe_record::{Change, HostAdvice, HostApplied, HostUndone, Inputs};

use super::far_end::{FarEndArguments, SCHEME, SshUrl};
use super::prelude::*;

const APPLY_HELP: &str = "\
Settings are written as they are called:
  tcp_rmem=64MiB, tcp_wmem=64MiB            the largest buffer
  net.ipv4.tcp_rmem=\"4096 131072 67108864\"  any sysctl of the network
  route:10.0.0.0/8:initcwnd=40              a route's metric; =none removes it
  qdisc:eth0=fq, qdisc:eth0=default         what queues a device's packets
  txqueuelen:eth0=1000                      how many may wait for it
  offload:eth0:rx-gro=on                    what a device does for the kernel
  mtu:eth0=9000                             its largest IP packet";

/// This host's settings: show, advise, apply with a way back, undo.
#[derive(Debug, Args)]
pub(crate) struct HostArguments {
    #[command(subcommand)]
    action: HostAction,
}

#[derive(Debug, Subcommand)]
enum HostAction {
    /// Show the settings that matter for bulk transfers
    Show {
        #[command(flatten)]
        path: MaybePath,
        #[command(flatten)]
        place: HostPlace,
        #[command(flatten)]
        json: JsonArgument,
    },
    /// List changes for a path, with the reason and the risk of each
    Advise {
        /// Round-trip time of the path: 173ms
        #[arg(long, short, help_heading = "Path", value_name = "TIME", value_parser = parse_rtt)]
        rtt: Span,
        /// Capacity of the path: 100Mbit/s, 1G
        #[arg(long, help_heading = "Path", value_name = "RATE", value_parser = parse_capacity)]
        bandwidth: BitRate,
        #[command(flatten)]
        parallel: StreamCount,
        #[command(flatten)]
        place: HostPlace,
        #[command(flatten)]
        json: JsonArgument,
    },
    /// Change settings, with a journal for the way back
    #[command(after_help = APPLY_HELP)]
    Apply(ApplyArguments),
    /// Keep the changes of `host apply --temporary`
    Confirm {
        #[command(flatten)]
        journal: JournalFolder,
        #[command(flatten)]
        place: HostPlace,
    },
    /// Undo the changes of `host apply`
    ///
    /// A setting that somebody else has changed since stays as it is.
    Undo {
        /// Remove settings that cannot be undone from the journal
        ///
        /// A journal that cannot be read is set aside under another name.
        #[arg(long)]
        forget: bool,
        #[command(flatten)]
        journal: JournalFolder,
        #[command(flatten)]
        place: HostPlace,
        #[command(flatten)]
        json: JsonArgument,
    },
    /// Wait, and undo temporary changes; `host apply --temporary` starts it
    #[command(hide = true)]
    Watch {
        #[arg(long)]
        id: String,
        #[arg(long, value_parser = parse_duration)]
        after: Span,
        /// End with the thread that starts it
        #[arg(long)]
        tied: bool,
        #[command(flatten)]
        journal: JournalFolder,
    },
}

/// Where the settings are.
#[derive(Debug, Args)]
struct HostPlace {
    /// Another host, by ssh: `ssh://HOST`
    ///
    /// fullpipe is brought there and does there what it would do here.
    #[arg(value_name = "HOST")]
    other: Option<SshUrl>,
    #[command(flatten)]
    way: FarEndArguments,
}

/// A change of `host apply`, or the host that is to have it.
#[derive(Debug, Clone)]
enum ChangeOrHost {
    Changes(Vec<Change>),
    Host(SshUrl),
}

impl ChangeOrHost {
    fn changes(&self) -> Vec<Change> {
        match self {
            Self::Changes(changes) => changes.clone(),
            Self::Host(_) => Vec::new(),
        }
    }

    const fn host(&self) -> Option<&SshUrl> {
        match self {
            Self::Changes(_) => None,
            Self::Host(host) => Some(host),
        }
    }
}

fn parse_change_or_host(text: &str) -> Result<ChangeOrHost, String> {
    if text.starts_with(SCHEME) {
        text.parse().map(ChangeOrHost::Host)
    } else {
        parse_setting(text).map(ChangeOrHost::Changes)
    }
}

/// The changes that are applied, and how.
#[derive(Debug, Args)]
struct ApplyArguments {
    /// Changes, and perhaps `ssh://HOST` for another host; with --rtt and --bandwidth, those of `host
    /// advise`
    #[arg(
        value_name = "SETTING=VALUE",
        value_parser = parse_change_or_host,
        required_unless_present = "rtt",
    )]
    settings: Vec<ChangeOrHost>,
    /// Print the changes as a diff, and change nothing
    #[arg(long)]
    dry_run: bool,
    /// Undo everything after so long, unless Enter or `host confirm` keeps it
    #[arg(long, value_name = "TIME", value_parser = parse_temporary_time, conflicts_with_all = ["dry_run", "persist"])]
    temporary: Option<Span>,
    /// Set the sysctls at each boot too, by a file in /etc/sysctl.d
    #[arg(long)]
    persist: bool,
    #[command(flatten)]
    path: MaybePath,
    // Behind the flags without a heading, which would have its own.
    #[command(flatten)]
    way: FarEndArguments,
    #[command(flatten)]
    journal: JournalFolder,
    #[command(flatten)]
    json: JsonArgument,
}

#[derive(Debug, Clone, Copy, Args)]
struct StreamCount {
    /// Parallel streams over the path
    #[arg(
        long,
        short = 'P',
        visible_alias = "parallel",
        help_heading = "Path",
        value_name = "N",
        default_value_t = 1,
        value_parser = integer_parser(1..=128_u16)
    )]
    streams: u16,
}

#[derive(Debug, Args)]
struct MaybePath {
    /// Round-trip time of the path: 173ms
    #[arg(long, short, help_heading = "Path", value_name = "TIME", value_parser = parse_rtt, requires = "bandwidth")]
    rtt: Option<Span>,
    /// Capacity of the path: 100Mbit/s, 1G
    #[arg(long, help_heading = "Path", value_name = "RATE", value_parser = parse_capacity, requires = "rtt")]
    bandwidth: Option<BitRate>,
    #[command(flatten)]
    parallel: StreamCount,
}

impl MaybePath {
    fn rtt_and_bandwidth(&self) -> Option<(Span, BitRate)> {
        self.rtt.zip(self.bandwidth)
    }
}

impl HostAction {
    /// Returns the other host that is meant, and the way there.
    fn other_host(&self) -> Option<(&SshUrl, &FarEndArguments)> {
        match self {
            Self::Show { place, .. }
            | Self::Advise { place, .. }
            | Self::Confirm { place, .. }
            | Self::Undo { place, .. } => Some((place.other.as_ref()?, &place.way)),
            Self::Apply(arguments) => {
                let host = arguments.settings.iter().find_map(ChangeOrHost::host);
                Some((host?, &arguments.way))
            }
            Self::Watch { .. } => None,
        }
    }
}

impl RunCommand for HostArguments {
    fn output(&self) -> OutputChoice<'_> {
        match self.action {
            HostAction::Show { json, .. }
            | HostAction::Advise { json, .. }
            | HostAction::Apply(ApplyArguments { json, .. })
            | HostAction::Undo { json, .. } => json.output_choice(),
            HostAction::Confirm { .. } | HostAction::Watch { .. } => (OutputFormat::Text, None),
        }
    }

    fn run(&self, terminal: &Terminal) -> Result {
        if let Some((host, way)) = self.action.other_host() {
            return way.run_there(&host.0);
        }
        match &self.action {
            HostAction::Show { path, .. } => show_settings(path, terminal),
            HostAction::Advise {
                rtt,
                bandwidth,
                parallel,
                ..
            } => {
                print_advice(advise_host(*rtt, *bandwidth, parallel.streams)?, terminal);
                Ok(())
            }
            HostAction::Apply(arguments) => arguments.apply_changes(terminal),
            HostAction::Confirm { journal, .. } => confirm_changes(journal, terminal),
            HostAction::Undo {
                forget, journal, ..
            } => check_undone(journal.open()?.undo_changes(*forget)?, terminal),
            HostAction::Watch {
                id,
                after,
                tied,
                journal,
            } => run_watchdog(id, *after, *tied, journal),
        }
    }
}

fn show_settings(path: &MaybePath, terminal: &Terminal) -> Result {
    let system = HostSystem::of_this_host();
    let mut shown = host_report(&system)?;
    if let Some((rtt, bandwidth)) = path.rtt_and_bandwidth() {
        let settings = inspect_host(&SysctlTree::of_this_host())?;
        shown.allows = buffer_allowances(
            &settings,
            &usual_path(rtt, bandwidth),
            path.parallel.streams,
        );
    }
    terminal.print_result(&report::host_settings(&shown, path.rtt_and_bandwidth()));
    terminal.print_content(Content::HostSettings {
        host_settings: Box::new(shown),
    });
    Ok(())
}

fn print_advice(advice: HostAdvice, terminal: &Terminal) {
    terminal.print_result(&report::host_advice(&advice));
    terminal.print_content(Content::HostAdvice {
        host_advice: Box::new(advice),
    });
}

/// Returns the settings with which this host fills the path, as far as it has the memory for them.
fn advise_host(rtt: Span, bandwidth: BitRate, streams: u16) -> Result<HostAdvice> {
    let shown = host_report(&HostSystem::of_this_host())?;
    let settings = inspect_host(&SysctlTree::of_this_host())?;
    let inputs = Inputs {
        bandwidth: Some(bandwidth),
        rtt: Some(rtt),
        streams: Some(streams),
        ..Inputs::default()
    };
    let hosts = HostPair {
        sender: settings.clone(),
        receiver: settings.clone(),
    };
    let improvement = calculate(&inputs, &hosts, &[])?.improvement;
    let changes = improvement.map_or_else(Vec::new, |improvement| improvement.changes);
    Ok(advise_changes(
        &shown,
        &settings,
        &usual_path(rtt, bandwidth),
        streams,
        &changes,
    ))
}

impl ApplyArguments {
    /// Returns the changes that the user states, or else those that are advised for the path, with
    /// notes on them.
    fn wanted_changes(&self) -> Result<(Vec<Change>, Vec<String>)> {
        let changes: Vec<Change> = self
            .settings
            .iter()
            .flat_map(ChangeOrHost::changes)
            .collect();
        if let Some((rtt, bandwidth)) = self.path.rtt_and_bandwidth() {
            if !changes.is_empty() {
                return Err(usage_failure(
                    "state changes, or the path for which they are advised, not both",
                ));
            }
            let advice = advise_host(rtt, bandwidth, self.path.parallel.streams)?;
            let changes = advice.changes.into_iter();
            return Ok((
                changes.map(|advised| advised.change).collect(),
                advice.notes,
            ));
        }
        let planned = preview_changes(&HostSystem::of_this_host(), &changes, false)?;
        let names: Vec<&str> = planned
            .iter()
            .map(|change| change.setting.as_str())
            .collect();
        Ok((changes, who_else(&setting_managers(Path::new("/")), &names)))
    }

    fn apply_changes(&self, terminal: &Terminal) -> Result {
        let (changes, notes) = self.wanted_changes()?;
        let system = HostSystem::of_this_host();
        let mut applied = HostApplied {
            changes: Vec::new(),
            dry_run: self.dry_run,
            temporary: self.temporary,
            notes,
        };
        if self.dry_run {
            applied.changes = preview_changes(&system, &changes, self.persist)?;
            stated_applied(applied, terminal);
            return Ok(());
        }
        // Before there is a folder for a journal that is not to be.
        check_changes(&system, &changes, self.persist)?;
        let watched = self.apply_watched(&changes, &mut applied)?;
        stated_applied(applied, terminal);
        match watched {
            Some((id, until)) if Terminal::can_ask() => {
                confirm_or_take_back(&id, until, &self.journal, terminal)
            }
            _ => Ok(()),
        }
    }

    /// Applies `changes` and notes them in `applied`. Returns the journal's name for temporary ones,
    /// which a watchdog undoes, and the end of their time.
    fn apply_watched(
        &self,
        changes: &[Change],
        applied: &mut HostApplied,
    ) -> Result<Option<(String, Instant)>> {
        let options = ApplyOptions {
            persist: self.persist,
            temporary: self.temporary,
        };
        let mut watched = None;
        // Its lock goes at the end, so that somebody may confirm.
        let journal_dir = self.journal.open()?;
        applied.changes = journal_dir.apply_changes(
            changes,
            options,
            &mut |id| {
                if let Some(time) = self.temporary {
                    start_watchdog(id, time, &self.journal)?;
                    watched = Some((id.to_owned(), Instant::now() + Duration::from(time)));
                }
                Ok(())
            },
            &mut |_| {},
        )?;
        Ok(watched)
    }
}

fn stated_applied(applied: HostApplied, terminal: &Terminal) {
    terminal.print_result(&report::host_applied(&applied));
    terminal.print_content(Content::HostApplied {
        host_applied: Box::new(applied),
    });
}

fn confirm_changes(journal: &JournalFolder, terminal: &Terminal) -> Result {
    journal.open()?.confirm_pending()?;
    terminal.print_result(
        "What was applied for a time stays; `fullpipe host undo` puts back what was.\n",
    );
    Ok(())
}

/// Fails if a setting was left as it is or a journal could not be read: then not all is as it was
/// before.
fn check_undone(undone: HostUndone, terminal: &Terminal) -> Result {
    terminal.print_result(&report::host_undone(&undone));
    let whole = undone.left.is_empty() && undone.unreadable.is_empty();
    terminal.print_content(Content::HostUndone {
        host_undone: Box::new(undone),
    });
    Failure::after_report(None, false, whole)
}

/// Waits for Enter. Undoes everything if the time ends without it, as the watchdog would.
fn confirm_or_take_back(
    id: &str,
    until: Instant,
    journal: &JournalFolder,
    terminal: &Terminal,
) -> Result {
    terminal.print_progress("Enter keeps it. ");
    if Terminal::enter_before(until) {
        // Another process may have confirmed or undone it meanwhile.
        journal.open()?.confirm_pending()?;
        terminal.print_result("It stays; `fullpipe host undo` puts back what was.\n");
        return Ok(());
    }
    terminal.print_progress("\n");
    let undone = journal.open()?.undo_unless_confirmed(id)?;
    check_undone(undone, terminal)
}

#[cfg(test)]
mod tests;
