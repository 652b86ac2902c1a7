//! What all pages have.

use fullpipe_record::Document;
use fullpipe_report::chart::{displayable_text, escape_html};
use fullpipe_report::{PageContent, PageSource, page_content, page_style};
use http::StatusCode;

use crate::answer::Refusal;

/// A page of the navigation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum NavigationPage {
    Now,
    Measurements,
    Campaigns,
    History,
    Host,
    NewTest,
    Fleet,
}

/// The pages of the navigation, with their addresses and names.
const NAVIGATION: [(NavigationPage, &str, &str); 6] = [
    (NavigationPage::Now, "/", "Now"),
    (
        NavigationPage::Measurements,
        "/measurements",
        "Measurements",
    ),
    (NavigationPage::Campaigns, "/campaigns", "Campaigns"),
    (NavigationPage::History, "/history", "History"),
    (NavigationPage::Host, "/host", "This host"),
    (NavigationPage::NewTest, "/new", "New test"),
];

/// The page that is in the navigation where the archive has a fleet.
const FLEET: (NavigationPage, &str, &str) = (NavigationPage::Fleet, "/fleet", "Fleet");

/// Stands for the link to the fleet until it is known whether there is one.
const FLEET_PLACE: &str = "<!-- fleet -->";

/// Returns a page with a link to the fleet, which there is.
pub(crate) fn with_fleet_link(page: &str) -> String {
    page.replacen(FLEET_PLACE, &navigation_link(&FLEET, None), 1)
}

fn navigation_link(
    (page, address, name): &(NavigationPage, &str, &str),
    here: Option<NavigationPage>,
) -> String {
    let current = if here == Some(*page) {
        " aria-current=\"page\""
    } else {
        ""
    };
    format!("<a href=\"{address}\"{current}>{name}</a>")
}

/// Returns the style sheet of all pages.
pub(crate) fn style_sheet() -> String {
    page_style() + include_str!("../../assets/web.css")
}

/// Returns a page with this title and content, both HTML; `here` is marked in the navigation.
pub(crate) fn whole_page(title: &str, here: Option<NavigationPage>, content: &str) -> String {
    let mut links: String = NAVIGATION
        .iter()
        .map(|page| navigation_link(page, here))
        .collect();
    links += &if here == Some(NavigationPage::Fleet) {
        navigation_link(&FLEET, here)
    } else {
        FLEET_PLACE.to_owned()
    };
    bare_page(
        title,
        &format!(
            "<header class=\"bar\"><a class=\"skip\" href=\"#content\">To the content</a>\
             <nav aria-label=\"Pages\"><b>fullpipe</b>{links}</nav></header>\n\
             <main id=\"content\">\n{content}</main>\n<script src=\"/chart.js\"></script>\n"
        ),
    )
}

/// Returns a page with this title and body, both HTML, without navigation.
pub(crate) fn bare_page(title: &str, body: &str) -> String {
    format!(
        "<!doctype html>\n<html lang=\"en\"><head><meta charset=\"utf-8\">\n\
         <meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n\
         <title>{title} – fullpipe</title>\n<link rel=\"icon\" href=\"data:,\">\n\
         <link rel=\"stylesheet\" href=\"/style.css\"></head>\n<body>\n{body}\
         <script src=\"/web.js\"></script>\n</body></html>\n"
    )
}

/// Returns the articles of a document, beside which its `name` stands.
///
/// # Errors
/// Fails if no page can show it.
pub(crate) fn document_content(name: &str, document: &Document) -> Result<PageContent, Refusal> {
    page_content(&[PageSource { name, document }])
        .map_err(|error| Refusal::bad_request(error.to_string()))
}

/// Returns the page of the demo, from what the program prints of it.
///
/// # Errors
/// Fails if that is no document.
pub(crate) fn demo_page(json: &str) -> Result<String, Refusal> {
    let document = Document::from_json(json.as_bytes())
        .map_err(|error| Refusal::bad_request(format!("the demo has no document: {error}")))?;
    let shown = document_content("", &document)?;
    Ok(whole_page(&shown.title, None, &shown.body))
}

/// Returns the page of a request that has no result.
pub(crate) fn failure_page(refusal: &Refusal) -> String {
    let status = refusal.status;
    let reason = status.canonical_reason().unwrap_or("No result");
    let mut sentence = refusal.why.clone();
    if let Some(first) = sentence.get_mut(..1) {
        first.make_ascii_uppercase();
    }
    let sentence = escape_html(&displayable_text(&sentence));
    let mut content = format!("<h1>{reason}</h1>\n<p>{sentence}.</p>\n");
    if status == StatusCode::SERVICE_UNAVAILABLE {
        content += "<p><a href=\"/demo\">What a result looks like</a></p>\n";
    }
    whole_page(reason, None, &content)
}
