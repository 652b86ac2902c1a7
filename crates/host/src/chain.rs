//! Changes, by the setting that they are of, and the order in which they are put back.

use fullpipe_record::HostChange;

use crate::entry::{JournalEntry, display_text};
use crate::setting::{HostSystem, Setting};

/// A setting's text; none where it is absent.
type Text = Option<String>;

/// Everything that was done to one setting, in order. Undone as one, so that an undo that was
/// itself cut short knows every value that may be there.
pub(crate) struct SettingHistory {
    pub setting: Setting,
    entries: Vec<JournalEntry>,
}

pub(crate) enum RestoreOutcome {
    /// As it was at first, and whether it was not so already.
    Done(Option<HostChange>),
    /// Neither as we left it nor as it was.
    Foreign(Option<String>),
    /// There is no such setting any more.
    Vanished,
}

/// By setting, the one that was changed last first. Where somebody else set it between two changes,
/// a new chain begins: that leads back to theirs, and what was before it is theirs to leave.
pub(crate) fn setting_histories(entries: Vec<JournalEntry>) -> Vec<SettingHistory> {
    let mut chains: Vec<SettingHistory> = Vec::new();
    for entry in entries {
        let latest = chains
            .iter()
            .rposition(|chain| chain.setting == entry.setting);
        let chain = match latest {
            Some(at) if chains[at].is_ours(entry.before.as_deref()) => Some(chains.remove(at)),
            _ => None,
        };
        let mut chain = chain.unwrap_or_else(|| SettingHistory {
            setting: entry.setting.clone(),
            entries: Vec::new(),
        });
        chain.entries.push(entry);
        chains.push(chain);
    }
    chains.reverse();
    // The kernel puts that by itself on a device which the sysctls and the device's own settings
    // then say.
    chains.sort_by_key(|chain| matches!(chain.setting, Setting::Qdisc(_)));
    chains
}

impl SettingHistory {
    fn first_value(&self) -> Option<&str> {
        self.entries
            .first()
            .and_then(|entry| entry.before.as_deref())
    }

    fn latest_value(&self) -> Option<&str> {
        self.entries
            .last()
            .and_then(|entry| entry.wanted.as_deref())
    }

    /// As one change.
    pub(crate) fn merged_entry(&self) -> JournalEntry {
        let made = self.entries.last().and_then(|entry| entry.made.clone());
        JournalEntry {
            setting: self.setting.clone(),
            before: self.first_value().map(str::to_owned),
            wanted: self.latest_value().map(str::to_owned),
            made,
        }
    }

    /// As it reads now; none where it is gone.
    fn read(&self, system: &HostSystem) -> Result<Option<Text>, String> {
        match self.setting.read(system) {
            Err(error) if error.is_missing() => Ok(None),
            read => read.map(Some).map_err(|error| error.to_string()),
        }
    }

    fn read_present(&self, system: &HostSystem) -> Result<Text, String> {
        self.setting.read(system).map_err(|error| error.to_string())
    }

    /// Returns true if this text is of this chain, and not somebody else's.
    fn is_ours(&self, found: Option<&str>) -> bool {
        self.entries.iter().any(
            |JournalEntry {
                 before,
                 wanted,
                 made,
                 ..
             }| {
                let is_as_made = match made {
                    Some(made) => self.setting.is_same(found, Some(made)),
                    None => self.setting.is_as_asked(found, wanted.as_deref()),
                };
                is_as_made || self.is_put_back(found, before.as_deref())
            },
        )
    }

    fn is_put_back(&self, now: Option<&str>, before: Option<&str>) -> bool {
        self.setting.is_same(now, before) || self.setting.are_defaults([now, before])
    }

    /// Returns the sentence that the setting was left alone, because another program or user
    /// changed it to `found`.
    pub(crate) fn left_alone(&self, found: Option<&str>) -> String {
        let setting = &self.setting;
        let [ours, found] = [self.latest_value(), found]
            .map(|text| display_text(text.map(|text| setting.display_value(text)).as_deref()));
        if ours == found {
            return format!("{setting} was left alone: somebody changed its parameters since");
        }
        format!(
            "{setting} was left alone: it should still be \"{ours}\" but somebody made it \"{found}\""
        )
    }

    fn put_back(&self, system: &HostSystem) -> Result<(), String> {
        let now = self.read_present(system)?;
        let is_same = self.setting.is_same(now.as_deref(), self.first_value());
        // What a crash left of our file goes too.
        if is_same && self.setting != Setting::Persisted {
            return Ok(());
        }
        self.setting
            .write(system, self.first_value())
            .map_err(|error| error.to_string())?;
        let now = self.read_present(system)?;
        if self.is_put_back(now.as_deref(), self.first_value()) {
            return Ok(());
        }
        let [first, now] = [self.first_value(), now.as_deref()].map(display_text);
        Err(format!(
            "{} was put back to \"{first}\" and reads back as \"{now}\"",
            self.setting
        ))
    }

    /// Returns the outcome of an undo. `found` is the text before it, `put_back` the result of the
    /// write.
    fn restore_outcome(
        &self,
        system: &HostSystem,
        found: Option<Text>,
        put_back: Result<(), String>,
    ) -> Result<RestoreOutcome, String> {
        let (Some(found), Some(now)) = (found, self.read(system)?) else {
            return Ok(RestoreOutcome::Vanished);
        };
        if !self.is_put_back(now.as_deref(), self.first_value()) {
            return put_back.map(|()| RestoreOutcome::Foreign(now));
        }
        let has_moved = !self.setting.is_same(found.as_deref(), now.as_deref());
        let [from, to] =
            [found, now].map(|text| text.map(|text| self.setting.display_value(&text)));
        Ok(RestoreOutcome::Done(has_moved.then(|| HostChange {
            setting: self.setting.to_string(),
            from,
            to,
        })))
    }
}

/// Puts back, in this order, what is as we left it; what became of each.
pub(crate) fn put_back(
    chains: &[SettingHistory],
    system: &HostSystem,
) -> Vec<Result<RestoreOutcome, String>> {
    let found: Vec<_> = chains.iter().map(|chain| chain.read(system)).collect();
    let later: Vec<Option<&SettingHistory>> = (0..chains.len())
        .map(|at| {
            chains[..at]
                .iter()
                .rfind(|later| later.setting == chains[at].setting)
        })
        .collect();
    let mut done = vec![Ok(()); chains.len()];
    // Twice, because one may need another that comes after it, or be moved by it.
    for _ in 0..2 {
        for (at, chain) in chains.iter().enumerate() {
            let is_ours = matches!(&found[at], Ok(Some(found)) if chain.is_ours(found.as_deref()));
            if is_ours && later[at].is_none() {
                done[at] = chain.put_back(system);
            }
        }
    }
    let whole = chains.iter().zip(later).zip(found).zip(done);
    whole
        .map(|(((chain, later), found), done)| match later {
            // Whatever it is now, somebody had set it.
            Some(later) if !matches!(found, Ok(None)) => Ok(RestoreOutcome::Foreign(
                later.first_value().map(str::to_owned),
            )),
            _ => chain.restore_outcome(system, found?, done),
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn entry(setting: Setting, before: &str, wanted: &str) -> JournalEntry {
        let [before, wanted] = [before, wanted].map(|text| Some(text.to_owned()));
        JournalEntry {
            setting,
            before,
            wanted,
            made: None,
        }
    }

    fn default_qdisc() -> Setting {
        Setting::Sysctl("net.core.default_qdisc".to_owned())
    }

    #[test]
    fn disciplines_are_put_back_when_the_kernel_has_its_own_default_again() {
        let qdisc = Setting::Qdisc("eth0".to_owned());
        let queue = Setting::QueueLength("eth0".to_owned());
        let entries = vec![
            entry(queue.clone(), "1000", "77"),
            entry(default_qdisc(), "pfifo_fast\n", "fq"),
            entry(qdisc.clone(), "default mq pfifo_fast", "fq"),
        ];
        let chains = setting_histories(entries);
        let order: Vec<&Setting> = chains.iter().map(|chain| &chain.setting).collect();
        assert_eq!(order, [&default_qdisc(), &queue, &qdisc]);
        // What the kernel put there while another was its default is ours to replace, and is not as
        // it was.
        let stale = Some("default mq fq");
        assert!(chains[2].is_ours(stale));
        assert!(!chains[2].setting.is_same(stale, chains[2].first_value()));
        assert!(!chains[2].is_ours(Some("sfq inexact 80010000 ")));
    }
}
