//! Takes connections, and no more of them than there is room for.

use std::collections::BTreeSet;
use std::io;
use std::net::{SocketAddr, ToSocketAddrs};
use std::sync::Arc;
use std::time::Duration;

use futures::future::select_all;
use tokio::net::{TcpListener, TcpSocket, TcpStream};
use tokio::sync::oneshot;

use super::Shared;
use super::connection::{self, Connection};
use super::gate::Arrival;
use super::tls::Acceptor;
use super::windows::Windows;

/// A thousand clients may come at once.
const BACKLOG: u32 = 4096;
/// How often the port shows a sign of life when nobody connects.
const BEAT: Duration = Duration::from_secs(1);
/// Where the process has no descriptor left for another connection, until one is closed.
const PAUSE: Duration = Duration::from_millis(50);

/// A port that is listened on, on every address of a host.
pub struct Bound {
    listeners: Vec<TcpListener>,
    pub port: u16,
}

impl Bound {
    async fn accept(&self) -> io::Result<(TcpStream, SocketAddr)> {
        let accepts = self.listeners.iter();
        let accepts = accepts.map(|listener| Box::pin(listener.accept()));
        select_all(accepts).await.0
    }
}

/// So many free ports are tried where a host has several addresses and one of them has the port in use.
const FREE_PORTS: usize = 20;

/// Listens, so that whoever connects from now on is answered, whichever address of the host a client takes. Those that
/// this machine does not have are left out. Call it on the server's runtime.
pub fn bind(host: &str, port: u16) -> io::Result<Bound> {
    let addresses: BTreeSet<SocketAddr> = (host, port).to_socket_addrs()?.collect();
    for _ in 1..FREE_PORTS {
        match bind_all(&addresses) {
            Err(error) if port == 0 && error.kind() == io::ErrorKind::AddrInUse => {}
            bound => return bound,
        }
    }
    bind_all(&addresses)
}

fn bind_all(addresses: &BTreeSet<SocketAddr>) -> io::Result<Bound> {
    let mut listeners = Vec::new();
    let mut port = None;
    let mut missing = io::Error::other("the host has no address");
    for mut address in addresses.iter().copied() {
        address.set_port(port.unwrap_or(address.port()));
        match listen(address) {
            Ok(listener) => {
                port = Some(listener.local_addr()?.port());
                listeners.push(listener);
            }
            Err(error) if is_missing(&error) => missing = error,
            Err(error) => return Err(error),
        }
    }
    port.map(|port| Bound { listeners, port }).ok_or(missing)
}

/// Whether the machine does not have an address, as without IPv6.
fn is_missing(error: &io::Error) -> bool {
    error.kind() == io::ErrorKind::AddrNotAvailable
        || error.raw_os_error() == Some(libc::EAFNOSUPPORT)
}

fn listen(address: SocketAddr) -> io::Result<TcpListener> {
    let socket = if address.is_ipv4() {
        TcpSocket::new_v4()
    } else {
        TcpSocket::new_v6()
    }?;
    socket.set_reuseaddr(true)?;
    socket.bind(address)?;
    socket.listen(BACKLOG)
}

/// Serves until the server is closing.
pub async fn serve(bound: Bound, shared: Arc<Shared>, tls: Option<Acceptor>) {
    let mut closing = shared.closing.subscribe();
    let _alive = shared.pulse.alive();
    let mut beats = tokio::time::interval(BEAT);
    loop {
        shared.pulse.beat();
        let accepted = tokio::select! {
            accepted = bound.accept() => accepted,
            _ = beats.tick() => continue,
            _ = closing.wait_for(|closing| *closing) => return,
        };
        let Ok((stream, address)) = accepted else {
            shared.gate.make_room();
            tokio::time::sleep(PAUSE).await;
            continue;
        };
        if let Some((arrival, sent_away)) = shared.gate.arrive() {
            let (shared, tls) = (Arc::clone(&shared), tls.clone());
            tokio::spawn(meet(arrival, sent_away, stream, address, shared, tls));
        }
    }
}

/// Shakes hands, for as long as that may take, and serves.
async fn meet(
    arrival: Arrival,
    mut sent_away: oneshot::Receiver<()>,
    stream: TcpStream,
    address: SocketAddr,
    shared: Arc<Shared>,
    tls: Option<Acceptor>,
) {
    let begun = tokio::select! {
        begun = begin(&arrival, stream, tls, &shared) => begun,
        _ = &mut sent_away => None,
        () = tokio::time::sleep(shared.limits.handshake) => {
            arrival.is_late();
            None
        }
    };
    if let Some((connection, windows)) = begun
        && let Some(entered) = arrival.enter()
    {
        let peer = peer(&address);
        connection::serve(connection, entered, sent_away, shared, windows, peer).await;
    }
}

async fn begin(
    arrival: &Arrival,
    stream: TcpStream,
    tls: Option<Acceptor>,
    shared: &Shared,
) -> Option<(Connection, Arc<Windows>)> {
    stream.set_nodelay(true).ok()?;
    stream.readable().await.ok()?;
    arrival.spoke();
    let io: connection::Io = match tls {
        None => Box::new(stream),
        Some(tls) => Box::new(tls.accept(stream).await.ok()?),
    };
    let windows = Windows::open(&shared.windows, shared.limits.quiet);
    let connection = connection::handshake(io, shared, &windows).await?;
    Some((connection, windows))
}

/// As gRPC names it.
fn peer(address: &SocketAddr) -> String {
    match address {
        SocketAddr::V4(address) => format!("ipv4:{address}"),
        SocketAddr::V6(address) => format!("ipv6:%5B{}%5D:{}", address.ip(), address.port()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tokio::io::AsyncWriteExt;

    fn addresses(hosts: &[&str]) -> BTreeSet<SocketAddr> {
        let addresses = hosts
            .iter()
            .map(|host| SocketAddr::new(host.parse().unwrap(), 0));
        addresses.collect()
    }

    #[tokio::test]
    async fn every_address_that_the_machine_has_is_listened_on_at_one_port() {
        // The last one is kept for documentation, so that nobody has it.
        let bound = bind_all(&addresses(&["127.0.0.1", "127.0.0.2", "192.0.2.1"])).unwrap();
        assert_eq!(bound.listeners.len(), 2);
        for host in ["127.0.0.2", "127.0.0.1"] {
            let connecting = TcpStream::connect((host, bound.port));
            let (connected, accepted) = tokio::join!(connecting, bound.accept());
            connected.unwrap().write_all(b"x").await.unwrap();
            assert_eq!(
                accepted.unwrap().0.local_addr().unwrap().ip().to_string(),
                host
            );
        }
    }

    #[tokio::test]
    async fn a_port_that_is_in_use_at_one_address_is_not_listened_on_at_the_others() {
        let taken = listen("127.0.0.2:0".parse().unwrap()).unwrap();
        let port = taken.local_addr().unwrap().port();
        let mut addresses = addresses(&["127.0.0.1", "127.0.0.2"]);
        addresses = addresses
            .iter()
            .map(|address| SocketAddr::new(address.ip(), port))
            .collect();
        let error = bind_all(&addresses).err().unwrap();
        assert_eq!(error.kind(), io::ErrorKind::AddrInUse);
        assert!(listen(SocketAddr::from(([127, 0, 0, 1], port))).is_ok());
        let missing = bind_all(&self::addresses(&["192.0.2.1"])).err().unwrap();
        assert_eq!(missing.kind(), io::ErrorKind::AddrNotAvailable);
    }
}
