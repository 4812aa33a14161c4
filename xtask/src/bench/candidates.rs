//! The peers, each alone in a network of its own, so that none pays for another's programs or rules.

use std::fs;
use std::net::SocketAddr;
use std::path::Path;

use anyhow::{Context as _, Result};
use lab::{Agent, AgentOptions, Command, Datapath, Family, Lab, Process, Shape, client, eventually};

use super::GATEWAY_CPU;
use super::cpu::Group;

/// One way from client to backend.
pub(super) struct Candidate {
    pub(super) name: String,
    pub(super) lab: Lab,
    /// Where the client connects to.
    pub(super) to: SocketAddr,
    pub(super) running: Running,
}

/// What does the gateway's work.
pub(super) enum Running {
    Agent(Agent),
    Peer(Process),
    /// The kernel alone.
    Kernel,
}

impl Candidate {
    /// The processes whose time is the gateway's, with all their threads.
    pub(super) fn gateway(&self) -> Group {
        Group::processes(&self.processes())
    }

    pub(super) fn processes(&self) -> Vec<i32> {
        match &self.running {
            Running::Agent(agent) => agent.process().tree(),
            Running::Peer(process) => process.tree(),
            Running::Kernel => Vec::new(),
        }
    }
}

/// A client, a gateway and one backend. Ports are reused at once: otherwise the scan for a free port would be measured
/// (87 to 173 µs of CPU for each connect instead of 37 to 53, with the default range).
pub(super) fn network() -> Result<Lab> {
    let lab = Lab::new(Shape::Routed { backends: 1 })?;
    lab.client().sysctl("ipv4/ip_local_port_range", "1024 65000")?;
    lab.gateway().sysctl("ipv4/ip_local_port_range", "30000 65000")?;
    for netns in [lab.client(), lab.gateway(), lab.backend(1)] {
        netns.sysctl("ipv4/tcp_tw_reuse", "1")?;
        // Thousands of connections a second in TIME_WAIT are the point of one measurement.
        netns.sysctl("ipv4/tcp_max_tw_buckets", "262144")?;
    }
    Ok(lab)
}

/// The agent with one worker, on the gateway's cpu, ready.
pub(super) fn agent(lab: &Lab, datapath: Datapath, binary: &Path) -> Result<Running> {
    let agent = launch_agent(lab, datapath, binary)?;
    agent.wait_ready()?;
    Ok(Running::Agent(agent))
}

/// The same, whether it is ready or not: of ten thousand routes an unoptimised build reads for half a minute.
pub(super) fn launch_agent(lab: &Lab, datapath: Datapath, binary: &Path) -> Result<Agent> {
    let options = AgentOptions {
        binary: Some(binary.to_owned()),
        workers: 1,
        cpu: Some(GATEWAY_CPU),
        ..AgentOptions::new(datapath)
    };
    Agent::launch(lab, &options.extra(["--log-level", "warn"]))
}

/// nginx as one process, in the gateway's namespace or in the backend's.
pub(super) fn nginx(lab: &Lab, role: &str, body: &str) -> Result<Process> {
    let nginx = lab::require_program("nginx", "nginx-light")?;
    let folder = lab.folder().join(role);
    fs::create_dir_all(&folder)?;
    let configuration = folder.join("nginx.conf");
    let modules = "load_module /usr/lib/nginx/modules/ngx_stream_module.so;\n";
    let modules = if body.contains("stream {") { modules } else { "" };
    let text = format!(
        "{modules}daemon off;\nmaster_process off;\npid nginx.pid;\nworker_rlimit_nofile 65536;\n\
         events {{ worker_connections 16384; }}\n{body}"
    );
    fs::write(&configuration, text)?;
    let netns = if role == "backend" { lab.backend(1) } else { lab.gateway() };
    let (prefix, file) = (folder.to_string_lossy(), configuration.to_string_lossy());
    netns.output(&nginx.to_string_lossy(), &["-t", "-q", "-p", &prefix, "-e", "stderr", "-c", &file])?;
    Command::new(role, nginx)
        .args(["-p".as_ref(), folder.as_os_str(), "-e".as_ref(), "stderr".as_ref()])
        .args(["-c".as_ref(), configuration.as_os_str()])
        .netns(netns)
        .cpu(GATEWAY_CPU)
        .start(lab)
}

/// HAProxy with one thread, in the gateway's namespace.
pub(super) fn haproxy(lab: &Lab, body: &str) -> Result<Process> {
    let haproxy = lab::require_program("haproxy", "haproxy")?;
    let configuration = lab.folder().join("haproxy.cfg");
    let text = format!(
        "global\n  nbthread 1\n  maxconn 4000\ndefaults\n  timeout connect 5s\n  timeout client 60s\n  \
         timeout server 60s\n{body}"
    );
    fs::write(&configuration, text)?;
    let check = ["-c", "-q", "-f", &configuration.to_string_lossy()];
    lab.gateway().output(&haproxy.to_string_lossy(), &check)?;
    Command::new("haproxy", haproxy)
        .args(["-db".as_ref(), "-f".as_ref(), configuration.as_os_str()])
        .netns(lab.gateway())
        .cpu(GATEWAY_CPU)
        .start(lab)
}

/// Until something accepts at the gateway's `port`.
pub(super) fn wait_open(lab: &Lab, process: &Process, port: u16) -> Result<()> {
    eventually("the peer listens", || {
        process.check_running()?;
        client::connect(lab.client(), lab.at_gateway(Family::V4, port)).map(drop)
    })
    .with_context(|| process.log())
}
