//! The login of a client, where only users are served.

use std::time::{Duration, Instant};

use fullpipe_control::{LoginAttempt, LoginAuthenticator, client_prefix, unix_seconds};
use fullpipe_iperf::{ErrorNumber, TestParameters, TestRefusal};
use tokio::task::spawn_blocking;
use tokio::time::sleep;

use super::ServedTest;

/// Time that each refusal of a user takes: longer than decryption with the largest key.
const REFUSAL_TIME: Duration = Duration::from_millis(250);

impl ServedTest {
    /// Checks the user, if only users are served.
    ///
    /// # Errors
    /// Fails if the user is refused. Every refusal takes [`REFUSAL_TIME`], so that its time does
    /// not show the reason.
    pub(super) async fn authenticate(&self) -> Result<(), TestRefusal> {
        let Some(authenticator) = self.server.authenticator.clone() else {
            return Ok(());
        };
        let began = Instant::now();
        let Err(why) = self.check_login(authenticator).await else {
            return Ok(());
        };
        // Where many guesses are decrypted at once, a refusal takes a multiple of it.
        let periods = began
            .elapsed()
            .div_duration_f64(REFUSAL_TIME)
            .ceil()
            .max(1.0);
        sleep((began + REFUSAL_TIME.mul_f64(periods)).saturating_duration_since(Instant::now()))
            .await;
        Err(TestRefusal::new(ErrorNumber::AUTHENTICATION, why))
    }

    /// Decrypts the login of the client and checks it, unless its prefix or its user must wait.
    /// Fails with the reason, which is for the log alone.
    async fn check_login(&self, authenticator: LoginAuthenticator) -> Result<(), String> {
        self.check_backoff(None)?;
        let token = self
            .session
            .client_parameters()
            .and_then(TestParameters::auth_token)
            .map(str::to_owned);
        let opened = spawn_blocking(move || authenticator.decrypt_token(token.as_deref())).await;
        let opened = opened.map_err(|error| error.to_string())?;
        // Nothing waits from here on, so of guesses that come together each is counted before the
        // next is checked.
        let user = opened.as_ref().ok().and_then(LoginAttempt::user_index);
        self.check_backoff(user)?;
        let checked = opened.and_then(|attempt| attempt.check_login(unix_seconds()));
        let prefix = client_prefix(self.client.ip());
        let mut backoff = self.server.backoff.borrow_mut();
        match &checked {
            Ok(()) => backoff.record_success(prefix, user),
            Err(_) => backoff.record_failure(prefix, user, Instant::now()),
        }
        checked.map_err(|error| error.to_string())
    }

    /// Fails if the prefix of the client, or this `user`, must wait before the next attempt.
    fn check_backoff(&self, user: Option<usize>) -> Result<(), String> {
        let prefix = client_prefix(self.client.ip());
        let backoff = self.server.backoff.borrow();
        if backoff
            .remaining_delay(prefix, user, Instant::now())
            .is_zero()
        {
            return Ok(());
        }
        let why =
            "too many wrong passwords came from its address, or for its user, which must wait";
        Err(why.to_owned())
    }
}
