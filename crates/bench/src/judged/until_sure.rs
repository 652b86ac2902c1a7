//! Transfers that end once their result is sure, held against the whole ones.

use std::fmt::Write as _;

use fullpipe_diagnose::{diagnose, sure_result};
use fullpipe_record::{Evidence, SureBound, TransferProgress};
use fullpipe_units::{Span, median};

use super::record::Record;
use super::view::{JudgedView, Judgement};

/// Time between two looks at whether the result is sure.
const LOOK: Span = Span::from_millis(200);

/// A rate is that of the whole transfer within this share.
const NEAR: f64 = 0.05;

/// A transfer that ended once its result was sure, and the whole one.
#[derive(Debug)]
struct EndedTransfer {
    /// Time at which it ended; that of the whole transfer where it never was sure.
    ended: Span,
    /// Verdicts when it ended: by the end that decided that, and by both ends.
    early: [Judgement; 2],
    /// The same of the whole transfer.
    whole: [Judgement; 2],
    /// Steady rate when it ended ÷ that of the whole transfer.
    rate_share: f64,
    /// Bytes when it ended ÷ those of the whole transfer.
    bytes_share: f64,
}

/// Returns how often transfers that end once their result is sure are as right as the whole ones,
/// where the sending end decides, and where the receiving end does.
pub(crate) fn until_sure_text(records: &[Record]) -> String {
    [JudgedView::Sender, JudgedView::Receiver]
        .map(|view| {
            let counted = records.iter().filter(|one| one.left_out().is_none());
            let ended = counted.filter_map(|record| EndedTransfer::from_record(record, view));
            view_text(view, &ended.collect::<Vec<_>>())
        })
        .concat()
}

impl EndedTransfer {
    fn from_record(record: &Record, own_view: JudgedView) -> Option<Self> {
        let evidence = record.evidence.as_ref()?;
        let views = [own_view, JudgedView::BothEnds];
        let whole = views.map(|view| view.evidence(evidence, record.stated()));
        let last = whole[0].last_sample_at();
        let ended = first_sure(&whole[0]).unwrap_or(last);
        let early = whole.each_ref().map(|evidence| {
            if ended < last {
                evidence.up_to(ended)
            } else {
                evidence.clone()
            }
        });
        let progress = TransferProgress::from_samples(&evidence.sender_samples, last);
        let rate = |evidence: &Evidence| {
            let steady = evidence.steady.map(|steady| steady.rate);
            steady
                .unwrap_or_else(|| progress.mean_rate(Span::ZERO, last))
                .as_f64()
        };
        let bytes = |at| progress.bytes_at(at).as_f64();
        Some(Self {
            ended,
            rate_share: share(rate(&early[0]), rate(&whole[0])),
            bytes_share: share(bytes(ended), bytes(last)),
            early: judge_each(record, views, &early),
            whole: judge_each(record, views, &whole),
        })
    }

    fn is_rate_near(&self) -> bool {
        (self.rate_share - 1.0).abs() <= NEAR
    }

    /// Returns true if the whole transfer is judged rightly by both ends, and the part is not; or
    /// the other way round if `early` is set.
    fn is_right_only(&self, early: bool) -> bool {
        let [of_part, of_whole] = [&self.early, &self.whole].map(|judged| judged[1].is_right());
        of_part != of_whole && of_part == early
    }

    fn line(&self) -> String {
        let said = [&self.early, &self.whole].map(|judged| judged.each_ref().map(Judgement::said));
        let [[own, both], [whole_own, whole_both]] = said;
        format!(
            "  {}: at {:.1} s {own}, {both}; whole {whole_own}, {whole_both}; rate × {:.2}\n",
            self.early[0].transfer,
            self.ended.as_secs_f64(),
            self.rate_share
        )
    }
}

/// Returns when a test that judges this evidence as it comes is first sure of its result.
fn first_sure(evidence: &Evidence) -> Option<Span> {
    let looks = (1..).map(|count| LOOK * count);
    looks
        .take_while(|at| *at < evidence.last_sample_at())
        .find(|at| sure_result(&evidence.up_to(*at), SureBound::default()).is_some())
}

fn judge_each(record: &Record, views: [JudgedView; 2], evidence: &[Evidence; 2]) -> [Judgement; 2] {
    [0, 1].map(|index| Judgement {
        view: views[index],
        verdict: Some(diagnose(&evidence[index])),
        ..record.judgement()
    })
}

/// Returns `part` ÷ `whole`; one of nothing.
fn share(part: f64, whole: f64) -> f64 {
    if whole > 0.0 { part / whole } else { 1.0 }
}

fn view_text(view: JudgedView, ended: &[EndedTransfer]) -> String {
    let count = |is_meant: &dyn Fn(&EndedTransfer) -> bool| {
        ended.iter().filter(|one| is_meant(one)).count()
    };
    let right = [0, 1].map(|index| {
        let early = count(&|one| one.early[index].is_right());
        format!(
            "{early} right, whole {}",
            count(&|one| one.whole[index].is_right())
        )
    });
    let [only_early, only_whole] =
        [true, false].map(|early| count(&|one| one.is_right_only(early)));
    let [low, high] = difference_interval(only_early, only_whole, ended.len());
    let near = count(&EndedTransfer::is_rate_near);
    let bytes = median(ended.iter().map(|one| one.bytes_share).collect()).unwrap_or(0.0);
    let time = median(ended.iter().map(|one| one.ended).collect()).unwrap_or_default();
    let mut text = format!(
        "\nended by the view of {view:?}: {} cases; by this end {}; by both ends {}: right only early {only_early}, \
         only whole {only_whole}, a difference of {:.1} to {:.1} % at 95 %; rate within {:.0} % in {near} ({:.1} %); \
         {:.1} % of the bytes and {time} in the median\n",
        ended.len(),
        right[0],
        right[1],
        low * 100.0,
        high * 100.0,
        NEAR * 100.0,
        share(near as f64, ended.len() as f64) * 100.0,
        bytes * 100.0,
    );
    let differ = ended
        .iter()
        .filter(|one| !one.is_rate_near() || one.is_right_only(true) || one.is_right_only(false));
    for one in differ {
        let _ = write!(text, "{}", one.line());
    }
    text
}

/// Returns the 95 % interval of the difference of two shares of the same cases, of which so many
/// hold in one alone and in the other alone (Agresti and Min, Statistics in Medicine 24, 2005).
fn difference_interval(only_one: usize, only_other: usize, all: usize) -> [f64; 2] {
    let [one, other] = [only_one, only_other].map(|count| count as f64 + 0.5);
    let all = all as f64 + 2.0;
    let (difference, sum) = (one - other, one + other);
    let half = 1.96 * (sum - difference * difference / all).sqrt();
    [(difference - half) / all, (difference + half) / all]
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::AtomicBool;

    use fullpipe_experiment::{Interrupt, simulate_plan};
    use fullpipe_record::{Framing, HostSettings, Request};
    use fullpipe_scenario::{PathSpec, parse_path_flag};
    use fullpipe_sim::SimulationPlan;
    use fullpipe_units::ByteCount;

    use super::*;

    /// Returns what the sender sees of ten seconds over a path with this congestion control.
    fn seen(path: &str, congestion: &str) -> Evidence {
        let path = parse_path_flag(path, &PathSpec::demo_path()).unwrap();
        let mut host = HostSettings::of_linux_6_18();
        for maximum in [&mut host.tcp_rmem.max, &mut host.tcp_wmem.max] {
            *maximum = ByteCount::from_mib(256);
        }
        let request = Request {
            congestion: Some(congestion.to_owned()),
            ..Request::default()
        };
        let plan = SimulationPlan::new(path, [host.clone(), host], request, 7);
        let measured = simulate_plan(plan, Interrupt(&AtomicBool::new(false))).unwrap();
        let evidence = Evidence::from_measurement(&measured, None, Framing::Ethernet);
        JudgedView::Sender.evidence(&evidence, None)
    }

    /// Returns when the result is sure, and the steady rate then in Mbit/s.
    fn ended(path: &str, congestion: &str) -> Option<(f64, f64)> {
        let evidence = seen(path, congestion);
        let at = first_sure(&evidence)?;
        let rate = evidence.up_to(at).steady.unwrap().rate;
        Some((at.as_secs_f64(), rate.as_mbps()))
    }

    fn assert_near(ended: Option<(f64, f64)>, rate: f64) {
        let (at, found) = ended.expect("the result became sure");
        assert!((found / rate - 1.0).abs() < NEAR, "{found} at {at} s");
    }

    #[test]
    fn a_slow_start_that_still_grows_is_not_the_result() {
        // 500 packets a round trip after six doublings, of which each takes 0.4 s.
        assert_near(ended("rate=15M,rtt=400ms,queue=2MB", "bbr"), 14.1);
        let slow = ended("rate=400M,rtt=300ms,queue=40MB", "cubic");
        assert!(slow.is_none_or(|(at, _)| at > 3.0), "{slow:?}");
    }

    #[test]
    fn probes_of_bbr_are_no_other_rate() {
        assert_near(ended("rate=100M,rtt=60ms,queue=1MB", "bbr"), 94.0);
    }

    #[test]
    fn a_rate_that_changes_is_found_before_the_end_alone() {
        // The half that follows while the result is not yet sure is the result.
        assert_near(
            ended("rate=60M,rtt=30ms,queue=300kB,changes=1s rate=30M", "bbr"),
            28.2,
        );
        // What follows later is only seen by a longer test.
        assert_near(
            ended("rate=60M,rtt=30ms,queue=300kB,changes=8s rate=30M", "bbr"),
            56.4,
        );
    }

    #[test]
    fn a_token_bucket_that_empties_later_is_larger_than_what_had_passed() {
        let bucket = 40e6;
        let path = format!("rate=60M,rtt=20ms,queue=300kB,policer=20M {bucket}");
        let evidence = seen(&path, "bbr");
        let at = first_sure(&evidence).unwrap();
        let passed = TransferProgress::from_samples(&evidence.sender_samples, at).bytes_at(at);
        assert!(passed.as_f64() < bucket, "{passed}");
    }

    #[test]
    fn a_path_that_stands_still_is_not_sure() {
        assert_eq!(
            ended(
                "rate=20M,rtt=40ms,queue=200kB,changes=1s loss=100%",
                "cubic"
            ),
            None
        );
    }

    #[test]
    fn the_difference_of_shares_has_its_interval() {
        let [low, high] = difference_interval(0, 0, 100);
        assert!((low + high).abs() < 1e-9 && high < 0.02);
        let [low, high] = difference_interval(0, 10, 100);
        assert!(low < -0.1 && high < -0.03);
    }
}
