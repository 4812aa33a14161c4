//! When a relay leaves copying; that its bytes arrive is tested with the whole proxy.

use std::time::Duration;

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};

use super::{End, Meter, Pools, relay};
use crate::metrics::{ListenerCells, RouteCells};
use crate::proxy::limits::SPLICE_AFTER_BYTES;
use crate::proxy::pool::Buffers;
use crate::proxy::splice::Pipes;

const PATIENCE: Duration = Duration::from_secs(30);

async fn pair() -> (TcpStream, TcpStream) {
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("bind");
    let near = TcpStream::connect(listener.local_addr().expect("address")).await.expect("connect");
    near.set_nodelay(true).expect("nodelay");
    (near, listener.accept().await.expect("accept").0)
}

/// Runs `test` with both ends of a relay; gives the pipes that the relay had made by the end.
async fn relayed(test: impl AsyncFnOnce(&mut TcpStream, &mut TcpStream)) -> usize {
    let ((mut client, client_inside), (mut server, server_inside)) = (pair().await, pair().await);
    let pools = Pools { buffers: Buffers::default(), pipes: Pipes::new(4) };
    let (listener, route) = (ListenerCells::default(), RouteCells::default());
    let meter = Meter { listener: &listener, route: &route };
    let relaying = relay(client_inside, server_inside, None, &pools, meter, PATIENCE);
    let talking = async {
        test(&mut client, &mut server).await;
        drop((client, server));
    };
    let (end, ()) =
        tokio::time::timeout(PATIENCE, async { tokio::join!(relaying, talking) }).await.expect("in time");
    assert!(matches!(end, End::Finished), "{end:?}");
    pools.pipes.live()
}

#[tokio::test]
async fn connection_that_chats_never_takes_a_pipe() {
    let n_pipes = relayed(async |client, server| {
        let (message, mut heard) = ([7; 700], [0; 700]);
        for _ in 0..4 * SPLICE_AFTER_BYTES / 700 {
            client.write_all(&message).await.expect("say");
            server.read_exact(&mut heard).await.expect("hear");
            server.write_all(&heard).await.expect("answer");
            client.read_exact(&mut heard).await.expect("hear back");
        }
    })
    .await;
    assert_eq!(n_pipes, 0);
}

#[tokio::test]
async fn bulk_takes_a_pipe_and_arrives_whole() {
    const SIZE: usize = 32 * 1024 * 1024;
    let n_pipes = relayed(async |client, server| {
        let sent: Vec<u8> = (0..SIZE).map(|n| (n % 251) as u8).collect();
        let mut got = vec![0; SIZE];
        let (write, read) = tokio::join!(client.write_all(&sent), server.read_exact(&mut got));
        write.expect("sent");
        read.expect("received");
        assert!(got == sent, "other bytes arrived");
    })
    .await;
    assert_eq!(n_pipes, 1);
}
