//! The kernel data path: loads the programs, keeps their maps equal to the snapshot.

mod desired;
mod plan;
