//! TLSRoute: passthrough by server name.

use std::io::{Read as _, Write as _};
use std::net::{IpAddr, Shutdown, SocketAddr};

use anyhow::{Result, ensure};
use lab::client::connect;
use lab::hello::Hello;
use lab::manifests::{gateway, l4_route_with, service, write};
use lab::pki::self_signed;
use lab::servers::{TcpServer, any};
use lab::{Agent, AgentOptions, Command, Datapath, Family, Lab, Process, eventually};

use crate::bed::{both, on_each_datapath, routed};

pub(crate) const TLS_PORT: u16 = 443;
pub(crate) const TLS_TARGET: u16 = 8443;

/// A TLS listener on 443; each item is a route `tls-N` of these hostnames to backend N.
pub(crate) fn serve_tls(lab: &Lab, hostnames: &[&[&str]]) -> Result<()> {
    let mut text = gateway("gw", &[("tls", "TLS", TLS_PORT)]);
    for (names, index) in hostnames.iter().zip(1u8..) {
        let name = format!("tls-{index}");
        text += &l4_route_with("TLSRoute", &name, "gw", "tls", names, &[(&name, 443, 1)]);
        text += &service(&name, "TCP", 443, TLS_TARGET, &both(lab, index));
    }
    write(&lab.manifests(), "all.yaml", &text)
}

/// A backend that answers `ID N\n` to the first N bytes, which it keeps, and then echoes.
pub(crate) fn recorder(lab: &Lab, index: u8, length: usize) -> Result<TcpServer> {
    TcpServer::start(lab.backend(index), any(TLS_TARGET), move |mut stream, _| {
        let mut hello = vec![0; length];
        stream.read_exact(&mut hello)?;
        let sum: u64 = hello.iter().zip(1u64..).map(|(byte, place)| u64::from(*byte) * place).sum();
        writeln!(stream, "backend-{index} {sum}")?;
        let mut buffer = [0; 16 * 1024];
        loop {
            let count = stream.read(&mut buffer)?;
            if count == 0 {
                return Ok(());
            }
            stream.write_all(&buffer[..count])?;
        }
    })
}

/// What [`recorder`] answers to exactly these bytes.
pub(crate) fn receipt(index: u8, hello: &[u8]) -> String {
    let sum: u64 = hello.iter().zip(1u64..).map(|(byte, place)| u64::from(*byte) * place).sum();
    format!("backend-{index} {sum}\n")
}

fn openssl_server(lab: &Lab, index: u8, hostname: &str) -> Result<Process> {
    let certificate = self_signed(lab.folder(), &format!("tls-{index}"), &[hostname])?;
    let openssl = lab::require_program("openssl", "openssl")?;
    let server = Command::new(&format!("s_server-{index}"), openssl)
        .args(["s_server", "-quiet", "-www", "-accept", &TLS_TARGET.to_string()])
        .args([
            "-cert".as_ref(),
            certificate.certificate.as_os_str(),
            "-key".as_ref(),
            certificate.key.as_os_str(),
        ])
        .netns(lab.backend(index))
        .start(lab)?;
    eventually("openssl s_server listens", || {
        server.check_running()?;
        connect(lab.gateway(), SocketAddr::new(lab.backend_address(index, Family::V4), TLS_TARGET)).map(drop)
    })?;
    Ok(server)
}

/// A whole handshake by openssl's client; the certificate is checked against the name.
fn handshake(lab: &Lab, to: IpAddr, name: &str, index: u8) -> Result<String> {
    let address = match to {
        IpAddr::V4(v4) => format!("{v4}:{TLS_PORT}"),
        IpAddr::V6(v6) => format!("[{v6}]:{TLS_PORT}"),
    };
    let ca = lab.folder().join(format!("tls-{index}.crt"));
    lab.client().output(
        "openssl",
        &[
            "s_client",
            "-connect",
            &address,
            "-servername",
            name,
            "-verify_return_error",
            "-verify_hostname",
            name,
            "-CAfile",
            &ca.to_string_lossy(),
            "-brief",
        ],
    )
}

on_each_datapath!(
    handshakes_reach_the_backend_of_the_name,
    names_match_exactly_then_by_longest_wildcard,
    hello_is_passed_byte_for_byte_however_cut,
    half_close_passes_both_ways,
    bulk_data_arrives_unchanged,
);

fn handshakes_reach_the_backend_of_the_name(datapath: Datapath) {
    routed(2, |lab| {
        serve_tls(lab, &[&["one.example.com"], &["*.two.example.com"]])?;
        let _one = openssl_server(lab, 1, "one.example.com")?;
        let _two = openssl_server(lab, 2, "*.two.example.com")?;
        let _agent = Agent::start(lab, &AgentOptions::new(datapath))?;
        for family in Family::BOTH {
            let to = lab.gateway_address(family);
            handshake(lab, to, "one.example.com", 1)?;
            handshake(lab, to, "a.two.example.com", 2)?;
            // The other backend's certificate: each name really ends at its own server.
            ensure!(
                handshake(lab, to, "one.example.com", 2).is_err(),
                "{family}: any certificate is accepted"
            );
        }
        Ok(())
    });
}

fn names_match_exactly_then_by_longest_wildcard(datapath: Datapath) {
    routed(3, |lab| {
        serve_tls(lab, &[&["a.example.com"], &["*.example.com"], &["*.b.example.com"]])?;
        let length = Hello { server_name: Some("a.example.com"), at_least: 300 }.records(16_384).len();
        let _servers = (1..=3).map(|index| recorder(lab, index, length)).collect::<Result<Vec<_>>>()?;
        let _agent = Agent::start(lab, &AgentOptions::new(datapath))?;
        // O03: capitals are the same name.
        for (name, index) in [
            ("a.example.com", 1),
            ("A.Example.COM", 1),
            ("c.example.com", 2),
            ("x.y.example.com", 2),
            ("x.b.example.com", 3),
            ("b.example.com", 2),
        ] {
            let hello = Hello { server_name: Some(name), at_least: 300 }.records(16_384);
            ensure!(hello.len() == length, "test hello has {} bytes", hello.len());
            let answer = send_hello(lab, Family::V6, &hello)?;
            ensure!(answer == receipt(index, &hello), "{name}: {answer:?}");
        }
        for name in ["example.com", "elsewhere.org"] {
            let hello = Hello { server_name: Some(name), at_least: 300 }.records(16_384);
            // Refused without a TLS record: the listener holds no key and speaks no TLS.
            let answer = send_hello(lab, Family::V6, &hello).unwrap_or_default();
            ensure!(answer.is_empty(), "{name}: {answer:?}");
        }
        Ok(())
    });
}

/// Sends a hello at once and reads one line.
pub(crate) fn send_hello(lab: &Lab, family: Family, hello: &[u8]) -> Result<String> {
    let mut stream = connect(lab.client(), lab.at_gateway(family, TLS_PORT))?;
    stream.write_all(hello)?;
    read_line(&mut stream)
}

pub(crate) fn read_line(stream: &mut std::net::TcpStream) -> Result<String> {
    let mut line = Vec::new();
    let mut byte = [0];
    while !line.ends_with(b"\n") && stream.read(&mut byte)? == 1 {
        line.push(byte[0]);
    }
    Ok(String::from_utf8(line)?)
}

fn hello_is_passed_byte_for_byte_however_cut(datapath: Datapath) {
    routed(1, |lab| {
        serve_tls(lab, &[&["a.example.com"]])?;
        // O01, O02: one record or many, small or as large as is taken.
        for (at_least, record) in
            [(0, 16_384), (0, 1), (0, 100), (1800, 16_384), (1800, 100), (15_000, 16_384), (15_000, 7)]
        {
            let hello = Hello { server_name: Some("a.example.com"), at_least }.records(record);
            let _server = recorder(lab, 1, hello.len())?;
            let _agent = Agent::start(lab, &AgentOptions::new(datapath))?;
            for family in Family::BOTH {
                let answer = send_hello(lab, family, &hello)?;
                ensure!(
                    answer == receipt(1, &hello),
                    "{family} {at_least} bytes, records of {record}: {answer:?}"
                );
            }
        }
        Ok(())
    });
}

fn half_close_passes_both_ways(datapath: Datapath) {
    routed(1, |lab| {
        serve_tls(lab, &[&["a.example.com"]])?;
        // O10: everything before the end of the stream arrives, and the answer comes after it.
        let _server = TcpServer::start(lab.backend(1), any(TLS_TARGET), |mut stream, _| {
            let mut all = Vec::new();
            stream.read_to_end(&mut all)?;
            writeln!(stream, "got {}", all.len())?;
            Ok(())
        })?;
        let _agent = Agent::start(lab, &AgentOptions::new(datapath))?;
        for family in Family::BOTH {
            let hello = Hello { server_name: Some("a.example.com"), at_least: 0 }.records(16_384);
            let mut stream = connect(lab.client(), lab.at_gateway(family, TLS_PORT))?;
            stream.write_all(&hello)?;
            stream.write_all(&vec![7; 1_000_000])?;
            stream.shutdown(Shutdown::Write)?;
            let answer = read_line(&mut stream)?;
            ensure!(answer == format!("got {}\n", hello.len() + 1_000_000), "{family}: {answer:?}");
            ensure!(stream.read(&mut [0])? == 0, "{family}: the end of the stream does not come back");
        }
        Ok(())
    });
}

fn bulk_data_arrives_unchanged(datapath: Datapath) {
    routed(1, |lab| {
        const SIZE: usize = 8_000_000;
        serve_tls(lab, &[&["a.example.com"]])?;
        let hello = Hello { server_name: Some("a.example.com"), at_least: 0 }.records(16_384);
        let _server = recorder(lab, 1, hello.len())?;
        let _agent = Agent::start(lab, &AgentOptions::new(datapath))?;
        for family in Family::BOTH {
            let mut stream = connect(lab.client(), lab.at_gateway(family, TLS_PORT))?;
            stream.write_all(&hello)?;
            ensure!(read_line(&mut stream)? == receipt(1, &hello), "{family}: hello");
            let sent: Vec<u8> = (0..SIZE).map(|place| (place * place / 7).to_le_bytes()[0]).collect();
            let mut writer = stream.try_clone()?;
            let mut back = vec![0; SIZE];
            std::thread::scope(|scope| {
                let sender = scope.spawn(|| writer.write_all(&sent));
                let read = stream.read_exact(&mut back);
                sender.join().expect("the sender does not panic").and(read)
            })?;
            ensure!(back == sent, "{family}: other bytes came back");
        }
        Ok(())
    });
}
