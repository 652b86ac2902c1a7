//! The names that most causes use.

pub(super) use super::{Cause, CauseNames, SenderSentence};
pub(super) use crate::advice::{ManualRemedy, RemedyAdvice};
pub(super) use crate::finding::{Finding, candidate_sets};
pub(super) use crate::gates::EvidenceAmount;
pub(super) use crate::prelude::*;
pub(super) use crate::signals::path::stated_capacity;
pub(super) use crate::signals::{
    CaptureView, ReceiverView, SenderStream, SenderView, TransferView, share_of_votes,
};
pub(super) use crate::text::{size_text, time_text};
pub(super) use crate::thresholds::{FEW_SEGMENTS, MIN_LIMIT_SHARE};
