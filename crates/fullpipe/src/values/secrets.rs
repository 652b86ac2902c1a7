//! Files of keys, certificates and users.

use std::fmt::Display;
use std::fs::File;
use std::io::{self, Read};
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use fullpipe_control::{RsaPrivateKey, RsaPublicKey, TlsIdentity, TlsTrust};
use fullpipe_iperf::{SealedTicket, SharedKey, UserList};
use zeroize::Zeroizing;

/// Reads the file of a key that both ends share.
pub(crate) fn read_key_file(path: &str) -> Result<SharedKey, String> {
    read_protected(path, SharedKey::from_file_content)
}

/// Reads the file of a ticket and its key.
pub(crate) fn read_ticket_file(path: &str) -> Result<SealedTicket, String> {
    read_protected(path, SealedTicket::from_line)
}

/// Reads the file of a server's certificate and its private key.
pub(crate) fn tls_identity(path: &str) -> Result<TlsIdentity, String> {
    read_protected(path, TlsIdentity::from_pem)
}

/// Reads the file of the certificates that a client trusts.
pub(crate) fn tls_trust(path: &str) -> Result<TlsTrust, String> {
    read_secret_file(path, TlsTrust::from_pem)
}

/// Reads the file of the public part of a server's RSA key.
pub(crate) fn rsa_public_key(path: &str) -> Result<RsaPublicKey, String> {
    read_secret_file(path, RsaPublicKey::from_pem)
}

/// Reads the file of a server's RSA key.
pub(crate) fn rsa_private_key(path: &str) -> Result<RsaPrivateKey, String> {
    read_protected(path, RsaPrivateKey::from_pem)
}

/// Reads the file of a server's users, in which passwords can be guessed.
pub(crate) fn read_user_file(path: &str) -> Result<UserList, String> {
    read_protected(path, UserList::from_file_content)
}

/// Reads a file with `from`. Some of them are secret, so no copy of the content is left in memory.
pub(crate) fn read_secret_file<T, E: Display>(
    path: &str,
    from: impl FnOnce(&[u8]) -> Result<T, E>,
) -> Result<T, String> {
    parse_content(std::fs::read(path).map(Zeroizing::new), from)
}

fn parse_content<T, E: Display>(
    content: io::Result<Zeroizing<Vec<u8>>>,
    from: impl FnOnce(&[u8]) -> Result<T, E>,
) -> Result<T, String> {
    let content = content.map_err(|error| error.to_string())?;
    from(&content).map_err(|error| error.to_string())
}

/// Reads a file as [`read_secret_file`] does, unless it holds a secret that is none.
fn read_protected<T, E: Display>(
    path: &str,
    from: impl FnOnce(&[u8]) -> Result<T, E>,
) -> Result<T, String> {
    parse_content(read_protected_file(path), from)
}

/// Returns the content of a file, unless every user of this host may read or change it. A group
/// may: services have files of root that their group reads.
pub(crate) fn read_protected_file(path: impl AsRef<Path>) -> io::Result<Zeroizing<Vec<u8>>> {
    const OF_OTHERS: u32 = 0o006;
    /// Bytes that are read: more than a chain of certificates has. No copy is left by a buffer that
    /// grows.
    const MAX: usize = 1 << 20;
    let file = File::open(path)?;
    let state = file.metadata()?;
    if state.is_file() && state.permissions().mode() & OF_OTHERS != 0 {
        return Err(io::Error::other(
            "every user of this host may read or change it; `chmod 600` protects it",
        ));
    }
    let mut content = Zeroizing::new(Vec::with_capacity(MAX));
    file.take(MAX as u64).read_to_end(&mut content)?;
    Ok(content)
}

#[cfg(test)]
mod tests {
    use std::fs::Permissions;

    use super::*;

    #[test]
    fn a_secret_that_every_user_may_read_is_refused() {
        let file = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(file.path(), "correct horse battery").unwrap();
        let of_mode = |mode: u32| {
            std::fs::set_permissions(file.path(), Permissions::from_mode(mode)).unwrap();
            read_key_file(file.path().to_str().unwrap()).map(drop)
        };
        assert_eq!([0o600, 0o640, 0o400].map(of_mode), [Ok(()), Ok(()), Ok(())]);
        let path = file.path().to_str().unwrap();
        for mode in [0o644, 0o604, 0o602] {
            let others = [
                of_mode(mode),
                rsa_private_key(path).map(drop),
                read_user_file(path).map(drop),
            ];
            assert!(
                others.iter().all(|read| read
                    .as_ref()
                    .unwrap_err()
                    .contains("`chmod 600` protects it")),
                "{mode:o}"
            );
        }
    }
}
