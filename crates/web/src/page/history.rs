//! The runs to a host over time.

use fullpipe_record::{Content, Document, HistoryReport};
use fullpipe_report::chart::escape_html;

use super::measurements::options;
use super::shell::{NavigationPage, document_content, whole_page};
use crate::answer::Refusal;
use crate::route::Query;

/// Ages that the page offers.
const AGES: [(&str, &str); 4] = [
    ("7d", "the last week"),
    ("30d", "the last 30 days"),
    ("365d", "the last year"),
    ("", "any time"),
];

/// Returns the page of a host's history, or of the question which host; `hosts` are those that the
/// archive knows.
///
/// # Errors
/// Fails if no page can show it.
pub(crate) fn history_page(
    query: &Query,
    hosts: &[String],
    history: Option<HistoryReport>,
) -> Result<String, Refusal> {
    let host = query.value("host").unwrap_or_default();
    let offered = hosts.iter().map(|host| (host.as_str(), host.as_str()));
    let form = format!(
        "<form class=\"fields\" role=\"search\" aria-label=\"Which host\"><label>Host <select name=\"host\">{}</select>\
         </label><label>Since <select name=\"since\">{}</select></label><button>Show</button></form>\n",
        options(offered, host),
        options(AGES, query.value("since").unwrap_or_default())
    );
    let Some(history) = history else {
        let content = format!("<h1>History</h1>\n{form}");
        return Ok(whole_page(
            "History",
            Some(NavigationPage::History),
            &content,
        ));
    };
    if history.series.is_empty() {
        let content = format!(
            "<h1>History</h1>\n{form}<p>The archive has no run to {}.</p>\n",
            escape_html(host)
        );
        return Ok(whole_page(
            "History",
            Some(NavigationPage::History),
            &content,
        ));
    }
    let document = Document::new(Content::History {
        history: Box::new(history),
    });
    let shown = document_content("", &document)?;
    let content = form + &shown.body;
    Ok(whole_page(
        &shown.title,
        Some(NavigationPage::History),
        &content,
    ))
}
