//! Entry points, one module each.

mod l4_ingress;
mod steer;
