use super::*;
use std::net::TcpListener;

/// Returns addresses at which no program listens.
fn closed<const N: usize>() -> [SocketAddr; N] {
    // All at once, so that they differ.
    let listeners = [(); N].map(|()| TcpListener::bind("127.0.0.1:0").unwrap());
    listeners.map(|listener| listener.local_addr().unwrap())
}

async fn connected(addresses: &[SocketAddr]) -> Result<SocketAddr, ProbeError> {
    let destination = Destination {
        host: "name".to_owned(),
        without_echoes: true,
        ..Destination::default()
    };
    let (control, _) = connect_to_any(&destination, addresses, Transport::Tcp).await?;
    Ok(control.peer_addr().unwrap())
}

#[tokio::test]
async fn a_server_is_reached_at_any_of_its_addresses() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    let [first, second, third] = closed();
    assert_eq!(
        connected(&[first, second, third, address]).await.unwrap(),
        address
    );
}

#[tokio::test]
async fn the_last_address_that_was_tried_is_reported() {
    let [first, second] = closed();
    let error = connected(&[first, second]).await.unwrap_err();
    let is_refused = matches!(&error, ProbeError::Connect { address, hint, .. }
            if *address == second && hint.contains("fullpipe serve"));
    assert!(is_refused, "{error}");
}
