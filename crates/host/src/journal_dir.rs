//! The journals of a folder, and what is done by them: one at a time, and each so that a crash
//! leaves a way back.

use std::collections::BTreeMap;
use std::fs::{self, DirBuilder, File};
use std::io;
use std::os::unix::fs::{DirBuilderExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use fullpipe_record::{Change, HostChange, HostLeft, HostSettings, HostUndone};
use fullpipe_sys::random_bytes;
use fullpipe_units::{Span, is_one_line};
use rustix::fs::{FlockOperation, flock};

use crate::chain::{RestoreOutcome, put_back, setting_histories};
use crate::entry::JournalEntry;
use crate::inspect::inspect_host;
use crate::journal::{Journal, JournalRelation, Line, Origin, UnreadableJournal, open_private};
use crate::journal_error::{JournalError, JournalResult};
use crate::setting::{HostSystem, Setting, setting_writes};

/// A moment in the course of [`JournalDir::apply_changes`]. Whoever dies at any of them leaves a
/// journal by which all is put back.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum JournalStep {
    /// The journal says that changes begin.
    Begun,
    /// The journal says what this change is.
    Written(usize),
    /// The change was made and read back.
    Made(usize),
}

/// Options of [`JournalDir::apply_changes`].
#[derive(Debug, Clone, Copy, Default)]
pub struct ApplyOptions {
    /// Also for the next boot, in one file of our own in `sysctl.d`: the sysctls among them.
    pub persist: bool,
    /// Until this is over, unless they are confirmed; who starts them starts what takes them back.
    pub temporary: Option<Span>,
}

/// The journals of one folder, with its lock.
#[derive(Debug)]
pub struct JournalDir {
    folder: PathBuf,
    system: HostSystem,
    origin: Origin,
    _lock: File,
}

impl JournalDir {
    /// Opens the journals in `folder`, which is made if it is not there, and waits while another
    /// holds them.
    ///
    /// # Errors
    /// If the folder cannot be made or locked, others may write in it, or another holds the lock
    /// for longer than ten seconds.
    pub fn open(folder: &Path, system: HostSystem) -> JournalResult<Self> {
        if !folder.exists() {
            make_folder(folder).map_err(JournalError::on_path("make", folder))?;
        }
        refuse_foreign(folder)?;
        let lock = lock_folder(folder)?;
        let origin = Origin::of_calling_thread().map_err(|cause| JournalError::Kernel {
            what: "which namespace this is",
            cause,
        })?;
        Ok(Self {
            folder: folder.to_owned(),
            system,
            origin,
            _lock: lock,
        })
    }

    /// Makes `changes` in order. Each is in the journal and on the disk before it is made, and read
    /// back after it; what is so already is passed over. If one fails, those before it are put
    /// back. `begun` is called between the journal's first line and the first change, with the name
    /// of this apply; `observe` at each step.
    ///
    /// # Errors
    /// If an earlier apply waits to be confirmed, a setting cannot be read, written, kept or put
    /// back exactly, or the journal cannot be written.
    pub fn apply_changes(
        &self,
        changes: &[Change],
        options: ApplyOptions,
        begun: &mut dyn FnMut(&str) -> io::Result<()>,
        observe: &mut dyn FnMut(JournalStep),
    ) -> JournalResult<Vec<HostChange>> {
        let mut journal = Journal::for_origin(&self.folder, &self.origin)?;
        if journal.pending_apply().is_some() {
            return Err(JournalError::Pending);
        }
        if options.persist && !self.origin.is_initial() {
            let sentence = "--persist is for the namespace of the first process, which is set up at boot; this is another";
            return Err(JournalError::Unfit(sentence.to_owned()));
        }
        let entries = checked_entries(&self.system, changes, options.persist)?;
        if entries.is_empty() {
            return Ok(Vec::new());
        }
        let id = new_id().map_err(no_id)?;
        journal.append_line(Line::Apply {
            id: id.clone(),
            temporary: options.temporary.map(whole_seconds),
        })?;
        observe(JournalStep::Begun);
        let made = begun(&id)
            .map_err(JournalError::Watchdog)
            .and_then(|()| self.make_entries(&mut journal, &entries, observe));
        let Err(first) = made else {
            return Ok(entries.iter().map(host_change).collect());
        };
        Err(self.take_failed_back(&mut journal, &id, first))
    }

    /// Returns the error of apply `id`, which failed, after what it changed was put back.
    fn take_failed_back(
        &self,
        journal: &mut Journal,
        id: &str,
        first: JournalError,
    ) -> JournalError {
        let then = match self.take_back(journal, Some(id)) {
            Ok(undone) => match undone.left.into_iter().next() {
                Some(left) => left.why,
                None => return first,
            },
            Err(then) => then.to_string(),
        };
        JournalError::WayBack {
            first: Box::new(first),
            then,
        }
    }

    fn make_entries(
        &self,
        journal: &mut Journal,
        entries: &[JournalEntry],
        observe: &mut dyn FnMut(JournalStep),
    ) -> JournalResult {
        // As it is now, not as it was when this was planned; and before a change that moves others
        // too, as checksums do with segmentation.
        let at_first = entries
            .iter()
            .map(|entry| entry.setting.read(&self.system))
            .collect::<Result<Vec<_>, _>>()?;
        for (number, entry) in entries.iter().enumerate() {
            let is_again = entries[..number]
                .iter()
                .any(|earlier| earlier.setting == entry.setting);
            let before = if is_again {
                entry.setting.read(&self.system)?
            } else {
                at_first[number].clone()
            };
            let entry = JournalEntry {
                before,
                ..entry.clone()
            };
            journal.append_line(Line::Change(entry.clone()))?;
            observe(JournalStep::Written(number));
            if let Some(text) = entry.write_setting(&self.system)? {
                journal.append_line(Line::Made { text })?;
            }
            observe(JournalStep::Made(number));
        }
        Ok(())
    }

    /// Puts back what was changed in this namespace, last change first, and what outlived a boot.
    /// What somebody else changed since is left alone and stays in the journal, unless `forget`
    /// says otherwise; it then also sets aside journals of this namespace and of earlier boots that
    /// cannot be read.
    ///
    /// # Errors
    /// If the journal of this namespace is malformed or something may not be written: then nothing
    /// was put back. If something that may be written could not be: then the rest was, and the
    /// journal still has it.
    pub fn undo_changes(&self, forget: bool) -> JournalResult<HostUndone> {
        let mut all = HostUndone::default();
        let (journals, unreadable) = Journal::read_all(&self.folder)?;
        let (ours, others): (Vec<Journal>, Vec<Journal>) =
            journals.into_iter().partition(|journal| {
                journal.origin().seen_from(&self.origin) != JournalRelation::Elsewhere
            });
        all.elsewhere = others.len();
        for journal in &ours {
            self.check_writable(&self.live_entries(journal, None))?;
        }
        for damaged in unreadable {
            self.pass_over(damaged, forget, &mut all)?;
        }
        for mut journal in ours {
            let mut undone = self.take_back(&mut journal, None)?;
            if forget {
                journal.forget_entries(None, Vec::new())?;
                undone.kept = 0;
            }
            all.kept += undone.kept;
            all.restored.extend(undone.restored);
            all.left.extend(undone.left);
        }
        Ok(all)
    }

    /// Without the journal of this namespace nothing is undone. Another namespace may still need
    /// its own.
    fn pass_over(
        &self,
        damaged: UnreadableJournal,
        forget: bool,
        all: &mut HostUndone,
    ) -> JournalResult {
        let UnreadableJournal { path, error, .. } = &damaged;
        match damaged.seen_from(&self.origin) {
            JournalRelation::Elsewhere => all.elsewhere += 1,
            _ if forget => {
                let aside = path.with_extension(format!("damaged-{}", new_id().map_err(no_id)?));
                fs::rename(path, &aside).map_err(JournalError::on_path("rename", path))?;
                all.unreadable.push(format!(
                    "{} was set aside as {}",
                    path.display(),
                    aside.display()
                ));
            }
            JournalRelation::Ours => return Err(damaged.error),
            _ => all.unreadable.push(error.to_string()),
        }
        Ok(())
    }

    /// Puts back what apply `id` changed, unless it was confirmed or is undone already.
    ///
    /// # Errors
    /// As [`JournalDir::undo_changes`].
    pub fn undo_unless_confirmed(&self, id: &str) -> JournalResult<HostUndone> {
        let mut journal = Journal::for_origin(&self.folder, &self.origin)?;
        if journal.pending_apply() != Some(id) {
            return Ok(HostUndone::default());
        }
        self.take_back(&mut journal, Some(id))
    }

    /// Returns true if apply `id` still waits to be confirmed.
    ///
    /// # Errors
    /// If the journal cannot be read.
    pub fn is_pending(&self, id: &str) -> JournalResult<bool> {
        Ok(Journal::for_origin(&self.folder, &self.origin)?.pending_apply() == Some(id))
    }

    /// Lets what was applied for a time stay.
    ///
    /// # Errors
    /// If nothing waits, or the journal cannot be written.
    pub fn confirm_pending(&self) -> JournalResult {
        let mut journal = Journal::for_origin(&self.folder, &self.origin)?;
        let id = journal
            .pending_apply()
            .ok_or(JournalError::NothingPending)?
            .to_owned();
        journal.append_line(Line::Confirmed { id })
    }

    /// Returns the entries of a journal that may still be in force. A boot makes every setting the
    /// kernel's again, except for those that our file has set at it.
    fn live_entries(&self, journal: &Journal, since: Option<&str>) -> Vec<JournalEntry> {
        let mut entries = journal.entries_since(since);
        match journal.origin().seen_from(&self.origin) {
            JournalRelation::Ours => {}
            JournalRelation::BeforeBoot => {
                let files: Vec<String> = entries
                    .iter()
                    .filter(|entry| entry.setting == Setting::Persisted)
                    .filter_map(|entry| entry.wanted.clone())
                    .collect();
                entries.retain(|entry| match &entry.setting {
                    Setting::Persisted => true,
                    Setting::Sysctl(name) => files
                        .iter()
                        .any(|file| parse_persisted(file).contains_key(name)),
                    _ => false,
                });
            }
            JournalRelation::Elsewhere | JournalRelation::Gone => entries.clear(),
        }
        entries
    }

    /// Checks that all entries may be written, before any of them is. Settings that are gone need
    /// no writing.
    fn check_writable(&self, entries: &[JournalEntry]) -> JournalResult {
        for entry in entries {
            match entry.setting.check_writable(&self.system) {
                Err(error) if !error.is_missing() => return Err(error.into()),
                _ => {}
            }
        }
        Ok(())
    }

    fn take_back(&self, journal: &mut Journal, since: Option<&str>) -> JournalResult<HostUndone> {
        let mut undone = HostUndone::default();
        let mut kept = Vec::new();
        let before_boot = journal.origin().seen_from(&self.origin) == JournalRelation::BeforeBoot;
        let chains = setting_histories(self.live_entries(journal, since));
        for (chain, back) in chains.iter().zip(put_back(&chains, &self.system)) {
            let setting = &chain.setting;
            let why = match back {
                Ok(RestoreOutcome::Done(restored)) => {
                    undone.restored.extend(restored);
                    continue;
                }
                // What is neither as we left it nor as it was is, after a boot, of the boot.
                Ok(RestoreOutcome::Foreign(_)) if before_boot && *setting != Setting::Persisted => {
                    continue;
                }
                Ok(RestoreOutcome::Vanished) => {
                    format!("{setting} is gone, and with it what was changed")
                }
                Ok(RestoreOutcome::Foreign(found)) => {
                    kept.push(chain.merged_entry());
                    chain.left_alone(found.as_deref())
                }
                Err(why) => {
                    kept.push(chain.merged_entry());
                    why
                }
            };
            undone.left.push(HostLeft {
                setting: setting.to_string(),
                why,
            });
        }
        undone.kept = kept.len();
        kept.reverse();
        journal.forget_entries(since, kept)?;
        Ok(undone)
    }
}

/// Makes a folder of this user's alone, and has it on the disk before it returns.
fn make_folder(folder: &Path) -> io::Result<()> {
    DirBuilder::new()
        .recursive(true)
        .mode(0o700)
        .create(folder)?;
    File::open(folder.parent().unwrap_or(Path::new("/")))?.sync_all()
}

/// Returns the lock of a folder, after it waited while another process held it.
fn lock_folder(folder: &Path) -> JournalResult<File> {
    let path = folder.join("lock");
    let lock = open_private(&path).map_err(JournalError::on_path("lock", folder))?;
    let deadline = Instant::now() + TIMEOUT;
    while let Err(error) = flock(&lock, FlockOperation::NonBlockingLockExclusive) {
        if error != rustix::io::Errno::WOULDBLOCK {
            return Err(JournalError::on_path("lock", folder)(error.into()));
        }
        if Instant::now() >= deadline {
            return Err(JournalError::Busy { path });
        }
        std::thread::sleep(Duration::from_millis(20));
    }
    Ok(lock)
}

/// Whoever writes a journal says what is written into the kernel.
fn refuse_foreign(folder: &Path) -> JournalResult {
    const WRITABLE_BY_OTHERS: u32 = 0o022;
    let found = fs::metadata(folder).map_err(JournalError::on_path("read", folder))?;
    let ours = [0, rustix::process::geteuid().as_raw()].contains(&found.uid());
    if ours && found.mode() & WRITABLE_BY_OTHERS == 0 {
        return Ok(());
    }
    let sentence = format!(
        "others may write in {}, and so a journal there; --journal chooses another",
        folder.display()
    );
    Err(JournalError::Unfit(sentence))
}

/// Longest time for which another process may hold the lock.
const TIMEOUT: Duration = Duration::from_secs(10);

/// Returns the writes that `changes` would make here, in order, without settings that have the
/// wanted value already.
///
/// # Errors
/// If a setting cannot be read, or could not be put back.
pub fn preview_changes(
    system: &HostSystem,
    changes: &[Change],
    persist: bool,
) -> JournalResult<Vec<HostChange>> {
    let entries = plan_entries(system, changes, persist)?;
    entries
        .iter()
        .try_for_each(|entry| refuse_inexact(system, entry))?;
    Ok(entries.iter().map(host_change).collect())
}

/// Finds out whether `changes` may be made here and put back exactly, without making any.
///
/// # Errors
/// If a setting cannot be read, may not be written, or could not be put back.
pub fn check_changes(system: &HostSystem, changes: &[Change], persist: bool) -> JournalResult {
    checked_entries(system, changes, persist).map(drop)
}

fn checked_entries(
    system: &HostSystem,
    changes: &[Change],
    persist: bool,
) -> JournalResult<Vec<JournalEntry>> {
    let entries = plan_entries(system, changes, persist)?;
    for entry in &entries {
        entry.setting.check_writable(system)?;
        refuse_inexact(system, entry)?;
    }
    Ok(entries)
}

/// Refuses a change after which not all could be put back.
fn refuse_inexact(system: &HostSystem, entry: &JournalEntry) -> JournalResult {
    let why = entry
        .setting
        .why_not_exact(system, entry.before.as_deref(), entry.wanted.as_deref());
    why.map_or(Ok(()), |why| Err(JournalError::Unfit(why)))
}

fn plan_entries(
    system: &HostSystem,
    changes: &[Change],
    persist: bool,
) -> JournalResult<Vec<JournalEntry>> {
    let mut settings = inspect_host(&system.sysctls)?;
    let mut entries: Vec<JournalEntry> = Vec::new();
    let mut sysctls = BTreeMap::new();
    for change in changes {
        let (setting, wanted) = checked_write(change, &settings)?;
        settings = change.applied_to(&settings);
        if let (Setting::Sysctl(name), Some(text)) = (&setting, &wanted) {
            sysctls.insert(name.clone(), text.clone());
        }
        let earlier = entries.iter().rev().find(|entry| entry.setting == setting);
        let before = earlier.map_or_else(
            || setting.read(system),
            |earlier| Ok(earlier.wanted.clone()),
        )?;
        push_entry(
            &mut entries,
            JournalEntry {
                setting,
                before,
                wanted,
                made: None,
            },
        );
    }
    if persist && !sysctls.is_empty() {
        push_entry(&mut entries, persisted_entry(system, sysctls)?);
    }
    Ok(entries)
}

/// Returns the setting that `change` writes and its text, if both may be in a journal.
fn checked_write(
    change: &Change,
    settings: &HostSettings,
) -> JournalResult<(Setting, Option<String>)> {
    let Some((setting, wanted)) = setting_writes(change, settings) else {
        return Err(JournalError::Unfit(
            "a program makes this change for itself, not the host".to_owned(),
        ));
    };
    if !setting.is_sane() || wanted.as_deref().is_some_and(|text| !is_one_line(text)) {
        return Err(JournalError::Unfit(format!(
            "{setting} is no setting of the network, or its value is no text in one line"
        )));
    }
    Ok((setting, wanted))
}

/// Returns the change of our file in `sysctl.d` that adds `sysctls` to it.
fn persisted_entry(
    system: &HostSystem,
    sysctls: BTreeMap<String, String>,
) -> JournalResult<JournalEntry> {
    let before = Setting::Persisted.read(system)?;
    if !Setting::Persisted.may_have(before.as_deref()) {
        return Err(JournalError::Unfit(format!(
            "{} has lines that are no settings of the network; take them out",
            system.persisted_file().display()
        )));
    }
    let mut all = parse_persisted(before.as_deref().unwrap_or_default());
    all.extend(sysctls);
    Ok(JournalEntry {
        setting: Setting::Persisted,
        before,
        wanted: Some(persisted_text(&all)),
        made: None,
    })
}

fn push_entry(entries: &mut Vec<JournalEntry>, entry: JournalEntry) {
    if !entry
        .setting
        .is_as_asked(entry.before.as_deref(), entry.wanted.as_deref())
    {
        entries.push(entry);
    }
}

/// The settings in a file of `sysctl.d`.
pub(crate) fn parse_persisted(file: &str) -> BTreeMap<String, String> {
    let lines = file
        .lines()
        .map(str::trim)
        .filter(|line| !line.starts_with(['#', ';']));
    let settings = lines.filter_map(|line| line.split_once('='));
    // A minus allows the setting to fail (sysctl.d(5)).
    settings
        .map(|(name, value)| {
            (
                name.trim().trim_start_matches('-').to_owned(),
                value.trim().to_owned(),
            )
        })
        .collect()
}

fn persisted_text(settings: &BTreeMap<String, String>) -> String {
    let head =
        "# Written by `fullpipe host apply --persist`; `fullpipe host undo` takes it away.\n";
    settings
        .iter()
        .fold(head.to_owned(), |text, (name, value)| {
            text + &format!("{name} = {value}\n")
        })
}

fn host_change(entry: &JournalEntry) -> HostChange {
    let [from, to] = [&entry.before, &entry.wanted].map(|text| {
        text.as_deref()
            .map(|text| entry.setting.display_value(text))
    });
    HostChange {
        setting: entry.setting.to_string(),
        from,
        to,
    }
}

fn whole_seconds(span: Span) -> u64 {
    span.as_nanos().div_ceil(1_000_000_000)
}

/// A name for an apply that no other has.
fn new_id() -> io::Result<String> {
    Ok(format!("{:016x}", u64::from_ne_bytes(random_bytes()?)))
}

fn no_id(cause: io::Error) -> JournalError {
    JournalError::Kernel {
        what: "a name for it",
        cause,
    }
}
