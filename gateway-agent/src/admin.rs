//! The admin server: `/livez`, `/readyz`, `/metrics`, `/snapshot`.
