//! Connections that are not copies yet.

use std::cell::RefCell;
use std::net::SocketAddr;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::Sender;
use std::time::Instant;

use fullpipe_control::{
    ControlConnection, HandedConnections, PendingClients, PendingPlace, PinnedTls, RefusalCounts,
    RefusedConnections, canonical_address,
};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::{spawn_local, yield_now};
use tokio::time::timeout;

use super::{POLL_INTERVAL, ShareEvent, ShareState};
use crate::connect::CONNECT_DEADLINE;

/// Reason for which a caller is not served.
const NO_PLACE: &str = "too many calls are not answered yet";

/// The common state of connections that are not copies yet.
pub(super) struct CallerAdmission {
    pub callers: PendingClients,
    pub tls: PinnedTls,
    pub shared: Arc<ShareState>,
    pub events: Sender<ShareEvent>,
    pub refusals: Rc<RefCell<RefusalCounts>>,
}

impl CallerAdmission {
    pub(super) async fn accept_callers(
        self,
        listener: Option<&TcpListener>,
        handed: &mut HandedConnections,
        interrupt: &AtomicBool,
        report: &mut dyn FnMut(),
    ) {
        let entrance = Rc::new(self);
        while !interrupt.load(Ordering::Relaxed) {
            report();
            let accepted = async {
                tokio::select! {
                    accepted = async { listener?.accept().await.into() }, if listener.is_some() => accepted,
                    accepted = handed.next_connection() => Some(accepted),
                }
            };
            match timeout(POLL_INTERVAL, accepted).await {
                Ok(Some(Ok((stream, client)))) => {
                    Rc::clone(&entrance).admit_caller(stream, canonical_address(client));
                    // Who has lost its place closes its socket before the next one comes.
                    if entrance.callers.is_full() {
                        yield_now().await;
                    }
                }
                // There is no descriptor left.
                Ok(_) => tokio::time::sleep(POLL_INTERVAL).await,
                Err(_) => {}
            }
        }
    }

    fn reject_caller(&self, client: SocketAddr, why: &str) {
        let client = client.ip();
        if self
            .refusals
            .borrow_mut()
            .is_first(client, why, Instant::now())
        {
            // The one who reports them is there.
            let refused = RefusedConnections::of_one(client, why);
            let _ = self.events.send(ShareEvent::Rejected(refused));
        }
    }

    fn admit_caller(self: Rc<Self>, stream: TcpStream, client: SocketAddr) {
        if !self.shared.serves_address(client.ip()) {
            return self.reject_caller(client, "its address is not served");
        }
        let Some(mut caller) = self.callers.admit_client(client.ip(), Instant::now()) else {
            return self.reject_caller(client, NO_PLACE);
        };
        spawn_local(async move {
            let served = match prove_caller(&self.tls, stream, &mut caller).await {
                Ok(connection) if connection.is_part() => {
                    self.shared.joining.pass_connection(connection).await
                }
                Ok(connection) => {
                    Arc::clone(&self.shared)
                        .start_copy(connection, client, self.events.clone())
                        .await
                }
                Err(why) => Err(why),
            };
            drop(caller);
            if let Err(why) = served {
                self.reject_caller(client, why);
            }
        });
    }
}

/// Returns the connection of a caller once it has proved that it has the key.
///
/// # Errors
/// Fails if it does not, loses its place, or too many of its address wait.
async fn prove_caller(
    tls: &PinnedTls,
    stream: TcpStream,
    caller: &mut PendingPlace,
) -> Result<ControlConnection, &'static str> {
    const NO_PROOF: &str = "it has not proved that it has the key";
    let answer = async {
        let Some(readable) = caller.wait_for_first_byte(&stream).await else {
            return Ok(None);
        };
        readable?;
        caller
            .unless_lost(tls.accept_pinned(stream))
            .await
            .transpose()
    };
    match timeout(CONNECT_DEADLINE, answer).await {
        Ok(Ok(Some(connection))) if caller.mark_proven().is_ok() => Ok(connection),
        Ok(Ok(_)) => Err(NO_PLACE),
        Ok(Err(_)) | Err(_) => Err(NO_PROOF),
    }
}
