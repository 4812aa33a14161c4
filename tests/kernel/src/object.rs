//! The object under test, loaded anew for each test, with its maps.

use std::net::{IpAddr, SocketAddr};
use std::ops::{Deref, DerefMut};
use std::path::PathBuf;
use std::sync::Mutex;

use anyhow::{Context as _, Result};
use aya::maps::{Array, HashMap, MapData, PerCpuArray, PerCpuValues};
use aya::programs::{SchedClassifier, SkLookup, TestRun as _, TestRunOptions};
use aya::util::nr_cpus;
use aya::{Ebpf, EbpfLoader};
use gateway_common::abi::{
    BackendValue, Config, Counter, FlowKey, FlowValue, FragmentKey, FragmentValue, ListenerKey,
    ListenerValue, SLOTS_PER_CHUNK, ServiceCounters, SlotChunk, SteerValue, TCP, UDP,
};
use gateway_common::address::Address;
use gateway_common::maps;

/// Names the object; without it, what `cargo xtask build-ebpf` made.
const OBJECT: &str = "GATEWAY_EBPF_OBJECT";

/// TC verdicts.
pub const PASS: i32 = -1;
pub const REDIRECT: i32 = 7;

/// Interface that test runs come from: loopback.
pub const LOOPBACK: u32 = 1;

pub fn path() -> PathBuf {
    std::env::var_os(OBJECT).map_or_else(
        || {
            PathBuf::from(env!("CARGO_MANIFEST_DIR"))
                .join("../../target/ebpf/bpfel-unknown-none/bpf/gateway-ebpf")
        },
        PathBuf::from,
    )
}

/// The loaded programs and their maps.
#[derive(Debug)]
pub struct Object {
    pub ebpf: Ebpf,
    n_chunks: u32,
    n_backends: u32,
}

/// What became of a packet.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Outcome {
    pub action: i32,
    pub frame: Vec<u8>,
}

const SMALL_SERVICES: u32 = 64;

/// Source ports unless a test chooses others: those of the agent.
const SOURCE_PORTS: Config = Config { source_port_first: 10_000, source_port_count: 20_000 };

/// Small maps for tests that fill none: an emulated machine takes long to clear the default ones.
const SMALL: [(&str, u32); 8] = [
    (maps::BACKENDS, 64),
    (maps::FLOWS, 1_024),
    (maps::FRAGMENTS, 64),
    (maps::HALF_OPEN, 2_048),
    (maps::LISTENERS, 64),
    (maps::SERVICE_COUNTERS, SMALL_SERVICES),
    (maps::SLOTS, 256),
    (maps::STEERED, 64),
];

/// Objects with empty maps that a test is done with. Loading takes seconds on an emulated machine.
static IDLE: Mutex<Vec<Object>> = Mutex::new(Vec::new());

/// An object with empty maps that goes back for the next test, unless this one failed.
#[derive(Debug)]
pub struct Lease(Option<Object>);

impl Deref for Lease {
    type Target = Object;

    fn deref(&self) -> &Object {
        self.0.as_ref().expect("taken on drop only")
    }
}

impl DerefMut for Lease {
    fn deref_mut(&mut self) -> &mut Object {
        self.0.as_mut().expect("taken on drop only")
    }
}

impl Drop for Lease {
    fn drop(&mut self) {
        if let Some(mut object) = self.0.take()
            && !std::thread::panicking()
        {
            object.empty();
            IDLE.lock().expect("no holder panics").push(object);
        }
    }
}

impl Object {
    /// For tests that run packets only. What attaches, or needs maps of other sizes, loads its own.
    pub fn lease() -> Lease {
        let idle = IDLE.lock().expect("no holder panics").pop();
        Lease(Some(idle.unwrap_or_else(Self::load)))
    }

    pub fn load() -> Self {
        Self::load_with(|_| {})
    }

    /// With the maps as large as the agent has them by default.
    pub fn load_full() -> Self {
        Self::try_load(|_| {}).unwrap_or_else(|error| panic!("{error:#}"))
    }

    /// Panics with the remedy, for no test can go on.
    pub fn load_with(change: impl FnOnce(&mut EbpfLoader<'_>)) -> Self {
        Self::try_load(|loader| {
            for (name, entries) in SMALL {
                loader.map_max_entries(name, entries);
            }
            change(loader);
        })
        .unwrap_or_else(|error| panic!("{error:#}"))
    }

    fn try_load(change: impl FnOnce(&mut EbpfLoader<'_>)) -> Result<Self> {
        lab::require_root()?;
        let path = path();
        let bytes = std::fs::read(&path).with_context(|| {
            format!("cannot read {}: run `cargo xtask build-ebpf`, or set {OBJECT}", path.display())
        })?;
        let mut loader = EbpfLoader::new();
        change(&mut loader);
        let mut ebpf = loader.load(&bytes).context("cannot load the object")?;
        let classifier: &mut SchedClassifier =
            ebpf.program_mut(maps::L4_INGRESS).context("no l4_ingress")?.try_into()?;
        classifier.load().context("the verifier refuses l4_ingress")?;
        let lookup: &mut SkLookup = ebpf.program_mut(maps::STEER).context("no steer")?.try_into()?;
        lookup.load().context("the verifier refuses steer")?;
        let mut object = Self { ebpf, n_chunks: 0, n_backends: 0 };
        object.configure(SOURCE_PORTS);
        Ok(object)
    }

    /// Back to how it was loaded.
    fn empty(&mut self) {
        fn clear<K: aya::Pod, V: aya::Pod>(object: &mut Object, name: &str) {
            let mut map = object.hash::<K, V>(name);
            let keys: Vec<K> = map.keys().flatten().collect();
            for key in keys {
                map.remove(&key).unwrap_or_else(|error| panic!("clear {name}: {error}"));
            }
        }
        clear::<u32, BackendValue>(self, maps::BACKENDS);
        clear::<ListenerKey, ListenerValue>(self, maps::LISTENERS);
        clear::<FlowKey, FlowValue>(self, maps::FLOWS);
        clear::<FlowKey, FlowValue>(self, maps::HALF_OPEN);
        clear::<FragmentKey, FragmentValue>(self, maps::FRAGMENTS);
        clear::<ListenerKey, SteerValue>(self, maps::STEERED);
        for counter in 0..Counter::ALL.len() as u32 {
            self.set_on_every_cpu(maps::COUNTERS, counter, 0_u64);
        }
        for service in 0..self.n_chunks.min(SMALL_SERVICES) {
            self.set_on_every_cpu(maps::SERVICE_COUNTERS, service, ServiceCounters::default());
        }
        (self.n_chunks, self.n_backends) = (0, 0);
        self.configure(SOURCE_PORTS);
    }

    fn set_on_every_cpu<V: aya::Pod>(&mut self, name: &str, index: u32, value: V) {
        let n_cpus = nr_cpus().expect("count CPUs").get() as usize;
        let values = PerCpuValues::try_from(vec![value; n_cpus]).expect("one each");
        let map = self.ebpf.map_mut(name).unwrap_or_else(|| panic!("no map {name}"));
        PerCpuArray::try_from(map).and_then(|mut map| map.set(index, values, 0)).expect("write");
    }

    pub fn classifier(&mut self) -> &mut SchedClassifier {
        self.ebpf
            .program_mut(maps::L4_INGRESS)
            .and_then(|program| program.try_into().ok())
            .expect("loaded above")
    }

    /// Runs the classifier on a frame that came in by loopback.
    pub fn run(&mut self, frame: &[u8]) -> Outcome {
        self.try_run(frame).unwrap_or_else(|error| panic!("test run of {} bytes: {error}", frame.len()))
    }

    /// As [`Self::run`]; the kernel itself refuses frames that are too short.
    pub fn try_run(&mut self, frame: &[u8]) -> Result<Outcome, aya::programs::ProgramError> {
        let mut out = vec![0; frame.len() + 256];
        let options =
            TestRunOptions { data_in: Some(frame), data_out: Some(&mut out), ..TestRunOptions::default() };
        let result = self.classifier().test_run(options)?;
        out.truncate(result.data_size_out as usize);
        Ok(Outcome { action: result.return_value.cast_signed(), frame: out })
    }

    pub fn hash<K: aya::Pod, V: aya::Pod>(&mut self, name: &str) -> HashMap<&mut MapData, K, V> {
        let map = self.ebpf.map_mut(name).unwrap_or_else(|| panic!("no map {name}"));
        HashMap::try_from(map).unwrap_or_else(|error| panic!("{name}: {error}"))
    }

    pub fn configure(&mut self, config: Config) {
        let map = self.ebpf.map_mut(maps::CONFIG).expect("no map CONFIG");
        Array::try_from(map)
            .and_then(|mut map: Array<_, Config>| map.set(0, &config, 0))
            .expect("write CONFIG");
    }

    /// A backend with its source address; returns its id.
    pub fn backend(&mut self, address: SocketAddr, source: IpAddr) -> u32 {
        self.backend_by(address, source, LOOPBACK)
    }

    pub fn backend_by(&mut self, address: SocketAddr, source: IpAddr, ifindex: u32) -> u32 {
        self.n_backends += 1;
        let value = BackendValue {
            address: address.ip().into(),
            source: source.into(),
            ifindex,
            port_be: address.port().to_be(),
            reserved: 0,
        };
        let id = self.n_backends;
        self.hash(maps::BACKENDS).insert(&id, &value, 0).expect("write BACKENDS");
        id
    }

    /// A listener over a table with these backend ids in turn; returns its service id.
    pub fn listen(&mut self, proto: u8, vip: SocketAddr, backends: &[u32]) -> u32 {
        let n_slots = 251;
        let first_chunk = self.n_chunks;
        self.n_chunks += n_slots / SLOTS_PER_CHUNK + 1;
        {
            let map = self.ebpf.map_mut(maps::SLOTS).expect("no map SLOTS");
            let mut slots: Array<_, SlotChunk> = Array::try_from(map).expect("SLOTS");
            let mut ids = backends.iter().copied().cycle();
            for index in first_chunk..self.n_chunks {
                let chunk = SlotChunk { backends: std::array::from_fn(|_| ids.next().unwrap_or(0)) };
                slots.set(index, &chunk, 0).expect("write SLOTS");
            }
        }
        let value = ListenerValue { first_chunk, n_slots, service: first_chunk, reserved: 0 };
        self.hash(maps::LISTENERS).insert(&listener_key(proto, vip), &value, 0).expect("write LISTENERS");
        first_chunk
    }

    pub fn entries(&mut self, map: &str) -> Vec<(FlowKey, FlowValue)> {
        self.hash(map).iter().collect::<Result<_, _>>().unwrap_or_else(|error| panic!("read {map}: {error}"))
    }

    pub fn counter(&mut self, counter: Counter) -> u64 {
        let map = self.ebpf.map_mut(maps::COUNTERS).expect("no map COUNTERS");
        let map: PerCpuArray<_, u64> = PerCpuArray::try_from(map).expect("COUNTERS");
        map.get(&(counter as u32), 0).expect("read COUNTERS").iter().sum()
    }

    pub fn service_counters(&mut self, service: u32) -> ServiceCounters {
        let map = self.ebpf.map_mut(maps::SERVICE_COUNTERS).expect("no map SERVICE_COUNTERS");
        let map: PerCpuArray<_, ServiceCounters> = PerCpuArray::try_from(map).expect("SERVICE_COUNTERS");
        let values = map.get(&service, 0).expect("read SERVICE_COUNTERS");
        values.iter().fold(ServiceCounters::default(), |sum, value| ServiceCounters {
            flows: sum.flows + value.flows,
            received_packets: sum.received_packets + value.received_packets,
            received_bytes: sum.received_bytes + value.received_bytes,
            sent_packets: sum.sent_packets + value.sent_packets,
            sent_bytes: sum.sent_bytes + value.sent_bytes,
        })
    }
}

pub fn listener_key(proto: u8, vip: SocketAddr) -> ListenerKey {
    assert!(proto == TCP || proto == UDP);
    ListenerKey { address: vip.ip().into(), port_be: vip.port().to_be(), proto, reserved: 0 }
}

/// Key of the packets from `source` to `destination`.
pub fn flow_key(proto: u8, source: SocketAddr, destination: SocketAddr) -> FlowKey {
    FlowKey {
        source: Address::from_ip(source.ip()),
        destination: Address::from_ip(destination.ip()),
        source_port_be: source.port().to_be(),
        destination_port_be: destination.port().to_be(),
        proto,
        reserved: [0; 3],
    }
}
