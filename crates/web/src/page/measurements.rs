//! The list of documents, and one of them.

use fullpipe_record::{Content, Document, LegalVerdict, Limit, StoredDocument, StoredFacts};
use fullpipe_report::chart::{displayable_text, escape_html};
use fullpipe_report::cut_time;
use fullpipe_store::{DocumentFilter, DocumentPosition, parse_past_time};
use jiff::Timestamp;

use super::shell::{NavigationPage, document_content, whole_page};
use crate::answer::Refusal;
use crate::route::{Query, link_with_query};

/// Documents of a page of the list.
pub(crate) const PAGE_LENGTH: u32 = 50;

/// Most documents of an answer in JSON.
pub(crate) const MAX_LENGTH: u32 = 1000;

/// Ages of documents that a filter offers: the value, and its name.
const AGES: [(&str, &str); 4] = [
    ("24h", "the last day"),
    ("7d", "the last week"),
    ("30d", "the last 30 days"),
    ("", "any time"),
];

/// What of the archive is listed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct ListQuery {
    /// The first time, as it was asked for.
    since: String,
    filter: DocumentFilter,
}

impl ListQuery {
    /// Reads a query, in which an age counts from `now`.
    ///
    /// # Errors
    /// Fails if an age, a number or a place in the list is none.
    pub(crate) fn from_query(query: &Query, now: Timestamp) -> Result<Self, Refusal> {
        let value = |name| query.value(name).map(str::to_owned);
        let length = match query.value("length") {
            Some(text) => text
                .parse()
                .ok()
                .filter(|length| (1..=MAX_LENGTH).contains(length))
                .ok_or_else(|| {
                    Refusal::bad_request(format!("length is a number from 1 to {MAX_LENGTH}"))
                })?,
            None => PAGE_LENGTH,
        };
        Ok(Self {
            since: value("since").unwrap_or_default(),
            filter: DocumentFilter {
                peer: value("host"),
                kind: value("kind"),
                campaign: value("campaign"),
                since: first_time(query, now)?,
                before: None,
                behind: query.value("behind").map(parse_position).transpose()?,
                limited_by: value("limit"),
                limit: Some(length),
            },
        })
    }

    /// Returns the documents that are asked for.
    pub(crate) fn filter(&self) -> &DocumentFilter {
        &self.filter
    }

    /// Returns the address at `path` of the documents behind these, if there may be more.
    pub(crate) fn next_link(&self, path: &str, listed: &[StoredDocument]) -> Option<String> {
        let last = listed.last()?;
        let length = self.filter.limit?;
        if (listed.len() as u64) < u64::from(length) {
            return None;
        }
        let length = if length == PAGE_LENGTH {
            String::new()
        } else {
            length.to_string()
        };
        let filter = &self.filter;
        Some(link_with_query(
            path,
            &[
                ("host", text_or_empty(filter.peer.as_ref())),
                ("limit", text_or_empty(filter.limited_by.as_ref())),
                ("since", &self.since),
                ("kind", text_or_empty(filter.kind.as_ref())),
                ("campaign", text_or_empty(filter.campaign.as_ref())),
                ("length", &length),
                ("behind", &format!("{}_{}", last.started, last.id)),
            ],
        ))
    }
}

/// Returns the first time that a query asks for: an age, which counts from `now`, a date or a time.
///
/// # Errors
/// Fails if it is none of them.
pub(crate) fn first_time(query: &Query, now: Timestamp) -> Result<Option<Timestamp>, Refusal> {
    let since = query.value("since");
    let since = since.map(|text| parse_past_time(text, now)).transpose();
    since.map_err(Refusal::bad_request)
}

fn text_or_empty(text: Option<&String>) -> &str {
    text.map_or("", String::as_str)
}

fn parse_position(text: &str) -> Result<DocumentPosition, Refusal> {
    let position = text.split_once('_').and_then(|(started, id)| {
        Some(DocumentPosition {
            started: started.parse().ok()?,
            id: id.to_owned(),
        })
    });
    position.ok_or_else(|| {
        Refusal::bad_request(
            "behind is the time and the identifier of a document with _ between them",
        )
    })
}

/// Returns the page of a list.
pub(crate) fn measurements_page(query: &ListQuery, listed: &[StoredDocument]) -> String {
    let mut content = format!("<h1>Measurements</h1>\n{}", filter_form(query));
    if listed.is_empty() {
        content += "<p>No document of the archive is like that.</p>\n";
        return whole_page("Measurements", Some(NavigationPage::Measurements), &content);
    }
    let rows: String = listed.iter().map(list_row).collect();
    content += &format!(
        "<form action=\"/compare\"><div class=\"wide\" tabindex=\"0\"><table class=\"list\">\n<thead><tr>\
         <th><span class=\"hidden\">Compare</span></th><th>Started (UTC)</th><th>To</th><th>Rate</th>\
         <th>Limit</th><th>Kind</th></tr></thead>\n<tbody>\n{rows}</tbody></table></div>\n\
         <p><button>Compare two</button></p></form>\n"
    );
    if let Some(link) = query.next_link("/measurements", listed) {
        content += &format!(
            "<p><a rel=\"next\" href=\"{}\">Older ones</a></p>\n",
            escape_html(&link)
        );
    }
    whole_page("Measurements", Some(NavigationPage::Measurements), &content)
}

fn filter_form(query: &ListQuery) -> String {
    let kinds = LegalVerdict::ALL.iter().map(|verdict| verdict.limit_kind());
    let mut kinds: Vec<&str> = kinds.map(Limit::name).collect();
    kinds.dedup();
    let limits = kinds.iter().map(|kind| (*kind, *kind));
    let limits = [("", "any")].into_iter().chain(limits);
    format!(
        "<form class=\"fields\" role=\"search\" aria-label=\"Filter\">\
         <label>Host <input name=\"host\" value=\"{}\"></label>\
         <label>Limit <select name=\"limit\">{}</select></label>\
         <label>Since <select name=\"since\">{}</select></label><button>Show</button></form>\n",
        escape_html(text_or_empty(query.filter.peer.as_ref())),
        options(limits, text_or_empty(query.filter.limited_by.as_ref())),
        options(AGES, &query.since)
    )
}

/// Returns the options of a choice; one that is chosen and not offered is added.
pub(super) fn options<'o>(
    offered: impl IntoIterator<Item = (&'o str, &'o str)>,
    chosen: &'o str,
) -> String {
    let mut offered: Vec<_> = offered.into_iter().collect();
    if !offered.iter().any(|(value, _)| *value == chosen) {
        offered.push((chosen, chosen));
    }
    let option = |(value, name): &(&str, &str)| {
        let selected = if *value == chosen { " selected" } else { "" };
        let (value, name) = (escape_html(value), escape_html(name));
        format!("<option value=\"{value}\"{selected}>{name}</option>")
    };
    offered.iter().map(option).collect()
}

fn list_row(document: &StoredDocument) -> String {
    let rate = document
        .facts
        .iter()
        .find_map(|facts| facts.steady.or(facts.rate));
    let first = document.facts.first();
    let limit = first.and_then(StoredFacts::limit_name);
    let to = if document.peer.is_empty() {
        &document.campaign
    } else {
        &document.peer
    };
    let id = escape_html(&document.id);
    let text = |text: &str| escape_html(&displayable_text(text));
    let started = text(&short_time(&document.started));
    let valid = if document.facts.iter().all(|facts| facts.valid) {
        ""
    } else {
        ", invalid"
    };
    format!(
        "<tr><td><input type=\"checkbox\" name=\"id\" value=\"{id}\" aria-label=\"Compare the one of {started}\"></td>\
         <td><a href=\"/documents/{id}\">{started}</a></td><td>{}</td><td class=\"number\">{}</td><td>{}{valid}</td>\
         <td>{}</td></tr>\n",
        text(to),
        rate.map_or_else(String::new, |rate| rate.to_string()),
        text(&limit.unwrap_or_default()),
        text(&document.kind)
    )
}

/// Returns a time in RFC 3339 to its second, as people write it.
pub(super) fn short_time(time: &str) -> String {
    cut_time(time, "2026-03-12 10:00:00")
}

/// Returns the page of a document: its body as a report, or what is known of it.
///
/// # Errors
/// Fails if no page can show it.
pub(crate) fn document_page(head: &StoredDocument, body: Option<&[u8]>) -> Result<String, Refusal> {
    let facts = || {
        Document::new(Content::Stored {
            stored: vec![head.clone()],
        })
    };
    let own = body.and_then(|body| Document::from_json(body).ok());
    let document = own.unwrap_or_else(facts);
    let shown = document_content(&short_time(&head.started), &document)?;
    let id = escape_html(&head.id);
    let history = if head.peer.is_empty() {
        String::new()
    } else {
        let link = link_with_query("/history", &[("host", &head.peer)]);
        format!(
            "<a href=\"{}\">History of this host</a> ",
            escape_html(&link)
        )
    };
    let content = format!(
        "{}<p class=\"links\">{history}<a href=\"/api/v1/documents/{id}\" download=\"{id}.json\">The document</a></p>\n",
        shown.body
    );
    Ok(whole_page(
        &shown.title,
        Some(NavigationPage::Measurements),
        &content,
    ))
}
