use fullpipe_record::{Candidate, Request, UnknownVerdict};

use crate::prelude::*;

/// A limit that a rule found.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Finding {
    pub(crate) verdict: LegalVerdict,
    /// Share of the judged time in which it held.
    pub(crate) share: Ratio,
    /// Names of the figures that a verdict would need, where nothing was found.
    pub(crate) missing: Vec<&'static str>,
    /// The verdicts of which the evidence shows each as much as this one.
    pub(crate) candidates: Option<&'static CandidateSet>,
}

impl Finding {
    pub(crate) fn new(verdict: impl Into<LegalVerdict>, share: Ratio) -> Self {
        Self {
            verdict: verdict.into(),
            share,
            missing: Vec::new(),
            candidates: None,
        }
    }

    /// Returns a limit that held all of the time.
    pub(crate) fn always(verdict: impl Into<LegalVerdict>) -> Self {
        Self::new(verdict, Ratio::ONE)
    }

    pub(crate) fn unknown_limit(missing: Vec<&'static str>) -> Self {
        Self {
            missing,
            ..Self::new(UnknownVerdict::EvidenceMissing, Ratio::ZERO)
        }
    }

    /// Returns this finding as one that the evidence does not distinguish from others of `set`.
    pub(crate) fn one_of(self, set: &'static CandidateSet) -> Self {
        Self {
            candidates: Some(set),
            ..self
        }
    }

    pub(crate) const fn limit_kind(&self) -> Limit {
        self.verdict.limit_kind()
    }

    /// Returns true if this is `verdict`.
    pub(crate) fn is(&self, verdict: impl Into<LegalVerdict>) -> bool {
        self.verdict == verdict.into()
    }

    /// Returns true if this is a limit of kind `limit`, or may be one as much.
    pub(crate) fn may_be(&self, limit: Limit) -> bool {
        let mut others = self.candidates.iter().flat_map(|set| set.verdicts);
        self.limit_kind() == limit || others.any(|other| other.limit_kind() == limit)
    }

    /// Returns another verdict that held for the same share.
    pub(crate) fn as_verdict(&self, verdict: impl Into<LegalVerdict>) -> Self {
        Self::new(verdict, self.share)
    }
}

/// Verdicts that a view cannot distinguish, and what would show which is right.
#[derive(Debug, PartialEq)]
pub(crate) struct CandidateSet {
    views: &'static [Basis],
    /// At most four, with the one that was found or without it.
    verdicts: &'static [LegalVerdict],
    would_distinguish: &'static str,
}

impl CandidateSet {
    /// Returns a set of every view.
    pub(crate) const fn new(
        verdicts: &'static [LegalVerdict],
        would_distinguish: &'static str,
    ) -> Self {
        assert!(verdicts.len() <= 4, "a reader can follow no more");
        let views = &[
            Basis::BothEnds,
            Basis::Sender,
            Basis::Receiver,
            Basis::Capture,
        ];
        Self {
            views,
            verdicts,
            would_distinguish,
        }
    }

    /// Returns the set for some views; others show more.
    pub(crate) const fn in_views(self, views: &'static [Basis]) -> Self {
        Self { views, ..self }
    }
}

/// The verdicts of each limit, by its name.
pub(crate) mod causes {
    pub(crate) use fullpipe_record::{
        CapacityVerdict as Capacity, CongestionWindowVerdict as CongestionWindow,
        CpuVerdict as Cpu, LossVerdict as Loss, MtuVerdict as Mtu, PacingVerdict as Pacing,
        ReceiveWindowVerdict as ReceiveWindow, ReceiverApplicationVerdict as ReceiverApplication,
        SendBufferVerdict as SendBuffer, SenderApplicationVerdict as SenderApplication,
    };
}

/// Declares sets of verdicts that a view cannot distinguish, each as `Limit Cause`, with what would
/// show which is right; `in` some views where others show more.
macro_rules! candidate_sets {
    ($(
        $(#[$about:meta])*
        $visible:vis $name:ident: [$($limit:ident $cause:ident),*] $(in [$($view:ident),+])?,
            $would_distinguish:literal;
    )+) => {$(
        $(#[$about])*
        $visible const $name: $crate::finding::CandidateSet = $crate::finding::CandidateSet::new(
            &[$(fullpipe_record::LegalVerdict::$limit($crate::finding::causes::$limit::$cause)),*],
            $would_distinguish,
        )$(.in_views(&[$(fullpipe_record::Basis::$view),+]))?;
    )+};
}

pub(crate) use candidate_sets;

/// Returns true if the kernel may have tuned the buffer of a verdict: the `request` for it is known
/// otherwise.
fn may_be_tuned(verdict: LegalVerdict, request: &Request) -> bool {
    match verdict {
        LegalVerdict::ReceiveWindow(ReceiveWindowVerdict::TcpRmemMax) => {
            request.receive_buffer() == Buffer::Automatic
        }
        LegalVerdict::SendBuffer(SendBufferVerdict::TcpWmemMax) => {
            request.send_buffer() == Buffer::Automatic
        }
        _ => true,
    }
}

/// Returns the verdicts that `view` cannot distinguish from `found`, itself first, and what would
/// show which is right; none where the evidence or the `request` decides.
pub(crate) fn find_candidates(
    view: Basis,
    found: &Finding,
    request: &Request,
) -> (Vec<Candidate>, Option<String>) {
    let Some(set) = found.candidates.filter(|set| set.views.contains(&view)) else {
        return (Vec::new(), None);
    };
    let others: Vec<LegalVerdict> = (set.verdicts.iter().copied())
        .filter(|verdict| *verdict != found.verdict && may_be_tuned(*verdict, request))
        .collect();
    if others.is_empty() {
        return (Vec::new(), None);
    }
    let all = std::iter::once(found.verdict).chain(others);
    let all = all.map(Candidate::from).collect();
    (all, Some(set.would_distinguish.to_owned()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use fullpipe_record::LossVerdict;

    #[test]
    fn a_finding_that_is_sure_has_no_candidates_and_another_is_the_first() {
        const SET: CandidateSet = CandidateSet::new(
            &[
                LegalVerdict::Loss(LossVerdict::Random),
                LegalVerdict::Loss(LossVerdict::Policer),
            ],
            "a capture",
        )
        .in_views(&[Basis::Receiver]);
        let sure = Finding::new(LossVerdict::Policer, Ratio::ONE);
        let seen = |view, found: &Finding| find_candidates(view, found, &Request::default());
        assert!(seen(Basis::Receiver, &sure).0.is_empty());
        let unsure = sure.one_of(&SET);
        assert!(
            seen(Basis::BothEnds, &unsure).0.is_empty(),
            "the view decides"
        );
        let (all, would_distinguish) = seen(Basis::Receiver, &unsure);
        let expected = [LossVerdict::Policer, LossVerdict::Random]
            .map(|cause| Candidate::from(LegalVerdict::from(cause)));
        assert_eq!(all, expected);
        assert!(would_distinguish.is_some());
    }

    #[test]
    fn a_buffer_that_was_asked_for_is_none_that_the_kernel_tuned() {
        const SET: CandidateSet = CandidateSet::new(
            &[LegalVerdict::SendBuffer(SendBufferVerdict::TcpWmemMax)],
            "the request",
        );
        let found = Finding::new(SendBufferVerdict::SoSndbuf, Ratio::ONE).one_of(&SET);
        let fixed = Request {
            buffer: Buffer::Request(fullpipe_units::ByteCount::from_kib(64)),
            ..Request::default()
        };
        let count = |request| find_candidates(Basis::Receiver, &found, request).0.len();
        assert_eq!([count(&Request::default()), count(&fixed)], [2, 0]);
    }
}
