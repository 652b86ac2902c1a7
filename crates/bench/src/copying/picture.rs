//! The picture of all paths: how many times as fast as other programs a copy is.

use std::fmt::Write;

use fullpipe_chart::{Change, Hue, Row, Rows, STYLE, escape};
use fullpipe_units::Ratio;

use super::{Cell, RCLONE, RIVALS, Results, WITH_SERVERS, advantage};

/// Returns a page with a chart of the copies over ssh, and one of those to a server. It requests nothing.
pub(super) fn page(measured: &[(Cell, Results)]) -> String {
    let over_ssh: Vec<&str> = RIVALS.into_iter().filter(|name| !WITH_SERVERS.contains(name)).chain([RCLONE]).collect();
    let mut page = format!(
        "<!doctype html><html lang=\"en\"><meta charset=\"utf-8\">\
         <meta name=\"viewport\" content=\"width=device-width\">\
         <title>Copies over emulated paths</title><style>{STYLE}body{{max-width:880px;margin:1.5em auto;padding:0 16px;\
         background:var(--bg);color:var(--fg);font:16px/1.5 system-ui,sans-serif}}h1{{font-size:23px}}\
         h2{{font-size:19px;margin:1.5em 0 0}}p{{margin:.2em 0 .6em;color:var(--dim)}}\
         table{{border-collapse:collapse;font-size:13px}}td,th{{padding:1px 8px;text-align:left}}</style>\
         <h1>fullpipe copy next to other programs</h1>\
         <p>Rate of the whole command ÷ that of another program in the same round, the median. Large dot: the fastest \
         of the others, with the 95 % interval; small dots: the rest. Left of the line, the other is faster.</p>"
    );
    for (others, title) in [
        (&over_ssh[..], "Over ssh"),
        (&WITH_SERVERS[..], "To a server with a key; rsyncd and curl do not encrypt, curl-h2 does"),
    ] {
        let rows = measured.iter().filter_map(|(cell, results)| row(cell, results, others));
        let rows = rows.fold(Rows::new(title, ["path", "times as fast as"]), Rows::with);
        let (svg, table) = (rows.svg(), rows.figures().html());
        let _ = write!(page, "<h2>{}</h2>", escape(title));
        let _ = write!(page, "<p>Others: {}</p>{svg}", escape(&others.join(", ")));
        let _ = write!(page, "<details><summary>The figures as a table</summary>{table}</details>");
    }
    page + "</html>\n"
}

/// Returns the row of a path, if ours and another program have moved a file over it.
fn row(cell: &Cell, results: &Results, others: &[&str]) -> Option<Row> {
    let mut all: Vec<_> = others.iter().filter_map(|name| Some((*name, advantage(results, name)?))).collect();
    all.sort_by(|(_, one), (_, other)| one.median.total_cmp(&other.median));
    let (fastest, rest) = all.split_first()?;
    let loss = if cell.loss > 0.0 { format!("loss {} %", cell.loss * 100.0) } else { "no loss".to_owned() };
    let words = |(name, ratio): &(&str, crate::statistics::Ratio)| format!("{:.2} × {name}", ratio.median);
    let change = |factor: f64| Change(Ratio::new(factor));
    let row = Row::new(&format!("{} × {}, {loss}", cell.rate, cell.rtt), &words(fastest), Hue::Blue)
        .detail(&rest.iter().map(words).collect::<Vec<_>>().join(", "))
        .dots(rest.iter().map(|(_, ratio)| change(ratio.median)))
        .dot(change(fastest.1.median));
    Some(match fastest.1.interval {
        Some([low, high]) => row.interval(change(low), change(high)),
        None => row,
    })
}

#[cfg(test)]
mod tests {
    use super::super::OURS;
    use super::*;
    use fullpipe_record::ProgramRun;
    use fullpipe_units::{BitRate, ByteCount};

    #[test]
    fn a_path_has_its_row_with_all_that_have_moved_a_file() {
        let cell = Cell::all(ByteCount::new(1)).swap_remove(0);
        let rounds = |mbps: [u64; 3]| {
            let run = |mbps| ProgramRun { goodput: Some(BitRate::from_mbps(mbps)), ..ProgramRun::default() };
            mbps.map(|mbps| Ok(run(mbps))).to_vec()
        };
        let results = Results::from([
            (OURS.to_owned(), rounds([900, 900, 900])),
            ("scp".to_owned(), rounds([300, 300, 300])),
            ("rsync".to_owned(), rounds([450, 450, 450])),
            (RCLONE.to_owned(), vec![Err("it did not run".to_owned())]),
        ]);
        let page = page(&[(cell, results)]);
        assert!(page.contains("1 Gbit/s × 98 ms, no loss: 2.00 × rsync, 3.00 × scp<"), "{page}");
        assert_eq!(page.matches("<svg").count(), 1, "nothing was copied to a server: {page}");
    }
}
