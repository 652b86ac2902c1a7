//! Login of a user at an iperf3 server that requires one.

use fullpipe_control::{ClientLogin, RsaPadding, RsaPublicKey};
use fullpipe_iperf::UserCredentials;
use zeroize::Zeroizing;

use super::interrupt_flag;
use super::prelude::*;

/// Returns the login of `user` at the server with this `key`. The password comes from the variable
/// of the environment that iperf3 reads, or the user is asked.
///
/// # Errors
/// Fails if there is no password and no user can be asked, or if iperf3 cannot carry the password.
pub(crate) fn read_login(
    user: &str,
    key: &RsaPublicKey,
    padding: RsaPadding,
) -> Result<ClientLogin> {
    let credentials = UserCredentials::new(user.to_owned(), read_password(user)?);
    let credentials = credentials.map_err(usage_failure)?;
    Ok(ClientLogin::new(credentials, key.clone(), padding))
}

fn read_password(user: &str) -> Result<Zeroizing<String>> {
    if let Some(given) = std::env::var_os("IPERF3_PASSWORD") {
        let text = given.into_string().map(Zeroizing::new);
        return text
            .map_err(|_| usage_failure("the password in IPERF3_PASSWORD is not text in UTF-8"));
    }
    let interrupt = interrupt_flag()?;
    let typed = Terminal::ask_secretly(&format!("Password of {user}: "), &interrupt);
    if interrupt.load(Ordering::Relaxed) {
        return Err(Failure::new(
            INTERRUPTED,
            "interrupted before the test began",
        ));
    }
    let lacking = "there is no password: put it into IPERF3_PASSWORD, or start this at a terminal that can ask for it";
    typed.ok_or_else(|| usage_failure(lacking))
}
