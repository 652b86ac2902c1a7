//! Records of diagnosis cases as JSON files, from which the verdict on a case can be computed again
//! without a network.

use std::fs;
use std::io;
use std::path::Path;

use fullpipe_record::{
    Evidence, Framing, LegalVerdict, Measurement, Prediction, Request, Sample, Steady, Transfer,
    Validity,
};
use fullpipe_units::{BitRate, Span};
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::accuracy::RemedyResult;
use crate::records::file_name;

/// Result of running one diagnosis case, as stored in a JSON file.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(crate) struct CaseRecord {
    /// Name of the case, such as `loss/random 20M×150ms cubic 0.25`.
    pub(crate) name: String,
    /// Verdict that the diagnosis must reach, because the case causes this limit on purpose; JSON
    /// key `label`.
    #[serde(rename = "label")]
    pub(crate) expected_verdict: LegalVerdict,
    /// Rate of the path from sender to receiver, counted at layer `framing`; `None` if the path has
    /// no rate limit.
    pub(crate) bandwidth: Option<BitRate>,
    /// Layer at which `bandwidth` counts bytes.
    pub(crate) framing: Framing,
    /// Prediction from the path, the settings of both hosts and the load; the model does not know
    /// of anything else that the case adds, such as cross traffic or a slow program.
    pub(crate) prediction: Prediction,
    /// Measured load; JSON key `measurement` or `watched`.
    #[serde(flatten)]
    pub(crate) observation: Observation,
    /// Result of the best remedy; JSON key `proof`. `None` if no remedy was applied, or if the run
    /// with the remedy was invalid or had no steady part.
    #[serde(default, rename = "proof")]
    pub(crate) remedy_result: Option<RemedyResult>,
}

/// Measured load of a case: of its first valid run, or of the last run if every run was invalid.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(crate) enum Observation {
    /// Load that `fullpipe measure` produced; JSON key `measurement`.
    #[serde(rename = "measurement")]
    Measured(Box<Measurement>),
    /// Transfer of another program, which `fullpipe diagnose` watched; JSON key `watched`.
    #[serde(rename = "watched")]
    Watched(Box<Watched>),
}

/// Transfer of another program, watched at the sending host only: the evidence holds nothing from
/// the receiving host.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(crate) struct Watched {
    /// Program, connections, byte count and mean rate of the transfer.
    pub(crate) transfer: Transfer,
    /// Evidence from which the diagnosis derives the limit of the transfer.
    pub(crate) evidence: Evidence,
    /// Validity of the run: whether the emulated path behaved as specified.
    pub(crate) validity: Validity,
}

impl Observation {
    /// Returns the validity of the run.
    pub(crate) fn validity(&self) -> &Validity {
        match self {
            Self::Measured(measurement) => &measurement.validity,
            Self::Watched(watched) => &watched.validity,
        }
    }

    /// Returns the validity of the run, to be changed.
    pub(crate) fn validity_mut(&mut self) -> &mut Validity {
        match self {
            Self::Measured(measurement) => &mut measurement.validity,
            Self::Watched(watched) => &mut watched.validity,
        }
    }

    /// Returns the request that describes the load.
    pub(crate) fn request(&self) -> &Request {
        match self {
            Self::Measured(measurement) => &measurement.request,
            Self::Watched(watched) => &watched.evidence.request,
        }
    }

    /// Returns the steady part of the transfer; `None` if the transfer had no steady part.
    pub(crate) fn steady(&self) -> Option<Steady> {
        match self {
            Self::Measured(measurement) => measurement.summary.steady,
            Self::Watched(watched) => watched.evidence.steady,
        }
    }

    /// Returns the median round-trip time under load, where it was measured.
    pub(crate) fn loaded_rtt(&self) -> Option<Span> {
        match self {
            Self::Measured(measurement) => measurement.rtt.loaded.map(|rtt| rtt.median),
            Self::Watched(watched) => watched.evidence.loaded_rtt,
        }
    }

    /// Returns the rate of the steady part, or the mean rate of the transfer if there is no steady
    /// part.
    pub(crate) fn rate(&self) -> BitRate {
        let mean = match self {
            Self::Measured(measurement) => measurement.summary.rate,
            Self::Watched(watched) => watched.transfer.rate,
        };
        self.steady().map_or(mean, |steady| steady.rate)
    }

    /// Removes samples so that the kept samples of each stream are at least [`MIN_SAMPLE_SPACING`]
    /// apart, multiplied by the number of streams up to [`MAX_SPACING_FACTOR`]. The last sample of
    /// each stream is always kept.
    pub(crate) fn thin(&mut self) {
        let spacing =
            MIN_SAMPLE_SPACING * u64::from(self.request().streams).clamp(1, MAX_SPACING_FACTOR);
        let endpoints = match self {
            Self::Measured(measurement) => [
                &mut measurement.local.samples,
                &mut measurement.remote.samples,
            ],
            Self::Watched(watched) => [
                &mut watched.evidence.sender_samples,
                &mut watched.evidence.receiver_samples,
            ],
        };
        for samples in endpoints {
            *samples = thinned(samples, spacing);
        }
    }
}

/// Minimum time between two kept samples of a stream in a record with one stream.
const MIN_SAMPLE_SPACING: Span = Span::from_millis(50);

/// Largest factor by which the number of streams multiplies [`MIN_SAMPLE_SPACING`].
const MAX_SPACING_FACTOR: u64 = 4;

impl CaseRecord {
    /// Returns the evidence of this record with `bandwidth` as the bandwidth that a user states;
    /// `None` if the user states none.
    pub(crate) fn evidence(&self, bandwidth: Option<BitRate>) -> Evidence {
        match &self.observation {
            Observation::Measured(measurement) => {
                Evidence::from_measurement(measurement, bandwidth, self.framing)
            }
            Observation::Watched(watched) => Evidence {
                bandwidth,
                framing: self.framing,
                ..watched.evidence.clone()
            },
        }
    }

    /// Writes this record to `NAME.json` in `folder`, where NAME is the result of [`file_name`].
    /// Creates the folder if it does not exist and replaces an existing file.
    ///
    /// # Errors
    /// Fails if the record cannot be converted to JSON, or if the folder cannot be created or the
    /// file written.
    pub(crate) fn write(&self, folder: &Path) -> io::Result<()> {
        let mut value = serde_json::to_value(self)?;
        without_nulls(&mut value);
        fs::create_dir_all(folder)?;
        fs::write(
            folder.join(format!("{}.json", file_name(&self.name))),
            serde_json::to_vec(&value)?,
        )
    }
}

/// Returns the samples of each stream that are at least `spacing` after the previous kept sample of
/// the same stream, and the last sample of each stream.
fn thinned(samples: &[Sample], spacing: Span) -> Vec<Sample> {
    let mut kept: Vec<Sample> = Vec::new();
    for (index, sample) in samples.iter().enumerate() {
        let previous = kept
            .iter()
            .rev()
            .find(|earlier| earlier.stream == sample.stream);
        let is_last = !samples[index + 1..]
            .iter()
            .any(|later| later.stream == sample.stream);
        if is_last
            || previous.is_none_or(|previous| sample.at.saturating_sub(previous.at) >= spacing)
        {
            kept.push(sample.clone());
        }
    }
    kept
}

/// Removes every object field that is null, at every depth; most fields of a sample are null.
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
    use crate::records::read_all;
    use fullpipe_record::TcpInfo;
    use fullpipe_units::ByteCount;

    fn sample(millis: u64, stream: u16) -> Sample {
        let bytes = ByteCount::new(millis);
        Sample {
            at: Span::from_millis(millis),
            stream,
            bytes,
            tcp: TcpInfo::default(),
            memory: None,
        }
    }

    #[test]
    fn thinning_keeps_spaced_samples_and_the_last_one_of_each_stream() {
        let all: Vec<Sample> = (0..=11)
            .flat_map(|index| [sample(index * 10, 0), sample(index * 10, 1)])
            .collect();
        let kept: Vec<(u64, u16)> = thinned(&all, MIN_SAMPLE_SPACING)
            .iter()
            .map(|sample| (sample.at.as_micros() / 1000, sample.stream))
            .collect();
        assert_eq!(
            kept,
            [
                (0, 0),
                (0, 1),
                (50, 0),
                (50, 1),
                (100, 0),
                (100, 1),
                (110, 0),
                (110, 1)
            ]
        );
    }

    #[test]
    fn a_sample_without_null_fields_is_read_as_the_same_sample() {
        let before = sample(7, 3);
        let mut value = serde_json::to_value(&before).unwrap();
        without_nulls(&mut value);
        assert!(!value.to_string().contains("null"));
        assert_eq!(serde_json::from_value::<Sample>(value).unwrap(), before);
    }

    #[test]
    fn records_of_both_kinds_are_read_back_unchanged() {
        let measured: CaseRecord =
            serde_json::from_str(include_str!("../recorded/diagnosis.json")).unwrap();
        let evidence = Evidence {
            program: Some("ssh".to_owned()),
            ..measured.evidence(None)
        };
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
        let validity = measured.observation.validity().clone();
        let watched = Watched {
            transfer,
            evidence,
            validity,
        };
        let name = "application-window/ssh-channel".to_owned();
        let watched = CaseRecord {
            name,
            observation: Observation::Watched(Box::new(watched)),
            ..measured.clone()
        };
        let folder = tempfile::tempdir().unwrap();
        for record in [&watched, &measured] {
            record.write(folder.path()).unwrap();
        }
        assert_eq!(
            read_all::<CaseRecord>(folder.path()).unwrap(),
            [watched.clone(), measured]
        );
        let stated = watched.evidence(Some(BitRate::from_mbps(200)));
        assert_eq!(
            (stated.program.as_deref(), stated.bandwidth),
            (Some("ssh"), Some(BitRate::from_mbps(200)))
        );
    }
}
