//! Reuse of connections, changes of the snapshot, shutdown.

use super::*;

const GET: &[u8] = b"GET / HTTP/1.1\r\nHost: a\r\n\r\n";

#[test]
fn ten_thousand_requests_use_one_connection_to_the_server() {
    run(async |lab| {
        let (address, _, n_connections) = canned(OK).await;
        lab.route_to(&[address]);
        let mut client = lab.connect().await;
        for n in 0..10_000 {
            client.write_all(GET).await.unwrap();
            expect(&mut client, OK).await;
            if n % 1000 == 0 {
                client = lab.connect().await;
            }
        }
        assert_eq!(n_connections.get(), 1);
    });
}

#[test]
fn snapshot_change_holds_from_the_next_request_of_a_connection() {
    run(async |lab| {
        let (one, ..) = canned("HTTP/1.1 200 OK\r\nContent-Length: 3\r\n\r\none").await;
        let (two, ..) = canned("HTTP/1.1 200 OK\r\nContent-Length: 3\r\n\r\ntwo").await;
        let mut client = lab.connect().await;
        for n in 0..50 {
            let (address, name) = if n % 2 == 0 { (one, "one") } else { (two, "two") };
            lab.route_to(&[address]);
            client.write_all(GET).await.unwrap();
            expect(&mut client, &format!("HTTP/1.1 200 OK\r\nContent-Length: 3\r\n\r\n{name}")).await;
        }
        lab.publisher.publish(Arc::default());
        client.write_all(GET).await.unwrap();
        assert!(read_to_end(&mut client).await.starts_with("HTTP/1.1 404 "));
    });
}

#[test]
fn request_under_way_is_not_touched_by_a_snapshot_change() {
    run(async |lab| {
        let address = server(|mut stream, _| async move {
            read_head(&mut stream).await;
            stream.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 8\r\n\r\nhalf").await.unwrap();
            expect(&mut stream, "x").await;
            stream.write_all(b"half").await.unwrap();
        })
        .await;
        lab.route_to(&[address]);
        let mut client = lab.connect().await;
        client.write_all(b"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 1\r\n\r\n").await.unwrap();
        expect(&mut client, "HTTP/1.1 200 OK\r\nContent-Length: 8\r\nConnection: close\r\n\r\nhalf").await;
        lab.publisher.publish(Arc::default());
        client.write_all(b"x").await.unwrap();
        assert_eq!(read_to_end(&mut client).await, "half");
    });
}

#[test]
fn idle_connections_close_at_once_when_stopping_and_busy_ones_after_their_answer() {
    run(async |lab| {
        let go = Rc::new(tokio::sync::Notify::new());
        let is_busy = Rc::new(Cell::new(false));
        let (gate, busy_flag) = (go.clone(), is_busy.clone());
        let address = server(move |mut stream, _| {
            let (gate, is_busy) = (gate.clone(), busy_flag.clone());
            async move {
                while let Some(head) = read_head(&mut stream).await {
                    if head.starts_with("GET /slow") {
                        is_busy.set(true);
                        gate.notified().await;
                    }
                    stream.write_all(OK.as_bytes()).await.unwrap();
                }
            }
        })
        .await;
        lab.route_to(&[address]);
        let mut idle = lab.connect().await;
        idle.write_all(GET).await.unwrap();
        expect(&mut idle, OK).await;
        let mut silent = lab.connect().await;
        let mut busy = lab.connect().await;
        busy.write_all(b"GET /slow HTTP/1.1\r\nHost: a\r\n\r\n").await.unwrap();
        until(|| is_busy.get()).await;
        lab.drain.stop();
        assert_eq!(read_to_end(&mut idle).await, "");
        assert_eq!(read_to_end(&mut silent).await, "");
        go.notify_one();
        assert_eq!(
            read_to_end(&mut busy).await,
            "HTTP/1.1 200 OK\r\nContent-Length: 2\r\nConnection: close\r\n\r\nok"
        );
        assert!(!lab.worker.pool.borrow().has_idle());
    });
}

#[test]
fn abort_ends_what_is_left() {
    run(async |lab| {
        let address = server(|mut stream, _| async move {
            read_head(&mut stream).await;
            std::future::pending::<()>().await;
        })
        .await;
        lab.route_to(&[address]);
        let mut client = lab.connect().await;
        client.write_all(GET).await.unwrap();
        lab.drain.abort();
        assert_eq!(read_to_end(&mut client).await, "");
        until(|| !lab.worker.clock.has_timers()).await;
    });
}

#[test]
fn kept_connections_expire_and_the_ticker_sleeps() {
    run_paused(async |lab| {
        let (address, ..) = canned(OK).await;
        lab.route_to(&[address]);
        let mut client = lab.connect().await;
        client.write_all(GET).await.unwrap();
        expect(&mut client, OK).await;
        drop(client);
        until(|| !lab.worker.clock.has_timers()).await;
        assert!(lab.worker.pool.borrow().has_idle());
        let started = tokio::time::Instant::now();
        until(|| !lab.worker.pool.borrow().has_idle()).await;
        assert!(started.elapsed() < Duration::from_secs(58));
    });
}

#[test]
fn kept_connections_are_bounded() {
    run(async |lab| {
        let (address, _, n_connections) = canned(OK).await;
        lab.route_to(&[address]);
        let mut clients = Vec::new();
        for _ in 0..200 {
            let mut client = lab.connect().await;
            client.write_all(GET).await.unwrap();
            clients.push(client);
        }
        for client in &mut clients {
            expect(client, OK).await;
        }
        assert!(n_connections.get() <= 200);
        let mut pool = lab.worker.pool.borrow_mut();
        let mut n_kept = 0;
        while pool.take(&address, 0, super::super::pool::Liveness::Probed).is_some() {
            n_kept += 1;
        }
        assert!((1..=super::super::limits::POOL_IDLE_PER_ENDPOINT_MAX).contains(&n_kept), "{n_kept}");
    });
}
