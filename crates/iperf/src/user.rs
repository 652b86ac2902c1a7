//! Users as iperf3 knows them: the text that a client encrypts for its server, and the server's
//! file of users.

use std::fmt;

use fullpipe_units::Span;
use sha2::{Digest, Sha256};
use thiserror::Error;
use zeroize::Zeroizing;

use crate::key::from_hex;

/// A user's name and password.
#[derive(Clone, PartialEq, Eq)]
pub struct UserCredentials {
    user: String,
    password: Zeroizing<String>,
}

/// A name or a password that iperf3 cannot carry: it writes each as the rest of a line.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
#[error("{0} is empty or has a line break, which iperf3 cannot carry")]
pub struct CredentialsError(&'static str);

/// The users that a server serves, and the digests of their passwords: SHA-256 (FIPS 180-4) of
/// `{user}password`.
#[derive(Clone, PartialEq, Eq)]
pub struct UserList(Vec<(String, Digested)>);

/// A file that is none of users.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
pub enum UsersError {
    /// The file is binary.
    #[error("it is not text in UTF-8")]
    NotText,
    /// A line has something else where the digest should be.
    #[error(
        "its line {line} is not `user,digest`; make one with \
         `echo \"NAME,$(printf '%s' '{{NAME}}PASSWORD' | sha256sum | cut -d' ' -f1)\"`"
    )]
    Line {
        /// Number of the line, from 1.
        line: usize,
    },
    /// No line names a user.
    #[error("it names no user")]
    Empty,
}

/// Why a user is not served. It is for the server's log alone: a client gets the same answer in any
/// case.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum UserError {
    /// The client named none.
    #[error("the client names no user")]
    Missing,
    /// The token cannot be decrypted, or is not what iperf3 encrypts.
    #[error("the client's token cannot be read: it was made with another key or another padding")]
    Unreadable,
    /// The file has no such user.
    #[error("there is no user {0:?}")]
    Unknown(String),
    /// The user has another password.
    #[error("the password of user {0:?} is wrong")]
    Password(String),
    /// The clocks differ too much, or the token is an old one that somebody recorded.
    #[error("the clock of user {user:?} differs from ours by {apart}, more than {permitted}")]
    Stale {
        /// Name of the user.
        user: String,
        /// By how much.
        apart: Span,
        /// By how much it might.
        permitted: Span,
    },
}

type Digested = [u8; 32];

impl UserCredentials {
    /// The credentials of `user`. White space within them is for servers that are fullpipe: those
    /// of iperf3 read words.
    ///
    /// # Errors
    /// If either is empty or has a line break.
    pub fn new(user: String, password: Zeroizing<String>) -> Result<Self, CredentialsError> {
        for (text, name) in [(&user, "the user name"), (&*password, "the password")] {
            if text.is_empty() || text.contains(['\n', '\r', '\0']) {
                return Err(CredentialsError(name));
            }
        }
        Ok(Self { user, password })
    }

    /// Returns the text that iperf3 encrypts for the server, `now` seconds after the beginning of
    /// 1970.
    pub fn to_text(&self, now: u64) -> Zeroizing<String> {
        Zeroizing::new(format!(
            "{USER}{}\n{PASSWORD}{}\n{TIME}{now}",
            self.user, *self.password
        ))
    }

    /// Reads such a text, and the time in it.
    ///
    /// # Errors
    /// [`UserError::Unreadable`] if it is none.
    pub fn from_text(text: &[u8]) -> Result<(Self, u64), UserError> {
        Self::parse_text(text).ok_or(UserError::Unreadable)
    }

    fn parse_text(text: &[u8]) -> Option<(Self, u64)> {
        let mut lines = std::str::from_utf8(text).ok()?.splitn(3, '\n');
        let user = lines.next()?.strip_prefix(USER)?.to_owned();
        let password = lines.next()?.strip_prefix(PASSWORD)?;
        let time = lines.next()?.strip_prefix(TIME)?;
        let credentials = Self::new(user, Zeroizing::new(password.to_owned())).ok()?;
        Some((credentials, time.parse().ok()?))
    }

    fn password_digest(&self) -> Digested {
        let mut hash = Sha256::new();
        for part in ["{", &*self.user, "}", &**self.password] {
            hash.update(part);
        }
        hash.finalize().into()
    }
}

impl fmt::Debug for UserCredentials {
    /// Never the password.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Credentials")
            .field("user", &self.user)
            .finish_non_exhaustive()
    }
}

impl UserList {
    /// The users in a file of this content: a line `user,digest` each, the digest in hexadecimal
    /// digits. As with iperf3, lines without a comma and those that begin with `#` say nothing, nor
    /// does what follows a second comma.
    ///
    /// # Errors
    /// If a digest is none, or there is no user.
    pub fn from_file_content(content: &[u8]) -> Result<Self, UsersError> {
        let text = std::str::from_utf8(content).map_err(|_| UsersError::NotText)?;
        let lines = text
            .lines()
            .zip(1..)
            .filter(|(line, _)| !line.starts_with('#'));
        let users = lines.filter_map(|(text, line)| {
            let (user, rest) = text.split_once(',')?;
            let digest = rest.split(',').next().map(str::trim).and_then(from_hex);
            let user = digest.map(|digest| (user.to_owned(), digest));
            Some(user.ok_or(UsersError::Line { line }))
        });
        let users: Vec<_> = users.collect::<Result<_, _>>()?;
        if users.is_empty() {
            Err(UsersError::Empty)
        } else {
            Ok(Self(users))
        }
    }

    /// Returns the number of the user that `text`, decrypted, names; `None` if there is no such
    /// user.
    pub fn number_of_user(&self, text: &[u8]) -> Option<usize> {
        let (credentials, _) = UserCredentials::from_text(text).ok()?;
        self.0
            .iter()
            .position(|(name, _)| *name == credentials.user)
    }

    /// Checks that the user who sent `text`, decrypted, may come in `now` seconds after the
    /// beginning of 1970, on clocks that may differ by `skew`. Whatever is wrong, every user's
    /// digest is compared with one, to the end.
    ///
    /// # Errors
    /// Fails with the reason why the user may not come in.
    pub fn check_login(&self, text: &[u8], now: u64, skew: Span) -> Result<(), UserError> {
        let read = UserCredentials::from_text(text);
        let nobody = UserCredentials {
            user: String::new(),
            password: Zeroizing::default(),
        };
        let (credentials, time) = read
            .as_ref()
            .map_or((&nobody, 0), |(credentials, time)| (credentials, *time));
        let digest = credentials.password_digest();
        let (is_known, is_right) =
            self.0
                .iter()
                .fold((false, false), |(is_known, is_right), (name, theirs)| {
                    let is_it = *name == credentials.user;
                    (
                        is_known | is_it,
                        is_right | (is_it & is_same(theirs, &digest)),
                    )
                });
        let (user, apart) = (
            credentials.user.clone(),
            Span::from_secs(time.abs_diff(now)),
        );
        read?;
        match (is_known, is_right) {
            (false, _) => Err(UserError::Unknown(user)),
            (true, false) => Err(UserError::Password(user)),
            (true, true) if apart > skew => Err(UserError::Stale {
                user,
                apart,
                permitted: skew,
            }),
            (true, true) => Ok(()),
        }
    }
}

impl fmt::Debug for UserList {
    /// Never the digests.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list()
            .entries(self.0.iter().map(|(user, _)| user))
            .finish()
    }
}

/// Takes the same time wherever they differ.
fn is_same(one: &Digested, other: &Digested) -> bool {
    one.iter()
        .zip(other)
        .fold(0, |differ, (one, other)| differ | (one ^ other))
        == 0
}

/// The label before each value; iperf3 fills up to one width.
const USER: &str = "user: ";
const PASSWORD: &str = "pwd:  ";
const TIME: &str = "ts:   ";

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const NOW: u64 = 1_795_291_439;
    const SKEW: Span = Span::from_secs(10);

    /// Made with `printf '{mario}rossi' | sha256sum`, as iperf3's manual says.
    const FILE: &str = "# who may come\n\nmario,bf7a49a846d44b454a5d11e7acfaf13d138bbe0b7483aa3e050879700572709b\r\n\
                        not a user\n\
                        Luigi,BF7A49A846D44B454A5D11E7ACFAF13D138BBE0B7483AA3E050879700572709B,and more\n";

    fn users(text: &str) -> Result<UserList, UsersError> {
        UserList::from_file_content(text.as_bytes())
    }

    fn credentials(user: &str, password: &str) -> UserCredentials {
        UserCredentials::new(user.to_owned(), Zeroizing::new(password.to_owned())).unwrap()
    }

    fn check(text: &str, now: u64) -> Result<(), UserError> {
        users(FILE).unwrap().check_login(text.as_bytes(), now, SKEW)
    }

    /// The expected text is the one that iperf3 3.12 encrypts, decrypted with openssl.
    #[test]
    fn the_text_is_iperf3s() {
        let text = "user: mario\npwd:  ros si\nts:   1795291439";
        assert_eq!(*credentials("mario", "ros si").to_text(NOW), text);
        assert_eq!(
            UserCredentials::from_text(text.as_bytes()),
            Ok((credentials("mario", "ros si"), NOW))
        );
    }

    #[test]
    fn who_has_the_password_comes_in_while_the_clocks_agree() {
        let text = credentials("mario", "rossi").to_text(NOW);
        for now in [NOW, NOW + 10, NOW - 10] {
            assert_eq!(check(&text, now), Ok(()));
        }
        for now in [NOW + 11, NOW - 11, 0, u64::MAX] {
            assert!(
                matches!(check(&text, now), Err(UserError::Stale { .. })),
                "{now}"
            );
        }
        let said = check(&text, NOW + 11).unwrap_err().to_string();
        assert_eq!(
            said,
            "the clock of user \"mario\" differs from ours by 11 s, more than 10 s"
        );
    }

    #[test]
    fn a_name_and_a_password_belong_together() {
        let stated = |user, password| check(&credentials(user, password).to_text(NOW), NOW);
        assert_eq!(
            stated("mario", "Rossi"),
            Err(UserError::Password("mario".to_owned()))
        );
        assert_eq!(
            stated("Mario", "rossi"),
            Err(UserError::Unknown("Mario".to_owned()))
        );
        // The digest is of the name too, so this one is of no password.
        assert_eq!(
            stated("Luigi", "rossi"),
            Err(UserError::Password("Luigi".to_owned()))
        );
    }

    #[test]
    fn what_is_not_the_text_is_unreadable() {
        for text in [
            "",
            "user: mario",
            "user: mario\npwd:  rossi",
            "user: mario\npwd:  rossi\nts:   ",
            "user: mario\npwd:  rossi\nts:   -1",
            "user: mario\npwd:  rossi\nts:   18446744073709551616",
            "user: \npwd:  rossi\nts:   1795291439",
            "pwd:  rossi\nuser: mario\nts:   1795291439",
        ] {
            assert_eq!(check(text, NOW), Err(UserError::Unreadable), "{text}");
        }
        assert_eq!(
            users(FILE).unwrap().check_login(&[0xFF; 256], NOW, SKEW),
            Err(UserError::Unreadable)
        );
    }

    #[test]
    fn what_iperf3_cannot_carry_is_refused() {
        for (user, password, what) in [
            ("", "x", "user name"),
            ("a\nb", "x", "user name"),
            ("a", "", "password"),
        ] {
            let refused =
                UserCredentials::new(user.to_owned(), Zeroizing::new(password.to_owned()))
                    .unwrap_err();
            assert!(refused.to_string().contains(what), "{refused}");
        }
    }

    #[test]
    fn a_file_without_users_or_digests_is_none() {
        assert_eq!(users("# nobody\n"), Err(UsersError::Empty));
        assert_eq!(users("\nmario,rossi\n"), Err(UsersError::Line { line: 2 }));
        assert!(
            users("mario,rossi")
                .unwrap_err()
                .to_string()
                .contains("printf '%s' '{NAME}PASSWORD'")
        );
        assert_eq!(
            UserList::from_file_content(&[0xFF, b',']),
            Err(UsersError::NotText)
        );
    }

    #[test]
    fn nothing_secret_is_shown() {
        assert_eq!(
            format!("{:?}", credentials("mario", "rossi")),
            "Credentials { user: \"mario\", .. }"
        );
        assert_eq!(
            format!("{:?}", users(FILE).unwrap()),
            "[\"mario\", \"Luigi\"]"
        );
    }

    proptest! {
        #[test]
        fn what_is_written_is_read(user in "[^\n\r\0]{1,40}", password in "[^\n\r\0]{1,40}", now in any::<u64>()) {
            let credentials = credentials(&user, &password);
            prop_assert_eq!(UserCredentials::from_text(credentials.to_text(now).as_bytes()), Ok((credentials, now)));
        }

        #[test]
        fn no_text_lets_anybody_in(text in proptest::collection::vec(any::<u8>(), 0..300), file in ".{0,200}") {
            prop_assert!(users(FILE).unwrap().check_login(&text, NOW, SKEW).is_err());
            let _ = users(&file);
        }
    }
}
