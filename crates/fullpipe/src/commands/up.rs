//! `fullpipe lab up`: a path that stands until its user leaves.

use std::fmt;

use fullpipe_experiment::{LabTarget, keep_cross_traffic, start_lab};
use fullpipe_lab::{Backend, Host, Lab, LabError, PathMeter};
use fullpipe_record::event::{CrossTrafficLoad, LabUp};
use fullpipe_record::{DirectionStatus, Path, PathChange, PathDirection, PathStatus};
use fullpipe_scenario::{CrossTraffic, LoadStart, Scenario};

use super::lab::{check_congestion_controls, lab_plan};
use super::prelude::*;
use crate::terminal::KeyReader;

/// Longest time until an interrupt is seen.
const POLL_INTERVAL: Duration = Duration::from_millis(100);

/// Settings of a running lab, without its path.
pub(super) struct LabSettings<'s> {
    /// Name with which other programs of this user join it.
    pub(super) name: &'s str,
    pub(super) backend: Backend,
    /// Interval of the status lines of the path.
    pub(super) interval: Span,
    /// True to leave out the cross traffic of the scenario.
    pub(super) no_cross_traffic: bool,
}

/// Builds the lab of `scenario`, runs the cross traffic of the first step that has any, and prints
/// the state of the path until `q` is typed. Other keys change the path.
pub(super) fn run_standing_lab(
    scenario: &Scenario,
    standing: &LabSettings<'_>,
    terminal: &Terminal,
) -> Result {
    let cross_traffic: &[CrossTraffic] = if standing.no_cross_traffic {
        &[]
    } else {
        cross_traffic(scenario)
    };
    check_congestion_controls(scenario.controls.iter().filter(|control| {
        let mut requests = cross_traffic.iter().map(|load| &load.request);
        requests.any(|request| request.congestion.as_ref() == Some(&control.name))
    }))?;
    let flag = super::interrupt_flag()?;
    let plan = lab_plan(scenario, standing.backend);
    let lab = start_lab(&plan, scenario.stretches.as_ref(), &scenario.relay)?;
    let _entrance = lab.open_entrance(standing.name, &describe_path(&scenario.path))?;
    print_introduction(scenario, standing, cross_traffic, terminal);
    lab.while_witnessed(|| {
        keep_cross_traffic(
            &LabTarget::new(&lab),
            (cross_traffic, scenario.seed),
            &|event| show_cross_traffic(event, cross_traffic, terminal),
            || watch_lab(&lab, standing.interval, &flag, terminal),
        )
    })??
}

/// Returns the rate, the round-trip time and the loss of a path in one line.
pub(super) fn describe_path(path: &Path) -> String {
    AdjustedPath::from_path(path).to_string()
}

/// Returns the cross traffic of the first step that has any.
fn cross_traffic(scenario: &Scenario) -> &[CrossTraffic] {
    scenario
        .steps
        .iter()
        .map(|step| &step.cross_traffic[..])
        .find(|loads| !loads.is_empty())
        .unwrap_or_default()
}

/// Prints the state of the path each `interval` and makes the changes that keys stand for, until
/// `q` is typed.
fn watch_lab(lab: &Lab, interval: Span, flag: &AtomicBool, terminal: &Terminal) -> Result {
    let mut keys = KeyReader::start_reading();
    let mut knobs = AdjustedPath::from_path(lab.changeable_path());
    let mut meter = PathMeter::start(lab)?;
    let mut next = Instant::now() + Duration::from(interval);
    while !flag.load(Ordering::Relaxed) {
        match keys.next_key(
            next.saturating_duration_since(Instant::now())
                .min(POLL_INTERVAL),
        ) {
            Some('q') => return Ok(()),
            Some(key) if knobs.adjust_quantity(key) => match knobs.apply_change(key, lab) {
                Ok(()) => {
                    terminal.print_event(&Event::Changed(Box::new(knobs.directions.clone())));
                    terminal.print_result(&format!("path: {knobs}\n"));
                }
                Err(refused) => terminal.print_notice(&refused.to_string()),
            },
            _ => {}
        }
        if Instant::now() >= next {
            show_status(&meter.read()?, terminal);
            next = Instant::now() + Duration::from(interval);
        }
    }
    Err(Failure::already_printed(INTERRUPTED))
}

fn print_introduction(
    scenario: &Scenario,
    standing: &LabSettings<'_>,
    cross_traffic: &[CrossTraffic],
    terminal: &Terminal,
) {
    let name = standing.name;
    let [sender, receiver] = Host::ALL.map(|host| host.address().into());
    let loads = cross_traffic.iter().map(cross_traffic_load).collect();
    terminal.print_event(&Event::Up(LabUp {
        name: name.to_owned(),
        sender,
        receiver,
        cross_traffic: loads,
    }));
    terminal.print_result(&format!("{name}: {}\n", scenario.title));
    print_hosts(name, scenario.stretches.is_some(), terminal);
    if !cross_traffic.is_empty() {
        let loads: Vec<String> = cross_traffic.iter().map(describe_load).collect();
        terminal.print_result(&format!(
            "  traffic  {} (not with --no-cross-traffic)\n",
            loads.join("; ")
        ));
    }
    let changes = if standing.backend == Backend::Kernel {
        ""
    } else {
        "change with r R (rate), d D (delay), l L (loss), capitals for more; "
    };
    terminal.print_result(&format!("{changes}leave with q\n"));
}

/// Prints the hosts of a lab, each with the command that enters it.
fn print_hosts(lab: &str, has_relays: bool, terminal: &Terminal) {
    let (relays, of_name, of_address): (&[Host], _, _) = if has_relays {
        (&[Host::NearRelay, Host::FarRelay], 10, 11)
    } else {
        (&[], 8, 10)
    };
    for host in Host::ALL.iter().chain(relays) {
        let (address, host) = (host.address().to_string(), host.name());
        let command = format!("fullpipe lab shell --join {lab} {host}");
        terminal.print_result(&format!(
            "  {host:<of_name$} {address:<of_address$}  {command}\n"
        ));
    }
}

/// Prints when a load of cross traffic begins, pauses or fails.
fn show_cross_traffic(event: &Event, cross_traffic: &[CrossTraffic], terminal: &Terminal) {
    terminal.print_event(event);
    if let Event::CrossTrafficFailed(failure) = event {
        let load = cross_traffic
            .get(failure.load)
            .map_text(|load| describe_request(&load.request));
        terminal.print_notice(&format!(
            "cross traffic ({load}) failed, and is tried again: {}",
            failure.message
        ));
    }
}

fn cross_traffic_load(load: &CrossTraffic) -> CrossTrafficLoad {
    let (on, off) = load.on_off.unzip();
    CrossTrafficLoad {
        request: load.request.clone(),
        lowest: load.lowest,
        on,
        off,
    }
}

/// Returns the text for a load: `10 × UDP at 29.1 Mbit/s, on 1 s, off 1 s`.
fn describe_load(load: &CrossTraffic) -> String {
    let or_nothing = Option::unwrap_or_default;
    let lowest = or_nothing(load.lowest.map(|lowest| format!("{lowest} to ")));
    let rate = or_nothing(
        load.request
            .rate
            .map(|highest| format!(" at {lowest}{highest}")),
    );
    let start = match load.starts {
        LoadStart::After(time) => format!(" after {time}"),
        LoadStart::Before(_) => String::new(),
    };
    let phases = or_nothing(load.on_off.map(|(on, off)| format!(", on {on}, off {off}")));
    format!("{}{rate}{start}{phases}", describe_request(&load.request))
}

fn describe_request(request: &Request) -> String {
    format!("{} × {}", request.streams, request.transport.name())
}

/// The path as its user has changed it.
struct AdjustedPath {
    directions: [PathDirection; 2],
}

impl AdjustedPath {
    fn from_path(path: &Path) -> Self {
        Self {
            directions: [path.forward.clone(), path.reverse.clone()],
        }
    }

    /// Changes the quantity that `key` stands for, in both directions. Returns false if it stands
    /// for none.
    fn adjust_quantity(&mut self, key: char) -> bool {
        let turn: fn(&mut PathDirection, bool) = match key.to_ascii_lowercase() {
            'r' => turn_rate,
            'd' => turn_delay,
            'l' => turn_loss,
            _ => return false,
        };
        self.directions
            .iter_mut()
            .for_each(|direction| turn(direction, key.is_ascii_uppercase()));
        true
    }

    /// Applies the change that `key` made to the running path, and nothing else: a pattern of
    /// losses stays until `key` changes the loss.
    fn apply_change(&self, key: char, lab: &Lab) -> Result<(), LabError> {
        for (host, direction) in Host::ALL.into_iter().zip(&self.directions) {
            let nothing = PathChange::default();
            let change = match key.to_ascii_lowercase() {
                'r' => PathChange {
                    rate: direction.rate,
                    ..nothing
                },
                'd' => PathChange {
                    delay: Some(direction.delay),
                    ..nothing
                },
                _ => PathChange {
                    loss: direction.loss,
                    ..nothing
                },
            };
            lab.change_path(host, change)?;
        }
        Ok(())
    }
}

impl fmt::Display for AdjustedPath {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let [forward, reverse] = &self.directions;
        let rate = forward
            .rate
            .map_or_else(|| "no rate".to_owned(), |rate| rate.to_string());
        let loss = forward.loss.unwrap_or_default();
        write!(
            f,
            "{rate}, RTT {}, loss {loss}",
            forward.delay + reverse.delay
        )
    }
}

/// Raises the rate by a quarter, or lowers it by a fifth. A path without a rate has none to change.
fn turn_rate(direction: &mut PathDirection, more: bool) {
    const MIN: BitRate = BitRate::from_bps(1000);
    let factor = if more { 1.25 } else { 0.8 };
    direction.rate = direction.rate.map(|rate| rate.scale_by(factor).max(MIN));
}

/// Changes the delay by a quarter, and by at least half a millisecond.
fn turn_delay(direction: &mut PathDirection, more: bool) {
    const MIN: Span = Span::from_micros(500);
    const MAX: Span = Span::from_secs(10);
    let step = direction.delay.scale_by(0.25).max(MIN);
    let delay = if more {
        direction.delay + step
    } else {
        direction.delay.saturating_sub(step)
    };
    direction.delay = delay.min(MAX);
}

/// Doubles the loss, from 10⁻⁵ on, or halves it, down to none.
fn turn_loss(direction: &mut PathDirection, more: bool) {
    const MIN: f64 = 1e-5;
    const MAX: f64 = 0.5;
    let loss = direction.loss.unwrap_or_default().get();
    let turned = if more {
        (loss * 2.0).clamp(MIN, MAX)
    } else {
        loss / 2.0
    };
    direction.loss = Some(Ratio::new(if turned < MIN { 0.0 } else { turned }));
}

fn show_status(status: &PathStatus, terminal: &Terminal) {
    terminal.print_event(&Event::Path(Box::new(status.clone())));
    let device_drops = if status.device_drops == 0 {
        String::new()
    } else {
        format!(" | devices dropped {}", status.device_drops)
    };
    terminal.print_live_status(&format!(
        "→ {} | ← {}{device_drops}",
        one_way(&status.forward),
        one_way(&status.reverse)
    ));
}

/// Returns the text for a direction; counts that are zero are left out.
fn one_way(status: &DirectionStatus) -> String {
    let mut words = vec![status.rate.to_string(), format!("queue {}", status.queue)];
    for (count, what) in [
        (status.queue_drops, "dropped"),
        (status.injected_losses, "lost"),
    ] {
        if count > 0 {
            words.push(format!("{count} {what}"));
        }
    }
    words.extend(
        status
            .lateness_p99
            .map(|lateness| format!("late {lateness}")),
    );
    words.join(", ")
}

#[cfg(test)]
mod tests {
    use fullpipe_scenario::PathSpec;

    use super::*;

    #[test]
    fn keys_turn_both_directions_within_bounds() {
        let mut knobs = AdjustedPath::from_path(&PathSpec::demo_path().to_path().unwrap());
        assert_eq!(knobs.to_string(), "1 Gbit/s, RTT 100 ms, loss 0 %");
        for key in "RDLL".chars() {
            assert!(knobs.adjust_quantity(key));
        }
        assert_eq!(knobs.to_string(), "1.25 Gbit/s, RTT 125 ms, loss 0.002 %");
        for _ in 0..200 {
            "rdl"
                .chars()
                .for_each(|key| assert!(knobs.adjust_quantity(key)));
        }
        assert_eq!(knobs.to_string(), "1 kbit/s, RTT 0 s, loss 0 %");
        assert!(!knobs.adjust_quantity('x') && !knobs.adjust_quantity('\n'));
    }

    #[test]
    fn loads_are_those_of_the_first_step_that_has_any() {
        let text = "name = 'n'\ntitle = 't'\n[path]\nrtt = '10ms'\n[[step]]\nname = 'alone'\n[[step]]\nname = 'first'\n\
                    [[step.cross_traffic]]\ntransport = 'udp'\nstreams = 10\nrate = '100M..250M'\n\
                    on = '2s'\noff = '1s'\n\
                    [[step.cross_traffic]]\nafter = '3s'\n[[step]]\nname = 'second'\n\
                    [[step.cross_traffic]]\nstreams = 2\n";
        let scenario = Scenario::parse("n.toml", text).unwrap();
        let said: Vec<String> = cross_traffic(&scenario).iter().map(describe_load).collect();
        assert_eq!(
            said,
            [
                "10 × UDP at 100 Mbit/s to 250 Mbit/s, on 2 s, off 1 s",
                "1 × TCP after 3 s"
            ]
        );
        let first = cross_traffic_load(&cross_traffic(&scenario)[0]);
        assert_eq!(
            (first.lowest, first.on),
            (Some(BitRate::from_mbps(100)), Some(Span::from_secs(2)))
        );
    }
}
