//! The far end: started by ssh, it does what the near end asks, with the rights of its user.

use std::io::{Read, Write};
use std::net::IpAddr;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use fullpipe_transfer::{Excludes, Hello, Message, Ready, VERSION};
use fullpipe_units::{BitRate, Span};

use crate::common::Common;
use crate::connect::{CONNECT_DEADLINE, Credentials, Listener, dial};
use crate::control::{Frames, Outgoing};
use crate::data_stream::DataStream;
use crate::options::CopyError;
use crate::receiver::{ReceiveOptions, Receiver};
use crate::sender::Sender;
use crate::session::{End, own_settings, settings_of};
use crate::ssh::GREETING;
use crate::walk::Source;

/// Serves one near end over standard input and output, until it goes away.
///
/// # Errors
/// Fails if the near end goes away early or breaks the rules. It knows every other reason, which it shows to its user.
pub fn far_end(from: impl Read, mut to: impl Write + Send + 'static) -> Result<(), CopyError> {
    let failed = CopyError::io("cannot answer the near end");
    to.write_all(GREETING).and_then(|()| to.flush()).map_err(&failed)?;
    let (out, writer) = Outgoing::start(to).map_err(&failed)?;
    let mut frames = Frames::new(from);
    let served = serve(&mut frames, &out);
    if let Err(error) = &served
        && let Some(code) = error.code_for_peer()
    {
        out.send(&Message::Refused { code, why: error.to_string() });
    }
    // The near end closes when it has read everything.
    while let Ok(Some(_)) = frames.next() {}
    drop((out, writer));
    served
}

fn serve<R: Read>(frames: &mut Frames<R>, out: &Outgoing) -> Result<(), CopyError> {
    let Message::Hello(hello) = next(frames)? else {
        return Err(CopyError::Protocol("it does not begin with its request".to_owned()));
    };
    if hello.version != VERSION {
        let why = format!(
            "the far end speaks version {VERSION} of the protocol of copies, and this one version {}: install the same \
             fullpipe at both",
            hello.version
        );
        return Err(CopyError::Refused { code: 1, why });
    }
    let credentials = Credentials::new(&hello.secret).map_err(CopyError::io("cannot make a key"))?;
    let end = end(&hello, out)?;
    let listener = Listener::start(hello.ports, &credentials).ok();
    let settings = own_settings();
    out.send(&Message::Ready(Ready {
        port: listener.as_ref().map_or(0, |listener| listener.port),
        address: ssh_connection(2).map_or_else(Vec::new, |address| address.to_string().into_bytes()),
        settings: serde_json::to_vec(&settings).unwrap_or_default(),
    }));
    let streams = connect(frames, listener, &credentials)?;
    let rtt = streams.first().and_then(DataStream::rtt).unwrap_or(Span::from_millis(1));
    end.run(frames, streams, rtt, [settings, settings_of(&hello.settings)]).map(drop)
}

/// Waits until the near end says how many connections carry data, and returns them.
fn connect<R: Read>(
    frames: &mut Frames<R>,
    listener: Option<Listener>,
    credentials: &Credentials,
) -> Result<Vec<DataStream>, CopyError> {
    let mut dialled: Option<(IpAddr, u16, Vec<DataStream>)> = None;
    loop {
        match next(frames)? {
            Message::Dial { port } => {
                let hosts: Vec<IpAddr> = ssh_connection(0).into_iter().collect();
                // The near end notices when nothing comes.
                dialled = dial(&hosts, port, credentials, 1).ok().map(|(host, made)| (host, port, made));
            }
            Message::Streams { count } => {
                let count = usize::from(count);
                let Some((host, port, mut made)) = dialled else {
                    return Ok(listener.map_or_else(Vec::new, |listener| listener.take(count, CONNECT_DEADLINE)));
                };
                let more = count.saturating_sub(made.len());
                if more > 0
                    && let Ok((_, others)) = dial(&[host], port, credentials, more)
                {
                    made.extend(others);
                }
                made.truncate(count);
                return Ok(made);
            }
            Message::Refused { code, why } => return Err(CopyError::Refused { code, why }),
            _ => return Err(CopyError::Protocol("it does not say which connections carry data".to_owned())),
        }
    }
}

fn next<R: Read>(frames: &mut Frames<R>) -> Result<Message<'_>, CopyError> {
    let frame = frames.next().map_err(|_| CopyError::Gone)?.ok_or(CopyError::Gone)?;
    Ok(Message::read(frame)?)
}

fn end(hello: &Hello, out: &Outgoing) -> Result<End, CopyError> {
    let common = Common::new(out.clone(), Arc::default(), None);
    let excludes = Excludes::new(hello.excludes.iter().map(Vec::as_slice));
    let paths: Vec<PathBuf> = hello.paths.iter().map(|path| from_home(path)).collect();
    if hello.far_sends {
        let sources = paths.iter().map(|path| Source::open(path)).collect::<Result<Vec<_>, _>>()?;
        let limit = (hello.limit > 0).then(|| BitRate::from_bps(hello.limit));
        return Ok(End::Sender(Arc::new(Sender::new(common, sources, excludes, limit))));
    }
    let [path] = paths.as_slice() else {
        return Err(CopyError::Protocol("it names not one destination".to_owned()));
    };
    let options =
        ReceiveOptions { path: path.clone(), dry_run: hello.dry_run, delete: hello.delete, excludes, tops: None };
    Ok(End::Receiver(Arc::new(Receiver::new(common, options))))
}

/// Returns a path of the user, where `~/` is the folder in which ssh starts.
fn from_home(path: &[u8]) -> PathBuf {
    let path = if path == b"~" { b"." } else { path.strip_prefix(b"~/").unwrap_or(path) };
    let path = if path.is_empty() { b"./" } else { path };
    Path::new(std::ffi::OsStr::from_bytes(path)).to_owned()
}

/// Returns an address of the connection that ssh uses: the near end's is the first word, this host's the third.
fn ssh_connection(word: usize) -> Option<IpAddr> {
    let connection = std::env::var("SSH_CONNECTION").ok()?;
    connection.split_whitespace().nth(word)?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io;

    #[test]
    fn who_does_not_begin_with_a_request_of_this_version_is_refused() {
        let hello = |version| {
            let hello = Hello {
                version,
                far_sends: true,
                dry_run: false,
                delete: false,
                secret: [0; 32],
                ports: (0, 0),
                limit: 0,
                paths: vec![b"/nowhere/at/all".to_vec()],
                excludes: Vec::new(),
                settings: Vec::new(),
            };
            far_end(&Message::Hello(hello).frame()[..], io::sink()).unwrap_err().to_string()
        };
        assert!(hello(VERSION + 1).contains("install the same fullpipe at both"));
        assert!(hello(VERSION).contains("/nowhere/at/all"));
        assert!(matches!(far_end(&b""[..], io::sink()), Err(CopyError::Gone)));
        let early = Message::Finished.frame();
        assert!(matches!(far_end(&early[..], io::sink()), Err(CopyError::Protocol(_))));
    }

    #[test]
    fn a_tilde_stands_for_the_folder_where_ssh_starts() {
        assert_eq!(from_home(b"~/a"), Path::new("a"));
        assert_eq!(from_home(b"~"), Path::new("."));
        assert_eq!(from_home(b"~/").as_os_str(), "./");
        assert_eq!(from_home(b"/a/~"), Path::new("/a/~"));
    }
}
