//! The page of a browser that has not shown the token.

use super::shell::bare_page;

/// Returns the page that exchanges the token behind `#` for a cookie, or asks for it.
pub(crate) fn login_page() -> String {
    bare_page(
        "Token",
        "<main id=\"content\">\n<h1>This page wants its token</h1>\n\
         <p>Open the address that <code>fullpipe web</code> printed when it started, or paste the token here. \
         It stands in the file that was named there.</p>\n\
         <form id=\"login\" class=\"fields\"><label>Token <input name=\"token\" type=\"password\" \
         autocomplete=\"current-password\" required></label><button>Open</button></form>\n\
         <p id=\"refused\" role=\"alert\" hidden>That is not the token.</p>\n\
         <noscript><p>The exchange of the token for a cookie needs script.</p></noscript>\n</main>\n",
    )
}
