//! Sweeps and scenarios, and the map of a sweep, which fills as its runs end.

use fullpipe_record::{Content, Document, StoredDocument, SweepReport};
use fullpipe_report::chart::{displayable_text, escape_html};
use fullpipe_units::count_noun;

use super::measurements::short_time;
use super::shell::{NavigationPage, document_content, whole_page};
use crate::answer::Refusal;
use crate::route::link_with_query;

/// How the kinds of documents of a sweep begin.
const SWEEP: &str = "sweep";

/// Returns the page of `campaigns`: the newest document of each, and their number.
pub(crate) fn campaigns_page(campaigns: &[(StoredDocument, u64)]) -> String {
    let rows: Vec<String> = campaigns.iter().map(campaign_row).collect();
    let listed = if rows.is_empty() {
        "<p>The archive has no sweep and no scenario. <code>fullpipe sweep HOST</code> and \
         <code>fullpipe lab run</code> make them.</p>\n"
            .to_owned()
    } else {
        format!("<ul class=\"newest\">{}</ul>\n", rows.concat())
    };
    let content = format!("<h1>Campaigns</h1>\n{listed}");
    whole_page("Campaigns", Some(NavigationPage::Campaigns), &content)
}

fn campaign_row((newest, documents): &(StoredDocument, u64)) -> String {
    let name = &newest.campaign;
    let all = link_with_query("/measurements", &[("campaign", name)]);
    let is_sweep = newest.kind.starts_with(SWEEP);
    let (address, title) = if is_sweep {
        let path = format!("/campaigns/{name}");
        (path, format!("Sweep {}", newest.peer))
    } else {
        (all.clone(), name.clone())
    };
    format!(
        "<li><a href=\"{}\">{}</a>, newest {}, <a href=\"{}\">{}</a></li>",
        escape_html(&address),
        escape_html(&displayable_text(&title)),
        escape_html(&short_time(&newest.started)),
        escape_html(&all),
        count_noun(*documents, "document"),
    )
}

/// Returns the page of a sweep; it asks again until the sweep is over.
///
/// # Errors
/// Fails if no page can show it.
pub(crate) fn campaign_page(report: SweepReport, is_over: bool) -> Result<String, Refusal> {
    let document = Document::new(Content::Sweep {
        sweep: Box::new(report),
    });
    let shown = document_content("", &document)?;
    let refresh = if is_over { "" } else { " data-refresh" };
    let content = format!("<div{refresh}>\n{}</div>\n", shown.body);
    Ok(whole_page(
        &shown.title,
        Some(NavigationPage::Campaigns),
        &content,
    ))
}
