//! Articles as one HTML file.

use crate::chart::{SCRIPT, STYLE, displayable_text, escape_html, format_if};

use super::{Article, PageSection, SectionView};

/// The style sheet of the page around the charts.
const PAGE: &str = include_str!("page.css");

/// Nothing is requested, and nothing of a document can run: all text of others is escaped.
const POLICY: &str =
    "default-src 'none'; style-src 'unsafe-inline'; script-src 'unsafe-inline'; img-src data:";

/// The articles of a page, for a page around them that others make.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PageContent {
    /// Title of the page: the first finding, as HTML.
    pub title: String,
    /// The articles, as HTML.
    pub body: String,
}

/// Returns the style sheet of pages and their charts.
pub fn page_style() -> String {
    minify_style(STYLE) + &minify_style(PAGE)
}

/// Returns the script of charts.
pub fn page_script() -> String {
    minify_source(SCRIPT)
}

pub(super) fn page_content(articles: &[Article]) -> PageContent {
    let title = articles
        .first()
        .map_or("fullpipe", |article| article.headline.as_str());
    PageContent {
        title: escape_foreign(title),
        body: articles.iter().map(render_article).collect(),
    }
}

pub(super) fn render_page(articles: &[Article]) -> String {
    let PageContent { title, body } = page_content(articles);
    format!(
        "<!doctype html>\n<html lang=\"en\"><head><meta charset=\"utf-8\">\n\
         <meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n\
         <meta http-equiv=\"Content-Security-Policy\" content=\"{POLICY}\">\n<title>{title}</title>\n\
         <link rel=\"icon\" href=\"data:,\">\n<style>\n{}</style></head>\n<body>\n<main>\n{body}</main>\n\
         <script>\n{}</script>\n</body></html>\n",
        page_style(),
        page_script()
    )
}

/// Returns the lines of a style sheet or a script without what only its authors need.
fn minify_source(source: &str) -> String {
    let lines = source
        .lines()
        .map(str::trim)
        .filter(|line| !line.is_empty() && !line.starts_with("//"));
    lines.flat_map(|line| [line, "\n"]).collect()
}

/// Returns a style sheet without its spaces next to signs.
fn minify_style(style: &str) -> String {
    let signs = [
        ("; ", ";"),
        (": ", ":"),
        (", ", ","),
        (" {", "{"),
        ("{ ", "{"),
        (" }", "}"),
    ];
    signs
        .iter()
        .fold(minify_source(style), |style, (sign, short)| {
            style.replace(sign, short)
        })
}

fn escape_foreign(foreign: &str) -> String {
    escape_html(&displayable_text(foreign))
}

/// Returns a title, in which a number and its percent sign stay on one line.
fn escape_title(finding: &str) -> String {
    escape_foreign(finding).replace(" %", "\u{a0}%")
}

fn render_article(article: &Article) -> String {
    let source = format_if(!article.source.is_empty(), || {
        format!("<span>{}</span>", escape_foreign(&article.source))
    });
    let mut html = format!(
        "<article>\n<p class=\"origin\"><span>{}</span>{source}</p>\n",
        escape_foreign(&article.origin)
    );
    html += &format!("<h1>{}</h1>\n", escape_title(&article.headline));
    for sentence in &article.sentences {
        html += &format!("<p>{}</p>\n", escape_html(&cut_sentence(sentence)));
    }
    if !article.facts.is_empty() {
        html += "<dl class=\"facts\">";
        for (figure, meaning) in &article.facts {
            html += &format!(
                "<div><dt>{}</dt><dd>{}</dd></div>",
                escape_foreign(meaning),
                escape_foreign(figure)
            );
        }
        html += "</dl>\n";
    }
    html += &article
        .sections
        .iter()
        .map(render_section)
        .collect::<String>();
    html + "</article>\n"
}

/// Returns a sentence of the program, which may be longer than a name, cut to a bounded length.
fn cut_sentence(sentence: &str) -> String {
    const MAX_SENTENCE: usize = 600;
    let visible: Vec<String> = sentence.split_whitespace().map(displayable_text).collect();
    let joined = visible.join(" ").replace(" %", "\u{a0}%");
    if joined.chars().count() <= MAX_SENTENCE {
        joined
    } else {
        joined.chars().take(MAX_SENTENCE).collect::<String>() + "…"
    }
}

fn render_section(section: &PageSection) -> String {
    let mut html = format!("<section>\n<h2>{}</h2>\n", escape_title(&section.title));
    if !section.method.is_empty() {
        html += &format!(
            "<p class=\"method\">{}</p>\n",
            escape_html(&cut_sentence(&section.method))
        );
    }
    let (chart, table) = match &section.view {
        SectionView::Plot(plot) => (plot.to_svg(), plot.to_figures()),
        SectionView::Rows(rows) => (rows.to_svg(), rows.to_figures()),
        SectionView::Heat(map) => (map.to_svg(), map.to_figures()),
        SectionView::Table(figures) if figures.rows.is_empty() => return html + "</section>\n",
        SectionView::Table(figures) => {
            return html
                + &format!(
                    "<div class=wide tabindex=0>{}</div>\n</section>\n",
                    figures.to_html()
                );
        }
    };
    html += &chart;
    if !table.rows.is_empty() {
        html += &format!(
            "<details><summary>The figures as a table</summary><div class=wide>{}</div></details>",
            table.to_html()
        );
    }
    html + "\n</section>\n"
}
