//! Articles as one HTML file.

use fullpipe_chart::{SCRIPT, STYLE, escape, shown};

use super::{Article, Section, View};

/// The style sheet of the page around the charts.
const PAGE: &str = include_str!("page.css");

/// Nothing is requested, and nothing of a document can run: all text of others is escaped.
const POLICY: &str = "default-src 'none'; style-src 'unsafe-inline'; script-src 'unsafe-inline'; img-src data:";

pub(super) fn page(articles: &[Article]) -> String {
    let title = articles.first().map_or("fullpipe", |article| article.headline.as_str());
    let body: String = articles.iter().map(article).collect();
    format!(
        "<!doctype html>\n<html lang=\"en\"><head><meta charset=\"utf-8\">\n\
         <meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n\
         <meta http-equiv=\"Content-Security-Policy\" content=\"{POLICY}\">\n<title>{}</title>\n\
         <link rel=\"icon\" href=\"data:,\">\n<style>\n{}{}</style></head>\n<body>\n<main>\n{body}</main>\n\
         <script>\n{}</script>\n</body></html>\n",
        text(title),
        tight(STYLE),
        tight(PAGE),
        packed(SCRIPT)
    )
}

/// Returns the lines of a style sheet or a script without what only its authors need.
fn packed(source: &str) -> String {
    let lines = source.lines().map(str::trim).filter(|line| !line.is_empty() && !line.starts_with("//"));
    lines.flat_map(|line| [line, "\n"]).collect()
}

/// Returns a style sheet without its spaces next to signs.
fn tight(style: &str) -> String {
    let signs = [("; ", ";"), (": ", ":"), (", ", ","), (" {", "{"), ("{ ", "{"), (" }", "}")];
    signs.iter().fold(packed(style), |style, (sign, short)| style.replace(sign, short))
}

fn text(foreign: &str) -> String {
    escape(&shown(foreign))
}

/// Returns a title, in which a number and its percent sign stay on one line.
fn title(finding: &str) -> String {
    text(finding).replace(" %", "\u{a0}%")
}

fn article(article: &Article) -> String {
    let source =
        if article.source.is_empty() { String::new() } else { format!("<span>{}</span>", text(&article.source)) };
    let mut html = format!("<article>\n<p class=\"origin\"><span>{}</span>{source}</p>\n", text(&article.origin));
    html += &format!("<h1>{}</h1>\n", title(&article.headline));
    for sentence in &article.sentences {
        html += &format!("<p>{}</p>\n", escape(&whole(sentence)));
    }
    if !article.facts.is_empty() {
        html += "<dl class=\"facts\">";
        for (figure, meaning) in &article.facts {
            html += &format!("<div><dt>{}</dt><dd>{}</dd></div>", text(meaning), text(figure));
        }
        html += "</dl>\n";
    }
    html += &article.sections.iter().map(section).collect::<String>();
    html + "</article>\n"
}

/// Returns a sentence of the program, which may be longer than a name, cut to a bounded length.
fn whole(sentence: &str) -> String {
    const MAX_SENTENCE: usize = 600;
    let visible: Vec<String> = sentence.split_whitespace().map(shown).collect();
    let joined = visible.join(" ").replace(" %", "\u{a0}%");
    if joined.chars().count() <= MAX_SENTENCE {
        joined
    } else {
        joined.chars().take(MAX_SENTENCE).collect::<String>() + "…"
    }
}

fn section(section: &Section) -> String {
    let mut html = format!("<section>\n<h2>{}</h2>\n", title(&section.title));
    if !section.method.is_empty() {
        html += &format!("<p class=\"method\">{}</p>\n", escape(&whole(&section.method)));
    }
    let (chart, table) = match &section.view {
        View::Plot(plot) => (plot.svg(), plot.figures()),
        View::Rows(rows) => (rows.svg(), rows.figures()),
        View::Heat(map) => (map.svg(), map.figures()),
        View::Table(figures) if figures.rows.is_empty() => return html + "</section>\n",
        View::Table(figures) => return html + &format!("<div class=\"wide\">{}</div>\n</section>\n", figures.html()),
    };
    html += &chart;
    if !table.rows.is_empty() {
        html += &format!(
            "<details><summary>The figures as a table</summary><div class=\"wide\">{}</div></details>",
            table.html()
        );
    }
    html + "\n</section>\n"
}
