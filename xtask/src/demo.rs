//! `demo`: the agent on `deploy/quickstart` in network namespaces, with real clients and servers.
//!
//! Everything shown is measured at that moment; an answer that is not the right one ends the demo with an error. It is no test
//! suite: `tests/netns` is.

mod backends;
mod live;
mod probe;
mod screen;

use std::fs;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, ensure};
use lab::{Agent, AgentOptions, Datapath, Family, Lab, Shape, agent, client};

use crate::command::root;
use crate::setup::{self, Purpose};
use backends::Backends;
use probe::{PathSeen, Watch};
use screen::Screen;

#[derive(clap::Args)]
pub(crate) struct Args {
    /// Stay up at the end and print commands to try
    #[arg(long)]
    keep: bool,
}

/// Web backends 1 and 2 serve `web`, TCP, UDP and TLS; 3 serves `web-next`.
const N_BACKENDS: u8 = 3;

pub(crate) fn run(args: &Args) -> Result<()> {
    lab::require_root()?;
    setup::prepare(&[Purpose::Demo])?;
    // The build that the tests use too: a release build would double the time to the first request.
    let binary = agent::binary()?;

    let lab = Lab::new(Shape::Routed { backends: N_BACKENDS })?;
    let backends = Backends::start(&lab)?;
    for entry in fs::read_dir(root().join("deploy/quickstart"))? {
        let path = entry?.path();
        if path.extension().is_some_and(|extension| extension == "yaml") {
            fs::copy(&path, lab.manifests().join(path.file_name().context("a file has a name")?))?;
        }
    }
    let names = "shop.example.com blue.apps.example.com other.example.com secure.example.com wrong.example.com \
                 gateway";
    let addresses = Family::BOTH.map(|family| (lab.gateway_address(family), names));
    lab.client().hosts(&addresses)?;

    let screen = Screen::new();
    screen.title("gateway-agent demo");
    screen.network(&lab);
    let start = Instant::now();
    let options = AgentOptions { binary: Some(binary.to_owned()), ..AgentOptions::new(Datapath::Auto) };
    let agent = Agent::start(&lab, &options).context("the agent does not start")?;
    screen.command(
        "gateway-agent --manifests deploy/quickstart --datapath auto",
        &format!("ready in {:.0?}", start.elapsed()),
    );
    let demo = Demo { lab: &lab, agent: &agent, backends: &backends, screen: &screen };
    demo.all().map_err(|error| error.context(format!("log of the agent:\n{}", agent.log())))?;
    if args.keep {
        demo.keep()?;
    }
    Ok(())
}

struct Demo<'a> {
    lab: &'a Lab,
    agent: &'a Agent,
    backends: &'a Backends,
    screen: &'a Screen,
}

impl Demo<'_> {
    fn all(&self) -> Result<()> {
        self.http()?;
        self.tls()?;
        self.sockets()?;
        self.live_change()?;
        self.kill_worker()?;
        self.conditions()
    }

    /// Runs `command` in the client's namespace for both families (`{}` becomes 4 or 6), checks and shows the answers.
    fn row(&self, listener: &str, command: &str, want: &[&str]) -> Result<()> {
        let mut answers = Vec::new();
        let watch = Watch::start(self.agent, listener)?;
        for digit in ["4", "6"] {
            let line = command.replace("{}", digit);
            let answer = self.in_client(&line)?;
            ensure!(
                want.iter().any(|want| answer.contains(want)),
                "`{line}` answered {answer:?}, not one of {want:?}"
            );
            answers.push(answer);
        }
        let path = watch.finish(self.agent)?;
        self.screen.row(&command.replace("{}", "46"), &answers, &path.to_string());
        Ok(())
    }

    /// A shell line as a user would type it behind `ip netns exec CLIENT`.
    fn in_client(&self, line: &str) -> Result<String> {
        let name = self.lab.client().name();
        let output =
            std::process::Command::new("ip").args(["netns", "exec", name, "sh", "-c", line]).output()?;
        let text = [output.stdout, output.stderr].concat();
        Ok(String::from_utf8_lossy(&text).trim().to_owned())
    }

    fn http(&self) -> Result<()> {
        self.screen.heading("HTTPRoute: by hostname, path, header and weight");
        let curl = "curl -s -{} --max-time 10 ";
        let web = ["web on backend-1", "web on backend-2"];
        let either = [web[0], web[1], "web-next on backend-3"];
        self.row("http", &format!("{curl}http://shop.example.com/"), &either)?;
        self.row("http", &format!("{curl}http://shop.example.com/version"), &["web-next on backend-3"])?;
        self.row("http", &format!("{curl}http://shop.example.com/api/orders"), &["web-next on backend-3"])?;
        self.row(
            "http",
            &format!("{curl}-H 'x-track: next' http://shop.example.com/"),
            &["web-next on backend-3"],
        )?;
        self.row("http", &format!("{curl}http://blue.apps.example.com/"), &web)?;
        let code = format!("{curl}-o /dev/null -w '%{{http_code}} no route' http://other.example.com/");
        self.row("http", &code, &["404"])?;
        self.weights()
    }

    fn weights(&self) -> Result<()> {
        const N_REQUESTS: u32 = 200;
        let to = self.lab.at_gateway(Family::V4, 80);
        let mut next = 0;
        for _ in 0..N_REQUESTS {
            let response = client::get(self.lab.client(), to, "shop.example.com", "/")?;
            ensure!(response.status == 200, "status {} under weights", response.status);
            next += u32::from(response.text().starts_with("web-next"));
        }
        let web = N_REQUESTS - next;
        // A fair split of 200 by 3:1 lies within 25 of 150 but once in thousands of runs.
        ensure!((125..=175).contains(&web), "{web} of {N_REQUESTS} requests went to web, not about 150");
        self.screen
            .fact(&format!("{N_REQUESTS} requests by weight 3:1"), &format!("{web} web, {next} web-next"));
        Ok(())
    }

    fn tls(&self) -> Result<()> {
        self.screen.section("TLSRoute: passed through by server name, the backend's own certificate");
        let ca = self.backends.certificate.certificate.display().to_string();
        let s_client = |name: &str| {
            format!(
                "openssl s_client -{{}} -connect secure.example.com:443 -servername {name} -CAfile {ca} </dev/null 2>&1 \
                 | grep -m1 -E 'Verification: OK|errno|alert|unexpected eof|no peer certificate' "
            )
        };
        self.row("tls", &s_client("secure.example.com"), &["Verification: OK"])?;
        self.row(
            "tls",
            &s_client("wrong.example.com"),
            &["errno=104", "unexpected eof", "no peer certificate"],
        )?;
        let curl = format!("curl -s -{{}} --max-time 10 --cacert {ca} https://secure.example.com/");
        self.row("tls", &curl, &["secure on backend-1", "secure on backend-2"])
    }

    /// One TCP and one UDP exchange from plain sockets, and whose source port the backend saw.
    fn sockets(&self) -> Result<()> {
        self.screen.section("TCPRoute and UDPRoute: plain sockets");
        self.socket_row("tcp", "TCP socket to gateway:5432, \"hello\" echoed", |demo, family| {
            let mut flow = client::EchoClient::connect(demo.lab.client(), demo.lab.at_gateway(family, 5432))?;
            flow.echo(b"hello")?;
            Ok(flow.greeting)
        })?;
        self.socket_row("udp", "UDP datagram to gateway:53, \"hello\" echoed", |demo, family| {
            let socket = client::udp(demo.lab.client(), demo.lab.at_gateway(family, 53))?;
            let answer = client::ask(&socket, b"hello")?;
            let greeting = client::Greeting::parse(&String::from_utf8_lossy(&answer))?;
            ensure!(greeting.rest == "hello", "the echo is {:?}", greeting.rest);
            Ok(greeting)
        })?;
        let forward = self.lab.gateway().read_sysctl("ipv4/ip_forward")?;
        let forward6 = self.lab.gateway().read_sysctl("ipv6/conf/all/forwarding")?;
        ensure!(forward == "0" && forward6 == "0", "the namespace forwards by itself");
        self.screen
            .fact("in the agent's namespace", "net.ipv4.ip_forward = 0, net.ipv6.conf.all.forwarding = 0");
        Ok(())
    }

    fn socket_row(
        &self,
        listener: &str,
        title: &str,
        exchange: impl Fn(&Self, Family) -> Result<client::Greeting>,
    ) -> Result<()> {
        let watch = Watch::start(self.agent, listener)?;
        let mut answers = Vec::new();
        let mut ports = Vec::new();
        for family in Family::BOTH {
            let greeting = exchange(self, family)?;
            answers.push(greeting.identity);
            ports.push(greeting.peer.port());
        }
        let path = watch.finish(self.agent)?;
        let of_range = ports.iter().all(|port| (10_000..30_000).contains(port));
        ensure!(of_range == matches!(path, PathSeen::Kernel(_)), "source ports {ports:?} do not fit {path}");
        self.screen.row(title, &answers, &path.to_string());
        Ok(())
    }

    /// The last table that the agent printed.
    fn conditions(&self) -> Result<()> {
        self.screen.section("conditions, as the agent prints them");
        let log = self.agent.log();
        let table = screen::last_table(&log).context("the agent printed no conditions")?;
        self.screen.table(&table);
        Ok(())
    }

    fn keep(&self) -> Result<()> {
        let client = format!("ip netns exec {}", self.lab.client().name());
        let gateway = format!("ip netns exec {}", self.lab.gateway().name());
        self.screen.section("still up; try (Ctrl-C ends it and cleans up)");
        for command in [
            format!("{client} curl http://shop.example.com/"),
            format!(
                "{client} curl --cacert {} https://secure.example.com/",
                self.backends.certificate.certificate.display()
            ),
            format!("{client} bash -c 'exec 3<>/dev/tcp/gateway/5432; head -1 <&3'"),
            format!("{client} bash -c 'exec 3<>/dev/udp/gateway/53; echo hello >&3; head -1 <&3'"),
            format!("{gateway} curl -s http://localhost:{}/metrics", agent::ADMIN_PORT),
            format!("$EDITOR {}/http.yaml", self.lab.manifests().display()),
            format!("tail -f {}", self.agent.process().log_path().display()),
        ] {
            println!("    {command}");
        }
        loop {
            self.agent.process().check_running()?;
            std::thread::park_timeout(Duration::from_secs(1));
        }
    }
}
