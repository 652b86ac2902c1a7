//! A remedy carried out on this host, which is a real one, and at a far end that this one started.

use fullpipe_record::Remedy;

use crate::error::ExperimentError;
use crate::far_end::FarEnd;
use crate::pending_changes::WatchedJournal;
use crate::prelude::*;

/// The part of a remedy that can be carried out here, and what is left for the other end.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OwnPart {
    /// Changes of this host.
    changes: Vec<Change>,
    /// Changes of the other end.
    far_changes: Vec<Change>,
    /// The load as changed.
    request: Request,
    /// True if the other end must be changed too, by whoever rules there.
    pub needs_other_end: bool,
    /// True if anything can be done here that shows what the remedy brings: a change of the load
    /// alone does not, where the other end must be changed as well.
    pub does_something: bool,
}

impl OwnPart {
    /// Returns the part of `remedy` for the end `here`, which asked for the load `request` and has
    /// the settings `own`, if they are known. What both ends must change and is so here already is
    /// no part of it.
    pub fn from_remedy(
        remedy: &Remedy,
        here: At,
        request: &Request,
        own: Option<&HostSettings>,
    ) -> Self {
        let changes: Vec<Change> = remedy
            .changes
            .iter()
            .filter(|change| change.required_ends().contains(&here) && !is_so(change, own))
            .cloned()
            .collect();
        let far_changes: Vec<Change> = remedy
            .changes
            .iter()
            .filter(|change| change.required_ends().iter().any(|end| *end != here))
            .cloned()
            .collect();
        let changed = remedy
            .changes
            .iter()
            .fold(request.clone(), |request, change| {
                change.applied_to_request(&request)
            });
        let needs_other_end = !far_changes.is_empty();
        Self {
            needs_other_end,
            does_something: !changes.is_empty() || (!needs_other_end && changed != *request),
            changes,
            far_changes,
            request: changed,
        }
    }

    /// Returns true if the remedy can be tried from this end alone.
    pub fn is_for_here(&self) -> bool {
        self.does_something && !self.needs_other_end
    }

    /// Makes the changes here, and those of the other end at `far`, has the load as changed measured
    /// by `measure`, and unless `keep` is set puts back what was there, whatever came of the
    /// measurement. Also returns why something could not be put back.
    ///
    /// The changes stand in `journal`, and in that of the far end, before they are made, as ones that
    /// wait to be confirmed: if either end is killed in between, its watchdog takes them back.
    ///
    /// # Errors
    /// Fails if a change is refused; then none is made. Fails if the measurement does; then none is
    /// left.
    pub fn try_out<E: From<ExperimentError>>(
        &self,
        keep: bool,
        journal: &WatchedJournal,
        far: Option<&FarEnd>,
        measure: impl FnOnce(&Request) -> Result<Measurement, E>,
    ) -> Result<(Measurement, Option<String>), E> {
        let applied = self.apply_changes(journal, far)?;
        let measured = measure(&self.request);
        let stays = keep && measured.is_ok();
        let here = applied.and_then(|id| journal.settle_changes(&id, stays));
        let there = far.and_then(|far| far.settle_changes(stays).err());
        let not_undone = [here, there.map(|failure| failure.to_string())];
        let not_undone: Vec<String> = not_undone.into_iter().flatten().collect();
        Ok((
            measured?,
            (!not_undone.is_empty()).then(|| not_undone.join("; ")),
        ))
    }

    /// Makes the changes here and at the far end. Returns the name under which those of here wait.
    fn apply_changes(
        &self,
        journal: &WatchedJournal,
        far: Option<&FarEnd>,
    ) -> Result<Option<String>, ExperimentError> {
        let applied = journal.apply_pending(&self.changes)?;
        if let Some(far) = far.filter(|_| !self.far_changes.is_empty())
            && let Err(failure) = far.apply_changes(&self.far_changes)
        {
            let left = applied.and_then(|name| journal.settle_changes(&name, false));
            let left = left.map_or_else(String::new, |left| format!("; not undone here: {left}"));
            return Err(ExperimentError::FarEnd(format!("{failure}{left}")));
        }
        Ok(applied)
    }
}

/// Returns true if a change that both ends must make is so already at the end with settings `own`.
fn is_so(change: &Change, own: Option<&HostSettings>) -> bool {
    match change {
        Change::WindowScaling(on) => own.is_some_and(|own| own.window_scaling == *on),
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use fullpipe_record::{Commands, Scope};
    use fullpipe_units::ByteCount;

    fn part(changes: Vec<Change>, here: At) -> OwnPart {
        let remedy = Remedy {
            id: "any".to_owned(),
            scope: Scope::Namespace,
            at: At::Sender,
            changes,
            commands: Commands::default(),
            predicted: None,
            rtt: None,
            command_time: None,
            why: String::new(),
        };
        OwnPart::from_remedy(
            &remedy,
            here,
            &Request::default(),
            Some(&HostSettings::of_linux_6_18()),
        )
    }

    #[test]
    fn each_end_does_its_own_part() {
        let wmem = Change::TcpWmemMax(ByteCount::from_mib(32));
        let (at_sender, at_receiver) = (
            part(vec![wmem.clone()], At::Sender),
            part(vec![wmem.clone()], At::Receiver),
        );
        assert_eq!(
            (
                at_sender.changes,
                at_sender.needs_other_end,
                at_sender.does_something
            ),
            (vec![wmem.clone()], false, true)
        );
        assert!(at_receiver.needs_other_end && !at_receiver.does_something);
        let with_bbr = part(
            vec![wmem, Change::CongestionControl("bbr".to_owned())],
            At::Receiver,
        );
        assert!(
            with_bbr.needs_other_end && !with_bbr.does_something,
            "BBR alone shows nothing"
        );
        let scaling = part(vec![Change::WindowScaling(true)], At::Sender);
        assert!(
            scaling.needs_other_end && !scaling.does_something,
            "it is on here already"
        );
        assert!(part(vec![Change::WindowScaling(false)], At::Sender).does_something);
    }

    #[test]
    fn window_scaling_is_for_both_ends_and_streams_are_for_the_load() {
        let scaling = part(vec![Change::WindowScaling(false)], At::Receiver);
        assert!(scaling.needs_other_end && scaling.does_something);
        let streams = part(vec![Change::Streams(4)], At::Receiver);
        assert!(!streams.needs_other_end && streams.does_something);
        assert_eq!(streams.request.streams, 4);
        assert!(
            !part(Vec::new(), At::Sender).does_something,
            "what only a person can do"
        );
    }
}
