//! A run of a case as it is kept: enough to judge it again without a network.

use std::fs;
use std::io;
use std::path::Path;

use fullpipe_record::{
    Evidence, Forecast, Framing, LegalVerdict, Measurement, Prediction, Request, Sample, Steady, Transfer, Validity,
};
use fullpipe_units::{BitRate, Span};
use serde::{Deserialize, Serialize};
use serde_json::Value;

/// A case that was run.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(crate) struct Recorded {
    /// Name of the case.
    pub(crate) name: String,
    /// The planted limit.
    pub(crate) label: LegalVerdict,
    /// Bandwidth of the path, as `framing` counts it: the figure that a user may state.
    pub(crate) bandwidth: Option<BitRate>,
    /// Layer at which the bandwidth counts bytes.
    pub(crate) framing: Framing,
    /// Prediction from path, settings and load; the model does not know the other plants.
    pub(crate) prediction: Prediction,
    /// Measured load: in the file `measurement` or `watched`.
    #[serde(flatten)]
    pub(crate) seen: Seen,
    /// Result of the best remedy that can be applied, where there is one and it was tried.
    #[serde(default)]
    pub(crate) proof: Option<Proven>,
}

/// A measured load; invalid where no run was valid.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(crate) enum Seen {
    /// A measurement of fullpipe's.
    #[serde(rename = "measurement")]
    Measured(Box<Measurement>),
    /// Another program's transfer.
    #[serde(rename = "watched")]
    Watched(Box<Watched>),
}

/// A transfer of another program, which only the end that sends has seen: every column judges it from there.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(crate) struct Watched {
    /// Whose, and how much.
    pub(crate) transfer: Transfer,
    /// Evidence of its limit.
    pub(crate) evidence: Evidence,
    /// Validity of the run.
    pub(crate) validity: Validity,
}

impl Seen {
    /// Validity of the run.
    pub(crate) fn validity(&self) -> &Validity {
        match self {
            Self::Measured(measurement) => &measurement.validity,
            Self::Watched(watched) => &watched.validity,
        }
    }

    /// The load.
    pub(crate) fn request(&self) -> &Request {
        match self {
            Self::Measured(measurement) => &measurement.request,
            Self::Watched(watched) => &watched.evidence.request,
        }
    }

    /// The steady part, where it had one.
    pub(crate) fn steady(&self) -> Option<Steady> {
        match self {
            Self::Measured(measurement) => measurement.summary.steady,
            Self::Watched(watched) => watched.evidence.steady,
        }
    }

    /// The steady rate, or the mean where there is none.
    pub(crate) fn rate(&self) -> BitRate {
        let mean = match self {
            Self::Measured(measurement) => measurement.summary.rate,
            Self::Watched(watched) => watched.transfer.rate,
        };
        self.steady().map_or(mean, |steady| steady.rate)
    }

    /// Leaves the samples of each stream that are [`KEEP_EVERY`] apart or more, and the last.
    pub(crate) fn thin(&mut self) {
        let apart = KEEP_EVERY * u64::from(self.request().streams).clamp(1, MAX_TIMES);
        let ends = match self {
            Self::Measured(seen) => [&mut seen.local.samples, &mut seen.remote.samples],
            Self::Watched(seen) => [&mut seen.evidence.sender_samples, &mut seen.evidence.receiver_samples],
        };
        for samples in ends {
            *samples = thinned(samples, apart);
        }
    }
}

/// A remedy that was applied.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Proven {
    /// Its name.
    pub(crate) remedy: String,
    /// The prediction.
    pub(crate) predicted: Forecast,
    /// The steady rate that was measured.
    pub(crate) measured: BitRate,
}

/// Samples of one stream are kept no closer together than this, times the number of streams up to four.
const KEEP_EVERY: Span = Span::from_millis(50);
const MAX_TIMES: u64 = 4;

impl Recorded {
    /// Reads all records of a folder, in the order of their names.
    ///
    /// # Errors
    /// Errors of the file system; a file that is no record, with its name.
    pub(crate) fn read_all(folder: &Path) -> io::Result<Vec<Self>> {
        let mut files: Vec<_> = fs::read_dir(folder)?
            .filter_map(|entry| Some(entry.ok()?.path()))
            .filter(|path| path.extension().is_some_and(|extension| extension == "json"))
            .collect();
        files.sort();
        let read = |path: &std::path::PathBuf| {
            let text = fs::read(path)?;
            serde_json::from_slice(&text)
                .map_err(|error| io::Error::new(io::ErrorKind::InvalidData, format!("{}: {error}", path.display())))
        };
        files.iter().map(read).collect()
    }

    /// Returns the evidence, where the user states this `bandwidth`.
    pub(crate) fn evidence(&self, bandwidth: Option<BitRate>) -> Evidence {
        match &self.seen {
            Seen::Measured(measurement) => Evidence::of(measurement, bandwidth, self.framing),
            Seen::Watched(watched) => Evidence { bandwidth, framing: self.framing, ..watched.evidence.clone() },
        }
    }

    /// Writes it into `folder`, under its name.
    ///
    /// # Errors
    /// Errors of the file system.
    pub(crate) fn write(&self, folder: &Path) -> io::Result<()> {
        let mut value = serde_json::to_value(self)?;
        without_nulls(&mut value);
        fs::create_dir_all(folder)?;
        fs::write(folder.join(format!("{}.json", file_name(&self.name))), serde_json::to_vec(&value)?)
    }
}

/// The name with nothing that a shell would have to quote.
fn file_name(name: &str) -> String {
    name.chars().map(|c| if c.is_ascii_alphanumeric() || c == '.' { c } else { '-' }).collect()
}

fn thinned(samples: &[Sample], apart: Span) -> Vec<Sample> {
    let mut kept: Vec<Sample> = Vec::new();
    for (index, sample) in samples.iter().enumerate() {
        let before = kept.iter().rev().find(|earlier| earlier.stream == sample.stream);
        let is_last = !samples[index + 1..].iter().any(|later| later.stream == sample.stream);
        if is_last || before.is_none_or(|before| sample.at.saturating_sub(before.at) >= apart) {
            kept.push(sample.clone());
        }
    }
    kept
}

/// Leaves out unknown fields, as most fields of a sample are.
fn without_nulls(value: &mut Value) {
    match value {
        Value::Object(fields) => {
            fields.retain(|_, field| !field.is_null());
            fields.values_mut().for_each(without_nulls);
        }
        Value::Array(items) => items.iter_mut().for_each(without_nulls),
        _ => {}
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use fullpipe_record::TcpInfo;
    use fullpipe_units::ByteCount;

    fn sample(millis: u64, stream: u16) -> Sample {
        let bytes = ByteCount::new(millis);
        Sample { at: Span::from_millis(millis), stream, bytes, tcp: TcpInfo::default(), memory: None }
    }

    #[test]
    fn each_stream_keeps_samples_apart_and_its_last() {
        let all: Vec<Sample> = (0..=11).flat_map(|tenth| [sample(tenth * 10, 0), sample(tenth * 10, 1)]).collect();
        let kept: Vec<(u64, u16)> =
            thinned(&all, KEEP_EVERY).iter().map(|sample| (sample.at.as_micros() / 1000, sample.stream)).collect();
        assert_eq!(kept, [(0, 0), (0, 1), (50, 0), (50, 1), (100, 0), (100, 1), (110, 0), (110, 1)]);
    }

    #[test]
    fn a_sample_without_its_nulls_is_the_same() {
        let before = sample(7, 3);
        let mut value = serde_json::to_value(&before).unwrap();
        without_nulls(&mut value);
        assert!(!value.to_string().contains("null"));
        assert_eq!(serde_json::from_value::<Sample>(value).unwrap(), before);
    }

    #[test]
    fn a_watched_transfer_is_read_as_it_was_written() {
        let measured: Recorded = serde_json::from_str(include_str!("../recorded/diagnosis.json")).unwrap();
        let evidence = Evidence { program: Some("ssh".to_owned()), ..measured.evidence(None) };
        let transfer = Transfer {
            program: evidence.program.clone(),
            pid: None,
            local: "198.18.0.1:40000".to_owned(),
            remote: "198.18.0.2:2222".to_owned(),
            streams: 1,
            direction: evidence.request.direction,
            bytes: ByteCount::from_mib(90),
            watched: Span::from_secs(7),
            rate: BitRate::from_mbps(105),
            closed: false,
        };
        let validity = measured.seen.validity().clone();
        let watched = Watched { transfer, evidence, validity };
        let name = "application-window/ssh-channel".to_owned();
        let watched = Recorded { name, seen: Seen::Watched(Box::new(watched)), ..measured.clone() };
        let folder = tempfile::tempdir().unwrap();
        for record in [&watched, &measured] {
            record.write(folder.path()).unwrap();
        }
        assert_eq!(Recorded::read_all(folder.path()).unwrap(), [watched.clone(), measured]);
        let stated = watched.evidence(Some(BitRate::from_mbps(200)));
        assert_eq!((stated.program.as_deref(), stated.bandwidth), (Some("ssh"), Some(BitRate::from_mbps(200))));
    }

    #[test]
    fn a_file_has_a_name_that_needs_no_quotes() {
        assert_eq!(file_name("loss/random 20M×150ms cubic 0.25"), "loss-random-20M-150ms-cubic-0.25");
    }
}
