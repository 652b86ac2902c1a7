use fullpipe_record::PairForecast;

use super::prelude::*;

/// Returns the cost of pairs and the difference that they can show.
pub fn pair_forecast(forecast: &PairForecast) -> String {
    let PairForecast {
        pairs,
        time,
        bytes,
        noise,
        detectable,
        pairs_for_half,
    } = forecast;
    let half = share_percent(Ratio::new(detectable.get() / 2.0));
    let more = pairs_for_half.map_text(|pairs| format!("; {half} takes about {pairs}"));
    let time = if time.as_secs_f64() < 90.0 {
        format!("{:.0} s", time.as_secs_f64())
    } else {
        format!("{:.0} min", time.as_secs_f64() / 60.0)
    };
    let sentence = format!(
        "{pairs} pairs ({time}, {bytes}) can show {}{more}, if runs differ by {} as on a busy path.",
        share_percent(*detectable),
        share_percent(*noise)
    );
    paragraph(&sentence, 0)
}

/// Returns a ratio as a change in percent, or as a factor from 3 on.
pub(crate) fn ratio_change(ratio: Ratio) -> String {
    match ratio.get() {
        factor if factor >= 1000.0 => "> 1000 ×".to_owned(),
        factor if factor >= 3.0 => format!("{factor:.1} ×"),
        // The minus sign of charts.
        ratio => format!("{:+.1} %", (ratio - 1.0) * 100.0).replace('-', "−"),
    }
}

/// Without decimals, but below a percent.
fn share_percent(share: Ratio) -> String {
    let percent = share.as_percent();
    if percent < 0.95 {
        format!("{percent:.1} %")
    } else {
        format!("{percent:.0} %")
    }
}
