//! Takes connections, and no more of them than there is room for.

use std::io;
use std::net::{SocketAddr, ToSocketAddrs};
use std::sync::Arc;
use std::time::Duration;

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

/// A port that is listened on.
pub struct Bound {
    listener: TcpListener,
    pub port: u16,
}

/// Listens, so that whoever connects from now on is answered. Call it on the server's runtime.
pub fn bind(host: &str, port: u16) -> io::Result<Bound> {
    let address = (host, port).to_socket_addrs()?.next();
    let address = address.ok_or_else(|| io::Error::other("the host has no address"))?;
    let socket = if address.is_ipv4() {
        TcpSocket::new_v4()
    } else {
        TcpSocket::new_v6()
    }?;
    socket.set_reuseaddr(true)?;
    socket.bind(address)?;
    let listener = socket.listen(BACKLOG)?;
    let port = listener.local_addr()?.port();
    Ok(Bound { listener, port })
}

/// Serves until the server is closing.
pub async fn serve(bound: Bound, shared: Arc<Shared>, tls: Option<Acceptor>) {
    let mut closing = shared.closing.subscribe();
    let _alive = shared.pulse.alive();
    let mut beats = tokio::time::interval(BEAT);
    loop {
        shared.pulse.beat();
        let accepted = tokio::select! {
            accepted = bound.listener.accept() => accepted,
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
