//! The control plane on its machine: certificates by kubeadm, then etcd, API server, controllers, scheduler and
//! the fault proxy.
//!
//! The flags are those that kubeadm would write, but for what is said at each. It does not restart what dies: a test
//! that kills a part wants it dead.

use std::fs;
use std::path::Path;
use std::process::Command;

use anyhow::{Context as _, Result, bail, ensure};

use super::machine::Machine;
use super::network::{API_PORT, API_SERVER, FAULTS_CONTROL_PORT, FAULTS_PORT, NODES, PODS, SERVICES, lan};
use super::{Folder, patiently};
use crate::command::output;

/// Everything that a service account asks for, without the bodies: who asked for what, and whether it was allowed.
/// Those of Kubernetes' own controllers ask a lot, and nobody asks about them.
const AUDIT: &str = r#"
apiVersion: audit.k8s.io/v1
kind: Policy
omitStages: [RequestReceived]
rules:
  - level: None
    userGroups: ["system:serviceaccounts:kube-system"]
  - level: Metadata
    userGroups: ["system:serviceaccounts"]
  - level: None
"#;

/// Files of a kubeconfig, the user in it, and its group.
fn users() -> Vec<(String, String, Option<&'static str>)> {
    let mut users = vec![
        ("admin".to_owned(), "admin".to_owned(), Some("system:masters")),
        ("controllers".to_owned(), "system:kube-controller-manager".to_owned(), None),
        ("scheduler".to_owned(), "system:kube-scheduler".to_owned(), None),
        ("proxy".to_owned(), "system:kube-proxy".to_owned(), None),
        ("loadbalancer".to_owned(), "loadbalancer".to_owned(), None),
    ];
    users.extend(
        NODES.iter().map(|n| (n.name.to_owned(), format!("system:node:{}", n.name), Some("system:nodes"))),
    );
    users
}

pub(super) fn certificates(folder: &Folder, binaries: &Path) -> Result<()> {
    let config = folder.write(
        "kubeadm.yaml",
        &format!(
            r#"apiVersion: kubeadm.k8s.io/v1beta4
kind: InitConfiguration
localAPIEndpoint: {{advertiseAddress: {API_SERVER}, bindPort: {API_PORT}}}
nodeRegistration: {{name: cp, criSocket: "unix:///run/containerd/containerd.sock"}}
---
apiVersion: kubeadm.k8s.io/v1beta4
kind: ClusterConfiguration
kubernetesVersion: v1.36.3
clusterName: {name}
certificatesDir: {pki}
encryptionAlgorithm: ECDSA-P256
controlPlaneEndpoint: {API_SERVER}:{API_PORT}
networking: {{serviceSubnet: "{SERVICES}", podSubnet: "{PODS}"}}
apiServer: {{certSANs: ["fd31::10", "localhost"]}}
"#,
            name = super::name(),
            pki = folder.path("pki").display(),
        ),
    )?;
    let kubeadm = || {
        let mut command = Command::new(binaries.join("kubernetes"));
        command.arg("kubeadm");
        command
    };
    output(kubeadm().args(["init", "phase", "certs", "all", "--config"]).arg(&config))?;
    std::thread::scope(|scope| {
        let users: Vec<_> = users()
            .into_iter()
            .map(|(file, user, group)| {
                let (kubeadm, config) = (&kubeadm, &config);
                scope.spawn(move || -> Result<()> {
                    let mut command = kubeadm();
                    command
                        .args(["kubeconfig", "user", "--config"])
                        .arg(config)
                        .args(["--client-name", &user]);
                    if let Some(group) = group {
                        command.args(["--org", group]);
                    }
                    let text = output(&mut command)?;
                    folder.write(&format!("{file}.kubeconfig"), &text).map(drop)
                })
            })
            .collect();
        users.into_iter().try_for_each(|user| user.join().expect("the thread does not panic"))
    })?;
    write_faults_kubeconfig(folder)
}

pub(super) fn start(machine: &Machine, folder: &Folder, binaries: &Path) -> Result<()> {
    folder.write("audit.yaml", AUDIT)?;
    start_part("etcd", machine, folder, binaries)?;
    start_part("kube-apiserver", machine, folder, binaries)?;
    wait_until_ready(folder)?;
    for name in ["kube-controller-manager", "kube-scheduler", "faults"] {
        start_part(name, machine, folder, binaries)?;
    }
    Ok(())
}

/// Starts one program of the control plane by its name.
pub(super) fn start_part(name: &str, machine: &Machine, folder: &Folder, binaries: &Path) -> Result<()> {
    let flags = match name {
        "etcd" => etcd(folder),
        "kube-apiserver" => api_server(folder),
        "kube-controller-manager" => controllers(folder),
        "kube-scheduler" => identity(folder, "scheduler"),
        "faults" => fault_proxy(folder),
        _ => bail!("the control plane has no {name}"),
    };
    let mut command = if name == "faults" {
        machine.command(binaries.join(name))
    } else {
        let mut command = machine.command(binaries.join("kubernetes"));
        command.arg(name);
        command
    };
    machine.start(name, folder, command.args(flags))
}

pub(super) fn wait_until_ready(folder: &Folder) -> Result<()> {
    // Everybody may ask this, as soon as the built-in roles are written.
    let ready = format!("https://{API_SERVER}:{API_PORT}/readyz");
    patiently("the API server is ready", || {
        let mut curl = Command::new("nsenter");
        curl.arg(format!("--net=/run/netns/{}", lan()));
        curl.args(["curl", "--silent", "--show-error", "--fail", "--max-time", "2", "--cacert"]);
        output(curl.arg(folder.path("pki/ca.crt")).arg(&ready)).map(drop)
    })
    .with_context(|| format!("see {}", folder.log("cp-kube-apiserver").display()))
}

/// The administrator's kubeconfig, by way of the proxy.
fn write_faults_kubeconfig(folder: &Folder) -> Result<()> {
    let admin = fs::read_to_string(folder.kubeconfig("admin"))?;
    let by_proxy = admin.replace(&format!(":{API_PORT}"), &format!(":{FAULTS_PORT}"));
    ensure!(by_proxy != admin, "the administrator's kubeconfig names no port {API_PORT}");
    folder.write("faults.kubeconfig", &by_proxy).map(drop)
}

/// `--NAME=FOLDER/pki/FILE`
fn pki<'a>(folder: &Folder, files: impl IntoIterator<Item = (&'a str, &'a str)>) -> Vec<String> {
    let pki = folder.path("pki");
    files.into_iter().map(|(flag, file)| format!("--{flag}={}", pki.join(file).display())).collect()
}

fn etcd(folder: &Folder) -> Vec<String> {
    let mut flags = pki(
        folder,
        [
            ("cert-file", "etcd/server.crt"),
            ("key-file", "etcd/server.key"),
            ("trusted-ca-file", "etcd/ca.crt"),
        ],
    );
    flags.extend([
        "--name=cp".to_owned(),
        format!("--data-dir={}", folder.path("etcd").display()),
        // Only a crash of the whole machine would lose something, and the cluster ends with that.
        "--unsafe-no-fsync".to_owned(),
        "--client-cert-auth".to_owned(),
        format!("--listen-client-urls=https://{API_SERVER}:2379"),
        format!("--advertise-client-urls=https://{API_SERVER}:2379"),
        // It has no peers.
        "--listen-peer-urls=http://127.0.0.1:2380".to_owned(),
        "--initial-advertise-peer-urls=http://127.0.0.1:2380".to_owned(),
        "--initial-cluster=cp=http://127.0.0.1:2380".to_owned(),
    ]);
    flags
}

fn api_server(folder: &Folder) -> Vec<String> {
    let mut flags = pki(
        folder,
        [
            ("etcd-cafile", "etcd/ca.crt"),
            ("etcd-certfile", "apiserver-etcd-client.crt"),
            ("etcd-keyfile", "apiserver-etcd-client.key"),
            ("client-ca-file", "ca.crt"),
            ("tls-cert-file", "apiserver.crt"),
            ("tls-private-key-file", "apiserver.key"),
            ("kubelet-client-certificate", "apiserver-kubelet-client.crt"),
            ("kubelet-client-key", "apiserver-kubelet-client.key"),
            ("proxy-client-cert-file", "front-proxy-client.crt"),
            ("proxy-client-key-file", "front-proxy-client.key"),
            ("requestheader-client-ca-file", "front-proxy-ca.crt"),
            ("service-account-key-file", "sa.pub"),
            ("service-account-signing-key-file", "sa.key"),
        ],
    );
    flags.extend([
        format!("--etcd-servers=https://{API_SERVER}:2379"),
        format!("--advertise-address={API_SERVER}"),
        "--bind-address=::".to_owned(),
        format!("--secure-port={API_PORT}"),
        "--requestheader-allowed-names=front-proxy-client".to_owned(),
        "--requestheader-extra-headers-prefix=X-Remote-Extra-".to_owned(),
        "--requestheader-group-headers=X-Remote-Group".to_owned(),
        "--requestheader-username-headers=X-Remote-User".to_owned(),
        "--service-account-issuer=https://kubernetes.default.svc.cluster.local".to_owned(),
        format!("--service-cluster-ip-range={SERVICES}"),
        "--authorization-mode=Node,RBAC".to_owned(),
        "--enable-admission-plugins=NodeRestriction".to_owned(),
        "--allow-privileged=true".to_owned(),
        "--kubelet-preferred-address-types=InternalIP".to_owned(),
        format!("--audit-policy-file={}", folder.path("audit.yaml").display()),
        format!("--audit-log-path={}", folder.path("logs/audit.log").display()),
    ]);
    flags
}

/// The proxy before the API server, beside it and with its certificate, which names the machine.
fn fault_proxy(folder: &Folder) -> Vec<String> {
    let mut flags = pki(
        folder,
        [
            ("tls-cert-file", "apiserver.crt"),
            ("tls-private-key-file", "apiserver.key"),
            ("ca-file", "ca.crt"),
            ("proxy-client-cert-file", "front-proxy-client.crt"),
            ("proxy-client-key-file", "front-proxy-client.key"),
        ],
    );
    flags.extend([
        format!("--listen=:{FAULTS_PORT}"),
        format!("--control=:{FAULTS_CONTROL_PORT}"),
        format!("--upstream={API_SERVER}:{API_PORT}"),
    ]);
    flags
}

fn controllers(folder: &Folder) -> Vec<String> {
    let mut flags = pki(
        folder,
        [
            ("service-account-private-key-file", "sa.key"),
            ("root-ca-file", "ca.crt"),
            ("client-ca-file", "ca.crt"),
            ("cluster-signing-cert-file", "ca.crt"),
            ("cluster-signing-key-file", "ca.key"),
        ],
    );
    flags.extend(identity(folder, "controllers"));
    flags.extend([
        // The nodes are made with their ranges: the files of their network name the same ones.
        "--controllers=*,-node-ipam-controller".to_owned(),
        "--use-service-account-credentials".to_owned(),
        format!("--service-cluster-ip-range={SERVICES}"),
    ]);
    flags
}

fn identity(folder: &Folder, user: &str) -> Vec<String> {
    let file = folder.kubeconfig(user);
    let mut flags: Vec<_> = ["kubeconfig", "authentication-kubeconfig", "authorization-kubeconfig"]
        .iter()
        .map(|flag| format!("--{flag}={}", file.display()))
        .collect();
    // There is one of each.
    flags.push("--leader-elect=false".to_owned());
    flags
}
