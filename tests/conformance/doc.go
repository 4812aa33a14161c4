// Package conformance holds no code: its test binary is the Gateway API's conformance suite, unmodified, at the release
// that go.mod pins. `cargo xtask conformance` builds and runs it.
package conformance
