//! The pages: whole without script.

mod comparison;
mod history;
mod login;
mod measurements;
mod now;
mod shell;

pub(crate) use comparison::comparison_page;
pub(crate) use history::{history_begin, history_page};
pub(crate) use login::login_page;
pub(crate) use measurements::{ListQuery, document_page, measurements_page};
pub(crate) use now::{TestForm, live_part, new_test_page, now_page};
pub(crate) use shell::{failure_page, script, style};
