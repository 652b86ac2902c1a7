//! What a request asks for.

use http::Method;
use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, percent_decode_str, utf8_percent_encode};

/// Longest value of a query, in bytes: longer than any name of a host.
const MAX_VALUE: usize = 1000;

/// What may stand in a query as it is.
const PLAIN: AsciiSet = NON_ALPHANUMERIC
    .remove(b'-')
    .remove(b'.')
    .remove(b'_')
    .remove(b'/')
    .remove(b':');

/// What a request asks for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Route<'p> {
    /// What runs now.
    Now,
    /// The list of documents.
    Measurements,
    /// A document, by its identifier or the end of it.
    Document(&'p str),
    /// Two documents beside each other.
    Comparison,
    /// The runs to a host over time.
    History,
    /// Sweeps and scenarios.
    Campaigns,
    /// The runs of a sweep so far.
    Campaign(&'p str),
    /// The settings of this host.
    Host,
    /// The hosts that measure each other.
    Fleet,
    /// Pairs of the fleet that changed for one reason.
    Incident(&'p str),
    /// What a result looks like.
    Demo,
    /// The form of a new test.
    NewTest,
    /// A file that all pages have.
    Asset(Asset),
    /// The exchange of the token for a cookie.
    Login,
    /// A list of documents as JSON.
    ApiDocuments,
    /// The body of a document.
    ApiDocument(&'p str),
    /// The runs to a host as JSON.
    ApiHistory,
    /// The test that runs, or its start.
    ApiRuns,
    /// The fleet as JSON.
    ApiFleet,
    /// What the test that runs does, as it happens.
    ApiEvents,
    /// The description of this interface.
    ApiDescription,
    /// Metrics of all hosts.
    Metrics,
    /// Metrics of one host.
    Probe,
}

/// A file that all pages have.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Asset {
    /// The style sheet.
    Style,
    /// The script of charts.
    ChartScript,
    /// The script of what moves.
    Script,
}

impl Route<'_> {
    /// Returns what is asked for at this path; `None` if there is nothing.
    pub(crate) fn from_path(path: &str) -> Option<Route<'_>> {
        Some(match path {
            "/" => Route::Now,
            "/measurements" => Route::Measurements,
            "/compare" => Route::Comparison,
            "/history" => Route::History,
            "/campaigns" => Route::Campaigns,
            "/host" => Route::Host,
            "/fleet" => Route::Fleet,
            "/api/v1/fleet" => Route::ApiFleet,
            "/demo" => Route::Demo,
            "/new" => Route::NewTest,
            "/style.css" => Route::Asset(Asset::Style),
            "/chart.js" => Route::Asset(Asset::ChartScript),
            "/web.js" => Route::Asset(Asset::Script),
            "/login" => Route::Login,
            "/api/v1/documents" => Route::ApiDocuments,
            "/api/v1/history" => Route::ApiHistory,
            "/api/v1/runs" => Route::ApiRuns,
            "/api/v1/runs/events" => Route::ApiEvents,
            "/api/v1/openapi.json" => Route::ApiDescription,
            "/metrics" => Route::Metrics,
            "/probe" => Route::Probe,
            _ => {
                if let Some(id) = path.strip_prefix("/documents/") {
                    Route::Document(id)
                } else if let Some(id) = path.strip_prefix("/fleet/incidents/") {
                    Route::Incident(id)
                } else if let Some(id) = path.strip_prefix("/campaigns/") {
                    Route::Campaign(id)
                } else {
                    Route::ApiDocument(path.strip_prefix("/api/v1/documents/")?)
                }
            }
        })
    }

    /// Returns the methods that it has.
    pub(crate) fn methods(self) -> &'static [Method] {
        match self {
            Route::Login => &[Method::POST],
            Route::ApiRuns => &[Method::GET, Method::HEAD, Method::POST, Method::DELETE],
            _ => &[Method::GET, Method::HEAD],
        }
    }

    /// Returns true if it is for people, who are shown how to get the token where they lack it.
    pub(crate) fn is_page(self) -> bool {
        matches!(
            self,
            Route::Now
                | Route::Measurements
                | Route::Document(_)
                | Route::Comparison
                | Route::History
                | Route::Campaigns
                | Route::Campaign(_)
                | Route::Host
                | Route::Fleet
                | Route::Incident(_)
                | Route::Demo
                | Route::NewTest
        )
    }

    /// Returns true if it is served to whoever lacks the token: what holds no data.
    pub(crate) fn is_open(self) -> bool {
        matches!(self, Route::Asset(_) | Route::Login)
    }
}

/// The values behind `?`.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(crate) struct Query(Vec<(String, String)>);

impl Query {
    /// Reads what forms write (URL standard, `application/x-www-form-urlencoded`), without values
    /// that are longer than any name.
    pub(crate) fn from_text(text: &str) -> Self {
        let decode = |part: &str| {
            let spaced = part.replace('+', " ");
            percent_decode_str(&spaced).decode_utf8_lossy().into_owned()
        };
        let pairs = text.split('&').filter(|pair| pair.len() <= MAX_VALUE);
        let pairs = pairs.map(|pair| pair.split_once('=').unwrap_or((pair, "")));
        Self(
            pairs
                .map(|(name, value)| (decode(name), decode(value)))
                .collect(),
        )
    }

    /// Returns the first value of this name that is not empty.
    pub(crate) fn value(&self, name: &str) -> Option<&str> {
        self.values(name).next()
    }

    /// Returns the values of this name that are not empty.
    pub(crate) fn values(&self, name: &str) -> impl Iterator<Item = &str> {
        let named = self.0.iter().filter(move |(other, _)| other == name);
        named
            .map(|(_, value)| value.trim())
            .filter(|value| !value.is_empty())
    }
}

/// Returns a path with a query of these values, without those that are empty.
pub(crate) fn link_with_query(path: &str, values: &[(&str, &str)]) -> String {
    let values = values.iter().filter(|(_, value)| !value.is_empty());
    let pairs: Vec<String> = values
        .map(|(name, value)| format!("{name}={}", utf8_percent_encode(value, &PLAIN)))
        .collect();
    if pairs.is_empty() {
        return path.to_owned();
    }
    format!("{path}?{}", pairs.join("&"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_query_has_what_a_form_or_a_link_wrote() {
        let link = link_with_query(
            "/history",
            &[
                ("host", "a b&c=d"),
                ("since", ""),
                ("limit", "loss/policer"),
            ],
        );
        assert_eq!(link, "/history?host=a%20b%26c%3Dd&limit=loss/policer");
        let query = Query::from_text(link.split_once('?').unwrap().1);
        assert_eq!(query.value("host"), Some("a b&c=d"));
        assert_eq!(query.value("since"), None);
        let form = Query::from_text("id=1&id=2&host=a+b&%ff=%zz&=&&");
        assert_eq!(form.values("id").collect::<Vec<_>>(), ["1", "2"]);
        assert_eq!(form.value("host"), Some("a b"));
        assert_eq!(
            Query::from_text(&format!("host={}", "x".repeat(2000))).value("host"),
            None
        );
    }

    #[test]
    fn documents_have_their_identifier_in_the_path() {
        assert_eq!(
            Route::from_path("/documents/ab-1"),
            Some(Route::Document("ab-1"))
        );
        assert_eq!(
            Route::from_path("/api/v1/documents/ab"),
            Some(Route::ApiDocument("ab"))
        );
        assert_eq!(Route::from_path("/api/v1/other"), None);
        assert_eq!(Route::from_path("//"), None);
    }
}
