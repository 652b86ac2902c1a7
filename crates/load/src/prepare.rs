//! Socket options: set as asked, read back as they are.

use std::io;
use std::net::SocketAddr;

use fullpipe_record::{Buffer, Request, SocketReadback};
use fullpipe_units::ByteCount;
use socket2::{Domain, Protocol, SockRef, Socket, Type};
use thiserror::Error;

/// An option that the kernel refused.
#[derive(Debug, Error)]
#[error("cannot set {option} on a socket: {cause}")]
pub struct PrepareError {
    option: String,
    #[source]
    cause: io::Error,
}

impl PrepareError {
    fn of(option: impl Into<String>) -> impl FnOnce(io::Error) -> Self {
        let option = option.into();
        move |cause| Self { option, cause }
    }

    /// What kind of refusal it was.
    pub fn kind(&self) -> io::ErrorKind {
        self.cause.kind()
    }

    /// The operating system's number for it.
    pub fn os_error(&self) -> Option<i32> {
        self.cause.raw_os_error()
    }
}

/// A TCP socket for a connection to `peer`, with everything set that must be set before it connects.
///
/// # Errors
/// If the kernel makes no socket or refuses an option, as a congestion control that it lacks.
pub fn prepare(peer: SocketAddr, request: &Request) -> Result<Socket, PrepareError> {
    let socket = Socket::new(Domain::for_address(peer), Type::STREAM, Some(Protocol::TCP))
        .map_err(PrepareError::of("the protocol TCP"))?;
    apply_options(&SockRef::from(&socket), request)?;
    Ok(socket)
}

/// Sets what `request` asks for. Buffers must be set before a connection is made or accepted: the window scale is agreed
/// in its first packets.
///
/// # Errors
/// If the kernel refuses an option.
pub fn apply_options(socket: &SockRef<'_>, request: &Request) -> Result<(), PrepareError> {
    if let Buffer::Request(size) = request.buffer {
        let bytes = size.get() as usize;
        socket.set_recv_buffer_size(bytes).map_err(PrepareError::of("the receive buffer"))?;
        socket.set_send_buffer_size(bytes).map_err(PrepareError::of("the send buffer"))?;
    }
    if let Some(name) = &request.congestion {
        socket
            .set_tcp_congestion(name.as_bytes())
            .map_err(PrepareError::of(format!("the congestion control {name}")))?;
    }
    if let Some(mss) = request.mss {
        socket.set_tcp_mss(mss.get() as u32).map_err(PrepareError::of("the segment size"))?;
    }
    Ok(())
}

/// What a data socket has, whatever was asked.
///
/// # Errors
/// If the kernel does not tell.
pub fn read_back(socket: &SockRef<'_>, stream: u16) -> io::Result<SocketReadback> {
    let congestion = socket.tcp_congestion()?;
    let name: Vec<u8> = congestion.into_iter().take_while(|&byte| byte != 0).collect();
    Ok(SocketReadback {
        stream,
        sndbuf: ByteCount::new(socket.send_buffer_size()? as u64),
        rcvbuf: ByteCount::new(socket.recv_buffer_size()? as u64),
        congestion: String::from_utf8_lossy(&name).into_owned(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    const PEER: ([u8; 4], u16) = ([127, 0, 0, 1], 5201);

    #[test]
    fn the_congestion_control_is_what_was_asked() {
        let request = Request { congestion: Some("reno".to_owned()), ..Request::default() };
        let socket = prepare(PEER.into(), &request).unwrap();
        assert_eq!(read_back(&SockRef::from(&socket), 3).unwrap().congestion, "reno");
    }

    #[test]
    fn the_kernel_doubles_a_buffer() {
        let request = Request { buffer: Buffer::Request(ByteCount::new(50_000)), ..Request::default() };
        let socket = prepare(PEER.into(), &request).unwrap();
        let found = read_back(&SockRef::from(&socket), 0).unwrap();
        assert_eq!((found.sndbuf.get(), found.rcvbuf.get()), (100_000, 100_000));
    }

    #[test]
    fn a_congestion_control_that_is_not_there_is_named() {
        let request = Request { congestion: Some("nosuch".to_owned()), ..Request::default() };
        let error = prepare(PEER.into(), &request).unwrap_err();
        assert_eq!(
            error.to_string(),
            "cannot set the congestion control nosuch on a socket: No such file or directory (os error 2)"
        );
    }
}
