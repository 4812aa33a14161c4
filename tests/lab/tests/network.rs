//! The lab itself: what is connected with what, and that nothing is left behind.

use std::net::{IpAddr, SocketAddr};

use lab::client::{EchoClient, ask, connect, get, udp};
use lab::servers::{HttpServer, tcp_echo, udp_echo};
use lab::{Command, Family, Lab, Netns, Shape};

fn check_hop(from: &Netns, from_address: IpAddr, to: &Netns, to_address: IpAddr) {
    let port = if to_address.is_ipv4() { 7001 } else { 7002 };
    let _tcp = tcp_echo(to, port, "echo").unwrap();
    let _udp = udp_echo(to, port, "echo").unwrap();
    let address = SocketAddr::new(to_address, port);
    let mut client = EchoClient::connect(from, address).unwrap();
    assert_eq!(client.greeting.identity, "echo");
    assert_eq!(client.greeting.peer_address(), from_address);
    client.echo(b"hello").unwrap();
    assert_eq!(client.finish().unwrap(), "end 5\n");
    let answer = ask(&udp(from, address).unwrap(), b"ping").unwrap();
    assert!(String::from_utf8(answer).unwrap().ends_with(" ping"));
}

#[test]
fn gateway_reaches_client_and_backends_and_forwards_nothing() {
    for shape in [Shape::Routed { backends: 2 }, Shape::Flat { backends: 2 }] {
        let lab = Lab::new(shape).unwrap();
        for family in Family::BOTH {
            check_hop(lab.client(), lab.client_address(family), lab.gateway(), lab.gateway_address(family));
            let towards = lab.gateway_address_towards(2, family);
            check_hop(lab.gateway(), towards, lab.backend(2), lab.backend_address(2, family));
        }
        assert_eq!(lab.gateway().read_sysctl("ipv4/ip_forward").unwrap(), "0");
        assert_eq!(lab.gateway().read_sysctl("ipv6/conf/all/forwarding").unwrap(), "0");
    }
}

#[test]
fn http_server_keeps_connections_and_requests() {
    let lab = Lab::new(Shape::Routed { backends: 1 }).unwrap();
    let server = HttpServer::identity(lab.backend(1), 80, "web").unwrap();
    let to = SocketAddr::new(lab.backend_address(1, Family::V4), 80);
    let mut stream = connect(lab.gateway(), to).unwrap();
    for _ in 0..2 {
        let response = lab::http::exchange(&mut stream, b"GET /a HTTP/1.1\r\nHost: h\r\n\r\n").unwrap();
        assert_eq!(response.text(), "web GET /a\n");
    }
    assert_eq!(get(lab.gateway(), to, "h", "/b").unwrap().status, 200);
    assert_eq!((server.connections(), server.requests().len()), (2, 3));
}

#[test]
fn nothing_is_left_when_a_lab_is_dropped() {
    let lab = Lab::new(Shape::Flat { backends: 1 }).unwrap();
    let sleeper = Command::new("sleeper", "sleep").args(["1000"]).netns(lab.client()).start(&lab).unwrap();
    let (folder, netns, pid) = (lab.folder().to_owned(), lab.client().path(), sleeper.pid());
    assert!(folder.exists() && netns.exists());
    drop(sleeper);
    drop(lab);
    assert!(!folder.exists() && !netns.exists());
    assert!(!std::path::Path::new(&format!("/proc/{pid}")).exists());
}
