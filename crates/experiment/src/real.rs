//! A remedy carried out on this host, which is a real one: the far end is not ours to change.

use std::path::Path;

use fullpipe_host::{ApplyOptions, HostSystem, JournalDir, JournalError, check_changes};
use fullpipe_record::{At, Change, HostSettings, HostUndone, Measurement, Remedy, Request};
use fullpipe_units::Span;

use crate::error::ExperimentError;

/// The part of a remedy that can be carried out here.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OwnPart {
    /// Changes of this host.
    changes: Vec<Change>,
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
        let changed = remedy
            .changes
            .iter()
            .fold(request.clone(), |request, change| {
                change.applied_to_request(&request)
            });
        let mut ends = remedy.changes.iter().flat_map(Change::required_ends);
        let needs_other_end = ends.any(|end| *end != here);
        Self {
            needs_other_end,
            does_something: !changes.is_empty() || (!needs_other_end && changed != *request),
            changes,
            request: changed,
        }
    }

    /// Returns true if the remedy can be tried from this end alone.
    pub fn is_for_here(&self) -> bool {
        self.does_something && !self.needs_other_end
    }

    /// Makes the changes, has the load as changed measured by `measure`, and unless `keep` is set
    /// puts back what was there, whatever came of the measurement. Also returns why something could
    /// not be put back.
    ///
    /// The changes stand in the journal of folder `journal` before they are made, as ones that wait
    /// to be confirmed: whoever dies in between leaves a way back.
    ///
    /// # Errors
    /// If a change is refused; then none is made. If the measurement fails; then none is left.
    pub fn try_out<E: From<ExperimentError>>(
        &self,
        keep: bool,
        journal: &Path,
        measure: impl FnOnce(&Request) -> Result<Measurement, E>,
    ) -> Result<(Measurement, Option<String>), E> {
        let applied = self.apply_changes(journal).map_err(ExperimentError::from)?;
        let measured = measure(&self.request);
        let not_undone = match applied {
            Some(id) => settle_changes(journal, &id, keep && measured.is_ok()),
            None => None,
        };
        Ok((measured?, not_undone))
    }

    /// The name under which the changes wait in the journal; `None` where all is so already.
    fn apply_changes(&self, journal: &Path) -> Result<Option<String>, JournalError> {
        // Before there is a folder for a journal that is not to be.
        check_changes(&HostSystem::of_this_host(), &self.changes, false)?;
        if self.changes.is_empty() {
            return Ok(None);
        }
        let options = ApplyOptions {
            temporary: Some(WAITS),
            ..ApplyOptions::default()
        };
        let mut name = None;
        JournalDir::open(journal, HostSystem::of_this_host())?.apply_changes(
            &self.changes,
            options,
            &mut |id: &str| {
                name = Some(id.to_owned());
                Ok(())
            },
            &mut |_| {},
        )?;
        Ok(name)
    }
}

/// Returns true if a change that both ends must make is so already at the end with settings `own`.
fn is_so(change: &Change, own: Option<&HostSettings>) -> bool {
    match change {
        Change::WindowScaling(on) => own.is_some_and(|own| own.window_scaling == *on),
        _ => false,
    }
}

/// Time that the journal states for the changes to wait; nothing runs that would take them back by
/// itself.
const WAITS: Span = Span::from_secs(3600);

/// Lets what was applied as `id` stay or takes it back; returns what could not be done, and why.
/// What another program has settled meanwhile is left alone, as is a change of its own that waits.
fn settle_changes(journal: &Path, id: &str, stays: bool) -> Option<String> {
    let settled = JournalDir::open(journal, HostSystem::of_this_host()).and_then(|journal_dir| {
        if stays && journal_dir.is_pending(id)? {
            journal_dir
                .confirm_pending()
                .map(|()| HostUndone::default())
        } else {
            journal_dir.undo_unless_confirmed(id)
        }
    });
    match settled {
        Ok(undone) if undone.left.is_empty() => None,
        Ok(undone) => Some(
            undone
                .left
                .into_iter()
                .map(|left| left.why)
                .collect::<Vec<_>>()
                .join("; "),
        ),
        Err(error) => Some(error.to_string()),
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
