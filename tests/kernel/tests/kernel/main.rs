//! The kernel programs on this kernel: what they do to packets, and live between network namespaces. Needs root.
//!
//! One binary, so that it can be taken into a virtual machine with another kernel. What a kernel offers and which way was
//! taken is printed in lines that start with `fact: `.

mod fragments;
mod icmp;
mod live;
mod load;
mod passing;
mod scene;
mod steer;
mod tables;
mod tcp;
mod udp;
