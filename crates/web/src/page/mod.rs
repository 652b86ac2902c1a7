//! The pages: whole without script.

mod campaigns;
mod comparison;
mod fleet;
mod history;
mod host;
mod login;
mod measurements;
mod now;
mod shell;

pub(crate) use campaigns::{campaign_page, campaigns_page};
pub(crate) use comparison::comparison_page;
pub(crate) use fleet::{fleet_page, incident_page};
pub(crate) use history::history_page;
pub(crate) use host::{advice_arguments, host_page};
pub(crate) use login::login_page;
pub(crate) use measurements::{
    ListQuery, MAX_LENGTH, PAGE_LENGTH, document_page, first_time, measurements_page,
};
pub(crate) use now::{TestForm, live_part, new_test_page, now_page};
pub(crate) use shell::{demo_page, failure_page, style_sheet, with_fleet_link};
