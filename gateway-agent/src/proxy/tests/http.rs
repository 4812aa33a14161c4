//! HTTP through the whole proxy; what the HTTP proxy itself does is tested beside it.

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpListener;

use super::harness::{Harness, V4, V6, at, echo, exchange, http, key, soon, tcp};
use crate::snapshot::Transport;

const REQUEST: &[u8] = b"GET / HTTP/1.1\r\nhost: a\r\nconnection: close\r\n\r\n";

#[tokio::test]
async fn listener_speaks_what_the_newest_snapshot_says() {
    let mut harness = Harness::new();
    let server = TcpListener::bind((V4, 0)).await.expect("bind");
    let web = server.local_addr().expect("address");
    tokio::spawn(async move {
        while let Ok((mut stream, _)) = server.accept().await {
            // The proxy's own heads are small and come in one write.
            let n = stream.read(&mut [0; 1024]).await.expect("request");
            assert!(n > 0);
            stream.write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nhi").await.expect("answer");
        }
    });
    let raw = echo(V4, b"").await;
    let key = key(Transport::Tcp, None);
    harness.serve(vec![http(key, &[web])]).await;
    for client in [V4, V6] {
        let answer = exchange(at(client, key), REQUEST).await;
        assert!(answer.starts_with(b"HTTP/1.1 200 OK\r\n") && answer.ends_with(b"\r\n\r\nhi"), "{answer:?}");
    }
    // The same sockets, another protocol.
    harness.serve(vec![tcp(key, &[raw])]).await;
    soon(async { while exchange(at(V4, key), REQUEST).await != REQUEST {} }).await;
    harness.end().await;
}
