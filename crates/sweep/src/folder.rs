//! Sweeps as folders of documents: the plan, and one for each run.

use std::fs::{self, File};
use std::io::{self, ErrorKind, Write};
use std::path::{Path, PathBuf};

use fullpipe_record::{Content, Document, SweepPlan, SweepRun, SweepRunRecord};
use thiserror::Error;

/// Name of the document with the plan.
const PLAN: &str = "plan.json";

/// The folder of a sweep.
#[derive(Debug)]
pub struct Folder(PathBuf);

/// A sweep that was kept.
#[derive(Debug)]
pub struct Kept {
    /// Its folder.
    pub folder: Folder,
    /// Its plan.
    pub plan: SweepPlan,
    /// Its runs so far.
    pub runs: Vec<SweepRun>,
}

/// Why a document was not written or read.
#[derive(Debug, Error)]
pub enum FolderError {
    /// The file system refuses.
    #[error("cannot {what} {}: {cause}", path.display())]
    Io {
        /// The operation.
        what: &'static str,
        /// The file.
        path: PathBuf,
        /// The reason.
        cause: io::Error,
    },
    /// The file does not hold what it should.
    #[error("{} is not the {what} of a sweep: {cause}", path.display())]
    Malformed {
        /// The kind of document.
        what: &'static str,
        /// The file.
        path: PathBuf,
        /// The reason.
        cause: String,
    },
    /// There is nothing to go on with.
    #[error("no sweep is kept in {}", .0.display())]
    Nothing(PathBuf),
}

impl Folder {
    /// Makes the folder of a new sweep under `root`, with its plan.
    ///
    /// # Errors
    /// Fails if there is one with this name, or the file system refuses.
    pub fn create(root: &Path, plan: &SweepPlan) -> Result<Self, FolderError> {
        let folder = root.join(&plan.id);
        fs::create_dir_all(root).map_err(|cause| io_error("make", root, cause))?;
        fs::create_dir(&folder).map_err(|cause| io_error("make", &folder, cause))?;
        let folder = Self(folder);
        folder.write(PLAN, Content::SweepPlan { sweep_plan: Box::new(plan.clone()) })?;
        Ok(folder)
    }

    /// Reads the sweep `id` under `root`, or the one that began last.
    ///
    /// # Errors
    /// Fails if there is none, or a document cannot be read.
    pub fn open(root: &Path, id: Option<&str>) -> Result<Kept, FolderError> {
        let folder = match id {
            // An id names a folder here, and no other place.
            Some(id) if Path::new(id).file_name().is_some_and(|name| name == id) => root.join(id),
            Some(id) => return Err(FolderError::Nothing(root.join(id))),
            None => latest(root)?,
        };
        if !folder.join(PLAN).exists() {
            return Err(FolderError::Nothing(folder));
        }
        let plan = match read(&folder.join(PLAN), "plan")? {
            Content::SweepPlan { sweep_plan } => *sweep_plan,
            _ => return Err(malformed(&folder.join(PLAN), "plan", "it is a document of another kind")),
        };
        let mut runs = Vec::new();
        loop {
            let file = folder.join(file_name(runs.len()));
            if !file.exists() {
                break;
            }
            match read(&file, "run")? {
                Content::SweepRun { sweep_run } => runs.push(sweep_run.run),
                _ => return Err(malformed(&file, "run", "it is a document of another kind")),
            }
        }
        Ok(Kept { folder: Self(folder), plan, runs })
    }

    /// Keeps a run; once this returns, a loss of power does not take it away.
    ///
    /// # Errors
    /// Fails if a run with this number is kept already, or the file system refuses.
    pub fn keep(&self, record: SweepRunRecord) -> Result<(), FolderError> {
        let name = file_name(record.number as usize);
        self.write(&name, Content::SweepRun { sweep_run: Box::new(record) })
    }

    fn write(&self, name: &str, content: Content) -> Result<(), FolderError> {
        let (file, unfinished) = (self.0.join(name), self.0.join(format!(".{name}.{}", std::process::id())));
        let text = serde_json::to_vec(&Document::new(content))
            .map_err(|cause| malformed(&file, "document", &cause.to_string()))?;
        let written = write_synced(&unfinished, &text).and_then(|()| fs::hard_link(&unfinished, &file));
        let removed = fs::remove_file(&unfinished);
        written.and(removed).map_err(|cause| io_error("write", &file, cause))?;
        File::open(&self.0).and_then(|folder| folder.sync_all()).map_err(|cause| io_error("sync", &self.0, cause))
    }
}

fn write_synced(path: &Path, text: &[u8]) -> io::Result<()> {
    let mut file = File::create(path)?;
    file.write_all(text)?;
    file.sync_all()
}

fn file_name(number: usize) -> String {
    format!("{number:04}.json")
}

/// Returns the folder whose name is last: names begin with the time.
fn latest(root: &Path) -> Result<PathBuf, FolderError> {
    let entries = match fs::read_dir(root) {
        Err(cause) if cause.kind() == ErrorKind::NotFound => return Err(FolderError::Nothing(root.to_owned())),
        entries => entries.map_err(|cause| io_error("read", root, cause))?,
    };
    let folders = entries.filter_map(Result::ok).map(|entry| entry.path()).filter(|path| path.join(PLAN).exists());
    folders.max().ok_or_else(|| FolderError::Nothing(root.to_owned()))
}

fn read(path: &Path, what: &'static str) -> Result<Content, FolderError> {
    let text = fs::read(path).map_err(|cause| io_error("read", path, cause))?;
    let document: Document =
        serde_json::from_slice(&text).map_err(|cause| malformed(path, what, &cause.to_string()))?;
    Ok(document.content)
}

fn io_error(what: &'static str, path: &Path, cause: io::Error) -> FolderError {
    FolderError::Io { what, path: path.to_owned(), cause }
}

fn malformed(path: &Path, what: &'static str, cause: &str) -> FolderError {
    FolderError::Malformed { what, path: path.to_owned(), cause: cause.to_owned() }
}
