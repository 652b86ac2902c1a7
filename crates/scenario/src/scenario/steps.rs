use std::collections::HashSet;

use fullpipe_record::{Direction, Published, Transport};

use super::{NO_RELAYS, SharedPath, join_stretches, read_host, read_path, read_words};
use crate::bound::{AccuracyBound, BOUND_KEYS, ExpectedVerdict};
use crate::cross_traffic::{CROSS_TRAFFIC_KEYS, CrossTraffic};
use crate::key::parse_quantity;
use crate::path::PathSpec;
use crate::section::FileSection;
use crate::step::{PUBLISHED_KEYS, RAMP_KEYS, STEP_KEYS, ScenarioStep, StepRamp, complete_request};
use crate::{ScenarioError, StepBounds};

pub(super) fn read_steps(
    root: &FileSection<'_>,
    between: &SharedPath<'_>,
) -> Result<Vec<ScenarioStep>, ScenarioError> {
    let sections = root.child_sections("step")?;
    let mut names = HashSet::new();
    let mut steps = Vec::with_capacity(sections.len());
    for section in sections {
        let step = read_step(&section, between)?;
        if !names.insert(step.name.clone()) {
            return Err(
                section.error_at("name", format!("there is a step \"{}\" already", step.name))
            );
        }
        steps.push(step);
    }
    if steps.is_empty() {
        return Err(root.missing_key("step"));
    }
    Ok(steps)
}

/// Keys of `[[step]]` in addition to [`STEP_KEYS`].
const STEP_SECTIONS: &[&str] = &[
    "name",
    "published",
    "ramp",
    "cross_traffic",
    "path",
    "sender",
    "receiver",
    "kernel_model",
    "textbook",
    "capacity",
    "loss",
    "reordered",
    "fills",
    "verdict",
];

fn read_step(
    section: &FileSection<'_>,
    between: &SharedPath<'_>,
) -> Result<ScenarioStep, ScenarioError> {
    let mut step = ScenarioStep::with_name(read_words(section, "name")?);
    section.set_all(STEP_KEYS, STEP_SECTIONS, &mut step)?;
    complete_request(&mut step.request).map_err(|(key, why)| section.error_at(key, why))?;
    step.published = read_published(section)?;
    step.ramp = read_ramp(section)?;
    let loads = section.child_sections("cross_traffic")?;
    let loads = loads.iter().map(read_cross_traffic);
    step.cross_traffic = loads.collect::<Result<_, _>>()?;
    if let Some(own) = section.child_section("path")? {
        let path = read_path(&own, &[], &mut between.spec.clone(), between.files)?;
        let (whole, stretches) = join_stretches(path, between.outer);
        (step.path, step.stretches) = (Some(whole), stretches);
    }
    step.sender = read_host(section, "sender")?;
    step.receiver = read_host(section, "receiver")?;
    step.bounds = read_step_bounds(section)?;
    match unfit_key(&step, between.spec).or_else(|| unfit_relays(&step, between)) {
        Some((key, why)) => Err(section.error_at(key, why)),
        None => Ok(step),
    }
}

/// The key whose value fits no step like this one, and why.
fn unfit_key(step: &ScenarioStep, path: &PathSpec) -> Option<(&'static str, &'static str)> {
    let is_udp = step.request.transport == Transport::Udp;
    let rate = step
        .path
        .as_ref()
        .map_or_else(|| path.forward.rate, |own| own.forward.rate);
    let bounds = &step.bounds;
    [
        (
            "rate",
            "it is missing: at what rate does each stream send?",
            is_udp && step.request.rate.is_none() && step.ramp.is_none(),
        ),
        ("rate", "a ramp says the rates; write one of the two", step.request.rate.is_some() && step.ramp.is_some()),
        ("ramp", "loads are shares of the path's rate, which has none", step.ramp.is_some() && rate.is_none()),
        (
            "ramp",
            "only datagrams are offered at a rate whatever the path does; write transport = \"udp\"",
            step.ramp.is_some() && !is_udp,
        ),
        ("loss", "only datagrams show how many were lost; write transport = \"udp\"", bounds.loss.is_some() && !is_udp),
        ("loss", "only a link with a rate predicts it", bounds.loss.is_some() && rate.is_none()),
        (
            "reordered",
            "only datagrams show how many came out of order; write transport = \"udp\"",
            bounds.reordered.is_some() && !is_udp,
        ),
        ("capacity", "the path has no rate", bounds.capacity.is_some() && rate.is_none()),
        ("fills", "the path has no rate", bounds.fills.is_some() && rate.is_none()),
        ("verdict", "datagrams at a given rate have none", bounds.verdict.is_some() && is_udp),
    ]
    .into_iter()
    .find_map(|(key, why, is_so)| is_so.then_some((key, why)))
}

/// The key whose value fits no relays like those of this step, and why.
fn unfit_relays(
    step: &ScenarioStep,
    between: &SharedPath<'_>,
) -> Option<(&'static str, &'static str)> {
    [
        (NO_RELAYS, between.outer.is_none()),
        (
            "they carry TCP; write transport = \"tcp\"",
            step.request.transport == Transport::Udp,
        ),
        (
            "the receiver cannot ask for data through them; write direction = \"upload\"",
            { step.request.direction != Direction::Upload },
        ),
        (
            "cross traffic does not go through them; leave one of the two out",
            !step.cross_traffic.is_empty(),
        ),
    ]
    .into_iter()
    .find_map(|(why, is_so)| (step.relays && is_so).then_some(("relays", why)))
}

/// A rate alone, or a table of figures.
fn read_published(step: &FileSection<'_>) -> Result<Option<Published>, ScenarioError> {
    if !step.is_table("published") {
        let rate = step.read_value("published", parse_quantity)?;
        return Ok(rate.map(|rate| Published {
            rate: Some(rate),
            ..Published::default()
        }));
    }
    let mut published = Published::default();
    if let Some(section) = step.child_section("published")? {
        section.set_all(PUBLISHED_KEYS, &[], &mut published)?;
    }
    Ok(Some(published))
}

fn read_ramp(step: &FileSection<'_>) -> Result<Option<StepRamp>, ScenarioError> {
    let Some(section) = step.child_section("ramp")? else {
        return Ok(None);
    };
    let mut ramp = StepRamp::new_unset();
    section.set_all(RAMP_KEYS, &[], &mut ramp)?;
    if ramp.is_growing() {
        Ok(Some(ramp))
    } else {
        Err(step.error_at(
            "ramp",
            "write from, to and loads: it goes from a load above 0 to a greater one",
        ))
    }
}

fn read_cross_traffic(section: &FileSection<'_>) -> Result<CrossTraffic, ScenarioError> {
    let mut cross_traffic = CrossTraffic::new_unset();
    section.set_all(CROSS_TRAFFIC_KEYS, &["published"], &mut cross_traffic)?;
    complete_request(&mut cross_traffic.request)
        .map_err(|(key, why)| section.error_at(key, why))?;
    cross_traffic.published = read_published(section)?;
    if let Some(key) = cross_traffic.missing_key() {
        return Err(section.missing_key(key));
    }
    if cross_traffic.request.transport == Transport::Udp && cross_traffic.request.rate.is_none() {
        return Err(section.error_at("rate", "it is missing: at what rate does each stream send?"));
    }
    Ok(cross_traffic)
}

fn read_step_bounds(step: &FileSection<'_>) -> Result<StepBounds, ScenarioError> {
    let loss = match read_step_bound(step, "loss")? {
        Some(AccuracyBound::Within(points)) => Some(points),
        Some(_) => {
            return Err(step.error_at(
                "loss",
                "write within: points around the loss that is predicted",
            ));
        }
        None => None,
    };
    Ok(StepBounds {
        kernel_model: read_step_bound(step, "kernel_model")?,
        textbook: read_step_bound(step, "textbook")?,
        capacity: read_step_bound(step, "capacity")?,
        loss,
        reordered: read_step_bound(step, "reordered")?,
        fills: read_step_bound(step, "fills")?,
        verdict: step.read_value("verdict", ExpectedVerdict::read)?,
    })
}

fn read_step_bound(
    step: &FileSection<'_>,
    key: &str,
) -> Result<Option<AccuracyBound>, ScenarioError> {
    let Some(section) = step.child_section(key)? else {
        return Ok(None);
    };
    let mut bound = None;
    section.set_all(BOUND_KEYS, &[], &mut bound)?;
    if bound.is_none() {
        return Err(step.error_at(key, "write within, at_least or at_most"));
    }
    Ok(bound)
}
