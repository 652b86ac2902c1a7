//! Signals of a transfer: what samples and packets show, each from whatever view there is.

pub(crate) mod arrival_course;
pub(crate) mod arrivals;
pub(crate) mod capture;
mod first_packets;
pub(crate) mod loss_episodes;
pub(crate) mod losses;
pub(crate) mod machine;
pub(crate) mod path;
pub(crate) mod policer_rate;
pub(crate) mod sender;
pub(crate) mod snapshot;
pub(crate) mod spread;
pub(crate) mod stream;
pub(crate) mod syn_quotes;
pub(crate) mod view;

pub(crate) use arrival_course::ArrivalCourse;
pub(crate) use arrivals::ReceiverView;
pub(crate) use capture::CaptureView;
pub(crate) use loss_episodes::LossEpisodes;
pub(crate) use sender::{
    RetransmittedSegments, SenderView, share_of_votes, size_ratio, time_ratio,
};
pub(crate) use snapshot::JudgedSample;
pub(crate) use stream::SenderStream;
pub(crate) use view::{SeenEnd, TransferView};

/// A row of the figures that decided: its name, and its text where the evidence has it.
pub(crate) type Row = (&'static str, Option<String>);
