//! The settings of this host, and what should change for a path. Nothing is changed here.

use fullpipe_report::chart::{displayable_text, escape_html};

use super::shell::{NavigationPage, whole_page};
use crate::answer::Refusal;
use crate::route::Query;

/// Returns the words of the command that advises for the path that the form names, if it does.
pub(crate) fn advice_arguments(query: &Query) -> Option<[String; 4]> {
    let rtt = query.value("rtt")?;
    let bandwidth = query.value("bandwidth")?;
    Some([
        "host".to_owned(),
        "advise".to_owned(),
        format!("--rtt={rtt}"),
        format!("--bandwidth={bandwidth}"),
    ])
}

/// Returns the page of the settings as `fullpipe host show` prints them, with the advice for a path.
pub(crate) fn host_page(
    query: &Query,
    settings: &str,
    advice: Option<&Result<String, Refusal>>,
) -> String {
    let value = |name| escape_html(query.value(name).unwrap_or_default());
    let mut content = format!(
        "<h1>This host</h1>\n<form class=\"fields\" aria-label=\"Path\">\
         <label>Bandwidth <input name=\"bandwidth\" placeholder=\"1G\" value=\"{}\" required></label>\
         <label>Round trip <input name=\"rtt\" placeholder=\"150ms\" value=\"{}\" required></label>\
         <button>What should change?</button></form>\n",
        value("bandwidth"),
        value("rtt")
    );
    match advice {
        Some(Ok(text)) => content += &text_part("Advice for this path", text),
        Some(Err(refusal)) => {
            let why = escape_html(&displayable_text(&refusal.why));
            content += &format!("<p role=\"alert\">{why}</p>\n");
        }
        None => {}
    }
    content += &text_part("Settings", settings);
    whole_page("This host", Some(NavigationPage::Host), &content)
}

/// Returns what a command printed, with its columns.
fn text_part(title: &str, text: &str) -> String {
    format!(
        "<h2>{title}</h2>\n<div class=\"wide\" tabindex=\"0\"><pre>{}</pre></div>\n",
        escape_html(text)
    )
}
